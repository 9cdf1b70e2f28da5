"""Logs of Maxwell's daemon: rows of MySQL and MariaDB as JSON.

A message has ``database``, ``table``, ``type`` and the row in ``data``. For an update, ``old`` has the old
values of the columns that changed. Rows of a bootstrap (``bootstrap-insert``) are inserts; they replace
existing rows. Messages around a bootstrap and heartbeats change nothing. Changes and drops of tables
(``output_ddl``) are refused, see :class:`~.events.LogOptions`. A table that is created is empty and
needs no action. Maxwell does not report TRUNCATE TABLE; do not use it on a followed table.

**Order**: ``position`` (``output_binlog_position``): the number of the binlog file, the byte in it, then
``xoffset`` (``output_xoffset``), or the line. All rows of a statement have the same position. The last row of
a transaction has ``commit`` and no ``xoffset``. Byte 0 is not a position; MariaDB logs it within transactions
since 11.4, and Maxwell may pass it on. Rows of a bootstrap have no position either. In these cases, choose
the order of lines, and let Maxwell bootstrap first, or synchronously. ``xid`` cannot be used: it is assigned
when a transaction begins, not when it commits.

**Key**: ``primary_key_columns`` (``output_primary_key_columns``), or the columns that the user names.

**Values** (MySQL → JSON → Hive):

===============================  ===============================  ===========================================
MySQL                            JSON                             Hive
===============================  ===============================  ===========================================
tinyint … bigint, year, bit(n)   number                           integers, decimal, boolean (for tinyint(1)
                                                                  and bit(1))
decimal                          number                           decimal
float, double                    number                           float, double
char, varchar, …text, enum       string                           string, char, varchar
set                              array of strings                 string: the array's JSON
json                             the JSON value itself            string: its JSON with sorted fields and
                                                                  without blanks, or a JSON string unquoted
binary, varbinary, …blob         string of base64                 binary
date, datetime, timestamp        string                           date, timestamp without time zone (zero
                                                                  dates are refused, see
                                                                  ``output_null_zerodates``)
time                             string                           string
geometry                         string (WKT)                     string
===============================  ===============================  ===========================================

In a string column, a number gets its shortest form (``1.50`` is ``1.5``). With ``output_nulls=false`` Maxwell
leaves out NULLs; in this case name the columns that may be missing.

Source: Maxwell's documentation (dataformat, bootstrapping, config) and its classes RowMap and ColumnDef.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mutation_api.cdc.messages.events import (
    INCREMENTAL,
    Event,
    Images,
    Message,
    MessageFormat,
    PositionSource,
    Problem,
    number_of,
    origins_of,
)
from mutation_api.cdc.messages.json_text import fields_of, text_of, texts_of
from mutation_api.cdc.messages.json_values import TEXT, Reader
from mutation_api.cdc.messages.message_source import MessageSource
from mutation_api.cdc.messages.table_names import TableId, moves_tables, names_in, replaces_table
from mutation_api.errors import InputFormatError
from mutation_api.format.hive_type import HiveType

OPERATIONS = {"insert": "insert", "bootstrap-insert": "insert", "update": "update", "delete": "delete"}

CREATE = "table-create"

NO_CHANGES = ("bootstrap-start", "bootstrap-complete", "heartbeat", CREATE, "database-create")

SCHEMA_CHANGES = ("table-alter", "table-drop", "database-alter", "database-drop")

_LAST_ROW = 2**62
"""The replacement for the ``xoffset`` of the last row of a transaction."""

_FILE = re.compile(r"(.*?)\.?([0-9]{1,18})", re.DOTALL)
_OFFSET = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class MaxwellSource(MessageSource):
    """A log of messages of Maxwell's daemon.

    Args: See :class:`~mutation_api.cdc.messages.message_source.MessageSource`.
    """

    @property
    def format(self) -> MessageFormat:
        """The format of Maxwell's messages."""
        return MaxwellFormat()


class MaxwellFormat(MessageFormat):
    """The format of Maxwell's messages."""

    name = "maxwell"

    def event(self, message: Message, _positions: PositionSource) -> Event:
        """Return the event of a message. See :class:`~mutation_api.cdc.messages.events.MessageFormat`."""
        return _Read(message).event()

    def readers(
        self, _table: str, columns: Mapping[str, HiveType], _schema: str | None
    ) -> Mapping[str, Reader]:
        """Return the readers of columns: base64 for binary columns."""
        return {name: Reader("base64") if t.kind == "binary" else TEXT for name, t in columns.items()}


class _Read:
    """The fields of a message; ``place``: the parts of its position."""

    def __init__(self, message: Message) -> None:
        fields = self.fields = fields_of(message.value) or {}
        self.database = text_of(fields.get("database"))
        self.table = text_of(fields.get("table"))
        self.type = text_of(fields.get("type"))
        self.position = text_of(fields.get("position"))
        self.place = None if self.position is None else _place(self.position)
        self.data, self.old = fields_of(fields.get("data")), fields_of(fields.get("old"))

    def event(self) -> Event:
        kind = self._kind()
        if kind != "row":
            return self._other_event(kind)
        problem = self._problem()
        return Event(
            kind,
            f"{self.database}.{self.table}",
            OPERATIONS.get(self.type or ""),
            self._log_position(),
            None if self.place is None else self.place[0],
            None,
            None,
            texts_of(self.fields.get("primary_key_columns")),
            (self._images(),) if problem is None else (),
            self.type,
            problem,
            _table_id(self.database, self.table),
            origins=self._origins(),
            snapshot=INCREMENTAL if self.type == "bootstrap-insert" else None,
            time=self._time(),
            changed_at=None if (time := self._time()) is None else time * 1000,
        )

    def _other_event(self, kind: str) -> Event:
        is_change = kind == "schema change"
        is_of_database = self.type is not None and self.type.startswith("database-")
        return Event(
            kind,
            f"{self.database}.{'*' if is_of_database else self.table}",
            None,
            self._log_position(),
            None if self.place is None else self.place[0],
            text=self.sql or self.type,
            problem=self._problem(),
            touches=self._touches() if is_change else (),
            mentions=names_in(self.sql) if is_change and moves_tables(self.sql) else frozenset(),
            origins=self._origins(),
            time=self._time(),
        )

    @property
    def sql(self) -> str | None:
        """The statement of a schema change."""
        return text_of(self.fields.get("sql"))

    def _time(self) -> int | None:
        seconds = number_of(self.fields.get("ts"))
        return None if seconds is None else seconds * 1000

    def _origins(self) -> tuple[tuple[str, str], ...]:
        server, gtid = self.fields.get("server_id"), self.fields.get("gtid")
        return () if server is None and gtid is None else origins_of(text_of(server), text_of(gtid))

    def _touches(self) -> tuple[TableId, ...]:
        """Return the tables that a schema change concerns; a renamed one has an old and a new definition."""
        if self.type is not None and self.type.startswith("database-"):
            return (TableId(None, self.database, None, None),)
        definitions = [fields_of(self.fields.get(name)) or {} for name in ("old", "def")]
        named = [(text_of(each.get("database")), text_of(each.get("table"))) for each in definitions]
        tables = [(self.database, self.table), *((a or self.database, b) for a, b in named if b is not None)]
        return tuple(TableId(None, database, None, table) for database, table in dict.fromkeys(tables))

    def _kind(self) -> str:
        if self.type in OPERATIONS:
            return "damaged" if self.database is None or self.table is None else "row"
        if self.type in NO_CHANGES:
            return "schema change" if self.type == CREATE and replaces_table(self.sql) else "other"
        if self.type in SCHEMA_CHANGES:
            return "schema change"
        return "damaged" if None in (self.database, self.table, self.type) else "row"

    def _images(self) -> Images:
        before = self.data if self.type == "delete" else None
        if self.type == "update":
            before = {**(self.data or {}), **(self.old or {})}
        return Images(before, None if self.type == "delete" else self.data)

    def _log_position(self) -> tuple[int, int, int] | None:
        if self.place is None or not self.place[2]:
            return None
        row = number_of(self.fields.get("xoffset"))
        if row is None:
            row = _LAST_ROW if text_of(self.fields.get("commit")) == "true" else 0
        return self.place[1], self.place[2], row

    def _problem(self) -> Problem | None:
        if self.type in NO_CHANGES or self.type in SCHEMA_CHANGES:
            return None
        needed = {"database": self.database, "type": self.type, "table": self.table}
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            text = "a Maxwell message must have this field, but this one does not"
            return Problem(InputFormatError, missing[0], text)
        if self.type not in OPERATIONS:
            text = f"unknown operation {self.type}, expected one of {', '.join(OPERATIONS)}"
            return Problem(InputFormatError, "type", text)
        if self.data is None:
            text = "the message has no row; is it encrypted, or only a part of a message?"
            return Problem(InputFormatError, "data", text)
        if self.type == "update" and self.old is None:
            return Problem(
                InputFormatError, "old", "the message does not contain the values that the update changed"
            )
        if self.position is not None and self.place is None:
            text = f"{self.position} is not a position such as master.000006:800911"
            return Problem(InputFormatError, "position", text)
        return None


def _place(position: str) -> tuple[str, int, int] | None:
    """Return log, file number and byte of a position such as ``master.000006:800911``.

    If the position has another form, return None.
    """
    name, _, offset = position.rpartition(":")
    file = _file(name)
    return None if file is None or not _OFFSET.fullmatch(offset) else (*file, int(offset))


@functools.lru_cache(maxsize=256)
def _file(name: str) -> tuple[str, int] | None:
    found = _FILE.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


@functools.lru_cache(maxsize=256)
def _table_id(database: str | None, table: str | None) -> TableId:
    return TableId(None, database, None, table)
