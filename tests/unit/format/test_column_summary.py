"""Murmur3 over arrays, and the estimates of distinct values that are made from it."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.format.column_summary import (
    _BIASES,
    MOST_SPARSE,
    ColumnSummary,
    DistinctSketch,
    RowSummary,
    summarised_families,
)
from mutation_api.format.hive_type import TypeFamily
from mutation_api.format.murmur3 import BLOCK, hashes_of_bytes, hashes_of_longs
from mutation_api.table.acid_table import AcidColumn

_MASK = (1 << 64) - 1


def reference(data: bytes) -> int:
    """Murmur3.hash64 byte by byte, as the Java code does it."""

    def rotated(word: int, count: int) -> int:
        return (word << count | word >> (64 - count)) & _MASK

    def mixed(word: int) -> int:
        return rotated(word * 0x87C37B91114253D5 & _MASK, 31) * 0x4CF5AD432745937F & _MASK

    found, whole = 104729, len(data) // 8 * 8
    for start in range(0, whole, 8):
        found ^= mixed(int.from_bytes(data[start : start + 8], "little"))
        found = (rotated(found, 27) * 5 + 0x52DCE729) & _MASK
    if whole < len(data):
        found ^= mixed(int.from_bytes(data[whole:], "little"))
    found ^= len(data)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        found = (found ^ found >> 33) * factor & _MASK
    return found ^ found >> 33


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_are_hashed_as_in_java(kind: pa.DataType) -> None:
    """Every length up to four words, more than a block of them, and slices."""
    rng = random.Random(1)
    values = [rng.randbytes(n % 33) for n in range(BLOCK + 100)]
    array = pa.array(values, kind)
    assert hashes_of_bytes(array).tolist() == [reference(each) for each in values]
    assert hashes_of_bytes(array.slice(13, 50)).tolist() == [reference(each) for each in values[13:63]]
    assert hashes_of_bytes(array.slice(0, 0)).tolist() == []


def test_longs_are_hashed_as_in_java() -> None:
    """Eight bytes, the highest first."""
    values = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, BLOCK + 100)
    expected = [reference(int(each).to_bytes(8, "big", signed=True)) for each in values]
    assert hashes_of_longs(values).tolist() == expected


def sketch_of(values: np.ndarray) -> DistinctSketch:  # type: ignore[type-arg]
    found = DistinctSketch()
    found.add(hashes_of_longs(values))
    return found


@pytest.mark.parametrize("count", [1, 10, MOST_SPARSE, MOST_SPARSE + 1, 900, 3000, 50_000, 1_000_000])
def test_an_estimate_is_near_the_number(count: int) -> None:
    """Repeated values do not count, in whatever order and parts they come; 1,024 registers have 3.3 %."""
    values = np.arange(count) * 7919
    sketch = sketch_of(np.concatenate((values, values[::-1])))
    assert sketch.count() == pytest.approx(count, rel=0 if count <= MOST_SPARSE else 0.1)
    parts = DistinctSketch()
    for part in np.array_split(values, 3):
        parts.merge(sketch_of(part))
    assert parts.to_bytes() == sketch.to_bytes()
    read = DistinctSketch.from_bytes(sketch.to_bytes())
    assert read is not None
    assert read.to_bytes() == sketch.to_bytes()


def test_the_expected_errors_of_estimates() -> None:
    """Random hashes give estimates whose mean is the number, with the correction."""
    rng = np.random.default_rng(5)
    for count in (1000, 1500, 2500, 4000):
        found = []
        for _ in range(100):
            sketch = DistinctSketch()
            sketch.add(rng.integers(0, 2**64, count, dtype=np.uint64))
            found.append(sketch.count())
        assert np.mean(found) == pytest.approx(count, rel=0.015)
    assert [each for each, _ in _BIASES] == sorted(each for each, _ in _BIASES)


@pytest.mark.parametrize(
    "data", [b"", b"HLL", b"FM\x10\x00\x00", b"HLL\xe0\x01\x00", b"HLL\xa0\x80", b"HLL\xa4\x01ab"]
)
def test_other_sketches_are_not_merged(data: bytes) -> None:
    """Another kind, another number of registers, and cut off ones."""
    assert DistinctSketch.from_bytes(data) is None


@pytest.mark.parametrize("repeated", [1, 4, 5, 50])
@pytest.mark.parametrize(
    ("family", "values"),
    [
        (TypeFamily.INTEGER, pa.array(range(2**63 - 200, 2**63))),
        (TypeFamily.INTEGER, pa.array(np.arange(-128, 128, dtype=np.int8))),
        (TypeFamily.INTEGER, pa.array([-(2**63), 2**63 - 1, 0])),
        (TypeFamily.DATE, pa.array(np.arange(-700, 700, 3, dtype=np.int32)).cast(pa.date32())),
        (TypeFamily.TEXT, pa.array([f"a{n}" for n in range(700)])),
        (TypeFamily.TEXT, pa.array([f"é{n}" for n in range(700)])),
    ],
)
def test_repeated_values_are_as_single_ones(family: TypeFamily, values: pa.Array, repeated: int) -> None:
    """Whether values are hashed once or each time, the sketch and the lengths are the same."""
    summary = ColumnSummary()
    assert summary.add(family, pa.concat_arrays([values] * repeated))
    if family is TypeFamily.TEXT:
        hashes = hashes_of_bytes(values)
        lengths = [len(each) for each in values.to_pylist()] * repeated
        assert (summary.length_sum, summary.max_length) == (sum(lengths), max(lengths))
    else:
        numbers = values.cast(pa.int32()) if family is TypeFamily.DATE else values
        hashes = hashes_of_longs(numbers.to_numpy().astype(np.int64))
        assert (summary.low, summary.high) == (min(numbers.to_pylist()), max(numbers.to_pylist()))
    sketch = DistinctSketch()
    sketch.add(hashes)
    assert summary.sketch.to_bytes() == sketch.to_bytes()


def test_a_summary_survives_json_and_merges() -> None:
    """Two halves are as the whole."""
    types = {"n": "int", "s": "string", "d": "double", "a": "array<int>"}
    families = summarised_families(AcidColumn(name, kind) for name, kind in types.items())
    rows = pa.table(
        {
            "n": pa.array([1, None, 3, 3], pa.int32()),
            "s": ["a", "bc", None, "é"],
            "d": [0.5, -0.0, 1e300, None],
            "a": [[1], None, [], [2]],
        }
    ).to_struct_array()
    rows = pa.concat_arrays(rows.chunks)
    whole = RowSummary(families)
    whole.add(rows)
    merged = RowSummary(families)
    for half in (rows.slice(0, 2), rows.slice(2)):
        part = RowSummary(families)
        part.add(half)
        merged.merge(RowSummary.from_json(families, part.to_json()))
    assert merged.to_json() == whole.to_json()
    assert [*whole.columns] == ["n", "s", "d"]
    for text in ("", "[]", '{"n": 1}', '{"n": [1, 2]}', '{"n":[1,0,0,0,0,"x","1","SExMoAEA"]}'):
        with pytest.raises(ValueError, match=r"."):
            RowSummary.from_json(families, text)
