"""The events of a binary log taken one by one: row images of some tables, and the statement that stops them.

All events are checked, and an unknown event is refused: an event that a reader drops is a change that is
lost.

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

from mutation_api.cdc.mysql.log_position import START_OVER, LogPosition, file_number
from mutation_api.cdc.mysql.log_stream import check_begun
from mutation_api.cdc.mysql.logged_statements import Barrier, LoggedStatements
from mutation_api.cdc.mysql.statements import Effect
from mutation_api.cdc.mysql.table_plan import Shape, TablePlan, logged_table
from mutation_api.errors import InputFormatError, SourcePositionError

__all__ = ["LogReading", "RowImages", "Undone"]

_SAVEPOINT = re.compile(r"SAVEPOINT\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_ROLLBACK_TO = re.compile(r"ROLLBACK\s+TO\s+(\S.*)", re.IGNORECASE | re.DOTALL)
"""As servers write them, with a quoted name; the names of one savepoint differ only in case."""

_IGNORABLE_FLAG = 0x80
# Events without changes for which the library has no class; server versions write them between others. It has
# classes for 14 INTVAR ….
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
"""Flag of MariaDB's GTID: one statement follows, not a transaction that something ends."""
_PACKET_BYTES = 1 + 19
_TABLE_MAP_BODY = _PACKET_BYTES + 6
"""Where the description of a table begins, behind its number."""


@dataclass(frozen=True)
class RowImages:
    """The rows of one event, images in their order; an update has an image before and one after for each row.

    ``position``: number of the log file, offset at which the transaction begins, and number of the event in
    the transaction. ``shape``: the table's columns and key at that time.
    """

    table: str
    operation: str
    position: tuple[int, int, int]
    rows: Iterator[list[Any]]
    byte_count: int
    shape: Shape


@dataclass(frozen=True)
class Undone:
    """Events of one transaction that were given, and that the log rolls back afterwards.

    A server keeps them in its log if the transaction also did what cannot be undone, such as making a
    temporary table. ``transaction`` has the first two numbers of a position; ``events`` the third numbers of
    the first and the last event. ``logged_at``, for messages, is the position of the rollback.

    Source: MariaDB's documentation, "ROLLBACK": statements that are not transactional are logged with it.
    """

    transaction: tuple[int, int]
    events: tuple[int, int]
    logged_at: str


class LogReading:
    """State of a reading: file, offset, whether a transaction is open and has rows of our tables."""

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
        """The end of the event that was taken, ``file:offset``."""
        return f"{self._file}:{self._offset}"

    @property
    def order(self) -> tuple[int, int]:
        """Number of the file, and offset in it."""
        return file_number(self._file), self._offset

    def take(self, event: Any) -> Iterator[RowImages | Undone | Barrier]:
        """Take the next event. Raises: as :meth:`BinaryLog.between`."""
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
                    f"the log has parts of JSON values at {self.position}; it needs "
                    f"binlog_row_value_options=''. {START_OVER}"
                )
            case RowsEvent():
                yield self._images(event)
            case QueryEvent():
                yield from self._take_statement(event)
            case ExecuteLoadQueryEvent():
                # The library does not read its words.
                effects = dict.fromkeys(self._plans, Effect.MAY_CHANGE)
                at = self._statement_position()
                yield from self._pass_or_stop(at, "LOAD DATA …", effects, "the log does not have its rows")
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
        """Whether the table is read, and this position is behind its start."""
        return table in self._starts and self.order > self._starts[table]

    def _move_to(self, offset: int) -> None:
        # 0 for events that the server makes for this reader, and from MariaDB 11.4 on within transactions.
        if 0 < offset < self._offset:
            raise InputFormatError(
                f"log file {self._file} is larger than 4 GiB, and positions in it are ambiguous from "
                f"{self._offset} on. {START_OVER}"
            )
        self._offset = offset or self._offset

    def _note_file(self, begun: int) -> None:
        """Note when the file was begun. Raises SourcePositionError: a start is in another one of its name."""
        self._begun_files[self._file] = begun
        for position in self._positions:
            if position.file == self._file:
                check_begun(position, begun)

    def _note_boundary(self) -> None:
        """No transaction is open here."""
        self._boundary = (self._file, self._offset)
        self._boundary_gtid = ",".join(filter(None, (self._start_gtid, self._gtid)))
        self._seen_since.clear()
        self._statement_count = 0

    def _begin(self) -> None:
        """Note where a transaction begins: its rows get this offset, since not every server logs more."""
        self._begun, self._event_count, self._statement_count = self._offset, 0, 0
        self._savepoints.clear()

    def _shape(self, event: Any) -> Shape:
        name = f"{event.schema}.{event.table}"
        if any(column.name is None for column in event.columns):
            raise InputFormatError(
                f"source table {name}: the log at {self.position} has no names of columns; it needs "
                f"binlog_row_metadata=FULL from the beginning. {START_OVER}"
            )
        data = event.packet.packet.get_all_data()
        # All but the number of the table and the position, which change from event to event.
        key = (event.table, data[_TABLE_MAP_BODY : _PACKET_BYTES + event.event_size])
        if key not in self._known:
            self._known[key] = self._plans[event.table].shape(logged_table(event, data), self.position)
        return self._known[key]

    def _images(self, event: Any) -> RowImages:
        shape = self._shapes.get(event.table_id)
        if shape is None:
            raise InputFormatError(
                f"the log has rows at {self.position} of a table that it does not describe. {START_OVER}"
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
        return RowImages(event.table, operation, position, rows, len(data), shape)

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
                f"the log rolls back to savepoint {savepoint} at {self.position}, which its transaction does "
                f"not have; it has {', '.join(self._savepoints) or 'none'}. {START_OVER}"
            )
        return self._savepoints[savepoint.lower()]

    def _take_other(self, event: Any) -> Iterator[Barrier]:
        """A statement that is not the frame of a transaction."""
        at = self._statement_position()
        place = (file_number(self._file), self._offset)
        effects, reason = self._statements.verdict(event, at, place)
        yield from self._pass_or_stop(at, event.query, effects, reason)
        if event.query.rstrip().upper().endswith("START TRANSACTION"):
            self.is_open = True  # MySQL's CREATE TABLE … SELECT, whose rows follow
        if not self.is_open:
            self._note_boundary()

    def _statement_position(self) -> str:
        """The name of the next statement: MariaDB 11.4 gives events of one transaction one position."""
        self._statement_count += 1
        return self.position if self._statement_count == 1 else f"{self.position}+{self._statement_count}"

    def _pass_or_stop(
        self, at: str, text: str, effects: Mapping[str, Effect], reason: str
    ) -> Iterator[Barrier]:
        new = {table: effect for table, effect in effects.items() if self._is_new(table)}
        for table in new:
            # A column that was added and is NULL needs no action: Hive has it, or the table was refused.
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
        """Refuse to pass a statement that was seen to, if rows from before it would be applied behind it."""
        late = sorted(self._with_rows & set(tables))
        if late:
            raise SourcePositionError(
                f"source table {self._database}.{late[0]}: the statement at {at} is said to be seen to, but "
                "the log has rows before it that have not been applied. Nothing was applied. Run without "
                f"--seen-to {at} first, which applies them and stops at the statement; then do the same in "
                f"Hive and go on. {START_OVER}"
            )

    def _take_prepared(self, event: Any) -> None:
        if self._has_rows and not event.one_phase:
            raise InputFormatError(
                f"the log has rows at {self.position} that XA PREPARE wrote before the commit; such "
                f"transactions are not supported. {START_OVER}, and commit in one phase"
            )
        self._close()

    def _check_known(self, event: Any) -> None:
        kind = event.event_type
        if not isinstance(event, NotImplementedEvent) or kind in _WITHOUT_CHANGE:
            return
        if not event.packet.flags & _IGNORABLE_FLAG:
            raise InputFormatError(
                f"the log has an event of type {kind} at {self.position}, which is not known; compressed and "
                "encrypted events are not supported (log_bin_compress, binlog_transaction_compression). "
                f"{START_OVER}"
            )

    def _close(self) -> None:
        self.is_open = self._has_rows = False
        self._note_boundary()
