"""Snapshots in a log: the rows that a tool reads from a table all at once, and second snapshots of a table.

The first snapshot of a table comes before its changes. A second one means that the tool started again:
changes between the end of the old log and the snapshot are in neither, and a row that was deleted in between
would stay in the target. A second snapshot is therefore refused, unless the user specifies how to treat it.
Rows of an incremental snapshot, or of a Maxwell bootstrap, are read while changes are logged; they count as
changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mutation_api.cdc.messages.events import INCREMENTAL, Event, LogPart, NewSnapshot, Place, PositionSource
from mutation_api.cdc.messages.order import ORDER_OF_LINES, Order
from mutation_api.cdc.messages.table_names import TableIdentity
from mutation_api.errors import SourcePositionError

_STREAM = None
_State = str | None
"""The snapshot of a row, or None if the row is a change."""


@dataclass
class SnapshotFacts:
    """The facts of a first look about the snapshots of one table.

    ``states``: for each file, the lines at which rows of a snapshot, or changes, begin. ``positions``: for
    each snapshot, the part of its position that is comparable with the positions of changes; () if there is
    none. ``first_change``: the first position of a change; () if there is none. ``first_lsn``: for
    PostgreSQL, the smallest value of the greater of last commit and LSN.
    """

    states: dict[int, list[tuple[int, _State]]] = field(default_factory=dict)
    positions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    first_change: tuple[int, ...] = ()
    first_lsn: int | None = None

    def add(self, place: Place, event: Event) -> None:
        """Add the facts of a row. Rows of one file must be added in the order of its lines."""
        state = event.snapshot
        if state == INCREMENTAL:
            return
        states = self.states.get(place.file)
        if states is None:
            self.states[place.file] = [(place.offset, state)]
        elif states[-1][1] != state:
            states.append((place.offset, state))
        position = event.log_position
        if state is not None:
            if state not in self.positions:
                self.positions[state] = _compared(state, position)
        elif position is not None and position[0]:
            if not self.first_change or position < self.first_change:
                self.first_change = position
            lsn = position[0] if position[0] > position[1] else position[1]
            if self.first_lsn is None or lsn < self.first_lsn:
                self.first_lsn = lsn

    def merge(self, other: SnapshotFacts) -> None:
        """Add the facts of another part of the log."""
        for number, states in other.states.items():
            self.states.setdefault(number, []).extend(states)
        self.positions.update(other.positions)
        self.first_change = _first(self.first_change, other.first_change)
        if other.first_lsn is not None:
            self.first_lsn = min(other.first_lsn, self.first_lsn or other.first_lsn)

    def in_lines(
        self, files: Sequence[LogPart], *, is_partitioned: bool
    ) -> Iterator[list[tuple[Place, _State]]]:
        """Return the states in the order of lines: for each part, or for all parts in succession."""
        numbers = sorted(self.states, key=lambda each: files[each].number)
        parts = [
            [(Place(n, offset), state) for offset, state in sorted(self.states[n], key=_offset)]
            for n in numbers
        ]
        yield from parts if is_partitioned else [[each for part in parts for each in part]]


def _first(known: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return min(known, other) if known and other else known or other


def _offset(found: tuple[int, _State]) -> int:
    return found[0]


def _compared(state: str, position: tuple[int, int, int] | None) -> tuple[int, ...]:
    """Return the part of a snapshot's position that is comparable with changes.

    For MySQL this is the position. For PostgreSQL it is the LSN, before which there are no commits.
    """
    if position is not None and position != (0, 0, 0):
        return position
    return (int(state),) if state.isdecimal() else ()


@dataclass(frozen=True)
class _Snapshot:
    """A snapshot: the line that begins it, and its description if it is a second one, else None."""

    place: Place
    text: str | None


def last_new_snapshot(
    source_id: str,
    table: str,
    facts: SnapshotFacts,
    known: TableIdentity,
    order: Order,
    files: Sequence[LogPart],
    after: tuple[int, ...],
    choice: NewSnapshot,
) -> Place | None:
    """Return the line at which the last snapshot begins that was taken after changes and is not applied yet.

    A snapshot that replaces the rows of the target may come first in the log: under another name of the
    source the target may already have rows.

    Args:
        source_id: name of the source in messages.
        table: the table.
        facts: its facts.
        known: its identity in the watermark.
        order: the order of the operations.
        files: the parts of the log.
        after: the watermark, () without one.
        choice: the user's choice for such a snapshot.

    Raises:
        SourcePositionError: If there is such a snapshot, and the user did not choose how to treat it.
    """
    if order.by is PositionSource.MESSAGE and not order.is_partitioned:
        _check_positions(source_id, table, facts, known, files)
        return None
    begun = [
        each
        for part in facts.in_lines(files, is_partitioned=order.is_partitioned)
        for each in _begun(part, known, files, () if order.is_partitioned else after)
    ]
    found = [each for each in begun if each.text is not None]
    if found and choice is NewSnapshot.REFUSE:
        raise SourcePositionError(
            f"{source_id}, table {table}: {found[0].place.shown(files)}: {found[0].text}. Rows that were "
            "deleted in the source between the two are not reported. If the snapshot contains all rows of "
            "the table, use --new-snapshot replace. If it only repeats some rows and no change was missed "
            "(a requested blocking snapshot), use --new-snapshot merge"
        )
    if choice is NewSnapshot.REPLACE and not order.is_partitioned:
        found = begun
    return found[-1].place if found else None


def read_so_far(
    facts: SnapshotFacts | None, known: TableIdentity, order: Order, files: Sequence[LogPart]
) -> tuple[str | None, bool]:
    """Return the table's first snapshot, and True if changes followed it, once all messages are applied."""
    snapshot, is_streamed = known.snapshot, known.is_streamed
    if facts is None:
        return snapshot, is_streamed
    if order.by is PositionSource.MESSAGE and not order.is_partitioned:
        is_changed = any(state is _STREAM for states in facts.states.values() for _, state in states)
        return max(facts.positions, default=snapshot), is_streamed or is_changed
    for part in facts.in_lines(files, is_partitioned=False):
        for _, state in part:
            is_new = state is not _STREAM and state != snapshot
            snapshot = state if is_new else snapshot
            is_streamed = state is _STREAM or (is_streamed and not is_new)
    return snapshot, is_streamed


def _begun(
    states: Sequence[tuple[Place, _State]],
    known: TableIdentity,
    files: Sequence[LogPart],
    after: tuple[int, ...],
) -> Iterator[_Snapshot]:
    """Return the snapshots that begin after the watermark, in the order of lines."""
    snapshot, is_streamed = known.snapshot, known.is_streamed
    for place, state in states:
        is_applied = bool(after) and (files[place.file].number, place.offset) <= after[:2]
        if not is_applied and state is not _STREAM and state != snapshot:
            before = "changes of the table before it" if is_streamed else None
            if not is_streamed and snapshot is not None:
                before = f"another snapshot before it{_at(snapshot)}"
            yield _Snapshot(place, None if before is None else _described(state, before))
        if state is _STREAM:
            is_streamed = True
        elif state != snapshot:
            snapshot, is_streamed = state, False


def _check_positions(
    source_id: str, table: str, facts: SnapshotFacts, known: TableIdentity, files: Sequence[LogPart]
) -> None:
    """Raise SourcePositionError if a log that is ordered by positions has a second snapshot anywhere."""
    lines = [(Place(number, at), state) for number, states in facts.states.items() for at, state in states]
    places = [place for place, state in lines if state is not _STREAM]
    snapshots = {*facts.positions, *([known.snapshot] if known.snapshot is not None else [])}
    said = None
    if len(snapshots) > 1:
        last = max(facts.positions, key=lambda each: (facts.positions[each], each))
        said = _described(last, f"another snapshot of the table{_at(min(snapshots - {last}))}")
    for state, position in facts.positions.items():
        if known.is_streamed and state != known.snapshot:
            said = _described(state, "changes of the table before it, which were applied")
        lsn = () if facts.first_lsn is None else (facts.first_lsn,)
        first = lsn if len(position) == 1 else facts.first_change
        if first and first < position:
            said = _described(state, "changes of the table before it")
    for part in facts.in_lines(files, is_partitioned=True):
        for each in _begun(part, TableIdentity(), files, ()):
            said = each.text if each.text is not None else said
    if said is not None:
        place = max(places)
        raise SourcePositionError(
            f"{source_id}, table {table}: {place.shown(files)}: {said}. A connector that starts again "
            "counts positions from the beginning, and rows that were deleted in between are not reported. "
            f"{ORDER_OF_LINES} --new-snapshot replace"
        )


def _described(state: str, before: str) -> str:
    return f"the log has a snapshot of the table{_at(state)}, and {before}"


def _at(state: str) -> str:
    return f" (at {state})" if state else ""
