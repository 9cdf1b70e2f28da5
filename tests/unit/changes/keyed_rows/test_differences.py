"""Which values differ: NULL equals NULL, NaN equals NaN, maps in any order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mutation_api.changes.keyed_rows.differences import differs

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
