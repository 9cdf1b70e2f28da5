"""Properties of type texts and of the conversion to a column's type."""

from __future__ import annotations

import datetime
import math
from decimal import ROUND_HALF_UP, Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mutation_api.errors import RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import HiveType, arrow_type, parse_hive_type
from mutation_api.table.acid_table import AcidTable, AcidTableSerializer
from tests.property.strategies import (
    INTEGER_BITS,
    acid_tables,
    decimal_types,
    exact_decimal,
    hive_types,
    scalar_types,
    scalar_values,
    texts,
)


def convert(values: list[object], hive_type: HiveType, arrow: pa.DataType | None = None) -> list[object]:
    array = convert_to_column(pa.array(values, arrow), hive_type, column="c", timestamp_unit="us")
    array.validate(full=True)
    assert array.type == arrow_type(hive_type, timestamp_unit="us")
    return array.to_pylist()


def same(left: object, right: object) -> bool:
    return left == right or (left != left and right != right)


@given(hive_types())
def test_text_of_a_type_parses_to_the_same_type(hive_type: HiveType) -> None:
    """Parsing is the inverse of printing, for types nested in any way."""
    assert parse_hive_type(hive_type.text) == hive_type
    assert (
        parse_hive_type(hive_type.text.replace("<", " < ").replace(",", " , ").upper()).kind == hive_type.kind
    )


@given(
    scalar_types()
    .filter(lambda t: t.kind != "char")
    .flatmap(lambda t: st.tuples(st.just(t), st.lists(st.none() | scalar_values(t))))
)
def test_values_of_the_type_pass_unchanged(drawn: tuple[HiveType, list[object]]) -> None:
    """A value that a column can hold is stored as it is, nulls included (a char loses its padding only)."""
    hive_type, values = drawn
    found = convert(values, hive_type, arrow_type(hive_type, timestamp_unit="us"))
    assert all(same(a, b) for a, b in zip(found, values, strict=True))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.sampled_from(sorted(INTEGER_BITS)))
def test_integers_fit_or_are_refused_by_row(values: list[int], kind: str) -> None:
    """Narrowing keeps each value, or names the first row that it would change."""
    limit = 2 ** (INTEGER_BITS[kind] - 1)
    bad = [row for row, value in enumerate(values) if not -limit <= value < limit]
    if not bad:
        assert convert(values, HiveType(kind), pa.int64()) == values
        return
    with pytest.raises(RecordValueError, match=rf"'c'.* row {bad[0]}: value {values[bad[0]]} "):
        convert(values, HiveType(kind), pa.int64())


@given(st.floats() | st.integers(-(2**70), 2**70).map(float), st.sampled_from(sorted(INTEGER_BITS)))
def test_floats_become_integers_only_if_whole(value: float, kind: str) -> None:
    """A fraction, a NaN, an infinity and a number out of range are refused; whole numbers are exact.

    A double from 2**53 on may be another number that was rounded.
    """
    limit = min(2 ** (INTEGER_BITS[kind] - 1), 2**53)
    if math.isfinite(value) and value == int(value) and -limit <= int(value) < limit and abs(value) < 2**53:
        assert convert([None, value], HiveType(kind), pa.float64()) == [None, int(value)]
        return
    with pytest.raises(RecordValueError, match="row 1"):
        convert([None, value], HiveType(kind), pa.float64())


@given(decimal_types(), decimal_types(), st.data())
def test_decimals_round_half_up_or_are_refused(
    source: HiveType, target: HiveType, data: st.DataObject
) -> None:
    """Digits after the point are rounded half away from zero; too many before it are refused."""
    value = data.draw(scalar_values(source))
    assert isinstance(value, Decimal)
    with localcontext() as context:
        context.prec = 100
        rounded = value.quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP)
        fits = abs(rounded) < Decimal(10) ** (target.precision - target.scale)
    array = pa.array([None, value], pa.decimal128(source.precision, source.scale))
    if fits:
        assert convert_to_column(array, target, column="c").to_pylist() == [None, rounded]
        return
    with pytest.raises(RecordValueError, match="row 1"):
        convert_to_column(array, target, column="c")


@given(st.integers(-(2**63), 2**63 - 1), decimal_types())
def test_integers_become_decimals_exactly_or_not_at_all(value: int, target: HiveType) -> None:
    """An integer keeps its value; one with too many digits is refused."""
    if abs(value) < 10 ** (target.precision - target.scale):
        assert convert([value], target, pa.int64()) == [exact_decimal(value * 10**target.scale, target.scale)]
        return
    with pytest.raises(RecordValueError, match="row 0"):
        convert([value], target, pa.int64())


@given(st.floats(), decimal_types())
def test_a_float_becomes_the_decimal_that_its_text_says(value: float, target: HiveType) -> None:
    """1.1 becomes 1.10; a float whose shortest text has more digits than the column is refused.

    So is one from 2**53 on, which may be another number that was rounded.
    """
    if math.isfinite(value) and abs(value) < 2**53:
        exact = Decimal(repr(value)).normalize()
        exponent = exact.as_tuple().exponent
        assert isinstance(exponent, int)
        if -exponent <= target.scale and abs(exact) < Decimal(10) ** (target.precision - target.scale):
            assert convert([value], target, pa.float64()) == [exact]
            return
    with pytest.raises(RecordValueError, match="row 0"):
        convert([value], target, pa.float64())


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from([("float", 24), ("double", 53)]))
def test_integers_become_floats_only_if_exact(value: int, target: tuple[str, int]) -> None:
    """An integer that needs more bits than the mantissa has is refused, however large it is."""
    kind, bits = target
    odd = abs(value)
    while odd and odd % 2 == 0:
        odd //= 2
    if odd < 2**bits:
        assert convert([value], HiveType(kind), pa.int64()) == [float(value)]
        return
    with pytest.raises(RecordValueError, match="row 0"):
        convert([value], HiveType(kind), pa.int64())


@given(texts(), st.integers(1, 50))
def test_texts_are_cut_by_code_points(text: str, length: int) -> None:
    """varchar(n) keeps n code points, not bytes or UTF-16 units; char(n) loses its trailing blanks too."""
    assert convert([text], HiveType("varchar", length=length)) == [text[:length]]
    assert convert([text], HiveType("char", length=length)) == [text[:length].rstrip(" ")]


@given(st.datetimes(), st.sampled_from(["s", "ms", "us"]))
def test_timestamps_of_any_unit_keep_their_wall_clock(moment: datetime.datetime, unit: str) -> None:
    """A coarser unit becomes microseconds without change over the years 1 to 9999."""
    moment = moment.replace(
        microsecond={"s": 0, "ms": moment.microsecond // 1000 * 1000}.get(unit, moment.microsecond)
    )
    assert convert([moment], HiveType("timestamp"), pa.timestamp(unit)) == [moment]


@given(st.integers(-(2**63), 2**63 - 1))
def test_nanoseconds_are_never_dropped(value: int) -> None:
    """Digits below the unit of the result are refused, not rounded."""
    array = pa.array([value]).view(pa.timestamp("ns"))
    if value % 1000 == 0:
        found = convert_to_column(array, HiveType("timestamp"), column="c", timestamp_unit="us")
        assert found.view(pa.int64()).to_pylist() == [value // 1000]
        return
    with pytest.raises(RecordValueError, match="row 0"):
        convert_to_column(array, HiveType("timestamp"), column="c", timestamp_unit="us")


@given(
    st.lists(st.none() | st.lists(st.none() | st.integers(-200, 200), max_size=4), max_size=6),
    st.integers(0, 3),
)
def test_a_bad_element_is_named_by_its_outer_row(rows: list[list[int | None] | None], skipped: int) -> None:
    """Of nested values the row of the table is named; what a slice leaves out is not looked at."""
    assume(skipped <= len(rows))
    array = pa.array(rows, pa.list_(pa.int64()))[skipped:]
    shown = rows[skipped:]
    bad = [
        row
        for row, each in enumerate(shown)
        if any(v is not None and not -128 <= v <= 127 for v in each or [])
    ]
    target = parse_hive_type("array<tinyint>")
    if not bad:
        assert convert_to_column(array, target, column="c").to_pylist() == shown
        return
    with pytest.raises(RecordValueError, match=f"row {bad[0]}, element: "):
        convert_to_column(array, target, column="c")


@pytest.mark.thorough
@given(acid_tables())
def test_a_table_survives_its_text(table: AcidTable) -> None:
    """Decode is the inverse of encode, and the text is safe as a configuration value."""
    text = AcidTableSerializer.encode(table)
    assert AcidTableSerializer.decode(text) == table
    assert text.isascii()
    assert not set(text) & set(" \n\r\t${}'\"\\,;")
