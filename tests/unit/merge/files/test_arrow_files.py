"""What only the local engine's reader does: it refuses what Spark might read otherwise."""

from __future__ import annotations

import bz2
import dataclasses
import datetime
import gzip
import io
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from mutation_api.errors import ConfigurationError, MutationError, RecordLayoutError, RecordValueError
from mutation_api.merge import csv_files
from mutation_api.merge.arrow_change_files import ArrowFiles
from mutation_api.merge.csv_files import StrictCsv
from mutation_api.merge.file_rules import RowColumns
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn
from tests.unit.merge.files.test_change_files import TABLE, TYPED

FILES = ArrowFiles(RowColumns(TYPED, {"operation": "string"}, has_row_ids=True))


def rows(path: Path, content: bytes | str, files: ArrowFiles = FILES, name: str | None = None) -> Any:
    """The rows of a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return files.read(Location.given(path), name).read_all().to_pylist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('id,msg\n1,5" pipe\n', r"byte 11: a quote in a field that does not begin with a quote"),
        ('id,msg\n1,"a"b\n', r"byte 13: characters after the closing quote of a field"),
        ('id,msg\n1,"a\n', r"a quoted field has no closing quote"),
        ("id,msg\r1,a\r", r"a carriage return that is not followed by a line feed"),
        ("id,msg\n1,\0\n", r"byte 10: a byte 0 or 1, which is not text"),
        ("id,msg\n1\n", r"Expected 2 columns, got 1"),
        (b"id,msg\n" + b"1,a\n" * 9000 + b"1,\xff\n", r"invalid UTF8"),
        (b"id,m\xffg\n1,2\n", r"can't decode byte 0xff"),
        ("id,msg,Msg\n1,2,3\n", r"its header has duplicate columns \(ignoring case\): Msg, msg"),
        ("id,,msg\n1,2,3\n", r"its header has an empty name; found id, , msg"),
        ("id\n 1\n", r"column id \(int\) has ' 1' in row"),
        ("price\n1.005\n", r"column price \(decimal\(6,2\)\) has '1.005' in row"),
        ("at\n2024-01-01 00:00:00+01:00\n", r"column at \(timestamp_ntz\) has '2024-01-01 00:00:00\+01:00'"),
    ],
)
def test_csv_that_has_no_certain_meaning(tmp_path: Path, text: bytes | str, message: str) -> None:
    """Each is an error that names the file, and the place or the row."""
    with pytest.raises(MutationError, match=message) as caught:
        rows(tmp_path / "c.csv", text)
    assert str(tmp_path / "c.csv") in str(caught.value)


def test_csv_that_has(tmp_path: Path) -> None:
    """A byte order mark, empty lines, line ends and quotes in quotes; nothing at all."""
    text = '\ufeffID,msg\r\n\r\n1,"a\r\nb"\r\n"2",""\r\n3,\r\n"4","""c"""'
    assert rows(tmp_path / "c.csv", text) == [
        {"ID": 1, "msg": "a\r\nb"},
        {"ID": 2, "msg": ""},
        {"ID": 3, "msg": None},
        {"ID": 4, "msg": '"c"'},
    ]
    assert rows(tmp_path / "c.csv", "") == rows(tmp_path / "c.csv", "id,msg\n") == []


def test_the_line_of_a_value_that_does_not_fit(tmp_path: Path) -> None:
    """Where the row begins, as an editor counts: empty lines, line ends within fields, packed files."""
    good = '\ufeffid,msg,price\r\n\r\n1,"a\r\nb\n",1.00\r\n\n2,,\n'
    text = good + '3,"c\nd",1.005\n4,,1e\nx,,"2"\n5,,0.001\n'
    lines = text.replace("\r\n", "\n").split("\n")
    of_price, of_id = (number for number, line in enumerate(lines, 1) if line[:2] in ("3,", "x,"))
    decimal = "it is not a number of at most 4 digits before and 2 after the point"
    for name, data in (("c.csv", text.encode()), ("c.csv.gz", gzip.compress(text.encode()))):
        with pytest.raises(RecordValueError) as caught:
            rows(tmp_path / name, data, name="csv")
        assert str(caught.value).partition("invalid values: ")[2] == (
            f"column price (decimal(6,2)) has '1.005' in row ('3', 'c\\nd', '1.005'), "
            f"line {of_price}: {decimal}; column id (int) has 'x' in row ('x', None, '2'), "
            f"line {of_id}: it is not a whole number from -2147483648 to 2147483647"
        )


def test_lines_are_counted_over_all_blocks_but_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of a later block has the line, too; without it the row is named as ever."""
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 1000)
    text = "id,msg\n" + '1,"a\nb"\n' * 5000 + "one,c\n"
    with pytest.raises(
        RecordValueError, match=r"'one' in row \('one', 'c'\), line 10,002: it is not a whole"
    ):
        rows(tmp_path / "c.csv", text)
    monkeypatch.setattr(csv_files, "_COUNTED_ROWS", 5000)
    with pytest.raises(RecordValueError, match=r"'one' in row \('one', 'c'\): it is not a whole"):
        rows(tmp_path / "c.csv", text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "1"}', r'column id \(int\) has "1" in row \{"id": "1"\}$'),
        ('{"price": 1.005}', r"column price .* in row \{.*\}: '1\.005' is not a number of at most 4 digits"),
        ('{"day": "2024-02-30"}', r"column day .* in row \{.*\}: '2024-02-30' is not a date such as"),
    ],
)
def test_why_a_value_of_json_does_not_fit(tmp_path: Path, text: str, message: str) -> None:
    """A text is told as such; the type of another value shows in what JSON has."""
    with pytest.raises(RecordValueError, match=message):
        rows(tmp_path / "c.json", text + "\n")


@pytest.mark.thorough
def test_quotes_are_checked_wherever_blocks_end() -> None:
    """The verdict does not depend on how many bytes are read at once."""
    chance = random.Random(7)
    for _ in range(2000):
        content = bytes(chance.choice(b'a",\r\n') for _ in range(chance.randrange(13)))
        verdicts = {_verdict(content, size) for size in (1, 2, 3, 100)}
        assert len(verdicts) == 1, content


def _verdict(content: bytes, size: int) -> bytes | None:
    source, found = StrictCsv(io.BufferedReader(io.BytesIO(content)), "it"), b""
    try:
        while data := source.read(size):
            found += data
    except ConfigurationError:
        return None
    assert found == content
    return found


def test_a_folder_of_files(tmp_path: Path) -> None:
    """By name, without hidden files; headers may differ in case only; folders in it are Spark's."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "_SUCCESS").write_text("")
    (folder / "b.csv.gz").write_bytes(gzip.compress(b"MSG,ID\nb,2\n"))
    (folder / "a.csv").write_text("msg,id\na,1\n")
    found = FILES.read(Location.given(folder), "csv").read_all()
    assert found.to_pylist() == [{"msg": "a", "id": 1}, {"msg": "b", "id": 2}]
    (folder / "c.csv.bz2").write_bytes(bz2.compress(b"id,msg\n3,c\n"))
    with pytest.raises(
        ConfigurationError, match=r"the header of .*c\.csv\.bz2 is id, msg, but that of .*a\.csv is"
    ):
        FILES.read(Location.given(folder), "csv")
    (folder / "ds=x").mkdir()
    with pytest.raises(ConfigurationError, match=r"contains directories \(.*ds=x\), which only Spark reads"):
        FILES.read(Location.given(folder), "csv")
    with pytest.raises(ConfigurationError, match=r"file not found: .*nowhere\.csv"):
        FILES.read(Location.given(tmp_path / "nowhere.csv"))
    with pytest.raises(
        ConfigurationError, match=r"only \.gz, \.bz2, \.zst can be decompressed without Spark"
    ):
        rows(tmp_path / "x.lz4", "", name="csv")


def test_several_files_are_one_source(tmp_path: Path) -> None:
    """By name, whatever the order and the format; columns that the table does not have are text."""
    files = ArrowFiles(RowColumns(TABLE, keeps_unknown=True))
    folder = Location.given(tmp_path)
    (tmp_path / "a.csv").write_text("op,id,price\nU,1,1.50\n,2,\n")
    (tmp_path / "b.json").write_text('{"price": 2.25, "id": 3, "OP": 7}\n')
    found = files.read_all([folder / "a.csv", folder / "b.json"]).read_all()
    assert found.to_pylist() == [
        {"op": "U", "id": 1, "price": Decimal("1.50")},
        {"op": None, "id": 2, "price": None},
        {"op": "7", "id": 3, "price": Decimal("2.25")},
    ]
    (tmp_path / "c.csv").write_text("op,id\nU,1\n")
    with pytest.raises(RecordLayoutError, match=r"c\.csv has the columns op string, id int32, .*a\.csv has"):
        files.read_all([folder / "a.csv", folder / "c.csv"])
    with pytest.raises(ConfigurationError, match=r"a\.csv cannot be read as parquet"):
        files.read_all([folder / "a.csv"], "parquet")


NESTED = dataclasses.replace(
    TABLE,
    columns=(
        AcidColumn("id", "bigint"),
        AcidColumn("ok", "boolean"),
        AcidColumn("x", "double"),
        AcidColumn("y", "binary"),
        AcidColumn("a", "array<decimal(5,2)>"),
        AcidColumn("m", "map<string,date>"),
        AcidColumn("st", "struct<k:int,w:array<string>>"),
        AcidColumn("n", "map<int,string>"),
        AcidColumn("v", "varchar(3)"),
    ),
)
NESTED_FILES = ArrowFiles(RowColumns(NESTED))


def test_json_of_every_type(tmp_path: Path) -> None:
    """Lines with other columns, empty ones, nulls in every place."""
    lines = [
        '{"id": 9223372036854775807, "ok": true, "x": NaN, "y": "AP8=", "v": "long text"}',
        "",
        '{"x": 1e3}',
        '{"x": "-Infinity", "a": [1, 2.5, null, "3.25"], "m": {"k": "2020-02-29", "n": null}, "n": {}}',
        '{"x": 5, "st": {"w": [null, "z"]}, "a": [], "m": {}}',
        '{"id": null, "v": 7}',
    ]
    found = rows(tmp_path / "c.json", "\n".join(lines), NESTED_FILES)
    day = datetime.date(2020, 2, 29)
    assert [row["id"] for row in found] == [2**63 - 1, None, None, None, None]
    assert [str(row["x"]) for row in found] == ["nan", "1000.0", "-inf", "5.0", "None"]
    assert (found[0]["ok"], found[0]["y"], found[0]["v"], found[4]["v"]) == (
        True,
        b"\0\xff",
        "long text",
        "7",
    )
    assert found[2]["a"] == [Decimal("1.00"), Decimal("2.50"), None, Decimal("3.25")]
    assert (found[2]["m"], found[2]["n"]) == ([("k", day), ("n", None)], [])
    assert (found[3]["st"], found[3]["a"], found[3]["m"]) == ({"k": None, "w": [None, "z"]}, [], [])


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ({"ok": 1}, RecordValueError, r'column ok \(boolean\) has 1 in row \{"ok": 1\}'),
        ({"id": True}, RecordValueError, r"column id \(bigint\) has true"),
        ({"id": "1"}, RecordValueError, r'column id \(bigint\) has "1"'),
        ({"id": 2**63}, RecordValueError, r"column id \(bigint\) has 9223372036854775808"),
        ({"x": "1.5"}, RecordValueError, r'column x \(double\) has "1.5"'),
        ({"y": "!"}, RecordValueError, r'column y \(binary\) has "!"'),
        ({"v": 1.5}, RecordValueError, r'column v \(string\) has "1.5"'),
        ({"a": [1.005]}, RecordValueError, r"column a \(array<decimal\(5,2\)>\) has"),
        ({"a": {}}, RecordValueError, r"column a "),
        ({"m": {"k": "2020-02-30"}}, RecordValueError, r"column m "),
        ({"st": {"K": 1}}, RecordValueError, r"column st "),
        ({"n": {"1": "x"}}, RecordValueError, r"column n "),
        ({"id": 1, "ID": 2}, RecordLayoutError, r"columns differ only in case: ID, id"),
        ([{"id": 1}], ConfigurationError, r"cannot be read as json: line 2 is not an object"),
    ],
    ids=str,
)
def test_json_that_does_not_fit(tmp_path: Path, line: Any, error: type[Exception], message: str) -> None:
    """Each is an error that names the file and the place."""
    with pytest.raises(error, match=message) as caught:
        rows(tmp_path / "c.json", '{"id": 5}\n' + json.dumps(line), NESTED_FILES)
    assert str(tmp_path / "c.json") in str(caught.value)
    with pytest.raises(ConfigurationError, match="line 1: Extra data"):
        rows(tmp_path / "c.json", '{"id": 5} {"id": 6}', NESTED_FILES)
    for half in ('{"s": "\\ud800"}', '{"m": {"\\uDFff": null}}'):
        with pytest.raises(
            ConfigurationError, match=r"cannot be read as json: line 1: .*surrogates not allowed"
        ):
            rows(tmp_path / "c.json", half, NESTED_FILES)
    for doubled in ('{"id": 5, "id": 6}', '{"id": 5, "m": {"k": null, "j": null, "k": null}}'):
        with pytest.raises(ConfigurationError, match=r"line 1: names occur twice in an object: (id|k)$"):
            rows(tmp_path / "c.json", doubled, NESTED_FILES)


def test_json_is_bounded(tmp_path: Path) -> None:
    """Its rows are in memory."""
    small = ArrowFiles(RowColumns(NESTED), memory_bytes=100)
    with pytest.raises(ConfigurationError, match=r"its rows need more than 100 bytes. Use CSV or Parquet"):
        rows(tmp_path / "c.json", '{"id": 5}\n' * 100, small)


@pytest.mark.parametrize("form", ["orc", "parquet"])
def test_files_of_columns(tmp_path: Path, form: str) -> None:
    """Their own types; a folder's files must have the same; early dates of unknown calendars are refused."""
    write = pa.orc.write_table if form == "orc" else pa.parquet.write_table
    folder = tmp_path / "f"
    folder.mkdir()
    table = pa.table({"ID": pa.array([1, 2], pa.int32()), "day": [datetime.date(1582, 10, 15)] * 2})
    write(table, str(folder / "a"))
    write(table, str(folder / "b"))
    found = FILES.read(Location.given(folder), form).read_all()
    assert found.to_pylist() == table.to_pylist() * 2
    early = pa.table({"st": [[{"d": datetime.date(1582, 10, 14)}]]})
    if form == "parquet":
        early = early.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    write(early, str(tmp_path / f"early.{form}"))
    with pytest.raises(ConfigurationError, match="column st has dates before 1582-10-15"):
        FILES.read(Location.given(tmp_path / f"early.{form}")).read_all()
    write(early, str(folder / "c"))
    with pytest.raises(ConfigurationError, match=r"the columns or types of .*f/c differ from those of .*f/a"):
        FILES.read(Location.given(folder), form)
    with pytest.raises(ConfigurationError, match=f"cannot be read as {form}"):
        rows(tmp_path / f"x.{form}", b"not a file of columns, though long enough")


def test_int96_is_refused(tmp_path: Path) -> None:
    """Spark takes it for an instant, pyarrow for a wall clock."""
    table = pa.table({"at": pa.array([0], pa.timestamp("us"))})
    pa.parquet.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(ConfigurationError, match=r"INT96 columns are ambiguous \(at\): writers disagree"):
        FILES.read(Location.given(tmp_path / "x.parquet"))
