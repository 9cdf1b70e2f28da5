"""Reduce a log of operations to the last one of each key, which has the same effect as replaying the log.

This is Spark's way; :mod:`~mutation_api.cdc.local_engine` does the same in this process.

The operations of a key are brought together once and sorted. One pass in that order (:mod:`log_walk`) finds
the first and last operation of each key, and operations that cannot follow the one before: an insert after an
insert or update, an update or delete after a delete. These contradictions are counted. They are normal if a
log is read again, and the last operation takes effect nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from mutation_api.cdc.ingest_report import (
    OPERATIONS,
    SAMPLES_SHOWN,
    SINGULARS,
    Contradictions,
    log_contradicts_itself,
)
from mutation_api.cdc.log_walk import (
    CONTRADICTION,
    CONTRADICTION_POSITION,
    CONTRADICTIONS,
    DOUBLED_POSITION,
    FINDINGS,
    FIRST_OPERATION,
    FIRST_POSITION,
    NO_KEY,
    NO_OPERATION,
    NOT_ORDERED,
    OPERATION_COUNT,
    LogWalk,
    doubled_texts,
)
from mutation_api.errors import ConfigurationError, ContradictionError, RecordLayoutError, RecordValueError
from mutation_api.merge.spark_columns import json_text, key_json
from mutation_api.spark.frame_table import counted_by_rows
from mutation_api.spark.plan import default_num_partitions
from mutation_api.spark.worker_errors import raised_in_job, translated_worker_errors
from mutation_api.table.row_type import quoted

_ORDER = "__order"


@dataclass(frozen=True)
class LogReduction:
    """A reduced log, with what was found while reducing it.

    ``rows`` has one row for each key and is cached: the columns of the operations without those of their
    order, then FIRST_OPERATION and FIRST_POSITION. ``outcomes`` counts the keys by their first and last
    operation. ``contradictions`` counts those within the log.
    """

    rows: DataFrame
    operation_count: int
    outcomes: Mapping[tuple[str, str], int]
    contradictions: Contradictions

    @property
    def key_count(self) -> int:
        """The number of keys, which is the number of rows."""
        return sum(self.outcomes.values())


def latest_operations(
    operations: DataFrame,
    key: Sequence[str],
    order_by: str | Sequence[str],
    *,
    operation_column: str = "operation",
) -> DataFrame:
    """Return the last operation of each key; no job runs yet.

    Applying the result to a table has the same effect as replaying all operations in their order. A
    ``delete`` then removes the key's row, and other operations give it the row's values.
    :func:`open_log_reduction` reports contradictions.

    Args:
        operations: rows with an operation ``insert``, ``update`` or ``delete``, and any other columns.
        key: columns that identify a row of the table; their values must not be null.
        order_by: columns that order the operations of one key; a later operation has greater values. They may
            be structs of numbers. No two operations of one key may have the same values.
        operation_column: name of the column that holds the operation.

    Returns:
        All columns of ``operations`` in their order, without those of ``order_by``.

    Raises:
        ConfigurationError: If no key or no order is given.
        RecordLayoutError: If ``operations`` lacks a column, or if the values of a key column cannot be
            compared.
        RecordValueError: If a key, a position or an operation is not valid (raised in the job). Names
            position and key.
        ContradictionError: If two operations on one key have the same position (raised in the job).
    """
    log = _Log.of(operations, key, order_by, operation_column)
    return log.last().select(*log.columns)


@contextmanager
def open_log_reduction(
    operations: DataFrame,
    key: Sequence[str],
    order_by: str | Sequence[str],
    *,
    operation_column: str = "operation",
    strict: bool = False,
    what: str = "the log",
) -> Iterator[LogReduction]:
    """Reduce as :func:`latest_operations` does, in one job that also counts; cached within the block.

    Args:
        operations: see :func:`latest_operations`.
        key: see :func:`latest_operations`.
        order_by: see :func:`latest_operations`.
        operation_column: see :func:`latest_operations`.
        strict: refuse a log that contradicts itself.
        what: name of the log in messages.

    Raises:
        ContradictionError: If operations cannot follow one another, and ``strict`` is set. Lists some.
        Others: See :func:`latest_operations`.
    """
    log = _Log.of(operations, key, order_by, operation_column)
    with counted_by_rows(operations.sparkSession):
        rows = log.last().persist()
    try:
        with translated_worker_errors(f"{what}: reducing the operations"):
            with counted_by_rows(operations.sparkSession):
                found = log.counted(rows)
            if strict and found.contradictions.total:
                raise log_contradicts_itself(what, found.contradictions, log.samples(rows))
        yield found
    finally:
        rows.unpersist()


@dataclass(frozen=True)
class _Log:
    """Operations whose columns were checked; names are spelled as in the DataFrame."""

    operations: DataFrame
    key: tuple[str, ...]
    order: tuple[str, ...]
    operation: str

    @classmethod
    def of(
        cls, operations: DataFrame, key: Sequence[str], order_by: str | Sequence[str], operation_column: str
    ) -> _Log:
        order = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        if not key or not order:
            raise ConfigurationError(
                f"key={list(key)}, order_by={list(order)}: name at least one column for each"
            )
        names = {field.name.lower(): field.name for field in operations.schema.fields}
        unknown = [name for name in (*key, *order, operation_column) if name.lower() not in names]
        if unknown:
            raise RecordLayoutError(
                f"the operations lack columns {', '.join(unknown)}; they have {', '.join(operations.columns)}"
            )
        log = cls(
            operations,
            tuple(names[name.lower()] for name in key),
            tuple(names[name.lower()] for name in order),
            names[operation_column.lower()],
        )
        for name in log.key:
            _check_key_type(name, operations.schema[name].dataType)
        return log

    @property
    def columns(self) -> list[Column]:
        """All columns of the operations except those of their order."""
        return [_column(name) for name in self.operations.columns if name not in self.order]

    def last(self) -> DataFrame:
        """Return the last operation of each key, with the findings of the walk."""
        # Each task compiles the sort again, which takes longer than sorting 10,000 operations.
        tasks = default_num_partitions(self.operations.sparkSession)
        keys = [_column(name) for name in self.key]
        in_order = self._checked().repartition(tasks, *keys).sortWithinPartitions(*keys, _ORDER)
        # pyspark takes a dot in a column name for a field of a struct, so the columns get plain names.
        plain = in_order.toDF(*(f"c{number}" for number in range(len(in_order.columns))))
        walk = LogWalk(
            tuple(map(in_order.columns.index, self.key)),
            in_order.columns.index(self.operation),
            len(in_order.columns) - 1,
        )
        walked = plain.mapInArrow(walk.__call__, _walked_type(plain.schema))
        found = walked.toDF(*in_order.columns[:-1], *FINDINGS)
        before, behind = doubled_texts(self._position_names)
        doubled = raised_in_job(
            ContradictionError,
            "two operations on key ",
            self._key_text(),
            f" {before}",
            json_text(sf.col(DOUBLED_POSITION), found.schema[DOUBLED_POSITION].dataType),
            behind,
        )
        # In the filter, which always runs: Spark does not evaluate a column that nothing reads.
        return found.where(
            sf.when(sf.col(DOUBLED_POSITION).isNotNull(), doubled.cast("boolean")).otherwise(True)
        )

    def counted(self, rows: DataFrame) -> LogReduction:
        """Count the reduced rows; runs the job that fills their cache."""
        sums = [sf.sum(name).alias(name) for name in (OPERATION_COUNT, *CONTRADICTIONS)]
        groups = (
            rows.groupBy(FIRST_OPERATION, _column(self.operation).alias("last"))
            .agg(sf.count(sf.lit(1)).alias("keys"), *sums)
            .collect()
        )
        return LogReduction(
            rows.select(*self.columns, FIRST_OPERATION, FIRST_POSITION),
            sum(group[OPERATION_COUNT] for group in groups),
            {(group[FIRST_OPERATION], group["last"]): group["keys"] for group in groups},
            Contradictions(*(sum(group[name] for group in groups) for name in CONTRADICTIONS)),
        )

    def samples(self, rows: DataFrame) -> list[str]:
        """Return some of the keys with contradictions, each with the position of its first contradiction."""
        found = rows.where(sf.col(CONTRADICTION).isNotNull()).select(
            self._key_text().alias("key"),
            sf.col(CONTRADICTION).alias("kind"),
            json_text(sf.col(CONTRADICTION_POSITION), rows.schema[CONTRADICTION_POSITION].dataType).alias(
                "order"
            ),
        )
        shown = found.orderBy("order", "key").limit(SAMPLES_SHOWN).collect()
        return [f"{SINGULARS[row['kind']]} key {row['key']} at {row['order']}" for row in shown]

    def _checked(self) -> DataFrame:
        operation = _column(self.operation)
        order = sf.struct(*[_column(name).alias(name.lstrip("_")) for name in self.order])
        missing = [_column(name).isNull() for name in self.key]
        said = sf.to_json(sf.struct(operation.alias("operation")), {"ignoreNullFields": "false"})
        where: list[Column | str] = ["operation ", said, ", key ", self._key_text()]
        where += [
            ", position ",
            json_text(order, self.operations.select(order.alias("o")).schema["o"].dataType),
        ]
        wrong = (
            sf.when(
                reduce(Column.__or__, missing),
                raised_in_job(RecordValueError, *where, f": {NO_KEY}"),
            )
            .when(
                reduce(Column.__or__, [_column(name).isNull() for name in self.order]),
                raised_in_job(RecordValueError, *where, f": {NOT_ORDERED}"),
            )
            .when(
                ~sf.coalesce(operation.isin(*OPERATIONS), sf.lit(False)),
                raised_in_job(RecordValueError, *where, f": {NO_OPERATION}"),
            )
        )
        kept = self.operations.where(wrong.cast("boolean").isNull())
        return kept.select(*self.columns, order.alias(_ORDER))

    @property
    def _position_names(self) -> list[str]:
        """The names of a position's numbers."""
        types = [self.operations.schema[name].dataType for name in self.order]
        return [name for each in types if isinstance(each, StructType) for name in each.names]

    def _key_text(self) -> Column:
        return key_json(self.key, self.operations.schema)


def _walked_type(rows: StructType) -> StructType:
    """Return the type of the rows that LogWalk returns for operations whose last column is their position."""
    *data, position = rows.fields
    numbers, texts = (OPERATION_COUNT, *CONTRADICTIONS), (FIRST_OPERATION, CONTRADICTION)
    types: dict[str, DataType] = dict.fromkeys(FINDINGS, position.dataType)
    types |= dict.fromkeys(numbers, LongType()) | dict.fromkeys(texts, StringType())
    return StructType([*data, *(StructField(name, each) for name, each in types.items())])


def _check_key_type(name: str, data_type: DataType) -> None:
    if any(word in data_type.simpleString() for word in ("map<", "variant", " collate ")):
        raise RecordLayoutError(
            f"key column {name!r} has the type {data_type.simpleString()}, whose values cannot be compared"
        )


def _column(name: str) -> Column:
    return sf.col(quoted(name))
