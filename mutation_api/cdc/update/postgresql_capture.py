"""Captures changes of a PostgreSQL table with a log, a trigger function and triggers.

A row trigger also fires for partitions, COPY, MERGE, cascades of foreign keys and rows that logical
replication applies (ENABLE ALWAYS). A second trigger fires for TRUNCATE of the table, but not of a single
partition. The log's rows are written by the function's owner, so applications need no privileges on it.

A trigger must not make a statement of the application fail. Keys are logged as strings, as the type's output
function writes them with pinned settings. Strings cannot overflow, keep the blanks of char(n), and need no
operator of an extension. If a key column cannot be read because it was renamed, the trigger logs that an
unknown row changed, and the extraction compares the table. The key is read in a block whose handler writes
nothing, because a block that writes takes a transaction id for each row.

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

SETTINGS = {
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "lc_monetary": "C",
}
"""Settings that determine how values are written; a session's own must not affect the log or Hive."""

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
"""Types whose output does not depend on settings."""
_FIXED = {
    *_PLAIN,
    *("date", "time", "timetz", "timestamp", "timestamptz", "interval", "float4", "float8", "bytea"),
    *("json", "jsonb", "xml", "money", "inet", "cidr", "macaddr", "bit", "varbit"),
}
"""Types that no statement can alter; others may be enums or composites, or consist of these."""
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
    """The type of a column.

    Attributes:
        kind: name of the type, or of a domain's base type.
        modifier: atttypmod.
        collation: quoted collation of a string column.
        number: attnum.
        base: the type without its domain, as used in a cast.
        schema: quoted schema of the type's operators.
    """

    kind: str
    modifier: int
    collation: str | None
    number: int = 0
    base: str = ""
    schema: str = "pg_catalog"


@dataclass(frozen=True)
class TableDetail:
    """A table; ``leaves``: oid, quoted name, shown name and storage of each partition that has rows."""

    oid: int
    leaves: tuple[tuple[int, str, str, str], ...] = ()


class PostgreSqlCapture(SqlDatabase):
    """The part of :class:`~mutation_api.cdc.update.postgresql.PostgreSql` that captures changes."""

    def leaves(self, oid: int) -> tuple[tuple[int, str, str, str], ...]:
        """Return the partitions of a partitioned table; see TableDetail."""
        return tuple(
            (leaf, self.quoted(schema, name), f"{schema}.{name}", f"{leaf} {kind}{persistence} {storage}")
            for leaf, schema, name, kind, persistence, storage in self.rows(_LEAVES, oid)
        )

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """Raise RecordLayoutError if changes fire no trigger, rows are hidden, or a crash would empty it."""
        ((persistence, _, is_filtered, heirs),) = self.rows(_TABLE, table.detail.oid)
        kinds = {storage.split(" ")[1] for *_, storage in table.detail.leaves} | {f"r{persistence}"}
        reason = ""
        if heirs:
            reason = (
                f"{', '.join(heirs)} inherits it (INHERITS), so its rows are also rows of this table, but "
                "fire no trigger of this table. Make it a partition, end the inheritance (ALTER TABLE … NO "
                "INHERIT), or follow each table"
            )
        elif is_filtered:
            reason = (
                "row level security hides rows from this account, and Hive would lose rows that become "
                "hidden. Give the account BYPASSRLS, or extract as the table's owner (without FORCE ROW "
                "LEVEL SECURITY)"
            )
        elif any(kind.startswith("f") for kind in kinds):
            reason = "one of its partitions is a foreign table, whose changes fire no trigger. Detach it"
        elif any(kind.endswith("u") for kind in kinds):
            reason = (
                "it is UNLOGGED, so a crash of the server empties it without a trace. Use ALTER TABLE … SET "
                "LOGGED"
            )
        if reason:
            raise RecordLayoutError(f"source table {table.full_name}: {reason}")

    def fingerprint(self, table: CapturedTable, names: ObjectNames | None) -> Fingerprint:
        """Return numbers of catalog rows (oid, attnum), of files, and of transactions writing catalog rows.

        DISABLE TRIGGER, ENABLE TRIGGER and ATTACH PARTITION rewrite a catalog row. The file changes with
        TRUNCATE and with every ALTER that rewrites rows.
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
                    # By what fires it, because a trigger may be renamed while it is disabled.
                    name = f"trigger {kind} of {places.get(relation)}"
                    if relation in places:
                        capture[name] = f"{capture.get(name, '')} {written}".strip()
        return Fingerprint(str(table.detail.oid), columns, partitions, capture)

    def partition_rows(self, table: CapturedTable, partition: str) -> str:
        """Return a partition's name for a statement; '' if all of its rows are logged."""
        names: dict[str, str] = {shown: quoted for _, quoted, shown, _ in table.detail.leaves}
        return names[partition]

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """Return the log table and the objects that fill it, in order of creation."""
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
            self.log_object(
                table.schema,
                names,
                f"CREATE TABLE IF NOT EXISTS {log} ({SEQUENCE_COLUMN} bigint GENERATED ALWAYS AS IDENTITY "
                f'PRIMARY KEY, {OPERATION_COLUMN} "char" NOT NULL, {TIME_COLUMN} timestamptz NOT NULL '
                f"DEFAULT clock_timestamp(), {made})",
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
        """Return statements that set variables to the strings of a row's key; concat turns NULL into ''."""
        values = [f"{word}.{self.quoted(c.name)}" for c in columns]
        return " ".join(
            f"{variable} := CASE WHEN {value} IS NULL THEN NULL ELSE concat({value}) END;"
            for variable, value in zip(variables, values, strict=True)
        )

    def flaws(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[str]:
        """Return how the objects in the source differ from :meth:`objects`; empty if they do not."""
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
        # If there is no log, its receipt is missing too; that is checked where positions are compared.
        if found and {name: kind for name, kind in found.items() if not name.startswith("hm_")} != wanted:
            yield (
                f"table {names.log} has the columns {', '.join(found)}, expected the key {', '.join(wanted)} "
                "with type text"
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
            yield f"function {names.capture} differs from the one that enable creates for this key"

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
            # A partition's own trigger has the same name as the table's, or one that the server chose.
            trigger = here.get(name) or next((v for v in here.values() if v[1] == kind), None)
            if trigger is None:
                yield f"table {shown} does not have the trigger {name}"
            elif trigger[1] != kind or not trigger[2]:
                yield f"trigger {name} of {shown} differs from the one that enable creates"
            elif trigger[0] != "A":
                yield f"trigger {name} of {shown} is not enabled for all changes (ENABLE ALWAYS)"

    def made(self, names: ObjectNames) -> list[SourceObject]:
        """Return the objects with these names, in the order in which they can be removed."""
        found = []
        for schema, table, name in self.rows(_MADE_TRIGGERS, names.capture, _truncated(names), names.capture):
            drop = f"DROP TRIGGER IF EXISTS {self.quoted(name)} ON {self.quoted(schema, table)}"
            found.append(SourceObject("trigger", name, (), (drop,)))
        for (schema,) in self.rows(_MADE_FUNCTIONS, names.capture):
            drop = f"DROP FUNCTION IF EXISTS {self.quoted(schema, names.capture)}()"
            found.append(SourceObject("trigger function", f"{schema}.{names.capture}", (), (drop,)))
        return [*found, *self.made_logs(names)]

    def log_schemas(self, names: ObjectNames) -> list[str]:
        """Return the schemas that contain the log with this name: one or none."""
        return [schema for (schema,) in self.rows(_MADE_LOGS, names.log)]

    def of_log(self, column: SourceColumn, log: str) -> str:
        """Return the expression that reads a key column from the log as a value of its type."""
        return f"({self.name_of(column, log)}::{column.detail.base})"

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """Return the condition for equality by the type's operator (can use an index) and by characters.

        With some types (citext, numeric, char), several keys of the source are equal by the operator alone,
        but are different keys in Hive.
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
    """Return the function's settings as SQL, but only the necessary ones, since each costs time per row."""
    path = {"search_path": "pg_catalog, pg_temp"}
    if all(column.detail.kind in _PLAIN for column in columns):
        return path
    return {**path, **{name: f"'{value}'" for name, value in SETTINGS.items()}}
