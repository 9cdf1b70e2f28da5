"""forecast_arrow: what apply_arrow would write."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from mutation_api.acid.event import Operation
from mutation_api.change_set.address import BUCKET, OPERATION, PARTITION
from mutation_api.change_set.forecast import SAMPLE_ROWS, Forecast, GroupCount, forecast, write_trial
from mutation_api.change_set.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.change_set.staged_writer import OpenTransaction, check_sink
from mutation_api.local.arrow_input import changes_reader
from mutation_api.local.batches import BATCH_PART, sized
from mutation_api.local.insert_files import InsertFiles
from mutation_api.local.local_options import LocalOptions
from mutation_api.local.plan import plan_changes

__all__ = ["forecast_arrow"]


def forecast_arrow(
    transaction: OpenTransaction,
    table_name: str,
    changes: object,
    *,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
    insert_files: int | None = None,
    local: LocalOptions | None = None,
) -> Forecast:
    """Count what :func:`mutation_api.local.apply.apply_arrow` would write with these arguments.

    The changes are read once, and checked as they would be. Only temporary files are written.

    Raises: as :func:`mutation_api.local.apply.apply_arrow`, except for what is found only when files are
        written, as a row that is changed twice.
    """
    table = transaction.table(table_name)
    check_sink(table)
    transaction.check()
    local = local or LocalOptions()
    reader = changes_reader(changes, table, operation_column)
    plan = plan_changes(table, reader.schema, transaction.valid_ids(table.full_name), operation_column)
    files = InsertFiles.of_table(table, insert_files, local.thread_count)
    counts: Counter[tuple[str, int, int]] = Counter()
    sample: list[pa.RecordBatch] = []
    sampled = 0
    for batch in sized(reader, local.memory_bytes // BATCH_PART):
        transaction.check()
        addressed = files.spread(plan.addressed(batch))
        counts.update(_counted(addressed))
        if sampled < SAMPLE_ROWS:
            new = _new_rows(addressed, SAMPLE_ROWS - sampled)
            sampled += new.num_rows
            sample.append(new)
    groups = [
        GroupCount(name or None, bucket, *(counts[name, bucket, operation] for operation in Operation))
        for name, bucket in sorted({(name, bucket) for name, bucket, _ in counts})
    ]
    trials = (write_trial(table, pa.concat_batches(sample)),) if sampled else ()
    return forecast(table, groups, trials)


def _counted(addressed: pa.RecordBatch) -> dict[tuple[str, int, int], int]:
    """Number of changes by partition, bucket and operation."""
    keys = pa.table(addressed.select([PARTITION, BUCKET, OPERATION]))
    counted = keys.group_by([PARTITION, BUCKET, OPERATION]).aggregate([([], "count_all")])
    *columns, numbers = (column.to_pylist() for column in counted.columns)
    return dict(zip(zip(*columns, strict=True), numbers, strict=True))


def _new_rows(addressed: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """The first new rows, at most so many."""
    new = np.flatnonzero(addressed.column(OPERATION).to_numpy() != Operation.DELETE)
    return addressed.take(pa.array(new[:count]))
