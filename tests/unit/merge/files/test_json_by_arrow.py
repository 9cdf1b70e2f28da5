"""What pyarrow makes of JSON lines is what Python makes of them, or None."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from mutation_api.errors import MutationError
from mutation_api.format.hive_type import HiveType, parse_hive_type
from mutation_api.merge.file_rules import RowColumns
from mutation_api.merge.json_files import READ_BY_ARROW, _arrays, _Lines, names_by_arrow, values_by_arrow
from mutation_api.storage.location import Location
from tests.support.text_matrix import FLAT_TYPES, random_json
from tests.unit.merge.files.test_change_files import TABLE

FILE = Location.parse("/rows.json")
CASES = 1_000


def by_python(lines: list[str], kind: HiveType) -> pa.Array | None:
    """The column ``v``; None if a line or a value is refused."""
    try:
        objects = _Lines(FILE, pa.array(lines)).objects
        return _arrays(RowColumns(TABLE), FILE, objects, {"v": kind})["v"]
    except MutationError:
        return None


@pytest.mark.thorough
@pytest.mark.parametrize("hive_type", [t for t in FLAT_TYPES if parse_hive_type(t).family in READ_BY_ARROW])
def test_random_values(hive_type: str) -> None:
    rng = random.Random(hive_type)
    kind = parse_hive_type(hive_type)
    known = 0
    for number in range(CASES):
        lines = [f'{{"v":{random_json(rng, kind)}, "w": {{"x": [{at}]}}}}' for at in range(rng.randint(1, 2))]
        found = values_by_arrow(pa.array(lines), {"v": kind})
        if found is None:
            continue
        known += 1
        expected = by_python(lines, kind)
        assert expected is not None, f"{number}: Python refuses {lines}"
        assert repr(found["v"].to_pylist()) == repr(expected.to_pylist()), (number, lines)
        assert found["v"].type == expected.type
    assert known > CASES / 20


@pytest.mark.parametrize(
    "lines",
    [
        ['{"v":1} {"v":2}'],
        ['{"v":1}', '{"v":2} {"v":3}', '{"v":', "4}"],
        ['{"v":1,"v":2}'],
        ['{"v":1} // no'],
        ['{"v":1,}'],
        ["[1]"],
        ["1"],
        ["null"],
        ['{"v":01}'],
        ['{"v":"\\ud800"}'],
        ['{"v":Inf}'],
        ["[" * 100_000],
        ['{"v":' + "[" * 100_000 + "]" * 100_000 + "}"],
    ],
    ids=range(13),
)
def test_what_is_no_object_on_a_line(lines: list[str]) -> None:
    assert values_by_arrow(pa.array(lines), {"v": parse_hive_type("double")}) is None


def test_bytes_that_are_no_text() -> None:
    lines = pa.array([b'{"v":"\xff"}'], pa.binary())
    assert values_by_arrow(lines, {"v": parse_hive_type("string")}) is None
    assert names_by_arrow(lines) is None


def test_names() -> None:
    assert names_by_arrow(pa.array(['{"a":1,"B":{}}', '{"c":[]}', '{"a":2}'])) == ["a", "B", "c"]
    assert names_by_arrow(pa.array(['{"a":1}', '{"a":"x"}'])) is None
