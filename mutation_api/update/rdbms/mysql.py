"""MySQL and MariaDB, through PyMySQL; types and their limits are those of
:mod:`mutation_api.inputs.mysql.column_types`.

Three row triggers fill the log; INSERT … ON DUPLICATE KEY UPDATE, REPLACE and LOAD DATA fire them, too. No
trigger sees what a foreign key does (ON DELETE CASCADE, …), so such tables are refused. TRUNCATE is seen by
the engine's number of the table, which it changes (the account needs PROCESS). Texts of keys are logged byte
for byte, since 'a', 'A' and 'a ' may be one key here and are three in Hive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor

from mutation_api.errors import ConfigurationError, ConnectionFailedError, RecordLayoutError
from mutation_api.inputs.mysql.column_types import SourceColumn as MySqlColumn
from mutation_api.inputs.mysql.column_types import ValueOptions, check_target, family_of
from mutation_api.inputs.mysql.column_types import to_column as mysql_to_column
from mutation_api.inputs.mysql.server import CASCADES
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
from mutation_api.update.settings import ObjectNames

__all__ = ["MySql"]

NET_WRITE_TIMEOUT_SECONDS = 3600
"""Time that the server waits while we write rows; its default of a minute is short for a busy machine."""

_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE,
       COALESCE(CHARACTER_MAXIMUM_LENGTH, IF(DATA_TYPE = 'bit', NUMERIC_PRECISION, 0)),
       COALESCE(NUMERIC_PRECISION, 0), COALESCE(NUMERIC_SCALE, 0), COALESCE(DATETIME_PRECISION, 0),
       CHARACTER_SET_NAME, COLLATION_NAME
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"""
_KEYS = """
SELECT INDEX_NAME, COLUMN_NAME, NULLABLE, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"""
_TABLE = """
SELECT TABLE_TYPE, TRANSACTIONS FROM information_schema.TABLES
LEFT JOIN information_schema.ENGINES USING (ENGINE) WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"""
_RULES = """
SELECT CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s"""
_EVENTS = ("INSERT", "UPDATE", "DELETE")


class MySql(SqlDatabase):
    """A database of a MySQL or MariaDB server."""

    kind = "mysql"

    def describe(self, table: str) -> CapturedTable:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        schema, _, name = table.rpartition(".")
        schema = schema or self.url.database or ""
        found = self.rows(_TABLE, schema, name)
        if not found or found[0][0] != "BASE TABLE":
            what = f"is a {found[0][0]}" if found else "does not exist, or may not be read"
            raise RecordLayoutError(f"source {self.source_id}: table {schema}.{name} {what}")
        columns = []
        for column, kind, text, *numbers, charset, collation in self.rows(_COLUMNS, schema, name):
            length, precision, scale, fraction = map(int, numbers)
            detail = MySqlColumn(column, kind.lower(), text, length, precision, scale, fraction, charset)
            columns.append(SourceColumn(column, text, (detail, collation)))
        keys: dict[str, list[str]] = {}
        unusable = set()
        for index, column, nullable, part in self.rows(_KEYS, schema, name):
            keys.setdefault(index, []).append(column)
            if nullable == "YES" or column is None or part is not None:
                unusable.add(index)
        usable = tuple(tuple(key) for index, key in keys.items() if index not in unusable)
        is_transactional = found[0][1] == "YES"
        return CapturedTable(
            schema, name, tuple(columns), tuple(keys.get("PRIMARY", ())), usable, is_transactional
        )

    def has_table(self, schema: str, name: str) -> bool:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return bool(self.rows(_TABLE, schema, name))

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        if not table.detail:
            raise RecordLayoutError(
                f"source table {table.full_name}: its engine has no transactions, so no snapshot of it is "
                "consistent; "
                "convert it (ALTER TABLE … ENGINE=InnoDB)"
            )
        if method.is_insert_only:
            return
        self.table_token(table)
        for name, on_delete, on_update in self.rows(_RULES, table.schema, table.name):
            if on_delete in CASCADES or on_update in CASCADES:
                raise RecordLayoutError(
                    f"source table {table.full_name}: foreign key {name} changes its rows (ON DELETE "
                    f"{on_delete}, ON "
                    f"UPDATE {on_update}), and no trigger of {self.kind} sees that; let the application "
                    "change the "
                    "rows, with RESTRICT"
                )

    def check_column(self, table: CapturedTable, column: SourceColumn, target: HiveType) -> None:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        check_target(column.detail[0], target, table.full_name)

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        columns = [table.column(name) for name in key]
        log = self.quoted(table.schema, names.log)
        made = ", ".join(f"{self.quoted(c.name)} {_type_in_log(c)}" for c in columns)
        create = (
            f"CREATE TABLE IF NOT EXISTS {log} ({SEQUENCE_COLUMN} BIGINT NOT NULL AUTO_INCREMENT PRIMARY "
            "KEY, "
            f"{OPERATION_COLUMN} CHAR(1) CHARACTER SET ascii NOT NULL, "
            f"{TIME_COLUMN} TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), {made}) ENGINE=InnoDB"
        )
        drop = f"DROP TABLE IF EXISTS {log}"
        made_objects = [SourceObject("changelog table", f"{table.schema}.{names.log}", (create,), (drop,))]
        for event in _EVENTS[:1] if method.is_insert_only else _EVENTS:
            made_objects.append(self._trigger(table, columns, names, event))
        return made_objects

    def _trigger(
        self, table: CapturedTable, columns: Sequence[SourceColumn], names: ObjectNames, event: str
    ) -> SourceObject:
        short = f"{names.capture}_{event.lower()}"
        name = self.quoted(table.schema, short)
        keys = ", ".join(self.quoted(c.name) for c in columns)
        insert = f"INSERT INTO {self.quoted(table.schema, names.log)} ({OPERATION_COLUMN}, {keys}) VALUES"
        new, old = (", ".join(self._of_row(word, c) for c in columns) for word in ("NEW", "OLD"))
        same = " AND ".join(f"{self._of_row('OLD', c)} <=> {self._of_row('NEW', c)}" for c in columns)
        body = {
            "INSERT": f"{insert} ('I', {new})",
            "DELETE": f"{insert} ('D', {old})",
            "UPDATE": (
                f"BEGIN IF {same} THEN {insert} ('U', {new}); ELSE {insert} ('D', {old}), ('I', {new}); "
                "END IF; END"
            ),
        }[event]
        drop = f"DROP TRIGGER IF EXISTS {name}"
        source = self.quoted(table.schema, table.name)
        create = f"CREATE TRIGGER {name} AFTER {event} ON {source} FOR EACH ROW {body}"
        return SourceObject("trigger", f"{table.schema}.{short}", (drop, create), (drop,))

    def _of_row(self, word: str, column: SourceColumn) -> str:
        value = self.name_of(column, word)
        return f"CAST({value} AS BINARY)" if column.detail[0].charset is not None else value

    def table_token(self, table: CapturedTable) -> str:
        """The engine's numbers of the table and its partitions, which TRUNCATE and a rebuild change.

        MariaDB keeps the time of creation when it truncates, so that is no sign.
        """
        is_mariadb = "mariadb" in str(self.rows("SELECT VERSION()")[0][0]).lower()
        catalog = "INNODB_SYS_TABLES" if is_mariadb else "INNODB_TABLES"
        name = f"{_file_name(table.schema)}/{_file_name(table.name)}"
        try:
            rows = self.rows(
                f"SELECT TABLE_ID FROM information_schema.{catalog} WHERE NAME = %s OR LOWER(NAME) LIKE "
                "LOWER(%s) "
                "ORDER BY TABLE_ID",
                name,
                f"{_escaped(name)}#p#%",
            )
        except ConnectionFailedError as error:
            raise ConfigurationError(
                f"{error}. The account needs the privilege PROCESS: no trigger fires for TRUNCATE, and "
                "without it none can "
                "be noticed"
            ) from error
        if not rows:
            raise RecordLayoutError(f"source {self.source_id}: the engine does not know table {name}")
        return ",".join(str(row[0]) for row in rows)

    def quoted(self, *names: str) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return ".".join("`" + name.replace("`", "``") + "`" for name in names)

    def selected(self, column: SourceColumn, time_zone: str, table: str = "") -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return family_of(column.detail[0], column.name).select.format(self.name_of(column, table))

    def selected_from_log(self, column: SourceColumn, time_zone: str, table: str) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        charset = column.detail[0].charset
        if charset is None:
            return self.selected(column, time_zone, table)
        return f"CONVERT({self.name_of(column, table)} USING {charset})"

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        ours, theirs = self.name_of(column, table), self.name_of(column, log)
        detail, collation = column.detail
        if detail.charset is None:
            return f"{ours} = {theirs}"
        typed = f"CONVERT({theirs} USING {detail.charset}) COLLATE {collation}"
        return f"{ours} = {typed} AND CAST({ours} AS BINARY) = {theirs}"

    def seconds(self, expression: str) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return f"UNIX_TIMESTAMP({expression})"

    def now(self) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return self.seconds("SYSDATE(6)")

    def to_column(
        self, column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
    ) -> pa.Array:
        """The texts that the server sends, as the target's type."""
        detail = column.detail[0]
        texts = pa.array(values, pa.binary())
        return mysql_to_column(
            detail, target, family_of(detail, column.name).of_text(detail, texts, ValueOptions(time_zone))
        )

    def receipt_statement(self, table: str) -> str:
        """See :class:`~mutation_api.update.rdbms.sql_database.SqlDatabase`."""
        return f"INSERT IGNORE INTO {table} ({SEQUENCE_COLUMN}, {OPERATION_COLUMN}) VALUES ({{}}, {{}})"

    def streaming_cursor(self, connection: Any) -> Any:
        """A cursor that gives values as the server sends them, row by row."""
        return SSCursor(connection)

    def begin_snapshot(self, connection: pymysql.Connection[Any]) -> None:
        """See :class:`~mutation_api.update.rdbms.sql_database.SqlDatabase`."""
        connection.decoders = {}
        connection.use_unicode = False
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00', sql_mode = ''")
            cursor.execute(f"SET SESSION net_write_timeout = {NET_WRITE_TIMEOUT_SECONDS}")
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def begin_ddl(self, connection: pymysql.Connection[Any]) -> None:
        """Each statement is a transaction of its own."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION lock_wait_timeout = {DDL_WAIT_SECONDS}")

    def begin_deletion(self, connection: pymysql.Connection[Any]) -> None:
        """Without locks on gaps, for which new log rows would wait."""
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def _type_in_log(column: SourceColumn) -> str:
    detail: MySqlColumn = column.detail[0]
    if detail.charset is None:
        return detail.type_text
    return f"VARBINARY({max(1, detail.length * 4)})"


def _file_name(name: str) -> str:
    """A name as the engine's catalog has it: other characters than letters, digits and _ as @ and four hex
    digits.

    Source: MySQL's manual, "Mapping of Identifiers to File Names", for all that is not in its table of
        letters.
    """
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"@{ord(c):04x}" for c in name)


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
