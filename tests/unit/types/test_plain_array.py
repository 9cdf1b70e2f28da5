"""What types hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mutation_api.types.plain_array import has_timestamp

CLOCK = pa.timestamp("us")


@pytest.mark.parametrize(
    "arrow",
    [
        CLOCK,
        pa.list_(CLOCK),
        pa.map_(pa.string(), pa.struct([("a", pa.list_(CLOCK))])),
        pa.map_(CLOCK, pa.int8()),
        pa.dense_union([pa.field("a", pa.int8()), pa.field("b", CLOCK)]),
    ],
    ids=str,
)
def test_a_timestamp_is_found_at_any_depth(arrow: pa.DataType) -> None:
    """In lists, keys and values of maps, structs and unions."""
    assert has_timestamp(arrow)


@pytest.mark.parametrize(
    "arrow", [pa.date64(), pa.time64("us"), pa.list_(pa.string()), pa.struct([("a", pa.int64())])], ids=str
)
def test_other_types_have_none(arrow: pa.DataType) -> None:
    """Not even those that tell days or times of day."""
    assert not has_timestamp(arrow)
