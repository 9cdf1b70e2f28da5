"""Keys of the source in the types of the table: equal exactly where Spark finds them equal."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from mutation_api.errors import RecordLayoutError
from mutation_api.merge.key_columns import key_in_type

NAN = float("nan")
TINY = pa.scalar(0.1, pa.float32()).as_py()


@pytest.mark.parametrize(
    ("values", "wanted", "expected", "lost"),
    [
        (pa.array([1, 300, None], pa.int64()), pa.int8(), [1, None, None], [1]),
        (pa.array([1, None], pa.int16()), pa.int64(), [1, None], []),
        (pa.array([2**63], pa.uint64()), pa.int64(), [None], [0]),
        (
            pa.array([Decimal("1.50"), Decimal("1.5001"), None], pa.decimal128(12, 4)),
            pa.decimal128(10, 2),
            [Decimal("1.50"), None, None],
            [1],
        ),
        (pa.array([Decimal("7.0"), Decimal("7.5")], pa.decimal128(3, 1)), pa.int32(), [7, None], [1]),
        (pa.array([7, 10**9]), pa.decimal128(4, 1), [Decimal("7.0"), None], [1]),
        (pa.array([0.5, TINY, 0.1, None]), pa.float32(), [0.5, TINY, None, None], [2]),
        (pa.array([0.5, TINY], pa.float32()), pa.float64(), [0.5, TINY], []),
        (pa.array(["a", None], pa.large_string()), pa.string(), ["a", None], []),
        (pa.array(["a"], pa.string_view()), pa.string(), ["a"], []),
        (
            pa.array([1_000, 1_001], pa.timestamp("ns")),
            pa.timestamp("us"),
            [datetime.datetime(1970, 1, 1, 0, 0, 0, 1), None],
            [1],
        ),
        (pa.nulls(2), pa.date32(), [None, None], []),
    ],
)
def test_values_that_equal_none_are_lost(
    values: pa.Array, wanted: pa.DataType, expected: list[object], lost: list[int]
) -> None:
    """They become NULL and are marked, so that they match nothing, not even NULL."""
    found, is_lost = key_in_type("d.t", "k", values, wanted)
    assert found.type == wanted
    assert found.to_pylist() == expected
    assert is_lost.nonzero()[0].tolist() == lost


def test_nan_stays() -> None:
    """NaN equals NaN in both widths."""
    found, is_lost = key_in_type("d.t", "k", pa.array([NAN]), pa.float32())
    assert str(found[0]) == "nan"
    assert not is_lost.any()


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.string(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.decimal128(10, 2)),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.bool_(), pa.int8()),
    ],
)
def test_other_types_are_refused(found: pa.DataType, wanted: pa.DataType) -> None:
    """Spark casts them by rules that lose digits; here the user says what is meant."""
    with pytest.raises(RecordLayoutError, match=r"table d\.t: key column 'k': .* cannot be compared"):
        key_in_type("d.t", "k", pa.array([None], found), wanted)
