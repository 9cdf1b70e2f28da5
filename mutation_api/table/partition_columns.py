"""Partition columns as Arrow: their types, and their values in the rows of a partition. Pure."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import parse_partition_name
from mutation_api.table.partition_value import stored_partition_value
from mutation_api.types.hive_type import arrow_type, parse_hive_type

__all__ = ["partition_scalars", "partition_type"]


def partition_type(key: AcidColumn) -> pa.DataType:
    """Arrow type of a partition column. Timestamps have microseconds, the finest unit that is parsed."""
    return arrow_type(parse_hive_type(key.type), timestamp_unit="us")


def partition_scalars(
    table: AcidTable, name: str, wanted: Collection[AcidColumn] | None = None
) -> dict[str, pa.Scalar]:
    """Typed values of the partition columns in a partition's rows; empty for an unpartitioned table.

    Only the texts of ``wanted`` columns are parsed; None for all.

    A text that is no value of its column's type is NULL, as in Hive.

    Raises:
        RecordValueError: a timestamp has nanoseconds, or the column's type is none of a partition column.
    """
    texts = parse_partition_name(name) if table.partition_keys else ()
    return {
        key.name: pa.scalar(
            stored_partition_value(text, parse_hive_type(key.type), table.null_partition_text),
            partition_type(key),
        )
        for key, text in zip(table.partition_keys, texts, strict=True)
        if wanted is None or key in wanted
    }
