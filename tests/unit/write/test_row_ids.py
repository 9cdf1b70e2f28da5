"""ROW__IDs: complete, in part or missing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mutation_api.format.event import RowIds


@pytest.mark.thorough
def test_parts_of_row_ids() -> None:
    """Present and missing parts, and how messages show them."""
    row_ids = RowIds.of_columns(
        [pa.array([1, None, None]), pa.array([2, 3, None], pa.int32()), pa.array([4, -1, None])],
        pa.array(["ds=a", None, None]),
    )
    assert len(row_ids) == 3
    assert row_ids.has_bucket.tolist() == [True, True, False]
    assert row_ids.is_complete.tolist() == [True, False, False]
    assert [row_ids.shown(at) for at in range(3)] == [(1, 2, 4, "ds=a"), (None, 3, -1), None]
    assert not RowIds.none(2).has_bucket.any()
    assert RowIds.complete(row_ids.numbers).is_complete.all()
    with pytest.raises(pa.ArrowException):
        RowIds.of_columns([pa.array(["x"]), pa.array([1]), pa.array([1])])
