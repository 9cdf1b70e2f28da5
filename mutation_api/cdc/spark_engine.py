"""The engine that reads, reduces and merges a change source with Spark, for logs of any size.

Spark's tasks read the parts of a source, and return the operations as DataFrames.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from mutation_api.cdc.engine import (
    AnySource,
    Reading,
    ReducedTable,
    TargetBytes,
    check_operation_columns,
    operation_clauses,
)
from mutation_api.cdc.ingest_report import SAMPLES_SHOWN, LogCounts
from mutation_api.cdc.kept_changes import KeptChanges
from mutation_api.cdc.log_walk import FIRST_OPERATION, FIRST_POSITION
from mutation_api.cdc.reduce import LogReduction, open_log_reduction
from mutation_api.cdc.source import (
    CHANGED_AT,
    OPERATION,
    POSITION,
    Batch,
    ChangeSource,
    LocalBatch,
    LocalOperations,
    OperationParts,
    Position,
    SourceTable,
    TableOperations,
)
from mutation_api.errors import ConfigurationError
from mutation_api.format.event import DELETE, INSERT
from mutation_api.format.hive_type import parse_hive_type, spark_type
from mutation_api.merge.clauses import DUPLICATES_SHOWN_DEFAULT
from mutation_api.merge.history import HistoryReport, HistoryRules
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.source_rows import copied_keys_error
from mutation_api.merge.spark_columns import json_text, key_json
from mutation_api.merge.spark_history import add_to_history
from mutation_api.merge.spark_merge import MergeInto, merge_into
from mutation_api.spark.credentials import worker_settings
from mutation_api.spark.jvm import spark_context
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.row_type import quoted
from mutation_api.transaction.transaction import Transaction

NAME = "spark"


@dataclass(frozen=True)
class SparkEngine:
    """Reads sources with a Spark session."""

    spark: SparkSession

    def check(self, source: AnySource) -> None:
        """Do nothing, because Spark reads every source. See :func:`read_source`."""

    def read(
        self,
        source: AnySource,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        _target_bytes: TargetBytes,
    ) -> Reading:
        """Read the source. See :class:`~mutation_api.cdc.engine.Engine`."""
        return self.reading(read_source(self.spark, source, tables, after))

    def reading_in_tasks(self, batch: LocalBatch) -> Reading:
        """Return the reading of a batch whose operations Spark's tasks read."""
        return self.reading(in_tasks(self.spark, batch))

    def reading(self, batch: Batch) -> Reading:
        """Return the reading of a batch that was read by Spark."""
        logs = tuple(
            _SparkLog(each.table, each.is_emptied, each.operations, each.is_copy) for each in batch.tables
        )
        return Reading(NAME, logs, batch.position, batch.stop, batch.set_back, batch.warnings)


@dataclass(frozen=True)
class _SparkLog:
    """A :class:`~mutation_api.cdc.engine.TableLog`."""

    table: SourceTable
    is_emptied: bool
    operations: DataFrame
    is_copy: bool

    @property
    def column_names(self) -> Sequence[str]:
        return [name.lower() for name in self.operations.columns]

    @contextmanager
    def reduced(self, *, what: str, strict: bool, is_kept: bool = False) -> Iterator[_SparkReduced]:
        check_operation_columns(self.table, self.operations.columns)
        persists = is_kept and not self.operations.is_cached  # they are read again for each target
        if persists:
            self.operations.persist()
        try:
            with self._reduced(what, strict=strict) as reduced:
                yield reduced
        finally:
            if persists:
                self.operations.unpersist()

    def add_history(
        self, transaction: Transaction, kept: KeptChanges, rules: HistoryRules, *, dry_run: bool
    ) -> HistoryReport:
        return add_to_history(transaction, kept.target, rules, self._rows(kept), dry_run=dry_run)

    def add_changes(self, transaction: Transaction, kept: KeptChanges, *, dry_run: bool) -> MergeReport:
        on = (*self.table.key, kept.position)
        merge = merge_into(transaction, kept.target, source=self._rows(kept), on=on)
        merge.whenNotMatched().insertAll()
        return merge.dry_run(samples=0) if dry_run else merge.execute()

    def _rows(self, kept: KeptChanges) -> DataFrame:
        types = {field.name.lower(): field.dataType for field in self.operations.schema}
        fields = [StructField(name, types[name]) for name in kept.columns]
        fields.append(StructField(kept.operation, StringType()))
        fields.append(StructField(kept.position, StringType()))
        if kept.changed_at is not None:
            fields.append(StructField(kept.changed_at, types[kept.sequence or CHANGED_AT]))
        return self.operations.mapInArrow(kept, StructType(fields))

    @contextmanager
    def _reduced(self, what: str, *, strict: bool) -> Iterator[_SparkReduced]:
        log = open_log_reduction(
            self.operations.drop(CHANGED_AT),
            self.table.key,
            POSITION,
            operation_column=OPERATION,
            strict=strict and not self.is_copy,
            what=what,
        )
        with log as reduced:
            if self.is_copy and reduced.key_count < reduced.operation_count:
                self._refuse_doubled_keys(what)
            yield _SparkReduced(self.table, reduced, self.is_emptied)

    def _refuse_doubled_keys(self, what: str) -> None:
        """Raise DuplicateKeyError. The rows are read again for the message; a refusal may take longer."""
        keys = [sf.col(quoted(name)) for name in self.table.key]
        with translated_worker_errors(f"{what}: looking for duplicate keys"):
            doubled = self.operations.groupBy(*keys).count().where("count > 1")
            text = key_json(self.table.key, self.operations.schema).alias("key")
            rows = doubled.select(text).orderBy("key").limit(DUPLICATES_SHOWN_DEFAULT).collect()
            raise copied_keys_error(
                what, self.table.target.full_name, doubled.count(), [row["key"] for row in rows]
            )


@dataclass(frozen=True)
class _SparkReduced(ReducedTable):
    """A :class:`~mutation_api.cdc.engine.ReducedTable`."""

    table: SourceTable
    log: LogReduction
    is_emptied: bool

    @property
    def counts(self) -> LogCounts:
        return LogCounts(self.log.operation_count, self.log.outcomes, self.log.contradictions)

    def contradicting(self, transaction: Transaction) -> list[str]:
        """Return contradicting keys. They are looked up again for the message; a refusal may take longer."""
        key, name = self.table.key, self.table.target.full_name
        with translated_worker_errors(f"looking for contradictions with table {name}"):
            present = read_table(transaction, name, columns=key, spark=self.log.rows.sparkSession).select(
                *[sf.col(quoted(k)).alias(f"__{k}") for k in key], sf.lit(True).alias("__is_present")
            )
            if self.is_emptied:
                present = present.limit(0)
            same = [sf.col(quoted(k)) == sf.col(quoted(f"__{k}")) for k in key]
            is_insert = sf.col(FIRST_OPERATION) == INSERT
            wrong = self.log.rows.join(present, same, "left").where(
                is_insert == sf.coalesce("__is_present", sf.lit(False))
            )
            position = self.log.rows.schema[FIRST_POSITION].dataType
            shown = wrong.select(
                FIRST_OPERATION,
                key_json(key, self.log.rows.schema).alias("key"),
                json_text(sf.col(FIRST_POSITION), position).alias("order"),
            )
            rows = shown.orderBy("order", "key").limit(SAMPLES_SHOWN).collect()
        return [f"{row[FIRST_OPERATION]} of key {row['key']} at {row['order']}" for row in rows]

    def _merge(self, transaction: Transaction) -> MergeInto:
        merge = merge_into(
            transaction,
            self.table.target.full_name,
            source=self.log.rows.drop(FIRST_POSITION),
            on=self.table.key,
            missing_columns="error",
            count_by=FIRST_OPERATION,
        )
        is_delete = f"{quoted('source', OPERATION)} = '{DELETE}'"
        merge.clauses += operation_clauses(is_delete, f"NOT ({is_delete})", is_emptied=self.is_emptied)
        return merge


T = TypeVar("T")

_TASKS_PER_CORE = 4
_ONE_MACHINE = "local"
"""The prefix of the Spark masters whose tasks all run on this machine."""


def read_source(
    spark: SparkSession, source: AnySource, tables: Sequence[SourceTable], after: Mapping[str, Position]
) -> Batch:
    """Read a source by its own method for Spark. If it has none, Spark's tasks read its operations.

    Raises: See :meth:`ChangeSource.read`, and :func:`in_tasks`.
    """
    if isinstance(source, ChangeSource):
        return source.read(spark, tables, after)
    return in_tasks(spark, source.read_local(tables, after))


def in_tasks(spark: SparkSession, batch: LocalBatch) -> Batch:
    """Return the same batch, but read by Spark's tasks.

    Raises:
        ConfigurationError: If Spark's machines cannot access the data, or if the operations of the batch are
            not OperationParts, which tasks can read.
    """
    tables = tuple(
        TableOperations(each.table, _frame(spark, each), each.is_emptied, each.is_copy)
        for each in batch.tables
    )
    return Batch(tables, batch.position, batch.stop, batch.set_back, batch.warnings)


def each_in_tasks(
    spark: SparkSession, look: Callable[[int], T], count: int, locations: Sequence[Location], what: str
) -> list[T]:
    """Call a function for each number from 0 to ``count`` in Spark's tasks, and return its results.

    Args:
        spark: the session.
        look: the function, which is pickled.
        count: number of calls.
        locations: the locations that the function reads.
        what: name of the work in messages.

    Raises: The errors of the function.
    """
    with translated_worker_errors(what):
        found = _tasks(spark, count).mapInArrow(
            _Looking(look, worker_settings(spark_context(spark), locations)), "number bigint, found binary"
        )
        rows = found.orderBy("number").collect()
    return [pickle.loads(row["found"]) for row in rows]


def check_machines(spark: SparkSession, what: str) -> None:
    """Raise ConfigurationError if Spark's machines do not share this machine's temporary directory."""
    master = spark_context(spark).master or _ONE_MACHINE
    if not master.startswith(_ONE_MACHINE):
        raise ConfigurationError(
            f"{what}: Spark runs on {master}, whose machines cannot access this machine's directory for "
            f"temporary files, {tempfile.gettempdir()}. Name a directory that all of them can access, such "
            "as hdfs:///tmp, for rows that are buffered until they are applied (--spill, spill_directory)"
        )


def _frame(spark: SparkSession, given: LocalOperations) -> DataFrame:
    parts = given.operations
    if not isinstance(parts, OperationParts):
        raise ConfigurationError(
            f"source table {given.table.name} cannot be read by Spark: its operations are "
            f"{type(parts).__name__}, expected OperationParts. Leave out spark"
        )
    if parts.is_of_this_machine:
        check_machines(spark, f"source table {given.table.name}")
    reader = _PartReader(parts, worker_settings(spark_context(spark), parts.locations))
    return _tasks(spark, parts.part_count).mapInArrow(reader, _schema(given.table.target, parts))


def _tasks(spark: SparkSession, count: int) -> DataFrame:
    """Return the numbers from 0 to ``count``, spread over a suitable number of tasks."""
    tasks = min(count, _TASKS_PER_CORE * spark_context(spark).defaultParallelism)
    return spark.range(0, count, 1, max(tasks, 1))


def _schema(table: AcidTable, parts: OperationParts) -> str:
    """Return the schema of operations in Spark's DDL."""
    numbers = ",".join(f"{name}:bigint" for name in parts.position)
    times = [f"{CHANGED_AT} {spark_type(parse_hive_type('timestamp'))}"] if parts.has_times else []
    columns = [f"{quoted(c.name)} {spark_type(parse_hive_type(c.type))}" for c in table.all_columns]
    return ", ".join([f"{OPERATION} string", f"{POSITION} struct<{numbers}>", *times, *columns])


@dataclass(frozen=True)
class _PartReader:
    """The function that runs in tasks: it takes numbers of parts and returns batches of operations."""

    parts: OperationParts
    storage: HadoopSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        configure_storage(self.storage)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.parts.read(number)


@dataclass(frozen=True)
class _Looking(Generic[T]):
    """The function that runs in tasks: it takes numbers and returns the results of another function."""

    look: Callable[[int], T]
    storage: HadoopSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        configure_storage(self.storage)
        for batch in batches:
            numbers = batch.column(0)
            found = [pickle.dumps(self.look(number)) for number in numbers.to_pylist()]
            yield pa.record_batch([numbers, pa.array(found, pa.binary())], names=["number", "found"])
