"""Logs of Canal: rows of MySQL and MariaDB as flat JSON messages; TiCDC also writes them.

A message has ``database``, ``table``, ``type`` (INSERT, UPDATE, DELETE) and ``data``, an array of rows. For
an update, ``old`` has the old values of the columns that changed, for each row. Statements (``isDdl``) that
change, rename or drop a followed table are refused. TRUNCATE is refused unless the user chose to apply it,
see :class:`~.events.LogOptions`. A table that is created is empty, and an index has no rows, so neither
needs action. Marks of transactions, heartbeats and TiCDC's watermarks change nothing.

**Order**: the lines, as Canal sends them, then the rows in a message. ``id`` counts Canal's batches: all
messages of a batch have the same one, and it restarts with the server. ``es`` is the time at which a
statement began, not when it was committed. Therefore ``id`` is used only if the user asks for the order of
the messages' positions; in this case the log must not contain such a restart. With TiCDC's extension,
``_tidb.commitTs`` orders transactions.

**Key**: ``pkNames``, or the columns that the user names.

**Values** (MySQL → JSON → Hive). All are strings, or null:

================================  ==========================  ===============================================
MySQL                             string                      Hive
================================  ==========================  ===============================================
tinyint … bigint, year, bit(n)    digits                      integers, decimal, boolean (for 0 and 1)
decimal, float, double            digits                      decimal, float, double
char, varchar, …text              the value itself            string, char, varchar
enum, set, json, time             as Canal writes them        string
binary, varbinary, …blob          a character for each byte,  binary
                                  as in ISO 8859-1
date, datetime, timestamp         ``2018-06-20 06:37:03``     date, timestamp without time zone (zero dates
                                                              are refused)
================================  ==========================  ===============================================

Source: FlatMessage, MQMessageUtils and EntryProtocol.proto of alibaba/canal; PingCAP's page on TiCDC's
Canal-JSON protocol.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mutation_api.cdc.messages.events import (
    Event,
    Images,
    Message,
    MessageFormat,
    PositionSource,
    Problem,
    bigint,
    number_of,
)
from mutation_api.cdc.messages.json_text import fields_of, objects_of, text_of, texts_of
from mutation_api.cdc.messages.json_values import TEXT, Reader
from mutation_api.cdc.messages.message_source import MessageSource
from mutation_api.cdc.messages.table_names import TableId, moves_tables, names_in, replaces_table
from mutation_api.errors import InputFormatError
from mutation_api.format.hive_type import HiveType

OPERATIONS = ("INSERT", "UPDATE", "DELETE")

SCHEMA_CHANGES = ("ALTER", "ERASE", "RENAME", "QUERY")
"""ERASE is DROP. QUERY is any other statement, including one whose rows are not in the log."""

INDEX_CHANGES = ("CINDEX", "DINDEX")

NO_CHANGES = (
    *("CREATE", *INDEX_CHANGES),
    *("GTID", "TRANSACTIONBEGIN", "TRANSACTIONEND", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT", "TIDB_WATERMARK"),
)

_OF_INDEX = re.compile(
    r"(?:(?:create|drop)|alter\s+table\s+\S+\s+(?:add|drop))\s+(?:constraint\s+\S+\s+)?"
    r"(?:(?:unique|fulltext|spatial|online|offline|if|not|exists)\s+)*(?:(?:index|key)\b|(?<=unique\s)(?=\())"
    r"[^(),]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^(),]*)?",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class CanalSource(MessageSource):
    """A log of flat messages of Canal, or of TiCDC.

    Args: See :class:`~mutation_api.cdc.messages.message_source.MessageSource`.
    """

    @property
    def format(self) -> MessageFormat:
        """The format of Canal's messages."""
        return CanalFormat()


class CanalFormat(MessageFormat):
    """The format of Canal's messages."""

    name = "canal"

    def event(self, message: Message, positions: PositionSource) -> Event:
        """Return the event of a message. See :class:`~mutation_api.cdc.messages.events.MessageFormat`."""
        return _Read(message).event(positions)

    def readers(
        self, _table: str, columns: Mapping[str, HiveType], _schema: str | None
    ) -> Mapping[str, Reader]:
        """Return the readers of columns: bytes as characters for binary columns."""
        return {name: Reader("latin1") if t.kind == "binary" else TEXT for name, t in columns.items()}


class _Read:
    """The fields of a message."""

    def __init__(self, message: Message) -> None:
        fields = self.fields = fields_of(message.value) or {}
        self.database = text_of(fields.get("database"))
        self.table = text_of(fields.get("table"))
        self.type = text_of(fields.get("type"))
        self.data, self.old = objects_of(fields.get("data")), objects_of(fields.get("old"))
        tidb = fields_of(fields.get("_tidb"))
        self.commit_ts = None if tidb is None else bigint(text_of(tidb.get("commitTs")))

    def event(self, positions: PositionSource) -> Event:
        kind, problem = self._kind(), self._problem()
        is_change = kind == "schema change"
        return Event(
            kind,
            self._full_name(),
            None if self.type is None else self.type.lower(),
            self._log_position(positions),
            "id" if self.commit_ts is None else "commitTs",
            None,
            None,
            texts_of(self.fields.get("pkNames")),
            tuple(self._images()) if kind == "row" and problem is None else (),
            self.type if kind == "row" else self.sql or self.type,
            problem,
            _table_id(self.database, self.table) if kind in ("row", "truncate") else None,
            self._touches() if is_change else (),
            names_in(self.sql) if is_change and self._may_move() else frozenset(),
            changed_at=self._changed_at(),
        )

    def _changed_at(self) -> int | None:
        """Return the time at which the statement began; with TiCDC that of the commit."""
        millis = number_of(self.fields.get("es"))
        return None if millis is None else millis * 1000

    @property
    def sql(self) -> str | None:
        """The statement of a schema change."""
        return text_of(self.fields.get("sql"))

    def _kind(self) -> str:
        if self.type in OPERATIONS:
            return "damaged" if self.database is None or self.table is None else "row"
        if self.type == "TRUNCATE":
            return "truncate"
        if self.type in INDEX_CHANGES and not _changes_index_alone(self.sql):
            return "schema change"
        if self.type in NO_CHANGES:
            return "schema change" if self.type == "CREATE" and replaces_table(self.sql) else "other"
        if self.type in SCHEMA_CHANGES:
            return "schema change"
        return "damaged" if None in (self.type, self.database, self.table) else "row"

    def _touches(self) -> tuple[TableId, ...]:
        """Return the tables that a statement concerns; Canal names only the first one of a statement."""
        is_of_database = not self.table or self.type in ("RENAME", "QUERY")
        database = None if self.type == "RENAME" and not self.sql else self.database
        return (TableId(None, database, None, None if is_of_database else self.table),)

    def _may_move(self) -> bool:
        return self.type in ("ERASE", "RENAME") or moves_tables(self.sql)

    def _full_name(self) -> str | None:
        """Return the table of a message; RENAME concerns all of the database, as any new name is possible."""
        table = "*" if not self.table or self.type == "RENAME" else self.table
        return None if self.database is None else f"{self.database}.{table}"

    def _images(self) -> Iterator[Images]:
        for number, row in enumerate(self.data or ()):
            assert row is not None
            before = row if self.type == "DELETE" else None
            if self.type == "UPDATE" and self.old is not None:
                before = {**row, **(self.old[number] or {})}
            yield Images(before, None if self.type == "DELETE" else row)

    def _log_position(self, positions: PositionSource) -> tuple[int, int, int] | None:
        first = self.commit_ts
        if first is None and positions is PositionSource.MESSAGE:
            first = bigint(text_of(self.fields.get("id")))
        return None if first is None else (first, 0, 0)

    def _problem(self) -> Problem | None:
        if self.type in NO_CHANGES or self.type in SCHEMA_CHANGES or self.type == "TRUNCATE":
            return None
        needed = {"type": self.type, "database": self.database, "table": self.table}
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            text = "a Canal message must have this field, but this one does not"
            return Problem(InputFormatError, missing[0], text)
        if self.type not in OPERATIONS:
            text = f"unknown operation {self.type}, expected one of {OPERATIONS}"
            return Problem(InputFormatError, "type", text)
        if not self.data or None in self.data:
            return Problem(InputFormatError, "data", "the message does not have an array of rows")
        is_old_whole = self.old is not None and len(self.old) == len(self.data) and None not in self.old
        if self.type == "UPDATE" and not is_old_whole:
            text = "the message does not contain the changed values of each row"
            return Problem(InputFormatError, "old", text)
        return None


@functools.lru_cache(maxsize=256)
def _table_id(database: str | None, table: str | None) -> TableId:
    return TableId(None, database, None, table)


def _changes_index_alone(statement: str | None) -> bool:
    """Return True if a statement only adds or drops an index.

    Canal takes the type of a statement from its first clause only, and an index that is added with IGNORE
    removes rows. If the message has no statement, the type is trusted.
    """
    return not statement or _OF_INDEX.fullmatch(statement.strip().rstrip(";")) is not None
