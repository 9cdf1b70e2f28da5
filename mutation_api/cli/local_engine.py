"""The work of ``hive-mutate apply``, ``diff``, ``ingest``, ``merge`` and the verbs in this process."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pyarrow as pa

from mutation_api.cdc.local_engine import LocalEngine
from mutation_api.cli.engine_arguments import (
    ApplyTask,
    Commands,
    DiffTask,
    FileState,
    MergeTask,
    TableState,
    VerbTable,
)
from mutation_api.hive.hive_transaction import HiveTransaction
from mutation_api.merge.arrow_change_files import ArrowFiles, save_arrow_changes
from mutation_api.merge.file_rules import RowColumns
from mutation_api.merge.local_diff import count_operations, local_diff
from mutation_api.merge.local_rules import check_rules, local_merge_by_rules
from mutation_api.merge.merge_report import MergeReport
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import open_table
from mutation_api.storage.location import Location
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.apply import apply_arrow
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.local_plan import LocalOptions

ENGINE = LocalEngine(LocalOptions())


class LocalCommands:
    """The commands in this process. See :class:`~mutation_api.cli.engine_arguments.Commands`."""

    def apply_file(self, transaction: Transaction, task: ApplyTask, *, verify_row_ids: bool) -> ApplySummary:
        """Apply a file of changes to a table in an open transaction."""
        table = transaction.table(task.table_name)
        columns = RowColumns(table, {task.operation_column: "string"}, has_row_ids=True)
        return apply_arrow(
            transaction,
            task.table_name,
            ArrowFiles(columns).read(task.file, task.format_name),
            operation_column=task.operation_column,
            verify_row_ids=verify_row_ids,
        )

    def compare(self, task: DiffTask) -> Mapping[str, int]:
        """Compare, save the changes if the task has an output, and count them by operation."""
        with ExitStack() as reading:
            old, new = _read_table(task.old, reading), _read(task, reading)
            if task.past is not None:
                task.past.check_history()
            changes = local_diff(
                task.table, old, new, task.keys, operation_column=task.operation_column, local=task.local
            )
        if task.output is not None:
            save_arrow_changes(changes, task.output, task.output_format)
        return count_operations(changes, task.operation_column)

    def check_merge(self, task: MergeTask) -> None:
        """Raise UnsupportedLocallyError if only Spark supports the rules."""
        check_rules(task.rules)

    def merge(self, task: MergeTask, transaction: Transaction) -> MergeReport:
        """Merge in an open transaction, or only report what a merge would do."""
        table = transaction.table(task.table_name)
        files = ArrowFiles(RowColumns(table, keeps_unknown=True), task.local.memory_bytes)
        merge = local_merge_by_rules(
            transaction,
            table.full_name,
            source=files.read_all(task.files, task.format_name),
            on=task.keys,
            rules=task.rules,
            read_bytes_max=task.read_bytes_max,
            local=task.local,
            **task.options,
        )
        return merge.dry_run() if task.is_dry_run else merge.execute()

    @contextmanager
    def open_table(
        self, client: MutatorClient, table_name: str, local: LocalOptions, *, is_dry_run: bool
    ) -> Iterator[VerbTable]:
        """Open a table in a transaction. The end of the block commits it; a dry run is aborted."""
        with HiveTransaction(client, local, None) as transaction:
            yield VerbTable(transaction.table(table_name), functools.partial(_rows, local))
            if is_dry_run:
                transaction.abort()


def open_commands(_app_name: str) -> AbstractContextManager[Commands]:
    """Return the commands; they need no session."""
    return contextlib.nullcontext(LocalCommands())


def _read(task: DiffTask, reading: ExitStack) -> pa.RecordBatchReader:
    if isinstance(task.new, FileState):
        files = ArrowFiles(RowColumns(task.table, has_row_ids=True), task.local.memory_bytes)
        return files.read(task.new.file, task.new.format_name)
    return _read_table(task.new, reading)


def _read_table(state: TableState, reading: ExitStack) -> pa.RecordBatchReader:
    """Open a reader of the rows. On return the files to read are fixed; ``reading`` ends the threads."""
    view = open_table(state.view, state.table_name)
    scan = TableScan(view, row_ids=view.table.version.has_row_ids)
    batches = reading.enter_context(contextlib.closing(scan.by_partition()))
    return pa.RecordBatchReader.from_batches(scan.schema, (rows for _, rows in batches))


def _rows(
    local: LocalOptions, columns: RowColumns, files: Sequence[Location], format_name: str | None
) -> pa.RecordBatchReader:
    return ArrowFiles(columns, local.memory_bytes).read_all(files, format_name)
