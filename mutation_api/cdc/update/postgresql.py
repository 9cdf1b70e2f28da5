"""PostgreSQL, 11 and later, through psycopg.

=====================================  ======================================================================
column in the source                   column in Hive
=====================================  ======================================================================
smallint, integer, bigint, oid         an integer type or decimal (each value must fit), or a string type
boolean                                boolean
numeric(p,s)                           decimal with at least s digits after the point (NaN is an error)
numeric                                decimal (a value with more digits after the point is an error), string
real, double precision                 float (from real alone), double
text, varchar(n), char(n), name        string; char(n) and varchar(n) at least as long
bytea                                  binary
date, timestamp                        date, timestamp; infinity and years outside 1 … 9999 are errors,
                                       or NULL if so chosen (``null_for``). A string can hold all of them
timestamptz                            timestamp: local time in the chosen zone (default: UTC); or string
all others (uuid, json, arrays, …)     string, as PostgreSQL writes it
=====================================  ======================================================================

Changes are captured by :mod:`~mutation_api.cdc.update.postgresql_capture`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import psycopg
from psycopg.types.string import TextLoader

from mutation_api.cdc.update.database import CapturedTable, KeyKind, SourceColumn, SourceSnapshot
from mutation_api.cdc.update.postgresql_capture import (
    COLUMNS,
    SETTINGS,
    ColumnDetail,
    PostgreSqlCapture,
    TableDetail,
)
from mutation_api.cdc.update.postgresql_catalog import (
    GROWING,
    PRIVILEGES,
    check_log_privileges,
    growing_column,
    literal_of,
)
from mutation_api.cdc.update.postgresql_copy import CopiedColumns
from mutation_api.cdc.update.progress_mark import CaptureMethod
from mutation_api.cdc.update.settings import UpdateSettings
from mutation_api.cdc.update.sql_database import DDL_WAIT_SECONDS, OPERATION_COLUMN, RECEIPT, SEQUENCE_COLUMN
from mutation_api.cdc.update.values import GrowingColumn
from mutation_api.errors import ConfigurationError, RecordLayoutError, SourcePositionError
from mutation_api.format.hive_type import INTEGER_KINDS, TEXT_KINDS, HiveType

_TEXTS = ("text", "varchar", "bpchar", "name", "citext")
_ALLOWED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), (*INTEGER_KINDS, "decimal", *TEXT_KINDS)),
    "bool": ("boolean",),
    "numeric": ("decimal", "string"),
    "float4": ("float", "double"),
    "float8": ("double",),
    **dict.fromkeys(_TEXTS, TEXT_KINDS),
    "bytea": ("binary",),
    "date": ("date", "string"),
    **dict.fromkeys(("timestamp", "timestamptz"), ("timestamp", "string")),
}
_DIGITS = 20
_XMIN = "xmin"
_XIDS = 2**32
"""Transaction ids wrap around after this many; the result of pg_snapshot_xmin counts the wraps too."""
_XID_MARGIN = 2**20
"""The number of transactions that may begin while an extraction runs."""
_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)"""
_PRIMARY_KEY = """
SELECT i.indkey::int2[]::int4[], i.indnkeyatts FROM pg_index i
WHERE i.indrelid = %s AND i.indisprimary AND i.indisvalid"""


class PostgreSql(PostgreSqlCapture):
    """A database of a PostgreSQL server."""

    kind = "postgresql"
    text_columns = CopiedColumns()
    # psycopg returns bytes instead of strings if the database's encoding is SQL_ASCII.
    connection_options: ClassVar[Mapping[str, str]] = {"client_encoding": "UTF8"}

    def describe(self, table: str) -> CapturedTable:
        """Return a table by its name. Raises RecordLayoutError if it does not exist, or is not a table."""
        schema, dot, name = table.rpartition(".")
        wanted = self.quoted(schema, name) if dot else self.quoted(name)
        found = self.rows(_TABLE, wanted)
        if not found or found[0][3] not in ("r", "p"):
            what = "is not a table" if found else "does not exist, or is not visible to this account"
            raise RecordLayoutError(f"source {self.source_id}: table {table} {what}")
        oid, schema, name, _ = found[0]
        columns, by_number = [], {}
        for column, type_text, kind, modifier, number, collation, base, place in self.rows(COLUMNS, oid):
            detail = ColumnDetail(kind, modifier, collation, number, base, place)
            columns.append(SourceColumn(column, type_text, detail))
            by_number[number] = column
        found = self.rows(_PRIMARY_KEY, oid)
        primary = tuple(by_number[number] for numbers, count in found for number in numbers[:count])
        return CapturedTable(schema, name, tuple(columns), primary, TableDetail(oid, self.leaves(oid)))

    def check_column(self, table: CapturedTable, column: SourceColumn, target: HiveType) -> None:
        """Raise RecordLayoutError if a Hive column cannot hold the values."""
        detail: ColumnDetail = column.detail
        allowed = _ALLOWED.get(detail.kind, ("string",))
        reason = ""
        if target.kind not in allowed:
            reason = f"expected one of {', '.join(allowed)}"
        elif (detail.kind, target.kind) == ("numeric", "decimal") and detail.modifier >= 0:
            scale = (detail.modifier - 4) & 0x7FF
            reason = f"the source has {scale} digits after the decimal point" if target.scale < scale else ""
        elif target.kind in ("char", "varchar"):
            length = _text_length(detail)
            reason = f"a value may have {length or 'any number of'} characters"
            reason = "" if length is not None and length <= target.length else reason
        if reason:
            raise RecordLayoutError(
                f"source table {table.full_name}, column {column.name!r} ({column.type_text}) cannot be "
                f"stored in a column of type {target.text}: {reason}"
            )

    def check_time_zone(self, table: CapturedTable, time_zone: str) -> None:
        """Raise ConfigurationError if the server uses other offsets for the zone.

        It treats CET, for example, as an abbreviation, which is one hour ahead of UTC in summer too.
        """
        if time_zone == "UTC" or all(column.detail.kind != "timestamptz" for column in table.columns):
            return
        january, july = (f"timestamptz '2024-{month}-15 12:00+00' AT TIME ZONE %s" for month in ("01", "07"))
        (found,) = self.rows(f"SELECT {january}, {july}", time_zone, time_zone)
        zone = ZoneInfo(time_zone)
        noons = [datetime(2024, month, 15, 12, tzinfo=UTC) for month in (1, 7)]
        wanted = [noon.astimezone(zone).replace(tzinfo=None) for noon in noons]
        if list(found) != wanted:
            raise ConfigurationError(
                f"time_zone={time_zone!r}: on the server {self.source_id} this is another zone: noon UTC in "
                f"January and July 2024 is {found[0]} and {found[1]} there, but {wanted[0]} and {wanted[1]} "
                "here. Use a name with continent and city, such as Europe/Berlin"
            )

    def key_kind(self, column: SourceColumn) -> KeyKind:
        """Return the distinctions that a key column makes."""
        kind = column.detail.kind
        return KeyKind(ignores_trailing_spaces=kind == "bpchar", is_instant=kind == "timestamptz")

    def check_privileges(self, table: CapturedTable, method: CaptureMethod) -> None:
        """Raise ConfigurationError if the account may not create the objects of a method."""
        if method.has_log:
            ((account, owner, is_owner, may_create),) = self.rows(PRIVILEGES, table.detail.oid)
            check_log_privileges(table, account, owner, is_owner=is_owner, may_create=may_create)

    def check_version(self, table: CapturedTable, column: str, overlap: Decimal | None) -> None:
        """Check the version column; xmin (a row's last transaction) needs no overlap, other columns do."""
        if column.lower() == _XMIN:
            if overlap is not None:
                raise ConfigurationError(
                    f"{_XMIN} needs no overlap, because the database reports which transactions are open"
                )
            return
        super().check_version(table, column, overlap)

    def version_bound(
        self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings, before: str
    ) -> tuple[str, bool]:
        """Return the bound; for xmin, this is the oldest open transaction.

        Ages of transactions are comparable within half a wrap-around of their ids.
        """
        if settings.version_column.lower() != _XMIN:
            return super().version_bound(snapshot, table, settings, before)
        bound = str(snapshot.value("SELECT pg_snapshot_xmin(pg_current_snapshot())::text"))
        return bound, bool(before) and int(bound) - _xid(before) >= _XIDS // 2 - _XID_MARGIN

    def from_version(self, table: CapturedTable, settings: UpdateSettings, bound: str) -> str:
        """Return the condition on versions; for xmin it compares ages, since transaction ids wrap around."""
        if settings.version_column.lower() == _XMIN:
            return f"age(xmin) <= age('{_xid(bound) % _XIDS}'::xid)"
        return super().from_version(table, settings, bound)

    def growing_column(self, table: CapturedTable, column: SourceColumn) -> GrowingColumn:
        """Return the SQL of a version column. Raises ConfigurationError if its type is unsuitable."""
        found = growing_column(self.name_of(column), column.detail.kind)
        if found is None:
            raise self.refuse_growing(table, column, f"{_XMIN}, and columns of {', '.join(GROWING)}")
        return found

    def shown(self, column: SourceColumn, value: str, time_zone: str) -> str:
        """Return times in the given zone, and types that Hive lacks as strings."""
        if column.detail.kind == "timestamptz":
            return f"({value} AT TIME ZONE {literal_of(time_zone)})"
        return value if column.detail.kind in _ALLOWED else f"{value}::text"

    def seconds(self, expression: str) -> str:
        """Return the expression of a log row's time as seconds since 1970."""
        return f"extract(epoch from {expression})::float8"

    def now(self) -> str:
        """Return the expression of the current time as seconds since 1970."""
        return self.seconds("clock_timestamp()")

    def receipt_statement(self, table: str, number: int) -> str:
        """Return the statement that adds a receipt to a log unless it is already there."""
        return (
            f"INSERT INTO {table} ({SEQUENCE_COLUMN}, {OPERATION_COLUMN}) OVERRIDING SYSTEM VALUE "
            f"VALUES ({number:d}, {RECEIPT}) ON CONFLICT DO NOTHING"
        )

    def only_grows(self, settings: UpdateSettings) -> bool:
        """Return True for xmin: transaction ids only grow if wrap-arounds are counted."""
        return settings.version_column.lower() == _XMIN

    def streaming_cursor(self, connection: Any) -> Any:
        """Return a server-side cursor, which sends rows as they are fetched."""
        return connection.cursor(name="hm_rows")

    def begin_catalog(self, connection: Any) -> None:
        """Read the catalog without transactions; BEGIN and ROLLBACK would double a short query's time."""
        connection.autocommit = True

    def begin_snapshot(self, connection: Any) -> None:
        """Begin a read-only transaction; its first query takes the snapshot."""
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        for name in (
            "date",
            "timestamp",
        ):  # psycopg's own date types support neither infinity nor years before 1
            connection.adapters.register_loader(name, TextLoader)
        settings = {**SETTINGS, "row_security": "off"}
        connection.execute("; ".join(f"SET LOCAL {name} = '{value}'" for name, value in settings.items()))

    def begin_ddl(self, connection: Any) -> None:
        """Prepare a connection for DDL; all statements are one transaction."""
        connection.execute(f"SET LOCAL lock_timeout = '{DDL_WAIT_SECONDS}s'")
        connection.execute("SET LOCAL client_min_messages = warning")


def _xid(bound: str) -> int:
    """Return a transaction id that includes wrap-arounds. Raises SourcePositionError if it is not one."""
    if not re.fullmatch("-?[0-9]{1,20}", bound):
        raise SourcePositionError(
            f"the position in Hive has the bound {bound[:200]!r}, which is not a transaction id ({_XMIN}), "
            "so it has been altered. Nothing was read. Run hive-mutate update disable --discard, then "
            "enable incremental update again: the first extraction compares the two tables"
        )
    return int(bound)


def _text_length(detail: ColumnDetail) -> int | None:
    """Return the maximum number of characters, or None if there is no limit."""
    if detail.kind in ("varchar", "bpchar"):
        return detail.modifier - 4 if detail.modifier >= 0 else None
    if detail.kind == "name":
        return 63
    return _DIGITS if detail.kind in ("int2", "int4", "int8", "oid") else None
