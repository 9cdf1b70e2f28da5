"""The binary log between two positions: row images of some tables, from committed transactions only.

A server writes a whole transaction to its log when it commits. The events are checked one by one, and an
unknown event is an error: skipping it could lose a change.

The replication library is made to skip status variables of a statement that it does not know. MariaDB 11
writes some before statements that define columns, which makes the library fail on the whole log. Variables
that this package needs, such as the SQL mode, come first.

Source: MySQL's source documentation, "Binary log"; MariaDB's knowledge base, "Binary log events", and its
log_event.h, Q_GTID_FLAGS3 and Q_CHARACTER_SET_COLLATIONS.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import BinLogEvent, FormatDescriptionEvent, QueryEvent, RotateEvent
from pymysqlreplication.exceptions import MalformedBinLogEvent, StatusVariableMismatch

from mutation_api.cdc.mysql.log_position import START_OVER, LogPosition, file_number
from mutation_api.cdc.mysql.log_reading import LogReading, RowImages, Undone
from mutation_api.cdc.mysql.logged_statements import Barrier, LoggedStatements
from mutation_api.cdc.mysql.server import MySqlServer
from mutation_api.cdc.mysql.table_plan import TablePlan
from mutation_api.errors import ConnectionFailedError, InputFormatError, SourcePositionError


class BinaryLog:
    """The part of a server's log between two positions."""

    def __init__(
        self,
        server: MySqlServer,
        database: str,
        plans: Mapping[str, TablePlan],
        statements: LoggedStatements,
        seen_to: Collection[str] = (),
    ) -> None:
        """Create a reader for some tables of a server.

        Args:
            server: the server that writes the log.
            database: the database of all tables.
            plans: how to read each table.
            statements: decides which statements in the log change tables.
            seen_to: positions (``file:offset``) of statements that have been carried out in Hive by hand, so
                that they no longer stop the reading.
        """
        self._server = server
        self._database = database
        self._plans = plans
        self._statements = statements
        self._seen_to = frozenset(seen_to)
        self._lacking: Mapping[str, Collection[str]] = {}
        self._read_to: LogPosition | None = None
        self._is_stopped = False
        self._begun: dict[str, int] = {}

    def between(
        self, starts: Mapping[str, LogPosition], end: LogPosition
    ) -> Iterator[RowImages | Undone | Barrier]:
        """Yield the row images of transactions after the start of each table, up to ``end``.

        If a transaction was rolled back in whole or in part, an :class:`Undone` follows its rows. A statement
        that changes a table without row events ends the reading: the last item is then a :class:`Barrier`.

        Raises:
            SourcePositionError: If the log after a start was purged.
            InputFormatError: If the log contains an unknown event.
            ConnectionFailedError: If the connection was lost.
        """
        start = min(starts.values(), key=lambda position: position.order)
        self._lacking = {}
        if start.order >= end.order:
            return
        reading = LogReading(
            self._database, self._plans, self._statements, self._seen_to, starts, self._begun
        )
        with self._stream(start) as stream:
            while reading.order < end.order and (event := _next_event(stream, self._server)) is not None:
                for found in reading.take(event):
                    if isinstance(found, Barrier):
                        # Set these before the yield, since callers stop iterating at a barrier.
                        self._read_to, self._is_stopped = LogPosition(*found.boundary), True
                        yield found
                        return
                    yield found
        self._lacking = reading.lacking
        if not self._is_stopped:
            self._read_to = end
        if reading.order < end.order or reading.is_open:
            raise InputFormatError(
                f"source {self._server.address}: the log ended at {reading.position}, before {end} or within "
                "a transaction. Nothing was applied; run again"
            )

    def begun_at(self, file: str) -> int:
        """Return when a log file was created, in seconds since 1970; query the server if it was not read."""
        if file not in self._begun:
            self._begun[file] = _begun_at(self._server, file)
        return self._begun[file]

    def check_lacking(self) -> None:
        """Raise InputFormatError if rows lack a column that no later statement added."""
        for table, names in self._lacking.items():
            if names:
                raise InputFormatError(
                    f"source table {self._database}.{table}: its rows in the log do not have the column "
                    f"{', '.join(sorted(names))}, and no later statement in the log added it. {START_OVER}"
                )

    def refuted(self) -> set[str]:
        """Return positions of statements that should not have been skipped because of the catalog.

        The catalog is read after the log and may have been different when the statement ran. The log after
        the part that was read is therefore checked too.
        """
        if not self._statements.has_trusted or self._read_to is None:
            return set()
        end = self._server.position()
        if self._read_to.order < end.order:
            with self._stream(self._read_to) as stream:
                place = self._read_to.order
                while place < end.order and (event := _next_event(stream, self._server)) is not None:
                    if isinstance(event, RotateEvent):
                        place = (file_number(event.next_binlog), event.position)
                        continue
                    place = (place[0], event.packet.log_pos or place[1])
                    if isinstance(event, QueryEvent):
                        self._statements.note_later(event, place)
        return self._statements.refuted

    def _stream(self, start: LogPosition) -> AbstractContextManager[Any]:
        return _opened_stream(self._server, start, self._database, list(self._plans))


_METHOD = "_read_status_vars_value_for_key"


def pass_unknown_status_variables() -> None:
    """Replace the replication library's method with one that skips unknown variables; idempotent."""
    known = getattr(QueryEvent, _METHOD)
    if known.__module__ == __name__:
        return

    def read_or_skip(self: Any, key: int) -> None:
        if not hasattr(self, "status_vars_end"):
            # One byte, the first key, has already been read.
            self.status_vars_end = self.packet.read_bytes - 1 + self.status_vars_length
        try:
            known(self, key)
        except StatusVariableMismatch:
            self.packet.read(self.status_vars_end - self.packet.read_bytes)

    setattr(QueryEvent, _METHOD, read_or_skip)


_CANNOT_READ_LOG = 1236
"""The server's error code if a log file is missing, or has no event at the position."""
_UNREADABLE = (ValueError, LookupError, TypeError, NotImplementedError, struct.error, MalformedBinLogEvent)
"""The errors of the replication library for an event that is damaged or newer than the library."""

# Above the usual ids of servers, because two readers with the same id would end each other's stream.
_REPLICA_IDS = range(1 << 31, 1 << 32)
_CONNECTIONS_OF_A_READER = 2
"""One connection for the stream and one for queries; a third one would mean that a lost stream was
resumed."""
_FIRST_EVENT = 4


@contextmanager
def _opened_stream(
    server: MySqlServer, start: LogPosition, database: str = "", tables: Sequence[str] = ()
) -> Iterator[Any]:
    """Yield a stream of events from a position on, with rows and maps of these tables only, then close it."""
    pass_unknown_status_variables()
    stream = BinLogStreamReader(
        server.address.connection_options(),
        random.SystemRandom().choice(_REPLICA_IDS),
        resume_stream=True,
        log_file=start.file,
        log_pos=start.offset,
        only_schemas=[database],
        only_tables=list(tables),
        filter_non_implemented_events=False,
        enable_logging=False,
        pymysql_wrapper=_limited(pymysql.connect, server),
    )
    try:
        yield stream
    finally:
        stream.close()


def _begun_at(server: MySqlServer, file: str) -> int:
    """Return when the server created a log file, in seconds since 1970."""
    with _opened_stream(server, LogPosition(file, _FIRST_EVENT)) as stream:
        while (event := _next_event(stream, server)) is not None:
            if isinstance(event, FormatDescriptionEvent):
                return int(event.timestamp)
    raise InputFormatError(
        f"source {server.address}: log file {file} does not begin with its format description"
    )


def _limited(connect: Callable[..., Any], server: MySqlServer) -> Callable[..., Any]:
    """Limit connections to what a reader needs, because a resumed stream may lack half a transaction."""
    left = iter(range(_CONNECTIONS_OF_A_READER))

    def connect_once_each(**options: Any) -> Any:
        if next(left, None) is None:
            raise ConnectionFailedError(f"source {server.address}: the connection was lost; run again")
        if "db" in options:  # PyMySQL's old name, which the replication library still uses
            options["database"] = options.pop("db")
        return connect(**options)

    return connect_once_each


def _next_event(stream: Any, server: MySqlServer) -> BinLogEvent | None:
    """Return the next event of a stream, or None at the end of the log.

    Raises:
        SourcePositionError: If the log does not have this file or position.
        ConnectionFailedError: If the connection was lost.
        InputFormatError: If the event is damaged, or unknown to the replication library.
    """
    try:
        return stream.fetchone()
    except (pymysql.err.MySQLError, OSError) as error:
        if error.args[:1] == (_CANNOT_READ_LOG,):
            raise SourcePositionError(f"source {server.address}: {error}. {START_OVER}") from error
        raise ConnectionFailedError(f"source {server.address}: cannot read its log: {error}") from error
    except _UNREADABLE as error:
        raise InputFormatError(
            f"source {server.address}: cannot read the event after {stream.log_file}:{stream.log_pos} in the "
            f"log: {error!r}. {START_OVER}"
        ) from error
