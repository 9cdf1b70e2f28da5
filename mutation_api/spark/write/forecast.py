"""Forecasts what apply_changes would write: changes by partition and bucket, files, and approximate bytes.

Numbers of changes and files are exact, since they are counted from the same addresses. Bytes are an estimate:

* a delta file costs the size of a file of one row, and each further new row its average size in a sample of
  SAMPLE_ROWS rows, written to a temporary directory;
* a file of delete events costs the size of a file of one event, and each further event EVENT_BYTES.

Refused: the average bytes of a row in the table's own files. New or foreign rows may have another size, an
empty table has no rows, and rows of a large file are packed better than those of many small deltas.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from metastore_client.valid_ids import ValidIdList
from mutation_api.acid.bucket_codec import bucket_property
from mutation_api.acid.event import Operation
from mutation_api.acid.version import AcidVersion
from mutation_api.spark.write.address import ADDRESS_COLUMNS, BUCKET, OPERATION, PARTITION
from mutation_api.spark.write.change_writer import write_batch
from mutation_api.spark.write.plan import OPERATION_COLUMN_DEFAULT, plan_changes
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.serializer import AcidTableSerializer
from mutation_api.worker.coordinator import MutatorCoordinator

__all__ = ["Forecast", "GroupCount", "forecast_changes"]

SAMPLE_ROWS = 1000
"""Number of new rows that are written for the estimate."""

EVENT_BYTES = 1.5
"""Bytes of a delete event in a file of many. Measured with zlib: 0.02 if all rows of a bucket are deleted,
0.7 if every tenth is, 1.7 if every thousandth is.
"""

_TRIAL_DDL = "row_count long, one_row_bytes long, all_rows_bytes long"
_OWN_ID = 2


@dataclass(frozen=True)
class GroupCount:
    """Changes of one (partition, bucket) as the writer gets them.

    A moved row is a delete in one group and an insert in another. ``partition`` is the escaped name, None for
    an unpartitioned table.
    """

    partition: str | None
    bucket_id: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def rows(self) -> int:
        """All changes."""
        return self.inserted + self.updated + self.deleted

    @property
    def new_rows(self) -> int:
        """Rows that are written with their values."""
        return self.inserted + self.updated

    def has_delta(self, version: AcidVersion) -> bool:
        """Whether a delta file is written. With split updates, deletes alone need none."""
        return bool(self.new_rows if version.splits_updates else self.rows)

    def has_delete_delta(self, version: AcidVersion) -> bool:
        """Whether a file of delete events is written."""
        return version.splits_updates and bool(self.updated + self.deleted)


@dataclass(frozen=True)
class Forecast:
    """What would be written. ``groups`` are sorted by partition and bucket; ``bytes`` is an estimate."""

    groups: tuple[GroupCount, ...]
    files: int
    bytes: int

    @property
    def rows(self) -> int:
        """All changes."""
        return sum(group.rows for group in self.groups)


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
    version = table.version
    return Forecast(
        groups,
        sum(group.has_delta(version) + group.has_delete_delta(version) for group in groups),
        round(_bytes_of_files(table, plan.addressed(), groups)),
    )


def _groups(addresses: DataFrame) -> tuple[GroupCount, ...]:
    counts = [sf.count_if(sf.col(OPERATION) == int(operation)) for operation in Operation]
    rows = addresses.groupBy(PARTITION, BUCKET).agg(*counts).collect()
    return tuple(GroupCount(name or None, *counts) for name, *counts in sorted(map(tuple, rows)))


def _bytes_of_files(table: AcidTable, addressed: DataFrame, groups: Sequence[GroupCount]) -> float:
    version = table.version
    new_rows = sum(group.new_rows for group in groups)
    deltas = sum(bool(group.new_rows) for group in groups)
    events = sum(group.rows - group.inserted for group in groups)
    if version.splits_updates:
        event_files = sum(group.has_delete_delta(version) for group in groups)
    else:
        event_files = sum(not group.new_rows for group in groups)
    total = 0.0
    if new_rows:
        first, further = _bytes_of_rows(table, addressed)
        total += deltas * first + (new_rows - deltas) * further
    if event_files:
        total += event_files * _bytes_of_delete(table)
    return total + events * EVENT_BYTES


def _bytes_of_rows(table: AcidTable, addressed: DataFrame) -> tuple[float, float]:
    """Bytes of a file of one new row, and of each further row."""
    trial = _Trial(AcidTableSerializer.encode(_on_trial(table)))
    sample = addressed.where(sf.col(OPERATION) != int(Operation.DELETE)).limit(SAMPLE_ROWS)
    found = sample.mapInArrow(trial.__call__, _TRIAL_DDL).collect()
    if not found:  # the changes differ when they are evaluated again
        return 0.0, 0.0
    row_count, one_row, all_rows = (sum(row[i] for row in found) for i in range(3))
    first = one_row / len(found)
    return first, max(0.0, (all_rows - one_row) / max(1, row_count - len(found)))


def _bytes_of_delete(table: AcidTable) -> int:
    trial = _on_trial(table)
    bucket = bucket_property(0, 0) if table.version.encodes_buckets else 0
    address = _address(1, Operation.DELETE, _OWN_ID - 1, bucket)
    return _written_bytes(trial, pa.record_batch(address, names=list(ADDRESS_COLUMNS)))


@dataclass(frozen=True)
class _Trial:
    """Writes the first rows of a task and returns their bytes. It travels to the workers."""

    table_text: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = AcidTableSerializer.decode(self.table_text)
        is_measured = False
        for batch in batches:  # to the end, because the sender waits for it
            if batch.num_rows and not is_measured:
                is_measured = True
                rows = _as_inserts(batch)
                facts = (rows.num_rows, _written_bytes(table, rows.slice(0, 1)), _written_bytes(table, rows))
                yield pa.record_batch(
                    [pa.array([fact], pa.int64()) for fact in facts],
                    names=["row_count", "one_row_bytes", "all_rows_bytes"],
                )


def _as_inserts(batch: pa.RecordBatch) -> pa.RecordBatch:
    data = batch.columns[len(ADDRESS_COLUMNS) :]
    return pa.record_batch(
        [*_address(batch.num_rows, Operation.INSERT, _OWN_ID, 0), *data], names=batch.schema.names
    )


def _address(count: int, operation: Operation, txn: int, bucket: int) -> list[pa.Array]:
    """ADDRESS_COLUMNS of ``count`` equal changes in bucket 0 of an unpartitioned table."""
    values = (
        pa.scalar("", pa.string()),
        pa.scalar(0, pa.int32()),
        pa.scalar(int(operation), pa.int8()),
        pa.scalar(txn, pa.int64()),
        pa.scalar(bucket, pa.int32()),
        pa.scalar(0, pa.int64()),
    )
    return [pa.repeat(value, count) for value in values]


def _on_trial(table: AcidTable) -> AcidTable:
    """The table's columns and version without its partitions, location and transaction."""
    bare = dataclasses.replace(table, partition_keys=(), partition_spellings={}, partition_locations={})
    return bare.bind(_OWN_ID, _OWN_ID if table.version.uses_write_ids else None)


def _written_bytes(table: AcidTable, batch: pa.RecordBatch) -> int:
    """Bytes of the files that the writer writes for a planned batch."""
    with tempfile.TemporaryDirectory(prefix="hive-mutation-forecast-") as directory:
        elsewhere = dataclasses.replace(table, location=Location.parse(directory))
        with MutatorCoordinator(elsewhere) as coordinator:
            write_batch(coordinator, batch)
            return sum(manifest.byte_count for manifest in coordinator.close())
