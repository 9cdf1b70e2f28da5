"""The history of a server of MySQL's kind, from its binary log, as ``mysql-replication`` decodes rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent, RotateEvent, XidEvent
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)
from pymysqlreplication.row_event import (
    RowsEvent as LoggedRows,
)

from judges.mysql import MySqlJudge
from tests.cdc_writers.history import Image, Row, RowsEvent, Table, Transaction

SERVER_ID = 4242
"""The reader's own, among replicas."""

_OPERATIONS = {WriteRowsEvent: "insert", UpdateRowsEvent: "update", DeleteRowsEvent: "delete"}


class LogFollower:
    """Gives the transactions on tables of one database, from the position of the log when it was made."""

    def __init__(self, server: MySqlJudge, tables: Sequence[Table]) -> None:
        """``tables`` are all those whose changes are wanted."""
        self._server = server
        self._tables = {table.name: table for table in tables}
        self._database = tables[0].database
        self._file, self._offset = server.log_end()
        self._count = 0

    def transactions(self) -> list[Transaction]:
        """What was committed since the last call."""
        return list(self._read())

    def _read(self) -> Iterator[Transaction]:
        # Texts in character sets that no writer is asked for may be beyond the library.
        stream = BinLogStreamReader(
            dict(self._server.connection_options()),
            SERVER_ID,
            log_file=self._file,
            log_pos=self._offset,
            resume_stream=True,
            blocking=False,
            only_schemas=[self._database],
            only_tables=list(self._tables),
            filter_non_implemented_events=False,
            ignore_decode_errors=True,
            enable_logging=False,
            pymysql_wrapper=_connect,
        )
        events: list[RowsEvent] = []
        savepoints: dict[str, int] = {}
        end = self._offset
        try:
            for event in stream:
                # MariaDB 11.4 logs no positions within a transaction.
                end = event.packet.log_pos or end + event.packet.event_size
                if isinstance(event, RotateEvent):
                    end = event.position
                elif isinstance(event, LoggedRows):
                    events.append(self._rows_event(event, stream.log_file, end))
                elif isinstance(event, QueryEvent):
                    events = _events_after(event.query, events, savepoints)
                elif isinstance(event, XidEvent) and events:
                    self._count += 1
                    committed = datetime.fromtimestamp(event.timestamp, UTC).replace(tzinfo=None)
                    yield Transaction(self._count, committed, tuple(events))
                    events = []
            self._file, self._offset = stream.log_file, stream.log_pos
        finally:
            stream.close()

    def _rows_event(self, event: Any, file: str, end: int) -> RowsEvent:
        table = self._tables[event.table]
        images = tuple(_image(table, type(event), row) for row in event.rows)
        number = int(file.rpartition(".")[2])
        begun = datetime.fromtimestamp(event.timestamp, UTC).replace(tzinfo=None)
        return RowsEvent(table, _OPERATIONS[type(event)], number, end, images, begun)


def _events_after(
    statement: bytes | str, events: list[RowsEvent], savepoints: dict[str, int]
) -> list[RowsEvent]:
    """Return the events that still count after a statement of the log.

    A transaction that was rolled back is logged if it also changed what cannot be rolled back.
    """
    text = statement.decode() if isinstance(statement, bytes) else statement
    match text.replace("`", "").split():
        case ["SAVEPOINT", name]:
            savepoints[name] = len(events)
        case ["ROLLBACK", "TO", *_, name]:
            return events[: savepoints[name]]
        case ["ROLLBACK"]:
            return []
    return events


def _image(table: Table, kind: type, row: dict[str, Any]) -> Image:
    match _OPERATIONS[kind]:
        case "insert":
            return None, _row(table, row["values"])
        case "delete":
            return _row(table, row["values"]), None
        case _:
            return _row(table, row["before_values"]), _row(table, row["after_values"])


def _row(table: Table, values: dict[str, Any]) -> Row:
    return {name: _value(values[name], kind) for name, kind in table.columns.items()}


def _value(value: Any, kind: str) -> Any:
    if kind.startswith("BIT") and value is not None:
        return int(value, 2)
    # The library adds 1900 to the byte of the year 0000, too.
    return 0 if kind == "YEAR" and value == 1900 else value


def _connect(**options: Any) -> Any:
    if "db" in options:  # PyMySQL's old word, which the library still uses
        options["database"] = options.pop("db")
    return pymysql.connect(**options)
