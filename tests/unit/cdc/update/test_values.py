"""Values of drivers as columns of Hive: exactly, or refused."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from mutation_api.cdc.update.values import to_hive_column
from mutation_api.errors import RecordValueError
from mutation_api.format.hive_type import parse_hive_type

INVALID: dict[str, tuple[Any, ...]] = {
    "date": (
        "infinity",
        "-infinity",
        "0044-03-15 BC",
        "10000-01-01",
        "0000-01-01",
        "2024-02-30",
        "yesterday",
    ),
    "timestamp": (
        "infinity",
        "0044-03-15 00:00:00 BC",
        "10000-01-01 00:00:00",
        "0000-01-01 00:00:00",
        "24:00",
    ),
    "decimal(9,2)": (Decimal("NaN"), Decimal("-Infinity"), float("inf"), "NaN"),
    "int": (Decimal("NaN"), Decimal("Infinity"), float("nan"), float("-inf")),
}
"""Values that are not a date or a finite number, by type."""


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("int", [1, None, Decimal("2.0"), 3.0], [1, None, 2, 3]),
        ("boolean", [1, False, None], [True, False, None]),
        (
            "decimal(9,2)",
            [Decimal("1.50"), None, Decimal("2.1000")],
            [Decimal("1.50"), None, Decimal("2.10")],
        ),
        ("decimal(9,2)", ["1.5", 2, 0.25], [Decimal("1.50"), Decimal("2.00"), Decimal("0.25")]),
        ("decimal(20,0)", [Decimal("1E+3")], [Decimal(1000)]),
        ("double", [1, 0.1, Decimal("2.5")], [1.0, 0.1, 2.5]),
        ("string", ["ä", 5], ["ä", "5"]),
        ("binary", [b"a", bytearray(b"b"), memoryview(b"c")], [b"a", b"b", b"c"]),
        ("date", [date(2024, 5, 1), "2024-05-02"], [date(2024, 5, 1), date(2024, 5, 2)]),
        ("timestamp", ["2024-05-01 10:00:00.5"], [datetime(2024, 5, 1, 10, 0, 0, 500_000)]),
        ("timestamp", ["2024-05-01 10:00:00.1234560"], [datetime(2024, 5, 1, 10, 0, 0, 123_456)]),
        ("date", ["0001-01-01", None, "9999-12-31"], [date.min, None, date.max]),
        ("string", [Decimal("1E+3"), Decimal("1E-8"), Decimal("NaN")], ["1000", "0.00000001", "NaN"]),
        ("double", [float("inf"), None], [float("inf"), None]),
        ("varchar(3)", [], []),
    ],
)
def test_values_that_fit(kind: str, values: list[Any], expected: list[Any]) -> None:
    """None stays None."""
    assert to_hive_column("c", parse_hive_type(kind), values).to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 2**40),
        ("int", True),
        ("int", "5"),
        ("int", 1.5),
        ("boolean", 2),
        ("decimal(9,2)", Decimal("1.005")),
        ("decimal(9,2)", Decimal("NaN")),
        ("decimal(9,2)", Decimal("Infinity")),
        ("decimal(3,2)", Decimal("10.00")),
        ("decimal(9,2)", "x"),
        ("double", "1"),
        ("string", b"a"),
        ("string", 1.5),
        ("binary", "a"),
        ("date", datetime(2024, 5, 1)),
        ("date", "yesterday"),
        ("timestamp", "2024-05-01T10:00:00+02:00"),
        ("timestamp", "2024-05-01 10:00:00.1234567"),
        ("timestamp", 5),
        *((kind, value) for kind, values in INVALID.items() for value in values),
    ],
)
def test_values_that_do_not_fit(kind: str, value: object) -> None:
    """They are named, with the column; never rounded, cut or NULL."""
    with pytest.raises(RecordValueError, match="column 'c'"):
        to_hive_column("c", parse_hive_type(kind), [None, value])


@pytest.mark.parametrize("kind", INVALID)
def test_values_that_are_not_a_date_or_a_finite_number_become_null_if_asked(kind: str) -> None:
    """And those beside them keep their values; a value that is merely too large is refused as before."""
    fitting = {
        "date": "2024-05-01",
        "timestamp": "2024-05-01 10:00:00",
        "decimal(9,2)": Decimal(1),
        "int": 1,
    }[kind]
    values = [fitting, *INVALID[kind], None]
    found = to_hive_column("c", parse_hive_type(kind), values, nulls_invalid=True)
    assert found.null_count == len(values) - 1
    assert found[0].is_valid
    large = {"decimal(9,2)": Decimal("1E+9"), "int": 2**40}.get(kind, 5)
    with pytest.raises(RecordValueError, match="column 'c'"):
        to_hive_column("c", parse_hive_type(kind), [*values, large], nulls_invalid=True)


def test_a_refused_value_is_followed_by_the_way_on() -> None:
    """For which the caller has the words."""
    with pytest.raises(RecordValueError, match=r"'infinity' is not a date in the years 1 to 9999.*\. Go on"):
        to_hive_column("c", parse_hive_type("date"), ["infinity"], advice=". Go on")
