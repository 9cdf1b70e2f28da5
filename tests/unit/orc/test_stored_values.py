"""Conversion of Arrow's values to the form in which Hive reads them from ORC."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from mutation_api.orc.format.stored_values import storable

OLD, NEW = dt.date(1500, 3, 1), dt.date(2020, 1, 1)
OLD_AS_STORED = dt.date(1500, 3, 11)
"""The proleptic date of the day that is 1500-03-01 in the hybrid calendar."""

SHAPES = {
    "plain": (pa.date32(), lambda d: d),
    "struct": (pa.struct([("d", pa.date32())]), lambda d: {"d": d}),
    "list": (pa.list_(pa.date32()), lambda d: [d, None]),
    "map": (pa.map_(pa.string(), pa.date32()), lambda d: [("k", d)]),
    "nested": (
        pa.struct([("l", pa.list_(pa.struct([("d", pa.date32())])))]),
        lambda d: {"l": [{"d": d}, None]},
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_old_dates_are_shifted_wherever_they_stand(shape: str) -> None:
    """Nulls at every level stay what they are, in slices too."""
    type_, wrap = SHAPES[shape]
    values = [wrap(NEW), wrap(OLD), None, wrap(None), wrap(NEW)]
    expected = [wrap(OLD_AS_STORED), None, wrap(None), wrap(NEW)]
    stored = storable(pa.array(values, type_).slice(1), "c", hybrid=True)
    assert stored.values.to_pylist() == pa.array(expected, type_).to_pylist()
    assert stored.values.type == type_
    assert not stored.needs_pyorc


@pytest.mark.parametrize("shape", SHAPES)
def test_new_dates_are_left_alone(shape: str) -> None:
    """Values that need no change are not copied."""
    type_, wrap = SHAPES[shape]
    given = pa.array([wrap(NEW), None], type_)
    assert storable(given, "c", hybrid=True).values is given
