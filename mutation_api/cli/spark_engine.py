"""The work of ``hive-mutate apply``, ``diff``, ``ingest``, ``merge`` and the verbs by Spark; its session."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Unpack

from pyspark.sql import DataFrame, SparkSession

from mutation_api.cdc.spark_engine import SparkEngine
from mutation_api.cli.cluster_arguments import spark_is_given
from mutation_api.cli.engine_arguments import (
    ApplyTask,
    Commands,
    DiffTask,
    FileState,
    MergeTask,
    TableState,
    VerbTable,
)
from mutation_api.merge.file_rules import RowColumns
from mutation_api.merge.history import HistoryOptionsDict, HistoryReport
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.row_files import RowFiles, read_changes, save_changes
from mutation_api.merge.spark_diff import count_operations, diff
from mutation_api.merge.spark_history import track
from mutation_api.merge.spark_merge import merge_into
from mutation_api.merge.spark_rules import delete_where, merge_by_rules, overwrite, update_where
from mutation_api.spark.job import apply_changes
from mutation_api.spark.local_spark_session import local_spark_session
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.spark.tasks import snapshot_ddl
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.catalog import primary_key
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.change_set import OverwriteReport
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.local_plan import LocalOptions


def spark_session(app_name: str) -> SparkSession:
    """Return a session of the user's Spark (--master, spark-submit, spark-defaults.conf), or a local one."""
    if spark_is_given():
        return SparkSession.builder.appName(app_name).getOrCreate()
    return local_spark_session(app_name)


@dataclass(frozen=True)
class SparkCommands:
    """The commands by Spark. See :class:`~mutation_api.cli.engine_arguments.Commands`."""

    spark: SparkSession

    def apply_file(self, transaction: Transaction, task: ApplyTask, *, verify_row_ids: bool) -> ApplySummary:
        """Apply a file of changes to a table in an open transaction."""
        table = transaction.table(task.table_name)
        return apply_changes(
            transaction,
            task.table_name,
            read_changes(self.spark, table, task.file, task.format_name, task.operation_column),
            operation_column=task.operation_column,
            verify_row_ids=verify_row_ids,
        )

    def compare(self, task: DiffTask) -> Mapping[str, int]:
        """Compare, save the changes if the task has an output, and count them by operation."""
        with translated_worker_errors(f"comparing table {task.table.full_name}"):
            old, new = _read_table(self.spark, task.old), _read(self.spark, task)
            if task.past is not None:
                task.past.check_history()
            changes = diff(task.table, old, new, task.keys, operation_column=task.operation_column)
            try:
                counts = count_operations(changes, task.operation_column)
                if task.output is not None:
                    order = [*task.keys, task.operation_column]
                    save_changes(changes, task.output, task.output_format, order=order)
            finally:
                changes.unpersist()  # otherwise the next reader of files with these names gets the cache
        return counts

    def check_merge(self, task: MergeTask) -> None:
        """Do nothing, because Spark supports all rules."""

    def merge(self, task: MergeTask, transaction: Transaction) -> MergeReport:
        """Merge in an open transaction, or only report what a merge would do."""
        table = transaction.table(task.table_name)
        with translated_worker_errors(f"merging into {table.full_name}"):
            merge = merge_by_rules(
                transaction,
                table.full_name,
                source=RowFiles(self.spark, table, keeps_unknown=True).read_all(task.files, task.format_name),
                on=task.keys,
                rules=task.rules,
                **task.options,
            )
            return merge.dry_run() if task.is_dry_run else merge.execute()

    @contextmanager
    def open_table(
        self, client: MutatorClient, table_name: str, _local: LocalOptions, *, is_dry_run: bool
    ) -> Iterator[VerbTable]:
        """Open a table in a transaction. The end of the block commits it; a dry run is aborted."""
        with client.new_transaction() as transaction:
            table = _SparkTable(self.spark, client, transaction, table_name)
            with translated_worker_errors(f"changing table {table_name}"):
                yield VerbTable(table, functools.partial(_rows, self.spark))
            if is_dry_run:
                transaction.abort()


@contextmanager
def open_commands(app_name: str) -> Iterator[Commands]:
    """Yield the commands. A Spark session is open during the block."""
    with spark_session(app_name) as spark:
        yield SparkCommands(spark)


@contextmanager
def open_ingest(app_name: str) -> Iterator[SparkEngine]:
    """Yield the engine. A Spark session is open during the block."""
    with spark_session(app_name) as spark:
        yield SparkEngine(spark)


def _read(spark: SparkSession, task: DiffTask) -> DataFrame:
    if isinstance(task.new, FileState):
        rows = RowFiles(spark, task.table, has_row_ids=True)
        return rows.read(task.new.file, task.new.format_name)
    return _read_table(spark, task.new)


def _read_table(spark: SparkSession, state: TableState) -> DataFrame:
    return read_table(state.view, state.table_name, spark=spark)


def _rows(
    spark: SparkSession, columns: RowColumns, files: Sequence[Location], format_name: str | None
) -> DataFrame:
    found = RowFiles(spark, columns.table, columns.others, keeps_unknown=columns.keeps_unknown)
    return found.read_all(files, format_name)


@dataclass(frozen=True)
class _SparkTable:
    """The verbs by Spark; see :class:`~mutation_api.cli.engine_arguments.TableVerbs`."""

    spark: SparkSession
    client: MutatorClient
    transaction: Transaction
    name: str

    @property
    def descriptor(self) -> AcidTable:
        return self.transaction.table(self.name)

    def delete(self, *, where: str, dry_run: bool) -> MergeReport:
        return delete_where(self.transaction, self.name, where, dry_run=dry_run, spark=self.spark)

    def update(self, *, set: Mapping[str, str], where: str | None, dry_run: bool) -> MergeReport:
        return update_where(self.transaction, self.name, set, where, dry_run=dry_run, spark=self.spark)

    def upsert(self, data: DataFrame, on: Sequence[str] | None, *, dry_run: bool) -> MergeReport:
        on = primary_key(self.client.metastore, self.name) if on is None else on
        merge = merge_into(self.transaction, self.name, source=data, on=on)
        merge = merge.whenMatched().updateAll().whenNotMatched().insertAll()
        return merge.dry_run() if dry_run else merge.execute()

    def overwrite(
        self,
        data: DataFrame,
        *,
        partitions: str | Sequence[Mapping[str, object]] | None,
        where: str | None,
        dry_run: bool,
    ) -> OverwriteReport:
        return overwrite(
            self.transaction, self.name, data, partitions=partitions, where=where, dry_run=dry_run
        )

    def track(
        self,
        changes: DataFrame,
        key: Sequence[str],
        sequence: Sequence[str],
        *,
        dry_run: bool,
        **options: Unpack[HistoryOptionsDict],
    ) -> HistoryReport:
        return track(self.transaction, self.name, changes, key, sequence, dry_run=dry_run, **options)

    def truncate(self, *, dry_run: bool) -> MergeReport:
        columns = snapshot_ddl(self.descriptor, self.descriptor.all_columns)
        nothing = self.spark.createDataFrame([], columns)
        found = overwrite(self.transaction, self.name, nothing, dry_run=dry_run)
        return MergeReport.of(found.table, [("", "deleted", found.deleted)], is_dry_run=dry_run)
