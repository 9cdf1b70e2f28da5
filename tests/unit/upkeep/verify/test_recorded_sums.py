"""Sums that writers record are those of the values; one value that changed shows."""

from __future__ import annotations

import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from mutation_api.orc.format.protobuf import as_bytes, fields_of
from mutation_api.upkeep.verify.recorded_statistics import differing_sum
from tests.support.orc_parts import parts_of

COLUMNS = {
    "tinyint": (pa.array([1, -5, 7, None], pa.int8()), 6),
    "bigint": (pa.array([2**40, -5, 7, None], pa.int64()), 6),
    "float": (pa.array([1.5, -5.25, 7.0, None], pa.float32()), 6.5),
    "double": (pa.array([1.1, -5.2, 7e3, None], pa.float64()), 1.2),
    "to NaN": (pa.array([1.1, -5.2, 7e3, None], pa.float64()), float("nan")),
    "to infinity": (pa.array([1.5, -5.25, 7.0, None], pa.float32()), float("inf")),
    "from NaN": (pa.array([float("nan"), -5.2, 7e3, None], pa.float64()), 1.0),
    "from infinity": (pa.array([float("-inf"), -5.2, 7e3, None], pa.float32()), 1.0),
    "string": (pa.array(["a", "bcd", "", None]), "bc"),
    "binary": (pa.array([b"a", b"bcd", b"", None]), b"bc"),
    "decimal": (pa.array([Decimal("1.25"), Decimal("-7"), None], pa.decimal128(9, 2)), Decimal("1.26")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_changed_value_shows(name):
    values, other = COLUMNS[name]
    sink = io.BytesIO()
    orc.write_table(pa.table({"a": values}), sink)
    found = [as_bytes(v) for f, v in fields_of(parts_of(sink.getvalue()).footer) if f == 7]
    recorded = dict(fields_of(found[1]))
    assert differing_sum(recorded, values) is None
    changed = pa.array([other, *values.to_pylist()[1:]], values.type)
    assert differing_sum(recorded, changed) is not None


def test_sums_that_overflow_are_not_recorded():
    """Nor are they compared."""
    values = pa.array([2**62] * 4, pa.int64())
    sink = io.BytesIO()
    orc.write_table(pa.table({"a": values}), sink)
    found = [as_bytes(v) for f, v in fields_of(parts_of(sink.getvalue()).footer) if f == 7]
    assert differing_sum(dict(fields_of(found[1])), values) is None


@pytest.mark.parametrize(
    ("kind", "value", "is_compared"),
    [
        (pa.decimal128(18, 6), "499999999999.999999", True),
        (pa.decimal128(18, 6), "999999999999.999998", False),
        (pa.decimal128(19, 6), "9999999999999.999999", True),
        (pa.decimal128(38, 10), "9999999999999999999999999999.9999999998", False),
    ],
)
def test_sums_of_large_decimals_are_not_compared(kind: pa.DataType, value: str, is_compared: bool) -> None:
    """Hive 3.1 records wrong ones if a sum on the way needs more digits, however small the whole sum is."""
    other = pa.array([Decimal("0.25"), Decimal("0.5")], kind)
    sink = io.BytesIO()
    orc.write_table(pa.table({"a": other}), sink)
    recorded = [as_bytes(v) for f, v in fields_of(parts_of(sink.getvalue()).footer) if f == 7][1]
    large = pa.array([Decimal(value), Decimal(f"-{value}")], kind)
    assert (differing_sum(dict(fields_of(recorded)), large) is not None) is is_compared
