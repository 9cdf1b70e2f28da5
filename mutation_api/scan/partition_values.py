"""Values of partitions: conditions on them, and the values of the partition columns in a partition's rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mutation_api.errors import ConfigurationError
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import parse_partition_name
from mutation_api.table.partition_value import partition_value, stored_partition_value
from mutation_api.types.hive_type import parse_hive_type

__all__ = [
    "PartitionCondition",
    "matching_partitions",
]

PartitionCondition = tuple[str, object]
"""A partition column (in any case) and the value it must have."""


def matching_partitions(
    table: AcidTable, names: Iterable[str], conditions: Sequence[PartitionCondition]
) -> list[str]:
    """The partitions for which all conditions hold.

    Args:
        table: table of the partitions.
        names: escaped names of the partitions.
        conditions: all must hold, also if several are on one column. A text is parsed as the column's type,
            as Hive does (``("hr", "1")`` finds ``hr=01``). Any other value is compared as it is, with the
            type that :func:`~mutation_api.table.partition_value.partition_value` returns. None, '' and the
            name of the default partition mean the default partition.

    Raises:
        ConfigurationError: the table lacks the partition column.
        RecordValueError: a text cannot be parsed as the column's type.
    """
    types = [parse_hive_type(key.type) for key in table.partition_keys]
    wanted = [_typed(table, *condition) for condition in conditions]

    def matches(name: str) -> bool:
        texts = parse_partition_name(name)
        return all(
            stored_partition_value(texts[at], types[at], table.null_partition_text) == value
            for at, value in wanted
        )

    return [name for name in names if matches(name)]


def _typed(table: AcidTable, name: str, value: object) -> tuple[int, object]:
    """Index of the partition column of a condition, and its typed value."""
    try:
        at = table.partition_key_names.index(name.strip().lower())
    except ValueError:
        raise ConfigurationError(
            f"where_partition {name}={value}: table {table.full_name} has the partition columns "
            f"{', '.join(table.partition_key_names) or '(none)'}"
        ) from None
    hive_type = parse_hive_type(table.partition_keys[at].type)
    if isinstance(value, str):
        value = partition_value(value, hive_type, table.null_partition_text)
    return at, value
