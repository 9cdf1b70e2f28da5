"""MutatorCoordinator in format 2: write ids, bucket properties, tables without buckets or row ids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pytest

from mutation_api.errors import (
    BucketIdError,
    ConfigurationError,
    RecordSequenceError,
    RowIdNotFoundError,
    TableNotMutableError,
    TransactionStateError,
)
from mutation_api.format.event import RowIdArrays, bucket_property
from mutation_api.format.layout import AcidVersion
from mutation_api.transaction.manifest import FileKind
from tests.unit.write.tables import acid_table, coordinator, events, ids_of_bucket

V2 = [version for version in AcidVersion if version.encodes_buckets]
INSERT_ONLY = [version for version in AcidVersion if not version.has_row_ids]
UNBUCKETED = {"bucket_columns": (), "num_buckets": -1}
versions = pytest.mark.parametrize("version", V2)


def ids(*row_ids) -> RowIdArrays:
    return RowIdArrays(*np.array(row_ids, np.int64).T)


@versions
def test_events_carry_the_write_id_and_copied_bucket_properties(tmp_path, version):
    """New rows belong to statement 0 of the write id; what existed keeps the property it had, of whichever
    statement, and its deletes lie in the file of the bucket that the property names.
    """
    table = acid_table(tmp_path, version, txn_id=90, write_id=5)
    one, two = ids_of_bucket(table, 1, 2)
    old, merged = bucket_property(1, 0), bucket_property(1, 3)
    with coordinator(table) as target:
        target.insert([], {"id": two, "msg": "a"})
        target.delete([], {"ROW__ID": (3, old, 9)})
        target.update([], {"ROW__ID": (3, merged, 2), "id": one, "msg": "u"})
        target.delete([], {"ROW__ID": (4, 1, 0)})
    manifests = {manifest.kind: manifest for manifest in target.close()}
    assert events(manifests[FileKind.DELETE_DELTA]) == [
        (2, 3, old, 9, 5, None),
        (2, 3, merged, 2, 5, None),
        (2, 4, 1, 0, 5, None),
    ]
    assert events(manifests[FileKind.DELTA]) == [(0, 5, old, 0, 5, (two, "a")), (0, 5, old, 1, 5, (one, "u"))]
    for kind, manifest in manifests.items():
        assert (manifest.txn_id, manifest.write_id, manifest.bucket_id) == (90, 5, 1)
        assert str(manifest.staged.location).startswith(f"file:{tmp_path}/_mutation_90/")
        assert str(manifest.target) == f"file:{tmp_path}/{kind.value}_0000005_0000005_0000/bucket_00001"


@versions
def test_the_order_is_by_write_id_property_and_row_id(tmp_path, version):
    """Rows of statement 1 of a write id follow all rows of statement 0, whatever their numbers."""
    table = acid_table(tmp_path, version)
    first, second = bucket_property(0, 0), bucket_property(0, 1)
    with coordinator(table) as target:
        for identity in ((3, first, 9), (3, second, 0), (4, first, 0)):
            target.delete([], {"ROW__ID": identity})
    target = coordinator(table, writer_id="other")
    target.delete([], {"ROW__ID": (3, second, 0)})
    with pytest.raises(RecordSequenceError, match=rf"\(3, {first}, 9\) comes after \(3, {second}, 0\)"):
        target.delete([], {"ROW__ID": (3, first, 9)})


@versions
@pytest.mark.parametrize(
    ("identity", "error", "message"),
    [
        ((3, -1, 0), BucketIdError, r"Hive never writes.*\(3, -1, 0\)"),
        ((3, 4096, 0), BucketIdError, r"Hive never writes.*\(3, 4096, 0\)"),
        ((3, 2 << 29, 0), BucketIdError, "Hive never writes"),
        ((3, bucket_property(0) | 0x1000, 0), BucketIdError, "Hive never writes"),
        ((3, bucket_property(2), 0), BucketIdError, "expected 0 <= bucket < 2; .*bucket=2"),
        ((3, bucket_property(0), -1), RowIdNotFoundError, "transaction 90 cannot contain.*write id 5 cannot"),
        ((5, bucket_property(0), 0), RowIdNotFoundError, "that write id 5 cannot change"),
        ((90, bucket_property(0), 0), RowIdNotFoundError, "that write id 5 cannot change"),
    ],
)
def test_a_row_id_that_hive_cannot_have_given_is_refused(tmp_path, version, identity, error, message):
    """Readers would silently ignore such a delete."""
    table = acid_table(tmp_path, version, txn_id=90, write_id=5)
    with pytest.raises(error, match=message):
        coordinator(table).delete([], {"ROW__ID": identity})
    with pytest.raises(error):
        bucket = 0 if identity[1] != bucket_property(2) else 2
        coordinator(table).write_events("", bucket, np.array([2], np.int8), ids(identity), None)


@versions
def test_a_slice_of_another_bucket_is_refused(tmp_path, version):
    """Readers look for the deletes of a bucket in its own file only."""
    table = acid_table(tmp_path, version)
    with pytest.raises(BucketIdError, match=r"readers ignore a delete.*bucket=1, bucket of the group=0"):
        coordinator(table).write_events(
            "",
            0,
            np.array([2, 2], np.int8),
            ids((3, bucket_property(0), 0), (3, bucket_property(1), 0)),
            None,
        )


def test_a_misplaced_row_stays_where_hive_3_put_it(tmp_path):
    """Hive 3.1 hashes by its engine, not by the table; elsewhere such an update would move the row."""
    for version in V2:
        table = acid_table(tmp_path, version)
        of_other_bucket = ids_of_bucket(table, 0, 1)[0]
        record = {"ROW__ID": (3, bucket_property(1), 0), "id": of_other_bucket, "msg": "u"}
        if not version.keeps_misplaced_rows:
            with pytest.raises(BucketIdError, match=r"cannot move its row.*, bucket=1, .*computed bucket=0"):
                coordinator(table).update([], record)
            continue
        with coordinator(table) as target:
            target.update([], record)
        assert {manifest.bucket_id for manifest in target.close()} == {1}


@versions
def test_an_attached_bucket_of_an_insert_may_be_encoded_or_not(tmp_path, version):
    """It must be the row's; both spellings name it."""
    table = acid_table(tmp_path, version)
    one = ids_of_bucket(table, 1, 1)[0]
    with coordinator(table) as target:
        for bucket in (1, bucket_property(1)):
            target.insert([], {"ROW__ID": (None, bucket, None), "id": one, "msg": "x"})
    with pytest.raises(BucketIdError, match=r"attached to an insert.*, bucket=0, .*computed bucket=1"):
        coordinator(table).insert([], {"ROW__ID": (None, 0, None), "id": one, "msg": "x"})


@versions
def test_tables_without_buckets(tmp_path, version):
    """Inserts go to the writer's own file, deletes and updates to the file of the ROW__ID: any of 4,096."""
    table = acid_table(tmp_path, version, **UNBUCKETED)
    last = bucket_property(4095)
    with coordinator(table, insert_bucket_id=3) as target:
        target.insert([], pa.table({"id": [1, 2], "msg": ["a", "b"]}))
        target.update([], {"ROW__ID": (3, last, 0), "id": 8, "msg": "u"})
    found = {(m.kind, m.bucket_id): events(m) for m in target.close()}
    mine = bucket_property(3)
    assert found == {
        (FileKind.DELTA, 3): [(0, 7, mine, 0, 7, (1, "a")), (0, 7, mine, 1, 7, (2, "b"))],
        (FileKind.DELETE_DELTA, 4095): [(2, 3, last, 0, 7, None)],
        (FileKind.DELTA, 4095): [(0, 7, last, 0, 7, (8, "u"))],
    }
    for bucket in (-1, 4096):
        with pytest.raises(ConfigurationError, match=f"insert_bucket_id {bucket}"):
            coordinator(table, insert_bucket_id=bucket)
        with pytest.raises(BucketIdError, match="a bucket that the table does not have"):
            coordinator(table).write_events("", bucket, np.array([2], np.int8), ids((3, last, 0)), None)


@pytest.mark.parametrize("version", INSERT_ONLY)
@pytest.mark.parametrize("clustered", [True, False])
def test_insert_only_files_hold_rows_alone(tmp_path, version, clustered):
    """The files have no events and no ACID metadata; their names are those of Hive's tasks."""
    table = acid_table(tmp_path, version, **({} if clustered else UNBUCKETED))
    one = ids_of_bucket(table, 1, 1)[0] if clustered else 4
    with coordinator(table, insert_bucket_id=1) as target:
        target.insert([], {"id": one, "msg": "a"})
        target.write_events("", 1, np.zeros(1, np.int8), ids((0, 0, 0)), pa.array([{"id": one, "msg": None}]))
    (manifest,) = target.close()
    file = orc.ORCFile(manifest.staged.location.path)
    assert file.read().to_pylist() == [{"id": one, "msg": "a"}, {"id": one, "msg": None}]
    assert not file.metadata
    assert manifest.kind is FileKind.DELTA
    assert str(manifest.target) == f"file:{tmp_path}/delta_0000007_0000007_0000/000001_0"
    assert (manifest.insert_count, manifest.row_count) == (2, 2)


@pytest.mark.parametrize("version", INSERT_ONLY)
def test_insert_only_tables_refuse_updates_and_deletes(tmp_path, version):
    """Their rows have no identity."""
    table = acid_table(tmp_path, version)
    with pytest.raises(TableNotMutableError, match=r"it is insert-only.*operation='delete'"):
        coordinator(table).delete([], {"ROW__ID": (3, 0, 0)})
    with pytest.raises(TableNotMutableError, match=r"it is insert-only.*operation='update'"):
        coordinator(table).update([], {"ROW__ID": (3, 0, 0), "id": 1, "msg": ""})
    with pytest.raises(TableNotMutableError, match="insert-only"):
        coordinator(table).write_events("", 0, np.array([2], np.int8), ids((3, 0, 0)), None)


def test_a_table_without_its_write_id_cannot_be_written(tmp_path):
    """The id in names and events is not the transaction's."""
    with pytest.raises(TransactionStateError, match="has no write id"):
        coordinator(acid_table(tmp_path, AcidVersion.V2_HIVE4, write_id=None))


@pytest.mark.parametrize("version", list(AcidVersion))
def test_codecs_are_those_that_the_line_reads(tmp_path, version):
    """ZSTD is Hive 4's alone."""
    assert ("zstd" in version.compressions) == version.is_hive_4
    for codec in version.compressions:
        coordinator(acid_table(tmp_path, version, compression=codec))
    with pytest.raises(ConfigurationError, match="compression 'lzo'; expected one of zlib, snappy"):
        coordinator(acid_table(tmp_path, version, compression="lzo"))
