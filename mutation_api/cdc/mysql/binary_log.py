"""The binary log between two positions: row images of some tables, from committed transactions only.

A server writes a whole transaction to its log when it commits. The events are checked one by one, and an
unknown event is an error: skipping it could lose a change.

Source: MySQL's source documentation, "Binary log"; MariaDB's knowledge base, "Binary log events".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from pymysqlreplication.event import QueryEvent, RotateEvent

from mutation_api.cdc.mysql.log_position import START_OVER, LogPosition, file_number
from mutation_api.cdc.mysql.log_reading import LogReading, RowImages, Undone
from mutation_api.cdc.mysql.log_stream import begun_at, next_event, opened_stream
from mutation_api.cdc.mysql.logged_statements import Barrier, LoggedStatements
from mutation_api.cdc.mysql.server import MySqlServer
from mutation_api.cdc.mysql.table_plan import TablePlan
from mutation_api.errors import InputFormatError

__all__ = ["BinaryLog"]


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
            while reading.order < end.order and (event := next_event(stream, self._server)) is not None:
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
            self._begun[file] = begun_at(self._server, file)
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
        """Return positions of statements that were passed because of the catalog, but should not have been.

        The catalog is read after the log and may have been different when the statement ran. The log after
        the part that was read is therefore checked too.
        """
        if not self._statements.has_trusted or self._read_to is None:
            return set()
        end = self._server.position()
        if self._read_to.order < end.order:
            with self._stream(self._read_to) as stream:
                place = self._read_to.order
                while place < end.order and (event := next_event(stream, self._server)) is not None:
                    if isinstance(event, RotateEvent):
                        place = (file_number(event.next_binlog), event.position)
                        continue
                    place = (place[0], event.packet.log_pos or place[1])
                    if isinstance(event, QueryEvent):
                        self._statements.note_later(event, place)
        return self._statements.refuted

    def _stream(self, start: LogPosition) -> AbstractContextManager[Any]:
        return opened_stream(self._server, start, self._database, list(self._plans))
