"""Operations in parts as DataFrames: Spark's tasks read the parts."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.parts import OperationParts
from mutation_api.inputs.source import (
    OPERATION,
    POSITION,
    Batch,
    LocalBatch,
    LocalOperations,
    TableOperations,
)
from mutation_api.spark.credentials import worker_settings
from mutation_api.spark.jvm import spark_context
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.hive_type import parse_hive_type, spark_type

__all__ = ["check_machines", "each_in_tasks", "in_tasks"]

T = TypeVar("T")

_TASKS_PER_CORE = 4
_ONE_MACHINE = "local"
"""Prefix of the Spark masters whose tasks all run on this machine."""


def in_tasks(spark: SparkSession, batch: LocalBatch) -> Batch:
    """See :func:`mutation_api.inputs.engines.choice.in_tasks`."""
    tables = tuple(
        TableOperations(each.table, _frame(spark, each), each.is_emptied, each.is_copy)
        for each in batch.tables
    )
    return Batch(tables, batch.position, batch.stop, batch.set_back, batch.warnings)


def each_in_tasks(
    spark: SparkSession, look: Callable[[int], T], count: int, locations: Sequence[Location], what: str
) -> list[T]:
    """See :func:`mutation_api.inputs.engines.choice.each_in_tasks`."""
    with translated_worker_errors(what):
        found = _tasks(spark, count).mapInArrow(
            _Looking(look, worker_settings(spark_context(spark), locations)), "number bigint, found binary"
        )
        rows = found.orderBy("number").collect()
    return [pickle.loads(row["found"]) for row in rows]


def check_machines(spark: SparkSession, what: str) -> None:
    """Raise ConfigurationError if Spark's machines do not see this machine's folder for temporary files."""
    master = spark_context(spark).master or _ONE_MACHINE
    if not master.startswith(_ONE_MACHINE):
        raise ConfigurationError(
            f"{what}: Spark runs on {master}, whose machines do not see the folder for temporary files of "
            f"this one, {tempfile.gettempdir()}: name a folder that all of them see, for rows until they are "
            "applied (--spill, spill_directory), such as hdfs:///tmp"
        )


def _frame(spark: SparkSession, given: LocalOperations) -> DataFrame:
    parts = given.operations
    assert isinstance(parts, OperationParts)
    if parts.is_of_this_machine:
        check_machines(spark, f"source table {given.table.name}")
    reader = _PartReader(parts, worker_settings(spark_context(spark), parts.locations))
    return _tasks(spark, parts.part_count).mapInArrow(reader, _schema(given.table.target, parts.position))


def _tasks(spark: SparkSession, count: int) -> DataFrame:
    """The numbers 0 to ``count``, for as many tasks as are worth their start."""
    tasks = min(count, _TASKS_PER_CORE * spark_context(spark).defaultParallelism)
    return spark.range(0, count, 1, max(tasks, 1))


def _schema(table: AcidTable, position: Sequence[str]) -> str:
    """Spark's DDL of operations."""
    numbers = ",".join(f"{name}:bigint" for name in position)
    columns = [f"{quoted(c.name)} {spark_type(parse_hive_type(c.type))}" for c in table.all_columns]
    return ", ".join([f"{OPERATION} string", f"{POSITION} struct<{numbers}>", *columns])


@dataclass(frozen=True)
class _PartReader:
    """The function that runs in tasks: numbers of parts in, batches of operations out."""

    parts: OperationParts
    storage: HadoopSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        configure_storage(self.storage)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.parts.read(number)


@dataclass(frozen=True)
class _Looking(Generic[T]):
    """The function that runs in tasks: numbers in, what a function finds there out."""

    look: Callable[[int], T]
    storage: HadoopSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        configure_storage(self.storage)
        for batch in batches:
            numbers = batch.column(0)
            found = [pickle.dumps(self.look(number)) for number in numbers.to_pylist()]
            yield pa.record_batch([numbers, pa.array(found, pa.binary())], names=["number", "found"])
