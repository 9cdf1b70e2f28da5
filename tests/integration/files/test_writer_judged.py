"""Files of OrcEventWriter and MutatorCoordinator, read by real Hive 2.3 row by row and vectorised."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.format.event import RecordIdentifier, RowIdArrays
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import WriterOptions
from mutation_api.write.coordinator import MutatorCoordinator
from tests.unit.write.tables import acid_table, ids_of_bucket

pytestmark = pytest.mark.slow

PROPERTIES = {AcidVersion.V1_LEGACY: "legacy", AcidVersion.V1_SPLIT: "default"}
versions = pytest.mark.parametrize("version", list(PROPERTIES))


def row_ids(txns, numbers) -> RowIdArrays:
    """Of bucket 0."""
    return RowIdArrays(np.asarray(txns), np.zeros(len(txns), np.int64), np.asarray(numbers))


def publish(manifests) -> None:
    """What the committer does with files, without its transaction."""
    for manifest in manifests:
        target = Path(manifest.target.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        Path(manifest.staged.location.path).rename(target)


def commit(table, change, **options) -> None:
    with MutatorCoordinator(table, options=WriterOptions(**options)) as target:
        change(target)
    publish(target.close())


def values(rows):
    return sorted((list(row.values) for row in rows), key=lambda row: [str(value) for value in row])


def schema(table):
    return [(column.name, column.type) for column in table.columns]


def read(hive, table, last_txn=99, **settings):
    return hive.read(
        table.location.path,
        schema(table),
        f"{last_txn}:9223372036854775807:",
        transactional_properties=PROPERTIES[table.version],
        buckets=table.num_buckets,
        **settings,
    )


@pytest.mark.sampled(1)
@versions
@pytest.mark.parametrize("keys", [(), (("ds", "string"),)])
def test_insert_update_delete_over_two_transactions(hive, tmp_path, version, keys):
    """Hive's two readers agree on exactly the rows left: many stripes, a delete in each bucket."""
    table = acid_table(tmp_path, version, keys=keys, txn_id=1)
    place = ["a b"] if keys else []
    ids = {bucket: ids_of_bucket(table, bucket, 30_000) for bucket in (0, 1)}

    def first(target):
        for bucket in (0, 1):
            texts = [f"{i:x}-{i * 7919 % 100003}" for i in ids[bucket]]
            target.insert(place, pa.table({"id": ids[bucket], "msg": texts}))

    def second(target):
        for bucket in (0, 1):
            for number in range(0, 30_000, 3):
                identity = RecordIdentifier(1, bucket, number)
                if number % 2:
                    target.delete(place, {"ROW__ID": identity})
                else:
                    target.update(place, {"ROW__ID": identity, "id": ids[bucket][number], "msg": None})
            target.insert(place, {"id": ids[bucket][0], "msg": "new"})

    commit(table, first, stripe_bytes=1000)
    commit(table.bind(2), second, stripe_bytes=1000)
    expected = []
    for bucket in (0, 1):
        for number, key in enumerate(ids[bucket]):
            if number % 3:
                expected.append([key, f"{key:x}-{key * 7919 % 100003}"])
            elif number % 2 == 0:
                expected.append([key, None])
        expected.append([ids[bucket][0], "new"])
    found = read(hive, table)
    assert values(found) == sorted(expected, key=lambda row: [str(value) for value in row])
    split = read(
        hive, table, settings={"mapred.max.split.size": "9000", "hive.exec.orc.split.strategy": "ETL"}
    )
    assert values(split) == values(found), "byte-range splits go by the key index"
    assert len(read(hive, table, last_txn=1)) == 60_000, (
        "a reader of the first snapshot sees nothing of the second"
    )


EVERY_TYPE = (
    ("id", "bigint"), ("b", "boolean"), ("i1", "tinyint"), ("i2", "smallint"), ("i4", "int"), ("f", "float"),
    ("d", "double"), ("s", "string"), ("v", "varchar(3)"), ("c", "char(4)"), ("y", "binary"),
    ("n", "decimal(20,3)"), ("dt", "date"), ("t", "timestamp"), ("a", "array<date>"),
    ("m", "map<string,timestamp>"), ("st", "struct<x:int,y:array<string>>"),
)  # fmt: skip


def full_row(key):
    when = datetime.datetime(2001, 2, 3, 4, 5, 6, 789)
    return {
        "id": key, "b": True, "i1": -128, "i2": 32767, "i4": -(2**31), "f": 1.5, "d": -2.25, "s": "äö\u20ac",
        "v": "abcdef", "c": "ab", "y": b"\x00\xff", "n": decimal.Decimal("-12345678901234567.8905"),
        "dt": datetime.date(1500, 3, 1), "t": when, "a": [datetime.date(1, 1, 1), None], "m": {"k": when},
        "st": {"x": 1, "y": ["p", None]},
    }  # fmt: skip


@versions
@pytest.mark.parametrize("early", [False, True], ids=["pyarrow", "pyorc"])
def test_every_type_null_everywhere(hive, tmp_path, version, early):
    """Both encoders write every type so that Hive reads the value back, nested, null and before 1582 too."""
    table = acid_table(tmp_path, version, columns=EVERY_TYPE, txn_id=1, num_buckets=1)
    hollow = {**dict.fromkeys(full_row(1)), "id": 2, "a": [], "m": {}, "st": {"x": None, "y": None}}
    moment = (
        datetime.datetime(1960, 1, 2, 3, 4, 5, 250_000) if early else datetime.datetime(1960, 1, 2, 3, 4, 5)
    )

    def change(target):
        target.insert([], full_row(1))
        target.insert([], hollow)
        target.insert([], {**dict.fromkeys(full_row(1)), "id": 3})
        target.insert([], {**full_row(4), "t": moment, "m": {"k": moment}})

    commit(table, change)
    # Hive's vectorised reader of legacy tables knows no nested types, in its own files neither.
    mode = "row" if version is AcidVersion.V1_LEGACY else "both"
    found = {row.values[0]: list(row.values) for row in read(hive, table, mode=mode)}
    first = found[1]
    assert [str(value) for value in first[1:14]] == [
        "True", "-128", "32767", "-2147483648", "1.5", "-2.25", "äö€", "abc", "ab  ", "00ff",
        "-12345678901234567.891", "1500-03-01", "2001-02-03 04:05:06.000789",
    ]  # fmt: skip
    assert [str(part) for part in first[14]] == ["0001-01-01", "None"]
    assert first[16] == [1, ["p", None]]
    assert found[3] == [3] + [None] * 16
    assert found[2][14:] == [[], [], [None, None]]
    assert str(found[4][13]) == ("1960-01-02 03:04:05.25" if early else "1960-01-02 03:04:05.0")


TIMES = [
    (1, 1, 1), (1500, 3, 1, 5, 6, 7, 123_456), (1582, 10, 4, 23, 59, 59, 999_999), (1582, 10, 15), (1677, 1,
    1), (1969, 12, 31, 23, 59, 58, 500_000), (1969, 12, 31, 23, 59, 59), (1969, 12, 31, 23, 59, 59, 999),
    (1970, 1, 1), (1970, 1, 1, 0, 0, 0, 1), (2262, 4, 12), (9999, 12, 31, 23, 59, 59, 999_999),
]  # fmt: skip


@pytest.mark.feature("dates and timestamps before 1582")
@pytest.mark.parametrize("fractions", [True, False], ids=["pyorc", "pyarrow"])
def test_timestamps_of_every_age(hive, tmp_path, fractions):
    """Hive shows the wall clock that was written: years 1 to 9999, both calendars, around the epoch."""
    times = [datetime.datetime(*t) for t in TIMES]
    times = [t for t in times if fractions or not (t.microsecond and t.year < 1970)]
    table = acid_table(tmp_path, columns=(("id", "bigint"), ("t", "timestamp")), txn_id=1, num_buckets=1)
    commit(table, lambda target: target.insert([], pa.table({"id": range(len(times)), "t": times})))
    found = [str(row.values[1]) for row in sorted(read(hive, table), key=lambda row: row.values[0])]
    assert [
        datetime.datetime.fromisoformat(text.removesuffix(".0")[:26]) for text in map(padded, found)
    ] == times


@versions
@pytest.mark.parametrize("way", ["batch", "records", "events"])
def test_dates_that_mean_never_and_always(hive, tmp_path, version, way):
    """The first and last moments of the calendar, which people use as marks, behind a delete too."""
    columns = (("id", "bigint"), ("t", "timestamp"), ("d", "date"))
    table = acid_table(tmp_path, version, columns=columns, txn_id=1, num_buckets=1)
    times = [datetime.datetime(9999, 12, 31, 23, 59, 59), datetime.datetime(1, 1, 1)]
    batch = pa.table({"id": [0, 1], "t": times, "d": [t.date() for t in times]})

    def second(target):
        if way == "batch":
            target.delete([], pa.table({"ROW__ID": [{"transactionid": 1, "bucketid": 0, "rowid": 0}]}))
            target.insert([], batch)
        elif way == "records":
            target.delete([], {"ROW__ID": (1, 0, 0)})
            for record in batch.to_pylist():
                target.insert([], record)
        else:
            target.write_events("", 0, np.array([2], np.int8), row_ids([1], [0]), None)
            rows = batch.to_struct_array().combine_chunks()
            target.write_events("", 0, np.zeros(2, np.int8), row_ids([0, 0], [0, 0]), rows)

    commit(table, lambda target: target.insert([], {"id": 5, "t": times[0], "d": None}))
    commit(table.bind(2), second)
    found = sorted((list(row.values) for row in read(hive, table)), key=lambda row: row[0])
    assert found == [[0, "9999-12-31 23:59:59.0", "9999-12-31"], [1, "0001-01-01 00:00:00.0", "0001-01-01"]]


def padded(text: str) -> str:
    """Java prints as few digits of a fraction as it can; older Pythons parse six only."""
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<6}"


@versions
def test_deletes_in_a_table_with_a_union(hive, tmp_path, version):
    """The rows of deletes are not NULL there; Hive looks at the operation only."""
    columns = (("id", "bigint"), ("u", "uniontype<int,string>"))
    table = acid_table(tmp_path, version, columns=columns, txn_id=1, num_buckets=1)

    def first(target):
        for number, value in enumerate([(0, 5), (1, "x"), None, (1, "y")]):
            target.insert([], {"id": number, "u": value})

    def second(target):
        target.delete([], {"ROW__ID": (1, 0, 0)})
        target.update([], {"ROW__ID": (1, 0, 1), "id": 1, "u": (1, "z")})
        target.delete([], {"ROW__ID": (1, 0, 3)})

    commit(table, first)
    commit(table.bind(2), second)
    found = read(hive, table, mode="row")
    assert sorted(row.values[0] for row in found) == [1, 2]
    assert next(row.values[1] for row in found if row.values[0] == 1) == [1, "z"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("version", "compression"),
    [
        (AcidVersion.V1_LEGACY, "zlib"),
        (AcidVersion.V1_SPLIT, "zlib"),
        (AcidVersion.V1_LEGACY, "snappy"),
        pytest.param(AcidVersion.V1_SPLIT, "lz4", marks=pytest.mark.long),
        (AcidVersion.V1_SPLIT, "none"),
    ],
)
def test_every_codec_and_the_vectorised_path(hive, tmp_path, version, compression):
    """What write_events wrote is read, whatever the codec, wide metadata of a hundred stripes included."""
    table = acid_table(tmp_path, version, txn_id=1, num_buckets=1)
    count = 200_000
    texts = pa.array([f"{i * 2654435761 % 2**32:x}" for i in range(count)])
    rows = pa.StructArray.from_arrays([pa.array(range(count)), texts], names=["id", "msg"])
    with MutatorCoordinator(table, options=WriterOptions(stripe_bytes=1, compression=compression)) as target:
        zeros = np.zeros(count, np.int64)
        target.write_events("", 0, zeros.astype(np.int8), row_ids(zeros, zeros), rows)
    (manifest,) = target.close()
    assert manifest.stripe_count > 10
    publish([manifest])
    found = read(hive, table, where=("id", "<", 1000))
    assert {row.values[0] for row in found} >= set(range(1000))
    deleted = np.arange(0, count, 2)

    def second(target):
        target.write_events(
            "", 0, np.full(len(deleted), 2, np.int8), row_ids(np.ones_like(deleted), deleted), None
        )

    commit(table.bind(2), second, stripe_bytes=1, compression=compression)
    assert sorted(row.values[0] for row in read(hive, table)) == list(range(1, count, 2))


ROW_GROUP = 10_000
MIXED_COLUMNS = (
    ("id", "bigint"), ("msg", "string"), ("n", "decimal(9,2)"), ("at", "timestamp"),
    ("st", "struct<x:int,y:string>"), ("a", "array<int>"),
)  # fmt: skip


def mixed_rows(ids: np.ndarray) -> pa.StructArray:
    """A row for each id, nulls at every place."""
    keys = [int(i) for i in ids]
    columns = [
        pa.array(keys, pa.int64()),
        pa.array([None if k % 7 == 0 else f"{k * 2654435761 % 2**32:x}" for k in keys]),
        pa.array([None if k % 5 == 0 else decimal.Decimal(k) for k in keys], pa.decimal128(9, 2)),
        pa.array([None if k % 4 == 0 else k * 10**6 for k in keys], pa.timestamp("us")),
        pa.array(
            [None if k % 6 == 0 else {"x": k % 100, "y": None if k % 9 == 0 else "y"} for k in keys],
            pa.struct([("x", pa.int32()), ("y", pa.string())]),
        ),
        pa.array([None if k % 8 == 0 else [k] * (k % 3) for k in keys], pa.list_(pa.int32())),
    ]
    return pa.StructArray.from_arrays(columns, names=[name for name, _ in MIXED_COLUMNS])


def blocks(count: int, sizes) -> np.ndarray:
    """Delete and update in turns, for so many rows each."""
    codes = np.concatenate([np.full(size, 1 + number % 2, np.int8) for number, size in enumerate(sizes)])
    return np.resize(codes, count)


MIXES = {
    "at random": lambda count: np.random.default_rng(5).choice(np.array([1, 2], np.int8), count),
    "rare updates": lambda count: np.where(np.arange(count) % 4999 == 4998, 1, 2).astype(np.int8),
    "rare deletes": lambda count: np.where(np.arange(count) % 4999 == 0, 2, 1).astype(np.int8),
    "whole row groups": lambda count: blocks(count, [ROW_GROUP, ROW_GROUP]),
    "beside the borders": lambda count: blocks(count, [1023, 1, 1024, 1025, ROW_GROUP - 1, ROW_GROUP + 1]),
    "deletes, then updates": lambda count: np.where(np.arange(count) < count // 2, 2, 1).astype(np.int8),
    "updates, then deletes": lambda count: np.where(np.arange(count) < count // 2, 1, 2).astype(np.int8),
}


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("version", "mix", "stripe_bytes"),
    [(AcidVersion.V1_SPLIT, "at random", 1)]
    + [(AcidVersion.V1_LEGACY, mix, size) for mix in MIXES for size in (1, 8 * 1024 * 1024)],
)
def test_rows_without_values_beside_rows_with(hive, tmp_path, version, mix, stripe_bytes):
    """NULL rows of deletes among updates shift no value, wherever stripes, row groups and batches end."""
    columns = MIXED_COLUMNS if version is AcidVersion.V1_SPLIT else MIXED_COLUMNS[:4]
    table = acid_table(tmp_path, version, columns=columns, txn_id=1, num_buckets=1)
    count = 45_000
    ids = np.arange(count)
    new_ids = ids + count
    codes = MIXES[mix](count)

    def rows(of) -> pa.StructArray:
        made = mixed_rows(of)
        names = [name for name, _ in columns]
        return pa.StructArray.from_arrays([made.field(name) for name in names], names=names)

    def write(target, codes, txns, numbers, values, step):
        for start in range(0, len(codes), step):
            part = slice(start, start + step)
            target.write_events("", 0, codes[part], row_ids(txns[part], numbers[part]), values[part])

    def first(target):
        write(target, np.zeros(count, np.int8), ids, ids, rows(ids), count)

    def second(target):
        write(target, codes, np.ones(count, np.int64), ids, rows(new_ids), 7001)
        write(target, np.zeros(100, np.int8), ids[:100], ids[:100], rows(ids[:100]), 33)

    commit(table, first, stripe_bytes=stripe_bytes)
    commit(table.bind(2), second, stripe_bytes=stripe_bytes)
    found = read(hive, table)
    kept = np.concatenate([new_ids[codes == 1], ids[:100]])
    expected = rows(kept[np.lexsort((kept,))])
    found = sorted(found, key=lambda row: row.values[0])
    assert [row.values[0] for row in found] == expected.field("id").to_pylist()
    assert [row.values[1] for row in found] == expected.field("msg").to_pylist()
    shown = [None if row.values[2] is None else decimal.Decimal(row.values[2]) for row in found]
    assert shown == expected.field("n").to_pylist()
    times = [row.values[3] and datetime.datetime.fromisoformat(row.values[3][:19]) for row in found]
    assert times == expected.field("at").to_pylist()
