"""The binary log from one position to another: row images of some tables, of committed transactions alone.

A server writes a whole transaction to its log when it commits. All other events are checked one by one, and
an unknown event is refused: an event that a reader drops is a change that is lost.

Source: MySQL's source documentation, "Binary log"; MariaDB's knowledge base, "Binary log events".
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    BinLogEvent,
    GtidEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.exceptions import MalformedBinLogEvent
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
)

from mutation_api.errors import (
    ConnectionFailedError,
    InputError,
    InputFormatError,
    SourcePositionError,
)
from mutation_api.inputs.mysql.column_types import SourceColumn
from mutation_api.inputs.mysql.row_events import LoggedColumn, RowDecoder
from mutation_api.inputs.mysql.server import START_OVER, LogPosition, MySqlServer, file_number
from mutation_api.inputs.mysql.statements import Effect, Statement, effect_on

__all__ = ["BinaryLog", "RowImages", "Undone"]

_CANNOT_READ_LOG = 1236
"""The server's error if a log file is missing, or has no event at the position."""
_UNREADABLE = (ValueError, LookupError, TypeError, NotImplementedError, struct.error, MalformedBinLogEvent)
"""What the library raises at an event that is damaged, or newer than the library."""

_SAVEPOINT = re.compile(r"SAVEPOINT\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_ROLLBACK_TO = re.compile(r"ROLLBACK\s+TO\s+(\S.*)", re.IGNORECASE | re.DOTALL)
"""As servers write them, with a quoted name; the names of one savepoint differ only in case."""

# Beyond the usual ids of servers; two readers with one id would end each other's stream.
_REPLICA_IDS = range(1 << 31, 1 << 32)
_CONNECTIONS_OF_A_READER = 2
"""One for the stream, one for the library's queries; a third means that it lost the stream and reconnects."""

_IGNORABLE_FLAG = 0x80
# Events without changes for which the library has no class; server versions write them between others. It has
# classes for 14 INTVAR ….
_WITHOUT_CHANGE = {0x1B: "heartbeat", 0x1C: "ignorable", 0x22: "anonymous GTID", 0x25: "view change"}
_WITHOUT_CHANGE |= {
    0x24: "transaction context",
    0xA0: "annotated rows",
    0xA1: "checkpoint",
    0xA3: "GTID list",
}
_STATEMENT_LOADS = {"BeginLoadQueryEvent", "ExecuteLoadQueryEvent"}


@dataclass(frozen=True)
class RowImages:
    """The rows of one event, images in their order; an update has an image before and one after for each row.

    ``position``: number of the log file, offset at which the transaction begins, and number of the event in
    the transaction.
    """

    table: str
    operation: str
    position: tuple[int, int, int]
    rows: Iterator[list[Any]]
    byte_count: int


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


class BinaryLog:
    """The part of a server's log between two positions."""

    def __init__(
        self,
        server: MySqlServer,
        database: str,
        columns: Mapping[str, Mapping[str, SourceColumn]],
        seen_to: Collection[str] = (),
    ) -> None:
        """Name the tables and columns.

        Args:
            server: the server that writes the log.
            database: the database of all tables.
            columns: by table, the columns of the images in their order, by name in lower case.
            seen_to: positions (``file:offset``) of statements that were carried out in Hive by hand; they no
                longer stop the reading.
        """
        self._server = server
        self._database = database
        self._columns = columns
        self._seen_to = frozenset(seen_to)

    def between(self, starts: Mapping[str, LogPosition], end: LogPosition) -> Iterator[RowImages | Undone]:
        """The row images of transactions behind the start of their table and up to ``end``.

        If a transaction was rolled back, whole or in part, :class:`Undone` follows its rows.

        Raises:
            SourcePositionError: the log behind a start was purged.
            InputError: a statement changed one of the tables without row events, or the log has an unknown
                event.
            ConnectionFailedError: the connection was lost.
        """
        start = min(starts.values(), key=lambda position: position.order)
        if start.order >= end.order:
            return
        reading = _Reading(self._database, self._columns, self._seen_to, starts)
        with self._stream(start) as stream:
            while reading.order < end.order and (event := _next(stream, self._server)) is not None:
                yield from reading.take(event)
        reading.check_lacking()
        if reading.order < end.order or reading.is_open:
            raise InputFormatError(
                f"source {self._server.address}: the log ended at {reading.position}, before {end} or within "
                "a transaction. Nothing was applied; run again"
            )

    @contextmanager
    def _stream(self, start: LogPosition) -> Iterator[Any]:
        stream = BinLogStreamReader(
            self._server.address.connection_options(),
            random.SystemRandom().choice(_REPLICA_IDS),
            resume_stream=True,
            log_file=start.file,
            log_pos=start.offset,
            only_schemas=[self._database],
            only_tables=list(self._columns),
            filter_non_implemented_events=False,
            enable_logging=False,
            pymysql_wrapper=_limited(pymysql.connect, self._server),
        )
        try:
            yield stream
        finally:
            stream.close()


def _limited(connect: Callable[..., Any], server: MySqlServer) -> Callable[..., Any]:
    """Connect only as often as a reader needs to: a resumed stream may lack half a transaction."""
    left = iter(range(_CONNECTIONS_OF_A_READER))

    def connect_once_each(**options: Any) -> Any:
        if next(left, None) is None:
            raise ConnectionFailedError(f"source {server.address}: the connection was lost; run again")
        if "db" in options:  # PyMySQL's old name, which the library still uses
            options["database"] = options.pop("db")
        return connect(**options)

    return connect_once_each


def _next(stream: Any, server: MySqlServer) -> BinLogEvent | None:
    try:
        return stream.fetchone()
    except (pymysql.err.MySQLError, OSError) as error:
        if error.args[:1] == (_CANNOT_READ_LOG,):
            raise SourcePositionError(f"source {server.address}: {error}. {START_OVER}") from error
        raise ConnectionFailedError(f"source {server.address}: reading its log: {error}") from error
    except _UNREADABLE as error:
        raise InputFormatError(
            f"source {server.address}: the log behind {stream.log_file}:{stream.log_pos} has an event that "
            f"cannot be read: {error!r}"
        ) from error


class _Reading:
    """State of a reading: file, offset, whether a transaction is open and has rows of our tables."""

    def __init__(
        self,
        database: str,
        columns: Mapping[str, Mapping[str, SourceColumn]],
        seen_to: frozenset[str],
        starts: Mapping[str, LogPosition],
    ) -> None:
        self._database = database
        self._columns = columns
        self._seen_to = seen_to
        self._starts = {table: position.order for table, position in starts.items()}
        self._file, self._offset = min(starts.values(), key=lambda position: position.order).file, 0
        self._decoders: dict[int, RowDecoder] = {}
        self._known: dict[tuple[Any, ...], RowDecoder] = {}
        self._lacking: dict[str, Collection[str]] = {}
        self._has_rows = False
        self._begun = self._event_count = 0
        self._savepoints: dict[str, int] = {}
        self.is_open = False

    @property
    def position(self) -> str:
        return f"{self._file}:{self._offset}"

    @property
    def order(self) -> tuple[int, int]:
        return file_number(self._file), self._offset

    def take(self, event: Any) -> Iterator[RowImages | Undone]:
        if isinstance(event, RotateEvent):
            self._file, self._offset = event.next_binlog, event.position
            self._decoders.clear()
            return
        self._move_to(event.packet.log_pos)
        match event:
            case TableMapEvent() | RowsEvent() if not self._is_new(event.table):
                return
            case TableMapEvent():
                decoder = self._decoders[event.table_id] = self._decoder(event)
                self._lacking[event.table] = decoder.lacking
            case PartialUpdateRowsEvent():
                raise InputFormatError(
                    f"the log has parts of JSON values at {self.position}; it needs "
                    f"binlog_row_value_options=''. {START_OVER}"
                )
            case RowsEvent():
                yield self._images(event)
            case QueryEvent():
                yield from self._take_statement(event)
            case GtidEvent() | MariadbGtidEvent():
                self._begin()
            case XidEvent():
                self._close()
            case XAPrepareEvent():
                self._take_prepared(event)
            case _:
                self._check_known(event)

    def _is_new(self, table: str) -> bool:
        """Whether this position is behind the start of the table."""
        return self.order > self._starts[table]

    def check_lacking(self) -> None:
        """Refuse rows without a column that no later statement added. Raises InputFormatError."""
        for table, names in self._lacking.items():
            if names:
                raise InputFormatError(
                    f"source table {self._database}.{table}: its rows in the log have no column "
                    f"{', '.join(sorted(names))}, and no statement in the log added it later; leave the "
                    "column out, or start over"
                )

    def _move_to(self, offset: int) -> None:
        # 0 for events that the server makes for this reader, and from MariaDB 11.4 on within transactions.
        if 0 < offset < self._offset:
            raise InputFormatError(
                f"log file {self._file} is larger than 4 GiB, and positions in it are ambiguous from "
                f"{self._offset} on. {START_OVER}"
            )
        self._offset = offset or self._offset

    def _begin(self) -> None:
        """Note where a transaction begins: its rows get this offset, since not every server logs more."""
        self._begun, self._event_count = self._offset, 0
        self._savepoints.clear()

    def _decoder(self, event: Any) -> RowDecoder:
        name = f"{event.schema}.{event.table}"
        if any(column.name is None for column in event.columns):
            raise InputFormatError(
                f"source table {name}: the log at {self.position} has no names of columns; it needs "
                f"binlog_row_metadata=FULL from the beginning. {START_OVER}"
            )
        key = (event.table, *((c.name, c.type, repr(sorted(c.data.items(), key=str))) for c in event.columns))
        if key not in self._known:
            logged = [LoggedColumn(column.name, column) for column in event.columns]
            self._known[key] = RowDecoder(name, logged, self._columns[event.table])
        return self._known[key]

    def _images(self, event: Any) -> RowImages:
        decoder = self._decoders.get(event.table_id)
        if decoder is None:
            raise InputFormatError(
                f"the log has rows at {self.position} of a table that it does not describe"
            )
        self._has_rows = self.is_open = True
        present = [event.columns_present_bitmap]
        operation = "delete" if isinstance(event, DeleteRowsEvent) else "insert"
        if isinstance(event, UpdateRowsEvent):
            present.append(event.columns_present_bitmap2)
            operation = "update"
        data = event.packet.read(event.event_size - event.packet.read_bytes)
        self._event_count += 1
        position = (file_number(self._file), self._begun, self._event_count)
        return RowImages(event.table, operation, position, decoder.rows(data, present), len(data))

    def _take_statement(self, event: Any) -> Iterator[Undone]:
        text = event.query.strip()
        verb = text[:20].upper()
        if verb.startswith("BEGIN"):
            self._begin()
            self.is_open = True
        elif verb.startswith("COMMIT"):
            self._close()
        elif found := _SAVEPOINT.fullmatch(text):
            self._savepoints[found[1].lower()] = self._event_count
        elif found := _ROLLBACK_TO.fullmatch(text):
            yield from self._undone_behind(self._event_count_at(found[1]))
        elif verb.startswith("ROLLBACK"):
            yield from self._undone_behind(0)
            self._close()
        elif verb.startswith("XA ") and not verb.startswith(("XA START", "XA BEGIN", "XA END")):
            self._close()
        else:
            self._check_statement(text, event.schema.decode())

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

    def _check_statement(self, text: str, database: str) -> None:
        for table, effect in effect_on(Statement(database, text), self._database, [*self._columns]).items():
            if not self._is_new(table):
                continue
            # A column that was added and is NULL needs no action: Hive has it, or the table was refused.
            self._lacking.pop(table, None)
            if effect is Effect.CHANGES and self.position not in self._seen_to:
                raise InputError(
                    f"source table {self._database}.{table}: the log has a statement at {self.position} that "
                    f"{effect.value}: {text[:200]!r}. Nothing was applied. Do the same to the table in Hive, "
                    f"then say that it is seen to: --seen-to {self.position} in the next run, in Python "
                    f"seen_to=[{self.position!r}]. Or: {START_OVER}"
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
        if type(event).__name__ in _STATEMENT_LOADS:
            raise InputFormatError(f"the log has LOAD DATA at {self.position} as a statement, not as rows")
        if not isinstance(event, NotImplementedEvent) or kind in _WITHOUT_CHANGE:
            return
        if not event.packet.flags & _IGNORABLE_FLAG:
            raise InputFormatError(
                f"the log has an event of type {kind} at {self.position}, which is not known; compressed and "
                "encrypted events are not supported (log_bin_compress, binlog_transaction_compression)"
            )

    def _close(self) -> None:
        self.is_open = self._has_rows = False
