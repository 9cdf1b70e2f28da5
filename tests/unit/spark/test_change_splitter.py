"""Splitting changes by the task that writes them, without Spark."""

from __future__ import annotations

import collections
import itertools

import pyarrow as pa
import pytest

from metastore_client.valid_ids import ValidTxnList
from mutation_api.format.layout import AcidVersion
from mutation_api.spark.tasks import ChangeSplitter, ChangeWriter, batches_in
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable, WriterOptions
from mutation_api.write.address import ADDRESS_COLUMNS, ChangeAddresser, ChangeFields
from mutation_api.write.classify import ChangeClassifier

TABLE = AcidTable(
    database="default",
    name="t",
    location=Location.parse("/warehouse/t"),
    columns=(AcidColumn("id", "bigint"), AcidColumn("odd. `name", "string")),
    partition_keys=(AcidColumn("ds", "string"), AcidColumn("hr", "int")),
    num_buckets=4,
    bucket_columns=("id",),
    version=AcidVersion.V1_SPLIT,
    txn_id=7,
)
VALID = ValidTxnList(6)
FIELDS = ChangeFields(("txn", "bucket", "row_id", "partition"), ("ds", "hr"), False, TABLE.column_names)
ADDRESSER = ChangeAddresser(ChangeClassifier(TABLE, VALID), FIELDS)


def changes(first: int, count: int) -> pa.RecordBatch:
    """Inserts into 3 * 5 partitions and 4 buckets, and each seventh time a delete in another partition."""
    types = [
        pa.string(),
        pa.int64(),
        pa.int32(),
        pa.int64(),
        pa.string(),
        pa.string(),
        pa.int32(),
        pa.int64(),
    ]
    rows = [
        ("delete", 1, 1, n, "ds=gone/hr=1", None, None, None, None)
        if n % 7 == 3
        else ("insert", None, None, None, None, f"d{n % 3}", n % 5, n, f"text {n}")
        for n in range(first, first + count)
    ]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate([*types, pa.string()])]
    return pa.record_batch(columns, names=[f"c{index}" for index in range(len(columns))])


def split(batches: list[pa.RecordBatch], tasks: int, memory_bytes: int) -> dict[int, list[dict]]:
    """Addressed changes by task."""
    found: dict[int, list[dict]] = collections.defaultdict(list)
    for piece in ChangeSplitter(ADDRESSER, tasks, memory_bytes)(iter(batches)):
        (row,) = piece.to_pylist()
        found[row["task"]].extend(row for batch in batches_in(row["changes"]) for row in batch.to_pylist())
    return found


def test_addresses_come_in_front_of_the_data_columns() -> None:
    """ROW__ID of existing rows, the own transaction for inserts; any names of columns are allowed."""
    addressed = ADDRESSER.addressed(changes(2, 2))
    assert addressed.schema.names == [*ADDRESS_COLUMNS, "id", "odd. `name"]
    assert [tuple(row.values()) for row in addressed.to_pylist()] == [
        ("ds=d2/hr=2", 2, 0, 7, 0, 0, 2, "text 2"),
        ("ds=gone/hr=1", 1, 2, 1, 1, 3, None, None),
    ]


@pytest.mark.thorough(1)
@pytest.mark.parametrize("memory_bytes", [1, 3_000, 10**9])
@pytest.mark.parametrize("tasks", [1, 3, 8, 70_000])
def test_every_change_goes_to_one_task_and_every_group_too(tasks: int, memory_bytes: int) -> None:
    """However large the batches are, and however many are split at once."""
    batches = [changes(first, 50) for first in range(0, 400, 50)]
    in_one = split([changes(0, 400)], tasks, memory_bytes)
    found = split(batches, tasks, memory_bytes)
    given = [row for batch in ADDRESSER(iter(batches)) for row in batch.to_pylist()]
    for contents in (in_one, found):
        assert sorted(map(str, itertools.chain(*contents.values()))) == sorted(map(str, given))
        assert all(0 <= task < tasks for task in contents)
    groups = {task: {tuple(row.values())[:2] for row in rows} for task, rows in found.items()}
    assert groups == {task: {tuple(row.values())[:2] for row in rows} for task, rows in in_one.items()}
    assert sum(map(len, groups.values())) == len(set().union(*groups.values()))


def test_the_buckets_of_a_partition_keep_all_tasks_busy() -> None:
    """As many buckets as tasks: one for each."""
    found = split([changes(0, 400).filter(pa.array([n % 15 == 0 for n in range(400)]))], 4, 10**9)
    buckets = [
        {row["__bucket"] for row in rows if row["__partition"] == "ds=d0/hr=0"} for rows in found.values()
    ]
    assert sorted(map(sorted, buckets)) == [[0], [1], [2], [3]]


def test_a_piece_tells_each_of_its_partitions_once() -> None:
    """Not those of other pieces: with thousands of partitions and tasks they would be most of the bytes."""
    for piece in ChangeSplitter(ADDRESSER, 8, 10**9)(iter([changes(0, 400)])):
        (found,) = batches_in(piece.column("changes")[0].as_py())
        names = found.column("__partition").dictionary.to_pylist()
        assert sorted(names) == sorted(set(found.column("__partition").to_pylist()))


@pytest.mark.long
@pytest.mark.parametrize("sort_memory_bytes", [1, 20_000, 10**9])
def test_pieces_of_other_partitions_are_sorted_together(sort_memory_bytes: int) -> None:
    """In memory, and through files: each row keeps the name of its partition, and each group is met once."""
    sizes = [1 + n * 37 % 90 for n in range(60)]
    batches = [changes(first, size) for first, size in zip(itertools.accumulate(sizes), sizes, strict=True)]
    pieces = [
        piece.column("changes")[0].as_py()
        for batch in batches
        for piece in ChangeSplitter(ADDRESSER, 1, 10**9)(iter([batch]))
    ]
    writer = ChangeWriter("", "w", WriterOptions(sort_memory_bytes=sort_memory_bytes), HadoopSettings())
    found = [
        row
        for batch in writer.in_order("default.t", (rows for piece in pieces for rows in batches_in(piece)))
        for row in batch.to_pylist()
    ]
    given = [row for batch in ADDRESSER(iter(batches)) for row in batch.to_pylist()]
    assert sorted(map(str, found)) == sorted(map(str, given))
    groups = [(row["__partition"], row["__bucket"]) for row in found]
    assert len(list(itertools.groupby(groups))) == len(set(groups))
    for _, rows in itertools.groupby(found, lambda row: (row["__partition"], row["__bucket"])):
        order = [(row["__txn"], row["__row_number"]) for row in rows]
        assert order == sorted(order)


def test_nothing_makes_no_piece() -> None:
    """No batches, or batches without rows."""
    assert split([], 3, 100) == {}
    assert split([changes(0, 0)], 3, 100) == {}
