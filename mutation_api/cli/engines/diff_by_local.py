"""``hive-mutate diff`` in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pyarrow as pa

from mutation_api.changes.files.arrow_change_files import save_arrow_changes
from mutation_api.changes.files.arrow_files import ArrowFiles
from mutation_api.changes.files.file_rules import RowColumns
from mutation_api.changes.local_diff import count_operations, local_diff
from mutation_api.cli.engines.tasks import CompareStates, DiffTask, FileState, TableState
from mutation_api.scan.table_scan import TableScan
from mutation_api.scan.table_view import open_table

__all__ = ["opened"]


@contextmanager
def opened(app_name: str) -> Iterator[CompareStates]:
    """The function that compares; nothing has to be started for it."""
    del app_name
    yield _compare


def _compare(task: DiffTask) -> Mapping[str, int]:
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


def _read(task: DiffTask, reading: ExitStack) -> pa.RecordBatchReader:
    if isinstance(task.new, FileState):
        files = ArrowFiles(RowColumns(task.table, has_row_ids=True), task.local.memory_bytes)
        return files.read(task.new.file, task.new.format_name)
    return _read_table(task.new, reading)


def _read_table(state: TableState, reading: ExitStack) -> pa.RecordBatchReader:
    """The rows; when this returns, it is known in which files they are. ``reading`` ends the threads."""
    view = open_table(state.view, state.table_name)
    scan = TableScan(view, row_ids=view.table.version.has_row_ids)
    batches = reading.enter_context(contextlib.closing(scan.by_partition()))
    return pa.RecordBatchReader.from_batches(scan.schema, (rows for _, rows in batches))
