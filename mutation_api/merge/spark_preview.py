"""The preview of a merge of DataFrames. See :mod:`mutation_api.merge.preview`."""

from __future__ import annotations

from functools import reduce

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from mutation_api.merge.preview import (
    SAMPLES_DEFAULT,
    SHOWN_KINDS,
    Preview,
    SampleRow,
    foreign_locks,
    row_values,
)
from mutation_api.spark.plan import forecast_changes
from mutation_api.spark.versions import collected
from mutation_api.table.row_type import quoted
from mutation_api.write.staged_writer import LookingTransaction

__all__ = ["preview_changes", "sample_rows"]

_SIDES = ("before", "after")


def preview_changes(
    transaction: LookingTransaction,
    table_name: str,
    changes: DataFrame,
    rows: DataFrame | None = None,
    *,
    operation_column: str,
    samples: int = SAMPLES_DEFAULT,
    num_partitions: int | None = None,
    insert_files: int | None = None,
) -> Preview:
    """Return the forecast, locks and samples of a change set, without writing it.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table_name: ``database.table``.
        changes: the change set for apply_changes. It is evaluated twice, so cache it.
        rows: see :func:`sample_rows`. If None, there are no samples.
        operation_column: name of the operation column of ``changes``.
        samples: number of rows of each kind.
        num_partitions: see apply_changes. The files of unbucketed tables depend on it.
        insert_files: see apply_changes.

    Raises:
        Errors: Those that :func:`mutation_api.apply_changes` raises before it writes. The caller translates
            the errors of workers.
    """
    table = transaction.table(table_name)
    forecast = forecast_changes(
        table,
        changes,
        transaction.valid_ids(table.full_name),
        num_partitions=num_partitions,
        insert_files=insert_files,
        operation_column=operation_column,
    )
    touched = {group.partition for group in forecast.groups}
    return Preview(
        forecast,
        foreign_locks(transaction.other_locks(table.full_name), touched) if touched else (),
        () if rows is None else sample_rows(rows, samples),
    )


def sample_rows(rows: DataFrame, per_kind: int) -> tuple[SampleRow, ...]:
    """Return some rows of each kind: those with the least partition and key. Runs one job.

    The result is the same each time, however the rows are distributed over tasks.

    Args:
        rows: columns ``kind`` (field of MergeCounts), ``partition``, ``key`` (string), ``before`` and
            ``after`` (structs, null if the row does not exist, or a column of nulls of another type).
        per_kind: the maximum number of rows of a kind. 0 returns none.

    Returns:
        The rows by kind (inserted, updated, deleted, moved), then by partition and key. Unchanged rows are
        not included.
    """
    if per_kind < 1:
        return ()
    order = sf.struct(
        sf.col("partition"),
        sf.col("key"),
        sf.xxhash64(*_hashable(rows.schema)).alias("content"),  # several rows may have NULL keys
    )
    sides = [sf.col(side).cast(_nullable(rows.schema[side].dataType)).alias(side) for side in _SIDES]
    shown = rows.select("kind", "partition", "key", *sides, order.alias("order"))
    # Spark keeps only the least rows of each task, since a limit follows the order.
    least = [shown.where(sf.col("kind") == kind).orderBy("order").limit(per_kind) for kind in SHOWN_KINDS]
    found = collected(reduce(DataFrame.unionAll, least).drop("order"))
    return tuple(
        SampleRow(kind.as_py(), partition.as_py() or None, key.as_py(), row_values(before), row_values(after))
        for kind, partition, key, before, after in zip(*found.columns, strict=True)
    )


def _hashable(schema: StructType) -> list[Column]:
    """Return the fields of both structs that Spark can hash: those without maps."""
    fields: list[Column] = [sf.lit(0)]
    for side in _SIDES:
        kind = schema[side].dataType
        for field in kind.fields if isinstance(kind, StructType) else ():
            if "map<" not in field.dataType.simpleString():
                fields.append(sf.col(quoted(side, field.name)))
    return fields


def _nullable(kind: DataType) -> DataType:
    """Return the type with all fields nullable. toArrow refuses a null struct with fields that are not."""
    match kind:
        case StructType():
            return StructType([StructField(f.name, _nullable(f.dataType)) for f in kind.fields])
        case ArrayType():
            return ArrayType(_nullable(kind.elementType))
        case MapType():
            return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
        case _:
            return kind
