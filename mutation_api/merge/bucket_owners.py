"""The owners of buckets: the task of a merge that reads and writes a (partition, bucket), and gets its keys.

The source's rows are cut by the task that owns the bucket of their key, and pass through the shuffle as Arrow
streams.

Each worker imports this module, so it imports nothing that only the driver needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import RecordValueError
from mutation_api.format.plain_array import plain_array
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.key_columns import key_in_type
from mutation_api.spark.tasks import CHANGES, TASK, leave_task, stream_of
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.table.partition import partition_names
from mutation_api.write.address import BUCKET, numbers_of_partitions
from mutation_api.write.writing_order import joined_batches, partition_number, split_by_number

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Owners:
    """The task that owns each (partition, bucket) of a table, and so the keys that rows in it can have.

    Attributes:
        table: the table.
        tasks: number of tasks.
        by_partition: True if the owner depends on the partition. Otherwise a task owns its buckets in all
            partitions.
        by_bucket: True if the owner depends on the bucket.
    """

    table: AcidTable
    tasks: int
    by_partition: bool
    by_bucket: bool

    def of_group(self, partition_name: str, bucket_id: int) -> int:
        """Return the number of the task that owns a group."""
        number = partition_number(partition_name) if self.by_partition else 0
        return (number + (bucket_id if self.by_bucket else 0)) % self.tasks

    def of_changes(self, addressed: pa.RecordBatch) -> Numbers:
        """Return the task of each addressed change."""
        numbers = np.zeros(addressed.num_rows, np.int64)
        if self.by_partition:
            numbers += numbers_of_partitions(addressed, partition_number)
        if self.by_bucket:
            numbers += addressed.column(BUCKET).to_numpy()
        return numbers % self.tasks

    def of_keys(self, keys: pa.RecordBatch) -> Numbers:
        """Return the task of each key. The columns have the types of the table's."""
        numbers = np.zeros(keys.num_rows, np.int64)
        if self.by_partition:
            columns = {name: keys.column(name) for name in self.table.partition_key_names}
            encoded = partition_names(self.table, columns).cast(pa.string()).dictionary_encode()
            of_names = np.array([partition_number(name) for name in encoded.dictionary.to_pylist()], np.int64)
            numbers += of_names[encoded.indices.to_numpy()]
        if self.by_bucket:
            numbers += buckets_of(self.table, keys)
        return numbers % self.tasks


def buckets_of(table: AcidTable, keys: pa.RecordBatch) -> Numbers:
    """Return the bucket of each key; 0 for a key that its column cannot hold, since no row has it."""
    resolver = BucketIdResolver(table)
    try:
        found: Numbers = resolver.resolve(keys).to_numpy().astype(np.int64)
    except RecordValueError:
        each = (_bucket_or_0(resolver, keys.slice(row, 1)) for row in range(keys.num_rows))
        found = np.fromiter(each, np.int64, keys.num_rows)
    return found


def _bucket_or_0(resolver: BucketIdResolver, key: pa.RecordBatch) -> int:
    try:
        return int(resolver.resolve(key)[0].as_py())
    except RecordValueError:
        return 0


def typed_keys(table: AcidTable, keys: Sequence[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the key columns of source rows in the table's types."""
    types = target_types(table)
    return pa.record_batch(
        {key: key_in_type(table.full_name, key, plain_array(rows.column(key)), types[key])[0] for key in keys}
    )


@dataclass(frozen=True)
class SourceSplitter:
    """The function that runs in tasks and cuts source rows by the task that owns their key.

    Attributes:
        owners: the owner of each key.
        keys: names of the key columns.
        names: names of all columns.
        memory_bytes: size of the rows that are cut at once.
    """

    owners: Owners
    keys: tuple[str, ...]
    names: tuple[str, ...]
    memory_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield pairs of a task's number and a piece for it."""
        try:
            for rows in joined_batches(batches, self.memory_bytes):
                yield from self._split(rows.rename_columns(list(self.names)))
        finally:
            leave_task()

    def _split(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        numbers = self.owners.of_keys(typed_keys(self.owners.table, self.keys, rows))
        for task, piece in split_by_number(rows, numbers, self.owners.tasks):
            columns = [pa.array([task], pa.int32()), pa.array([stream_of(piece)])]
            yield pa.record_batch(columns, [TASK, CHANGES])
