"""The forms in which rows leave a scan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.event import Operation, bucket_property
from mutation_api.read.directory_scan import open_directory
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import optional_package
from tests.support.acid_files import inserts, write_events, write_orc
from tests.unit.read.scan_cases import partitioned_view, plain_view


def test_each_form_has_the_same_rows(tmp_path: Path) -> None:
    """pandas, Polars and DuckDB; ROW__ID is a struct in each."""
    scan = TableScan(partitioned_view(tmp_path), row_ids=True)
    rows = scan.to_arrow().to_pylist()
    assert scan.to_polars().to_dicts() == rows
    assert scan.to_pandas().to_dict("records") == rows
    with scan.to_duckdb("t") as database:
        assert database.sql("select id, ds, ROW__ID.partition from t order by id").fetchall() == [
            (row["id"], row["ds"], row["ROW__ID"]["partition"]) for row in rows
        ]


def test_duckdb_may_be_the_callers(tmp_path: Path) -> None:
    """Several scans can be joined there."""
    with duckdb.connect() as database:
        view = plain_view(tmp_path)
        assert TableScan(view).to_duckdb("a", database) is database
        TableScan(view, columns=["id"], limit=2).to_duckdb("b", database)
        assert database.sql("select msg from a join b using (id) order by id").fetchall() == [
            ("m0",),
            ("m1",),
        ]


def test_a_scan_is_an_arrow_stream(tmp_path: Path) -> None:
    """Whatever speaks Arrow's C interface takes it as it is, any number of times."""
    scan = TableScan(plain_view(tmp_path))
    assert pa.table(scan) == scan.to_arrow()
    assert pl.DataFrame(scan)["id"].to_list() == [0, 1, 2]
    assert duckdb.sql("select sum(id) from scan").fetchall() == [(3,)]


def test_rows_are_counted(tmp_path: Path) -> None:
    """In tables with and without ROW__IDs, partitioned or not."""
    assert TableScan(plain_view(tmp_path, 7), columns=["msg"]).count() == 7
    assert TableScan(partitioned_view(tmp_path), where_partition=[("ds", None)]).count() == 1
    write_orc(tmp_path / "i" / "delta_0000001_0000001_0000" / "000000_0", pa.table({"id": [1, 2]}))
    view = open_directory(tmp_path / "i", "id bigint", transactional_properties="insert_only")
    assert TableScan(view, limit=1).count() == 1
    assert TableScan(view).count() == 2


def test_a_package_that_is_missing_is_named() -> None:
    """With what to install."""
    with pytest.raises(
        ConfigurationError, match=r"to_x\(\) requires.*pip install hive-mutation-api\[no_such\]"
    ):
        optional_package("no_such", "to_x()")


@pytest.mark.thorough
def test_a_scan_needs_none_of_them() -> None:
    """They are imported when they are asked for."""
    program = "import sys; from mutation_api import TableScan; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"pandas", "polars", "duckdb", "pyspark"} & set(done.stdout.split())


def test_unions_have_no_form_in_every_package(tmp_path: Path) -> None:
    """Pandas gets Python's values; Polars and DuckDB are refused with what to do."""
    union = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()),
        pa.array([0, 0], pa.int32()),
        [pa.array([7], pa.int32()), pa.array(["x"])],
    )
    write_orc(
        tmp_path / "u" / "delta_0000001_0000001_0000" / "000000_0", pa.table({"id": [1, 2], "u": union})
    )
    view = open_directory(
        tmp_path / "u", "id bigint, u uniontype<int,string>", transactional_properties="insert_only"
    )
    scan = TableScan(view)
    assert scan.to_pandas()["u"].tolist() == [7, "x"]
    with pytest.raises(RecordLayoutError, match=r"Polars does not support Arrow unions, as in \['u'\]"):
        scan.to_polars()
    with pytest.raises(RecordLayoutError, match="DuckDB does not support Arrow unions"):
        scan.to_duckdb("t")
    assert TableScan(view, columns=["id"]).to_polars()["id"].to_list() == [1, 2]


@pytest.mark.parametrize(
    ("ids", "by_tails", "count"),
    [("", 4, 4), ("t.t:3:9223372036854775807::2", 0, 2), ("t.t:2:9223372036854775807::", 0, 3)],
    ids=["all visible", "one aborted", "one not seen"],
)
def test_tails_count_rows_only_if_all_of_them_are_visible(
    tmp_path: Path, ids: str, by_tails: int, count: int
) -> None:
    """A delta of three ids, of which the second one inserted two rows."""
    bucket = bucket_property(0, 0)
    rows = [*inserts(1, bucket, 0, [(1, "a")]), *inserts(2, bucket, 0, [(2, "b"), (3, "c")])]
    rows += inserts(3, bucket, 0, [(4, "d")])
    write_events(tmp_path / "v" / "delta_0000001_0000003" / "bucket_00000", rows)
    view = open_directory(
        tmp_path / "v", "id bigint, msg string", acid_version="2", valid_write_ids=ids or None
    )
    found, rest = TableScan(view).planned().counted(view.table.version)
    assert (found, len(rest.splits)) == (by_tails, 0 if by_tails else 1)
    assert TableScan(view).count() == count == TableScan(view).to_arrow().num_rows
    deleted = (Operation.DELETE, 1, bucket, 0, 4, None)
    write_events(tmp_path / "v" / "delete_delta_0000004_0000004_0000" / "bucket_00000", [deleted])
    if not ids:
        assert TableScan(view).planned().counted(view.table.version)[0] == 0
        assert TableScan(view).count() == 3


def test_tails_do_not_count_events_of_legacy_deltas(tmp_path: Path) -> None:
    """They may be deletes."""
    events = inserts(1, 0, 0, [(1, "a"), (2, "b")])
    write_events(tmp_path / "l" / "delta_0000001_0000001" / "bucket_00000", events)
    write_events(tmp_path / "l" / "delta_0000002_0000002" / "bucket_00000", [(2, 1, 0, 0, 2, None)])
    scan = TableScan(open_directory(tmp_path / "l", "id bigint, msg string"))
    assert scan.planned().counted(scan.view.table.version)[0] == 0
    assert scan.count() == 1
