"""Files of changes: read strictly with the table's types, never as a silent NULL; saved without a loss.

Both engines read the same files.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sf
import pytest
from pyspark.sql import SparkSession

from mutation_api.acid.version import AcidVersion
from mutation_api.changes.files.arrow_files import ArrowFiles
from mutation_api.changes.files.change_files import read_changes, save_changes
from mutation_api.changes.files.file_rules import RowColumns
from mutation_api.errors import ConfigurationError, MutationError, RecordLayoutError, RecordValueError
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable

TABLE = AcidTable(
    database="default",
    name="t",
    location=Location.parse("file:/warehouse/t"),
    columns=(
        AcidColumn("id", "int"),
        AcidColumn("msg", "string"),
        AcidColumn("price", "decimal(6,2)"),
        AcidColumn("day", "date"),
    ),
    partition_keys=(AcidColumn("ds", "string"),),
    num_buckets=4,
    bucket_columns=("id",),
    version=AcidVersion.V1_LEGACY,
    txn_id=7,
)
TYPED = dataclasses.replace(
    TABLE, columns=(*TABLE.columns, AcidColumn("at", "timestamp"), AcidColumn("ratio", "double"))
)
HEAD = "operation,ROW__ID.transactionid,ROW__ID.bucketid,ROW__ID.rowid,ID,msg,price,day,ds\n"


Rows = list[dict[str, Any]]
Read = Callable[..., Rows]
"""Reads the changes of a file with this text: path, text, format (CSV by default), table."""


def rows_by_spark(spark: SparkSession, path: Path, file_format: str | None, table: AcidTable) -> Rows:
    """The changes in a file, as Spark reads them."""
    rows = read_changes(spark, table, Location.given(path), file_format, "operation").collect()
    return [row.asDict(recursive=True) for row in rows]


def rows_by_local(path: Path, file_format: str | None, table: AcidTable) -> Rows:
    """The changes in a file, as the local engine reads them."""
    files = ArrowFiles(RowColumns(table, {"operation": "string"}, has_row_ids=True))
    found: Rows = files.read(Location.given(path), file_format).read_all().to_pylist()
    return found


@pytest.fixture(params=[pytest.param("spark", marks=pytest.mark.slow), "local"])
def engine(request: pytest.FixtureRequest) -> str:
    """Both engines."""
    return str(request.param)


@pytest.fixture
def read(engine: str, request: pytest.FixtureRequest) -> Read:
    """Reads by each engine."""

    def rows(path: Path, text: str, file_format: str = "csv", table: AcidTable = TABLE) -> Rows:
        path.write_text(text, encoding="utf-8", newline="")
        if engine == "local":
            return rows_by_local(path, file_format, table)
        return rows_by_spark(request.getfixturevalue("spark"), path, file_format, table)

    return rows


def test_csv_is_typed_and_tells_null_from_empty(read: Read, tmp_path: Path) -> None:
    """Types are the table's; an empty field is NULL, a quoted empty one is not; ROW__ID is a struct."""
    text = HEAD + 'insert,,,,1,"",1.50,2024-02-29,x\nupdate,5,1,7,2,,,,"a ""b"", c"\n'
    insert, update = read(tmp_path / "c.csv", text)
    assert insert == {
        "operation": "insert",
        "ROW__ID": None,
        "ID": 1,
        "msg": "",
        "price": Decimal("1.50"),
        "day": datetime.date(2024, 2, 29),
        "ds": "x",
    }
    assert update["ROW__ID"] == {"transactionid": 5, "bucketid": 1, "rowid": 7}
    assert (update["msg"], update["price"], update["day"], update["ds"]) == (None, None, None, 'a "b", c')


def test_row_ids_have_the_names_of_the_table(read: Read, tmp_path: Path) -> None:
    """A table with write ids calls the first field writeid; with the other name it is no column of it."""
    table = dataclasses.replace(TABLE, version=AcidVersion.V2_HIVE4, write_id=7)
    head = HEAD.replace("transactionid", "writeid")
    (row,) = read(tmp_path / "c.csv", head + "delete,5,536936448,7,2,,,,x\n", table=table)
    assert row["ROW__ID"] == {"writeid": 5, "bucketid": 536936448, "rowid": 7}
    text = '{"operation": "delete", "ROW__ID": {"writeid": 5, "bucketid": 1, "rowid": 7}}\n'
    (row,) = read(tmp_path / "c.json", text, "json", table)
    assert row["ROW__ID"] == {"writeid": 5, "bucketid": 1, "rowid": 7, "partition": None}
    with pytest.raises(RecordLayoutError, match=r"no columns ROW__ID\.transactionid"):
        read(tmp_path / "c.csv", HEAD + "delete,5,1,7,2,,,,x\n", table=table)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("insert,,,,x1,m,1,2024-01-01,x", "column ID .int. has 'x1' in row"),
        ("insert,,,,99999999999,m,1,2024-01-01,x", "column ID .int. has '99999999999'"),
        ("insert,,,,1,m,123456.7,2024-01-01,x", "column price .* has '123456.7'"),
        ("insert,,,,1,m,1,2024-02-30,x", "column day .date. has '2024-02-30'"),
        ("delete,abc,0,0,1,m,1,2024-01-01,x", "column ROW__ID.transactionid .bigint. has 'abc'"),
    ],
)
def test_csv_values_that_do_not_fit_are_refused(read: Read, tmp_path: Path, line: str, message: str) -> None:
    """A text that is no value of its column's type is an error with column, value and row."""
    with pytest.raises(RecordValueError, match=message):
        read(tmp_path / "c.csv", HEAD + "insert,,,,1,ok,1,2024-01-01,x\n" + line + "\n")


def test_unknown_columns_are_refused(read: Read, tmp_path: Path) -> None:
    """A column that the table does not have is never dropped, neither in CSV nor in JSON."""
    with pytest.raises(RecordLayoutError, match="no columns colour"):
        read(tmp_path / "c.csv", "operation,id,colour\ninsert,1,red\n")
    with pytest.raises(RecordLayoutError, match="no columns colour"):
        read(tmp_path / "c.json", '{"operation": "insert", "id": 1, "colour": "red"}\n', "json")


def test_json_is_typed(read: Read, tmp_path: Path) -> None:
    """JSON is read with the table's types and a struct ROW__ID."""
    text = (
        '{"operation": "delete", "ROW__ID": {"transactionid": 5, "bucketid": 1, "rowid": 7}, '
        '"id": 2, "price": 1.25, "day": "2024-02-29"}\n'
    )
    (row,) = read(tmp_path / "c.json", text, "json")
    assert row["ROW__ID"] == {"transactionid": 5, "bucketid": 1, "rowid": 7, "partition": None}
    assert (row["price"], row["day"]) == (Decimal("1.25"), datetime.date(2024, 2, 29))


@pytest.mark.parametrize("value", ['"x"', "1.5", "99999999999"])
def test_json_values_that_do_not_fit_are_refused(read: Read, tmp_path: Path, value: str) -> None:
    """A JSON value of the wrong type stops the reading; it never becomes NULL."""
    with pytest.raises((MutationError, Exception), match=r"(?i)malformed|cannot parse|fit"):
        read(tmp_path / "c.json", f'{{"operation": "insert", "id": {value}}}\n', "json")


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
    save_changes(changes, Location.given(path), file_format, order=["id", "operation"])
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert _values(rows_by_spark(spark, path, None, TYPED), changes.columns) == rows
    if file_format != "orc":
        assert _values(rows_by_local(path, None, TYPED), changes.columns) == rows
        return
    with pytest.raises(
        ConfigurationError, match=r"column day has dates before 1582-10-15, and the file does"
    ):
        rows_by_local(path, None, TYPED)
    later = changes.withColumn("day", sf.make_date(sf.lit(1600), sf.lit(2), sf.lit(29)))
    save_changes(later, Location.given(path), file_format, order=["id", "operation"])
    (*_, last) = _values(rows_by_local(path, None, TYPED), changes.columns)
    assert last == (*rows[-1][:5], datetime.date(1600, 2, 29), *rows[-1][6:])


def _values(rows: Rows, names: list[str]) -> list[tuple[Any, ...]]:
    """The rows as tuples, ROW__ID too."""
    values = ([row[name] for name in names] for row in rows)
    return [tuple(tuple(v.values()) if isinstance(v, dict) else v for v in row) for row in values]


@pytest.mark.slow
def test_what_cannot_be_saved_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """A format that the name does not tell; a link is kept, and what it leads to replaced."""
    changes = spark.createDataFrame(
        [("insert", None, 1)], "operation string, ROW__ID struct<writeid:int>, id int"
    )
    with pytest.raises(ConfigurationError, match=r"x\.txt: name the format with format_name"):
        save_changes(changes, Location.given(tmp_path / "x.txt"), order=["id"])
    (tmp_path / "target.csv").write_text("older")
    (tmp_path / "link.csv").symlink_to(tmp_path / "target.csv")
    save_changes(changes, Location.given(tmp_path / "link.csv"), order=["id"])
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "target.csv").read_text() == "operation,ROW__ID.writeid,id\ninsert,,1\n"
