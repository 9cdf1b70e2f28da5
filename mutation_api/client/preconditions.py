"""Is the table mutable? Pure; each refusal names the table, the rule, and what was found.

Every rule is checked before a transaction is opened, and once more under its lock.

Source: Hive's TransactionalValidationListener and AcidUtils (2.3); insert-only, replica and external tables
follow other rules than the ones this package knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from metastore_client.capabilities import Capabilities
from metastore_client.model import ColumnInfo, TableInfo
from mutation_api.acid.version import AcidVersion
from mutation_api.errors import MutationError, TableNotMutableError
from mutation_api.table.acid_table import TableRole
from mutation_api.table.hive_types import HiveType, arrow_type, parse_hive_type

__all__ = ["MAX_BUCKETS", "check_mutable", "compression_of"]

MAX_BUCKETS = 4096
"""Hive's BucketCodec has 12 bits for the bucket id."""

ORC_CLASSES = {
    "serde": "org.apache.hadoop.hive.ql.io.orc.OrcSerde",
    "input_format": "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
    "output_format": "org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat",
}

_COMPRESSIONS = {"NONE": "uncompressed", "ZLIB": "zlib", "SNAPPY": "snappy", "LZ4": "lz4"}
"""``orc.compress`` -> codec of the writer. What is missing (LZO; ZSTD, which readers below Hive 4 reject)
becomes zlib.
"""

_VERSIONS = {"": AcidVersion.V1_LEGACY, "legacy": AcidVersion.V1_LEGACY, "default": AcidVersion.V1_SPLIT}
_NESTED_KINDS = frozenset({"array", "map", "struct", "uniontype"})
_REPLICA_PARAMETER = re.compile(r"repl\.last\.id|hive\.repl\..*|repl\.(?:target|incoming)\..*", re.IGNORECASE)


def check_mutable(table: TableInfo, capabilities: Capabilities, role: TableRole) -> AcidVersion:
    """Decide whether, and in which format, a table can be written (or read, as a source).

    Returns:
        The layout of the table's events.

    Raises:
        TableNotMutableError: the first rule that the table breaks.
    """
    _check_server(table, capabilities)
    _check_kind(table)
    _check_orc(table)
    version = _version(table)
    _check_buckets(table)
    _check_columns(table)
    if role is TableRole.SINK:
        _check_sink(table)
    return version


def compression_of(table: TableInfo) -> str:
    """The writer's codec for the table: ``zlib``, ``snappy``, ``lz4`` or ``uncompressed``."""
    return _COMPRESSIONS.get(_parameter(table, "orc.compress").upper(), "zlib")


def _check_server(table: TableInfo, capabilities: Capabilities) -> None:
    if capabilities.has_write_ids:
        raise _refusal(
            table,
            f"the server (it calls itself {capabilities.version}) gives write ids, so it is Hive 3 or later, "
            "and this version writes the format of Hive 2 only",
        )


def _check_kind(table: TableInfo) -> None:
    if table.table_type != "MANAGED_TABLE" or _flag(table, "EXTERNAL"):
        raise _refusal(table, f"it must be a managed table, but it is {table.table_type}")
    if not _flag(table, "transactional"):
        found = _parameter(table, "transactional") or "absent"
        raise _refusal(table, f"it must be transactional, but the property 'transactional' is {found}")
    replica = sorted(k for k in table.parameters if _REPLICA_PARAMETER.fullmatch(k))
    if replica:
        raise _refusal(
            table, f"it is the target of a replication (property {replica[0]!r}), which alone may write it"
        )


def _check_orc(table: TableInfo) -> None:
    for attribute, expected in ORC_CLASSES.items():
        found = getattr(table, attribute)
        if found != expected:
            raise _refusal(
                table, f"it must be stored as ORC: {attribute} must be {expected}, but it is {found}"
            )


def _version(table: TableInfo) -> AcidVersion:
    text = _parameter(table, "transactional_properties").strip().lower()
    if text == "insert_only":
        raise _refusal(
            table, "it is insert-only (transactional_properties=insert_only): its files have no ROW__ID"
        )
    if text not in _VERSIONS:
        raise _refusal(
            table, f"transactional_properties={text!r} is not known; expected none, 'legacy' or 'default'"
        )
    return _VERSIONS[text]


def _check_buckets(table: TableInfo) -> None:
    if table.num_buckets < 1 or not table.bucket_columns:
        raise _refusal(
            table, "it must be bucketed (CLUSTERED BY … INTO n BUCKETS), as ACID tables of Hive 2 are"
        )
    if table.num_buckets > MAX_BUCKETS:
        raise _refusal(table, f"it has {table.num_buckets} buckets; at most {MAX_BUCKETS} can be told apart")
    unknown = sorted({b.lower() for b in table.bucket_columns} - {c.name.lower() for c in table.columns})
    if unknown:
        raise _refusal(table, f"it is clustered by {', '.join(unknown)}, which it does not have")


def _check_columns(table: TableInfo) -> None:
    names = [c.name.lower() for c in (*table.columns, *table.partition_keys)]
    doubled = sorted({n for n in names if names.count(n) > 1})
    if doubled:
        raise _refusal(table, f"column {doubled[0]!r} occurs more than once")
    for column in table.columns:
        _parsed(table, column)
    for key in table.partition_keys:
        kind = _parsed(table, key).kind
        if kind in _NESTED_KINDS or kind == "binary":
            raise _refusal(
                table, f"partition key {key.name!r} has type {key.type}, whose values have no text form"
            )


def _check_sink(table: TableInfo) -> None:
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
    """A table property; Hive compares these names without case."""
    return _first(table.parameters, (k for k in table.parameters if k.lower() == name.lower()))


def _first(parameters: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((parameters[k] or "" for k in keys), "")
