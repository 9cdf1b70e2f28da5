"""Rows that were exported with ROW__ID, edited and applied again: only the edited column changes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from judges.hive.judge import HiveJudge
from mutation_api.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COLUMNS = {
    "b": ("boolean", ["true", "false"]),
    "t": ("tinyint", ["cast(-128 as tinyint)", "cast(7 as tinyint)"]),
    "l": ("bigint", ["9007199254740993L", "-9223372036854775807L"]),
    "f": ("float", ["cast(0.1 as float)", "cast(1.5e-40 as float)"]),
    "d": ("double", ["0.1D", "cast('NaN' as double)"]),
    "m": (
        "decimal(20,3)",
        ["cast('12345678901234567.125' as decimal(20,3))", "cast('-0.001' as decimal(20,3))"],
    ),
    "s": ("string", ["'é \"quoted\" \\\\ ,x'", "''"]),
    "c": ("char(5)", ["cast('ab' as char(5))", "cast('' as char(5))"]),
    "v": ("varchar(5)", ["cast('ab ' as varchar(5))", "cast('x' as varchar(5))"]),
    "y": ("date", ["date '1969-12-31'", "date '9999-12-31'"]),
    "z": ("timestamp", ["timestamp '1950-01-02 03:04:05.678901'", "timestamp '2024-02-29 23:59:59'"]),
    "x": ("binary", ["unhex('69B71D')", "unhex('ABCD00FF')"]),
    "a": ("array<int>", ["array(1, cast(null as int))", "array(7)"]),
    "o": ("map<string,bigint>", ["map('k', 5L, 'é', 6L)", "map('z', 9007199254740993L)"]),
    "k": ("map<int,string>", ["map(1, 'x', -2, '')", "map(7, cast(null as string))"]),
    "n": (
        "array<map<string,binary>>",
        ["array(map('a', unhex('69B71D')))", "array(map('b,\"', unhex('00')), map('', unhex('')))"],
    ),
    "r": (
        "struct<p:int,q:string>",
        ["named_struct('p', 1, 'q', 'w')", "named_struct('p', cast(null as int), 'q', '')"],
    ),
}
"""Name -> Hive type, and the values of two rows in Hive's SQL; a third row has NULLs."""


@pytest.mark.parametrize(
    ("form", "engine"),
    [
        ("json", "local"),
        ("csv", "local"),
        ("parquet", "local"),
        ("orc", "local"),  # Spark reads no fractions of seconds before 1970 that pyarrow wrote
        pytest.param("json", "spark", marks=pytest.mark.long),
        pytest.param("csv", "spark", marks=pytest.mark.long),
        pytest.param("parquet", "spark", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_only_the_edited_column_changes(
    hive_line: HiveJudge, line_database: str, tmp_path: Path, form: str, engine: str
) -> None:
    """Every type of column, as Hive reads it before and after."""
    name = f"{line_database}.t"
    _fill(hive_line, name)
    before = hive_line.sql(f"select * from {name} order by id")
    file = tmp_path / f"rows.{form}"
    server = ["--metastore", hive_line.uri]
    assert main(["read", name, *server, "--row-ids", "--output", str(file)]) == 0
    _edit(file, form)
    assert main(["apply", name, str(file), *server, "--engine", engine]) == 0
    after = hive_line.sql(f"select * from {name} order by id")
    assert after == [[row[0], "new", *row[2:]] for row in before]


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "orc"])
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_an_export_does_not_differ_from_its_table(
    hive_line: HiveJudge,
    line_database: str,
    tmp_path: Path,
    form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, file = f"{line_database}.e", str(tmp_path / f"rows.{form}")
    _fill(hive_line, name, "date '0001-01-02'")
    server = ["--metastore", hive_line.uri]
    assert main(["read", name, *server, "--output", file]) == 0
    capsys.readouterr()
    against = ["--against", file, "--key", "id", "--summary", "--json", "--engine", "local"]
    assert main(["diff", "--table", name, *against, *server]) == 0
    counts = [each for each in json.loads(capsys.readouterr().out).values() if isinstance(each, int)]
    assert counts and not any(counts)


@pytest.mark.parametrize(
    ("form", "engine"),
    [
        ("json", "local"),
        ("csv", "local"),
        pytest.param("json", "spark", marks=pytest.mark.long),
        pytest.param("csv", "spark", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_saved_differences_hold_every_type(
    hive_line: HiveJudge, line_database: str, tmp_path: Path, form: str, engine: str
) -> None:
    """Rows that another table has are written to a file and applied: Hive reads the same values."""
    full, empty = f"{line_database}.filled", f"{line_database}.bare"
    _fill(hive_line, full)
    hive_line.sql(f"create table {empty} like {full} tblproperties ('transactional'='true')")
    file, server = str(tmp_path / f"changes.{form}"), ["--metastore", hive_line.uri]
    against = ["--against", full, "--key", "id", "--output", file, "--engine", engine]
    assert main(["diff", "--table", empty, *against, *server]) == 0
    assert main(["apply", empty, file, *server, "--engine", engine]) == 0
    select = "select * from {} order by id"
    assert hive_line.sql(select.format(empty)) == hive_line.sql(select.format(full))


def _fill(hive_line: HiveJudge, name: str, day: str = COLUMNS["y"][1][0]) -> None:
    """Make the table, with two rows and one of NULLs; ``day`` is the first row's in column y."""
    declared = ", ".join(f"{column} {kind}" for column, (kind, _) in COLUMNS.items())
    hive_line.sql(
        f"create table {name} (id int, note string, {declared}) stored as orc "
        "tblproperties ('transactional'='true')"
    )
    for row in range(2):
        given = {column: values[row] for column, (_, values) in COLUMNS.items()}
        values = ", ".join((given | {"y": given["y"] if row else day}).values())
        hive_line.sql(f"insert into {name} select {row}, 'old', {values}")
    hive_line.sql(f"insert into {name} (id, note) select 2, 'old'")


def _edit(file: Path, form: str) -> None:
    """Give each row another note, and say that it is an update."""
    if form in ("parquet", "orc"):
        read, write = (
            (pq.read_table, pq.write_table) if form == "parquet" else (orc.read_table, orc.write_table)
        )
        rows = read(file)
        rows = rows.set_column(rows.schema.get_field_index("note"), "note", pa.array(["new"] * len(rows)))
        write(rows.append_column("operation", pa.array(["update"] * len(rows))), file)
    elif form == "csv":
        first, *lines = file.read_text(encoding="utf-8").splitlines()
        edited = [f"{first},operation", *(f"{line},update".replace("old", "new") for line in lines)]
        file.write_text("\n".join(edited) + "\n", encoding="utf-8")
    else:
        objects = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        changed = [json.dumps({**each, "note": "new", "operation": "update"}) for each in objects]
        file.write_text("\n".join(changed), encoding="utf-8")
