from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet
import pytest

from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from tests.support.acid_files import inserts, write_events

GOLDEN = Path(__file__).parents[2] / "golden" / "acid"
GOLDEN_V4 = GOLDEN.with_name("acid_v4")
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def golden_reads(root: Path = GOLDEN) -> Iterator[Any]:
    for about in sorted(root.glob("*/about.json")):
        content = json.loads(about.read_text())
        for read in content["reads"]:
            yield pytest.param(
                about.parent, content["columns"], read, id=f"{about.parent.name}-{read['file']}"
            )


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    assert main(["read", *arguments]) == EXIT_OK
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def as_hive_prints(value: Any, hive_type: str) -> Any:
    """Our JSON in the notation of the golden files: a blank for the T, at least one digit of a second, char
    padded, bytes in digits.
    """
    if hive_type.startswith("char(") and value is not None:
        return value.ljust(int(hive_type[5:-1]))
    if hive_type == "timestamp" and value is not None:
        return value.replace("T", " ") + ("" if "." in value else ".0")
    return _digits(value, hive_type)


def _digits(value: Any, hive_type: str) -> Any:
    """Bytes as the golden files have them: hexadecimal digits."""
    if hive_type == "binary" and value is not None:
        return base64.b64decode(value).hex()
    return value


def as_hive_4_prints(value: Any, hive_type: str) -> Any:
    """The same for those of Hive 4: seconds as they are, decimals with all digits."""
    if hive_type == "timestamp" and value is not None:
        return value.replace("T", " ")
    if hive_type.startswith("char(") and value is not None:
        return value.ljust(int(hive_type[5:-1]))
    if hive_type.startswith("decimal") and value is not None:
        scale = int(hive_type.rstrip(")").rpartition(",")[2])
        return f"{Decimal(value).quantize(Decimal(1).scaleb(-scale), context=Context(prec=38)):f}"
    return _digits(value, hive_type)


def partition_of(shown: dict[str, Any]) -> dict[str, str]:
    if "partition" not in shown:
        return {}
    return {"partition": "/".join(f"{key}={value}" for key, value in shown["partition"].items())}


@pytest.mark.thorough(1)
@pytest.mark.parametrize(("folder", "columns", "read"), list(golden_reads()))
def test_golden_directories_read_as_hive_reads_them(
    capsys: pytest.CaptureFixture[str], folder: Path, columns: str, read: dict[str, Any]
) -> None:
    """Rows, ROW__IDs and partitions equal what Hive 2.3.10's row reader gave."""
    ours = lines(
        capsys,
        *("--location", str(folder / "data"), "--schema", columns, "--valid-txns", read["valid_txns"]),
        *("--transactional-properties", read["transactional_properties"], "--row-ids", "--json"),
    )
    types = [column.rpartition(":")[2] for column in columns.split(",") if ":" in column]
    found = [
        {
            **partition_of(o),
            "rowid": list(o["ROW__ID"].values()),
            "row": [as_hive_prints(v, t) for v, t in zip(o["row"].values(), types, strict=False)],
        }
        for o in ours
    ]
    expected = [json.loads(line) for line in (folder / read["file"]).read_text().splitlines()]

    def sort_key(row: dict[str, Any]) -> Any:
        return row.get("partition", ""), row["rowid"]

    assert len(found) == read["rows"]
    assert sorted(found, key=sort_key) == sorted(expected, key=sort_key)


@pytest.mark.thorough(1)
@pytest.mark.parametrize("acid_version", ["2", "auto"])
@pytest.mark.parametrize(("folder", "columns", "read"), list(golden_reads(GOLDEN_V4)))
def test_golden_directories_of_hive_4_read_as_it_reads_them(
    capsys: pytest.CaptureFixture[str], folder: Path, columns: str, read: dict[str, Any], acid_version: str
) -> None:
    """Rows, ROW__IDs and partitions equal what both readers of Hive 4.1.0 gave.

    The files show the version, except those of insert-only tables.
    """
    insert_only = folder.name == "insert_only"
    ours = lines(
        capsys,
        *("--location", str(folder / "data"), "--schema", columns, "--acid-version", acid_version, "--json"),
        *("--valid-txns", read["valid_txns"], "--valid-write-ids", read["valid_writeids"]),
        *(["--transactional-properties", "insert_only"] if insert_only else ["--row-ids"]),
    )
    found = []
    for o in ours:
        assert insert_only or list(o["ROW__ID"]) == ["writeid", "bucketid", "rowid"]
        row_id = {} if insert_only else {"rowid": list(o["ROW__ID"].values())}
        keys = {key: value or DEFAULT_PARTITION for key, value in o.get("partition", {}).items()}
        partition = {"partition": keys} if keys else {}
        types = re.findall(r":([a-z]+(?:\([0-9,]+\))?)", columns)
        values = [as_hive_4_prints(v, t) for v, t in zip(o["row"].values(), types, strict=True)]
        found.append({**partition, **row_id, "row": values})
    expected = [json.loads(line) for line in (folder / read["file"]).read_text().splitlines()]
    assert len(found) == read["rows"]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_a_compaction_that_has_not_committed_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    """The result of transaction 7 is beside its input; both lists limit the visible rows."""
    options = ("--location", str(GOLDEN_V4 / "bucketed_minor" / "data"), "--schema", "id bigint, msg string")
    newest = lines(capsys, *options, "--json")
    assert lines(capsys, *options, "--json", "--valid-txns", "6:9223372036854775807::") == newest
    older = lines(capsys, *options, "--json", "--valid-write-ids", "d.t:2:9223372036854775807::")
    assert sorted(o["row"]["msg"] for o in older) == [
        *("row1", "row2-updated", "row3-updated", "row4", "row5", "row6", "row7", "row8")
    ]


@pytest.fixture
def partitioned(tmp_path: Path) -> Path:
    for day, id_ in (("2015-11-19", 1), ("2015-11-20", 2), ("__HIVE_DEFAULT_PARTITION__", 3)):
        path = tmp_path / "t" / f"ds={day}" / "hr=01" / "delta_0000001_0000001/bucket_00000"
        write_events(path, inserts(1, 0, 0, [(id_, f"m{id_}")]))
    return tmp_path / "t"


def test_partition_values_are_typed(capsys: pytest.CaptureFixture[str], partitioned: Path) -> None:
    """By --partition-schema; strings without; the default partition is null; ROW__ID only when asked for."""
    options = ("--location", str(partitioned), "--schema", "id bigint, msg string", "--json")
    typed = lines(capsys, *options, "--partition-schema", "ds date, hr int")
    assert typed[0] == {"partition": {"ds": "2015-11-19", "hr": 1}, "row": {"id": 1, "msg": "m1"}}
    assert typed[2]["partition"] == {"ds": None, "hr": 1}
    assert lines(capsys, *options)[0]["partition"] == {"ds": "2015-11-19", "hr": "01"}


def test_conditions_columns_and_limit_choose(capsys: pytest.CaptureFixture[str], partitioned: Path) -> None:
    """Partition values compare typed; several conditions must all hold."""
    options = ("--location", str(partitioned), "--schema", "id bigint, msg string", "--json")
    typed = (*options, "--partition-schema", "ds string, hr int")
    assert len(lines(capsys, *typed, "--where-partition", "hr=1")) == 3
    both = ("--where-partition", "hr=1", "--where-partition", "ds=2015-11-20")
    assert [o["row"] for o in lines(capsys, *typed, *both, "--columns", "MSG")] == [{"msg": "m2"}]
    assert len(lines(capsys, *typed, "--limit", "2")) == 2
    assert lines(capsys, *typed, "--limit", "0") == []
    assert main(["read", *typed, "--where-partition", "nope=1"]) == EXIT_FAILED


def test_the_default_output_is_an_aligned_table(
    capsys: pytest.CaptureFixture[str], partitioned: Path
) -> None:
    """Data columns, then partition columns; the number of rows at the end."""
    arguments = ["read", "--location", str(partitioned), "--schema", "id bigint, x int", "--row-ids"]
    assert main(arguments) == EXIT_OK
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["ROW__ID", "id", "x", "ds", "hr"]
    assert shown[1].split() == ["1,0,0", "1", "NULL", "2015-11-19", "01"]
    assert shown[0].index("ds") == shown[1].index("2015-11-19")
    assert shown[-1] == "(3 rows)"


def test_every_type_has_a_json_form(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Decimals, binary, nested values, non-finite numbers; maps with keys that are not texts are pairs."""
    row_type = pa.struct(
        [
            ("dec", pa.decimal128(10, 2)),
            ("f", pa.float32()),
            ("bin", pa.binary()),
            ("m", pa.map_(pa.string(), pa.float64())),
            ("n", pa.map_(pa.int32(), pa.decimal128(6, 3))),
            ("s", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        ]
    )
    row = {
        "dec": Decimal("1.50"),
        "f": 0.1,
        "bin": b"\x00\xff",
        "m": [("a", float("nan")), ("b", float("-inf"))],
        "n": [(1, Decimal("0.000")), (2, Decimal("120.000"))],
        "s": {"x": 1, "y": ["a", None]},
    }
    write_events(tmp_path / "delta_0000001_0000001/bucket_00000", [(0, 1, 0, 0, 1, row)], row_type)
    schema = (
        "dec DECIMAL(10, 2), F float, bin binary, m map<string,double>, n map<int,decimal(6,3)>, "
        "`S` struct<x:int,y:array<string>>"
    )
    assert lines(capsys, "--location", str(tmp_path), "--schema", schema, "--json") == [
        {
            "row": {
                "dec": "1.5",
                "f": 0.1,
                "bin": "AP8=",
                "m": {"a": "NaN", "b": "-Infinity"},
                "n": [[1, "0"], [2, "120"]],
                "s": {"x": 1, "y": ["a", None]},
            }
        }
    ]


def test_a_union_shows_its_tag(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """[tag, value]; tag is the position of the alternative."""
    union = pa.UnionArray.from_dense(
        pa.array([1, 0], pa.int8()),
        pa.array([0, 0], pa.int32()),
        [pa.array([7], pa.int32()), pa.array(["x"])],
        ["_union_0", "_union_1"],
    )
    rows = pa.StructArray.from_arrays([union], names=["u"])
    keys = ([0, 0], [1, 1], [0, 0], [0, 1], [1, 1])
    events = [pa.array(v, t) for v, t in zip(keys, KEY_TYPES, strict=True)]
    path = tmp_path / "delta_0000001_0000001/bucket_00000"
    path.parent.mkdir()
    names = ["operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row"]
    pa.orc.write_table(pa.Table.from_arrays([*events, rows], names=names), str(path))
    found = lines(capsys, "--location", str(tmp_path), "--schema", "u uniontype<int,string>", "--json")
    assert [o["row"]["u"] for o in found] == [[1, "x"], [0, 7]]


KEY_TYPES = (pa.int32(), pa.int64(), pa.int32(), pa.int64(), pa.int64())


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "orc"])
def test_a_saved_file_has_row_ids_and_partition_columns(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, partitioned: Path, suffix: str
) -> None:
    """In the form that the apply command reads back."""
    target = tmp_path / f"out.{suffix}"
    arguments = ["read", "--location", str(partitioned), "--schema", "id bigint, msg string"]
    assert main([*arguments, "--row-ids", "--output", str(target)]) == EXIT_OK
    assert capsys.readouterr().out == ""
    partition = "ds=2015-11-19/hr=01"
    plain = {"id": 1, "msg": "m1", "ds": "2015-11-19", "hr": "01"}
    row_id = {"transactionid": 1, "bucketid": 0, "rowid": 0, "partition": partition}
    if suffix == "csv":
        texts = pa.csv.ConvertOptions(column_types={"hr": pa.string(), "ds": pa.string()})
        first = pa.csv.read_csv(target, convert_options=texts).to_pylist()[0]
        assert first == {f"ROW__ID.{k}": v for k, v in row_id.items()} | plain
        return
    if suffix == "json":
        first = json.loads(target.read_text().splitlines()[0])
    else:
        reader = pa.parquet.read_table if suffix == "parquet" else pa.orc.read_table
        first = reader(str(target)).to_pylist()[0]
    assert first == {"ROW__ID": row_id, **plain}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["d.t", "--location", "/x", "--schema", "a int"],
        ["--location", "/x"],
        ["--location", "file://elsewhere/x", "--schema", "a int"],
        ["d.t", "--buckets", "3"],
        ["d.t", "--acid-version", "2"],
        ["d.t", "--valid-write-ids", "d.t:1:1::"],
        ["--location", "/x", "--schema", "a int", "--json", "--output", "o.csv"],
        ["--location", "/x", "--schema", "a int", "--limit", "-1"],
        ["--location", "/x", "--schema", "a int", "--buckets", "0"],
    ],
)
def test_wrong_usage_is_told_apart(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Exit code 2 and the usage."""
    with pytest.raises(SystemExit) as caught:
        main(["read", *arguments])
    assert caught.value.code == EXIT_USAGE
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schema", "id"], "is not a column name followed by its type"),
        (["--schema", "id bigint, ID int"], "'id' occurs twice"),
        (["--schema", "id bigintt"], "not a Hive type"),
        (["--schema", ""], "it has no columns"),
        (["--schema", "id bigint", "--valid-txns", "x"], "--valid-txns: not a list of valid transactions"),
        (["--schema", "id bigint", "--columns", "nope"], "nope"),
        (
            ["--schema", "id bigint", "--valid-write-ids", "d.t:1:1::"],
            "pass --valid-txns, or --acid-version 2",
        ),
        (
            ["--schema", "id bigint", "--where-partition", "x=1"],
            "--where-partition x=1: table directory.t has",
        ),
        (["--schema", "id bigint", "--where-partition", "ds"], "--where-partition 'ds': expected KEY=VALUE"),
        (["--schema", "id bigint", "--columns", "id,ds"], "columns ['ds'] cannot be read"),
        (["--schema", "id bigint", "--valid-write-ids", "x", "--acid-version", "2"], "valid write ids: 'x'"),
        (["--schema", "id bigint", "--acid-version", "2", "--transactional-properties", "legacy"], "legacy"),
        (
            ["--schema", "id bigint", "--row-ids", "--transactional-properties", "insert_only"],
            "rows have no ROW__ID",
        ),
        (["--schema", "id bigint", "--output", "x.txt"], "must end in .csv"),
        (
            ["--schema", "id bigint", "--output", "no/x.csv"],
            "it is a directory, or its parent directory does not exist",
        ),
        (["--schema", "id bigint", "--partition-schema", "ds string"], "--partition-schema has ds"),
        (["--schema", "id bigint", "--location", "/does/not/exist"], "no such directory"),
    ],
)
def test_refusals_name_the_option(
    capsys: pytest.CaptureFixture[str], partitioned: Path, arguments: list[str], message: str
) -> None:
    """Exit code 1, one line on standard error, nothing on standard output."""
    assert main(["read", "--location", str(partitioned), *arguments]) == EXIT_FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_data_beside_partitions_is_refused(capsys: pytest.CaptureFixture[str], partitioned: Path) -> None:
    """The data has no partition; ignoring it would lose rows silently."""
    write_events(partitioned / "delta_0000001_0000001/bucket_00000", inserts(1, 0, 0, [(1, "a")]))
    assert main(["read", "--location", str(partitioned), "--schema", "id bigint"]) == EXIT_FAILED
    assert "holds partitions (ds=2015-11-19) and data (delta_0000001_0000001)" in capsys.readouterr().err
