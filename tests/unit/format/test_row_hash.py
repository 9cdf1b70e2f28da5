"""The hash of rows depends on their values only, and finds every kind of difference."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.format.row_hash import row_hashes, sum_of_hashes

SMALL = pa.schema(
    [
        ("n", pa.int16()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("d", pa.decimal128(20, 2)),
        ("l", pa.list_(pa.int8())),
        ("m", pa.map_(pa.string(), pa.int16())),
        ("r", pa.struct([("x", pa.int8()), ("y", pa.string())])),
        ("f", pa.float32()),
        ("t", pa.timestamp("us")),
        ("day", pa.date32()),
        ("is", pa.bool_()),
    ]
)
WIDE = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.large_string()),
        ("b", pa.large_binary()),
        ("d", pa.decimal128(20, 2)),
        ("l", pa.large_list(pa.int32())),
        ("m", pa.map_(pa.large_string(), pa.int64())),
        ("r", pa.struct([("x", pa.int32()), ("y", pa.large_string())])),
        ("f", pa.float64()),
        ("t", pa.timestamp("ns")),
        ("day", pa.date32()),
        ("is", pa.bool_()),
    ]
)


def hash_of(rows: pa.Table, size: int = 1000) -> int:
    """The hash of a table that is read in batches."""
    return sum(sum_of_hashes(row_hashes(batch)) for batch in rows.to_batches(max_chunksize=size)) % 2**64


def random_rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows with many equal values and nulls."""
    values: dict[str, list[Any]] = {
        "n": [None, 0, 1, -1],
        "s": [None, "", "a", "abcdefgh", "abcdefgh\0", "é" * 20],
        "b": [None, b"", b"\0", b"\0\0", b"\0" * 8],
        "d": [None, Decimal(0), Decimal("-0.01"), Decimal("123456789012345678.90")],
        "l": [None, [], [None], [1, 2], [2, 1], [1, 2, None]],
        "m": [None, [], [("a", 1)], [("a", 1), ("b", None)], [("b", 1), ("a", None)]],
        "r": [None, {"x": None, "y": None}, {"x": 1, "y": None}, {"x": None, "y": "1"}],
        "f": [None, 0.0, -0.0, 0.5, float("inf")],
        "t": [None, 0, 1_000_000],
        "day": [None, 0, 1],
        "is": [None, True, False],
    }
    return [{name: rng.choice(each) for name, each in values.items()} for _ in range(count)]


@pytest.mark.thorough
def test_order_widths_and_batches_do_not_matter() -> None:
    """Nor does the order of entries in maps."""
    rng = random.Random(1)
    rows = random_rows(rng, 500)
    first = pa.Table.from_pylist(rows, SMALL)
    for row in rows:
        row["m"] = row["m"] and row["m"][::-1]
    rng.shuffle(rows)
    again = pa.Table.from_pylist(rows, SMALL).cast(WIDE)
    assert hash_of(first) == hash_of(first, 7) == hash_of(again) == hash_of(again, 3)
    assert hash_of(first.slice(100)) == hash_of(pa.Table.from_pylist(first.to_pylist()[100:], SMALL))


def test_different_rows_have_different_hashes() -> None:
    """Nulls, empty values, zeros and places in lists are distinguished."""
    table = pa.Table.from_pylist(random_rows(random.Random(2), 3000), SMALL)
    (batch,) = table.combine_chunks().to_batches()
    by_hash: dict[int, set[str]] = {}
    for found, row in zip(row_hashes(batch).tolist(), batch.to_pylist(), strict=True):
        entries = row["m"] and sorted(row["m"])
        by_hash.setdefault(found, set()).add(str({**row, "m": entries}))
    assert all(len(rows) == 1 for rows in by_hash.values())
    assert len({*map(frozenset, by_hash.values())}) == len(by_hash)


def test_a_row_that_occurs_twice_counts_twice() -> None:
    """Hashes are summed, so two equal rows do not cancel each other."""
    one = pa.table({"n": [5]})
    assert hash_of(pa.concat_tables([one, one])) == 2 * hash_of(one) % 2**64 != 0


def test_all_nan_are_equal() -> None:
    """Writers may change the bits of a NaN."""
    other = np.frombuffer(np.uint64(0x7FF8_0000_0000_0001).tobytes(), np.float64)
    assert hash_of(pa.table({"f": other})) == hash_of(pa.table({"f": [float("nan")]}))


def test_a_union_has_no_hash() -> None:
    """A type without a rule is refused."""
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(NotImplementedError, match="have no hash"):
        row_hashes(pa.RecordBatch.from_arrays([union], ["u"]))
