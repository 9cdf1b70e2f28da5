"""Scans as Arrow; tests/unit/cli/test_snapshot.py compares the rows of real Hive files."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from mutation_api.errors import ConfigurationError, CorruptFileError, RecordLayoutError, RecordValueError
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.read.directory_scan import open_directory
from mutation_api.read.table_scan import TableScan
from tests.support.acid_files import write_events, write_orc
from tests.unit.read.scan_cases import DAYS, SCHEMA, partitioned_directory, partitioned_view, plain_view

DAY = datetime.date(2015, 11, 19)
ROW_ID = pa.struct([("transactionid", pa.int64()), ("bucketid", pa.int32()), ("rowid", pa.int64())])


def test_partition_columns_are_columns(tmp_path: Path) -> None:
    """Typed, after the data columns, and null in the default partition."""
    rows = TableScan(partitioned_view(tmp_path)).to_arrow()
    assert rows.schema == pa.schema(
        [("id", pa.int64()), ("msg", pa.string()), ("ds", pa.date32()), ("hr", pa.int32())]
    )
    assert rows.to_pylist() == [
        {"id": 1, "msg": "m1", "ds": DAY, "hr": 1},
        {"id": 2, "msg": "m2", "ds": DAY + datetime.timedelta(1), "hr": 1},
        {"id": 3, "msg": "m3", "ds": None, "hr": 1},
    ]


def test_row_ids_name_the_partition_of_the_row(tmp_path: Path) -> None:
    """In partitioned tables only."""
    scan = TableScan(partitioned_view(tmp_path), columns=["ID"], row_ids=True)
    assert scan.schema.field("ROW__ID").type == pa.struct([*ROW_ID, ("partition", pa.string())])
    first = scan.to_arrow().to_pylist()[0]
    where = {"transactionid": 1, "bucketid": 0, "rowid": 0, "partition": f"ds={DAYS[0]}/hr=01"}
    assert first == {"ROW__ID": where, "id": 1}
    plain = TableScan(plain_view(tmp_path), columns=[], row_ids=True)
    assert plain.schema == plain.to_arrow().schema == pa.schema([("ROW__ID", ROW_ID)])


def test_columns_come_in_the_order_wanted(tmp_path: Path) -> None:
    """Data and partition columns alike, in any case; a read of partition columns alone has as many rows."""
    view = partitioned_view(tmp_path)
    assert TableScan(view, columns=["HR", "msg"]).to_arrow().to_pylist()[1] == {"hr": 1, "msg": "m2"}
    assert TableScan(view, columns=["hr"]).to_arrow().to_pydict() == {"hr": [1, 1, 1]}
    path = partitioned_directory(tmp_path)
    alone = open_directory(path, SCHEMA, transactional_properties="default")
    assert TableScan(alone, columns=["hr"]).to_arrow().to_pydict() == {"hr": ["01"] * 3}


@pytest.mark.parametrize("columns", [["nope"], ["id", "ID"]])
def test_unknown_columns_are_refused(tmp_path: Path, columns: list[str]) -> None:
    """Columns named twice are refused too, and so is a read of nothing."""
    view = partitioned_view(tmp_path)
    with pytest.raises(RecordLayoutError, match="available columns: id, msg, ds, hr"):
        TableScan(view, columns=columns).to_arrow_batch_reader()
    with pytest.raises(RecordLayoutError, match="nothing to read"):
        TableScan(view, columns=[]).to_arrow()


def test_batches_know_their_partition(tmp_path: Path) -> None:
    """By its name, in the order of the names; in an unpartitioned table the name is None, not empty."""
    scan = TableScan(partitioned_view(tmp_path), where_partition=[("hr", "1")])
    found = list(scan.by_partition())
    assert [name for name, _ in found] == [f"ds={day}/hr=01" for day in DAYS]
    assert all(rows.schema == scan.schema for _, rows in found)
    assert [name for name, _ in TableScan(plain_view(tmp_path)).by_partition()] == [None]
    one = TableScan(partitioned_view(tmp_path), where_partition=[("ds", DAY)])
    assert one.to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize(("limit", "found"), [(0, []), (2, [0, 1]), (3, [0, 1, 2]), (9, [0, 1, 2])])
def test_reading_ends_at_the_limit(tmp_path: Path, limit: int, found: list[int]) -> None:
    """The limit counts rows over all partitions."""
    assert TableScan(plain_view(tmp_path), limit=limit).to_arrow()["id"].to_pylist() == found
    ids = TableScan(partitioned_view(tmp_path), limit=limit).to_arrow()["id"].to_pylist()
    assert ids == [1, 2, 3][: len(found)]
    with pytest.raises(ConfigurationError, match="limit -1"):
        TableScan(plain_view(tmp_path), limit=-1).by_partition()


def test_a_stream_fails_as_the_reader_does(tmp_path: Path) -> None:
    """Files are read as batches are consumed; an error then is ours, not Arrow's."""
    view = partitioned_view(tmp_path)
    with TableScan(view).to_arrow_batch_reader() as reader:
        assert reader.schema == TableScan(view).schema
        assert reader.read_next_batch()["id"].to_pylist() == [1]
        (damaged,) = tmp_path.glob(f"t/ds={DAYS[1]}/hr=01/*/bucket_00000")
        damaged.write_bytes(b"ORC")
        with pytest.raises(CorruptFileError):
            reader.read_all()


def test_timestamps_have_the_form_asked_for(tmp_path: Path) -> None:
    """Microseconds by default; a value with more digits is an error, or is cut."""
    at = pa.scalar(1447936496789012345, pa.timestamp("ns")).as_py()
    rows = [(0, 1, 0, 0, 1, {"at": at})]
    path = tmp_path / "x" / "delta_0000001_0000001/bucket_00000"
    write_events(path, rows, pa.struct([("at", pa.timestamp("ns"))]))
    view = open_directory(tmp_path / "x", "at timestamp")
    with pytest.raises(RecordValueError, match="truncate_nanoseconds=True"):
        TableScan(view).to_arrow()
    cut = TableScan(view, truncate_nanoseconds=True).to_arrow()["at"]
    assert (cut.type, cut[0].as_py().microsecond) == (pa.timestamp("us"), 789012)
    texts = TableScan(view, timestamps=TimestampForm.TEXT).to_arrow()["at"]
    assert texts.to_pylist() == ["2015-11-19T12:34:56.789012345"]


def test_an_insert_only_table_has_no_row_ids(tmp_path: Path) -> None:
    """A data column gives the number of rows if only partition columns are wanted."""
    file = tmp_path / "i" / "ds=x" / "delta_0000001_0000001_0000" / "000000_0"
    write_orc(file, pa.table({"id": [1, 2]}))
    view = open_directory(tmp_path / "i", "id bigint", transactional_properties="insert_only")
    assert TableScan(view, columns=["ds"]).to_arrow().to_pydict() == {"ds": ["x", "x"]}
    with pytest.raises(RecordLayoutError, match="insert-only"):
        TableScan(view, row_ids=True).to_arrow()
