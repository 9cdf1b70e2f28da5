"""``hive-mutate diff``: its usage, and that what it saves is read again as it was."""

from __future__ import annotations

import dataclasses
import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mutation_api.cli.apply import read_changes
from mutation_api.cli.diff import save
from mutation_api.cli.main import EXIT_FAILED, EXIT_USAGE, main
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn
from tests.unit.cli.test_apply import TABLE

NEEDED = ("diff", "--table", "d.t", "--key", "id")
TYPED = dataclasses.replace(
    TABLE, columns=(*TABLE.columns, AcidColumn("at", "timestamp"), AcidColumn("ratio", "double"))
)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (NEEDED, "one of the arguments --against --since-write-id is required"),
        ((*NEEDED, "--against", "x.csv"), "give either --output FILE or --summary"),
        ((*NEEDED, "--against", "x.csv", "--summary", "--output", "y.csv"), "give either --output FILE or"),
        ((*NEEDED, "--against", "x.csv", "--summary", "--undo"), "--undo goes with --since-write-id"),
        (
            (*NEEDED, "--since-write-id", "3", "--summary", "--format", "csv"),
            "--format goes with --against FILE",
        ),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    """Status 2, and what is wrong with it."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == EXIT_USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("changes.txt", "the name must end in .csv, .json, .orc, .parquet"),
        ("no/x.csv", "its folder does not exist"),
    ],
)
def test_the_output_is_looked_at_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, message: str
) -> None:
    """Before anything is compared."""
    assert main([*NEEDED, "--against", "x.csv", "--output", str(tmp_path / name)]) == EXIT_FAILED
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["csv", "json", "orc", "parquet"])
def test_changes_are_read_as_they_were_saved(spark: SparkSession, tmp_path: Path, file_format: str) -> None:
    """No digit, blank, line end or empty text is lost; one file, sorted, and no other left beside it."""
    row_id = "ROW__ID struct<transactionid:bigint,bucketid:int,rowid:bigint,partition:string>"
    schema = (
        f"operation string, {row_id}, id int, msg string, price decimal(6,2), day date, at timestamp_ntz, "
        "ratio double, ds string"
    )
    day, at = datetime.date(1500, 2, 28), datetime.datetime(1969, 12, 31, 23, 59, 59, 123456)
    rows = [
        ("delete", (7, 1, 3, "ds= x"), 1, "", Decimal("-0.10"), day, at, 0.1, " x"),
        ("insert", None, 1, ' a "b", \\c\r\nd ', None, None, None, float("inf"), "y"),
        ("update", (2**40, 0, 0, "ds=y"), 2, None, Decimal("9999.99"), day, at, -1e300, "y"),
    ]
    path = tmp_path / f"changes.{file_format}"
    path.write_text("an older file")
    changes = spark.createDataFrame(rows[::-1], schema)
    save(changes, Location.given(path), file_format, ["id", "operation"])
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    found = (
        read_changes(spark, TYPED, Location.given(path), file_format, "operation")
        .select(*changes.columns)
        .collect()
    )
    assert [tuple(row) for row in found] == rows
