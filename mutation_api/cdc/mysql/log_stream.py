"""The stream of events that a server sends to a reader of its log.

The replication library is made to skip status variables of a statement that it does not know. MariaDB 11
writes some before statements that define columns, which makes the library fail on the whole log. Variables
that this package needs, such as the SQL mode, come first.

Source: MariaDB's log_event.h, Q_GTID_FLAGS3 and Q_CHARACTER_SET_COLLATIONS.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import BinLogEvent, FormatDescriptionEvent, QueryEvent
from pymysqlreplication.exceptions import MalformedBinLogEvent, StatusVariableMismatch

from mutation_api.cdc.mysql.log_position import START_OVER, LogPosition
from mutation_api.cdc.mysql.server import MySqlServer
from mutation_api.errors import ConnectionFailedError, InputFormatError, SourcePositionError

__all__ = ["begun_at", "check_begun", "next_event", "opened_stream", "pass_unknown_status_variables"]


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
"""One connection for the stream and one for queries; a third one would mean that a lost stream is resumed."""
_FIRST_EVENT = 4


@contextmanager
def opened_stream(
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


def check_begun(position: LogPosition, begun: int) -> None:
    """Raise SourcePositionError if the file of a position was created at another time.

    A log that was reset has the same file names again.
    """
    if position.begun not in (0, begun):
        raise SourcePositionError(
            f"the server reset its log, or was restored: it created {position.file} at {begun} (seconds "
            f"since 1970), but the watermark {position} is in a file created at {position.begun}. "
            f"{START_OVER}"
        )


def begun_at(server: MySqlServer, file: str) -> int:
    """Return when the server created a log file, in seconds since 1970; see :func:`next_event` for errors."""
    with opened_stream(server, LogPosition(file, _FIRST_EVENT)) as stream:
        while (event := next_event(stream, server)) is not None:
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


def next_event(stream: Any, server: MySqlServer) -> BinLogEvent | None:
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
