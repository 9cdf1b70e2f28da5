"""Groups of records: each occurs once, in order, and its files are complete or deleted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mutation_api.errors import (
    DeltaWriteError,
    GroupRevisitedError,
    RecordSequenceError,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.manifest import FileKind
from tests.unit.write.tables import DS, acid_table, coordinator, files_below, ids_of_bucket, row_id, versions


@pytest.mark.parametrize("groups", ["a0 a1 a0", "a0 b0 a0", "a0 a1 b0 a1", "a0 a0 b0 b1 b0"])
def test_a_group_that_comes_back_is_refused(tmp_path, groups):
    """Its file is closed; Hive's API found this by the file system only, and late."""
    table = acid_table(tmp_path, keys=DS)
    target = coordinator(table)
    *right, wrong = groups.split()
    for partition, bucket in right:
        target.insert([partition], {"id": ids_of_bucket(table, int(bucket), 1)[0], "msg": ""})
    with pytest.raises(GroupRevisitedError, match=rf"partition 'ds={wrong[0]}', bucket {wrong[1]}"):
        target.insert([wrong[0]], {"id": ids_of_bucket(table, int(wrong[1]), 1)[0], "msg": ""})
    target.abort()
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("groups", ["a0 b0 a1", "a0 a1 b0 a2", "a2 a0 a1 b0"])
def test_distinct_groups_in_any_order_are_right(tmp_path, groups):
    """Hive's API refused the second of these, because it looked at the bucket of the group before."""
    table = acid_table(tmp_path, keys=DS, num_buckets=3)
    with coordinator(table) as target:
        for partition, bucket in groups.split():
            target.insert([partition], {"id": ids_of_bucket(table, int(bucket), 1)[0], "msg": ""})
    assert [f"{m.partition_values[0]}{m.bucket_id}" for m in target.close()] == groups.split()


# One letter an operation, the number is the row id; the last one is refused.
@versions
@pytest.mark.parametrize("records", ["u5 u3", "u1 u3 u2", "u1 u3 d3", "u1 d1", "d1 d1", "d1 i u0"])
@pytest.mark.parametrize("batch_rows", [1, 100])
def test_records_out_of_sequence_are_refused(tmp_path, version, records, batch_rows):
    """The first record of a group is checked too; the message names a duplicate ROW__ID as such."""
    table = acid_table(tmp_path, version)
    target = coordinator(table, options=WriterOptions(batch_rows=batch_rows))
    doubled = records[-2] != "0" and records.split()[-1][1:] == records.split()[-2][1:]
    with pytest.raises(RecordSequenceError, match="occurs twice" if doubled else "ascend|follows"):
        play(target, table, records)
        target.close()
    target.abort()
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("records", ["i u1", "u1 i u2", "u1 i d2"])
def test_legacy_inserts_come_last(tmp_path, records):
    """Hive's API accepted these and old row versions came back; a split table keeps them in two files."""
    legacy = acid_table(tmp_path / "legacy")
    with pytest.raises(RecordSequenceError, match="inserts come last"):
        play(coordinator(legacy), legacy, records)
    split = acid_table(tmp_path / "split", AcidVersion.V1_SPLIT)
    target = coordinator(split)
    play(target, split, records)
    assert len(target.close()) == 2


@versions
@pytest.mark.parametrize("records", ["u1 u3 d4 i", "d0 u1 d2", "i i", "u0 u1 u2 i i i"])
def test_right_sequences_are_accepted(tmp_path, version, records):
    """Correct orders are accepted."""
    table = acid_table(tmp_path, version)
    target = coordinator(table)
    play(target, table, records)
    assert sum(m.insert_count for m in target.close()) == records.count("i")


def play(target, table, records):
    some_id = ids_of_bucket(table, 0, 1)[0]
    for record in records.split():
        kind, number = record[0], record[1:]
        if kind == "i":
            target.insert([], {"id": some_id, "msg": ""})
        elif kind == "u":
            target.update([], {"ROW__ID": row_id(1, 0, int(number)), "id": some_id, "msg": ""})
        else:
            target.delete([], {"ROW__ID": row_id(1, 0, int(number))})


def test_a_new_group_starts_a_new_sequence(tmp_path):
    """Bucket 0 ends at row 5, bucket 1 starts at row 0: right."""
    table = acid_table(tmp_path)
    with coordinator(table) as target:
        target.delete([], {"ROW__ID": row_id(1, 0, 5)})
        target.delete([], {"ROW__ID": row_id(1, 1, 0)})
    assert [m.bucket_id for m in target.close()] == [0, 1]


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    """The error names file, table, partition and bucket; after abort nothing is left."""
    table = acid_table(tmp_path, keys=DS)
    target = coordinator(table)
    target.insert(["a"], {"id": ids_of_bucket(table, 1, 1)[0], "msg": ""})
    file = target._groups._mutator._files[FileKind.DELTA]._file
    file._stream.close()
    file._stream = pa.OSFile("/dev/full", "wb")
    with pytest.raises(
        DeltaWriteError,
        match=r"table db\.t, partition 'ds=a', bucket 1: file .*bucket_00001 could not .*space",
    ):
        target.close()
    target.abort()
    assert files_below(tmp_path) == []
