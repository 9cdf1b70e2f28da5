"""The engine that reads, reduces and merges with Spark: logs of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from mutation_api.changes.duplicates import DUPLICATES_SHOWN_DEFAULT, copied_keys_error
from mutation_api.changes.merge_report import MergeReport
from mutation_api.changes.spark_merge.merge import MergeInto, merge_into
from mutation_api.client.transaction import Transaction
from mutation_api.errors import ConfigurationError
from mutation_api.inputs.contradictions import SAMPLES_SHOWN, LogCounts
from mutation_api.inputs.engines.engine import (
    AnySource,
    Reading,
    TargetBytes,
    changed_samples,
    check_operation_columns,
    operation_clauses,
)
from mutation_api.inputs.log_walk import DELETE, FIRST_OPERATION, FIRST_POSITION, INSERT
from mutation_api.inputs.reduce import ReducedLog, reduced_log
from mutation_api.inputs.source import (
    OPERATION,
    POSITION,
    Batch,
    ChangeSource,
    Position,
    SourceTable,
)
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.read.snapshot_frame import snapshot
from mutation_api.spark.worker_errors import translated_worker_errors

__all__ = ["SparkEngine"]

NAME = "spark"


@dataclass(frozen=True)
class SparkEngine:
    """Reads sources with a session."""

    spark: SparkSession

    def check(self, source: AnySource) -> None:
        """See :class:`~mutation_api.inputs.engines.engine.Engine`."""
        if not isinstance(source, ChangeSource):
            raise ConfigurationError(
                f"source {source.source_id} cannot be read by Spark (it has no method read); leave spark out"
            )

    def read(
        self,
        source: AnySource,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        _target_bytes: TargetBytes,
    ) -> Reading:
        """See :class:`~mutation_api.inputs.engines.engine.Engine`."""
        assert isinstance(source, ChangeSource)
        return self.reading(source.read(self.spark, tables, after))

    def reading(self, batch: Batch) -> Reading:
        """What goes on with a batch that was read."""
        logs = tuple(
            _SparkLog(each.table, each.is_emptied, each.operations, each.is_copy) for each in batch.tables
        )
        return Reading(NAME, logs, batch.position, batch.stop, batch.set_back, batch.warnings)


@dataclass(frozen=True)
class _SparkLog:
    """A :class:`~mutation_api.inputs.engines.engine.TableLog`."""

    table: SourceTable
    is_emptied: bool
    operations: DataFrame
    is_copy: bool

    @contextmanager
    def reduced(self, *, what: str, strict: bool) -> Iterator[_SparkReduced]:
        check_operation_columns(self.table, self.operations.columns)
        log = reduced_log(
            self.operations,
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
        """The rows are read again, since a refusal may take longer. Raises DuplicateKeyError."""
        keys = [sf.col(quoted(name)) for name in self.table.key]
        with translated_worker_errors(f"{what}: looking for keys with several rows"):
            doubled = self.operations.groupBy(*keys).count().where("count > 1")
            text = sf.to_json(sf.struct(*keys)).alias("key")
            rows = doubled.select(text).orderBy("key").limit(DUPLICATES_SHOWN_DEFAULT).collect()
            raise copied_keys_error(
                what, self.table.target.full_name, doubled.count(), [row["key"] for row in rows]
            )


@dataclass(frozen=True)
class _SparkReduced:
    """A :class:`~mutation_api.inputs.engines.engine.ReducedTable`."""

    table: SourceTable
    log: ReducedLog
    is_emptied: bool

    @property
    def counts(self) -> LogCounts:
        return LogCounts(self.log.operation_count, self.log.outcomes, self.log.contradictions)

    def merge(self, transaction: Transaction, before_writing: Callable[[MergeReport], None]) -> MergeReport:
        return self._merge(transaction).merge(before_writing=before_writing)

    def dry_run(self, transaction: Transaction) -> MergeReport:
        return self._merge(transaction).dry_run(samples=0)

    def changed(self, transaction: Transaction) -> list[str]:
        return changed_samples(self._merge(transaction).dry_run(samples=SAMPLES_SHOWN))

    def contradicting(self, transaction: Transaction) -> list[str]:
        """The keys are looked up again, since a refusal may take longer."""
        key, name = self.table.key, self.table.target.full_name
        with translated_worker_errors(f"looking for contradictions with table {name}"):
            present = snapshot(transaction, name, columns=key, spark=self.log.rows.sparkSession).select(
                *[sf.col(quoted(k)).alias(f"__{k}") for k in key], sf.lit(True).alias("__is_present")
            )
            if self.is_emptied:
                present = present.limit(0)
            same = [sf.col(quoted(k)) == sf.col(quoted(f"__{k}")) for k in key]
            is_insert = sf.col(FIRST_OPERATION) == INSERT
            wrong = self.log.rows.join(present, same, "left").where(
                is_insert == sf.coalesce("__is_present", sf.lit(False))
            )
            shown = wrong.select(
                FIRST_OPERATION,
                sf.to_json(sf.struct(*[sf.col(quoted(k)).alias(k) for k in key])).alias("key"),
                sf.to_json(FIRST_POSITION).alias("order"),
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
