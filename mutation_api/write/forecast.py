"""Forecasts of the files that a change set will write, and summaries of the written files.

The numbers of changes and files are exact, since they are counted from the same addresses. The number of
bytes is an estimate:

* A delta file takes the size of a file with one row. Each further new row takes the average size of a row in
  a sample of SAMPLE_ROWS rows, which is written to a temporary directory.
* A file of delete events takes the size of a file with one event. Each further event takes EVENT_BYTES.

Rejected alternative: the average bytes of a row in the table's own files. New rows may have another size, an
empty table has no rows, and the rows of one large file compress better than those of many small deltas.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mutation_api.format.event import ADDED_OPERATION, Operation, bucket_property
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.manifest import DeltaManifest, FileKind
from mutation_api.write.address import ADDRESS_COLUMNS, BUCKET, PARTITION
from mutation_api.write.coordinator import MutatorCoordinator
from mutation_api.write.writing_order import write_batch

SAMPLE_ROWS = 1000
"""Number of new rows that are written for the estimate."""

EVENT_BYTES = 1.5
"""Bytes of a delete event in a file with many events. Measured with zlib: 0.02 if all rows of a bucket are
deleted, 0.7 if every tenth row is, 1.7 if every thousandth row is.
"""

_OWN_ID = 2


@dataclass(frozen=True)
class GroupCount:
    """The changes of one (partition, bucket), as the writer receives them.

    A moved row is a delete in one group and an insert in another. ``partition`` is the escaped name; if None,
    the table is unpartitioned.
    """

    partition: str | None
    bucket_id: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def row_count(self) -> int:
        """The number of all changes."""
        return self.inserted + self.updated + self.deleted

    @property
    def new_row_count(self) -> int:
        """The number of rows that are written with their values."""
        return self.inserted + self.updated

    def has_delta(self, version: AcidVersion) -> bool:
        """Return True if a delta file is written. With split updates, deletes alone do not need one."""
        return bool(self.new_row_count if version.splits_updates else self.row_count)

    def has_delete_delta(self, version: AcidVersion) -> bool:
        """Return True if a file of delete events is written."""
        return version.splits_updates and bool(self.updated + self.deleted)


@dataclass(frozen=True)
class Forecast:
    """A forecast. ``groups`` are sorted by partition and bucket; ``byte_count`` is an estimate."""

    groups: tuple[GroupCount, ...]
    file_count: int
    byte_count: int

    @property
    def row_count(self) -> int:
        """The number of all changes."""
        return sum(group.row_count for group in self.groups)


class CountedChanges:
    """The number of changes by partition, bucket and operation, and a sample of new rows."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int, int]] = Counter()
        self._sample: list[pa.RecordBatch] = []
        self._sampled = 0

    def add(self, addressed: pa.RecordBatch) -> None:
        """Count addressed changes, which need the columns of rows that are written."""
        keys = pa.table(addressed.select([PARTITION, BUCKET, ADDED_OPERATION]))
        counted = keys.group_by([PARTITION, BUCKET, ADDED_OPERATION]).aggregate([([], "count_all")])
        *columns, numbers = (column.to_pylist() for column in counted.columns)
        self._counts.update(dict(zip(zip(*columns, strict=True), numbers, strict=True)))
        if self._sampled < SAMPLE_ROWS:
            new = np.flatnonzero(addressed.column(ADDED_OPERATION).to_numpy() != Operation.DELETE)
            rows = addressed.take(pa.array(new[: SAMPLE_ROWS - self._sampled]))
            self._sampled += rows.num_rows
            self._sample.append(rows)

    @property
    def groups(self) -> list[GroupCount]:
        """The changes of each group, sorted by partition and bucket."""
        return [
            GroupCount(name or None, bucket, *(self._counts[name, bucket, each] for each in Operation))
            for name, bucket in sorted({(name, bucket) for name, bucket, _ in self._counts})
        ]

    def trials(self, table: AcidTable) -> tuple[Trial, ...]:
        """Write the sample to temporary files. Without new rows, there is no trial."""
        return (write_trial(table, pa.concat_batches(self._sample)),) if self._sampled else ()


@dataclass(frozen=True)
class Trial:
    """File sizes of sampled new rows: with the first row alone, and with all of them."""

    row_count: int
    one_row_bytes: int
    all_rows_bytes: int


def forecast(table: AcidTable, groups: Sequence[GroupCount], trials: Sequence[Trial]) -> Forecast:
    """Forecast the files and bytes of counted changes.

    Args:
        table: a bound descriptor.
        groups: the groups, sorted by partition and bucket.
        trials: the trials of new rows among the changes; empty if there are no new rows.
    """
    version = table.version
    files = sum(group.has_delta(version) + group.has_delete_delta(version) for group in groups)
    return Forecast(tuple(groups), files, round(_bytes_of_files(table, groups, trials)))


def write_trial(table: AcidTable, addressed: pa.RecordBatch) -> Trial:
    """Write sampled new rows to temporary files.

    Args:
        table: a bound descriptor.
        addressed: at least one row, with ADDRESS_COLUMNS and the data columns.
    """
    trial = _on_trial(table)
    rows = _as_inserts(addressed)
    return Trial(rows.num_rows, _written_bytes(trial, rows.slice(0, 1)), _written_bytes(trial, rows))


def _bytes_of_files(table: AcidTable, groups: Sequence[GroupCount], trials: Sequence[Trial]) -> float:
    version = table.version
    new_rows = sum(group.new_row_count for group in groups)
    deltas = sum(bool(group.new_row_count) for group in groups)
    events = sum(group.row_count - group.inserted for group in groups)
    if version.splits_updates:
        event_files = sum(group.has_delete_delta(version) for group in groups)
    else:
        event_files = sum(not group.new_row_count for group in groups)
    total = 0.0
    if new_rows:
        first, further = _bytes_of_rows(trials)
        total += deltas * first + (new_rows - deltas) * further
    if event_files:
        total += event_files * _bytes_of_delete(table)
    return total + events * EVENT_BYTES


def _bytes_of_rows(trials: Sequence[Trial]) -> tuple[float, float]:
    """Return the bytes of a file with one new row, and of each further row."""
    if not trials:  # changes may differ when they are evaluated again
        return 0.0, 0.0
    row_count = sum(trial.row_count for trial in trials)
    one_row = sum(trial.one_row_bytes for trial in trials)
    all_rows = sum(trial.all_rows_bytes for trial in trials)
    return one_row / len(trials), max(0.0, (all_rows - one_row) / max(1, row_count - len(trials)))


def _bytes_of_delete(table: AcidTable) -> int:
    trial = _on_trial(table)
    bucket = bucket_property(0, 0) if table.version.encodes_buckets else 0
    address = _address(1, Operation.DELETE, _OWN_ID - 1, bucket)
    return _written_bytes(trial, pa.record_batch(address, names=list(ADDRESS_COLUMNS)))


def _as_inserts(batch: pa.RecordBatch) -> pa.RecordBatch:
    data = batch.columns[len(ADDRESS_COLUMNS) :]
    return pa.record_batch(
        [*_address(batch.num_rows, Operation.INSERT, _OWN_ID, 0), *data], names=batch.schema.names
    )


def _address(count: int, operation: Operation, txn: int, bucket: int) -> list[pa.Array]:
    """Return ADDRESS_COLUMNS of ``count`` equal changes in bucket 0 of an unpartitioned table."""
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
    """Return the table's columns and version without its partitions, location and transaction."""
    bare = dataclasses.replace(table, partition_keys=(), partition_spellings={}, partition_locations={})
    return bare.bind(_OWN_ID, _OWN_ID if table.version.uses_write_ids else None)


def _written_bytes(table: AcidTable, batch: pa.RecordBatch) -> int:
    """Return the bytes of the files that the writer writes for a batch."""
    with tempfile.TemporaryDirectory(prefix="hive-mutation-forecast-") as directory:
        elsewhere = dataclasses.replace(table, location=Location.parse(directory))
        with MutatorCoordinator(elsewhere) as coordinator:
            write_batch(coordinator, batch)
            return sum(manifest.byte_count for manifest in coordinator.close())


@dataclass(frozen=True)
class ApplySummary:
    """The counts of the staged changes of one table. Nothing is visible before the transaction commits.

    Changes are counted as the caller issued them: an update counts once in every format. ``partitions`` are
    the sorted escaped names; an unpartitioned table has none. ``bucket_count`` counts the buckets of all
    partitions, ``byte_count`` the bytes of all files. ``verify_seconds`` is 0 if the ROW__IDs were not looked
    up. ``write_seconds`` covers the evaluation of the changes, the shuffle, the sort and the writing.
    """

    table: str
    txn_id: int
    inserted: int
    updated: int
    deleted: int
    partitions: tuple[str, ...]
    bucket_count: int
    file_count: int
    byte_count: int
    verify_seconds: float
    write_seconds: float

    def to_dict(self) -> dict[str, object]:
        """Return the summary as a dict of JSON types only."""
        return dataclasses.asdict(self) | {"partitions": list(self.partitions)}

    @classmethod
    def from_manifests(
        cls,
        table: str,
        txn_id: int,
        manifests: Sequence[DeltaManifest],
        *,
        verify_seconds: float,
        write_seconds: float,
    ) -> ApplySummary:
        """Add up manifests. A split update has two manifests but is counted only in its delta."""
        return cls(
            table=table,
            txn_id=txn_id,
            inserted=sum(m.insert_count for m in manifests),
            updated=sum(m.update_count for m in manifests if m.kind is FileKind.DELTA),
            deleted=sum(m.delete_count for m in manifests),
            partitions=tuple(sorted({m.partition_name for m in manifests if m.partition_name})),
            bucket_count=len({(m.partition_name, m.bucket_id) for m in manifests}),
            file_count=len(manifests),
            byte_count=sum(m.byte_count for m in manifests),
            verify_seconds=verify_seconds,
            write_seconds=write_seconds,
        )

    @property
    def row_count(self) -> int:
        """The number of all changes."""
        return self.inserted + self.updated + self.deleted

    def __str__(self) -> str:
        """Return one line for a log."""
        verified = f", verified in {self.verify_seconds:.1f} s" if self.verify_seconds else ""
        count = len(self.partitions)
        where = f"{count:,} partition{'' if count == 1 else 's'}, " if count else ""
        return (
            f"{self.table}, transaction {self.txn_id}: {self.inserted:,} inserted, {self.updated:,} updated, "
            f"{self.deleted:,} deleted in {where}{self.bucket_count:,} buckets, {self.file_count:,} files, "
            f"{self.byte_count:,} bytes; written in {self.write_seconds:.1f} s{verified}"
        )
