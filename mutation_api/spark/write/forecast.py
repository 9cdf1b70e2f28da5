"""forecast_changes: what apply_changes would write of a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from metastore_client.valid_ids import ValidIdList
from mutation_api.acid.event import Operation
from mutation_api.change_set.address import BUCKET, OPERATION, PARTITION
from mutation_api.change_set.forecast import SAMPLE_ROWS, Forecast, GroupCount, Trial, forecast, write_trial
from mutation_api.change_set.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.spark.write.plan import plan_changes
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.serializer import AcidTableSerializer

__all__ = ["forecast_changes"]

_TRIAL_FIELDS = tuple(each.name for each in fields(Trial))
_TRIAL_DDL = ", ".join(f"{name} long" for name in _TRIAL_FIELDS)


def forecast_changes(
    table: AcidTable,
    changes: DataFrame,
    valid_ids: ValidIdList,
    *,
    num_partitions: int | None = None,
    insert_files: int | None = None,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
) -> Forecast:
    """Count what :func:`mutation_api.spark.write.job.apply_changes` would write with these arguments.

    It evaluates the changes once without their values, and a sample of them with values. Only temporary files
    are written.

    Raises: as :func:`~.plan.plan_changes`; for wrong changes what the writer raises, as far as addresses and
        sample show it.
    """
    plan = plan_changes(
        table,
        changes,
        valid_ids,
        num_partitions=num_partitions,
        insert_files=insert_files,
        operation_column=operation_column,
    )
    groups = _groups(plan.addresses())
    has_new_rows = any(group.new_rows for group in groups)
    return forecast(table, groups, _trials(table, plan.addressed()) if has_new_rows else ())


def _groups(addresses: DataFrame) -> tuple[GroupCount, ...]:
    counts = [sf.count_if(sf.col(OPERATION) == int(operation)) for operation in Operation]
    rows = addresses.groupBy(PARTITION, BUCKET).agg(*counts).collect()
    return tuple(GroupCount(name or None, *counts) for name, *counts in sorted(map(tuple, rows)))


def _trials(table: AcidTable, addressed: DataFrame) -> tuple[Trial, ...]:
    sample = addressed.where(sf.col(OPERATION) != int(Operation.DELETE)).limit(SAMPLE_ROWS)
    writer = _TrialWriter(AcidTableSerializer.encode(table))
    return tuple(Trial(*row) for row in sample.mapInArrow(writer.__call__, _TRIAL_DDL).collect())


@dataclass(frozen=True)
class _TrialWriter:
    """Writes the first rows of a task and returns their bytes. It travels to the workers."""

    table_text: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = AcidTableSerializer.decode(self.table_text)
        is_measured = False
        for batch in batches:  # to the end, because the sender waits for it
            if batch.num_rows and not is_measured:
                is_measured = True
                facts = [pa.array([fact], pa.int64()) for fact in astuple(write_trial(table, batch))]
                yield pa.record_batch(facts, names=list(_TRIAL_FIELDS))
