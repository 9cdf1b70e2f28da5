"""Values of retyped columns, as real Hive printed them; what no Hive makes is refused."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.errors import TableNotMutableError
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.number_text import java_texts
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm, read_column
from mutation_api.orc.read.type_changes import converted

MOMENTS = [datetime.datetime(1, 1, 1), datetime.datetime(2024, 2, 29, 1, 2, 3, 450000)]
SHOWN: list[tuple[pa.Array, str, int, list[Any]]] = [
    (pa.array([0.1, 1.4e-45, 3.4028235e38], pa.float32()), "string", 3, ["0.1", "1.4E-45", "3.4028235E38"]),
    (pa.array([0.1, 8.999999e9], pa.float32()), "string", 4, ["0.10000000149011612", "8.999999488E9"]),
    (pa.array([0.1, None], pa.float32()), "string", 2, ["0.10000000149011612", None]),
    (pa.array([0.1], pa.float32()), "double", 3, [0.1]),
    (pa.array([0.1], pa.float32()), "double", 4, [0.10000000149011612]),
    (pa.array([2e23, math.nan, -0.0, 1e7]), "varchar(9)", 4, ["1.9999999", None, "-0.0", "1.0E7"]),
    (pa.array([Decimal("-43.000000"), Decimal("0.000380")]), "string", 2, ["-43", "0.00038"]),
    (pa.array([Decimal("0.000000000000004378")]), "char(9)", 4, ["0.0000000"]),
    (pa.array([Decimal("-8350942693825549.066564685603")]), "double", 3, [-8350942693825549.0]),
    (pa.array(MOMENTS, pa.timestamp("us")), "string", 4, ["0001-01-01 00:00:00", "2024-02-29 01:02:03.45"]),
    (pa.array(MOMENTS, pa.timestamp("us")), "string", 3, ["0001-01-03 00:00:00.0", "2024-02-29 01:02:03.45"]),
    (pa.array([datetime.date(1582, 10, 4)]), "string", 3, ["1582-09-24"]),
    (pa.array([datetime.date(1582, 10, 4)]), "varchar(7)", 4, ["1582-10"]),
    (
        pa.array([" 1.5 ", "1d", "0x1p3", "1L", "+Infinity", ""]),
        "double",
        3,
        [1.5, 1.0, 8.0, None, math.inf, None],
    ),
    (pa.array([300, -5], pa.int32()), "tinyint", 4, [None, -5]),
]


@pytest.mark.parametrize(("stored", "text", "release", "expected"), SHOWN)
def test_values_as_hive_shows_them(stored: pa.Array, text: str, release: int, expected: list[Any]) -> None:
    """A few of those that the judged test draws at random."""
    assert converted(stored, parse_hive_type(text), release).to_pylist() == expected
    assert converted(stored.slice(1), parse_hive_type(text), release).to_pylist() == expected[1:]
    assert converted(stored.slice(0, 0), parse_hive_type(text), release).to_pylist() == []


@pytest.mark.parametrize(
    ("stored", "text", "release"),
    [
        (pa.array(["1"]), "int", 2),
        (pa.array(["1"]), "double", 4),
        (pa.array(["2020-01-01"]), "date", 3),
        (pa.array([True]), "string", 4),
        (pa.array([1.5]), "decimal(3,1)", 4),
        (pa.array([1]), "timestamp", 4),
        (pa.array([[1]]), "string", 4),
        (pa.array([1]), "array<int>", 3),
        (pa.array(["a"]), "struct<x:int>", 3),
    ],
)
def test_what_no_hive_makes_is_refused(stored: pa.Array, text: str, release: int) -> None:
    """As a changed type, with both types, not as damage."""
    with pytest.raises(TableNotMutableError, match="type was changed after the file was written") as caught:
        read_column(stored, parse_hive_type(text), ReadOptions(release=release))
    assert text in str(caught.value)


def test_sums_that_exceed_a_long_of_java() -> None:
    """Printed by Java 17: it compares the wrapped sum, and leaves a digit that others round up."""
    floats = pa.array([-6.747519683740358e25, 6.8905147e25, 4.5229143e25], pa.float32())
    assert java_texts(floats, is_float=True).to_pylist() == ["-6.7475196E25", "6.8905146E25", "4.5229142E25"]
    bits = pa.array([4989977542334087168, 4988373478886342656], pa.int64()).view(pa.float64())
    assert java_texts(bits, is_float=False).to_pylist() == ["3.8639048198882016E25", "3.1749648150110332E25"]


def test_texts_of_doubles_by_java_21() -> None:
    """The shortest, but two digits where one would do."""
    values = pa.array([2e23, 5e-324, 1e23, 0.1, 123456789.125, 2.26797932753915e17, math.nan])
    assert java_texts(values, is_float=False, is_shortest=True).to_pylist() == [
        "2.0E23",
        "4.9E-324",
        "1.0E23",
        "0.1",
        "1.23456789125E8",
        "2.26797932753915E17",
        "NaN",
    ]
    options = ReadOptions(release=4, prints_shortest_numbers=True)
    assert read_column(values[:1], parse_hive_type("string"), options).to_pylist() == ["2.0E23"]


def test_in_every_form_of_timestamps() -> None:
    """A text is Hive's, whatever the form in which timestamps are returned."""
    stored = pa.array([10**18 + 1], pa.timestamp("ns"))
    for form in TimestampForm:
        options = ReadOptions(form, release=4)
        shown = read_column(stored, parse_hive_type("string"), options).to_pylist()
        assert shown == ["2001-09-09 01:46:40.000000001"]
