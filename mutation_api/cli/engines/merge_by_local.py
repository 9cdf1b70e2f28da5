"""``hive-mutate merge`` in this process."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from mutation_api.changes.files.arrow_files import ArrowFiles
from mutation_api.changes.files.file_rules import RowColumns
from mutation_api.changes.local_merge.merge_rules import check_rules, local_merge_by_rules
from mutation_api.changes.merge_report import MergeReport
from mutation_api.cli.engines.tasks import MergeFiles, MergeTask
from mutation_api.client.transaction import Transaction

__all__ = ["opened"]


@contextmanager
def opened(app_name: str, task: MergeTask) -> Iterator[MergeFiles]:
    """The function that merges; nothing has to be started for it.

    Raises:
        LocalEngineError: only Spark reads the rules.
    """
    del app_name
    check_rules(task.rules)
    yield functools.partial(_merge, task)


def _merge(task: MergeTask, transaction: Transaction) -> MergeReport:
    table = transaction.table(task.table_name)
    files = ArrowFiles(RowColumns(table, keeps_unknown=True), task.local.memory_bytes)
    merge = local_merge_by_rules(
        transaction,
        table.full_name,
        source=files.read_all(task.files, task.format_name),
        on=task.keys,
        rules=task.rules,
        null_safe=task.null_safe,
        missing_columns=task.missing_columns,
        write_unchanged=task.write_unchanged,
        prune_buckets=task.prune_buckets,
        read_bytes_max=task.read_bytes_max,
        local=task.local,
    )
    return merge.dry_run() if task.is_dry_run else merge.execute()
