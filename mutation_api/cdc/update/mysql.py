"""MySQL and MariaDB as sources, through PyMySQL.

Some of their dates and times are not valid dates in Hive: the server may store a zero month or day, in some
modes a day that the month does not have, and the year 0. Such values are an error, become NULL if so chosen,
or are stored as strings.

Types and their limits are those of :mod:`mutation_api.cdc.mysql.column_types`. Changes are captured by
:mod:`~mutation_api.cdc.update.mysql_capture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from pymysql.cursors import SSCursor

from mutation_api.cdc.mysql.column_types import SourceColumn as MySqlColumn
from mutation_api.cdc.mysql.column_types import ValueOptions, check_target, family_of
from mutation_api.cdc.mysql.column_types import to_column as mysql_to_column
from mutation_api.cdc.mysql.server import begin_snapshot
from mutation_api.cdc.update.database import CapturedTable, KeyKind, SourceColumn
from mutation_api.cdc.update.mysql_capture import SQL_MODE, MySqlCapture
from mutation_api.cdc.update.sql_database import (
    DDL_WAIT_SECONDS,
    OPERATION_COLUMN,
    RECEIPT,
    SEQUENCE_COLUMN,
    without_nul,
)
from mutation_api.cdc.update.values import BUCKETS, GrowingColumn, matching, null_advice, seconds_of
from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.hive_type import HiveType

_NO_TIME = b"0000-00-00"


def times_to_column(
    column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
) -> pa.Array:
    """Convert strings of dates and times.

    Args:
        column: a column of the type date, datetime or timestamp.
        target: date, timestamp or string.
        values: bytes as the server sends them in the time zone UTC.
        time_zone: zone in which a MySQL timestamp becomes a local timestamp.

    Raises:
        RecordValueError: If a value is not a valid date in Hive.
    """
    detail: MySqlColumn = column.detail[0]
    if target.kind == "string":
        return _as_texts(detail, values, time_zone)
    try:
        return _convert(detail, target, values, time_zone)
    except RecordValueError as error:
        valid = [_is_valid(detail, target, value, time_zone) for value in values]
        if column.nulls_invalid:
            kept = [value if ok else None for value, ok in zip(values, valid, strict=True)]
            return _convert(detail, target, kept, time_zone)
        wrong = next((value for value, ok in zip(values, valid, strict=True) if not ok), None)
        if wrong is None:
            raise
        raise RecordValueError(
            f"column {column.name!r} ({target.text}): {wrong.decode()!r} is not a date in the years 1 to "
            f"9999{null_advice(column)}"
        ) from error


def _convert(detail: MySqlColumn, target: HiveType, values: Sequence[Any], time_zone: str) -> pa.Array:
    texts = pa.array(values, pa.binary())
    found = family_of(detail, detail.name).of_text(detail, texts, ValueOptions(time_zone))
    return mysql_to_column(detail, target, found)


def _is_valid(detail: MySqlColumn, target: HiveType, value: Any, time_zone: str) -> bool:
    try:
        _convert(detail, target, [value], time_zone)
    except RecordValueError:
        return False
    return True


def _as_texts(detail: MySqlColumn, values: Sequence[Any], time_zone: str) -> pa.Array:
    """Return the server's strings; those of MySQL timestamps in the time zone."""
    texts = pa.array(values, pa.binary()).cast(pa.string())
    if detail.kind != "timestamp":
        return texts
    instants = [None if value is None or value.startswith(_NO_TIME) else value for value in values]
    of_text = family_of(detail, detail.name).of_text
    local = of_text(detail, pa.array(instants, pa.binary()), ValueOptions(time_zone)).cast(pa.string())
    length = len("2024-05-31 12:00:00") + (1 + detail.fraction if detail.fraction else 0)
    return pc.coalesce(pc.utf8_slice_codeunits(local, 0, length), texts)


_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE,
       COALESCE(CHARACTER_MAXIMUM_LENGTH, IF(DATA_TYPE = 'bit', NUMERIC_PRECISION, 0)),
       COALESCE(NUMERIC_PRECISION, 0), COALESCE(NUMERIC_SCALE, 0), COALESCE(DATETIME_PRECISION, 0),
       CHARACTER_SET_NAME, COLLATION_NAME
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"""
_PRIMARY_KEY = """
SELECT COLUMN_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX"""
_TABLE = """
SELECT TABLE_TYPE, TRANSACTIONS FROM information_schema.TABLES
LEFT JOIN information_schema.ENGINES USING (ENGINE) WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"""
_COLLATIONS_WITHOUT_PADDING = ("nopad", "0900", "binary")
"""Parts of the names of collations in which 'a' and 'a ' differ."""
_READING_MODE = "ALLOW_INVALID_DATES"
"""The SQL mode in which a date in the log equals that in the table, even if the date does not exist."""
_GROWING_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")
_TIME_TEXT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?"
_GROWING_TIMES = ("date", "datetime", "timestamp")


class MySql(MySqlCapture):
    """A database of a MySQL or MariaDB server."""

    kind = "mysql"

    def describe(self, table: str) -> CapturedTable:
        """Return a table by its name. Raises RecordLayoutError if it does not exist, or is not a table."""
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
        primary = tuple(column for (column,) in self.rows(_PRIMARY_KEY, schema, name))
        return CapturedTable(schema, name, tuple(columns), primary, found[0][1] == "YES")

    def check_column(self, table: CapturedTable, column: SourceColumn, target: HiveType) -> None:
        """Raise RecordLayoutError if a Hive column cannot hold the values."""
        if not (column.detail[0].kind in _GROWING_TIMES and target.kind == "string"):
            check_target(column.detail[0], target, table.full_name)

    def quoted(self, *names: str) -> str:
        """Return a quoted name for a statement, without empty parts."""
        return ".".join("`" + without_nul(name).replace("`", "``") + "`" for name in names if name)

    def shown(self, column: SourceColumn, value: str, time_zone: str) -> str:
        """Return the value as :func:`~mutation_api.cdc.mysql.column_types.family_of` reads it."""
        return family_of(column.detail[0], column.name).select(value)

    def key_kind(self, column: SourceColumn) -> KeyKind:
        """Return the distinctions that a key column makes."""
        detail, collation = column.detail
        pads = not any(word in (collation or "") for word in _COLLATIONS_WITHOUT_PADDING)
        return KeyKind(
            ignores_trailing_spaces=detail.kind == "char" or pads, is_instant=detail.kind == "timestamp"
        )

    def growing_column(self, table: CapturedTable, column: SourceColumn) -> GrowingColumn:
        """Return the SQL of a version column. Raises ConfigurationError if its type is unsuitable."""
        kind, name = column.detail[0].kind, self.name_of(column)
        if kind in _GROWING_TIMES:
            return GrowingColumn(
                name,
                _bucket,
                literal=lambda text: f"CAST('{matching(_TIME_TEXT, text)}' AS DATETIME(6))",
                # A date that does not exist, or has a zero month or day, is not a time literal.
                regular=lambda value: f"CAST({value} AS CHAR) + INTERVAL 0 SECOND IS NOT NULL",
                lowest=lambda value: f"{value} = '0000-00-00 00:00:00'",
                lowered=_earlier,
            )
        if kind in ("float", "double"):
            return GrowingColumn(name, _bucket, shown=lambda value: f"{value}*1e0")
        if kind in _GROWING_NUMBERS:
            return GrowingColumn(name, _bucket)
        allowed = ", ".join((*_GROWING_NUMBERS, "float", "double", *_GROWING_TIMES))
        raise self.refuse_growing(table, column, f"columns of {allowed}")

    def seconds(self, expression: str) -> str:
        """Return the expression of a log row's time as seconds since 1970."""
        return f"UNIX_TIMESTAMP({expression})"

    def now(self) -> str:
        """Return the expression of the current time as seconds since 1970."""
        return self.seconds("SYSDATE(6)")

    def to_column(
        self, column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
    ) -> pa.Array:
        """Convert strings from the server to the target's type. Raises RecordValueError."""
        detail = column.detail[0]
        if detail.kind in _GROWING_TIMES:
            return times_to_column(column, target, values, time_zone)
        texts = pa.array(values, pa.binary())
        return mysql_to_column(
            detail, target, family_of(detail, column.name).of_text(detail, texts, ValueOptions(time_zone))
        )

    def receipt_statement(self, table: str, number: int) -> str:
        """Return the statement that adds a receipt to a log unless it is already there."""
        into = f"{table} ({SEQUENCE_COLUMN}, {OPERATION_COLUMN})"
        return f"INSERT IGNORE INTO {into} VALUES ({number:d}, {RECEIPT})"

    def streaming_cursor(self, connection: Any) -> Any:
        """Return a cursor that yields values as the server sends them, row by row."""
        return SSCursor(connection)

    def begin_snapshot(self, connection: pymysql.Connection[Any]) -> None:
        """Begin a read-only transaction that sees one state of the database."""
        connection.decoders = {}
        connection.use_unicode = False
        with connection.cursor() as cursor:
            begin_snapshot(cursor, _READING_MODE)

    def begin_ddl(self, connection: pymysql.Connection[Any]) -> None:
        """Prepare a connection for DDL; each statement is a transaction, and triggers keep this mode."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION sql_mode = '{SQL_MODE}'")
            cursor.execute(f"SET SESSION lock_wait_timeout = {DDL_WAIT_SECONDS}")

    def begin_deletion(self, connection: pymysql.Connection[Any]) -> None:
        """Avoid gap locks, for which new log rows would have to wait."""
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def _bucket(keys: str, column: str) -> str:
    return f"CRC32(CONCAT_WS('/', {keys}, {column})) & {BUCKETS - 1}"


def _earlier(literal: str, overlap: Decimal) -> str:
    # A time before the earliest one would be NULL.
    return f"COALESCE({literal} - INTERVAL {seconds_of(overlap)} SECOND, CAST('0001-01-01' AS DATETIME(6)))"
