"""The rules that decide whether a table can be written to. Pure; each refusal names table, rule and finding.

Every rule is checked before a transaction is opened, and again under its lock.

External tables follow rules that this package does not implement. Only a replication may write to a replica.
``REPL LOAD`` leaves marks in the properties of the database and of its tables. Those of the database
determine the role: after a fail-over the tables keep their marks, while the two databases change roles.

Source: Hive's TransactionalValidationListener and AcidUtils (2.3, 3.1, 4.1). For replicas, Hive 4.1.0 and
    4.2.1, class ``ReplConst`` and the properties that ``REPL DUMP`` and ``REPL LOAD`` were observed to leave.
    Hive 3.1.3 marks a target only by ``repl.last.id``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from metastore_client.capabilities import Capabilities
from metastore_client.model import ColumnInfo, TableInfo
from mutation_api.errors import MutationError, TableNotMutableError
from mutation_api.format.event import MAX_BUCKETS
from mutation_api.format.hive_type import HiveType, arrow_type, parse_hive_type
from mutation_api.format.layout import TRANSACTIONAL_PROPERTIES, AcidVersion
from mutation_api.format.plain_array import repeated
from mutation_api.table.acid_table import BloomFilters, TableRole

SOURCE_FOR = "repl.source.for"
"""Set if the database is dumped; contains the names of the policies. The change manager keeps its removed
files."""
TARGET_FOR = "repl.target.for"
"""Set if a replication loads into the database (Hive 4)."""
LAST_EVENT = "repl.last.id"
"""The last event that was loaded, in the database and in its tables."""
ENDPOINT = "repl.failover.endpoint"
"""A planned fail-over is running: the database is its ``SOURCE``, or its ``TARGET``, which may be written."""
TAKEN_OVER = "repl.background.enable"
"""Set by an operator when a target has taken over: then Hive compacts it, and this library writes to it."""
READ_ONLY = "readonly"
"""``true``: Hive's hook EnforceReadOnlyDatabaseHook refuses changes. REPL LOAD sets it if the hook is on."""
FAILBACK_BEGUN = "repl.metrics.last.failback.starttime"
"""Set by the first REPL LOAD that turns a source into a target, in milliseconds."""
FAILBACK_ENDED = "repl.metrics.last.failback.endtime"
"""Set by the second REPL LOAD, which also sets ``repl.target.for``."""

_OF_TABLE = re.compile(r"repl\.last\.id|hive\.repl\..*|repl\.(?:target|incoming)\..*", re.IGNORECASE)


def why_not_writable(database: Mapping[str, str], table: Mapping[str, str]) -> str | None:
    """Return the reason why only a replication may write to a table; None if others may write too.

    Args:
        database: properties of its database.
        table: properties of the table.
    """
    if _is(database, ENDPOINT, "SOURCE"):
        return (
            f"its database is failing over ({_shown(database, ENDPOINT)}), and anything written there now "
            "would not be replicated: write to the database that takes over"
        )
    if _is(database, READ_ONLY, "true"):
        return f"its database is read-only ({_shown(database, READ_ONLY)})"
    if has_taken_over(database):
        return None
    if is_target(database):
        mark = TARGET_FOR if database.get(TARGET_FOR) else LAST_EVENT
        return (
            f"its database is the target of a replication ({_shown(database, mark)}), and only the "
            "replication may write to it. If it has taken over from its source, mark it: ALTER DATABASE … "
            f"SET DBPROPERTIES ('{TAKEN_OVER}'='true')"
        )
    if is_becoming_target(database):
        return (
            f"its database is becoming the target of a replication ({_shown(database, FAILBACK_BEGUN)}, "
            f"without a later {FAILBACK_ENDED!r}), and anything written there now would be lost: write to "
            "the database that has taken over"
        )
    of_table = marks_of_replica(table)
    if of_table and not database.get(SOURCE_FOR):
        return f"it is the target of a replication (property {of_table[0]!r}), and only that may write to it"
    return None


def marks_of_replica(table: Mapping[str, str]) -> list[str]:
    """Return the table's properties that a replication left there, sorted."""
    return sorted(name for name in table if _OF_TABLE.fullmatch(name))


def is_target(database: Mapping[str, str]) -> bool:
    """Return True if a replication loads into such a database, or did so until a fail-over."""
    return bool(database.get(TARGET_FOR) or database.get(LAST_EVENT))


def is_becoming_target(database: Mapping[str, str]) -> bool:
    """Return True if the first of two loads that turn this source into a target has run."""
    return not is_target(database) and _time(database, FAILBACK_BEGUN) > _time(database, FAILBACK_ENDED)


def has_taken_over(database: Mapping[str, str]) -> bool:
    """Return True if a fail-over has opened a target with these properties to other writers."""
    return bool(database.get(TAKEN_OVER)) or _is(database, ENDPOINT, "TARGET")


def _is(parameters: Mapping[str, str], name: str, value: str) -> bool:
    return (parameters.get(name) or "").strip().upper() == value.upper()


def _time(parameters: Mapping[str, str], name: str) -> int:
    text = (parameters.get(name) or "").strip()
    return int(text) if text.isdecimal() else 0


def _shown(parameters: Mapping[str, str], name: str) -> str:
    return f"property {name!r} is {parameters[name]!r}"


ORC_CLASSES = {
    "serde": "org.apache.hadoop.hive.ql.io.orc.OrcSerde",
    "input_format": "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
    "output_format": "org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat",
}

_COMPRESSIONS = {"NONE": "none", "ZLIB": "zlib", "SNAPPY": "snappy", "LZ4": "lz4"}
"""``orc.compress`` -> the writer's codec. Other values (LZO; ZSTD, which readers before Hive 4 reject) become
zlib.
"""

_BLOOM_KINDS = frozenset(["smallint", "int", "bigint", "string", "varchar", "float", "double", "decimal"])
"""Types for which Hive's reader and the encoder agree on the bits of Bloom filters.

For dates and timestamps before 1582 they do not, so Hive would skip rows that exist (measured on 2.3, 3.1 and
4.1). For tinyint, ORC's C++ encoder (up to the one of pyarrow 26) adds other values than the first eighth of
each batch, since it packs the values in place first; Hive then skips these rows (measured on all releases).
Hive does not use the filter of a char.
"""

_BUCKETING_VERSIONS = {"": 1, "1": 1, "2": 2}


def check_mutable(
    table: TableInfo, capabilities: Capabilities, role: TableRole, database: Mapping[str, str] | None = None
) -> AcidVersion:
    """Check that a table can be written (or read, as a source), and return its format.

    Args:
        table: the table as the server describes it.
        capabilities: the server's capabilities.
        role: shows whether the table will be written to. Reading a replica is always allowed.
        database: properties of its database. If None, only the table's own properties are checked.

    Returns:
        The layout of the table's files.

    Raises:
        TableNotMutableError: If the table violates a rule; the message names the first one.
    """
    _check_kind(table)
    _check_orc(table)
    version = _version(table, capabilities)
    _check_buckets(table, version)
    bucketing_version_of(table, version)
    _check_columns(table)
    if role is TableRole.SINK:
        _check_sink(table, database or {})
    return version


def bucketing_version_of(table: TableInfo, version: AcidVersion) -> int:
    """Return which of Hive's bucket hashes (1 or 2) is used for new rows of the table.

    A server without write ids ignores the property and uses the old hash.

    Raises TableNotMutableError if the property has a value other than 1 or 2.
    """
    if not version.uses_write_ids:
        return 1
    text = _parameter(table, "bucketing_version").strip()
    if text not in _BUCKETING_VERSIONS:
        raise _refusal(table, f"bucketing_version={text!r} is not known; expected none, '1' or '2'")
    return _BUCKETING_VERSIONS[text]


def compression_of(table: TableInfo) -> str:
    """Return the writer's codec for the table: ``zlib``, ``snappy``, ``lz4`` or ``none``."""
    return _COMPRESSIONS.get(_parameter(table, "orc.compress").upper(), "zlib")


def bloom_filters_of(table: TableInfo) -> BloomFilters:
    """Return the Bloom filters that ``orc.bloom.filter.columns`` and ``orc.bloom.filter.fpp`` request.

    Other names than those of data columns are ignored, as by Hive. So are columns of other types than
    ``_BLOOM_KINDS``.
    """
    named = {name.strip().lower() for name in _parameter(table, "orc.bloom.filter.columns").split(",")}
    found = ((column.name.lower(), parse_hive_type(column.type).kind) for column in table.columns)
    columns = tuple(name for name, kind in found if name in named and kind in _BLOOM_KINDS)
    try:
        fpp = float(_parameter(table, "orc.bloom.filter.fpp"))
    except ValueError:
        return BloomFilters(columns)
    return BloomFilters(columns, fpp) if 0 < fpp < 1 else BloomFilters(columns)


def _check_kind(table: TableInfo) -> None:
    if table.table_type != "MANAGED_TABLE" or _flag(table, "EXTERNAL"):
        raise _refusal(
            table,
            f"it must be a managed table, but it is {table.table_type}{_why_external(table)}"
            f"{_way_out(table)}",
        )
    if not _flag(table, "transactional"):
        found = _parameter(table, "transactional") or "absent"
        raise _refusal(
            table,
            f"it must be transactional, but the property 'transactional' is {found}{_way_out(table)}",
        )


def _why_external(table: TableInfo) -> str:
    if _flag(table, "TRANSLATED_TO_EXTERNAL"):
        return ": Hive 4 creates a managed table that is not transactional as an external one"
    return ""


def _way_out(table: TableInfo) -> str:
    """Return advice on a table that is not transactional.

    Hive converts an ORC table in place. This is not offered for a table that was created as external on
    purpose, since Hive would then own its files.
    """
    if table.table_type not in ("MANAGED_TABLE", "EXTERNAL_TABLE"):
        return ""
    copy = (
        "; create a transactional table (hive-mutate create-table) and copy the rows by Hive's "
        "INSERT … SELECT"
    )
    is_managed = table.table_type == "MANAGED_TABLE" and not _flag(table, "EXTERNAL")
    is_orc = all(getattr(table, attribute) == expected for attribute, expected in ORC_CLASSES.items())
    if not is_orc or not (is_managed or _flag(table, "TRANSLATED_TO_EXTERNAL")):
        return copy
    properties = "'transactional'='true'" if is_managed else "'transactional'='true', 'EXTERNAL'='FALSE'"
    alter = f"ALTER TABLE {table.full_name} SET TBLPROPERTIES ({properties})"
    return f"{copy}, or convert this one, for good: {alter}"


def _check_orc(table: TableInfo) -> None:
    for attribute, expected in ORC_CLASSES.items():
        found = getattr(table, attribute)
        if found != expected:
            raise _refusal(
                table, f"it must be stored as ORC: {attribute} must be {expected}, but it is {found}"
            )


def _version(table: TableInfo, capabilities: Capabilities) -> AcidVersion:
    text = _parameter(table, "transactional_properties").strip().lower()
    if text not in TRANSACTIONAL_PROPERTIES:
        known = ", ".join(repr(word) for word in TRANSACTIONAL_PROPERTIES if word)
        raise _refusal(table, f"transactional_properties={text!r} is not known; expected none, {known}")
    version = AcidVersion.of_table(
        text, has_write_ids=capabilities.has_write_ids, is_hive_4=capabilities.has_exclusive_write_lock
    )
    if version is None:
        raise _refusal(
            table,
            f"its server (which reports version {capabilities.version}) does not know "
            f"transactional_properties={text!r}",
        )
    return version


def _check_buckets(table: TableInfo, version: AcidVersion) -> None:
    is_bucketed = bool(table.bucket_columns)
    if not is_bucketed and not version.may_be_unbucketed:
        raise _refusal(
            table, "it must be bucketed (CLUSTERED BY … INTO n BUCKETS), as ACID tables of Hive 2 must be"
        )
    if is_bucketed != (table.num_buckets > 0):
        raise _refusal(
            table,
            f"its bucketing is contradictory: bucketed into {table.num_buckets} by "
            f"{', '.join(table.bucket_columns) or 'no column'}",
        )
    if table.num_buckets > MAX_BUCKETS:
        raise _refusal(table, f"it has {table.num_buckets} buckets; a ROW__ID supports at most {MAX_BUCKETS}")
    unknown = sorted({b.lower() for b in table.bucket_columns} - {c.name.lower() for c in table.columns})
    if unknown:
        raise _refusal(table, f"it is clustered by {', '.join(unknown)}, but has no such column")


def _check_columns(table: TableInfo) -> None:
    names = [c.name.lower() for c in (*table.columns, *table.partition_keys)]
    doubled = repeated(names)
    if doubled:
        raise _refusal(table, f"column {doubled[0]!r} occurs more than once")
    for column in table.columns:
        _parsed(table, column)
    for key in table.partition_keys:
        if not _parsed(table, key).facts.is_partition_key:
            raise _refusal(
                table, f"partition key {key.name!r} has type {key.type}, whose values have no string form"
            )


def _check_sink(table: TableInfo, database: Mapping[str, str]) -> None:
    replicated = why_not_writable(database, table.parameters)
    if replicated is not None:
        raise _refusal(table, replicated)
    if table.sort_columns:
        raise _refusal(
            table, f"it is sorted (SORTED BY {', '.join(table.sort_columns)}); ACID files have another order"
        )
    if table.skewed_columns:
        raise _refusal(
            table,
            f"it is skewed (SKEWED BY {', '.join(table.skewed_columns)}); list bucketing has another layout",
        )


def _parsed(table: TableInfo, column: ColumnInfo) -> HiveType:
    try:
        hive_type = parse_hive_type(column.type)
        arrow_type(hive_type)
    except (MutationError, ValueError) as error:
        raise _refusal(table, f"column {column.name!r} has type {column.type!r}: {error}") from error
    return hive_type


def _refusal(table: TableInfo, rule: str) -> TableNotMutableError:
    return TableNotMutableError(f"table {table.full_name} cannot be used: {rule}")


def _flag(table: TableInfo, name: str) -> bool:
    return _parameter(table, name).strip().lower() == "true"


def _parameter(table: TableInfo, name: str) -> str:
    """Return a table property; Hive compares property names case-insensitively."""
    return _first(table.parameters, (k for k in table.parameters if k.lower() == name.lower()))


def _first(parameters: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((parameters[k] or "" for k in keys), "")
