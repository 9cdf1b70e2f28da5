"""Files of rows; tests/integration/front/test_cli.py shows that apply reads them back."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet
import pytest

from mutation_api.errors import ClientError, ConfigurationError, RecordLayoutError
from mutation_api.read.directory_scan import open_directory
from mutation_api.read.export import export_rows, row_objects
from mutation_api.read.table_scan import TableScan
from tests.unit.read.scan_cases import DAYS, SCHEMA, partitioned_view, plain_view

FORMATS = ("csv", "json", "orc", "parquet")


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_file_has_the_scan_and_no_more(tmp_path: Path, format_name: str) -> None:
    """The scan's columns in its order, whatever the file's name; an existing file is replaced."""
    scan = TableScan(partitioned_view(tmp_path), columns=["hr", "msg"], limit=2)
    target = tmp_path / "rows"
    target.write_text("an older file")
    export_rows(scan, target, format_name)
    match format_name:
        case "csv":
            found = pa.csv.read_csv(target).to_pylist()
        case "json":
            found = [json.loads(line) for line in target.read_text().splitlines()]
        case "orc":
            found = pa.orc.read_table(str(target)).to_pylist()
        case _:
            found = pa.parquet.read_table(target).to_pylist()
    assert found == [{"hr": 1, "msg": "m1"}, {"hr": 1, "msg": "m2"}]
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["rows"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_file_without_rows_has_columns(tmp_path: Path, format_name: str) -> None:
    """As JSON lines the file is empty."""
    target = tmp_path / f"rows.{format_name}"
    export_rows(TableScan(partitioned_view(tmp_path), row_ids=True, limit=0), target)
    names = ["ROW__ID", "id", "msg", "ds", "hr"]
    match format_name:
        case "csv":
            parts = [f"ROW__ID.{name}" for name in ("transactionid", "bucketid", "rowid", "partition")]
            assert target.read_text() == ",".join(f'"{name}"' for name in [*parts, *names[1:]]) + "\n"
        case "json":
            assert target.read_text() == ""
        case "orc":
            assert pa.orc.read_table(str(target)).column_names == names
        case _:
            assert pa.parquet.read_table(target).column_names == names


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    """An unknown format, a directory that does not exist, a type that the format lacks."""
    scan = TableScan(plain_view(tmp_path))
    with pytest.raises(ConfigurationError, match=r"x\.txt: name the format with format_name, one of csv, "):
        export_rows(scan, tmp_path / "x.txt")
    with pytest.raises(ClientError, match=r"no/x\.csv: cannot write the file"):
        export_rows(scan, tmp_path / "no" / "x.csv")
    union = open_directory(tmp_path / "p", f"{SCHEMA}, u uniontype<int,string>")
    with pytest.raises(
        RecordLayoutError, match=r"directory\.p: parquet does not support the type of a column"
    ):
        export_rows(TableScan(union), tmp_path / "x.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


def test_rows_are_objects(tmp_path: Path) -> None:
    """ROW__ID as a struct, columns in the order of the scan, partition values in their JSON form."""
    scan = TableScan(partitioned_view(tmp_path), columns=["ds", "id"], row_ids=True)
    found = [row for _, rows in scan.by_partition() for row in row_objects(scan, rows)]
    row_id = {"transactionid": 1, "bucketid": 0, "rowid": 0, "partition": f"ds={DAYS[0]}/hr=01"}
    assert found[0] == {"ROW__ID": row_id, "ds": "2015-11-19", "id": 1}
    assert [row["ds"] for row in found] == ["2015-11-19", "2015-11-20", None]
