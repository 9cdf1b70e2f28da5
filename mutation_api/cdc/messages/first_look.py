"""The first look at a log: facts about each table, and changes of whole tables.

A log is read twice. The first look finds the tables, the order of operations and the end of the log. The
second reading, when the operations are evaluated, returns the operations. Parts of a log can be read
concurrently, and their facts merged.

Changes of whole tables are schema changes, which stop a run, and truncates, which may be applied. A schema
change has a position, like a row. A run applies what comes before it, while the target still has the old
shape, and then stops. Rows that were written before a change are therefore never read in the table's new
shape.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mutation_api.cdc.messages.events import LoggedEvent, LogOptions, LogPart, PositionSource
from mutation_api.cdc.messages.followed_tables import FollowedTables
from mutation_api.cdc.messages.new_columns import SchemaPlaces
from mutation_api.cdc.messages.order import Applied, Digest, LateFacts, Order, OrderFacts
from mutation_api.cdc.messages.shape import ShapeFacts
from mutation_api.cdc.messages.snapshots import SnapshotFacts
from mutation_api.cdc.messages.table_names import TableId
from mutation_api.cdc.messages.unwrap import MessageLog
from mutation_api.cdc.source import Position
from mutation_api.errors import InputFormatError

logger = logging.getLogger(__name__)

BEFORE = -1
"""The step of a position before the first operation of its message."""


@dataclass(frozen=True)
class Barrier:
    """A schema change at which a run stops: the last position before it, and the error that reports it."""

    before: tuple[int, ...]
    error: InputFormatError


@dataclass(frozen=True)
class TableChanges:
    """The schema changes and truncates of the followed tables, in any order.

    ``applied``: the positions up to which the tables were applied, and the parts of the log that had been
    read by then.
    """

    found: tuple[LoggedEvent, ...]
    followed: FollowedTables
    files: tuple[LogPart, ...]
    applied: Mapping[str, Applied] = field(default_factory=dict)

    def barrier(
        self,
        options: LogOptions,
        order: Order,
        after: Mapping[str, Position],
        firsts: Sequence[tuple[int, ...]],
    ) -> Barrier | None:
        """Return the first schema change that is neither applied already nor allowed by the options.

        Args:
            options: the user's choices.
            order: order of the log's operations.
            after: the watermarks, by table.
            firsts: position of the first operation of each table that has any.

        Raises:
            InputFormatError: If a change is not allowed and a run cannot stop at it, because it is a
                truncate, its order among the rows is not known, or nothing comes before it.
        """
        barrier: Barrier | None = None
        for change in sorted(self.found, key=lambda each: each.place):
            names = self.followed.touched_by(change.event)
            if self._is_allowed(change, names, options) or self._is_applied(change, names, order, after):
                continue
            error = self._refusal(change, names)
            before = self._before(change, order)
            is_first = before is None or all(first > before for first in firsts)
            is_reached = any(self._is_reached(change, name, order, after) for name in names)
            is_next = all(name in after and after[name].order == before for name in names)
            if before is None or is_first or is_reached or is_next:
                raise error
            if barrier is None or before < barrier.before:
                barrier = Barrier(before, error)
        return barrier

    def _is_allowed(self, change: LoggedEvent, names: Sequence[str], options: LogOptions) -> bool:
        if change.event.kind == "truncate":
            return options.applies_truncates and not any(map(self.followed.is_sharded, names))
        if options.accepts_schema_changes:
            logger.info("%s: left out: %s", change.place.shown(self.files), change.event.text)
        return options.accepts_schema_changes

    def _before(self, change: LoggedEvent, order: Order) -> tuple[int, ...] | None:
        """Return the last position before a schema change; None if a run cannot stop at it."""
        is_ordered = order.by is PositionSource.LINE or change.event.log_position is not None
        if change.event.kind == "truncate" or order.is_partitioned or not is_ordered:
            return None
        return (*order.before_steps(change, self.files), BEFORE)

    def check_parts(self, log: MessageLog, parts: Mapping[str, Collection[int]]) -> None:
        """Raise InputFormatError for a truncate whose order among the rows is not known.

        Args:
            log: the log.
            parts: for each table, the indices of the parts of the log that have its rows.
        """
        for change in self.found:
            event = change.event
            if event.kind != "truncate" or event.table is None:
                continue
            if not log.has_order(change.place, parts.get(event.table, ())):
                raise InputFormatError(
                    f"{change.place.shown(self.files)}: truncate of {event.table}: rows of the table may be "
                    "in other partitions, so it is not known which of them were written before. Use a "
                    "topic with one partition, or empty the target and read the table again under another "
                    "source name"
                )

    def truncates(self, order: Order) -> dict[str, tuple[int, ...]]:
        """Return the position of the last truncate of each table."""
        found: dict[str, tuple[int, ...]] = {}
        for change in self.found:
            table = change.event.table
            if change.event.kind == "truncate" and table is not None:
                position = order.position_of(change, self.files)
                found[table] = max(found.get(table, ()), position)
        return found

    def _refusal(self, change: LoggedEvent, names: Sequence[str]) -> InputFormatError:
        event = change.event
        if event.kind != "truncate":
            advice = (
                "change the target in the same way, then accept schema changes (--accept-schema-changes). "
                f"It may affect {', '.join(names)}, which is followed. If another table has taken over its "
                "name or rows, copy the table again and read it under another source name (--name NAME)"
            )
        elif any(map(self.followed.is_sharded, names)):
            advice = (
                "it is one of several shards of the target: delete its rows there, and start over under "
                "another source name (--name NAME), from files after the truncate"
            )
        else:
            advice = "choose to apply truncates, so that the target's earlier rows are deleted"
            advice += " (--apply-truncates)"
        return InputFormatError(
            f"{change.place.shown(self.files)}: {event.kind} of {event.table or 'a table'}: {event.text}; "
            f"{advice}"
        )

    def _is_applied(
        self, change: LoggedEvent, names: Sequence[str], order: Order, after: Mapping[str, Position]
    ) -> bool:
        return all(
            self._is_reached(change, name, order, after) and self._is_old(change, name) for name in names
        )

    def _is_reached(
        self, change: LoggedEvent, name: str, order: Order, after: Mapping[str, Position]
    ) -> bool:
        return name in after and order.position_of(change, self.files) <= after[name].order

    def _is_old(self, change: LoggedEvent, name: str) -> bool:
        """Return True if a run has read the change. A late one is new, but lies before the watermark."""
        return name not in self.applied or self.applied[name].is_old(change)


OTHERS_KEPT = 1000
"""The number of tables that are not followed whose names a range keeps."""


@dataclass
class TableFacts:
    """The facts of a log about one table.

    ``ids``: the tables of the source that its name matches. ``schemas``: the places of its schemas, if they
    are noted.
    """

    order: OrderFacts = field(default_factory=OrderFacts)
    shape: ShapeFacts = field(default_factory=ShapeFacts)
    snapshots: SnapshotFacts = field(default_factory=SnapshotFacts)
    late: LateFacts = field(default_factory=LateFacts)
    ids: set[TableId] = field(default_factory=set)
    schemas: SchemaPlaces = field(default_factory=SchemaPlaces)

    def merge(self, other: TableFacts) -> None:
        """Add the facts of another part of the log."""
        self.order.merge(other.order)
        self.shape.merge(other.shape)
        self.snapshots.merge(other.snapshots)
        self.late.merge(other.late)
        self.ids |= other.ids
        self.schemas.merge(other.schemas)


@dataclass
class LogFacts:
    """The facts of a log about the followed tables.

    ``tables``: the tables with rows or truncates, by name. ``changes``: changes of whole tables. ``wrong``:
    the first message that has a problem. ``others``: some of the tables that are not followed.
    """

    tables: dict[str, TableFacts] = field(default_factory=dict)
    changes: list[LoggedEvent] = field(default_factory=list)
    wrong: LoggedEvent | None = None
    others: set[TableId] = field(default_factory=set)

    def merge(self, other: LogFacts) -> None:
        """Add the facts of another part of the log."""
        for name, facts in other.tables.items():
            self.tables.setdefault(name, TableFacts()).merge(facts)
        self.others |= other.others
        self.changes += other.changes
        if other.wrong is not None:
            self.add_wrong(other.wrong)

    def add_wrong(self, found: LoggedEvent) -> None:
        """Keep the first message that has a problem."""
        if self.wrong is None or found.place < self.wrong.place:
            self.wrong = found


@dataclass(frozen=True)
class FirstLook:
    """Reads the facts of the ranges of a log; pickled for tasks.

    ``followed``: the tables. ``applied``: by table, the position up to which it was applied. ``wanted``: by
    table, late messages to search for in the parts that earlier runs have read. If there are any, nothing
    else is searched for. ``notes_schemas``: True to note the places of schemas.
    """

    log: MessageLog
    followed: FollowedTables
    applied: Mapping[str, Applied] = field(default_factory=dict)
    wanted: Mapping[str, frozenset[Digest]] = field(default_factory=dict)
    notes_schemas: bool = False

    def at(self, number: int) -> LogFacts:
        """Return the facts of a range. Raises InputFormatError if a file cannot be read."""
        facts = LogFacts()
        add = self._add_wanted if self.wanted else self._add
        for found in (each for some in self.log.events(number) for each in some):
            add(facts, found)
        return facts

    def whole(self, parts: Iterable[LogFacts]) -> LogFacts:
        """Return the facts of all ranges.

        Raises:
            InputFormatError: If a message is damaged. Names file, line and field.
            Others: The error class of the first damaged message's problem.
        """
        whole = LogFacts()
        for part in parts:
            whole.merge(part)
        if whole.wrong is not None:
            problem = whole.wrong.event.problem
            assert problem is not None
            location = whole.wrong.place.shown(self.log.files, problem.field)
            raise problem.error(f"{location}: {problem.text}")
        return whole

    def changes(self, facts: LogFacts) -> TableChanges:
        """Return the changes of whole tables."""
        return TableChanges(tuple(facts.changes), self.followed, self.log.files, self.applied)

    def _add(self, facts: LogFacts, found: LoggedEvent) -> None:
        event = found.event
        is_row = event.kind == "row"
        is_ours = (is_row or event.kind == "truncate") and event.table in self.followed.names
        if event.problem is not None and ((is_row and is_ours) or event.kind == "damaged"):
            facts.add_wrong(found)
            return
        if event.kind in ("schema change", "truncate") and self.followed.touched_by(event):
            facts.changes.append(found)
        if not is_ours or event.table is None:
            if is_row and event.id is not None and len(facts.others) < OTHERS_KEPT:
                facts.others.add(event.id)
            return
        number = self.log.files[found.place.file].number
        table = facts.tables.get(event.table)
        if table is None:
            table = facts.tables[event.table] = TableFacts()
        table.order.add(found, number)
        if event.id is not None:
            table.ids.add(event.id)
        if is_row:
            table.shape.add(event)
            if self.notes_schemas:
                table.schemas.add(found, number)
            table.snapshots.add(found.place, event)
        applied = self.applied.get(event.table)
        if applied is not None and applied.is_late(found, number):
            table.late.add(found)

    def _add_wanted(self, facts: LogFacts, found: LoggedEvent) -> None:
        name = found.event.table or ""
        is_wanted = name in self.wanted and found.event.kind in ("row", "truncate")
        if is_wanted and self.applied[name].is_old(found):
            facts.tables.setdefault(name, TableFacts()).late.add_old(found, self.wanted[name])
