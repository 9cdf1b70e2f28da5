from __future__ import annotations

import dataclasses
import datetime
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyorc
import pytest

from metastore_client.valid_ids import ValidTxnList
from mutation_api.errors import CorruptFileError, DirectoryStateError, RecordLayoutError, RecordValueError
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.format.protobuf import POSTSCRIPT_FOOTER_LENGTH, with_numbers
from mutation_api.orc.format.tail import parse_tail
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split, snapshot_schema
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from tests.support.acid_files import inserts, write_events, write_orc

ALL = ValidTxnList.everything()
INSERT, UPDATE, DELETE = 0, 1, 2
LEGACY, SPLIT = AcidVersion.V1_LEGACY, AcidVersion.V1_SPLIT


def table_at(
    path: Path, version: AcidVersion = LEGACY, columns: str = "id bigint,msg string", buckets: int = 1
) -> AcidTable:
    return AcidTable(
        database="d",
        name="t",
        location=Location.given(path),
        columns=tuple(AcidColumn(*c.split(" ", 1)) for c in columns.split(",")),
        partition_keys=(),
        num_buckets=buckets,
        bucket_columns=("id",),
        version=version,
    )


def read(table: AcidTable, valid: ValidTxnList = ALL, **options: Any) -> list[tuple[Any, ...]]:
    """Rows as ((transaction, bucket, row id), values…)."""
    rows = []
    for split in plan_splits(table, "", table.location, valid):
        for batch in read_split(table, split, valid, options=ReadOptions(**options)):
            assert batch.num_rows > 0
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    return [(tuple(row[0].values()), *row[1:]) for row in rows]


def test_legacy_rows_are_merged_by_row_id(tmp_path: Path) -> None:
    """Insert, update and delete in three deltas; an aborted transaction changes nothing."""
    write_events(
        tmp_path / "delta_0000001_0000001/bucket_00000", inserts(1, 0, 0, [(1, "a"), (2, "b"), (3, "c")])
    )
    update = (UPDATE, 1, 0, 1, 2, {"id": 2, "msg": "B"})
    write_events(tmp_path / "delta_0000002_0000002/bucket_00000", [update, *inserts(2, 0, 0, [(4, "d")])])
    write_events(tmp_path / "delta_0000003_0000003/bucket_00000", [(DELETE, 1, 0, 0, 3, None)])
    table = table_at(tmp_path)
    assert read(table) == [((1, 0, 1), 2, "B"), ((1, 0, 2), 3, "c"), ((2, 0, 0), 4, "d")]
    assert read(table, ValidTxnList(3, (2,))) == [((1, 0, 1), 2, "b"), ((1, 0, 2), 3, "c")]


def test_split_rows_are_inserts_minus_deletes(tmp_path: Path) -> None:
    """A base, a delete_delta and the new version of an updated row; two rows of one ROW__ID stay two."""
    write_events(tmp_path / "base_0000001/bucket_00000", inserts(1, 0, 0, [(1, "a"), (2, "b"), (3, "c")]))
    write_events(tmp_path / "delete_delta_0000002_0000002_0000/bucket_00000", [(DELETE, 1, 0, 1, 2, None)])
    write_events(tmp_path / "delta_0000002_0000002_0000/bucket_00000", inserts(2, 0, 0, [(2, "B")]))
    write_events(tmp_path / "delta_0000002_0000002_0001/bucket_00000", inserts(2, 0, 0, [(9, "twin")]))
    expected = [((1, 0, 0), 1, "a"), ((1, 0, 2), 3, "c"), ((2, 0, 0), 2, "B"), ((2, 0, 0), 9, "twin")]
    assert sorted(read(table_at(tmp_path, SPLIT))) == expected
    assert [row[1] for row in read(table_at(tmp_path, SPLIT), ValidTxnList(1))] == [1, 2, 3]


def test_columns_are_found_by_name_and_missing_ones_are_null(tmp_path: Path) -> None:
    """As Hive 2.3 reads after ADD COLUMNS and a reorder; case counts in files."""
    row_type = pa.struct([("msg", pa.string()), ("ID", pa.int64())])
    write_events(
        tmp_path / "delta_0000001_0000001/bucket_00000", [(0, 1, 0, 0, 1, {"msg": "a", "ID": 7})], row_type
    )
    table = table_at(tmp_path, columns="id bigint,msg string,extra double")
    assert read(table) == [((1, 0, 0), None, "a", None)]


def test_nameless_columns_go_by_position(tmp_path: Path) -> None:
    """Hive's SQL writes _col0, _col1, …; a selection of columns does not shift them."""
    row_type = pa.struct([("_col0", pa.int64()), ("_col1", pa.string())])
    write_events(
        tmp_path / "delta_0000001_0000001/bucket_00000",
        [(0, 1, 0, 0, 1, {"_col0": 7, "_col1": "a"})],
        row_type,
    )
    table = table_at(tmp_path, columns="id bigint,msg string,extra int")
    assert read(table) == [((1, 0, 0), 7, "a", None)]
    (split,) = plan_splits(table, "", Location.given(tmp_path), ALL)
    (batch,) = read_split(table, split, ALL, ["MSG"], row_ids=False)
    assert batch.to_pydict() == {"msg": ["a"]}


def test_columns_and_row_ids_can_be_left_out(tmp_path: Path) -> None:
    """Only what is asked for is read; nothing at all is refused, and so is an unknown column."""
    write_events(tmp_path / "delta_0000001_0000001/bucket_00000", inserts(1, 0, 0, [(1, "a")]))
    table = table_at(tmp_path)
    (split,) = plan_splits(table, "", Location.given(tmp_path), ALL)
    (batch,) = read_split(table, split, ALL, [])
    assert batch.schema == snapshot_schema(LEGACY, [])
    for wrong in (["nope"], ["id", "ID"]):
        with pytest.raises(RecordLayoutError, match="data columns: id, msg"):
            next(read_split(table, split, ALL, wrong))
    with pytest.raises(RecordLayoutError, match="nothing to read"):
        next(read_split(table, split, ALL, [], row_ids=False))


def test_batches_are_bounded(tmp_path: Path) -> None:
    """No batch is longer than asked for; order and rows stay."""
    write_events(
        tmp_path / "delta_0000001_0000001/bucket_00000", inserts(1, 0, 0, [(n, "x") for n in range(25)])
    )
    table = table_at(tmp_path)
    (split,) = plan_splits(table, "", Location.given(tmp_path), ALL)
    batches = list(read_split(table, split, ALL, options=ReadOptions(batch_rows=10)))
    assert [b.num_rows for b in batches] == [10, 10, 5]
    assert [n for b in batches for n in b.column("id").to_pylist()] == list(range(25))


@pytest.mark.parametrize("version", [LEGACY, SPLIT])
def test_original_files_get_identities(tmp_path: Path, version: AcidVersion) -> None:
    """Transaction 0, the bucket of the name, the position; events of later transactions meet them."""
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "msg": ["a", "b", "c"]})
    write_orc(tmp_path / "000000_0", rows)
    write_orc(tmp_path / "000000_0_copy_1", rows.slice(0, 1))
    kind = "delete_delta" if version.splits_updates else "delta"
    write_events(tmp_path / f"{kind}_0000002_0000002/bucket_00000", [(DELETE, 0, 0, 1, 2, None)])
    expected = [((0, -1, 0), 1, "a"), ((0, 0, 0), 1, "a"), ((0, 0, 2), 3, "c")]
    assert read(table_at(tmp_path, version)) == expected


@pytest.mark.parametrize("second", ["000000_1", "1/000000_0"])
def test_originals_whose_events_hive_mixes_up_are_refused(tmp_path: Path, second: str) -> None:
    """Two files of one bucket, or one in a subdirectory, and events for that bucket."""
    rows = pa.table({"id": pa.array([1], pa.int64()), "msg": ["a"]})
    write_orc(tmp_path / "000000_0", rows)
    write_orc(tmp_path / second, rows)
    assert len(read(table_at(tmp_path))) == 2
    write_events(tmp_path / "delta_0000002_0000002/bucket_00000", inserts(2, 0, 0, [(1, "a")]))
    with pytest.raises(DirectoryStateError, match=f"{second} is one of 2 original.*bucket 0"):
        read(table_at(tmp_path))


def test_a_delta_bucket_that_hive_never_reads_is_refused(tmp_path: Path) -> None:
    """Legacy tables only; its rows would be silently lost."""
    write_events(tmp_path / "delta_0000001_0000001/bucket_00002", inserts(1, 2, 0, [(1, "a")]))
    with pytest.raises(DirectoryStateError, match="belongs to bucket 2, but the table has 2 buckets"):
        read(table_at(tmp_path, buckets=2))
    assert len(read(table_at(tmp_path, buckets=3))) == 1
    assert len(read(table_at(tmp_path, SPLIT, buckets=2))) == 1


@pytest.mark.parametrize("name", ["bucket_0", "bucket_00000_0", "bucket_00000.tmp", "part-0"])
def test_foreign_files_in_a_delta_are_refused(tmp_path: Path, name: str) -> None:
    """Hive overlooks them or fails, depending on the table; hidden ones are fine."""
    delta = tmp_path / "delta_0000001_0000001"
    write_events(delta / "bucket_00000", inserts(1, 0, 0, [(1, "a")]))
    write_events(delta / "_hidden", inserts(1, 0, 0, [(1, "a")]))
    assert len(read(table_at(tmp_path))) == 1
    write_events(delta / name, inserts(1, 0, 5, [(1, "a")]))
    with pytest.raises(DirectoryStateError, match=f"{name} does not have a name of the form"):
        read(table_at(tmp_path))


def test_result_of_a_second_minor_compaction_is_overlooked_as_hive_does(tmp_path: Path) -> None:
    """Hive moves it below the first one's; its readers overlook it in legacy tables, fail in split ones."""
    delta = tmp_path / "delta_0000001_0000001"
    write_events(delta / "bucket_00000", inserts(1, 0, 0, [(1, "a")]))
    write_events(delta / delta.name / "bucket_00000", inserts(1, 0, 0, [(1, "a")]))
    assert len(read(table_at(tmp_path))) == 1
    with pytest.raises(DirectoryStateError, match="does not have a name of the form"):
        read(table_at(tmp_path, SPLIT))


@pytest.mark.parametrize(
    "events",
    [
        [*inserts(2, 0, 0, [(1, "a")]), (UPDATE, 1, 0, 0, 2, {"id": 1, "msg": "A"})],
        [(UPDATE, 1, 0, 0, 1, None), (UPDATE, 1, 0, 0, 2, None)],
        inserts(1, 0, 0, [(1, "x" * 9000)] * 100) + inserts(1, 0, 5, [(1, "x" * 9000)]),
    ],
)
def test_unsorted_files_are_refused(tmp_path: Path, events: list[Any]) -> None:
    """Inserts before updates, versions oldest first, and a key that falls back in a later stripe."""
    write_events(tmp_path / "delta_0000002_0000002/bucket_00000", events)
    with pytest.raises(CorruptFileError, match=r"bucket_00000 is not sorted: event \("):
        read(table_at(tmp_path))


@pytest.mark.parametrize(
    ("directory", "event", "found"),
    [
        ("delta_0000002_0000002", (UPDATE, 1, 0, 0, 2, {"id": 1, "msg": "A"}), "UPDATE"),
        ("delta_0000002_0000002", (DELETE, 1, 0, 0, 2, None), "DELETE"),
        ("delete_delta_0000002_0000002", (INSERT, 2, 0, 0, 2, {"id": 1, "msg": "A"}), "INSERT"),
    ],
)
def test_legacy_events_in_a_split_table_are_refused(
    tmp_path: Path, directory: str, event: Any, found: str
) -> None:
    """Hive would show deletes as rows of nulls and updates as doubles."""
    write_events(tmp_path / "base_0000001/bucket_00000", inserts(1, 0, 0, [(1, "a")]))
    write_events(tmp_path / directory / "bucket_00000", [event])
    with pytest.raises(DirectoryStateError, match=f"holds {found} events.*written for a legacy table"):
        read(table_at(tmp_path, SPLIT))


def test_rows_of_a_foreign_transaction_in_a_split_delta_are_refused(tmp_path: Path) -> None:
    """An insert delta is opened only when the merge has come to its transactions."""
    write_events(tmp_path / "base_0000001/bucket_00000", inserts(1, 0, 0, [(1, "a")]))
    write_events(tmp_path / "delta_0000005_0000005/bucket_00000", inserts(4, 0, 0, [(1, "a")]))
    with pytest.raises(DirectoryStateError, match=r"ROW__ID \(4, 0, 0\).*transactions 5 to 5"):
        read(table_at(tmp_path, SPLIT))


@pytest.mark.parametrize("damage", ["truncated", "text", "no ACID file", "lower case", "other type"])
def test_damaged_files_are_named(tmp_path: Path, damage: str) -> None:
    """Whatever is wrong with a file, the error is ours and names it."""
    path = tmp_path / "delta_0000001_0000001/bucket_00000"
    write_events(path, inserts(1, 0, 0, [(1, "a")]))
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "text":
        path.write_text("hello, this is no ORC file at all")
    elif damage == "no ACID file":
        write_orc(path, pa.table({"id": [1]}))
    elif damage == "lower case":
        table = pa.orc.read_table(str(path))
        write_orc(path, table.rename_columns([name.lower() for name in table.schema.names]))
    else:
        table = pa.orc.read_table(str(path))
        write_orc(path, table.set_column(3, "rowId", pa.array([0], pa.int32())))
    with pytest.raises(CorruptFileError, match="bucket_00000"):
        read(table_at(tmp_path))


def test_a_file_that_goes_away_is_reported(tmp_path: Path) -> None:
    """The cleaner removes files under a reader without a lock."""
    path = tmp_path / "delta_0000001_0000001/bucket_00000"
    write_events(path, inserts(1, 0, 0, [(1, "a")]))
    table = table_at(tmp_path)
    (split,) = plan_splits(table, "", Location.given(tmp_path), ALL)
    path.unlink()
    with pytest.raises(DirectoryStateError, match="Without a lock"):
        next(read_split(table, split, ALL))


def test_an_empty_file_has_no_rows_and_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in Hive. But it may also have been cut off, so it is logged."""
    path = tmp_path / "delta_0000001_0000001/bucket_00000"
    path.parent.mkdir()
    path.touch()
    with caplog.at_level(logging.WARNING):
        assert read(table_at(tmp_path)) == []
    assert "bucket_00000 is empty" in caplog.text


def test_a_side_file_limits_a_file_that_is_being_written(tmp_path: Path) -> None:
    """Only the bytes of the last commit count; no whole number yet means nothing is committed."""
    path = tmp_path / "delta_0000001_0000002/bucket_00000"
    write_events(path, inserts(1, 0, 0, [(1, "a")]))
    size = path.stat().st_size
    side = path.with_name("bucket_00000_flush_length")
    with path.open("ab") as file:
        file.write(b"not committed yet")
    side.write_bytes((3).to_bytes(8, "big") + size.to_bytes(8, "big") + b"\0\0")
    assert read(table_at(tmp_path)) == [((1, 0, 0), 1, "a")]
    side.write_bytes(b"")
    assert read(table_at(tmp_path)) == []
    side.write_bytes((10**6).to_bytes(8, "big"))
    with pytest.raises(CorruptFileError, match="1000000 are committed"):
        read(table_at(tmp_path))


def test_timestamps_come_in_the_form_asked_for(tmp_path: Path) -> None:
    """Nanoseconds hold 1678 to 2261 only; microseconds lose digits only when told to; text is exact."""
    row_type = pa.struct([("id", pa.int64()), ("ts", pa.timestamp("ns"))])
    nanos = 1_447_936_496_789_000_001
    write_events(
        tmp_path / "delta_0000001_0000001/bucket_00000", [(0, 1, 0, 0, 1, {"id": 1, "ts": nanos})], row_type
    )
    table = table_at(tmp_path, columns="id bigint,ts timestamp")
    assert read(table, timestamp_form=TimestampForm.TEXT)[0][2] == "2015-11-19T12:34:56.789000001"
    with pytest.raises(RecordValueError, match="'ts': a timestamp has more than six digits"):
        read(table, timestamp_form=TimestampForm.MICROSECONDS)
    short = read(table, timestamp_form=TimestampForm.MICROSECONDS, truncate_nanoseconds=True)
    assert short[0][2] == datetime.datetime(2015, 11, 19, 12, 34, 56, 789000)


def test_timestamps_that_nanoseconds_cannot_hold(tmp_path: Path) -> None:
    """They are common as "no date"; nested ones too. Labels before 1582 are those Hive shows."""
    row_type = pa.struct(
        [
            ("id", pa.int64()),
            ("ts", pa.timestamp("us")),
            ("l", pa.list_(pa.timestamp("us"))),
            ("m", pa.string()),
        ]
    )
    far = datetime.datetime(9999, 12, 31, 23, 59, 59, 500000)
    # Day -177000 of the hybrid calendar is 1485-05-14 there, nine days later than in Arrow's calendar.
    early = datetime.datetime(1485, 5, 23, 1, 2, 3)
    row = {"id": 1, "ts": far, "l": [early, None], "m": "x"}
    write_events(
        tmp_path / "delta_0000001_0000001/bucket_00000",
        [(0, 1, 0, 0, 1, row), (2, 1, 0, 1, 1, None)],
        row_type,
    )
    table = table_at(tmp_path, columns="id bigint,ts timestamp,l array<timestamp>,m string")
    ((_, id_, ts, nested, m),) = read(table, timestamp_form=TimestampForm.MICROSECONDS)
    assert (id_, ts, m) == (1, far, "x")
    assert nested == [datetime.datetime(1485, 5, 14, 1, 2, 3), None]
    ((*_, ts, nested, _),) = read(table, timestamp_form=TimestampForm.TEXT)
    assert (ts, nested) == ("9999-12-31T23:59:59.5", ["1485-05-14T01:02:03", None])
    with pytest.raises(RecordValueError, match="does not fit nanoseconds"):
        read(table)


def test_deletes_in_a_table_with_unions(tmp_path: Path) -> None:
    """Hive writes deletes with NULL rows, and NULL structs above unions; pyarrow aborts on both."""
    path = tmp_path / "delta_0000001_0000001/bucket_00000"
    path.parent.mkdir()
    row = "struct<id:bigint,u:uniontype<int,string>,s:struct<u:uniontype<int,string>>>"
    keys = "operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,currentTransaction:bigint"
    with path.open("wb") as file, pyorc.Writer(file, f"struct<{keys},row:{row}>") as writer:
        writer.write((0, 1, 0, 0, 1, (1, "a", (5,))))
        writer.write((2, 1, 0, 1, 1, None))
        writer.write((0, 1, 0, 2, 1, (3, 7, None)))
    columns = [("id", "bigint"), ("u", "uniontype<int,string>"), ("s", "struct<u:uniontype<int,string>>")]
    table = table_at(tmp_path)
    table = dataclasses.replace(table, columns=tuple(AcidColumn(*c) for c in columns))
    assert read(table) == [((1, 0, 0), 1, "a", {"u": 5}), ((1, 0, 2), 3, 7, None)]


def test_a_file_may_name_the_calendar_of_its_dates(tmp_path: Path) -> None:
    """Newer writers count days as Arrow does and say so in the footer; otherwise days are hybrid."""
    days = pa.array([datetime.date(1500, 3, 1), datetime.date(1, 1, 1)])
    times = pa.array([datetime.datetime(1500, 3, 1, 1, 2, 3), datetime.datetime(9999, 12, 31)])
    rows = pa.table({"d": days, "t": times})
    table = table_at(tmp_path, columns="d date,t timestamp")
    path = tmp_path / "000000_0"
    write_orc(path, rows)
    hybrid = read(table, timestamp_form=TimestampForm.MICROSECONDS)
    assert [row[1] for row in hybrid] != days.to_pylist()
    content = path.read_bytes()
    tail = parse_tail(content)
    start = len(content) - 1 - tail.postscript_length
    calendar = bytes([11 << 3, 2])
    length = tail.footer_length + len(calendar)
    postscript = with_numbers(content[start:-1], {POSTSCRIPT_FOOTER_LENGTH: length})
    path.write_bytes(content[:start] + calendar + postscript + bytes([len(postscript)]))
    read_again = read(table, timestamp_form=TimestampForm.MICROSECONDS)
    assert [row[1:] for row in read_again] == list(zip(days.to_pylist(), times.to_pylist(), strict=True))
