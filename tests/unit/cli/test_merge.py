"""``hive-mutate merge``: its usage, and the files that it reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mutation_api.cli.arguments.table_files import TableFiles
from mutation_api.cli.main import EXIT_FAILED, EXIT_USAGE, main
from mutation_api.errors import RecordLayoutError, RecordValueError, WorkerError
from mutation_api.storage.location import Location
from tests.unit.cli.test_apply import TABLE

NEEDED = ("merge", "--table", "d.t", "--key", "id", "--source", "x.csv")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("merge", "--table", "d.t"), "the following arguments are required: --key, --source"),
        ((*NEEDED, "--no-update", "--update-when", "true"), "give either --no-update or --update-when"),
        ((*NEEDED, "--no-insert", "--insert-when", "true"), "give either --no-insert or --insert-when"),
        ((*NEEDED, "--delete-missing", "--delete-missing-when", "true"), "give either --delete-missing or"),
        ((*NEEDED, "--no-update", "--no-insert"), "--no-update and --no-insert leave nothing to do"),
        ((*NEEDED, "--missing-columns", "skip"), "invalid choice: 'skip'"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    """Status 2, and what is wrong with it."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == EXIT_USAGE
    assert message in capsys.readouterr().err


def test_help_tells_what_happens_to_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults, and what a deletion means for inserts."""
    with pytest.raises(SystemExit) as caught:
        main(["merge", "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "the others are inserted" in printed
    assert "A row for which --delete-when holds is never inserted." in printed


def test_files_are_looked_for_before_anything_is_begun(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A missing file and one of an unknown format: status 1, though no metastore answers."""
    nowhere = ("--metastore", "thrift://127.0.0.1:1")
    assert main([*NEEDED[:-1], str(tmp_path / "no.csv"), *nowhere]) == EXIT_FAILED
    assert f"there is no file {tmp_path / 'no.csv'}" in capsys.readouterr().err
    (tmp_path / "x.txt").touch()
    assert main([*NEEDED[:-1], str(tmp_path / "x.txt"), *nowhere]) == EXIT_FAILED
    assert "name the format with --format, one of csv, json, orc, parquet" in capsys.readouterr().err


@pytest.mark.slow
def test_several_files_are_one_source(spark: SparkSession, tmp_path: Path) -> None:
    """By name, whatever the order and the format; columns that the table does not have are text."""
    (tmp_path / "a.csv").write_text("op,id,price\nU,1,1.50\n,2,\n")
    (tmp_path / "b.json").write_text('{"price": 2.25, "id": 3, "op": 7}\n')
    files = TableFiles(spark, TABLE, keeps_unknown=True)
    folder = Location.given(tmp_path)
    rows = files.read_all([folder / "a.csv", folder / "b.json"], None)
    assert rows.schema.simpleString() == "struct<op:string,id:int,price:decimal(6,2)>"
    assert [(r.op, r.id, str(r.price)) for r in rows.orderBy("id").collect()] == [
        ("U", 1, "1.50"),
        (None, 2, "None"),
        ("7", 3, "2.25"),
    ]
    (tmp_path / "c.csv").write_text("op,id\nU,1\n")
    with pytest.raises(RecordLayoutError, match=r"c\.csv has the columns op string, id int, .*a\.csv has"):
        files.read_all([folder / "a.csv", folder / "c.csv"], None)
    (tmp_path / "d.csv").write_text("op,id,price\nU,one,1\n")
    with pytest.raises(
        RecordValueError, match=r"d\.csv, .* column id \(int\) has 'one' in row \('U', 'one', '1'\)"
    ):
        files.read_all([folder / "d.csv"], None)
    with pytest.raises(WorkerError, match=r"a\.csv cannot be read as parquet: the Spark job failed"):
        files.read_all([folder / "a.csv"], "parquet")


@pytest.mark.slow
def test_csv_files_of_a_folder_have_one_header(spark: SparkSession, tmp_path: Path) -> None:
    """With columns in another order, Spark would take the first file's names for all."""
    (tmp_path / "a.csv").write_text("id,msg\n1,one\n")
    (tmp_path / "b.csv").write_text("msg,id\n2,3\n")
    with pytest.raises(WorkerError, match=r"Encountered error while reading file .*b\.csv"):
        TableFiles(spark, TABLE).read(Location.given(tmp_path), "csv")
