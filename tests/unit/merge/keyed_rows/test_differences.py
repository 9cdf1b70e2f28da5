"""Which values differ: NULL equals NULL, NaN equals NaN, maps in any order."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.format.differences import differs

NAN = float("nan")
STRUCT = pa.struct([("a", pa.int32()), ("f", pa.float64())])
MAP = pa.map_(pa.string(), pa.float64())


@pytest.mark.parametrize(
    ("data_type", "pairs"),
    [
        (pa.int64(), [(1, 1, False), (1, 2, True), (None, None, False), (None, 0, True), (0, None, True)]),
        (pa.float64(), [(NAN, NAN, False), (NAN, 1.0, True), (0.0, -0.0, False), (None, NAN, True)]),
        (pa.string(), [("a", "a", False), ("a", "A", True), ("", None, True)]),
        (
            STRUCT,
            [
                ({"a": 1, "f": NAN}, {"a": 1, "f": NAN}, False),
                ({"a": None, "f": 1.0}, {"a": 2, "f": 1.0}, True),
                (None, {"a": None, "f": None}, True),
                (None, None, False),
            ],
        ),
        (
            MAP,
            [
                ([("x", 1.0), ("y", NAN)], [("y", NAN), ("x", 1.0)], False),
                ([("x", 1.0)], [("x", 2.0)], True),
                ([], None, True),
            ],
        ),
        (pa.list_(STRUCT), [([{"a": 1, "f": NAN}], [{"a": 1, "f": NAN}], False), ([], [None], True)]),
        (pa.list_(MAP), [([[("x", 1.0), ("y", 2.0)]], [[("y", 2.0), ("x", 1.0)]], False)]),
        (pa.list_(pa.int32()), [([1, 2], [2, 1], True), ([1, 2], [1, 2], False)]),
    ],
)
def test_pairs(data_type: pa.DataType, pairs: list[tuple[Any, Any, bool]]) -> None:
    """As Spark's ``<=>``, over all kinds of types."""
    before, after, expected = zip(*pairs, strict=True)
    found = differs(pa.array(before, data_type), pa.array(after, data_type))
    assert found.tolist() == list(expected)


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        ([1, None, -1], pa.int32()),
        ([0.5, NAN, None, float("inf")], pa.float64()),
        ([NAN, 0.0], pa.float32()),
        (["", "a", None, "A", "a "], pa.string()),
        ([b"\\0", b"", None], pa.binary()),
        ([True, False, None], pa.bool_()),
        (
            [{"a": 1, "b": NAN}, {"a": 1, "b": None}, {"a": None, "b": None}, None],
            pa.struct([("a", pa.int8()), ("b", pa.float64())]),
        ),
        ([[1, 2], [1], [], None, [None], [1, None], [2, 1]], pa.list_(pa.int16())),
        (
            [[{"a": [NAN]}], [{"a": []}], [{"a": None}], [None], None],
            pa.list_(pa.struct([("a", pa.list_(pa.float64()))])),
        ),
    ],
    ids=str,
)
def test_values_are_equal_to_themselves_alone(values: list[Any], data_type: pa.DataType) -> None:
    """Each with each, NULL and NaN among them; also of slices."""
    pairs = list(itertools.product(range(len(values)), repeat=2))
    left, right = (
        pa.array([values[0], *(values[pair[side]] for pair in pairs)], data_type).slice(1) for side in (0, 1)
    )
    assert differs(left, right).tolist() == [a != b for a, b in pairs]


def test_zeros_of_both_signs_are_equal() -> None:
    """As Spark groups them, also within lists."""
    zeros = pa.array([0.0, -0.0])
    assert not differs(zeros, zeros.take(pa.array([1, 0]))).any()
    lists = pa.array([[0.0], [-0.0]])
    assert not differs(lists, lists.take(pa.array([1, 0]))).any()
