"""The first look at a log: facts about each table, and changes of whole tables.

The first look finds the tables, the order of operations and the end of the log. The second reading, when the
operations are evaluated, returns the operations. Parts of a log can be read concurrently, and their facts
merged. One process keeps the rows of the first look (:class:`KeptEvents`) and parses the log once; Spark's
tasks, which may end in between, parse it for the facts and again for each table.

Changes of whole tables are schema changes, which stop a run, and truncates, which may be applied. A schema
change has a position, like a row. A run applies what comes before it, while the target still has the old
shape, and then stops. Rows that were written before a change are therefore never read in the table's new
shape.
"""

from __future__ import annotations

import logging
import pickle
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mutation_api.cdc.messages.events import (
    Event,
    Images,
    LoggedEvent,
    LogOptions,
    LogPart,
    Place,
    PositionSource,
)
from mutation_api.cdc.messages.followed_tables import FollowedTables
from mutation_api.cdc.messages.new_columns import SchemaPlaces
from mutation_api.cdc.messages.order import Applied, Digest, LateFacts, Order, OrderFacts
from mutation_api.cdc.messages.shape import ShapeFacts
from mutation_api.cdc.messages.snapshots import SnapshotFacts
from mutation_api.cdc.messages.table_names import TableId
from mutation_api.cdc.messages.unwrap import MessageLog
from mutation_api.cdc.source import Position
from mutation_api.errors import InputError, InputFormatError

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


KEPT_AT_ONCE = 256
"""The number of rows in a block of kept events; few, because many objects keep the garbage collector busy."""
BLOCKS_AT_ONCE = 32
"""The number of blocks in a batch of kept events, whose columns are converted together."""
KEPT_IN_MEMORY = 8 << 20
"""The number of bytes of kept events above which they are written to a file."""


class KeptEvents:
    """The rows that the first look of this process found, by table and range; not for several threads.

    The fields of an event that the second reading uses are pickled in blocks, in memory or in a temporary
    file that has no name. The schemas, which messages repeat, are kept once.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(KEPT_IN_MEMORY, prefix="hive-events-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)  # the operations that are read from it have no end of use
        self._byte_count = 0
        self._waiting: dict[tuple[str, int], list[tuple[object, ...]]] = {}
        self._blocks: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._schemas: dict[str | None, int] = {}

    def add(self, number: int, found: LoggedEvent) -> None:
        """Keep a row of a range. Raises InputError if the file cannot be written."""
        place, event = found
        table, schema = event.table or "", self._schemas.setdefault(event.schema, len(self._schemas))
        rows = list(map(tuple, event.rows))
        at = event.log_position, event.time, event.changed_at
        waiting = self._waiting.setdefault((table, number), [])
        waiting.append((*place, event.op, *at, schema, event.key, event.key_names, rows))
        if len(waiting) == KEPT_AT_ONCE:
            self._write(table, number)

    def end(self, number: int) -> None:
        """Write the rows of a range that are not in the file yet. Raises InputError."""
        for table, each in list(self._waiting):
            if each == number:
                self._write(table, each)

    def events(self, table: str, number: int) -> Iterator[Iterator[LoggedEvent]]:
        """Return the rows of a table in a range, in batches, one by one."""
        blocks = self._blocks.get((table, number), [])
        for start in range(0, len(blocks), BLOCKS_AT_ONCE):
            yield self._events(table, blocks[start : start + BLOCKS_AT_ONCE])

    def _events(self, table: str, blocks: Iterable[tuple[int, int]]) -> Iterator[LoggedEvent]:
        schemas = list(self._schemas)
        for start, size in blocks:
            self._file.seek(start)
            yield from (_kept_event(table, schemas, each) for each in pickle.loads(self._file.read(size)))

    def _write(self, table: str, number: int) -> None:
        block = pickle.dumps(self._waiting.pop((table, number)), pickle.HIGHEST_PROTOCOL)
        try:
            self._file.seek(self._byte_count)
            self._file.write(block)
        except OSError as error:
            raise InputError(
                f"table {table}: the rows of the log cannot be kept in {tempfile.gettempdir()}: {error}. "
                "Free space there, or name another directory in the environment variable TMPDIR"
            ) from error
        self._blocks.setdefault((table, number), []).append((self._byte_count, len(block)))
        self._byte_count += len(block)


def _kept_event(table: str, schemas: Sequence[str | None], kept: tuple[Any, ...]) -> LoggedEvent:
    file, offset, op, log_position, time, changed_at, schema, key, key_names, rows = kept
    images = list(map(Images._make, rows))
    row = "row", table, op, log_position, None, schemas[schema], key, key_names, images
    event = Event._make((*row, None, None, None, (), frozenset(), (), None, time, changed_at))
    return LoggedEvent(Place(file, offset), event)


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

    def at(self, number: int, kept: KeptEvents | None = None) -> LogFacts:
        """Return the facts of a range.

        Args:
            number: the index of the range.
            kept: gets the rows that are not applied yet. If None, they are read again later.

        Raises:
            InputError: If rows cannot be kept.
            InputFormatError: If a file cannot be read.
        """
        facts = LogFacts()
        for found in (each for some in self.log.events(number) for each in some):
            if self.wanted:
                self._add_wanted(facts, found)
            elif self._add(facts, found) and kept is not None:
                kept.add(number, found)
        if kept is not None:
            kept.end(number)
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

    def _add(self, facts: LogFacts, found: LoggedEvent) -> bool:
        """Add a message; return True if it has rows that are not applied yet."""
        event = found.event
        is_row = event.kind == "row"
        is_ours = (is_row or event.kind == "truncate") and event.table in self.followed.names
        if event.problem is not None and ((is_row and is_ours) or event.kind == "damaged"):
            facts.add_wrong(found)
            return False
        if event.kind in ("schema change", "truncate") and self.followed.touched_by(event):
            facts.changes.append(found)
        if not is_ours or event.table is None:
            if is_row and event.id is not None and len(facts.others) < OTHERS_KEPT:
                facts.others.add(event.id)
            return False
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
        is_applied = applied is not None and applied.has_position(found, number)
        if applied is not None and is_applied and not applied.is_old(found):
            table.late.add(found)
        return is_row and not is_applied

    def _add_wanted(self, facts: LogFacts, found: LoggedEvent) -> None:
        name = found.event.table or ""
        is_wanted = name in self.wanted and found.event.kind in ("row", "truncate")
        if is_wanted and self.applied[name].is_old(found):
            facts.tables.setdefault(name, TableFacts()).late.add_old(found, self.wanted[name])
