"""Capture of the changes of a MySQL or MariaDB table with a log and three row triggers.

INSERT … ON DUPLICATE KEY UPDATE, REPLACE and LOAD DATA fire the triggers too. Actions of foreign keys (ON
DELETE CASCADE, …) fire no triggers, so such tables are refused. The foreign keys are read from SHOW CREATE
TABLE, which needs only SELECT on the table. The catalog (REFERENTIAL_CONSTRAINTS) hides them from an account
that may only read the table.

A trigger must not make a statement of the application fail. Keys are therefore logged as bytes of strings,
which cannot overflow, be rounded, or depend on the session. Strings are logged byte for byte, because 'a',
'A' and 'a ' may be one key here but are three in Hive. A TIMESTAMP is logged as seconds. If a key column
cannot be read because it was renamed, the trigger's handler logs that an unknown row changed, and the
extraction compares the table.

TRUNCATE, a rebuild and an exchange of partitions change the numbers that InnoDB assigns to a table and its
partitions (the account needs PROCESS). Each ALTER changes the time of creation.

The engine's catalog contains file names. In these, each character that is not an ASCII letter, a digit or _
is written as @ and four hex digits, or for letters of some scripts as @ and two characters. MariaDB has a
function for such names (CONVERT … USING filename), but MySQL does not. MySQL's list of tablespaces contains
names as in SQL, but only for tables with their own files. It is therefore used only for names that are
not ASCII.

Sources: MySQL's manual, "Mapping of Identifiers to File Names"; MariaDB's knowledge base, "Trigger Overview",
"DECLARE HANDLER". Tested on MariaDB 11.4.5 and MySQL 9.7.4.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mutation_api.cdc.mysql.column_types import SourceColumn as MySqlColumn
from mutation_api.cdc.update.database import CapturedTable, SourceColumn, SourceObject
from mutation_api.cdc.update.progress_mark import CaptureMethod, Fingerprint
from mutation_api.cdc.update.settings import ObjectNames
from mutation_api.cdc.update.sql_database import OPERATION_COLUMN, SEQUENCE_COLUMN, TIME_COLUMN, SqlDatabase
from mutation_api.errors import ConfigurationError, ConnectionFailedError, RecordLayoutError


def engine_numbers(
    rows: Callable[..., list[Sequence[Any]]], source: str, schema: str, table: str
) -> dict[str, str]:
    """Return the numbers by the names of the engine's files.

    Args:
        rows: function that queries the server, with a statement and the values of its placeholders.
        source: name of the server in messages.
        schema: schema of the table.
        table: name of the table.

    Raises:
        ConfigurationError: If the account may not see the numbers.
        RecordLayoutError: If the engine does not have the table.
    """
    is_mariadb = "mariadb" in str(rows("SELECT VERSION()")[0][0]).lower()
    by_tablespace = not is_mariadb and not (schema + table).isascii()
    if by_tablespace:
        name = f"{schema}/{table}"
        where = "INNODB_TABLES t JOIN information_schema.INNODB_TABLESPACES s ON s.SPACE = t.SPACE"
    else:
        name = f"{_file_name(rows, schema)}/{_file_name(rows, table)}"
        where = f"{'INNODB_SYS_TABLES' if is_mariadb else 'INNODB_TABLES'} t"
    named, wanted = _bytes("s.NAME" if by_tablespace else "t.NAME"), _bytes("%s")
    statement = (
        f"SELECT t.NAME, t.TABLE_ID FROM information_schema.{where} WHERE {named} = {wanted} "
        f"OR LEFT({named}, LENGTH({wanted})) = {wanted} ORDER BY t.TABLE_ID"
    )
    partitions = f"{name}#p#"
    try:
        found = rows(statement, name, partitions, partitions)
    except ConnectionFailedError as error:
        raise ConfigurationError(
            f"{error}. The account needs the privilege PROCESS: TRUNCATE fires no trigger, and can only be "
            "detected with this privilege"
        ) from error
    if not found:
        advice = (
            ". A table whose name is not ASCII is found only by its own file: give it one (ALTER TABLE … "
            "TABLESPACE innodb_file_per_table), or rename it"
        )
        raise RecordLayoutError(
            f"source {source}: the engine does not have the table {name}{advice if by_tablespace else ''}"
        )
    return {str(file): str(number) for file, number in found}


def _bytes(text: str) -> str:
    """Return a name in lower case, since the server may fold it, and as bytes.

    In the server's catalog, ä and a are equal as strings.
    """
    return f"CAST(LOWER(CONVERT({text} USING utf8mb4)) AS BINARY)"


def _file_name(rows: Callable[..., list[Sequence[Any]]], name: str) -> str:
    """Return a name as in the engine's catalog; MariaDB converts a name that is not ASCII."""
    if not name.isascii():
        ((found,),) = rows("SELECT CAST(CONVERT(%s USING filename) AS BINARY)", name)
        return bytes(found).decode("ascii")
    return "".join(c if c.isalnum() or c == "_" else f"@{ord(c):04x}" for c in name)


_CONSTRAINT = re.compile(r'^\s+CONSTRAINT [`"](.*?)[`"] FOREIGN KEY (.*)$', re.MULTILINE)
_NAMES = re.compile(r'`(?:[^`]|``)*`|"(?:[^"]|"")*"')
_RULE = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")


def changing_foreign_keys(create: str) -> list[tuple[str, str]]:
    """Return the foreign keys through which changes of another table change rows, each with its rules.

    Args:
        create: the output of SHOW CREATE TABLE.
    """
    found = [(match[1], _RULE.findall(_NAMES.sub("``", match[2]))) for match in _CONSTRAINT.finditer(create)]
    return [(name, " ".join(rules)) for name, rules in found if rules]


KEY_BYTES_MAX = 3072
"""The longest key of an index, and so of a column of the log; a longer one is logged as an unknown row."""
EVENTS = ("INSERT", "UPDATE", "DELETE")
_ALTERED = """
SELECT CREATE_TIME, CREATE_TIME >= FROM_UNIXTIME(FLOOR(UNIX_TIMESTAMP(SYSDATE(6)))),
       1 - MOD(UNIX_TIMESTAMP(SYSDATE(6)), 1)
FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"""
_COLUMN_TEXTS = """
SELECT COLUMN_NAME, CONCAT_WS(' ', ORDINAL_POSITION, COLUMN_TYPE, COLLATION_NAME, GENERATION_EXPRESSION)
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"""
_TRIGGERS = """
SELECT TRIGGER_NAME, EVENT_OBJECT_TABLE, ACTION_TIMING, EVENT_MANIPULATION, SQL_MODE, CREATED
FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = %s AND TRIGGER_NAME IN (%s, %s, %s)"""
_LOG = """
SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"""
_MADE_TRIGGERS = """
SELECT TRIGGER_SCHEMA, TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_NAME IN (%s, %s, %s)"""
_MADE_LOGS = "SELECT TABLE_SCHEMA FROM information_schema.TABLES WHERE TABLE_NAME = %s"
_RECEIVER = ("system user", "connecting host")
"""The user and host, in MySQL's process list, of the thread that receives the log of another server."""
SQL_MODE = "STRICT_ALL_TABLES"
"""The mode in which triggers are created and run: a key that does not fit is an error and is never cut."""

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")


class MySqlCapture(SqlDatabase):
    """The part of :class:`~mutation_api.cdc.update.mysql.MySql` that captures changes."""

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """Raise RecordLayoutError if the method would miss changes of the table."""
        if not table.detail:
            raise RecordLayoutError(
                f"source table {table.full_name}: its engine has no transactions, so a snapshot of it is not "
                "consistent. Convert it (ALTER TABLE … ENGINE=InnoDB)"
            )
        self._numbers(table)
        if method.has_log:
            self._check_triggers_fire()
        if method.is_insert_only:
            return
        ((_, create),) = self.rows(f"SHOW CREATE TABLE {self.quoted(table.schema, table.name)}")
        for name, rules in changing_foreign_keys(str(create)):
            raise RecordLayoutError(
                f"source table {table.full_name}: foreign key {name} changes its rows ({rules}), which fires "
                f"no trigger in {self.kind}. Use RESTRICT, and change the rows in the application"
            )

    def _check_triggers_fire(self) -> None:
        """Raise ConfigurationError if the server is a replica, because rows that it applies fire no triggers.

        Source: MySQL's manual, "Replication and Triggers"; MariaDB's, "slave_run_triggers_for_rbr".
        """
        settings = self.rows("SHOW GLOBAL VARIABLES LIKE 'slave_run_triggers_for_rbr'")
        running = self.rows("SHOW GLOBAL STATUS LIKE 'Slaves_running'")  # MariaDB only
        if running:
            fires = {str(value) for _, value in settings} & {"YES", "LOGGING", "ENFORCE"}
            applies = int(running[0][1]) > 0 and not fires
        else:
            applies = any(row[1:3] == _RECEIVER for row in map(tuple, self.rows("SHOW PROCESSLIST")))
        if applies:
            raise ConfigurationError(
                f"source {self.source_id} is a replica, and rows from another server fire no triggers, so "
                "their changes would be missed. Follow the original server, or use another method (binlog, "
                "row-version); MariaDB fires the triggers with slave_run_triggers_for_rbr=YES"
            )

    def fingerprint(self, table: CapturedTable, names: ObjectNames | None) -> Fingerprint:
        """Return the engine's numbers, times of the last ALTER and CREATE TRIGGER, and column definitions.

        The time of the last ALTER has whole seconds, so this waits for the current second to end. Neither
        server changes it on TRUNCATE, so it is not sufficient by itself.
        """
        while True:
            ((altered, is_now, seconds_left),) = self.rows(_ALTERED, table.schema, table.name)
            if not is_now:
                break
            time.sleep(float(seconds_left))
        columns = {str(name): str(text) for name, text in self.rows(_COLUMN_TEXTS, table.schema, table.name)}
        capture = {}
        if names is not None:
            for name, *_, created in self.rows(_TRIGGERS, table.schema, *_trigger_names(names)):
                capture[f"trigger {name}"] = str(created)
        return Fingerprint(f"altered {altered}", columns, self._numbers(table), capture)

    def _numbers(self, table: CapturedTable) -> dict[str, str]:
        return engine_numbers(self.rows, self.source_id, table.schema, table.name)

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """Return the log table and the objects that fill it, in order of creation."""
        columns = [table.column(name) for name in key]
        log = self.quoted(table.schema, names.log)
        # Sixteen columns with the longest key of an index just fit into a row.
        kind = f"VARBINARY({KEY_BYTES_MAX})" if len(columns) <= 16 else "LONGBLOB"
        made = ", ".join(f"{self.quoted(c.name)} {kind}" for c in columns)
        create = (
            f"CREATE TABLE IF NOT EXISTS {log} ({SEQUENCE_COLUMN} BIGINT NOT NULL AUTO_INCREMENT PRIMARY "
            "KEY, "
            f"{OPERATION_COLUMN} CHAR(1) CHARACTER SET ascii NOT NULL, "
            f"{TIME_COLUMN} TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), {made}) ENGINE=InnoDB"
        )
        # Triggers run with this account's privileges; without them, the application's own writes would fail.
        probes = (
            f"INSERT INTO {log} ({OPERATION_COLUMN}) SELECT {OPERATION_COLUMN} FROM {log} WHERE 1 = 0",
            f"DELETE FROM {log} WHERE 1 = 0",
        )
        events = EVENTS[:1] if method.is_insert_only else EVENTS
        triggers = [self._trigger(table, columns, names, event) for event in events]
        return [self.log_object(table.schema, names, create, *probes), *triggers]

    def _trigger(
        self, table: CapturedTable, columns: Sequence[SourceColumn], names: ObjectNames, event: str
    ) -> SourceObject:
        short = f"{names.capture}_{event.lower()}"
        name = self.quoted(table.schema, short)
        drop = f"DROP TRIGGER IF EXISTS {name}"
        source = self.quoted(table.schema, table.name)
        body = self._body(table.schema, columns, names, event)
        create = f"CREATE TRIGGER {name} AFTER {event} ON {source} FOR EACH ROW {body}"
        return SourceObject("trigger", f"{table.schema}.{short}", (drop, create), (drop,))

    def _body(self, schema: str, columns: Sequence[SourceColumn], names: ObjectNames, event: str) -> str:
        """Return the statement of a trigger.

        The outer handler logs an unknown row. The inner one ignores a log that is missing or has other
        columns, which the next extraction reports. Any other error, such as a full disk, reaches the
        application.
        """
        log = self.quoted(schema, names.log)
        keys = ", ".join(self.quoted(c.name) for c in columns)
        insert = f"INSERT INTO {log} ({OPERATION_COLUMN}, {keys}) VALUES"
        new, old = (", ".join(_logged(c, self.name_of(c, word)) for c in columns) for word in ("NEW", "OLD"))
        same = " AND ".join(
            f"{_logged(c, self.name_of(c, 'OLD'))} <=> {_logged(c, self.name_of(c, 'NEW'))}" for c in columns
        )
        statement = {
            "INSERT": f"{insert} ('I', {new});",
            "DELETE": f"{insert} ('D', {old});",
            "UPDATE": (
                f"IF {same} THEN {insert} ('U', {new}); ELSE {insert} ('D', {old}), ('I', {new}); END IF;"
            ),
        }[event]
        return (
            "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN DECLARE EXIT HANDLER FOR SQLSTATE '42S02', "
            f"SQLSTATE '42S22' BEGIN END; INSERT INTO {log} ({OPERATION_COLUMN}) VALUES ('X'); END; "
            f"{statement} END"
        )

    def flaws(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[str]:
        """Return how the objects in the source differ from :meth:`objects`; empty if they do not."""
        return [*self._flaws_of_log(table, key, names), *self._flaws_of_triggers(table, key, names, method)]

    def _flaws_of_log(self, table: CapturedTable, key: Sequence[str], names: ObjectNames) -> Iterator[str]:
        found = {str(name): str(kind).lower() for name, kind in self.rows(_LOG, table.schema, names.log)}
        keys = {name: kind for name, kind in found.items() if not name.startswith("hm_")}
        # If there is no log, its receipt is missing too; that is checked where positions are compared.
        if found and (list(keys) != list(key) or not set(keys.values()) <= {"varbinary", "longblob"}):
            yield (
                f"table {names.log} has the columns {', '.join(found)}, expected the key {', '.join(key)} as "
                "bytes"
            )

    def _flaws_of_triggers(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> Iterator[str]:
        columns = [table.column(name) for name in key]
        found = {row[0]: row[1:] for row in self.rows(_TRIGGERS, table.schema, *_trigger_names(names))}
        for event in EVENTS[:1] if method.is_insert_only else EVENTS:
            name = f"{names.capture}_{event.lower()}"
            if name not in found:
                yield f"table {table.full_name} does not have the trigger {name}"
                continue
            place, timing, fired_by, mode, _ = found[name]
            if place.lower() != table.name.lower():
                yield f"trigger {name} belongs to table {place}, which has replaced {table.name}"
            elif (timing, fired_by, mode) != ("AFTER", event, SQL_MODE) or not self._statement_of_trigger(
                table.schema, name
            ).endswith(f" FOR EACH ROW {self._body(table.schema, columns, names, event)}"):
                yield f"trigger {name} differs from the one that enable creates for this key"

    def _statement_of_trigger(self, schema: str, name: str) -> str:
        """Return CREATE TRIGGER as it was given; MySQL's catalog doubles ` in names and drops escapes."""
        ((_, _, statement, *_),) = self.rows(f"SHOW CREATE TRIGGER {self.quoted(schema, name)}")
        return str(statement)

    def made(self, names: ObjectNames) -> list[SourceObject]:
        """Return the objects with these names, in the order in which they can be removed."""
        found = []
        for schema, name in self.rows(_MADE_TRIGGERS, *_trigger_names(names)):
            drop = f"DROP TRIGGER IF EXISTS {self.quoted(schema, name)}"
            found.append(SourceObject("trigger", f"{schema}.{name}", (), (drop,)))
        return [*found, *self.made_logs(names)]

    def log_schemas(self, names: ObjectNames) -> list[str]:
        """Return the schemas that contain the log with this name: one or none."""
        return [schema for (schema,) in self.rows(_MADE_LOGS, names.log)]

    def of_log(self, column: SourceColumn, log: str) -> str:
        """Return the expression that reads a key column from the log as a value of its type."""
        value, detail = self.name_of(column, log), column.detail[0]
        if detail.charset is not None:
            return f"CONVERT({value} USING {detail.charset})"
        if detail.kind in ("float", "double"):
            return f"({value} + 0e0)"
        if detail.kind == "timestamp":
            return f"FROM_UNIXTIME(CAST({value} AS DECIMAL(20,6)))"
        found = _cast_of(detail)
        return f"CAST({value} AS {found})" if found else value

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """Return the condition that a table row has exactly the key of a log row."""
        ours, theirs = self.name_of(column, table), self.of_log(column, log)
        detail, collation = column.detail
        if detail.charset is None:
            return f"{ours} = {theirs}"
        return (
            f"{ours} = {theirs} COLLATE {collation} AND CAST({ours} AS BINARY) = {self.name_of(column, log)}"
        )


def _trigger_names(names: ObjectNames) -> list[str]:
    return [f"{names.capture}_{event.lower()}" for event in EVENTS]


def _logged(column: SourceColumn, value: str) -> str:
    """Return the expression for the bytes that are logged for a value of a key column."""
    detail: MySqlColumn = column.detail[0]
    if detail.charset is not None:
        return f"CAST({value} AS BINARY)"
    if detail.kind in ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"):
        return value
    if detail.kind == "timestamp":
        return f"CAST(UNIX_TIMESTAMP({value}) AS CHAR)"
    if detail.kind in ("float", "double"):
        # Stored unchanged: MySQL's CAST and CONCAT cut digits of strings longer than 22 characters.
        return f"{value} + 0e0"
    return f"CAST({value} + 0 AS CHAR)" if detail.kind == "bit" else f"CAST({value} AS CHAR)"


def _cast_of(detail: MySqlColumn) -> str:
    """Return the CAST type that restores what :func:`_logged` logged; '' for bytes."""
    if detail.kind in _INTEGERS:
        return "UNSIGNED" if "unsigned" in detail.type_text.lower() else "SIGNED"
    if detail.kind in ("bit", "year"):
        return "UNSIGNED"
    if detail.kind == "decimal":
        return f"DECIMAL({detail.precision},{detail.scale})"
    if detail.kind in ("datetime", "time"):
        return f"{detail.kind.upper()}({detail.fraction})"
    return "DATE" if detail.kind == "date" else ""
