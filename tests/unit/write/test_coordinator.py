"""MutatorCoordinator: cases in which Hive's own API lost or duplicated rows, and our behaviour in each."""

from __future__ import annotations

import datetime
import os

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.errors import (
    BucketIdError,
    ConfigurationError,
    RecordLayoutError,
    RecordValueError,
    RowIdNotFoundError,
    TransactionStateError,
)
from mutation_api.format.event import RowIdArrays
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import TableRole, WriterOptions
from mutation_api.transaction.manifest import FileKind
from tests.unit.write.tables import (
    DS,
    TXN_ID,
    acid_table,
    coordinator,
    events,
    files_below,
    ids_of_bucket,
    row_id,
    versions,
)


def ids(txns, buckets, numbers) -> RowIdArrays:
    return RowIdArrays(np.array(txns), np.array(buckets), np.array(numbers))


@pytest.mark.parametrize("batch_rows", [1, 3, 10_000])
def test_legacy_events(tmp_path, batch_rows):
    """Updates keep their ROW__ID, deletes have no row, inserts count from 0 under the own transaction."""
    table = acid_table(tmp_path)
    one, two, three = ids_of_bucket(table, 1, 3)
    with coordinator(table, options=WriterOptions(batch_rows=batch_rows)) as target:
        target.update([], {"ROW__ID": row_id(3, 1, 8), "id": one, "msg": "u"})
        target.delete([], {"ROW__ID": row_id(4, 1, 0)})
        target.insert([], {"ID": two, "Msg": "a"})
        target.insert(None, {"msg": None, "id": three})
    (manifest,) = target.close()
    assert events(manifest) == [
        (1, 3, 1, 8, 7, (one, "u")),
        (2, 4, 1, 0, 7, None),
        (0, 7, 1, 0, 7, (two, "a")),
        (0, 7, 1, 1, 7, (three, None)),
    ]
    assert (manifest.insert_count, manifest.update_count, manifest.delete_count) == (2, 1, 1)
    assert manifest.kind is FileKind.DELTA
    assert str(manifest.staged.location) == f"file:{tmp_path}/_mutation_7/w/0/0_delta_bucket_00001"
    assert str(manifest.target) == f"file:{tmp_path}/delta_0000007_0000007_0000/bucket_00001"
    assert (manifest.row_count, manifest.bucket_id, manifest.partition_values) == (4, 1, ())
    assert files_below(tmp_path) == [manifest.staged.location.path]


@pytest.mark.parametrize("batch_rows", [1, 3, 10_000])
def test_split_events(tmp_path, batch_rows):
    """An update is a delete of its ROW__ID and an insert that shares the inserts' counter, in order."""
    table = acid_table(tmp_path, AcidVersion.V1_SPLIT)
    one, two, three = ids_of_bucket(table, 0, 3)
    with coordinator(table, options=WriterOptions(batch_rows=batch_rows)) as target:
        target.insert([], {"id": two, "msg": "a"})
        target.update([], {"ROW__ID": row_id(3, 0, 8), "id": one, "msg": "u"})
        target.delete([], {"ROW__ID": row_id(4, 0, 0)})
        target.insert([], {"id": three, "msg": "b"})
    manifests = {m.kind: m for m in target.close()}
    delta, deletes = manifests[FileKind.DELTA], manifests[FileKind.DELETE_DELTA]
    assert events(deletes) == [(2, 3, 0, 8, 7, None), (2, 4, 0, 0, 7, None)]
    assert events(delta) == [
        (0, 7, 0, 0, 7, (two, "a")),
        (0, 7, 0, 1, 7, (one, "u")),
        (0, 7, 0, 2, 7, (three, "b")),
    ]
    assert (delta.insert_count, delta.update_count, delta.delete_count) == (2, 1, 0)
    assert (deletes.insert_count, deletes.update_count, deletes.delete_count) == (0, 1, 1)
    assert str(deletes.target) == f"file:{tmp_path}/delete_delta_0000007_0000007_0000/bucket_00000"


@versions
def test_a_batch_equals_single_records(tmp_path, version):
    """The same records give the same events whichever way they come."""
    table = acid_table(tmp_path, version)
    ids = ids_of_bucket(table, 0, 3) + ids_of_bucket(table, 1, 2)
    records = [{"id": i, "msg": f"m{i}"} for i in ids]
    identities = [row_id(1, 0, n) for n in range(3)] + [row_id(2, 1, n) for n in range(2)]
    single = coordinator(table, writer_id="single")
    for identity, record in zip(identities, records, strict=True):
        single.update([], {**record, "ROW__ID": identity})
    batch = coordinator(table, writer_id="batch")
    structs = [{version.transaction_field: i[0], "bucketId": i[1], "rowId": i[2]} for i in identities]
    batch.update([], pa.table({"MSG": [r["msg"] for r in records], "row__id": structs, "Id": ids}))
    assert [events(m) for m in batch.close()] == [events(m) for m in single.close()]


@pytest.mark.thorough(1)
@versions
@pytest.mark.parametrize("batch_rows", [1, 4, 10_000])
@pytest.mark.parametrize("seed", range(5))
def test_single_records_spelled_in_any_way_equal_a_batch(tmp_path, version, batch_rows, seed):
    """Names in any order and case, a ROW__ID in any shape, wanted or not; layouts alternate."""
    rng = np.random.default_rng(seed)
    table = acid_table(tmp_path, version, keys=DS, num_buckets=1)
    count = 30
    operations = rng.integers(0, 3, count)
    if not version.splits_updates:
        operations = np.where(operations == 0, 3, operations)
        operations.sort()
        operations %= 3
    bucket = 2**29 if version.encodes_buckets else 0
    writer = coordinator(table, writer_id="single", options=WriterOptions(batch_rows=batch_rows))
    for number, operation in enumerate(operations.tolist()):
        identity = [(2, bucket, number), {"ROWID": number, version.transaction_field: 2, "bucketId": bucket}][
            rng.integers(2)
        ]
        if rng.integers(2):
            identity = (*row_id(2, bucket, number), "ds=a") if rng.integers(2) else row_id(2, bucket, number)
        fields = [("id", number), ("msg", None if number % 7 == 0 else f"m{number}"), ("row__id", identity)]
        if operation == 0:
            fields = fields[: 2 + int(rng.integers(2))]
        elif operation == 2 and rng.integers(2):
            fields = fields[2:]
        rng.shuffle(fields)
        record = {name.upper() if rng.integers(2) else name: value for name, value in fields}
        [writer.insert, writer.update, writer.delete][operation](["a"], record)
    numbers = np.arange(count)
    rows = pa.StructArray.from_arrays(
        [pa.array(numbers), pa.array([None if n % 7 == 0 else f"m{n}" for n in range(count)])],
        names=["id", "msg"],
    )
    batch = coordinator(table, writer_id="batch")
    identities = ids(np.full(count, 2), np.full(count, bucket), numbers)
    batch.write_events("ds=a", 0, operations.astype(np.int8), identities, rows)
    assert [events(m) for m in writer.close()] == [events(m) for m in batch.close()]


def test_a_row_id_of_numpy_numbers(tmp_path):
    """As they come out of arrays, mixed with Python's own."""
    with coordinator(acid_table(tmp_path, num_buckets=1), options=WriterOptions()) as target:
        target.delete([], {"ROW__ID": (np.int64(1), np.int32(0), 4)})
        target.delete([], {"ROW__ID": (2, np.uint64(0), np.int16(5))})
    assert [event[1:4] for event in events(target.close()[0])] == [(1, 0, 4), (2, 0, 5)]


def test_single_records_of_a_table_with_one_column(tmp_path):
    """A value alone is a column of one row, whatever its letters."""
    table = acid_table(tmp_path, columns=(("msg", "string"),), num_buckets=1, bucket_columns=("msg",))
    with coordinator(table, options=WriterOptions()) as target:
        target.update([], {"ROW__ID": (1, 0, 0), "msg": "abc"})
        target.delete([], {"ROW__ID": (1, 0, 1)})
        target.insert([], {"MSG": "xyz"})
    assert [event[5] for event in events(target.close()[0])] == [("abc",), None, ("xyz",)]


@pytest.mark.parametrize("operation", ["insert", "update"])
def test_a_bucket_that_the_row_contradicts_is_refused(tmp_path, operation):
    """A row in a wrong bucket is invisible or duplicated; an update cannot move it."""
    table = acid_table(tmp_path)
    target = coordinator(table)
    advice = "leave ROW__ID null" if operation == "insert" else "delete the old row and insert the new one"
    with pytest.raises(BucketIdError, match=rf"{advice}.*ROW__ID=\(1, 0, 0\), bucket=0, .*computed bucket=1"):
        getattr(target, operation)(
            [], {"ROW__ID": row_id(1, 0, 0), "id": ids_of_bucket(table, 1, 1)[0], "msg": ""}
        )
    target.abort()
    assert files_below(tmp_path) == []


def test_an_update_within_its_bucket_may_change_the_bucket_column(tmp_path):
    """Only the bucket counts, not the value."""
    table = acid_table(tmp_path)
    with coordinator(table) as target:
        target.update([], {"ROW__ID": row_id(1, 1, 0), "id": ids_of_bucket(table, 1, 5)[4], "msg": ""})


@pytest.mark.parametrize("attached", [None, (None, None, None), (None, 1, None), (5, 1, 9)])
def test_an_insert_may_carry_its_bucket(tmp_path, attached):
    """Hive's API demanded an attached bucket; ours computes it, and ignores the other ids."""
    table = acid_table(tmp_path)
    with coordinator(table) as target:
        target.insert([], {"ROW__ID": attached, "id": ids_of_bucket(table, 1, 1)[0], "msg": ""})
    (manifest,) = target.close()
    assert events(manifest)[0][:5] == (0, TXN_ID, 1, 0, TXN_ID)


@pytest.mark.parametrize("bucket", [2, 7, -1])
@pytest.mark.parametrize("operation", ["update", "delete"])
def test_a_bucket_that_does_not_exist_is_refused(tmp_path, operation, bucket):
    """Hive's API wrote bucket_00007 of a table with two, which no reader opens."""
    target = coordinator(acid_table(tmp_path))
    with pytest.raises(BucketIdError, match=f"not have: expected 0 <= bucket < 2; .*, bucket={bucket}"):
        getattr(target, operation)([], {"ROW__ID": row_id(1, bucket, 0), "id": 1, "msg": ""})


@versions
def test_a_delete_needs_only_its_row_id(tmp_path, version):
    """The values of its columns are ignored, whether they fit or not."""
    table = acid_table(tmp_path, version)
    with coordinator(table) as target:
        target.delete([], {"ROW__ID": row_id(1, 0, 0), "id": "no number", "other": 1})
        target.delete([], pa.table({"ROW__ID": [{version.transaction_field: 1, "bucketid": 0, "rowid": 1}]}))
    assert [e[3] for e in events(target.close()[0])] == [0, 1]


@pytest.mark.parametrize("identity", [(7, 0, 0), (999_999, 0, 0), (-1, 0, 0), (1, 0, -1)])
def test_a_row_id_that_no_snapshot_can_hold_is_refused(tmp_path, identity):
    """Hive's API made a new row of an update that names a transaction of the future."""
    table = acid_table(tmp_path)
    with pytest.raises(RowIdNotFoundError, match="that transaction 7 cannot change"):
        coordinator(table).delete([], {"ROW__ID": identity})


@pytest.mark.parametrize("identity", [None, (1, None, 1), (None, 0, 1)])
def test_a_missing_row_id_is_refused(tmp_path, identity):
    """Without it nothing can be updated or deleted."""
    with pytest.raises(RecordValueError, match="needs the complete ROW__ID of its row"):
        coordinator(acid_table(tmp_path)).delete([], {"ROW__ID": identity})
    array = pa.array([identity and dict(zip(("transactionid", "bucketid", "rowid"), identity, strict=True))])
    with pytest.raises(RecordValueError, match="needs the complete ROW__ID of its row"):
        coordinator(acid_table(tmp_path)).delete([], pa.table({"ROW__ID": array}))


def test_a_row_of_another_partition_is_refused(tmp_path):
    """Otherwise the row would be duplicated or lost; Hive's API did not check this."""
    table = acid_table(tmp_path, keys=DS)
    target = coordinator(table)
    target.delete(["a"], {"ROW__ID": (1, 0, 0, "ds=a")})
    with pytest.raises(
        RecordValueError, match=r"delete the old row and insert.*row='ds=a', partition given='ds=b'"
    ):
        target.delete(["b"], {"ROW__ID": (1, 0, 1, "ds=a")})


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"id": 1}, r"lacks \['msg'\]"),
        ({"id": 1, "msg": "", "extra": 2}, r"\['extra'\]"),
        ({"id": 1, "msg": "", "ds": "a"}, "as partition values"),
        ({"id": 1, "msg": "", "MSG": ""}, "same name"),
        ({"id": "x", "msg": ""}, "'id'"),
        ({"id": 1, "msg": {"a": 1}}, "'msg'"),
    ],
)
def test_a_record_that_does_not_fit_the_table_is_refused(tmp_path, record, message):
    """Otherwise data would be lost silently; nothing is on disk afterwards."""
    target = coordinator(acid_table(tmp_path, keys=DS))
    with pytest.raises(RecordLayoutError, match=message):
        target.insert(["a"], record)
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1.5])
def test_a_value_that_does_not_fit_is_refused(tmp_path, value):
    """Hive would read NULL; the message names column and value."""
    table = acid_table(tmp_path, columns=(("id", "bigint"), ("n", "int")))
    with pytest.raises(RecordValueError, match=f"'n'.*{value}"):
        coordinator(table).insert([], {"id": 1, "n": value})


@pytest.mark.parametrize(
    "field",
    [
        pa.field("msg", pa.opaque(pa.string(), "money", "bank")),
        pa.field("msg", pa.string(), metadata={"ARROW:extension:name": "bank.money"}),
    ],
    ids=["registered", "unknown here"],
)
def test_the_storage_of_an_extension_type_is_refused(tmp_path, field):
    """In a batch, too; a UUID is its text."""
    table, storage = acid_table(tmp_path), pa.array(["x"])
    (one,) = ids_of_bucket(table, 0, 1)
    is_known = isinstance(field.type, pa.BaseExtensionType)
    column = pa.ExtensionArray.from_storage(field.type, storage) if is_known else storage
    schema = pa.schema([pa.field("id", pa.int64()), field])
    batch = pa.RecordBatch.from_arrays([pa.array([one]), column], schema=schema)
    with pytest.raises(RecordLayoutError, match=r"column 'msg': .*money.* have no Hive type"):
        coordinator(table).insert([], batch)
    with coordinator(table) as target:
        target.insert([], batch.set_column(1, "msg", pa.array([bytes(16)], pa.uuid())))
        (manifest,) = target.close()
    assert events(manifest)[0][-1] == (one, "00000000-0000-0000-0000-000000000000")


def test_no_event_at_all(tmp_path):
    """Nothing is written, not even a directory."""
    target = coordinator(acid_table(tmp_path))
    target.insert([], pa.table({"id": pa.array([], pa.int64()), "msg": pa.array([], pa.string())}))
    assert target.close() == ()
    assert os.listdir(tmp_path) == []


def test_use_after_close_and_abort(tmp_path):
    """Closing twice gives the same manifests; writing and closing after an abort are refused."""
    table = acid_table(tmp_path)
    target = coordinator(table)
    target.insert([], {"id": 1, "msg": ""})
    assert target.close() == target.close() != ()
    with pytest.raises(TransactionStateError, match="is closed"):
        target.insert([], {"id": 1, "msg": ""})
    target.abort()
    target.abort()
    assert files_below(tmp_path) == []
    for step in (target.close, lambda: target.delete([], {"ROW__ID": (1, 0, 0)})):
        with pytest.raises(TransactionStateError, match="was aborted"):
            step()


def test_after_a_failure_nothing_is_written(tmp_path):
    """A part of a batch may be on disk: only abort works, and close raises the first error again."""
    table = acid_table(tmp_path)
    target = coordinator(table)
    target.insert([], {"id": 1, "msg": ""})
    with pytest.raises(BucketIdError) as first:
        target.delete([], {"ROW__ID": (1, 9, 0)})
    with pytest.raises(TransactionStateError, match=r"failed earlier.*bucket=9"):
        target.insert([], {"id": 1, "msg": ""})
    with pytest.raises(BucketIdError) as again:
        target.close()
    assert again.value is first.value
    target.abort()
    assert files_below(tmp_path) == []


def test_an_error_in_the_block_aborts_and_travels_on(tmp_path):
    """The user's own error is not hidden, and their files are gone."""
    with pytest.raises(KeyError), coordinator(acid_table(tmp_path)) as target:
        target.insert([], {"id": 1, "msg": ""})
        raise KeyError("theirs")
    assert files_below(tmp_path) == []


def test_the_table_must_be_a_bound_sink(tmp_path):
    """Without a transaction nothing may be written; Hive's API wrote without a lock."""
    table = acid_table(tmp_path)
    with pytest.raises(TransactionStateError, match="does not belong to a transaction"):
        coordinator(acid_table(tmp_path, txn_id=None))
    with pytest.raises(TransactionStateError, match="source"):
        coordinator(acid_table(tmp_path, role=TableRole.SOURCE))
    with pytest.raises(ConfigurationError, match="zstd"):
        coordinator(acid_table(tmp_path, compression="zstd"))
    assert coordinator(table).table == table


@versions
def test_write_events_slices_of_one_group(tmp_path, version):
    """The vectorised path: several slices of a group are one file, columns in any order, deletes too."""
    table = acid_table(tmp_path, version, keys=DS)
    target = coordinator(table)
    rows = pa.StructArray.from_arrays(
        [pa.array(["u", "ignored", "i"]), pa.array([10, 11, 12], pa.int32())], names=["MSG", "id"]
    )
    operations = np.array([1, 2, 0], np.int8)
    target.write_events("ds=a", 0, operations, ids([1, 1, 0], [0, 0, 0], [4, 5, 0]), rows)
    target.write_events("ds=a", 0, operations[2:], ids([0], [0], [0]), rows.slice(2))
    target.write_events("ds=b", 1, np.array([2], np.int8), ids([1], [1], [0]), None)
    manifests = target.close()
    delta = next(m for m in manifests if m.partition_name == "ds=a" and m.kind is FileKind.DELTA)
    inserted = [e[3] for e in events(delta) if e[0] == 0]
    assert inserted == ([0, 1] if version is AcidVersion.V1_LEGACY else [0, 1, 2])
    assert events(delta)[-1][5] == (12, "i")
    assert sum(m.delete_count for m in manifests) == 2
    assert [m.bucket_id for m in manifests if m.partition_name == "ds=b"] == [1]


@versions
def test_write_events_does_not_look_at_rows_of_deletes(tmp_path, version):
    """A change set of deletes may have some of the columns and lack others; none of them is written."""
    target = coordinator(acid_table(tmp_path, version))
    row_ids = ids([1, 1], [0, 0], [4, 5])
    target.write_events("", 0, np.array([2, 2], np.int8), row_ids, pa.array([{"id": 1}, {"id": 2}]))
    (manifest,) = target.close()
    assert [(event[0], event[3], event[5]) for event in events(manifest)] == [(2, 4, None), (2, 5, None)]


def test_write_events_checks_what_it_can(tmp_path):
    """Bucket, sequence, identity and columns are checked on this path too."""
    table = acid_table(tmp_path)
    delete, insert = np.array([2], np.int8), np.array([0], np.int8)
    cases = [
        (BucketIdError, (5, delete, ids([1], [5], [0]), None)),
        (BucketIdError, (0, delete, ids([1], [1], [0]), None)),
        (RowIdNotFoundError, (0, delete, ids([7], [0], [0]), None)),
        (RecordLayoutError, (0, insert, ids([0], [0], [0]), None)),
        (RecordLayoutError, (0, insert, ids([0], [0], [0]), pa.array([{"id": 1}]))),
    ]
    for error, arguments in cases:
        with pytest.raises(error):
            coordinator(table).write_events("", *arguments)
    assert files_below(tmp_path) == []


@versions
def test_deletes_first_then_timestamps_of_any_year(tmp_path, version):
    """A group may begin with deletes, before it is known in which unit its timestamps come."""
    table = acid_table(tmp_path, version, columns=(("id", "bigint"), ("t", "timestamp")))
    some_id = ids_of_bucket(table, 0, 1)[0]
    times = [datetime.datetime(2020, 1, 1), datetime.datetime(9999, 12, 31)]
    with coordinator(table) as target:
        target.delete([], {"ROW__ID": (1, 0, 0)})
        for when in times:
            target.insert([], {"id": some_id, "t": when})
        nanos = pa.array([1_500_000_000_000_000_001]).cast(pa.timestamp("ns"))
        target.insert([], pa.table({"id": [some_id], "t": nanos}))
    assert sum(m.row_count for m in target.close()) == 4


def test_nested_python_values(tmp_path):
    """Dicts are maps or structs by the column's type; tuples are structs; a union is (alternative, value)."""
    columns = (
        ("id", "bigint"),
        ("m", "map<string,int>"),
        ("s", "struct<a:int,b:array<string>>"),
        ("u", "uniontype<int,string>"),
    )
    table = acid_table(tmp_path, columns=columns)
    one = ids_of_bucket(table, 0, 1)[0]
    with coordinator(table, options=WriterOptions()) as target:
        target.delete([], {"ROW__ID": (1, 0, 0)})
        target.insert([], {"id": one, "m": {"k": 1}, "s": {"B": ["x", None], "a": 1}, "u": (1, "x")})
        target.insert([], {"id": one, "m": {}, "s": (2, None), "u": None})
        target.insert([], {"id": one, "m": None, "s": None, "u": (0, 5)})
    rows = [e[5] for e in events(target.close()[0])]
    # The first is the delete: with a union column its row is not NULL, and is ignored.
    assert rows[1:] == [
        (one, [("k", 1)], {"a": 1, "b": ["x", None]}, "x"),
        (one, [], {"a": 2, "b": None}, None),
        (one, None, None, 5),
    ]
    with pytest.raises(RecordLayoutError, match="'s'"):
        coordinator(table).insert([], {"id": one, "m": None, "s": {"c": 1}, "u": None})


def test_a_null_struct_with_a_union_is_refused(tmp_path):
    """Arrow would abort the whole process on it."""
    table = acid_table(tmp_path, columns=(("id", "bigint"), ("s", "array<struct<u:uniontype<int,string>>>")))
    with pytest.raises(RecordValueError, match=r"'s'.*row 0, element: value null .*union field"):
        coordinator(table).insert([], {"id": 1, "s": [{"u": (0, 1)}, None]})


def test_a_null_row_with_a_union_is_refused(tmp_path):
    """The values under it would be written as the row's."""
    table = acid_table(tmp_path, columns=(("id", "bigint"), ("u", "uniontype<int>")), num_buckets=1)
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([5])])
    rows = pa.StructArray.from_arrays([pa.array([1]), union], names=["id", "u"], mask=pa.array([True]))
    with pytest.raises(RecordLayoutError, match=r"1 row\(s\) are NULL"):
        coordinator(table).write_events("", 0, np.zeros(1, np.int8), ids([0], [0], [0]), rows)


@pytest.mark.parametrize(
    "identity", [(1, 0, 2**63), 7, "abc", (1, 0), (1, 0, 0, 5), (1, "0", 0), (1, False, 0), (1, 0, 2.0)]
)
def test_a_row_id_of_another_shape_is_refused(tmp_path, identity):
    """At once, also if records are collected first."""
    target = coordinator(acid_table(tmp_path), options=WriterOptions())
    with pytest.raises(RecordLayoutError, match="ROW__ID must be a struct"):
        target.delete([], {"ROW__ID": identity})


def test_write_events_refuses_arrays_that_do_not_fit_each_other(tmp_path):
    """Some would be stretched, or the wrong rows taken, by numpy and Arrow."""
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    rows = pa.StructArray.from_arrays([pa.array([1]), pa.array(["x"])], names=["id", "msg"])
    codes = np.array([2, 0], np.int8)
    for arrays in [(one, two, two), (two, one, two), (two, two, one), (two, two, two)]:
        with pytest.raises(RecordLayoutError, match="the same number of each"):
            coordinator(acid_table(tmp_path, AcidVersion.V1_SPLIT)).write_events(
                "", 0, codes, RowIdArrays(*arrays), rows
            )
    for code in (-1, 3):
        with pytest.raises(RecordValueError, match=rf"must be one of 'insert', .*operation={code}"):
            coordinator(acid_table(tmp_path)).write_events(
                "", 0, np.array([code], np.int8), RowIdArrays(one, one, one), rows
            )


def test_an_error_in_closing_aborts(tmp_path):
    """The block has ended, and the caller may have dropped the coordinator."""
    table = acid_table(tmp_path, num_buckets=1)
    with (
        pytest.raises(RecordLayoutError),
        coordinator(table, options=WriterOptions(batch_rows=10)) as target,
    ):
        target.insert([], pa.table({"id": [1], "msg": ["x"]}))
        target.insert([], {"id": "no number", "msg": "x"})
    assert files_below(tmp_path) == []


def test_an_abort_within_the_block_is_fine(tmp_path):
    """The end of the block then closes nothing."""
    with coordinator(acid_table(tmp_path, num_buckets=1)) as target:
        target.insert([], {"id": 1, "msg": "x"})
        target.abort()
    assert files_below(tmp_path) == []
