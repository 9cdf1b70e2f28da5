"""Conditions of scans: which partitions are read, which rows come, and what is refused."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.read.directory_scan import open_directory
from mutation_api.read.table_scan import TableScan
from tests.support.acid_files import inserts, write_events
from tests.unit.read.scan_cases import DAYS, partitioned_view, plain_view

DAY = datetime.date(2015, 11, 19)


def ids(scan: TableScan) -> list[int]:
    return list(scan.to_arrow()["id"].to_pylist())


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("condition", "found", "days"),
    [
        (pc.field("ds") == DAY, [1], 1),
        (pc.field("ds") >= DAY, [1, 2], 2),
        (pc.day(pc.field("ds")) == 20, [2], 1),
        (pc.field("ds").is_null(), [3], 1),
        (pc.field("ds").isin([DAY]) & (pc.field("id") < 9), [1], 1),
        ((pc.field("ds") == DAY) & (pc.field("id") == 2), [], 1),
        ((pc.field("ds") == DAY) | (pc.field("id") == 2), [1, 2], 3),
        (pc.field("msg") == "m3", [3], 3),
        ((pc.field("hr") == 1) & (pc.field("id") > 1), [2, 3], 3),
        (pc.field("hr") == 2, [], 0),
        (pc.scalar(True), [1, 2, 3], 3),
        (pc.scalar(False), [], 3),
    ],
    ids=str,
)
def test_only_partitions_that_may_have_rows_are_read(
    tmp_path: Path, condition: pc.Expression, found: list[int], days: int
) -> None:
    """A file of another partition may be damaged; nobody looks at it."""
    view = partitioned_view(tmp_path)
    scan = TableScan(view, where=condition, columns=["id"])
    assert ids(scan) == found
    assert scan.schema.names == ["id"]
    assert scan.count() == len(found)
    read = [day for day in DAYS if _is_read(tmp_path, scan, day)]
    assert len(read) == days


def _is_read(root: Path, scan: TableScan, day: str) -> bool:
    (file,) = root.glob(f"t/ds={day}/hr=01/*/bucket_00000")
    content = file.read_bytes()
    file.write_bytes(b"no ORC")
    try:
        scan.to_arrow()
    except Exception:
        return True
    finally:
        file.write_bytes(content)
    return False


def test_a_filter_reads_columns_that_are_not_wanted(tmp_path: Path) -> None:
    """Data and partition columns; the result has what is wanted, in the order wanted."""
    scan = TableScan(
        partitioned_view(tmp_path),
        columns=["hr"],
        row_ids=True,
        where=(pc.field("msg") == "m2") & pc.field("ds").is_valid(),
    )
    (row,) = scan.to_arrow().to_pylist()
    assert list(row) == ["ROW__ID", "hr"]
    assert row["ROW__ID"]["partition"] == f"ds={DAYS[1]}/hr=01"
    assert TableScan(plain_view(tmp_path), columns=["msg"], where=pc.field("id") == 1).to_arrow() == pa.table(
        {"msg": ["m1"]}
    )


def test_the_limit_counts_rows_that_meet_the_filter(tmp_path: Path) -> None:
    """Not those that were read."""
    view = plain_view(tmp_path, 10)
    assert ids(TableScan(view, where=pc.field("id") >= 5, limit=2)) == [5, 6]
    assert TableScan(view, where=pc.field("id") >= 5, limit=2).count() == 2


def test_a_text_is_the_name_of_a_boolean_column(tmp_path: Path) -> None:
    """NULL is not true."""
    rows = [(0, 1, 0, n, 1, {"id": n, "is_new": value}) for n, value in enumerate([True, False, None, True])]
    path = tmp_path / "b" / "delta_0000001_0000001/bucket_00000"
    write_events(path, rows, pa.struct([("id", pa.int64()), ("is_new", pa.bool_())]))
    view = open_directory(tmp_path / "b", "id bigint, is_new boolean")
    assert ids(TableScan(view, where="IS_NEW")) == [0, 3]
    assert ids(TableScan(view, where=~pc.field("is_new"))) == [1]


def test_a_whole_struct_may_be_read(tmp_path: Path) -> None:
    """A struct column, or a field of it."""
    rows = [
        (0, 1, 0, n, 1, {"id": n, "s": value}) for n, value in enumerate([{"a": 1}, {"a": None}, {"a": 2}])
    ]
    path = tmp_path / "s" / "delta_0000001_0000001/bucket_00000"
    write_events(path, rows, pa.struct([("id", pa.int64()), ("s", pa.struct([("a", pa.int32())]))]))
    view = open_directory(tmp_path / "s", "id bigint, s struct<a:int>")
    assert ids(TableScan(view, columns=["id"], where=pc.field("s").is_valid())) == [0, 1, 2]
    assert ids(TableScan(view, columns=["id"], where=pc.field("s", "a") == 2)) == [2]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (pc.field("nope") == 1, "nope.*cannot be resolved over id, msg, ds, hr"),
        ("nope", "the filter 'nope': a string must be the name of a column, one of id, msg, ds, hr."),
        ("id > 3", r"the filter 'id > 3': .*pc\.field"),
        ("id", "gives int64"),
        (pc.field("msg") > 1, "filter"),
        (pc.field(0) == 1, "number"),
        ((pc.field(0) == 1) & (pc.field("msg") == "x"), "number"),
    ],
    ids=str,
)
def test_conditions_that_make_no_sense_are_refused(
    tmp_path: Path, condition: pc.Expression | str, message: str
) -> None:
    """Before anything is read."""
    with pytest.raises(RecordLayoutError, match=message):
        TableScan(partitioned_view(tmp_path), where=condition).to_arrow_batch_reader()


def test_a_condition_without_value_is_an_error_of_ours(tmp_path: Path) -> None:
    """It names the filter."""
    for column in ("id", "hr"):
        condition = pc.divide(pc.scalar(1), pc.field(column) - pc.scalar(1)) == 7
        with pytest.raises(RecordValueError, match="divide by zero"):
            TableScan(partitioned_view(tmp_path), where=condition).to_arrow()


def test_buckets_come_in_order_from_any_number_of_threads(tmp_path: Path) -> None:
    """As many rows as need several stripes of several buckets."""
    text = "x" * 2000
    for bucket in range(5):
        events = inserts(1, bucket, 0, [(1000 * bucket + n, text) for n in range(200)])
        write_events(tmp_path / "m" / "delta_0000001_0000001" / f"bucket_0000{bucket}", events)
    view = open_directory(tmp_path / "m", "id bigint, msg string")
    expected = [1000 * bucket + n for bucket in range(5) for n in range(200)]
    for threads in (1, 2, 7):
        scan = TableScan(view, columns=["id"], threads=threads, waiting_bytes=1)
        assert ids(scan) == expected
        assert [n for rows in scan.to_arrow_batch_reader() for n in rows["id"].to_pylist()] == expected


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary()], ids=str)
def test_literals_that_end_the_process_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    """A NULL of a large type; pyarrow 26 crashes when it binds it."""
    with pytest.raises(RecordLayoutError, match=r"contains a NULL of type large_string .*is_null\(\)"):
        TableScan(plain_view(tmp_path), where=pc.field("msg") == pa.scalar(None, kind)).to_arrow()


def test_bytes_in_a_message(tmp_path: Path) -> None:
    """Those that are no UTF-8 do not hide the reason."""
    scan = TableScan(plain_view(tmp_path), where=pc.field("id") == pc.scalar(b"\xff\x00"))
    assert "id == " in repr(scan)
    with pytest.raises(RecordLayoutError, match=r"the filter \(id == .* cannot be resolved"):
        scan.to_arrow()
