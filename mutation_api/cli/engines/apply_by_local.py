"""``hive-mutate apply`` in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mutation_api.change_set.apply_summary import ApplySummary
from mutation_api.changes.files.arrow_files import ArrowFiles
from mutation_api.changes.files.file_rules import RowColumns
from mutation_api.cli.arguments.engine_arguments import ApplyFile
from mutation_api.client.transaction import Transaction
from mutation_api.local.apply import apply_arrow
from mutation_api.storage.location import Location

__all__ = ["opened"]


@contextmanager
def opened(app_name: str) -> Iterator[ApplyFile]:
    """The function that applies a file; nothing has to be started for it."""
    del app_name
    yield _apply_file


def _apply_file(
    transaction: Transaction,
    table_name: str,
    file: Location,
    format_name: str,
    *,
    operation_column: str,
    verify_row_ids: bool,
) -> ApplySummary:
    table = transaction.table(table_name)
    columns = RowColumns(table, {operation_column: "string"}, has_row_ids=True)
    return apply_arrow(
        transaction,
        table_name,
        ArrowFiles(columns).read(file, format_name),
        operation_column=operation_column,
        verify_row_ids=verify_row_ids,
    )
