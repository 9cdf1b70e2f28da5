"""Addresses of changes: partition, bucket, operation and ROW__ID, and every way to get them wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.errors import (
    BucketIdError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
    RowIdNotFoundError,
    TableNotMutableError,
)
from mutation_api.format.event import MAX_BUCKETS, bucket_property
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.write.classify import ADDRESS_TYPE, ChangeClassifier

OWN_TXN = 9
ABORTED_TXN = 6

TABLE = AcidTable(
    database="default",
    name="t",
    location=Location.parse("file:/warehouse/t"),
    columns=(AcidColumn("id", "bigint"), AcidColumn("msg", "string")),
    partition_keys=(AcidColumn("ds", "string"),),
    num_buckets=4,
    bucket_columns=("id",),
    version=AcidVersion.V1_LEGACY,
    txn_id=OWN_TXN,
)
UNPARTITIONED = dataclasses.replace(TABLE, partition_keys=())
VALID = ValidTxnList(high_watermark=8, exceptions=(ABORTED_TXN,))

ROW_ID = pa.struct([("txn", pa.int64()), ("bucket", pa.int32()), ("row_id", pa.int64())])
ROW_ID_WITH_PARTITION = pa.struct([*ROW_ID, ("partition", pa.string())])
COLUMNS = pa.struct([("ds", pa.string()), ("id", pa.int64())])


def bucket_of(*ids: int) -> list[int]:
    """The bucket each id hashes to."""
    return list(BucketIdResolver(TABLE).resolve(pa.table({"id": pa.array(ids, pa.int64())})).to_pylist())


def row_id(id: int, txn: int = 5, row: int = 0, partition: str | None = None) -> tuple[Any, ...]:
    """A ROW__ID in the bucket of ``id``."""
    values = (txn, bucket_of(id)[0], row)
    return values if partition is None else (*values, partition)


def classify(
    changes: Sequence[tuple[str | None, tuple[Any, ...] | None, str | None, int | None]],
    table: AcidTable = TABLE,
    **options: Any,
) -> list[tuple[Any, ...]]:
    """Addresses of (operation, ROW__ID, ds, id)."""
    row_type = ROW_ID_WITH_PARTITION if any(c[1] and len(c[1]) == 4 for c in changes) else ROW_ID
    names = [field.name for field in row_type]
    row_ids = pa.array([c[1] and dict(zip(names, c[1], strict=False)) for c in changes], row_type)
    columns = pa.array([{"ds": c[2], "id": c[3]} for c in changes], COLUMNS)
    found = ChangeClassifier(table, VALID, **options).classify(
        pa.array([c[0] for c in changes], pa.string()), row_ids, columns
    )
    assert found.type == ADDRESS_TYPE
    return [tuple(value.values()) for value in found.to_pylist()]


def test_each_kind_gets_its_address() -> None:
    """An insert is addressed by its values, an update and a delete by their ROW__ID; case does not matter."""
    found = classify(
        [
            ("insert", None, "a b", 7),
            ("UPDATE", row_id(8, row=3), "x/y", 8),
            ("Delete", row_id(9, txn=2, row=4), "x", None),
        ]
    )
    (insert_bucket,) = bucket_of(7)
    assert found == [
        ("ds=a b", insert_bucket, 0, OWN_TXN, 0, 0),
        ("ds=x%2Fy", bucket_of(8)[0], 1, 5, bucket_of(8)[0], 3),
        ("ds=x", bucket_of(9)[0], 2, 2, bucket_of(9)[0], 4),
    ]


def test_the_row_id_of_an_insert_is_ignored() -> None:
    """An insert's ROW__ID is ignored, even a wrong bucket in it."""
    assert classify([("insert", (99, 77, -5), "x", 7)]) == classify([("insert", None, "x", 7)])


def test_the_values_of_a_delete_are_ignored() -> None:
    """A delete's values are ignored: its bucket column, and its partition if ROW__ID has that."""
    other = next(i for i in range(100) if bucket_of(i) != bucket_of(7))
    found = classify([("delete", row_id(7, partition="ds=x"), "y", other)])
    assert found == [("ds=x", bucket_of(7)[0], 2, 5, bucket_of(7)[0], 0)]


def test_null_and_empty_partition_values_are_the_default_partition() -> None:
    """NULL and '' both live in Hive's default partition."""
    found = classify([("insert", None, None, 1), ("insert", None, "", 2)])
    assert [f[0] for f in found] == ["ds=__HIVE_DEFAULT_PARTITION__"] * 2


def test_unpartitioned_tables_have_the_empty_name() -> None:
    """The partition name of an unpartitioned table is ''."""
    assert classify([("insert", None, "ignored", 1)], UNPARTITIONED)[0][0] == ""


def test_an_empty_batch_is_fine() -> None:
    """No changes, no addresses."""
    assert classify([]) == []


def test_many_rows_agree_with_the_resolver() -> None:
    """In a mixed batch every row keeps its own address."""
    ids = np.random.default_rng(5).integers(0, 1_000_000, 1000).tolist()
    kinds = ["insert", "update", "delete"]
    changes = [(kinds[i % 3], row_id(id, row=i), f"p{i % 7}", id) for i, id in enumerate(ids)]
    found = classify(changes)
    assert [f[0] for f in found] == [f"ds=p{i % 7}" for i in range(1000)]
    assert [f[1] for f in found] == bucket_of(*ids)
    assert [f[5] for f in found] == [0 if i % 3 == 0 else i for i in range(1000)]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            ("upsert", None, "x", 1),
            RecordValueError,
            "one of 'insert', 'update', 'delete'.*operation='upsert'",
        ),
        ((None, None, "x", 1), RecordValueError, "operation=None"),
        (("update", None, "x", 1), RecordValueError, "needs the complete ROW__ID"),
        (("delete", (5, None, 1), "x", 1), RecordValueError, "needs the complete ROW__ID"),
        (("delete", (5, 4, 1), "x", 1), BucketIdError, r"expected 0 <= bucket < 4.*\(5, 4, 1\)"),
        (("delete", (5, -1, 1), "x", 1), BucketIdError, "expected 0 <= bucket < 4"),
        (("delete", row_id(1, txn=OWN_TXN), "x", 1), RowIdNotFoundError, "cannot contain"),
        (("delete", row_id(1, txn=999_999), "x", 1), RowIdNotFoundError, "cannot contain"),
        (("delete", row_id(1, txn=ABORTED_TXN), "x", 1), RowIdNotFoundError, "cannot contain"),
        (("delete", row_id(1, txn=-1), "x", 1), RowIdNotFoundError, "cannot contain"),
        (("delete", row_id(1, row=-1), "x", 1), RowIdNotFoundError, "cannot contain"),
    ],
)
def test_bad_changes_are_refused_by_name(
    change: tuple[Any, ...], error: type[MutationError], message: str
) -> None:
    """One bad row refuses the batch; the message names the table and shows the row."""
    good = ("insert", None, "x", 1)
    with pytest.raises(error, match=message) as caught:
        classify([good, change, good])
    assert "table default.t" in str(caught.value)
    assert "Found in 1 of 3 changes: (" in str(caught.value)


def test_original_files_have_transaction_zero() -> None:
    """Rows from before the table was transactional carry transaction 0 and may be changed."""
    assert classify([("delete", row_id(1, txn=0), "x", 1)])[0][3] == 0


def test_an_update_that_moves_a_row_to_another_bucket_is_refused() -> None:
    """An update whose bucket column hashes elsewhere is refused, with the advice to delete and insert."""
    other = next(i for i in range(100) if bucket_of(i) != bucket_of(7))
    with pytest.raises(
        BucketIdError, match=r"another bucket.*delete the old row and insert.*computed bucket"
    ):
        classify([("update", row_id(7), "x", other)])


def test_an_update_that_moves_a_row_to_another_partition_is_refused() -> None:
    """An update of a row whose ROW__ID has another partition is refused, with the same advice."""
    with pytest.raises(RecordValueError, match=r"a partition other.*delete the old row.*'ds=x'.*'ds=y'"):
        classify([("update", row_id(7, partition="ds=x"), "y", 7)])
    assert classify([("update", row_id(7, partition="ds=x"), "x", 7)])[0][0] == "ds=x"


def test_only_deletes_may_leave_columns_out() -> None:
    """With data columns missing a delete passes, an insert would write NULLs and is refused."""
    assert classify([("delete", row_id(7), "x", 7)], missing_columns=("msg",))
    with pytest.raises(RecordLayoutError, match="lacks the columns msg; only a change set of deletes"):
        classify([("insert", None, "x", 7)], missing_columns=("msg",))


def test_partition_from_the_row_id_alone() -> None:
    """Without partition columns the ROW__ID gives the partition; if it has none, the change is refused."""
    found = classify([("update", row_id(7, partition="ds=q"), None, 7)], has_partition_columns=False)
    assert found[0][0] == "ds=q"
    with pytest.raises(RecordLayoutError, match="lacks the partition columns ds"):
        classify([("insert", row_id(7, partition="ds=q"), None, 7)], has_partition_columns=False)


def test_without_a_row_id_column_only_inserts_pass() -> None:
    """A change set without ROW__ID is one of inserts."""
    classifier = ChangeClassifier(UNPARTITIONED, VALID)
    columns = pa.array([{"ds": None, "id": 1}], COLUMNS)
    assert classifier.classify(pa.array(["insert"]), None, columns).to_pylist()[0]["operation"] == 0
    with pytest.raises(RecordValueError, match="needs the complete ROW__ID"):
        classifier.classify(pa.array(["delete"]), None, columns)


# -- tables with write ids -----------------------------------------------------------------------------------

OWN_WRITE_ID = 7
OTHERS_WRITE_ID = 8
"""Of a transaction that is older than ours but allocated its write id later; visible nevertheless."""
ABORTED_WRITE_ID = 3
WRITE_IDS = ValidWriteIdList(
    OTHERS_WRITE_ID, (ABORTED_WRITE_ID,), aborted=frozenset({ABORTED_WRITE_ID}), table="default.t"
)
V2 = (AcidVersion.V2_HIVE3, AcidVersion.V2_HIVE4)
INSERT_ONLY = tuple(v for v in AcidVersion if not v.has_row_ids)


def v2_table(version: AcidVersion, *, is_bucketed: bool = True, bucketing_version: int = 2) -> AcidTable:
    """Unpartitioned, of transaction OWN_TXN and write id OWN_WRITE_ID."""
    return dataclasses.replace(
        UNPARTITIONED,
        version=version,
        bucketing_version=bucketing_version,
        write_id=OWN_WRITE_ID,
        num_buckets=4 if is_bucketed else -1,
        bucket_columns=("id",) if is_bucketed else (),
    )


def addresses(
    table: AcidTable,
    changes: Sequence[tuple[str, tuple[int, int, int] | None, int | None]],
    writers: Sequence[int] | None = None,
) -> list[tuple[Any, ...]]:
    """Addresses, without the partition, of (operation, ROW__ID, id) in a table with write ids."""
    names = [field.name for field in ROW_ID]
    row_ids = pa.array([c[1] and dict(zip(names, c[1], strict=True)) for c in changes], ROW_ID)
    columns = pa.array([{"ds": None, "id": c[2]} for c in changes], COLUMNS)
    found = ChangeClassifier(table, WRITE_IDS).classify(
        pa.array([c[0] for c in changes]),
        row_ids,
        columns,
        None if writers is None else pa.array(writers, pa.int32()),
    )
    return [tuple(value.values())[1:] for value in found.to_pylist()]


@pytest.mark.parametrize("bucketing_version", [1, 2])
@pytest.mark.parametrize("version", V2)
def test_v2_buckets_are_decoded_and_properties_kept(version: AcidVersion, bucketing_version: int) -> None:
    """The file is that of the decoded bucket, the property (statement 5 in it, or a plain id) stays as it is;
    an insert goes by the hash that the table says, and carries the write id.
    """
    table = v2_table(version, bucketing_version=bucketing_version)
    ids = pa.table({"id": pa.array([7, 8], pa.int64())})
    seven, eight = BucketIdResolver(table).resolve(ids).to_pylist()
    changes = [
        ("insert", (99, 99, 99), 7),
        ("update", (5, bucket_property(eight, 5), 3), 8),
        ("delete", (2, bucket_property(1), 4), None),
        ("delete", (2, 2, 4), None),
    ]
    assert addresses(table, changes) == [
        (seven, 0, OWN_WRITE_ID, 0, 0),
        (eight, 1, 5, bucket_property(eight, 5), 3),
        (1, 2, 2, bucket_property(1), 4),
        (2, 2, 2, 2, 4),
    ]


def test_the_two_hashes_differ() -> None:
    """Otherwise the test above could not distinguish them."""
    ids = pa.table({"id": pa.array(range(20), pa.int64())})
    one, two = (
        BucketIdResolver(v2_table(V2[0], bucketing_version=n)).resolve(ids).to_pylist() for n in (1, 2)
    )
    assert one != two


@pytest.mark.parametrize("version", V2)
def test_an_update_of_a_misplaced_row(version: AcidVersion) -> None:
    """If Hive itself misplaces rows, they stay in their bucket; otherwise that is a move and is refused."""
    table = v2_table(version)
    hashed = BucketIdResolver(table).resolve(pa.table({"id": pa.array([7], pa.int64())})).to_pylist()[0]
    other = bucket_property((hashed + 1) % 4)
    if version.keeps_misplaced_rows:
        (found,) = addresses(table, [("update", (5, other, 0), 7)])
        assert found == ((hashed + 1) % 4, 1, 5, other, 0)
    else:
        with pytest.raises(BucketIdError, match=r"another bucket.*delete the old row and insert"):
            addresses(table, [("update", (5, other, 0), 7)])


@pytest.mark.parametrize("version", V2)
@pytest.mark.parametrize(
    ("row_id", "error", "message"),
    [
        ((5, bucket_property(4), 0), BucketIdError, "expected 0 <= bucket < 4.*bucket=4"),
        ((5, 4096, 0), BucketIdError, "a bucket field that Hive never writes.*4096"),
        ((5, 2 << 29, 0), BucketIdError, "a bucket field that Hive never writes"),
        ((5, bucket_property(1) | 1 << 12, 0), BucketIdError, "a bucket field that Hive never writes"),
        ((5, -1, 0), BucketIdError, "a bucket field that Hive never writes"),
        (
            (OWN_WRITE_ID, bucket_property(1), 0),
            RowIdNotFoundError,
            "write id is negative, open, aborted or not below 7",
        ),
        ((OTHERS_WRITE_ID, bucket_property(1), 0), RowIdNotFoundError, "that write id 7 cannot change"),
        ((ABORTED_WRITE_ID, bucket_property(1), 0), RowIdNotFoundError, "transaction 9 cannot contain"),
        ((5, bucket_property(1), -1), RowIdNotFoundError, "cannot contain"),
    ],
)
def test_v2_row_ids_that_cannot_be(
    version: AcidVersion, row_id: tuple[int, int, int], error: type[MutationError], message: str
) -> None:
    """Judged by the table's write ids, not by the transaction's id; each would be silently without effect."""
    assert WRITE_IDS.is_valid(OTHERS_WRITE_ID)
    with pytest.raises(error, match=message) as caught:
        addresses(v2_table(version), [("insert", None, 1), ("delete", row_id, None)])
    assert "table default.t" in str(caught.value)


@pytest.mark.parametrize("version", V2)
def test_tables_without_buckets(version: AcidVersion) -> None:
    """An insert goes to the writer it was given, an existing row to any bucket that a ROW__ID can name."""
    table = v2_table(version, is_bucketed=False)
    last = bucket_property(MAX_BUCKETS - 1, 1)
    changes = [("insert", None, 1), ("update", (5, last, 0), 1), ("insert", None, 2)]
    assert addresses(table, changes, writers=[3, 1, 0]) == [
        (3, 0, OWN_WRITE_ID, 0, 0),
        (MAX_BUCKETS - 1, 1, 5, last, 0),
        (0, 0, OWN_WRITE_ID, 0, 0),
    ]


@pytest.mark.parametrize("version", INSERT_ONLY)
@pytest.mark.parametrize("is_bucketed", [True, False])
def test_insert_only_tables(version: AcidVersion, is_bucketed: bool) -> None:
    """They take inserts, and refuse updates and deletes even with a good-looking ROW__ID."""
    table = v2_table(version, is_bucketed=is_bucketed)
    (found,) = addresses(table, [("insert", None, 1)], writers=[2])
    hashed = BucketIdResolver(v2_table(version)).resolve(pa.table({"id": pa.array([1], pa.int64())}))
    assert found == (hashed[0].as_py() if is_bucketed else 2, 0, OWN_WRITE_ID, 0, 0)
    for operation in ("update", "delete"):
        with pytest.raises(TableNotMutableError, match=r"default\.t: it is insert-only.*neither updated nor"):
            addresses(table, [("insert", None, 1), (operation, (5, bucket_property(1), 0), 1)], [1, 1])
