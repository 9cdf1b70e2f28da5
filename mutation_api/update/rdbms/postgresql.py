"""PostgreSQL, 11 and later, through psycopg.

=====================================  ======================================================================
column in the source                   column in Hive
=====================================  ======================================================================
smallint, integer, bigint, oid         an integer type or decimal; each value must fit. Text types too
boolean                                boolean
numeric(p,s)                           decimal with at least s digits after the point; NaN is refused
numeric                                decimal; a value with more digits after the point is refused
real, double precision                 float (from real alone), double
text, varchar(n), char(n), name        string; char(n) and varchar(n) at least as long
bytea                                  binary
date, timestamp                        date, timestamp; infinity and years beyond 1 … 9999 are refused
timestamptz                            timestamp, the wall clock of the zone that was chosen (UTC)
all others (uuid, json, arrays, …)     string, as PostgreSQL writes it
=====================================  ======================================================================

Changes are logged by a row trigger, which also fires for partitions, COPY, MERGE, cascades of foreign keys
and the rows that logical replication applies (ENABLE ALWAYS), and by one for TRUNCATE. The log's rows are
written by the function's owner, so applications need no rights on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.types.hive_type import INTEGER_KINDS, HiveType
from mutation_api.update.method import CaptureMethod
from mutation_api.update.rdbms.database import CapturedTable, SourceColumn, SourceObject, SourceSnapshot
from mutation_api.update.rdbms.sql_database import (
    DDL_WAIT_SECONDS,
    OPERATION_COLUMN,
    SEQUENCE_COLUMN,
    TIME_COLUMN,
    SqlDatabase,
)
from mutation_api.update.rdbms.values import to_hive_column
from mutation_api.update.settings import ObjectNames, UpdateSettings

__all__ = ["PostgreSql"]

_TEXTS = ("text", "varchar", "bpchar", "name", "citext")
_TEXT_TARGETS = ("string", "char", "varchar")
_ALLOWED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), (*INTEGER_KINDS, "decimal", *_TEXT_TARGETS)),
    "bool": ("boolean",),
    "numeric": ("decimal",),
    "float4": ("float", "double"),
    "float8": ("double",),
    **dict.fromkeys(_TEXTS, _TEXT_TARGETS),
    "bytea": ("binary",),
    "date": ("date",),
    "timestamp": ("timestamp",),
    "timestamptz": ("timestamp",),
}
_DIGITS = 20
_XMIN = "xmin"
_XIDS = 2**32
"""Transactions are numbered in a circle of so many; the answer of pg_snapshot_xmin counts the turns, too."""
_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(b.typname, t.typname), a.atttypmod, a.attnum,
       CASE WHEN a.attcollation <> 0 THEN (SELECT quote_ident(n.nspname) || '.' || quote_ident(k.collname)
            FROM pg_collation k JOIN pg_namespace n ON n.oid = k.collnamespace WHERE k.oid = a.attcollation)
            END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_PARTS = "partitions "
"""Beginning of the token of a partitioned table."""
_PARTITIONS = """
WITH RECURSIVE parts(oid) AS (
    SELECT i.inhrelid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
    WHERE i.inhparent = %s AND c.relkind = 'p'
    UNION ALL SELECT i.inhrelid FROM pg_inherits i JOIN parts p ON p.oid = i.inhparent)
SELECT c.oid, n.nspname, c.relname FROM parts p JOIN pg_class c ON c.oid = p.oid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind <> 'p' ORDER BY c.oid"""
_HEIRS = """
SELECT i.inhrelid::regclass::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
WHERE i.inhparent = %s AND c.relkind = 'r' ORDER BY 1"""
_KEYS = """
SELECT i.indisprimary, i.indkey::int2[]::int4[], i.indnkeyatts,
       (SELECT bool_and(a.attnotnull) FROM pg_attribute a WHERE a.attrelid = i.indrelid
        AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1]))
FROM pg_index i WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
AND i.indexprs IS NULL ORDER BY NOT i.indisprimary, i.indexrelid"""


@dataclass(frozen=True)
class _Detail:
    """``kind``: name of the type, or of a domain's base. ``collation``: quoted, of text columns."""

    kind: str
    modifier: int
    collation: str | None


class PostgreSql(SqlDatabase):
    """A database of a PostgreSQL server."""

    kind = "postgresql"

    def describe(self, table: str) -> CapturedTable:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        schema, dot, name = table.rpartition(".")
        wanted = self.quoted(schema, name) if dot else self.quoted(name)
        found = self.rows(_TABLE, wanted)
        if not found or found[0][3] not in ("r", "p"):
            what = "is not a table" if found else "does not exist, or is not visible to this account"
            raise RecordLayoutError(f"source {self.source_id}: table {table} {what}")
        oid, schema, name, _ = found[0]
        columns, by_number = [], {}
        for column, type_text, kind, modifier, number, collation in self.rows(_COLUMNS, oid):
            columns.append(SourceColumn(column, type_text, _Detail(kind, modifier, collation)))
            by_number[number] = column
        keys, primary = [], ()
        for is_primary, numbers, count, is_not_null in self.rows(_KEYS, oid):
            key = tuple(by_number[number] for number in numbers[:count])
            primary = key if is_primary else primary
            keys += [key] if is_not_null else []
        return CapturedTable(schema, name, tuple(columns), primary, tuple(keys), oid)

    def has_table(self, schema: str, name: str) -> bool:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return bool(self.rows("SELECT to_regclass(%s) IS NOT NULL", self.quoted(schema, name))[0][0])

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """Every change of a row is seen by a trigger, unless the row is of a table that inherits this one."""
        heirs = [row[0] for row in self.rows(_HEIRS, table.detail)]
        if heirs:
            raise RecordLayoutError(
                f"source table {table.full_name}: {', '.join(heirs)} inherits it (INHERITS), so its rows are "
                "also rows of this table, and no trigger of this table sees them: make them partitions, or "
                "follow each table"
            )

    def table_token(self, table: CapturedTable) -> str:
        """The partitions of a partitioned table, which ATTACH PARTITION may add with rows in them."""
        found = self.rows(_PARTITIONS, table.detail)
        return _PARTS + ",".join(str(row[0]) for row in found) if found else ""

    def is_emptied(self, before: str, now: str) -> bool:
        """A trigger sees TRUNCATE."""
        return False

    def new_parts(self, table: CapturedTable, before: str) -> list[str]:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        known = set(before.removeprefix(_PARTS).split(","))
        found = self.rows(_PARTITIONS, table.detail) if before else []
        return [self.quoted(schema, name) for oid, schema, name in found if str(oid) not in known]

    def check_column(self, table: CapturedTable, column: SourceColumn, target: HiveType) -> None:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        detail: _Detail = column.detail
        allowed = _ALLOWED.get(detail.kind, ("string",))
        reason = ""
        if target.kind not in allowed:
            reason = f"only {', '.join(allowed)} can hold it"
        elif detail.kind == "numeric" and detail.modifier >= 0:
            scale = (detail.modifier - 4) & 0x7FF
            reason = f"it has {scale} digits after the point" if target.scale < scale else ""
        elif target.kind in ("char", "varchar"):
            length = _text_length(detail)
            reason = f"a value may have {length or 'any number of'} characters"
            reason = "" if length is not None and length <= target.length else reason
        if reason:
            raise RecordLayoutError(
                f"source table {table.full_name}, column {column.name!r} ({column.type_text}) cannot go "
                "into a "
                f"column of type {target.text}: {reason}"
            )

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        columns = [table.column(name) for name in key]
        log = self.quoted(table.schema, names.log)
        function = self.quoted(table.schema, names.capture)
        source = self.quoted(table.schema, table.name)
        row, truncated = self.quoted(names.capture), self.quoted(names.capture + "_truncate")
        events = "INSERT" if method.is_insert_only else "INSERT OR UPDATE OR DELETE"
        made = ", ".join(f"{self.quoted(c.name)} {self._type_in_log(c)}" for c in columns)
        triggers = [self._trigger(row, f"AFTER {events}", source, "ROW", function)]
        if not method.is_insert_only:
            triggers.append(self._trigger(truncated, "AFTER TRUNCATE", source, "STATEMENT", function))
        return [
            SourceObject(
                "changelog table",
                f"{table.schema}.{names.log}",
                (
                    f"CREATE TABLE IF NOT EXISTS {log} ({SEQUENCE_COLUMN} bigint GENERATED ALWAYS AS "
                    "IDENTITY "
                    f'PRIMARY KEY, {OPERATION_COLUMN} "char" NOT NULL, {TIME_COLUMN} timestamptz NOT NULL '
                    f"DEFAULT clock_timestamp(), {made})",
                ),
                (f"DROP TABLE IF EXISTS {log}",),
            ),
            SourceObject(
                "trigger function",
                f"{table.schema}.{names.capture}",
                (self._function(function, log, columns),),
                (f"DROP FUNCTION IF EXISTS {function}()",),
            ),
            *triggers,
        ]

    def _trigger(self, name: str, event: str, source: str, each: str, function: str) -> SourceObject:
        drop = f"DROP TRIGGER IF EXISTS {name} ON {source}"
        create = f"CREATE TRIGGER {name} {event} ON {source} FOR EACH {each} EXECUTE FUNCTION {function}()"
        always = f"ALTER TABLE {source} ENABLE ALWAYS TRIGGER {name}"
        return SourceObject("trigger", name.strip('"'), (drop, create, always), (drop,))

    def _function(self, name: str, log: str, columns: Sequence[SourceColumn]) -> str:
        keys = ", ".join(self.quoted(c.name) for c in columns)
        insert = f"INSERT INTO {log} ({OPERATION_COLUMN}, {keys}) VALUES"
        new, old = (", ".join(self._of_row(word, c) for c in columns) for word in ("NEW", "OLD"))
        return f"""CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $hm$
BEGIN
  IF TG_OP = 'INSERT' THEN
    {insert} ('I', {new});
  ELSIF TG_OP = 'DELETE' THEN
    {insert} ('D', {old});
  ELSIF TG_OP = 'UPDATE' THEN
    IF ({old}) IS DISTINCT FROM ({new}) THEN
      {insert} ('D', {old}), ('I', {new});
    ELSE
      {insert} ('U', {new});
    END IF;
  ELSE
    INSERT INTO {log} ({OPERATION_COLUMN}) VALUES ('T');
  END IF;
  RETURN NULL;
END $hm$"""

    def _of_row(self, word: str, column: SourceColumn) -> str:
        value = f"{word}.{self.quoted(column.name)}"
        return f'({value})::text COLLATE "C"' if column.detail.kind in _TEXTS else value

    def _type_in_log(self, column: SourceColumn) -> str:
        """Texts byte for byte, since a key that is equal in the source's collation may be another one in
        Hive.
        """
        return 'text COLLATE "C"' if column.detail.kind in _TEXTS else column.type_text

    def check_version(self, table: CapturedTable, column: str, overlap: str) -> None:
        """xmin, a row's last transaction, needs no overlap; a column of ours to read does."""
        if column.lower() == _XMIN:
            if overlap:
                raise ConfigurationError(
                    f"{_XMIN} needs no overlap: the database knows which transactions are open"
                )
            return
        super().check_version(table, column, overlap)

    def version_bound(self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings) -> str:
        """For xmin: the oldest transaction that is open."""
        if settings.version_column.lower() == _XMIN:
            return str(snapshot.value("SELECT pg_snapshot_xmin(pg_current_snapshot())::text"))
        return super().version_bound(snapshot, table, settings)

    def from_version(self, table: CapturedTable, settings: UpdateSettings, bound: str) -> str:
        """For xmin: rows of that transaction or later ones, by age, since the numbers run in a circle."""
        if settings.version_column.lower() == _XMIN:
            return f"age(xmin) <= age('{int(bound) % _XIDS}'::xid)"
        return super().from_version(table, settings, bound)

    def lowered(self, literal: str, overlap: str, *, is_number: bool) -> str:
        """See :class:`~mutation_api.update.rdbms.sql_database.SqlDatabase`."""
        if overlap and not is_number:
            return f"timestamptz {literal} - interval '{overlap} seconds'"
        return super().lowered(literal, overlap, is_number=is_number)

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        ours, theirs = self.name_of(column, table), self.name_of(column, log)
        if column.detail.kind not in _TEXTS:
            return f"{ours} = {theirs}"
        typed = f"({theirs}::{column.type_text})"
        collated = f"{typed} COLLATE {column.detail.collation}" if column.detail.collation else typed
        return f'{ours} = {collated} AND {ours}::text COLLATE "C" = {theirs}'

    def selected(self, column: SourceColumn, time_zone: str, table: str = "") -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        name = self.name_of(column, table)
        if column.detail.kind == "timestamptz":
            return f"({name} AT TIME ZONE '{time_zone}')"
        return name if column.detail.kind in _ALLOWED else f"{name}::text"

    def seconds(self, expression: str) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return f"extract(epoch from {expression})::float8"

    def now(self) -> str:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return self.seconds("clock_timestamp()")

    def to_column(
        self, column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
    ) -> pa.Array:
        """See :class:`~mutation_api.update.rdbms.database.SourceDatabase`."""
        return to_hive_column(column.name, target, values)

    def receipt_statement(self, table: str) -> str:
        """See :class:`~mutation_api.update.rdbms.sql_database.SqlDatabase`."""
        return (
            f"INSERT INTO {table} ({SEQUENCE_COLUMN}, {OPERATION_COLUMN}) OVERRIDING SYSTEM VALUE "
            "VALUES ({}, {}) ON CONFLICT DO NOTHING"
        )

    def only_grows(self, settings: UpdateSettings) -> bool:
        """Numbers of transactions do, with the turns counted."""
        return settings.version_column.lower() == _XMIN

    def streaming_cursor(self, connection: Any) -> Any:
        """A cursor of the server, which sends rows as they are fetched."""
        return connection.cursor(name="hm_rows")

    def begin_snapshot(self, connection: Any) -> None:
        """The snapshot is taken by the first query."""
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True

    def begin_ddl(self, connection: Any) -> None:
        """Statements that make objects are one transaction."""
        connection.execute(f"SET LOCAL lock_timeout = '{DDL_WAIT_SECONDS}s'")
        connection.execute("SET LOCAL client_min_messages = warning")


def _text_length(detail: _Detail) -> int | None:
    """The greatest number of characters; None if there is no limit."""
    if detail.kind in ("varchar", "bpchar"):
        return detail.modifier - 4 if detail.modifier >= 0 else None
    if detail.kind == "name":
        return 63
    return _DIGITS if detail.kind in ("int2", "int4", "int8", "oid") else None
