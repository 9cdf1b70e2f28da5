"""SQLite, 3.37 and later, through Python's own module.

A column may hold values of any kind, regardless of its declared type. Each value must fit the Hive column,
where dates and times are strings in ISO 8601 and booleans are 0 and 1.

INSERT OR REPLACE removes conflicting rows without firing a trigger. A trigger before inserts and updates
therefore also logs the keys of rows that may conflict through other unique keys. TRUNCATE does not exist, and
cascades fire triggers.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from mutation_api.cdc.update.database import CapturedTable, KeyKind, SourceColumn, SourceObject
from mutation_api.cdc.update.progress_mark import CaptureMethod, Fingerprint
from mutation_api.cdc.update.settings import ObjectNames
from mutation_api.cdc.update.sql_database import (
    DDL_WAIT_SECONDS,
    OPERATION_COLUMN,
    RECEIPT,
    SEQUENCE_COLUMN,
    TIME_COLUMN,
    SqlDatabase,
)
from mutation_api.cdc.update.values import (
    BUCKETS,
    NUMBER,
    GrowingColumn,
    matching,
    minus,
)
from mutation_api.errors import RecordLayoutError
from mutation_api.format.hive_type import HiveType

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_EXPRESSION = -2
_BINARY = "BINARY"
_NUMERIC_WORDS = ("INT", "REAL", "FLOA", "DOUB", "NUM", "DEC")
"""Parts of type names with which SQLite converts a numeric string to a number."""
_LITERAL = rf"{NUMBER}|'([^'\x00]|'')*'|X'([0-9A-F]{{2}})*'"
"""The pattern of the output of SQLite's quote()."""
_BUCKET = "hm_bucket"
"""The name of the SQL function :func:`_bucket`."""


@dataclass(frozen=True)
class _UniqueIndex:
    """A unique index.

    ``columns``: '' for an expression, and in a partial index. ``collations``: those that determine equality.
    """

    columns: tuple[str, ...]
    collations: tuple[str, ...]


class Sqlite(SqlDatabase):
    """A database file."""

    kind = "sqlite"
    knows_bound = True
    """True, because there is only one writer at a time, and its values are greater than all earlier ones."""

    def describe(self, table: str) -> CapturedTable:
        """Return a table by its name. Raises RecordLayoutError if it does not exist, or is not a table."""
        name = table.removeprefix("main.")
        kinds = self.rows("SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE", name)
        if not kinds or kinds[0][0] != "table":
            what = f"is a {kinds[0][0]}" if kinds else "does not exist"
            raise RecordLayoutError(f"source {self.source_id}: table {name} {what}")
        info = self.rows("SELECT name, type, pk FROM pragma_table_info(?)", name)
        columns = tuple(SourceColumn(row[0], row[1]) for row in info)
        primary = tuple(row[0] for row in sorted((r for r in info if r[2]), key=lambda r: r[2]))
        indexes = self._unique_indexes(name)
        if primary and primary not in [each.columns for each in indexes]:  # the rowid
            indexes.append(_UniqueIndex(primary, (_BINARY,)))
        return CapturedTable("", name, columns, primary, tuple(indexes))

    def _unique_indexes(self, table: str) -> list[_UniqueIndex]:
        found = []
        for index, partial in self.rows(
            'SELECT name, partial FROM pragma_index_list(?) WHERE "unique"', table
        ):
            rows = self.rows("SELECT cid, name, coll FROM pragma_index_xinfo(?) WHERE key", index)
            columns = tuple("" if cid == _EXPRESSION or partial else name for cid, name, _ in rows)
            found.append(_UniqueIndex(columns, tuple(collation for *_, collation in rows)))
        return found

    def log_schemas(self, names: ObjectNames) -> list[str]:
        """Return the schemas that contain the log: one without a name, or none."""
        return [""] * len(
            self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", names.log)
        )

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """Raise RecordLayoutError if the method would miss changes of the table."""
        if method is CaptureMethod.CHANGELOG and any("" in each.columns for each in table.detail):
            raise RecordLayoutError(
                f"source table {table.name} has a unique index on an expression or on some rows only. If "
                "INSERT OR REPLACE removes a row because of this index, no trigger fires. Make the index "
                "not unique"
            )

    def check_column(self, table: CapturedTable, column: SourceColumn, target: HiveType) -> None:
        """Raise RecordLayoutError for nested types; others can only be checked when values are read."""
        if target.children:
            raise RecordLayoutError(
                f"source table {table.name}, column {column.name!r} cannot be stored in a column of type "
                f"{target.text}"
            )

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """Return the log table and the objects that fill it, in order of creation."""
        columns = [table.column(name) for name in key]
        log = self.quoted(names.log)
        keys = ", ".join(self.quoted(c.name) for c in columns)
        create = (
            f"CREATE TABLE IF NOT EXISTS {log} ({SEQUENCE_COLUMN} INTEGER PRIMARY KEY AUTOINCREMENT, "
            f"{OPERATION_COLUMN} TEXT NOT NULL, {TIME_COLUMN} REAL NOT NULL DEFAULT {_NOW}, {keys})"
        )
        made = [self.log_object("", names, create)]
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
        """Return statements that log rows which a REPLACE with NEW would remove.

        These rows are equal to NEW in a unique index: either in another key than the followed one, or under a
        collation in which different keys are equal ('a' and 'A' under NOCASE).
        """
        source = self.quoted(table.name)
        statements = []
        for index in dict.fromkeys(table.detail):
            equal = [
                f"{self.quoted(name)} = NEW.{self.quoted(name)} COLLATE {collation}"
                for name, collation in zip(index.columns, index.collations, strict=True)
            ]
            if set(index.columns) == set(key):
                if set(index.collations) == {_BINARY}:
                    continue
                same = [f"{self.quoted(name)} IS NEW.{self.quoted(name)} COLLATE BINARY" for name in key]
                equal.append(f"NOT ({' AND '.join(same)})")
            statements.append(f"{insert} FROM {source} WHERE {' AND '.join(equal)};")
        return " ".join(statements)

    def fingerprint(self, table: CapturedTable, names: ObjectNames | None) -> Fingerprint:
        """Return the schema's version number.

        It changes with each CREATE, ALTER and DROP in the file, and with VACUUM.

        SQLite has nothing more specific: a trigger that was dropped and created again has the same catalog
        entry.
        """
        ((number,),) = self.rows("PRAGMA schema_version")
        columns = {column.name: column.type_text for column in table.columns}
        return Fingerprint(f"schema {number} of file {self._file_number()}", columns)

    def _file_number(self) -> int:
        try:
            return Path(self.url.database or "").stat().st_ino
        except OSError:
            return 0  # a URI that only SQLite can read

    def flaws(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[str]:
        """Return how the objects in the source differ from :meth:`objects`; empty if they do not."""
        rows = self.rows("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        found = {row[0]: row[1] for row in rows}
        flaws = []
        log, *triggers = self.objects(table, key, names, method)
        columns = [row[0] for row in self.rows("SELECT name FROM pragma_table_info(?)", names.log)]
        # If there is no log, its receipt is missing too; that is checked where positions are compared.
        if columns and [name for name in columns if not name.startswith("hm_")] != list(key):
            flaws.append(
                f"table {log.name} has the columns {', '.join(columns)}, expected the key {', '.join(key)}"
            )
        for trigger in triggers:
            if trigger.name not in found:
                flaws.append(f"table {table.name} does not have the trigger {trigger.name}")
            elif found[trigger.name] != trigger.create[-1]:
                flaws.append(
                    f"trigger {trigger.name} differs from the one that enable creates for this table"
                )
        return flaws

    def made(self, names: ObjectNames) -> list[SourceObject]:
        """Return the objects with these names, in the order in which they can be removed."""
        rows = self.rows("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        triggers = [
            SourceObject("trigger", name, (), (f"DROP TRIGGER IF EXISTS {self.quoted(name)}",))
            for (name,) in rows
            if name.startswith(names.capture)
        ]
        return [*triggers, *self.made_logs(names)]

    def _trigger(self, table: CapturedTable, names: ObjectNames, event: str, body: str) -> SourceObject:
        short = f"{names.capture}_{event.lower().replace(' ', '_')}"
        name, source = self.quoted(short), self.quoted(table.name)
        drop = f"DROP TRIGGER IF EXISTS {name}"
        create = f"CREATE TRIGGER {name} {event} ON {source} FOR EACH ROW BEGIN {body} END"
        return SourceObject("trigger", short, (drop, create), (drop,))

    def key_kind(self, column: SourceColumn) -> KeyKind:
        """Return the distinctions that a key column makes."""
        is_number = any(word in column.type_text.upper() for word in _NUMERIC_WORDS)
        return KeyKind(is_text=not is_number)

    def growing_column(self, table: CapturedTable, column: SourceColumn) -> GrowingColumn:
        """Return the SQL of any column, since values have their own types.

        Numbers are below all strings, and strings below all blobs.
        """
        return GrowingColumn(
            self.name_of(column),
            lambda keys, column: f"{_BUCKET}({keys}, {column})",
            shown=lambda value: f"CASE WHEN {value} IS NOT NULL THEN quote({value}) END",
            literal=lambda text: matching(_LITERAL, text),
            regular=lambda value: f"{value} IS NOT 9e999 AND {value} IS NOT -9e999",
            lowest=lambda value: f"{value} = -9e999",
            others=_of_other_kinds,
            lowered=_lowered,
        )

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """Return the condition that a table row has exactly the key of a log row."""
        ours, theirs = self.name_of(column, table), self.name_of(column, log)
        return f"{ours} = {theirs} AND {ours} = {theirs} COLLATE BINARY"

    def seconds(self, expression: str) -> str:
        """Return the expression of a log row's time as seconds since 1970."""
        return expression

    def now(self) -> str:
        """Return the expression of the current time as seconds since 1970."""
        return _NOW

    def receipt_statement(self, table: str, number: int) -> str:
        """Return the statement that adds a receipt to a log unless it is already there."""
        into = f"{table} ({SEQUENCE_COLUMN}, {OPERATION_COLUMN})"
        return f"INSERT OR IGNORE INTO {into} VALUES ({number:d}, {RECEIPT})"

    def begin_snapshot(self, connection: sqlite3.Connection) -> None:
        """Begin a read-only transaction; the first query takes the snapshot."""
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {DDL_WAIT_SECONDS * 1000}")
        connection.create_function(_BUCKET, -1, _bucket, deterministic=True)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()

    def begin_ddl(self, connection: sqlite3.Connection) -> None:
        """Prepare a connection for DDL; all statements are one transaction."""
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {DDL_WAIT_SECONDS * 1000}")
        connection.execute("BEGIN IMMEDIATE")

    def begin_deletion(self, connection: sqlite3.Connection) -> None:
        """Wait for other writers."""
        connection.execute(f"PRAGMA busy_timeout = {DDL_WAIT_SECONDS * 1000}")


def _bucket(*values: object) -> int:
    """Return the group of a key and a version."""
    return zlib.crc32(repr(values).encode("utf-8", "surrogateescape")) % BUCKETS


def _of_other_kinds(literal: str, column: str) -> str:
    """Return the condition for values of a type that is below the bound's type."""
    name = {"'": "text", "X": "blob"}.get(literal[:1])
    return "" if name is None else f"typeof({column}) <> '{name}'"


def _lowered(literal: str, overlap: Decimal) -> str:
    """Return the SQL of a number or an ISO 8601 time, minus an overlap; '' if a string is not a time."""
    if literal[:1] not in ("'", "X"):
        return minus(literal, overlap)
    return f"coalesce(strftime('%Y-%m-%d %H:%M:%f', {literal}, '-{overlap:f} seconds'), '')"
