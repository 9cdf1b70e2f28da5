"""One run over a log of messages, from the first look to the operations after the watermarks.

Each range of the files is a part: :class:`MessageParts` are the operations of one table in the log.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from mutation_api.cdc.messages.events import LoggedEvent, LogOptions, MessageFormat, NewSnapshot, Place
from mutation_api.cdc.messages.first_look import BEFORE, Barrier, FirstLook, KeptEvents, LogFacts, TableFacts
from mutation_api.cdc.messages.followed_tables import FollowedTables
from mutation_api.cdc.messages.json_rows import RowConverter, Rows
from mutation_api.cdc.messages.new_columns import added_later, new_columns
from mutation_api.cdc.messages.order import Applied, Order, check_late, check_replaced, chosen_order, repeated
from mutation_api.cdc.messages.shape import Shape, columns_of
from mutation_api.cdc.messages.snapshots import last_new_snapshot, read_so_far
from mutation_api.cdc.messages.table_names import (
    KnownFile,
    KnownParts,
    LogIdentity,
    TableIdentity,
    near_names,
)
from mutation_api.cdc.messages.unwrap import MessageLog, OpenedLog
from mutation_api.cdc.source import LocalBatch, LocalOperations, OperationParts, Position, SourceTable, Stop
from mutation_api.errors import InputFormatError
from mutation_api.storage.location import Location


@dataclass(frozen=True)
class MessageParts(OperationParts):
    """The operations on a table after one position up to another one.

    ``after``: () if all are read. ``until``: None if the log is read to its end. ``kept``: the rows that the
    first look kept. If None, the log is parsed again.
    """

    log: MessageLog
    shape: Shape
    order: Order
    after: tuple[int, ...]
    until: tuple[int, ...] | None = None
    kept: KeptEvents | None = None

    @property
    def part_count(self) -> int:
        """The number of ranges."""
        return len(self.log.ranges)

    @property
    def byte_count(self) -> int:
        """The size of the files in bytes; an estimate for compressed files."""
        return sum(file.byte_count for file in self.log.read_files)

    @property
    def locations(self) -> Sequence[Location]:
        """The locations of the files."""
        return [file.location for file in self.log.read_files]

    @property
    def is_of_this_machine(self) -> bool:
        """True if other machines cannot read the files."""
        return self.log.is_of_this_machine

    @property
    def position(self) -> Sequence[str]:
        """The names of a position's numbers."""
        return self.order.names

    @property
    def has_times(self) -> bool:
        """True if the times of the changes are required."""
        return self.shape.table.wants_times

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """Read the operations of a range. See :class:`~mutation_api.cdc.source.OperationParts`."""
        converter = RowConverter(
            self.shape.table.target.full_name,
            self.log.files,
            self.order.names,
            self.shape.column_readers,
            self.log.format.unlogged,
            self.has_times,
        )
        schemas = {schema: index for index, schema in enumerate(self.shape.schemas)}
        name = self.shape.table.name
        blocks = self.log.events(number) if self.kept is None else self.kept.events(name, number)
        for events in blocks:
            rows = Rows()
            for found in events:
                if found.event.kind == "row" and found.event.table == name:
                    self._add(rows, found, schemas.get(found.event.schema, 0))
            if len(rows):
                yield converter.batch(rows)

    def _add(self, rows: Rows, found: LoggedEvent, schema: int) -> None:
        before_steps = self.order.before_steps(found, self.log.files)
        times = self.order.times(found.event)
        for number in range(len(found.event.rows)):
            for each in self.shape.operations(found.event, number):
                position = (*before_steps, each.step)
                if position > self.after and (self.until is None or position <= self.until):
                    numbers = (*position, *times)
                    content = self.shape.content(each)
                    rows.add(each.operation, numbers, found.place, schema, content, each.doubt)
                    if self.has_times:
                        rows.times.append(found.event.changed_at)


logger = logging.getLogger(__name__)

LookAt = Callable[[FirstLook], Iterable[LogFacts]]
"""Looks at all ranges of a log."""


class _Source(Protocol):
    """The part of a source of messages that a reading needs."""

    @property
    def source_id(self) -> str: ...

    @property
    def format(self) -> MessageFormat: ...

    @property
    def options(self) -> LogOptions: ...


@dataclass(frozen=True)
class Reading:
    """A log after the first look.

    ``known``: the parts of the files that earlier runs had read, by table with a watermark; empty if the log
    is not in files.
    """

    source: _Source
    opened: OpenedLog
    followed: FollowedTables
    look: FirstLook
    looked: LookAt
    known: Mapping[str, KnownParts]
    facts: LogFacts
    kept: KeptEvents | None = None

    @classmethod
    def of(
        cls,
        source: _Source,
        opened: OpenedLog,
        followed: FollowedTables,
        looked: LookAt,
        kept: KeptEvents | None = None,
    ) -> Reading:
        """Look at a log; ``kept`` gets the rows from ``looked``, if it keeps them.

        Raises: See :meth:`~mutation_api.cdc.messages.message_source.MessageSource.read`.
        """
        log = opened.log
        identities = {name: LogIdentity.of(position) for name, position in opened.after.items()}
        known = {name: each.known_parts(log.read_files) for name, each in identities.items()}
        applied = {name: Applied(opened.after[name].order, parts.sizes) for name, parts in known.items()}
        look = FirstLook(log, followed, applied, notes_schemas=source.options.adds_columns)
        facts = look.whole(looked(look)) if log.ranges else LogFacts()
        return cls(source, opened, followed, look, looked, known, facts, kept)

    def batch(self, tables: Sequence[SourceTable]) -> LocalBatch:
        """Return the operations after the watermarks.

        Raises: See :meth:`~mutation_api.cdc.messages.message_source.MessageSource.read`.
        """
        warnings = tuple(self._warnings()) if self.opened.log.ranges else ()
        for each in warnings:
            logger.warning("%s: %s", self.source.source_id, each)
        if not (self.facts.tables or self.facts.changes):
            return LocalBatch((), self._end(None), warnings=warnings)
        order = self._order()
        barrier = self._barrier(order)
        until = None if barrier is None else barrier.before
        emptied = self._emptied(order)
        found, reached = [], [position.order for position in self.opened.after.values()]
        for table in tables:
            facts = self.facts.tables.get(table.name)
            if facts is None:
                continue
            before = self.opened.after[table.name].order if table.name in self.opened.after else ()
            start = max(
                (each for each in emptied.get(table.name, ()) if until is None or each < until), default=()
            )
            last = max(order.last(facts.order), start)
            last = last if until is None else min(last, until)
            if last > before:
                operations = self._operations(table, facts, order, max(before, start), until)
                found.append(replace(operations, is_emptied=start > before))
                reached.append(last)
        end = None
        if barrier is not None:
            end = Position(barrier.before, order.described(barrier.before))
        elif found:
            end = Position(max(reached), order.described(max(reached)))
        reached_end = self._end(end, order)
        stop = None
        if barrier is not None and reached_end is not None:
            marks = self.opened.after
            behind = [n for n in self.followed.names if n not in marks or marks[n].order <= barrier.before]
            stop = Stop(str(barrier.error), dict.fromkeys(behind, reached_end))
        return LocalBatch(tuple(found), reached_end, stop, warnings=warnings)

    def new_columns(self, tables: Sequence[SourceTable]) -> Mapping[str, Mapping[str, str]]:
        """Return the columns that targets lack. See :class:`~mutation_api.cdc.source.DescribedSource`."""
        found: dict[str, Mapping[str, str]] = {}
        order = self._order() if self.facts.tables else None
        options = self.source.options
        for table in tables:
            facts = self.facts.tables.get(table.name)
            if facts is None or order is None:
                continue
            optional = columns_of(table, (*options.null_if_missing, *options.default_if_missing))
            optional += [] if options.shard_column is None else [options.shard_column]
            found[table.name] = new_columns(
                table.name,
                facts.schemas,
                order,
                self.opened.after[table.name].order if table.name in self.opened.after else (),
                target={column.name for column in table.target.all_columns},
                left_out={name.lower() for name in columns_of(table, options.ignored_columns)},
                optional={name.lower() for name in optional},
                metadata=self.source.format.metadata_prefixes,
            )
        return found

    @functools.cached_property
    def _marks(self) -> Mapping[str, LogIdentity]:
        """The identities of the log in the watermarks, by table."""
        return {name: LogIdentity.of(position) for name, position in self.opened.marks.items()}

    def _known_table(self, name: str) -> TableIdentity:
        mark = self._marks.get(name, LogIdentity())
        return mark.tables.get(name, TableIdentity())

    def _order(self) -> Order:
        """Return the order of operations; refuse a log that cannot be applied after the watermarks."""
        source_id, log, after = self.source.source_id, self.opened.log, self.opened.after
        for name, each in self.facts.tables.items():
            known = self._known_table(name).ids({table.table for table in each.ids})
            self.followed.check_identity(name, each.ids | known)
        found = [each.order for each in self.facts.tables.values()]
        order = chosen_order(source_id, log.files, found, log.positions)
        order = replace(order, is_partitioned=log.is_partitioned)
        order.check_watermarks(source_id, after)
        origins = {origin for name in after for origin in self._marks[name].origins}
        order.check_origins(source_id, {each for facts in found for each in facts.origins}, origins)
        check_replaced(source_id, order, self.known, after)
        for name, facts in self.facts.tables.items():
            self._new_snapshot(name, facts, order)
        self._check_late(order)
        return order

    def _check_late(self, order: Order) -> None:
        late = {name: facts.late for name, facts in self.facts.tables.items() if facts.late.found}
        wanted = repeated(late, order)
        if wanted:
            look = replace(self.look, wanted=wanted)
            for name, facts in look.whole(self.looked(look)).tables.items():
                late[name].merge(facts.late)
        check_late(self.source.source_id, late, self.opened.after, self.opened.log.files)

    def _barrier(self, order: Order) -> Barrier | None:
        changes, log = self.look.changes(self.facts), self.opened.log
        firsts = [first for each in self.facts.tables.values() if (first := order.first(each.order))]
        barrier = changes.barrier(self.source.options, order, self.opened.after, firsts)
        changes.check_parts(log, {name: each.order.parts for name, each in self.facts.tables.items()})
        return barrier

    def _emptied(self, order: Order) -> Mapping[str, list[tuple[int, ...]]]:
        """Return the positions at which all rows of a table were removed, or replaced by a snapshot."""
        emptied = {name: [each] for name, each in self.look.changes(self.facts).truncates(order).items()}
        for name, facts in self.facts.tables.items():
            place = self._new_snapshot(name, facts, order)
            if place is not None and self.source.options.new_snapshot is NewSnapshot.REPLACE:
                number = self.opened.log.files[place.file].number
                emptied.setdefault(name, []).append((number, place.offset, BEFORE))
        return emptied

    def _new_snapshot(self, name: str, facts: TableFacts, order: Order) -> Place | None:
        options, log = self.source.options, self.opened.log
        after = self.opened.after[name].order if name in self.opened.after else ()
        place = last_new_snapshot(
            self.source.source_id,
            name,
            facts.snapshots,
            self._known_table(name),
            order,
            log.files,
            after,
            options.new_snapshot,
        )
        is_ordered = place is None or log.has_order(place, facts.order.parts)
        is_replaced = options.new_snapshot is NewSnapshot.REPLACE and place is not None
        if place is not None and is_replaced and not (is_ordered and not self.followed.is_sharded(name)):
            raise InputFormatError(
                f"{place.shown(log.files)}: snapshot of {name}: rows of the table may be in other "
                "partitions or belong to other shards, so it is not known which of them it replaces. Empty "
                "the target, and read the table from the snapshot on (with Kafka --from TIME) under "
                "another source name (--name NAME) with --new-snapshot merge"
            )
        return place

    def _end(self, end: Position | None, order: Order | None = None) -> Position | None:
        """Return the position that is reached, with the identity of the log."""
        position = self.opened.end or end
        if position is None:
            return None
        log = self.opened.log
        tables = {name: self._reached(name, order) for name in self.followed.names}
        origins = {origin for each in self.facts.tables.values() for origin in each.order.origins}
        origins |= {origin for each in self._marks.values() for origin in each.origins}
        files = None if log.is_partitioned else tuple(map(KnownFile.of, log.read_files))
        identity = LogIdentity(tuple(sorted(origins)) if not log.is_partitioned else (), files, tables)
        return identity.added_to(position)

    def _reached(self, name: str, order: Order | None) -> TableIdentity:
        known, facts = self._known_table(name), self.facts.tables.get(name)
        if facts is None or order is None:
            return known
        owners = [each[:3] for each in sorted(facts.ids, key=str)]
        snapshot, is_streamed = read_so_far(facts.snapshots, known, order, self.opened.log.files)
        owner = next((each for each in owners if any(each)), known.owner)
        is_sharded = self.followed.is_sharded(name)
        return TableIdentity((None, None, None) if is_sharded else owner, snapshot, is_streamed)

    def _warnings(self) -> Iterable[str]:
        """Warn of tables that no message names, and of names that differ from them only in case."""
        for name in self.followed.names:
            near = near_names(name, self.facts.others)
            known = self._known_table(name)
            is_known = name in self.facts.tables or known.is_streamed or known.snapshot is not None
            variants = [each for each in near if each.casefold() == name.casefold()]
            if not is_known:
                meant = f"; did you mean {' or '.join(near)}?" if near else ""
                yield f"no message names table {name}{meant or self._others()}"
            elif variants:
                yield f"messages also name table {', '.join(variants)}, which is not {name} and is not read"

    def _others(self) -> str:
        found = sorted({each.short for each in self.facts.others if each.short is not None})
        return f"; they name {', '.join(found[:5])}{', …' if len(found) > 5 else ''}" if found else ""

    def _operations(
        self,
        table: SourceTable,
        facts: TableFacts,
        order: Order,
        after: tuple[int, ...],
        until: tuple[int, ...] | None,
    ) -> LocalOperations:
        """Return the operations on a table between two positions."""
        shard = self.followed.shard_column if self.followed.is_sharded(table.name) else None
        if shard is not None:
            key = table.key if not table.key or shard in table.key else (*table.key, shard)
            table = replace(table, key=key)
        options = self.source.options
        if options.adds_columns:
            added = {f"{table.name}.{name}" for name in added_later(facts.schemas, order)}
            options = replace(options, null_if_missing=frozenset({*options.null_if_missing, *added}))
        shape = Shape.of(table, facts.shape, self.source.format, options, shard)
        parts = MessageParts(self.opened.log, shape, order, after, until, self.kept)
        return LocalOperations(shape.table, parts)
