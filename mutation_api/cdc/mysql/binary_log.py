"""The binary log from one position to another: row images of some tables, of committed transactions alone.

A server writes a whole transaction to its log when it commits. All other events are checked one by one, and
an unknown event is refused: an event that a reader drops is a change that is lost.

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
        """Name the tables.

        Args:
            server: the server that writes the log.
            database: the database of all tables.
            plans: how each table is read.
            statements: judges the statements in the log.
            seen_to: positions (``file:offset``) of statements that were carried out in Hive by hand; they no
                longer stop the reading.
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
        """The row images of transactions behind the start of their table and up to ``end``.

        If a transaction was rolled back, whole or in part, :class:`Undone` follows its rows. A statement that
        changes a table without row events ends the reading: a :class:`Barrier` comes last.

        Raises:
            SourcePositionError: the log behind a start was purged.
            InputFormatError: the log has an unknown event.
            ConnectionFailedError: the connection was lost.
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
                        # Before it is given, since nobody asks for more behind it.
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
        """When a file of the log was begun, in seconds since 1970; the server is asked if it was not read."""
        if file not in self._begun:
            self._begun[file] = begun_at(self._server, file)
        return self._begun[file]

    def check_lacking(self) -> None:
        """Refuse rows without a column that no later statement added. Raises InputFormatError."""
        for table, names in self._lacking.items():
            if names:
                raise InputFormatError(
                    f"source table {self._database}.{table}: its rows in the log have no column "
                    f"{', '.join(sorted(names))}, and no statement in the log added it later. {START_OVER}"
                )

    def refuted(self) -> set[str]:
        """Positions of statements that were passed because of the catalog, which was another then.

        The catalog was read after the log, so the log behind what was read is looked at too.
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
