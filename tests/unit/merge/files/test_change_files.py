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

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mutation_api.errors import (
    ClientError,
    ConfigurationError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
    UnsupportedLocallyError,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.merge.arrow_change_files import ArrowFiles, save_arrow_changes
from mutation_api.merge.file_rules import RowColumns
from mutation_api.merge.row_files import read_changes, save_changes
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


@pytest.mark.long
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
    with pytest.raises(RecordLayoutError, match=r"not have the columns ROW__ID\.transactionid"):
        read(tmp_path / "c.csv", HEAD + "delete,5,1,7,2,,,,x\n", table=table)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("insert,,,,x1,m,1,2024-01-01,x", "column ID .int. has 'x1' in row .*: it is not a whole number"),
        ("insert,,,,99999999999,m,1,2024-01-01,x", "has '99999999999'.*: it .* to 2147483647$"),
        (
            "insert,,,,1,m,123456.7,2024-01-01,x",
            "column price .* has '123456.7'.*: it .* at most 4 digits before",
        ),
        ("insert,,,,1,m,1,2024-02-30,x", "column day .date. has '2024-02-30'.*: it is not a date such as"),
        ("delete,abc,0,0,1,m,1,2024-01-01,x", "column ROW__ID.transactionid .bigint. has 'abc'"),
    ],
)
def test_csv_values_that_do_not_fit_are_refused(read: Read, tmp_path: Path, line: str, message: str) -> None:
    """A text that is no value of its column's type is an error with column, value and row."""
    with pytest.raises(RecordValueError, match=message):
        read(tmp_path / "c.csv", HEAD + "insert,,,,1,ok,1,2024-01-01,x\n" + line + "\n")


def test_unknown_columns_are_refused(read: Read, tmp_path: Path) -> None:
    """A column that the table does not have is never dropped, neither in CSV nor in JSON."""
    with pytest.raises(RecordLayoutError, match="not have the columns colour"):
        read(tmp_path / "c.csv", "operation,id,colour\ninsert,1,red\n")
    with pytest.raises(RecordLayoutError, match="not have the columns colour"):
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


@pytest.mark.long
@pytest.mark.parametrize("value", ['"x"', "1.5", "99999999999"])
def test_json_values_that_do_not_fit_are_refused(read: Read, tmp_path: Path, value: str) -> None:
    """A JSON value of the wrong type stops the reading; it never becomes NULL."""
    with pytest.raises((MutationError, Exception), match=r"(?i)malformed|cannot parse|invalid values"):
        read(tmp_path / "c.json", f'{{"operation": "insert", "id": {value}}}\n', "json")


DAY, AT = datetime.date(1500, 2, 28), datetime.datetime(1969, 12, 31, 23, 59, 59, 123456)
CHANGES = [
    ("delete", (7, 1, 3, "ds= x"), 1, "", Decimal("-0.10"), DAY, AT, 0.1, " x"),
    ("insert", None, 1, ' a "b", \\c\r\nd ', None, None, None, float("inf"), "y"),
    ("insert", None, 1, "x\ny\rz", Decimal("0.00"), DAY, AT.replace(year=1), -float("inf"), "\t"),
    ("update", (2**40, 0, 0, "ds=y"), 2, None, Decimal("9999.99"), DAY, AT, -1e300, "y"),
    ("update", (2**40, 0, 1, "ds=y"), 3, "NULL", None, DAY, AT.replace(microsecond=0), -0.0, "\\"),
]
"""Sorted by id and operation."""
SCHEMA = (
    "operation string, ROW__ID struct<transactionid:bigint,bucketid:int,rowid:bigint,partition:string>, "
    "id int, msg string, price decimal(6,2), day date, at timestamp_ntz, ratio double, ds string"
)


def changes_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    """The rows as a change set."""
    names = ("transactionid", "bucketid", "rowid", "partition")
    row_ids = [None if row[1] is None else dict(zip(names, row[1], strict=True)) for row in rows]
    kinds = {"operation": pa.string(), "id": pa.int32(), "msg": pa.string(), "price": pa.decimal128(6, 2)}
    kinds |= {"day": pa.date32(), "at": pa.timestamp("us"), "ratio": pa.float64(), "ds": pa.string()}
    columns = dict(zip(kinds, zip(*(row[:1] + row[2:] for row in rows), strict=True), strict=True))
    row_id = pa.struct(
        [(n, k) for n, k in zip(names, (pa.int64(), pa.int32(), pa.int64(), pa.string()), strict=True)]
    )
    made = pa.table({name: pa.array(columns[name], kind) for name, kind in kinds.items()})
    return made.add_column(1, "ROW__ID", pa.array(row_ids, row_id))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["csv", "json", "orc", "parquet"])
def test_changes_are_read_as_they_were_saved(
    spark: SparkSession, engine: str, tmp_path: Path, file_format: str
) -> None:
    """No digit, blank, line end or empty text is lost; one file, sorted, and no other left beside it."""
    path = tmp_path / f"changes.{file_format}"
    path.write_text("an older file")
    changes = changes_of(CHANGES)
    if engine == "spark":
        frame = spark.createDataFrame(changes.take(list(range(len(CHANGES)))[::-1]), SCHEMA)
        save_changes(frame, Location.given(path), file_format, order=["id", "operation", "day"])
    else:
        save_arrow_changes(changes, Location.given(path), file_format)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert repr(_values(rows_by_spark(spark, path, None, TYPED), changes.column_names)) == repr(CHANGES)
    if file_format == "orc" and engine == "spark":
        message = r"column day has dates before 1582-10-15, and the file does"
        with pytest.raises(ConfigurationError, match=message):
            rows_by_local(path, None, TYPED)
        return
    assert repr(_values(rows_by_local(path, None, TYPED), changes.column_names)) == repr(CHANGES)


NESTED = dataclasses.replace(
    TABLE,
    columns=(
        AcidColumn("id", "int"),
        AcidColumn("content", "binary"),
        AcidColumn("tags", "array<string>"),
        AcidColumn("by_day", "map<date,decimal(6,2)>"),
        AcidColumn("place", "struct<name:string,at:timestamp,parts:map<string,binary>>"),
    ),
)
NESTED_ROWS = pa.table(
    {
        "operation": ["insert", "insert"],
        "ROW__ID": pa.nulls(2, pa.struct([("transactionid", pa.int64()), ("bucketid", pa.int32())])),
        "id": pa.array([1, 2], pa.int32()),
        "content": pa.array([b"\x00\xff", None], pa.binary()),
        "tags": pa.array([['a, "b"\n', "", None], []], pa.list_(pa.string())),
        "by_day": pa.array([[(DAY, Decimal("1.50"))], None], pa.map_(pa.date32(), pa.decimal128(6, 2))),
        "place": pa.array(
            [{"name": "x", "at": AT, "parts": [("k", b"\x01")]}, {"name": None, "at": None, "parts": None}],
            pa.struct(
                [
                    ("name", pa.string()),
                    ("at", pa.timestamp("us")),
                    ("parts", pa.map_(pa.string(), pa.binary())),
                ]
            ),
        ),
        "ds": ["x", "y"],
    }
)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_nested_and_binary_values_are_read_as_they_were_saved(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    """Each engine saves the same file, of which both read the same values."""
    files = [tmp_path / f"{engine}.{file_format}" for engine in ("spark", "local")]
    kinds = (f"{column.name} {column.type}" for column in (*NESTED.columns, *NESTED.partition_keys))
    ddl = f"operation string, ROW__ID struct<transactionid:bigint,bucketid:int>, {', '.join(kinds)}"
    frame = spark.createDataFrame(NESTED_ROWS, ddl.replace("timestamp", "timestamp_ntz"))
    save_changes(frame, Location.given(files[0]), order=["id"])
    save_arrow_changes(NESTED_ROWS, Location.given(files[1]))
    expected = [
        {**row, "by_day": row["by_day"] and dict(row["by_day"]), "place": _with_dict(row["place"], "parts")}
        for row in NESTED_ROWS.to_pylist()
    ]
    for file in files:
        found = rows_by_spark(spark, file, None, NESTED)
        assert [{name: row[name] for name in expected[0]} for row in found] == expected
        local = rows_by_local(file, None, NESTED)
        assert [{name: row[name] for name in NESTED_ROWS.column_names} for row in local] == [
            {**row, "ROW__ID": None} for row in NESTED_ROWS.to_pylist()
        ]


def _with_dict(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {**value, name: value[name] and dict(value[name])}


@pytest.mark.slow
def test_orc_files_of_spark_are_read_without_it(spark: SparkSession, tmp_path: Path) -> None:
    """If their dates are those of every calendar."""
    path = tmp_path / "changes.orc"
    later = [(*row[:5], datetime.date(1600, 2, 29), AT, *row[7:]) for row in CHANGES]
    frame = spark.createDataFrame(changes_of(later), SCHEMA)
    save_changes(frame, Location.given(path), order=["id", "operation", "msg"])
    found = _values(rows_by_local(path, None, TYPED), frame.columns)
    assert sorted(map(repr, found)) == sorted(map(repr, later))


def test_what_the_local_engine_saves_in_no_file(tmp_path: Path) -> None:
    """Values that a format does not hold for both engines; an older file stays as it is."""
    clocks = pa.table({"a": pa.array([[AT]], pa.list_(pa.timestamp("us")))})
    texts = pa.table({"t": ["a\x01"]})
    for made, suffix, message in (
        (clocks, "orc", r"column 'a', list<.*>: ORC cannot hold nested timestamps"),
        (texts, "csv", r"column 't' has a string with a character 0 or 1"),
    ):
        path = tmp_path / f"x.{suffix}"
        path.write_text("older")
        with pytest.raises(UnsupportedLocallyError, match=message):
            save_arrow_changes(made, Location.given(path))
        assert path.read_text() == "older"
    with pytest.raises(ClientError, match="cannot write the file"):
        save_arrow_changes(texts, Location.given(tmp_path / "none" / "x.json"))


def test_saved_csv_is_plain(tmp_path: Path) -> None:
    """Quotes only where they are needed; a link is kept, and what it leads to replaced."""
    (tmp_path / "target.csv").write_text("older")
    (tmp_path / "link.csv").symlink_to(tmp_path / "target.csv")
    save_arrow_changes(changes_of(CHANGES[:1]), Location.given(tmp_path / "link.csv"))
    assert (tmp_path / "link.csv").is_symlink()
    fields = [f"ROW__ID.{name}" for name in ("transactionid", "bucketid", "rowid", "partition")]
    assert (tmp_path / "target.csv").read_text().splitlines() == [
        f"operation,{','.join(fields)},id,msg,price,day,at,ratio,ds",
        'delete,7,1,3,ds= x,1,"",-0.1,1500-02-28,1969-12-31T23:59:59.123456,0.1," x"',
    ]


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
