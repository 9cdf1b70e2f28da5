"""Reads a binary log event by event: row images of some tables, and the statement that stops the reading.

Every event is checked, and an unknown event is an error: skipping it could lose a change.

Source: MySQL's source documentation, "Binary log"; MariaDB's knowledge base, "Binary log events".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pymysqlreplication.event import (
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
)

from mutation_api.cdc.mysql.alter_table import Effect
from mutation_api.cdc.mysql.log_position import START_OVER, LogPosition, file_number
from mutation_api.cdc.mysql.logged_statements import Barrier, LoggedStatements
from mutation_api.cdc.mysql.table_plan import Shape, TablePlan, logged_table
from mutation_api.errors import InputFormatError, SourcePositionError

_SAVEPOINT = re.compile(r"SAVEPOINT\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_ROLLBACK_TO = re.compile(r"ROLLBACK\s+TO\s+(\S.*)", re.IGNORECASE | re.DOTALL)
"""Servers write these with a quoted name; savepoint names are not case-sensitive."""

_IGNORABLE_FLAG = 0x80
# Events without changes that the replication library has no class for; some server versions write them
# between other events. The library does have a class for type 14, INTVAR.
_WITHOUT_CHANGE = {
    0x09: "part of a file of LOAD DATA",
    0x0B: "end of such a file",
    0x1B: "heartbeat",
    0x1C: "ignorable",
    0x22: "anonymous GTID",
    0x25: "view change",
}
_WITHOUT_CHANGE |= {
    0x24: "transaction context",
    0xA0: "annotated rows",
    0xA1: "checkpoint",
    0xA3: "GTID list",
}
_STANDALONE = 1
"""A flag of MariaDB's GTID event: one statement follows, not a transaction with its own end."""
_PACKET_BYTES = 1 + 19
_TABLE_MAP_BODY = _PACKET_BYTES + 6
"""The offset at which the description of a table begins, after the table's number."""


@dataclass(frozen=True)
class RowImages:
    """The rows of one event, as images in order; an update has two images per row, before and after.

    ``position``: number of the log file, offset at which the transaction begins, and number of the event in
    the transaction. ``shape``: the table's columns and key at that time. ``time``: when the statement began,
    in seconds since 1970.
    """

    table: str
    operation: str
    position: tuple[int, int, int]
    rows: Iterator[list[Any]]
    byte_count: int
    shape: Shape
    time: int


@dataclass(frozen=True)
class Undone:
    """Events of one transaction that were yielded before the log rolled them back.

    A server keeps them in its log if the transaction also did something that cannot be undone, such as
    creating a temporary table. ``transaction`` contains the first two numbers of a position. ``events``
    contains the third numbers of the first and the last event. ``logged_at`` is the position of the rollback,
    for messages.

    Source: MariaDB's documentation, "ROLLBACK": statements that are not transactional are logged with it.
    """

    transaction: tuple[int, int]
    events: tuple[int, int]
    logged_at: str


class LogReading:
    """The state of a reading: file, offset, and whether an open transaction has rows of the tables read."""

    def __init__(
        self,
        database: str,
        plans: Mapping[str, TablePlan],
        statements: LoggedStatements,
        seen_to: frozenset[str],
        starts: Mapping[str, LogPosition],
        begun: dict[str, int],
    ) -> None:
        self._database = database
        self._plans = plans
        self._statements = statements
        self._seen_to = seen_to
        self._positions = tuple(starts.values())
        self._begun_files = begun
        self._starts = {table: position.order for table, position in starts.items()}
        start = min(starts.values(), key=lambda position: position.order)
        self._file, self._offset = start.file, 0
        self._boundary = (start.file, start.offset)
        self._seen_since: list[str] = []
        self._start_gtid = self._boundary_gtid = start.gtid
        self._gtid = ""
        self._shapes: dict[int, Shape] = {}
        self._known: dict[tuple[Any, ...], Shape] = {}
        self.lacking: dict[str, Collection[str]] = {}
        self._with_rows: set[str] = set()
        self._has_rows = False
        self._begun = self._event_count = self._statement_count = 0
        self._savepoints: dict[str, int] = {}
        self.is_open = False

    @property
    def position(self) -> str:
        """The end of the last event, as ``file:offset``."""
        return f"{self._file}:{self._offset}"

    @property
    def order(self) -> tuple[int, int]:
        """The number of the file, and the offset in it."""
        return file_number(self._file), self._offset

    def take(self, event: Any) -> Iterator[RowImages | Undone | Barrier]:
        """Process the next event. Raises the errors of :meth:`BinaryLog.between`."""
        if isinstance(event, RotateEvent):
            self._file, self._offset = event.next_binlog, event.position
            self._shapes.clear()
            if not self.is_open:
                self._note_boundary()
            return
        self._move_to(event.packet.log_pos)
        match event:
            case TableMapEvent() | RowsEvent() if not self._is_new(event.table):
                return
            case TableMapEvent():
                shape = self._shapes[event.table_id] = self._shape(event)
                self.lacking[event.table] = shape.lacking
            case PartialUpdateRowsEvent():
                raise InputFormatError(
                    f"the log contains partial JSON values at {self.position}; set "
                    f"binlog_row_value_options='' on the server. {START_OVER}"
                )
            case RowsEvent():
                yield self._images(event)
            case QueryEvent():
                yield from self._take_statement(event)
            case ExecuteLoadQueryEvent():
                # The replication library does not parse this statement.
                effects = dict.fromkeys(self._plans, Effect.MAY_CHANGE)
                at = self._statement_position()
                yield from self._pass_or_stop(at, "LOAD DATA …", effects, "the log does not contain its rows")
            case MariadbGtidEvent():
                self._begin()
                self.is_open = not event.flags & _STANDALONE
            case GtidEvent():
                self._begin()
                self._gtid = event.gtid
            case XidEvent():
                self._close()
            case XAPrepareEvent():
                self._take_prepared(event)
            case FormatDescriptionEvent():
                self._note_file(int(event.timestamp))
                self._statements.forget_sessions()
            case _:
                self._check_known(event)

    def _is_new(self, table: str) -> bool:
        """Return True if the table is read and this position is after its start."""
        return table in self._starts and self.order > self._starts[table]

    def _move_to(self, offset: int) -> None:
        # The offset is 0 in events that the server creates for this reader, and within transactions since
        # MariaDB 11.4.
        if 0 < offset < self._offset:
            raise InputFormatError(
                f"log file {self._file} is larger than 4 GiB, so positions in it are ambiguous from "
                f"{self._offset} on. {START_OVER}"
            )
        self._offset = offset or self._offset

    def _note_file(self, begun: int) -> None:
        """Note when the file was created. Raises SourcePositionError if a start is in an older file."""
        self._begun_files[self._file] = begun
        for position in self._positions:
            if position.file == self._file:
                position.check_begun(begun)

    def _note_boundary(self) -> None:
        """Note that no transaction is open at this position."""
        self._boundary = (self._file, self._offset)
        self._boundary_gtid = ",".join(filter(None, (self._start_gtid, self._gtid)))
        self._seen_since.clear()
        self._statement_count = 0

    def _begin(self) -> None:
        """Note where a transaction begins; its rows get this offset, because some servers log no other."""
        self._begun, self._event_count, self._statement_count = self._offset, 0, 0
        self._savepoints.clear()

    def _shape(self, event: Any) -> Shape:
        name = f"{event.schema}.{event.table}"
        if any(column.name is None for column in event.columns):
            raise InputFormatError(
                f"source table {name}: the log at {self.position} does not contain column names; it needs "
                f"binlog_row_metadata=FULL from the beginning. {START_OVER}"
            )
        data = event.packet.packet.get_all_data()
        # The rest after the table's number and the position, which differ from event to event.
        key = (event.table, data[_TABLE_MAP_BODY : _PACKET_BYTES + event.event_size])
        if key not in self._known:
            self._known[key] = self._plans[event.table].shape(logged_table(event, data), self.position)
        return self._known[key]

    def _images(self, event: Any) -> RowImages:
        shape = self._shapes.get(event.table_id)
        if shape is None:
            raise InputFormatError(
                f"the log contains rows at {self.position} of a table that it does not describe. {START_OVER}"
            )
        self._has_rows = self.is_open = True
        self._with_rows.add(event.table)
        present = [event.columns_present_bitmap]
        operation = "delete" if isinstance(event, DeleteRowsEvent) else "insert"
        if isinstance(event, UpdateRowsEvent):
            present.append(event.columns_present_bitmap2)
            operation = "update"
        data = event.packet.read(event.event_size - event.packet.read_bytes)
        self._event_count += 1
        position = (file_number(self._file), self._begun, self._event_count)
        rows = shape.decoder.rows(data, present)
        return RowImages(event.table, operation, position, rows, len(data), shape, int(event.timestamp))

    def _take_statement(self, event: Any) -> Iterator[Undone | Barrier]:
        text = event.query.strip()
        verb = text[:20].upper()
        if verb == "BEGIN":
            self._begin()
            self.is_open = True
        elif verb == "COMMIT":
            self._close()
        elif found := _SAVEPOINT.fullmatch(text):
            self._savepoints[found[1].lower()] = self._event_count
        elif found := _ROLLBACK_TO.fullmatch(text):
            yield from self._undone_behind(self._event_count_at(found[1]))
        elif verb == "ROLLBACK":
            yield from self._undone_behind(0)
            self._close()
        elif verb.startswith("XA "):
            self.is_open = verb.startswith(("XA START", "XA BEGIN", "XA END"))
            if not self.is_open:
                self._close()
        else:
            yield from self._take_other(event)

    def _undone_behind(self, event_count: int) -> Iterator[Undone]:
        if event_count < self._event_count:
            events = event_count + 1, self._event_count
            yield Undone((file_number(self._file), self._begun), events, self.position)

    def _event_count_at(self, savepoint: str) -> int:
        if savepoint.lower() not in self._savepoints:
            raise InputFormatError(
                f"the log rolls back to savepoint {savepoint} at {self.position}, but the transaction does "
                f"not have this savepoint; it has {', '.join(self._savepoints) or 'none'}. {START_OVER}"
            )
        return self._savepoints[savepoint.lower()]

    def _take_other(self, event: Any) -> Iterator[Barrier]:
        """Process a statement that does not begin or end a transaction."""
        at = self._statement_position()
        place = (file_number(self._file), self._offset)
        effects, reason = self._statements.verdict(event, at, place)
        yield from self._pass_or_stop(at, event.query, effects, reason)
        if event.query.rstrip().upper().endswith("START TRANSACTION"):
            self.is_open = True  # MySQL's CREATE TABLE … SELECT; its rows follow
        if not self.is_open:
            self._note_boundary()

    def _statement_position(self) -> str:
        """Return a unique name for the next statement; events of a transaction may share a position."""
        self._statement_count += 1
        return self.position if self._statement_count == 1 else f"{self.position}+{self._statement_count}"

    def _pass_or_stop(
        self, at: str, text: str, effects: Mapping[str, Effect], reason: str
    ) -> Iterator[Barrier]:
        new = {table: effect for table, effect in effects.items() if self._is_new(table)}
        for table in new:
            # An added column that is NULL needs no action: Hive has it, or the table was refused.
            self.lacking.pop(table, None)
        stopping = {table: effect for table, effect in new.items() if effect is not Effect.ADDS_COLUMN}
        if stopping and at in self._seen_to:
            self._check_nothing_before(at, stopping)
            self._seen_since.append(at)
        elif stopping:
            yield self._barrier(at, text, stopping, reason)

    def _barrier(self, at: str, text: str, effects: Mapping[str, Effect], reason: str) -> Barrier:
        is_within = self.is_open and self._event_count
        return Barrier(
            at,
            text,
            effects,
            reason,
            self._boundary,
            self._boundary_gtid,
            (file_number(self._file), self._begun),
            (1, self._event_count) if is_within else None,
            tuple(self._seen_since),
        )

    def _check_nothing_before(self, at: str, tables: Collection[str]) -> None:
        """Refuse to skip a handled statement if rows from before it would be applied after it."""
        late = sorted(self._with_rows & set(tables))
        if late:
            raise SourcePositionError(
                f"source table {self._database}.{late[0]}: the statement at {at} is marked as handled, but "
                "the log contains rows before it that have not been applied. Nothing was applied. Run "
                f"without --seen-to {at} first: this applies the rows and stops at the statement. Then carry "
                f"the statement out in Hive and continue. {START_OVER}"
            )

    def _take_prepared(self, event: Any) -> None:
        if self._has_rows and not event.one_phase:
            raise InputFormatError(
                f"the log contains rows at {self.position} that XA PREPARE wrote before the commit; such "
                f"transactions are not supported. {START_OVER}, and commit in one phase"
            )
        self._close()

    def _check_known(self, event: Any) -> None:
        kind = event.event_type
        if not isinstance(event, NotImplementedEvent) or kind in _WITHOUT_CHANGE:
            return
        if not event.packet.flags & _IGNORABLE_FLAG:
            raise InputFormatError(
                f"the log contains an event of unknown type {kind} at {self.position}; compressed and "
                "encrypted events are not supported (log_bin_compress, binlog_transaction_compression). "
                f"{START_OVER}"
            )

    def _close(self) -> None:
        self.is_open = self._has_rows = False
        self._note_boundary()
