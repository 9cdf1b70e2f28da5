"""How the inserts of tables without buckets are spread over files."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from mutation_api.format.event import ADDED_OPERATION
from mutation_api.write.address import ADDRESS_COLUMNS, BUCKET, PARTITION
from mutation_api.write.local_plan import InsertFiles


def changes(partitions: list[str], operations: list[int] | None = None) -> pa.RecordBatch:
    """Addressed changes of these partitions; inserts by default."""
    count = len(partitions)
    zeros = [0] * count
    arrays = [
        pa.array(partitions),
        pa.array(zeros, pa.int32()),
        pa.array(operations or zeros, pa.int8()),
        *(pa.array(zeros, kind) for kind in (pa.int64(), pa.int32(), pa.int64())),
    ]
    return pa.record_batch(arrays, names=list(ADDRESS_COLUMNS))


def spread(files: InsertFiles, batch: pa.RecordBatch) -> list[tuple[str, int]]:
    """Partition and file of each change."""
    found = files.spread(batch)
    assert found.schema == batch.schema
    return list(zip(found[PARTITION].to_pylist(), found[BUCKET].to_pylist(), strict=True))


def test_each_partition_fills_its_files_one_after_the_other() -> None:
    """Counted over all batches; after the last file the first again."""
    files = InsertFiles(3, 2)
    assert spread(files, changes(["a", "b", "a", "a"])) == [("a", 0), ("b", 0), ("a", 0), ("a", 1)]
    assert spread(files, changes(["c", "a", "b", "b"])) == [("c", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert spread(files, changes(["a"] * 4)) == [("a", 2), ("a", 2), ("a", 0), ("a", 0)]


def test_only_inserts_are_counted_and_moved() -> None:
    """Updates and deletes stay in the bucket of their ROW__ID."""
    batch = changes(["a"] * 4, [1, 0, 2, 0])
    assert [bucket for _, bucket in spread(InsertFiles(2, 1), batch)] == [0, 0, 0, 1]
    assert batch[ADDED_OPERATION].to_pylist() == [1, 0, 2, 0]


def test_one_file_or_buckets_need_nothing() -> None:
    """The batch itself comes back."""
    batch = changes(["a"] * 9)
    assert InsertFiles(1, 1).spread(batch) is InsertFiles(0, 1).spread(batch) is batch


def test_row_by_row_all_files_get_the_same() -> None:
    """As if the user asked for a number of files."""
    counts = Counter(spread(InsertFiles(4, 1), changes(["a", "b"] * 40)))
    assert counts == {(name, file): 10 for name in "ab" for file in range(4)}
