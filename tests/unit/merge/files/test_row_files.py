"""Files of rows: several are one source, and what a file lacks or has too much is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mutation_api.errors import RecordLayoutError, RecordValueError, WorkerError
from mutation_api.merge.row_files import RowFiles
from mutation_api.storage.location import Location
from tests.unit.merge.files.test_change_files import TABLE

pytestmark = pytest.mark.slow


def test_several_files_are_one_source(spark: SparkSession, tmp_path: Path) -> None:
    """By name, whatever the order and the format; columns that the table does not have are text."""
    (tmp_path / "a.csv").write_text("op,id,price\nU,1,1.50\n,2,\n")
    (tmp_path / "b.json").write_text('{"price": 2.25, "id": 3, "op": 7}\n')
    files = RowFiles(spark, TABLE, keeps_unknown=True)
    folder = Location.given(tmp_path)
    rows = files.read_all([folder / "a.csv", folder / "b.json"])
    assert rows.schema.simpleString() == "struct<op:string,id:int,price:decimal(6,2)>"
    assert [(r.op, r.id, str(r.price)) for r in rows.orderBy("id").collect()] == [
        ("U", 1, "1.50"),
        (None, 2, "None"),
        ("7", 3, "2.25"),
    ]
    (tmp_path / "c.csv").write_text("op,id\nU,1\n")
    with pytest.raises(RecordLayoutError, match=r"c\.csv has the columns op string, id int, .*a\.csv has"):
        files.read_all([folder / "a.csv", folder / "c.csv"])
    (tmp_path / "d.csv").write_text("op,id,price\nU,one,1\n")
    with pytest.raises(
        RecordValueError,
        match=r"d\.csv, .* column id \(int\) has 'one' in row \('U', 'one', '1'\): it is not a",
    ):
        files.read_all([folder / "d.csv"])
    with pytest.raises(WorkerError, match=r"a\.csv cannot be read as parquet: the Spark job failed"):
        files.read_all([folder / "a.csv"], "parquet")


def test_csv_files_of_a_folder_have_one_header(spark: SparkSession, tmp_path: Path) -> None:
    """With columns in another order, Spark would take the first file's names for all."""
    (tmp_path / "a.csv").write_text("id,msg\n1,one\n")
    (tmp_path / "b.csv").write_text("msg,id\n2,3\n")
    with pytest.raises(WorkerError, match=r"Encountered error while reading file .*b\.csv"):
        RowFiles(spark, TABLE).read(Location.given(tmp_path), "csv")
