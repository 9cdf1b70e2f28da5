"""Values as JSON and as cells of CSV, and back: the same, whatever the type."""

from __future__ import annotations

import datetime
import json
import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.format.hive_type import HiveType, MisfitError, arrow_type, parse_hive_type
from mutation_api.format.json_values import (
    JsonMisfitError,
    cell_text,
    decode_json,
    from_cells,
    from_json,
    to_json,
)
from mutation_api.format.plain_array import dense_union

SCALARS = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9,2)", "decimal(38,10)"),
    *("string", "varchar(5)", "char(5)", "date", "timestamp", "binary"),
)
TEXTS = ("", "a", "é😀", 'say "x"', "null", "[1]", " x ", "a,b\n", "\ufeff", "NaN", "\\ud800")
FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, 5e-324, 0.1)


def random_type(rng: random.Random, depth: int = 0) -> str:
    """A type, nested up to three times."""
    one = rng.choice(SCALARS)
    if depth == 3 or rng.random() < 0.4:
        return one
    inner = random_type(rng, depth + 1)
    return rng.choice((f"array<{inner}>", f"map<{one},{inner}>", f"struct<a:{inner},b_c:{one}>"))


def random_value(rng: random.Random, kind: HiveType, *, may_be_null: bool = True) -> Any:
    if may_be_null and rng.random() < 0.15:
        return None
    match kind.kind:
        case "array":
            return [random_value(rng, kind.children[0]) for _ in range(rng.randrange(4))]
        case "map":
            keys = [random_value(rng, kind.children[0], may_be_null=False) for _ in range(rng.randrange(4))]
            distinct = {repr(key + 0.0 if isinstance(key, float) else key): key for key in keys}.values()
            return [(key, random_value(rng, kind.children[1])) for key in distinct]
        case "struct":
            return {n: random_value(rng, c) for n, c in zip(kind.field_names, kind.children, strict=True)}
        case "boolean":
            return rng.random() < 0.5
        case "tinyint" | "smallint" | "int" | "bigint":
            bits = arrow_type(kind).bit_width - 1
            return rng.choice((-(2**bits), 2**bits - 1, rng.randrange(-(2**bits), 2**bits)))
        case "float":
            value = rng.choice((*FLOATS[:5], rng.gauss(0, 1e30), 1.5e-40))
            return float(np.float32(value))
        case "double":
            return rng.choice((*FLOATS, rng.gauss(0, 1e300)))
        case "decimal":
            most = 10**kind.precision
            return Decimal(f"{rng.choice((0, most - 1, rng.randrange(-most + 1, most)))}e-{kind.scale}")
        case "date":
            return datetime.date.fromordinal(rng.randrange(1, datetime.date.max.toordinal() + 1))
        case "timestamp":
            day = datetime.datetime.fromordinal(rng.randrange(1, datetime.date.max.toordinal() + 1))
            return day + datetime.timedelta(microseconds=rng.choice((0, 1, 500_000, 86_399_999_999)))
        case "binary":
            return rng.randbytes(rng.randrange(5))
    return rng.choice(TEXTS)[: kind.length or None]


def check(seed: int) -> None:
    rng = random.Random(seed)
    kind = parse_hive_type(random_type(rng))
    values = [random_value(rng, kind) for _ in range(4)]
    array = pa.array(values, arrow_type(kind, timestamp_unit="us"))
    texts = [json.dumps(value, ensure_ascii=rng.random() < 0.5, allow_nan=False) for value in to_json(array)]
    found = from_json([decode_json(text) for text in texts], kind)
    assert found.type == array.type, (seed, kind.text)
    assert repr(found.to_pylist()) == repr(array.to_pylist()), (seed, kind.text, texts)
    cells = pa.array([cell_text(value) for value in to_json(array)], pa.string())
    assert repr(from_cells(cells, kind).to_pylist()) == repr(array.to_pylist()), (seed, kind.text, cells)


@pytest.mark.thorough
def test_random_values_come_back() -> None:
    for seed in range(400):
        check(seed)


@pytest.mark.long
def test_many_random_values_come_back() -> None:
    for seed in range(400, 20_000):
        check(seed)


def test_unions_come_back() -> None:
    """Arrow's unions cannot be null; a null union is a null of its first alternative."""
    kind = parse_hive_type("uniontype<int,array<string>>")
    parts = [pa.array([1, None], pa.int32()), pa.array([["a", None]])]
    array = dense_union(np.array([0, 1, 0], np.int8), parts, ["_union_0", "_union_1"])
    assert to_json(array) == [[0, 1], [1, ["a", None]], None]
    assert to_json(from_json(to_json(array), kind)) == to_json(array)


@pytest.mark.parametrize(
    ("hive_type", "text"),
    [
        ("map<int,int>", '{"1": 1}'),
        ("map<int,int>", "[[null, 1]]"),
        ("map<int,int>", "[[1, 1, 1]]"),
        ("map<int,int>", "[1]"),
        ("map<string,int>", '[["a", 1]]'),
        ("array<int>", '{"a": 1}'),
        ("array<int>", '["1"]'),
        ("struct<a:int>", '{"A": 1}'),
        ("struct<a:int>", "[1]"),
        ("uniontype<int,string>", "[2, 1]"),
        ("uniontype<int,string>", '[true, "x"]'),
        ("uniontype<int,string>", "[0]"),
        ("binary", '"abcde"'),
        ("boolean", "1"),
        ("date", '"2024-02-30"'),
        ("decimal(3,1)", "1.25"),
    ],
)
def test_what_is_no_value_is_refused(hive_type: str, text: str) -> None:
    """With its row; also within others, and in a cell."""
    kind, value = parse_hive_type(hive_type), decode_json(text)
    with pytest.raises(JsonMisfitError) as caught:
        from_json([None, value], kind)
    assert caught.value.row == 1
    with pytest.raises(JsonMisfitError) as caught:
        from_json([[], [None, value]], parse_hive_type(f"array<{hive_type}>"))
    assert caught.value.row == 1
    with pytest.raises(MisfitError) as misfit:
        from_cells(pa.array([None, None, f"[{text}]"]), parse_hive_type(f"array<{hive_type}>"))
    assert misfit.value.row == 2


def test_a_cell_that_is_no_json() -> None:
    with pytest.raises(MisfitError, match="is not JSON") as caught:
        from_cells(pa.array(["[1]", "[1"]), parse_hive_type("array<int>"))
    assert caught.value.row == 1
