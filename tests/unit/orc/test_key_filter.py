"""KeyFilter against the same rule in plain Python."""

from __future__ import annotations

import datetime
import math
import pickle
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.errors import RecordLayoutError
from mutation_api.orc.read.key_filter import KeyFilter
from tests.support.keyed_rows import plain

CASES = 1500
NAN = float("nan")
OTHER_NAN = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(2**63), 2**63 - 1, 0, 1, -1, 5, 7, None],
    pa.int8(): [1, -1, 127, 0, None],
    pa.string(): ["", "a", "a ", "é", "zz", None],
    pa.binary(): [b"", b"\xff", b"a", None],
    pa.bool_(): [True, False, None],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(2020, 1, 1), None],
    pa.timestamp("us"): [datetime.datetime(9999, 1, 1), datetime.datetime(1970, 1, 1), None],
    pa.float64(): [0.0, -0.0, NAN, OTHER_NAN, 1.5, math.inf, None],
    pa.float32(): [0.0, -0.0, NAN, 1.5, None],
    pa.decimal128(10, 2): [Decimal("1.00"), Decimal("-1.00"), Decimal("99999999.99"), None],
    pa.decimal128(38, 0): [Decimal(10) ** 37, Decimal(-1), Decimal(1), None],
}


def random_arrays(rng: random.Random, types: list[pa.DataType], count: int) -> list[pa.Array]:
    """Slices, so that offsets are tried."""
    return [pa.array(rng.choices(VALUES[t], k=count + 2), t).slice(1, count) for t in types]


def rows(arrays: list[pa.Array]) -> list[tuple[Any, ...]]:
    return [tuple(map(plain, row)) for row in zip(*(a.to_pylist() for a in arrays), strict=True)]


@pytest.mark.thorough
def test_random_keys_of_all_types_are_found_and_numbered() -> None:
    """One to three columns, with and without NULL = NULL, also after a journey to a worker."""
    rng = random.Random(5)
    for case in range(CASES):
        types = rng.choices(list(VALUES), k=rng.randint(1, 3))
        keys = random_arrays(rng, types, rng.choice([0, 1, 3, 8, 20]))
        values = random_arrays(rng, types, rng.choice([0, 1, 5, 60]))
        null_safe = rng.random() < 0.5
        names = [f"c{n}" for n in range(len(types))]
        key_filter = KeyFilter(pa.table(keys, names=names), null_safe)
        if case % 3 == 0:
            key_filter = pickle.loads(pickle.dumps(key_filter))
        positions, codes = key_filter.encode(values)
        wanted, found = set(rows(keys)), rows(values)
        expected = [n for n, key in enumerate(found) if key in wanted and (null_safe or None not in key)]
        assert positions.tolist() == expected, (types, null_safe)
        others = pickle.loads(pickle.dumps(KeyFilter(key_filter.keys, null_safe, excludes=True))).find(values)
        assert sorted([*positions, *others]) == list(range(len(found))), (types, null_safe)
        numbers = {found[at]: code for at, code in zip(positions, codes, strict=True)}
        assert [numbers[found[at]] for at in positions] == codes.tolist()
        assert len(set(numbers.values())) == len(numbers)


def test_many_columns_of_many_values_do_not_overflow() -> None:
    """Six columns of 60,000 values each: the product of their counts has 96 bits."""
    rng = np.random.default_rng(3)
    columns = [pa.array(rng.permutation(60_000)) for _ in range(6)]
    key_filter = KeyFilter(pa.table(columns, names=list("abcdef")))
    assert len(key_filter.find(columns)) == 60_000
    shifted = [*columns[:5], pa.array(np.roll(np.asarray(columns[5]), 1))]
    assert not len(key_filter.find(shifted))


@pytest.mark.parametrize("null_safe", [False, True])
def test_few_texts_among_many_keys(null_safe: bool) -> None:
    """A small file is looked up another way; a column later than the first is, too."""
    keys = pa.table({"c": [*map(str, range(1000)), None], "n": [7] * 1001})
    texts = pa.array(["5", None, "x", "999", "5"])
    for names in (["c"], ["n", "c"], ["c", "n"]):
        arrays = [texts if name == "c" else pa.array([7] * 5) for name in names]
        positions, codes = KeyFilter(keys.select(names), null_safe).encode(arrays)
        assert positions.tolist() == ([0, 1, 3, 4] if null_safe else [0, 3, 4])
        assert codes[0] == codes[-1]
        assert len(set(codes)) == len(codes) - 1


@pytest.mark.parametrize(
    ("values", "low", "high", "met"),
    [
        (pa.array([3, 9, None]), 4, 8, False),
        (pa.array([3, 9]), 4, 9, True),
        (pa.array([3, 9]), -5, 3, True),
        (pa.array([3, 9]), 10, 99, False),
        (pa.array([], pa.int64()), 0, 9, False),
        (pa.array(["é", "b"]), b"c", "è".encode(), False),
        (pa.array(["é", "b"]), b"c", b"\xff", True),
        (pa.array([datetime.date(1970, 1, 11)]), 10, 10, True),
        (pa.array([Decimal("1.50")]), Decimal("1.4"), Decimal("1.6"), True),
        (pa.array([Decimal("1.50")]), Decimal("1.51"), Decimal("1.6"), False),
    ],
)
def test_ranges(values: pa.Array, low: object, high: object, met: bool) -> None:
    """Both ends belong to the range; text counts by bytes."""
    assert KeyFilter(pa.table({"c": values})).meets("c", low, high) == met


def test_a_range_says_nothing_of_null() -> None:
    """Rows of NULL lie in no range."""
    keys = pa.table({"c": pa.array([3, None])})
    assert KeyFilter(keys, null_safe=True).meets("c", 10, 20)
    assert not KeyFilter(keys).meets("c", 10, 20)


def test_what_is_no_key_is_refused() -> None:
    """No column, a type without equality, values of another type than the keys."""
    with pytest.raises(RecordLayoutError, match="needs at least one column"):
        KeyFilter(pa.table({}))
    with pytest.raises(RecordLayoutError, match=r"'l': a list.* cannot be a key"):
        KeyFilter(pa.table({"l": [[1]]}))
    with pytest.raises(RecordLayoutError, match="keys have type int64, but the table's values int32"):
        KeyFilter(pa.table({"c": [1]})).find([pa.array([1], pa.int32())])
