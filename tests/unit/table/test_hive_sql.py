"""Conditions in Hive's SQL: what they mean, and what is refused by name."""

from __future__ import annotations

import operator
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.table.evaluation import evaluate
from mutation_api.table.hive_sql import hive_condition

COLUMNS = {
    name: parse_hive_type(kind)
    for name, kind in {
        "v": "int",
        "l": "bigint",
        "t": "tinyint",
        "m": "decimal(5,2)",
        "wide": "decimal(30,10)",
        "f": "double",
        "r": "float",
        "s": "string",
        "c": "char(5)",
        "d": "date",
        "at": "timestamp",
        "b": "boolean",
        "st": "struct<x:int>",
        "u": "uniontype<int,string>",
        "comment": "int",
    }.items()
}
ROWS = {
    "v": [1, -1, None],
    "l": [1, 2, 3],
    "comment": [1, -1, None],
    "t": [1, -100, None],
    "m": [Decimal("1.50"), Decimal("-2.00"), None],
    "wide": [Decimal(1), Decimal(2), None],
    "f": [0.1, float("nan"), None],
    "r": [0.1, 1.0, None],
    "s": ["ab", "", None],
    "c": ["ab   ", "abc  ", None],
    "d": [date(2020, 1, 2), date(2019, 1, 1), None],
    "at": [datetime(2020, 1, 2), datetime(2019, 1, 1), None],
    "b": [True, False, None],
    "st": [{"x": 1}, {"x": None}, None],
}
TABLE = pa.table(
    {name: pa.array(ROWS[name], arrow_type(COLUMNS[name], timestamp_unit="us")) for name in ROWS}
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("comment > 0", [True, False, None]),
        ("`V` > 0", [True, False, None]),
        ("v in (1, 2)", [True, False, None]),
        ("v not between 0 and 5", [False, True, None]),
        ("not v = 1", [False, True, None]),
        ("v is not null", [True, True, False]),
        ("v is not null and v > 0 or v <= -1", [True, True, None]),
        ("v + l * 2 - 1 > 0", [True, True, None]),
        ("v > 1.5", [False, False, None]),
        ("v > 9999999999999999999", [False, False, None]),
        ("v > 5L", [False, False, None]),
        ("m * v > 1", [True, True, None]),
        ("f < 0.1", [False, False, None]),
        ("r < 0.5", [True, False, None]),
        ("c = 'ab'", [True, False, None]),
        ("s like 'a_%'", [True, False, None]),
        ("s = 'it\\'s'", [False, False, None]),
        ("s not like 'a_%'", [False, True, None]),
        ("not s not like 'a_%'", [True, False, None]),
        ("(v = 1) is true and v is not null", [True, False, False]),
        ("length(s) > 1", [True, False, None]),
        ("trim(s) <> ''", [True, False, None]),
        ("'2020-01-01' < d", [True, False, None]),
        ("year(d) = 2020", [True, False, None]),
        ("at >= '2020-01-01 00:00:00'", [True, False, None]),
        ("st.x > 0", [True, None, None]),
        ("b is true", [True, False, False]),
        ("b is not false", [True, False, True]),
        ("case when v > 0 then true else false end", [True, False, False]),
        ("coalesce(v, 0) > 0", [True, False, False]),
        ("if(v > 0, 1, 2) = 1", [True, False, False]),
        ("v % 2 = -1", [False, True, None]),
        ("v / 2 > 0.4", [True, False, None]),
        ("v <=> 1", [True, False, False]),
        ("abs(v) = 1 and - v < 0", [True, False, None]),
    ],
)
def test_a_condition_means_what_it_means_to_hive(text: str, expected: list[bool | None]) -> None:
    """NULL stays NULL, chars have no padding, numbers are compared exactly, or as doubles beside one."""
    assert evaluate(hive_condition(text, COLUMNS, "CHECK c").holds, TABLE).to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("v", "is a value of type int32, not a condition"),
        ("v > ", "cannot be parsed"),
        ("nope > 1", "nope: there is no such column; the columns are v, l,"),
        ("st.y > 1", "has no field y"),
        ("v > 0; drop table x", "only Hive can interpret|cannot be parsed"),
        ("v in (select 1)", "only Hive can interpret"),
        ("md5(s) = 'a'", r"MD5\(.* only Hive can interpret"),
        ("s rlike '^a'", "only Hive can interpret"),
        ("s = 'a\\u00e9'", "escaped character"),
        ("s like 'a\\\\%'", "only Hive can interpret"),
        ("s > 1", "compares string with int32"),
        ("v = 1.5", "Hive treats NULL as unequal"),
        ("v in (1.5)", "Hive treats NULL as unequal"),
        ("r < 0.1", "is not a float"),
        ("r <> 16777217", "Hive treats NULL|is not a float"),
        ("f = r", "floating-point numbers of two columns"),
        ("f in (0.0)", "only Hive can interpret"),
        ("m > 1.0E0", "only Hive rounds"),
        ("wide * wide > 0", "more than 38 digits"),
        ("m / 2 > 0", "round it differently"),
        ("v / l > 0", "may be zero"),
        ("v % 0 = 0", "may be zero"),
        ("t + t > 0", "smaller than int"),
        ("c = 'ab '", "trailing blanks"),
        ("length(c) > 1", "only Hive can interpret"),
        ("d > '2020-1-1'", "must be written like"),
        ("d > '2020-02-30'", "is not a date"),
        ("u = 1", "compares"),
        ("case v when 1 then true else false end", "only Hive can interpret"),
        ("case when v > 0 then true end", "no ELSE"),
        ("coalesce(v, 'a') = 1", "different types"),
        ("v & 1 = 1", "only Hive can interpret"),
        ("s like 'a' escape '/'", "only Hive can interpret"),
        ("trim(both 'a' from s) = 'b'", "only Hive can interpret"),
        ("length(s, s) = 1", "only Hive can interpret"),
        ("b = true is true", "in parentheses"),
        ("b = (v is null) is null", "in parentheses"),
        ("v in (1) is null", "in parentheses"),
        ("t < cast(300 as tinyint)", "only Hive can interpret"),
        ("v < cast('1_0' as int)", "only Hive can interpret"),
        ("m < cast(1.5 as decimal)", "only Hive can interpret"),
        ("v > 99999999999999999999", "so many digits"),
        (f"m < 0.{'1' * 39}", "so many digits"),
        ("(" * 3000 + "b" + ")" * 3000, "cannot be parsed|nested too deeply"),
    ],
)
def test_what_only_hive_knows_is_refused(text: str, why: str) -> None:
    """The message names the condition and the part of it."""
    with pytest.raises(ConfigurationError, match=rf"^CHECK c.*(?:{why})"):
        hive_condition(text, COLUMNS, "CHECK c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f > 0", [False, True, False]),
        ("not f between 0 and 1", [False, True, False]),
        ("f <> 0.5E0", None),
        ("s like 'a%'", [False, False, False]),
        ("s like 'ab'", None),
        ("day(d) = 1", [False, False, False]),
    ],
)
def test_where_hives_answers_differ(text: str, expected: list[bool] | None) -> None:
    """NaN is greater than all numbers, but vectorized it is not; NULL is clear."""
    unclear = hive_condition(text, COLUMNS, "CHECK c").unclear
    assert (unclear if unclear is None else evaluate(unclear, TABLE).to_pylist()) == expected


def test_what_is_unclear_about_line_breaks_and_old_dates() -> None:
    """Hive 3.1 counts days before 1582-10-15 by another calendar, and its LIKE stops at a line break."""
    rows = pa.table({"s": ["a\nb", "a\u2028b", "ab"], "d": [date(1582, 10, 14), date(1582, 10, 15), None]})
    for text, expected in (("s like 'a%'", [True, True, False]), ("year(d) > 1", [True, False, False])):
        unclear = hive_condition(text, COLUMNS, "CHECK c").unclear
        assert unclear is not None
        assert evaluate(unclear, rows).to_pylist() == expected


MOMENTS = [0, 1, 1000, 1001, -1, -999, -1000, None]
"""Nanoseconds since 1970."""
TEXTS = {"1970-01-01 00:00:00": 0, "1970-01-01 00:00:00.000001": 1000, "1969-12-31 23:59:59.999999": -1000}
OPERATORS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "=": "eq", "<>": "ne"}


@pytest.mark.parametrize("sign", OPERATORS)
def test_nanoseconds_are_compared_exactly(sign: str) -> None:
    """With texts, with microseconds on either side, and with years that nanoseconds do not reach."""
    compare = getattr(operator, OPERATORS[sign])
    types = {"x": parse_hive_type("timestamp"), "y": parse_hive_type("timestamp")}
    for text, nanoseconds in (
        TEXTS | {"9999-12-31 00:00:00": 2**64, "0001-01-01 00:00:00": -(2**64)}
    ).items():
        other = pa.array([datetime.fromisoformat(text)] * len(MOMENTS), pa.timestamp("us"))
        rows = pa.table({"x": pa.array(MOMENTS, pa.timestamp("ns")), "y": other})
        expected = [None if each is None else compare(each, nanoseconds) for each in MOMENTS]
        swapped = [None if each is None else compare(nanoseconds, each) for each in MOMENTS]
        for condition, values in (
            (f"x {sign} '{text}'", expected),
            (f"x {sign} y", expected),
            (f"timestamp '{text}' {sign} x", swapped),
            (f"y {sign} x", swapped),
        ):
            found = hive_condition(condition, types, "CHECK c", {"x"}).holds
            assert evaluate(found, rows).to_pylist() == values, condition
