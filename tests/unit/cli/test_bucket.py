"""``hive-mutate bucket``: golden values through the command, and what it says to bad input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from mutation_api.cli import main as cli
from mutation_api.table.bucket_rows import BATCH_LINES
from mutation_api.table.row_type import parse_types
from tests.support.golden_hashes import plain_json

GOLDEN = Path(__file__).parents[2] / "golden" / "bucket_hash"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, int]], str]:
    code = cli.main(["bucket", *words])
    captured = capsys.readouterr()
    return code, [json.loads(line) for line in captured.out.splitlines()], captured.err


def feed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def golden_line(values: list[object], types: str) -> str:
    """Golden values as a line of the command's input. A number keeps its digits."""
    plain = [plain_json(value, kind) for value, kind in zip(values, parse_types(types), strict=True)]
    return json.dumps(plain, default=float) + "\n"


@pytest.mark.thorough
@pytest.mark.parametrize("version", [1, 2])
def test_golden_values_through_the_command(
    version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command reads every golden value, for every list of types, in the form of files of changes."""
    groups: dict[str, list[dict[str, object]]] = {}
    for line in (GOLDEN / f"bucket_hash_v{version}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        groups.setdefault(",".join(row["types"]), []).append(row)
    if version == 2:
        del groups["binary"]
    source = tmp_path / "values.jsonl"
    for types, rows in groups.items():
        source.write_text("".join(golden_line(row["values"], types) for row in rows), encoding="utf-8")
        options = ("--types", types, "--buckets", "10", "--bucketing-version", str(version))
        code, found, errors = run(capsys, *options, str(source))
        assert (code, errors) == (0, "")
        hashes, buckets = (
            [row[f"v{version}_hash"] for row in rows],
            [row[f"v{version}_bucket"]["10"] for row in rows],
        )
        assert found == [{"hash": h, "bucket": b} for h, b in zip(hashes, buckets, strict=True)]


def test_standard_input_and_defaults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Version 1, UTC and standard input are the defaults."""
    feed(monkeypatch, '[7, "1970-01-01 00:00:01"]', "[null, null]")
    code, found, _ = run(capsys, "--types", "int,timestamp", "--buckets", "10")
    assert (code, found) == (
        0,
        [{"hash": 7 * 31 + 2**30, "bucket": (217 + 2**30) % 10}, {"hash": 0, "bucket": 0}],
    )


@pytest.mark.parametrize(
    ("types", "first", "second"),
    [
        ("map<string,int>", '[{"a": 1, "b": 2}]', '[{"b": 2, "a": 1}]'),
        ("map<int,int>", "[[[1, 1], [2, 2]]]", "[[[2, 2], [1, 1]]]"),
        ("struct<a:int,b:string>", '[{"a": null, "b": "x"}]', '[{"b": "x"}]'),
        ("decimal(10,2)", '["1.50"]', "[1.5]"),
        ("double", "[1e10]", "[10000000000]"),
        ("double", '["INF"]', "[Infinity]"),
        ("char(3)", '["abcd"]', '["abc"]'),
        ("timestamp", '["2020-01-01T00:00:00.5"]', '["2020-01-01 00:00:00.500000000"]'),
        ("timestamp", '["2020-01-01"]', '["2020-01-01 00:00:00"]'),
    ],
)
def test_notations_of_the_same_value(
    types: str, first: str, second: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that files of changes may have."""
    feed(monkeypatch, first, second)
    code, found, errors = run(capsys, "--types", types, "--buckets", "4096")
    assert (code, errors) == (0, "")
    assert found[0] == found[1]


def test_binary_is_base64(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As in all files. The hash is that of the golden value 0001."""
    feed(monkeypatch, '["AAE="]')
    code, found, errors = run(capsys, "--types", "binary", "--buckets", "4096")
    assert (code, errors, found[0]["hash"]) == (0, "", 962)


@pytest.mark.parametrize(
    ("types", "line", "message"),
    [
        ("int", "[", "not JSON"),
        ("int", "", "not JSON"),
        ("int", "7", "expected an array of 1"),
        ("int,int", "[1]", "expected an array of 2"),
        ("int", '["x"]', '"x" is not JSON of this type'),
        ("int", '["12"]', '"12" is not JSON of this type'),
        ("int", "[true]", "not a int: true"),
        ("int", "[1.5]", "not a int: "),
        ("tinyint", "[128]", "from -128 to 127"),
        ("bigint", "[9223372036854775808]", "bigint"),
        ("decimal(3,1)", "[100]", "before"),
        ("decimal(10,2)", '["1.005"]', "2 after the point"),
        ("boolean", "[1]", "not a boolean: 1"),
        ("string", "[1.5]", "not a string"),
        ("binary", '["0g"]', "is not base64"),
        ("date", '["2020-02-30"]', "is not a date"),
        ("timestamp", '["2020-01-01 24:00:00"]', "is not a timestamp"),
        ("timestamp", '["2020-01-01.5"]', "is not a timestamp"),
        ("array<int>", "[1]", "not a array<int>: 1"),
        ("array<int>", '[["x"]]', '["x"] is not JSON'),
        ("map<string,int>", '[[["a", 1]]]', "is not JSON of this type"),
        ("map<int,int>", "[[[null, 1]]]", "a key is null"),
        ("struct<a:int>", '[{"b": 1}]', "is not JSON of this type"),
        ("struct<a:int>", "[[1]]", "is not JSON of this type"),
        ("uniontype<int,string>", "[[2, 1]]", "is not JSON of this type"),
        ("uniontype<int,string>", "[[0]]", "uniontype"),
    ],
)
def test_a_bad_line_is_named(
    types: str, line: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says which line it is, counted from 1, and what is wrong with it; nothing is printed."""
    width = len(parse_types(types))
    feed(monkeypatch, json.dumps([None] * width), line, json.dumps([None] * width))
    code, found, errors = run(capsys, "--types", types, "--buckets", "2")
    assert (code, found) == (1, [])
    assert "line 2: " in errors
    assert message in errors


def test_lines_are_counted_across_batches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was read before a bad batch is printed; the line's number counts from the beginning."""
    feed(monkeypatch, *["[1]"] * BATCH_LINES, "[2]", "[x]")
    code, found, errors = run(capsys, "--types", "int", "--buckets", "2")
    assert (code, len(found)) == (1, BATCH_LINES)
    assert f"line {BATCH_LINES + 2}: not JSON" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--types", "foo", "--buckets", "2"), "'foo' is not a Hive type"),
        (("--types", "", "--buckets", "2"), "a type name is missing"),
        (("--types", "int", "--buckets", "0"), "got 0"),
        (("--types", "binary", "--buckets", "2", "--bucketing-version", "2"), "binary"),
        (("--types", "timestamp", "--buckets", "2", "--time-zone", "Mars"), "unknown time zone 'Mars'"),
        (("--types", "int", "--buckets", "2", "/no/such/file"), "cannot read /no/such/file"),
    ],
)
def test_options_that_make_no_sense(
    words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command fails with the reason and without a trace."""
    value = '["2020-01-01 00:00:00"]' if "timestamp" in words else "[1]"
    feed(monkeypatch, value)
    code, found, errors = run(capsys, *words)
    assert (code, found) == (1, [])
    assert message in errors
    assert "Traceback" not in errors
