"""SQLite, 3.37 and later, through Python's own module.

A column may hold values of any kind, whatever its declared type; each value must fit the column of Hive,
where dates and times are texts in ISO 8601 and booleans are 0 and 1.

INSERT OR REPLACE removes the row that is in its way without firing a trigger, so a trigger before inserts and
updates also logs the keys of rows that may be in the way of other unique keys. TRUNCATE does not exist;
cascades fire triggers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from mutation_api.errors import RecordLayoutError
from mutation_api.types.hive_type import HiveType
from mutation_api.update.method import CaptureMethod
from mutation_api.update.rdbms.database import CapturedTable, SourceColumn, SourceObject
from mutation_api.update.rdbms.sql_database import (
    DDL_WAIT_SECONDS,
    OPERATION_COLUMN,
    SEQUENCE_COLUMN,
    TIME_COLUMN,
    SqlDatabase,
)
from mutation_api.update.rdbms.values import to_hive_column
from mutation_api.update.settings import ObjectNames

__all__ = ["Sqlite"]

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_EXPRESSION = -2


class Sqlite(SqlDatabase):
    """A database file."""

    kind = "sqlite"
    knows_bound = True
    """There is one writer at a time, and its values are greater than those of the one before."""

    def describe(self, table: str) -> CapturedTable:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        name = table.removeprefix("main.")
        kinds = self.rows("SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE", name)
        if not kinds or kinds[0][0] != "table":
            what = f"is a {kinds[0][0]}" if kinds else "does not exist"
            raise RecordLayoutError(f"source {self.source_id}: table {name} {what}")
        info = self.rows('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', name)
        columns = tuple(SourceColumn(row[0], row[1]) for row in info)
        primary = tuple(row[0] for row in sorted((r for r in info if r[3]), key=lambda r: r[3]))
        not_null = {row[0] for row in info if row[2]} | set(primary)
        unique = self._unique_indexes(name)
        keys = [key for key in unique if set(key) <= not_null]
        all_keys = tuple(dict.fromkeys([*([primary] if primary else []), *keys]))
        return CapturedTable("", name, columns, primary, all_keys, tuple(unique))

    def _unique_indexes(self, table: str) -> list[tuple[str, ...]]:
        """The columns of each unique index; an expression is ''."""
        found = []
        for index, partial in self.rows(
            'SELECT name, partial FROM pragma_index_list(?) WHERE "unique"', table
        ):
            rows = self.rows("SELECT cid, name FROM pragma_index_info(?)", index)
            found.append(tuple("" if cid == _EXPRESSION or partial else name for cid, name in rows))
        return found

    def has_table(self, schema: str, name: str) -> bool:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", name))

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        if method is CaptureMethod.CHANGELOG and any("" in each for each in table.detail):
            raise RecordLayoutError(
                f"source table {table.name} has a unique index on an expression or on some rows only; a "
                "row that INSERT "
                "OR REPLACE removes because of it is seen by no trigger: make it an index that is not unique"
            )

    def check_column(self, table: CapturedTable, column: SourceColumn, target: HiveType) -> None:
        """Nothing is known before the values are read; of nested types there are none."""
        if target.children:
            raise RecordLayoutError(
                f"source table {table.name}, column {column.name!r} cannot go into a column of type "
                f"{target.text}"
            )

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        columns = [table.column(name) for name in key]
        log = self.quoted(names.log)
        keys = ", ".join(self.quoted(c.name) for c in columns)
        create = (
            f"CREATE TABLE IF NOT EXISTS {log} ({SEQUENCE_COLUMN} INTEGER PRIMARY KEY AUTOINCREMENT, "
            f"{OPERATION_COLUMN} TEXT NOT NULL, {TIME_COLUMN} REAL NOT NULL DEFAULT {_NOW}, {keys})"
        )
        made = [SourceObject("changelog table", names.log, (create,), (f"DROP TABLE IF EXISTS {log}",))]
        insert = f"INSERT INTO {log} ({OPERATION_COLUMN}, {keys})"
        new, old = (", ".join(self.name_of(c, word) for c in columns) for word in ("NEW", "OLD"))
        same = " AND ".join(
            f"{self.name_of(c, 'OLD')} IS {self.name_of(c, 'NEW')} COLLATE BINARY" for c in columns
        )
        bodies = {"AFTER INSERT": f"{insert} VALUES ('I', {new});"}
        if not method.is_insert_only:
            bodies["AFTER DELETE"] = f"{insert} VALUES ('D', {old});"
            bodies["AFTER UPDATE"] = (
                f"{insert} SELECT 'U', {new} WHERE {same}; {insert} SELECT 'D', {old} WHERE NOT ({same}); "
                f"{insert} SELECT 'I', {new} WHERE NOT ({same});"
            )
            in_the_way = self._in_the_way(table, key, f"{insert} SELECT 'D', {keys}")
            bodies |= {event: in_the_way for event in ("BEFORE INSERT", "BEFORE UPDATE") if in_the_way}
        return made + [self._trigger(table, names, event, body) for event, body in bodies.items()]

    def _in_the_way(self, table: CapturedTable, key: Sequence[str], insert: str) -> str:
        """Statements that log rows which a REPLACE of NEW would remove, because of a unique key other than
        ours.
        """
        source = self.quoted(table.name)
        wanted = [*table.detail, table.primary_key]
        others = [each for each in dict.fromkeys(wanted) if each and set(each) != set(key)]
        conditions = [
            " AND ".join(f"{self.quoted(c)} = NEW.{self.quoted(c)}" for c in each) for each in others
        ]
        return " ".join(f"{insert} FROM {source} WHERE {condition};" for condition in conditions)

    def _trigger(self, table: CapturedTable, names: ObjectNames, event: str, body: str) -> SourceObject:
        short = f"{names.capture}_{event.lower().replace(' ', '_')}"
        name, source = self.quoted(short), self.quoted(table.name)
        drop = f"DROP TRIGGER IF EXISTS {name}"
        create = f"CREATE TRIGGER {name} {event} ON {source} FOR EACH ROW BEGIN {body} END"
        return SourceObject("trigger", short, (drop, create), (drop,))

    def lowered(self, literal: str, overlap: str, *, is_number: bool) -> str:
        """See :class:`~mutation_api.update.rdbms.sql_database.SqlDatabase`."""
        if overlap and not is_number:
            return f"strftime('%Y-%m-%d %H:%M:%f', {literal}, '-{overlap} seconds')"
        return super().lowered(literal, overlap, is_number=is_number)

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        ours, theirs = self.name_of(column, table), self.name_of(column, log)
        return f"{ours} = {theirs} AND {ours} = {theirs} COLLATE BINARY"

    def seconds(self, expression: str) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return expression

    def now(self) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return _NOW

    def to_column(
        self, column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
    ) -> pa.Array:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return to_hive_column(column.name, target, values)

    def receipt_statement(self, table: str) -> str:
        """See :class:`~mutation_api.update.rdbms.sql_database.SqlDatabase`."""
        return f"INSERT OR IGNORE INTO {table} ({SEQUENCE_COLUMN}, {OPERATION_COLUMN}) VALUES ({{}}, {{}})"

    def begin_snapshot(self, connection: sqlite3.Connection) -> None:
        """The first query takes the snapshot."""
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {DDL_WAIT_SECONDS * 1000}")
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()

    def begin_ddl(self, connection: sqlite3.Connection) -> None:
        """Statements that make objects are one transaction."""
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {DDL_WAIT_SECONDS * 1000}")
        connection.execute("BEGIN IMMEDIATE")

    def begin_deletion(self, connection: sqlite3.Connection) -> None:
        """Wait for other writers."""
        connection.execute(f"PRAGMA busy_timeout = {DDL_WAIT_SECONDS * 1000}")
