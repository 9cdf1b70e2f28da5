"""OrcEventWriter: contents of the file, above all its key index and statistics."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import errno
import io
import os

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyorc
import pytest

from mutation_api.errors import DeltaWriteError, RecordValueError
from mutation_api.format.event import ACID_STATS, ACID_VERSION, EVENT_FIELDS, KEY_INDEX, RowIdArrays
from mutation_api.format.layout import AcidVersion, FileCalendar
from mutation_api.orc.format.tail import parse_tail, tail_checksum
from mutation_api.orc.write.event_writer import EventFileFacts, OrcEventWriter
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import WriterOptions

ROW = pa.struct([("id", pa.int64()), ("msg", pa.string())])
EARLY = datetime.datetime(1960, 1, 1, 0, 0, 0, 250_000)


class FileWriter(OrcEventWriter):
    """A writer of a local file, which it closes."""

    def __init__(self, path, row_type, **settings) -> None:
        self.path = path
        self.file = LocalStorage().create(Location.given(path))
        super().__init__(self.file, row_type, own_id=9, **settings)

    def close(self) -> Written:
        facts = self.finish()
        self.file.close()
        return Written(path=str(self.path), **dataclasses.asdict(facts))


@dataclasses.dataclass(frozen=True)
class Written(EventFileFacts):
    """What lies in the file of this path."""

    path: str = dataclasses.field(kw_only=True)


def writer(directory, row_type=ROW, *, version=AcidVersion.V1_LEGACY, **options) -> FileWriter:
    return FileWriter(f"{directory}/file", row_type, version=version, options=WriterOptions(**options))


def keys(txns, numbers, bucket=3) -> RowIdArrays:
    return RowIdArrays(np.asarray(txns), np.full(len(txns), bucket), np.asarray(numbers))


def rows_of(count: int, first: int = 0) -> pa.StructArray:
    ids = range(first, first + count)
    return pa.StructArray.from_arrays(
        [pa.array(ids, pa.int64()), pa.array([f"m{i}" for i in ids])], fields=list(ROW)
    )


def insert(target: OrcEventWriter, rows: pa.StructArray, first: int = 0) -> None:
    count = len(rows)
    target.write(
        np.zeros(count, np.int8),
        keys(np.full(count, 9, np.int64), np.arange(first, first + count, dtype=np.int64)),
        rows,
    )


def index_from_rows(path: str) -> str:
    """The key index as the rows of each real stripe say: the definition, not the writer's shortcut."""
    file = orc.ORCFile(path)
    columns = ["originalTransaction", "bucket", "rowId"]
    last = [file.read_stripe(i, columns=columns).to_pylist()[-1] for i in range(file.nstripes)]
    return "".join(f"{k['originalTransaction']},{k['bucket']},{k['rowId']};" for k in last)


def user_metadata(path: str) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in (orc.ORCFile(path).metadata or {}).items()}


def test_events_metadata_and_facts_of_one_file(tmp_path):
    """All six fields in Hive's order and case; stats count by operation; facts equal the file."""
    target = writer(tmp_path)
    target.write(np.array([1, 2, 0, 0], np.int8), keys([4, 5, 9, 9], [7, 1, 0, 1]), rows_of(4))
    facts = target.close()
    table = orc.ORCFile(facts.path).read()
    assert table.column_names == list(EVENT_FIELDS)
    assert table.to_pylist() == [
        dict(zip(EVENT_FIELDS, event, strict=True))
        for event in [
            (1, 4, 3, 7, 9, {"id": 0, "msg": "m0"}),
            (2, 5, 3, 1, 9, None),
            (0, 9, 3, 0, 9, {"id": 2, "msg": "m2"}),
            (0, 9, 3, 1, 9, {"id": 3, "msg": "m3"}),
        ]
    ]
    assert user_metadata(facts.path) == {KEY_INDEX: "9,3,1;", ACID_STATS: "2,1,1"}
    assert (facts.insert_count, facts.update_count, facts.delete_count, facts.row_count) == (2, 1, 1, 4)
    data = (tmp_path / "file").read_bytes()
    assert (facts.byte_count, facts.stripe_count) == (len(data), 1)
    assert facts.tail_crc32 == tail_checksum(data)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.thorough(1)
@pytest.mark.parametrize("compression", ["zlib", "snappy", "lz4", "zstd", "none"])
@pytest.mark.parametrize("calls", [1, 7, 60])
def test_key_index_is_that_of_the_real_stripes(tmp_path, compression, calls):
    """A wrong key index silently loses rows, so it is compared with the last row of each stripe as read."""
    target = writer(tmp_path, stripe_bytes=1_000, compression=compression)
    step = 30_000 // calls
    for first in range(0, 30_000, step):
        insert(target, rows_of(min(step, 30_000 - first), first), first)
    facts = target.close()
    assert facts.stripe_count > 2
    assert user_metadata(facts.path)[KEY_INDEX] == index_from_rows(facts.path)
    assert user_metadata(facts.path)[ACID_STATS] == "30000,0,0"
    assert orc.ORCFile(facts.path).read(columns=["rowId"])["rowId"].to_pylist() == list(range(30_000))


@pytest.mark.thorough
@pytest.mark.parametrize("early_at", [0, 1, 5000, 29_999])
def test_a_file_that_changes_its_encoder_keeps_every_row(tmp_path, early_at):
    """A timestamp before 1970 with a fraction may come at any time; key index and order hold then too."""
    row_type = pa.struct([("id", pa.int64()), ("t", pa.timestamp("us"))])
    target = writer(tmp_path, row_type, stripe_bytes=1_000)
    late = datetime.datetime(2020, 1, 1, 0, 0, 0, 123_456)
    times = [EARLY if i == early_at else late + datetime.timedelta(microseconds=i * i) for i in range(30_000)]
    rows = pa.StructArray.from_arrays(
        [pa.array(range(30_000), pa.int64()), pa.array(times, pa.timestamp("us"))], fields=list(row_type)
    )
    for first in range(0, 30_000, 4_999):
        insert(target, rows.slice(first, min(4_999, 30_000 - first)), first)
    facts = target.close()
    assert facts.row_count == 30_000
    assert facts.stripe_count > 1
    assert user_metadata(facts.path)[KEY_INDEX] == index_from_rows(facts.path)
    with open(facts.path, "rb") as stream:
        read = [row[5] for row in pyorc.Reader(stream)]
    assert [(i, t.replace(tzinfo=None)) for i, t in read] == list(enumerate(times))
    assert len(os.listdir(tmp_path)) == 1, "the abandoned file is gone"


def test_all_types_survive_the_change_of_encoder(tmp_path):
    """The slow encoder writes what the fast one would: both files read equal, nested values too."""
    row_type = pa.struct(
        [
            ("b", pa.bool_()), ("i1", pa.int8()), ("i2", pa.int16()), ("i4", pa.int32()), ("f", pa.float32()),
            ("d", pa.float64()), ("s", pa.string()), ("y", pa.binary()), ("n", pa.decimal128(38, 10)),
            ("dt", pa.date32()), ("l", pa.list_(pa.timestamp("us"))),
            ("m", pa.map_(pa.string(), pa.date32())),
            ("st", pa.struct([("a b", pa.timestamp("us")), ("x", pa.list_(pa.struct([("y", pa.int32())])))])),
        ]
    )  # fmt: skip
    when = datetime.datetime(2001, 2, 3, 4, 5, 6, 789)
    full = {
        "b": True, "i1": -128, "i2": 32767, "i4": -5, "f": 1.5, "d": float("inf"), "s": "ä\x00",
        "y": b"\x00\xff",
        "n": decimal.Decimal("-1234567890123456789012345678.0123456789"), "dt": datetime.date(2000, 2, 29),
        "l": [when, None], "m": [("k", datetime.date(1990, 1, 1)), ("z", None)],
        "st": {"a b": when, "x": [{"y": 1}, None]},
    }  # fmt: skip
    hollow = {**dict.fromkeys(full), "l": [], "m": [], "st": {"a b": None, "x": None}}
    rows = pa.array([full, dict.fromkeys(full), hollow], row_type)
    early = pa.array([{**full, "l": [EARLY]}], row_type)
    plain, changed = tmp_path / "plain", tmp_path / "changed"
    for directory, batches in ((plain, [rows]), (changed, [rows, early])):
        directory.mkdir()
        target = writer(directory, row_type)
        for batch in batches:
            insert(target, batch)
        target.close()
    one = orc.ORCFile(plain / "file").read()
    other = orc.ORCFile(changed / "file").read()
    assert other.slice(0, 3).to_pylist() == one.to_pylist()
    assert orc.ORCFile(changed / "file").schema == orc.ORCFile(plain / "file").schema


@pytest.mark.parametrize(
    "place", [lambda t: t, lambda t: [t], lambda t: {"x": t}], ids=["column", "list", "struct"]
)
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize(("milliseconds", "refused"), [(-999, True), (-1, True), (-1000, False), (0, False)])
def test_the_second_before_the_epoch_is_refused(tmp_path, place, unit, milliseconds, refused):
    """Hive reads 23:59:59.5 of 1969-12-31 one second later, from any writer: the error names the value."""
    per_milli = {"ms": 1, "us": 1000, "ns": 10**6}[unit]
    scalar = pa.array([milliseconds * per_milli], pa.int64()).cast(pa.timestamp(unit))
    column = {
        list: lambda: pa.ListArray.from_arrays([0, 1], scalar),
        dict: lambda: pa.StructArray.from_arrays([scalar], names=["x"]),
    }.get(type(place(0)), lambda: scalar)()
    row_type = pa.struct([("when", column.type)])
    target = writer(tmp_path, row_type)
    rows = pa.StructArray.from_arrays([column], fields=list(row_type))
    if refused:
        with pytest.raises(RecordValueError, match=r"'when'.*1969-12-31 23:59:59"):
            insert(target, rows)
        assert target.row_count == 0
        target.discard()
        assert os.listdir(tmp_path) == []
    else:
        insert(target, rows)
        assert target.close().row_count == 1


def test_values_under_a_delete_or_a_null_are_not_judged(tmp_path):
    """A delete needs only its ROW__ID; whatever lies in its columns is written as a NULL row."""
    row_type = pa.struct([("t", pa.timestamp("ms"))])
    rows = pa.StructArray.from_arrays(
        [pa.array([-1, 5], pa.int64()).cast(pa.timestamp("ms"))], fields=list(row_type)
    )
    target = writer(tmp_path, row_type)
    target.write(np.array([2, 0], np.int8), keys([1, 9], [0, 0]), rows)
    facts = target.close()
    assert orc.ORCFile(facts.path).read(columns=["row"])["row"].to_pylist()[0] is None
    assert os.listdir(tmp_path) == ["file"], "a deleted row's value must not switch the encoder"


def test_a_null_row_is_for_deletes_only(tmp_path):
    """Hive's row reader fails on an update or insert without a row."""
    rows = pa.array([{"id": 1, "msg": "x"}, None], ROW)
    numbers = np.array([1, 2])
    writer(tmp_path).write(np.array([1, 2], np.int8), keys(numbers, numbers), rows)
    (tmp_path / "second").mkdir()
    with pytest.raises(RecordValueError, match="is NULL"):
        writer(tmp_path / "second").write(np.array([2, 1], np.int8), keys(numbers, numbers), rows)


@pytest.mark.parametrize("shape", ["struct", "union", "list"])
def test_deletes_do_not_shift_the_values_of_unions(tmp_path, shape):
    """Of NULL structs above a union pyarrow writes too many values; later rows showed those of others."""
    places = pa.array([0, 0, 1], pa.int32())
    union = pa.UnionArray.from_dense(
        pa.array([0, 1, 1], pa.int8()), places, [pa.array([5]), pa.array(["a", "b"])]
    )
    structs = pa.StructArray.from_arrays([union], names=["u"])
    zeros = pa.array([0, 0, 0], pa.int8())
    values = {
        "struct": structs,
        "union": pa.UnionArray.from_dense(zeros, pa.array([0, 1, 2], pa.int32()), [structs, pa.array([1])]),
        "list": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), structs),
    }[shape]
    target = writer(tmp_path, pa.struct([("v", values.type)]))
    numbers = np.arange(3)
    target.write(np.full(3, 2, np.int8), keys(numbers, numbers), None)
    rows = pa.StructArray.from_arrays([values], names=["v"])
    insert(target, rows.filter(pa.array([True, False, True])))
    found = orc.ORCFile(target.close().path).read().column("row").combine_chunks().field(0).to_pylist()
    expected = values.to_pylist()
    assert found[3:] == [expected[0], expected[2]]


def test_dates_before_1582_are_stored_in_hives_calendar(tmp_path):
    """Hive 2.3 shows the same yyyy-mm-dd: 1500-03-01 is Julian there, ten days on; nested dates too."""
    row_type = pa.struct([("d", pa.date32()), ("l", pa.list_(pa.date32()))])
    day = datetime.date(1500, 3, 1)
    target = writer(tmp_path, row_type)
    insert(target, pa.array([{"d": day, "l": [day, None]}, {"d": None, "l": None}], row_type))
    facts = target.close()
    stored = orc.ORCFile(facts.path).read(columns=["row"])["row"].to_pylist()
    julian = datetime.date(1500, 3, 11)
    assert stored == [{"d": julian, "l": [julian, None]}, {"d": None, "l": None}]


@pytest.mark.parametrize("version", list(AcidVersion))
def test_early_days_follow_the_calendar_of_the_version(tmp_path, version):
    """Hybrid for Hive 2.3; proleptic, as Arrow counts, for 3.1 and 4.x, whose footer must say so for 4.x."""
    row_type = pa.struct([("d", pa.date32()), ("t", pa.timestamp("us"))])
    day, julian = datetime.date(1500, 3, 1), datetime.date(1500, 3, 11)
    target = writer(tmp_path, row_type, version=version)
    moment = datetime.datetime(1500, 3, 1)
    insert(target, pa.array([{"d": day, "t": moment}], row_type))
    facts = target.close()
    with open(facts.path, "rb") as file:
        rows = list(pyorc.Reader(file, struct_repr=pyorc.StructRepr.DICT))
    stored = (rows[0]["row"] if version.has_row_ids else rows[0])["d"]
    is_hybrid = version.calendar is FileCalendar.HYBRID
    assert stored == (julian if is_hybrid else day)
    tail = parse_tail((tmp_path / "file").read_bytes())
    assert tail.is_proleptic is (True if version.is_hive_4 else None)


@pytest.mark.parametrize("version", [v for v in AcidVersion if v.encodes_buckets])
def test_the_key_index_of_format_2_names_the_property_of_each_row(tmp_path, version):
    """Rows of several statements share a file; the metadata names the format, too."""
    target = writer(tmp_path, version=version, stripe_bytes=1_000)
    for step in range(60):
        buckets = np.repeat([1 << 29 | 3 << 16, 1 << 29 | 3 << 16 | 1], 500)
        numbers = np.tile(np.arange(500), 2)
        identities = RowIdArrays(np.full(1000, step), buckets, numbers)
        target.write(np.zeros(1000, np.int8), identities, rows_of(1000, step * 1000))
    facts = target.close()
    assert facts.stripe_count > 2
    metadata = user_metadata(facts.path)
    assert metadata[KEY_INDEX] == index_from_rows(facts.path)
    assert (metadata[ACID_STATS], metadata[ACID_VERSION]) == ("60000,0,0", "2")


@pytest.mark.parametrize("first_rows", [1, 2000])
def test_texts_that_repeat_are_stored_once(tmp_path, first_rows):
    """Whether to try is decided by the first batch; one text alone says nothing against it."""
    target = writer(tmp_path, compression="none")
    texts = pa.array([f"{'long ' * 20}{i % 3}" for i in range(2000)])
    rows = pa.StructArray.from_arrays([pa.array(range(2000), pa.int64()), texts], fields=list(ROW))
    for first, end in ((0, first_rows), (first_rows, 2000)):
        insert(target, rows.slice(first, end - first), first)
    assert target.close().byte_count < 100 * 2000 / 10


def test_unions_are_written_and_refused_with_early_fractions(tmp_path):
    """Pyarrow writes unions; the slow encoder cannot choose the alternative surely, so it is not used."""
    union = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["x"])]
    )
    row_type = pa.struct([("u", union.type), ("t", pa.timestamp("us"))])
    late = pa.array([datetime.datetime(2020, 1, 1)] * 2, pa.timestamp("us"))
    target = writer(tmp_path, row_type)
    insert(target, pa.StructArray.from_arrays([union, late], fields=list(row_type)))
    early = pa.array([EARLY] * 2, pa.timestamp("us"))
    with pytest.raises(RecordValueError, match="union columns"):
        insert(target, pa.StructArray.from_arrays([union, early], fields=list(row_type)), 2)
    facts = target.close()
    assert orc.ORCFile(facts.path).read()["row"].to_pylist()[1]["u"] == "x"


def test_a_row_count_that_disagrees_is_refused(tmp_path, monkeypatch):
    """If the encoder lost a row, the file must not be published."""
    target = writer(tmp_path)
    insert(target, rows_of(10))
    target._counts[0] += 1
    with pytest.raises(DeltaWriteError, match="11 events were written, but the file has 10 rows"):
        target.close()
    target.discard()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_an_oserror_and_leaves_nothing():
    """What was written so far is removed; the error names the cause."""
    directory = f"/dev/shm/event_writer_{os.getpid()}"
    os.mkdir(directory)
    try:
        target = writer(directory)
        insert(target, rows_of(10))

        class Full(io.RawIOBase):
            def write(self, data):
                raise OSError(errno.ENOSPC, "No space left on device")

        target._sink._file = Full()
        with pytest.raises(OSError, match="No space left"):
            target.close()
        target.discard()
        assert os.listdir(directory) == []
    finally:
        os.rmdir(directory)


def test_footer_is_what_hive_writes(tmp_path):
    """Row index every 10,000 rows (Hive 4 prunes by it) and the codec asked for."""
    target = writer(tmp_path, compression="SNAPPY")
    insert(target, rows_of(5))
    facts = target.close()
    file = orc.ORCFile(str(tmp_path / "file"))
    assert (file.row_index_stride, file.compression, file.nrows) == (10_000, "SNAPPY", facts.row_count)
