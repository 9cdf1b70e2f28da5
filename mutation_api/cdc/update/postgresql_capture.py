"""What captures changes of a table of PostgreSQL, and what that depends on: log, trigger function, triggers.

A row trigger also fires for partitions, COPY, MERGE, cascades of foreign keys and the rows that logical
replication applies (ENABLE ALWAYS). A second one fires for TRUNCATE of the table, not for that of one
partition. The log's rows are written by the function's owner, so applications need no rights on it.

A trigger must not make a statement of the application fail. Keys are logged as text, as the type's output
function writes it, with pinned settings: text cannot overflow, keeps the blanks of char(n), and needs no
operator of an extension. If a key column cannot be read since it was renamed, the trigger logs that an
unknown row changed, and the extraction compares the table. The key is read in a block with a handler that
writes nothing, since a block that writes takes a transaction id for each row.

Source: PostgreSQL's documentation, "Overview of Trigger Behavior", "Trapping Errors", "pg_trigger".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mutation_api.cdc.update.database import CapturedTable, SourceColumn, SourceObject
from mutation_api.cdc.update.postgresql_catalog import dollar_quoted, literal_of
from mutation_api.cdc.update.progress_mark import CaptureMethod, Fingerprint
from mutation_api.cdc.update.settings import ObjectNames
from mutation_api.cdc.update.sql_database import OPERATION_COLUMN, SEQUENCE_COLUMN, TIME_COLUMN, SqlDatabase
from mutation_api.errors import RecordLayoutError

__all__ = ["COLUMNS", "SETTINGS", "ColumnDetail", "PostgreSqlCapture", "TableDetail"]

SETTINGS = {
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "lc_monetary": "C",
}
"""Settings that text of values depends on. A session's own must not reach the log, or Hive."""

_PLAIN = (
    "int2",
    "int4",
    "int8",
    "oid",
    "bool",
    "numeric",
    "uuid",
    "text",
    "varchar",
    "bpchar",
    "name",
    "citext",
)
"""Types whose text does not depend on settings."""
_FIXED = {
    *_PLAIN,
    *("date", "time", "timetz", "timestamp", "timestamptz", "interval", "float4", "float8", "bytea"),
    *("json", "jsonb", "xml", "money", "inet", "cidr", "macaddr", "bit", "varbit"),
}
"""Types that no statement alters; others may be enums or composites, or made of these."""
_WITHOUT_EQUALITY = ("json", "xml", "point", "polygon")
_ROW, _INSERT, _DELETE, _UPDATE, _TRUNCATE = 1, 4, 8, 16, 32
"""Bits of pg_trigger.tgtype."""

COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(b.typname, t.typname), a.atttypmod, a.attnum,
       CASE WHEN a.attcollation <> 0 THEN (SELECT quote_ident(n.nspname) || '.' || quote_ident(k.collname)
            FROM pg_collation k JOIN pg_namespace n ON n.oid = k.collnamespace WHERE k.oid = a.attcollation)
            END,
       format_type(coalesce(b.oid, t.oid), CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END),
       CASE WHEN coalesce(b.typtype, t.typtype) = 'b' AND coalesce(b.typcategory, t.typcategory) <> 'A'
            THEN (SELECT quote_ident(n.nspname) FROM pg_namespace n
                  WHERE n.oid = coalesce(b.typnamespace, t.typnamespace)) ELSE 'pg_catalog' END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_TYPES = """
WITH RECURSIVE used(name, oid) AS (
    SELECT attname, atttypid FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
    UNION SELECT u.name, inner_type.oid FROM used u JOIN pg_type t ON t.oid = u.oid CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = t.oid
        UNION ALL SELECT a.atttypid FROM pg_attribute a
        WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) inner_type(oid)
    WHERE inner_type.oid <> 0)
SELECT u.name, md5(string_agg(d.part, ',' ORDER BY d.part)) FROM used u JOIN (
    SELECT enumtypid AS oid, oid || ' ' || enumlabel AS part FROM pg_enum
    UNION ALL SELECT t.oid, a.attnum || ' ' || a.attname || ' ' || a.atttypid FROM pg_type t
    JOIN pg_attribute a ON a.attrelid = t.typrelid
    WHERE t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped) d ON d.oid = u.oid GROUP BY u.name"""
_LEAVES = """
WITH RECURSIVE parts(oid, path) AS (
    SELECT i.inhrelid, i.xmin::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
    WHERE i.inhparent = %s AND c.relkind = 'p'
    UNION ALL SELECT i.inhrelid, p.path || ' ' || i.xmin::text
    FROM pg_inherits i JOIN parts p ON p.oid = i.inhparent)
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence,
       p.path || '/' || coalesce(pg_relation_filenode(c.oid), 0)
FROM parts p JOIN pg_class c ON c.oid = p.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'p' ORDER BY c.oid"""
_TABLE = """
SELECT c.relpersistence, coalesce(pg_relation_filenode(c.oid), 0), row_security_active(c.oid),
       array(SELECT i.inhrelid::regclass::text FROM pg_inherits i
             WHERE i.inhparent = c.oid AND c.relkind = 'r' ORDER BY 1)
FROM pg_class c WHERE c.oid = %s"""
_FUNCTION = """
SELECT p.oid, p.prosrc, coalesce(p.proconfig, '{}'), p.prosecdef, p.oid || ' ' || p.xmin::text
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s AND p.proname = %s"""
_TRIGGERS = """
SELECT g.tgrelid, g.tgname, g.tgenabled::text, g.tgtype, g.tgqual IS NULL AND g.tgattr::text = '',
       g.oid || ' ' || g.xmin::text FROM pg_trigger g WHERE g.tgfoid = %s ORDER BY g.oid"""
_LOG = """
SELECT a.attname, a.atttypid::regtype::text FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_MADE_TRIGGERS = """
SELECT n.nspname, c.relname, g.tgname FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (g.tgname IN (%s, %s) OR g.tgfoid IN (SELECT oid FROM pg_proc WHERE proname = %s)) AND NOT EXISTS (
    SELECT 1 FROM pg_inherits i JOIN pg_trigger p ON p.tgrelid = i.inhparent AND p.tgfoid = g.tgfoid
    WHERE i.inhrelid = g.tgrelid AND p.tgname = g.tgname)"""
_MADE_FUNCTIONS = """
SELECT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.proname = %s"""
_MADE_LOGS = """
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %s AND c.relkind = 'r'"""


@dataclass(frozen=True)
class ColumnDetail:
    """A column's type.

    Attributes:
        kind: name of the type, or of a domain's base.
        modifier: atttypmod.
        collation: quoted, of text columns.
        number: attnum.
        base: the type without its domain, as in a cast.
        schema: quoted, of the type's operators.
    """

    kind: str
    modifier: int
    collation: str | None
    number: int = 0
    base: str = ""
    schema: str = "pg_catalog"


@dataclass(frozen=True)
class TableDetail:
    """``leaves``: oid, quoted name, shown name and storage of each partition that has rows of its own."""

    oid: int
    leaves: tuple[tuple[int, str, str, str], ...] = ()


class PostgreSqlCapture(SqlDatabase):
    """The part of :class:`~mutation_api.cdc.update.postgresql.PostgreSql` that captures changes."""

    def leaves(self, oid: int) -> tuple[tuple[int, str, str, str], ...]:
        """Read the partitions of a partitioned table; see TableDetail."""
        return tuple(
            (leaf, self.quoted(schema, name), f"{schema}.{name}", f"{leaf} {kind}{persistence} {storage}")
            for leaf, schema, name, kind, persistence, storage in self.rows(_LEAVES, oid)
        )

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """Refuse rows that no trigger sees, that this account does not see, or that a crash takes away."""
        ((persistence, _, is_filtered, heirs),) = self.rows(_TABLE, table.detail.oid)
        kinds = {storage.split(" ")[1] for *_, storage in table.detail.leaves} | {f"r{persistence}"}
        reason = ""
        if heirs:
            reason = (
                f"{', '.join(heirs)} inherits it (INHERITS), so its rows are also rows of this table, and no "
                "trigger of this table sees them: make them partitions, or end the inheritance (ALTER TABLE "
                "… NO "
                "INHERIT), or follow each table"
            )
        elif is_filtered:
            reason = (
                "row level security hides rows from this account, and Hive would lose rows that become "
                "hidden: "
                "give the account BYPASSRLS, or let the table's owner extract (without FORCE ROW LEVEL "
                "SECURITY)"
            )
        elif any(kind.startswith("f") for kind in kinds):
            reason = "one of its partitions is a foreign table, whose changes no trigger sees: detach it"
        elif any(kind.endswith("u") for kind in kinds):
            reason = "it is UNLOGGED, so a crash of the server empties it unseen: ALTER TABLE … SET LOGGED"
        if reason:
            raise RecordLayoutError(f"source table {table.full_name}: {reason}")

    def fingerprint(self, table: CapturedTable, names: ObjectNames | None) -> Fingerprint:
        """Numbers of catalog rows (oid, attnum), of files, and of the transactions that wrote catalog rows.

        A catalog row is written again by DISABLE TRIGGER and ENABLE TRIGGER, and by ATTACH PARTITION; the
        file changes with TRUNCATE and with every ALTER that rewrites rows.
        """
        ((_, filenode, _, _),) = self.rows(_TABLE, table.detail.oid)
        contents: dict[str, str] = {}
        if any(column.detail.kind not in _FIXED for column in table.columns):
            contents = {row[0]: row[1] for row in self.rows(_TYPES, table.detail.oid)}
        columns = {
            column.name: f"{column.detail.number} {column.type_text} {contents.get(column.name, '')}".strip()
            for column in table.columns
        }
        partitions = {shown: storage for _, _, shown, storage in table.detail.leaves} or {
            table.full_name: str(filenode)
        }
        places = {table.detail.oid: table.full_name, **{oid: name for oid, _, name, _ in table.detail.leaves}}
        capture: dict[str, str] = {}
        if names is not None:
            for oid, *_, version in self.rows(_FUNCTION, table.schema, names.capture):
                capture[f"function {names.capture}"] = version
                for relation, _, _, kind, _, written in self.rows(_TRIGGERS, oid):
                    # By what fires it, since a trigger may be renamed while it is switched off.
                    name = f"trigger {kind} of {places.get(relation)}"
                    if relation in places:
                        capture[name] = f"{capture.get(name, '')} {written}".strip()
        return Fingerprint(str(table.detail.oid), columns, partitions, capture)

    def partition_rows(self, table: CapturedTable, partition: str) -> str:
        """See :class:`~mutation_api.cdc.update.database.SourceDatabase`."""
        names: dict[str, str] = {shown: quoted for _, quoted, shown, _ in table.detail.leaves}
        return names[partition]

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """See :class:`~mutation_api.cdc.update.database.SourceDatabase`."""
        columns = [table.column(name) for name in key]
        log = self.quoted(table.schema, names.log)
        function = self.quoted(table.schema, names.capture)
        source = self.quoted(table.schema, table.name)
        made = ", ".join(f'{self.quoted(c.name)} text COLLATE "C"' for c in columns)
        settings = " ".join(f"SET {name} = {value}" for name, value in _pinned(columns).items())
        events = "INSERT" if method.is_insert_only else "INSERT OR UPDATE OR DELETE"
        triggers = [self._trigger(names.capture, f"AFTER {events}", source, "ROW", function)]
        if not method.is_insert_only:
            truncated = self._trigger(_truncated(names), "AFTER TRUNCATE", source, "STATEMENT", function)
            triggers.append(truncated)
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
                (
                    f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY "
                    "DEFINER "
                    f"{settings} AS {dollar_quoted(self._body(log, columns))}",
                ),
                (f"DROP FUNCTION IF EXISTS {function}()",),
            ),
            *triggers,
        ]

    def _trigger(self, name: str, event: str, source: str, each: str, function: str) -> SourceObject:
        quoted = self.quoted(name)
        drop = f"DROP TRIGGER IF EXISTS {quoted} ON {source}"
        create = f"CREATE TRIGGER {quoted} {event} ON {source} FOR EACH {each} EXECUTE FUNCTION {function}()"
        always = f"ALTER TABLE {source} ENABLE ALWAYS TRIGGER {quoted}"
        return SourceObject("trigger", name, (drop, create, always), (drop,))

    def _body(self, log: str, columns: Sequence[SourceColumn]) -> str:
        keys = ", ".join(self.quoted(c.name) for c in columns)
        insert = f"INSERT INTO {log} ({OPERATION_COLUMN}, {keys}) VALUES"
        new, old = ([f"{word}_{number}" for number in range(len(columns))] for word in ("hm_new", "hm_old"))
        news, olds = ", ".join(new), ", ".join(old)
        log_text = literal_of(log)
        return f"""
DECLARE
  {" text; ".join([*new, *old])} text;
BEGIN
  IF to_regclass({log_text}) IS NULL THEN
    RETURN NULL;  -- the next extraction reports it
  END IF;
  IF TG_OP = 'TRUNCATE' THEN
    INSERT INTO {log} ({OPERATION_COLUMN}) VALUES ('T');
    RETURN NULL;
  END IF;
  BEGIN
    IF TG_OP <> 'DELETE' THEN
      {self._assigned(new, "NEW", columns)}
    END IF;
    IF TG_OP <> 'INSERT' THEN
      {self._assigned(old, "OLD", columns)}
    END IF;
  EXCEPTION WHEN OTHERS THEN
    INSERT INTO {log} ({OPERATION_COLUMN}) VALUES ('X');  -- a key column was renamed: compare the table
    RETURN NULL;
  END;
  IF TG_OP = 'INSERT' THEN
    {insert} ('I', {news});
  ELSIF TG_OP = 'DELETE' THEN
    {insert} ('D', {olds});
  ELSIF ({olds}) IS DISTINCT FROM ({news}) THEN
    {insert} ('D', {olds}), ('I', {news});
  ELSE
    {insert} ('U', {news});
  END IF;
  RETURN NULL;
END """

    def _assigned(self, variables: Sequence[str], word: str, columns: Sequence[SourceColumn]) -> str:
        """Statements that set variables to the texts of a row's key; concat turns NULL into ''."""
        values = [f"{word}.{self.quoted(c.name)}" for c in columns]
        return " ".join(
            f"{variable} := CASE WHEN {value} IS NULL THEN NULL ELSE concat({value}) END;"
            for variable, value in zip(variables, values, strict=True)
        )

    def flaws(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[str]:
        """See :class:`~mutation_api.cdc.update.database.SourceDatabase`."""
        columns = [table.column(name) for name in key]
        function = self.rows(_FUNCTION, table.schema, names.capture)
        return [
            *self._flaws_of_log(table, columns, names),
            *self._flaws_of_function(function, table, columns, names),
            *self._flaws_of_triggers(function, table, names, method),
        ]

    def _flaws_of_log(
        self, table: CapturedTable, columns: Sequence[SourceColumn], names: ObjectNames
    ) -> Iterator[str]:
        found = {row[0]: row[1] for row in self.rows(_LOG, table.schema, names.log)}
        wanted = {c.name: "text" for c in columns}
        # Without a log, the receipt is what is missing; it is looked for where positions are compared.
        if found and {name: kind for name, kind in found.items() if not name.startswith("hm_")} != wanted:
            yield (
                f"table {names.log} has the columns {', '.join(found)}, expected the key "
                f"{', '.join(wanted)} as text"
            )

    def _flaws_of_function(
        self,
        found: Sequence[Sequence[Any]],
        table: CapturedTable,
        columns: Sequence[SourceColumn],
        names: ObjectNames,
    ) -> Iterator[str]:
        if not found:
            yield f"function {names.capture} is missing"
            return
        _, body, config, is_definer, _ = found[0]
        given = {each.partition("=")[0].lower() for each in config}
        has_settings = given == {name.lower() for name in _pinned(columns)}
        if body != self._body(self.quoted(table.schema, names.log), columns) or not (
            is_definer and has_settings
        ):
            yield f"function {names.capture} is not the one that enable makes for this key"

    def _flaws_of_triggers(
        self,
        function: Sequence[Sequence[Any]],
        table: CapturedTable,
        names: ObjectNames,
        method: CaptureMethod,
    ) -> Iterator[str]:
        found: dict[int, dict[str, tuple[str, int, bool]]] = defaultdict(dict)
        for oid, *_ in function:
            for relation, name, state, kind, is_plain, _ in self.rows(_TRIGGERS, oid):
                found[relation][name] = (state, kind, is_plain)
        row = _ROW | _INSERT | (0 if method.is_insert_only else _UPDATE | _DELETE)
        wanted = [(table.detail.oid, table.full_name, names.capture, row)]
        wanted += [(oid, shown, names.capture, row) for oid, _, shown, _ in table.detail.leaves]
        if not method.is_insert_only:
            wanted.append((table.detail.oid, table.full_name, _truncated(names), _TRUNCATE))
        for relation, shown, name, kind in wanted:
            here = found[relation]
            # A partition's own trigger has the name of the table's, or one that the server made.
            trigger = here.get(name) or next((v for v in here.values() if v[1] == kind), None)
            if trigger is None:
                yield f"table {shown} has no trigger {name}"
            elif trigger[1] != kind or not trigger[2]:
                yield f"trigger {name} of {shown} is not the one that enable makes"
            elif trigger[0] != "A":
                yield f"trigger {name} of {shown} is not enabled for all changes (ENABLE ALWAYS)"

    def made(self, names: ObjectNames) -> list[SourceObject]:
        """See :class:`~mutation_api.cdc.update.database.SourceDatabase`."""
        found = []
        for schema, table, name in self.rows(_MADE_TRIGGERS, names.capture, _truncated(names), names.capture):
            drop = f"DROP TRIGGER IF EXISTS {self.quoted(name)} ON {self.quoted(schema, table)}"
            found.append(SourceObject("trigger", name, (), (drop,)))
        for (schema,) in self.rows(_MADE_FUNCTIONS, names.capture):
            drop = f"DROP FUNCTION IF EXISTS {self.quoted(schema, names.capture)}()"
            found.append(SourceObject("trigger function", f"{schema}.{names.capture}", (), (drop,)))
        return [*found, *self.made_logs(names)]

    def log_schemas(self, names: ObjectNames) -> list[str]:
        """See :class:`~mutation_api.cdc.update.sql_database.SqlDatabase`."""
        return [schema for (schema,) in self.rows(_MADE_LOGS, names.log)]

    def of_log(self, column: SourceColumn, log: str) -> str:
        """A key column of the log, as a value of the column's type."""
        return f"({self.name_of(column, log)}::{column.detail.base})"

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """Equal by the type's operator, which an index serves, and in every character.

        Other keys of the source may be equal to one key by its operator alone (citext, numeric, char), and
        are different keys in Hive.
        """
        ours, theirs = self.name_of(column, table), self.name_of(column, log)
        exact = f'concat({ours}) COLLATE "C" = {theirs}'
        detail: ColumnDetail = column.detail
        if detail.kind in _WITHOUT_EQUALITY:
            return exact
        collated = f"{self.of_log(column, log)} COLLATE {detail.collation}" if detail.collation else ""
        typed = collated or self.of_log(column, log)
        return f"{ours} OPERATOR({detail.schema}.=) {typed} AND {exact}"


def _truncated(names: ObjectNames) -> str:
    return names.capture + "_truncate"


def _pinned(columns: Sequence[SourceColumn]) -> dict[str, str]:
    """Settings of the trigger function as SQL; each costs time at each row, so only those that are needed."""
    path = {"search_path": "pg_catalog, pg_temp"}
    if all(column.detail.kind in _PLAIN for column in columns):
        return path
    return {**path, **{name: f"'{value}'" for name, value in SETTINGS.items()}}
