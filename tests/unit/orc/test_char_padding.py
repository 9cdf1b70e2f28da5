"""Values of char columns have no padding, at any depth and by either decoder."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyorc
import pytest

from mutation_api.format.hive_type import HiveType
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location

SCHEMA = (
    "struct<s:string,c:char(5),row:struct<a:array<char(3)>,s:string,m:map<char(2),string>,c:char(4),"
    "n:struct<v:varchar(5),c:char(2)>>,t:timestamp>"
)
ROW = {"a": ["x  ", None, "abc"], "s": "t ", "m": {"k ": "v "}, "c": "q   ", "n": {"v": "v  ", "c": "c "}}
NAMES = ("row.m", "row.c", "row.a", "row.n", "s", "c", "t")


def written(path: Path, year: int) -> OrcInput:
    """A file of two rows, one of them with NULLs."""
    moment = datetime.datetime(year, 1, 1, tzinfo=datetime.UTC)
    with path.open("wb") as file, pyorc.Writer(file, SCHEMA, struct_repr=pyorc.StructRepr.DICT) as writer:
        writer.write({"s": "a ", "c": "ab", "row": ROW, "t": moment})
        writer.write({"s": None, "c": None, "row": None, "t": moment})
    location = Location.given(str(path))
    return OrcInput(storage_at(location), location, None, ReadOptions(TimestampForm.MICROSECONDS))


@pytest.mark.parametrize("year", [1, 2024])
def test_only_char_is_stripped(tmp_path: Path, year: int) -> None:
    """By pyarrow, and with timestamps that it cannot hold, which pyorc reads."""
    first, second = written(tmp_path / "a.orc", year).read_stripe(0, NAMES).to_pylist()
    row = first["row"]
    assert (first["s"], first["c"], row["c"], row["a"]) == ("a ", "ab", "q", ["x", None, "abc"])
    assert row["m"] == [("k", "v ")]
    assert row["n"] == {"v": "v  ", "c": "c"}
    assert (second["row"], second["s"], second["c"]) == (None, None, None)


def test_a_row_that_is_sought(tmp_path: Path) -> None:
    """By pyorc's seek."""
    source = written(tmp_path / "a.orc", 2024)
    found = source.read_rows(0, ["c", "s"], np.array([0]), 1_000_000)
    assert found.to_pylist() == [{"c": "ab", "s": "a "}]


def test_ranges_of_padded_texts_are_not_used(tmp_path: Path) -> None:
    """A column that was char and is a string now."""
    (ranges,) = written(tmp_path / "a.orc", 2024).stripe_ranges(
        {"c": HiveType("string"), "s": HiveType("string")}
    )
    assert "c" not in ranges
