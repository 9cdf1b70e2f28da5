"""Values of DEFAULT constraints."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.table.default_value import default_value

NOW = datetime(2024, 5, 1, 10, 20, 30, 123456)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("'x'", "string", "x"),
        ("'it\\'s \"é\"'", "string", 'it\'s "é"'),
        ("''", "string", ""),
        ("5", "int", 5),
        ("5Y", "tinyint", 5),
        ("5L", "bigint", 5),
        ("cast('7' as int)", "int", 7),
        ("cast(5 as string)", "string", "5"),
        ("cast(007 as string)", "string", "7"),
        ("cast(-7 as int)", "int", -7),
        ("cast((-1.5) as decimal(3,1))", "decimal(3,1)", Decimal("-1.5")),
        ("true", "boolean", True),
        ("1.0E2", "double", 100.0),
        ("cast(1.5 as float)", "float", 1.5),
        ("1.5", "decimal(2,1)", Decimal("1.5")),
        ("cast(1.5 as decimal(10,2))", "decimal(10,2)", Decimal("1.50")),
        ("cast('xyzab' as varchar(3))", "varchar(3)", "xyz"),
        ("date '2020-01-02'", "date", date(2020, 1, 2)),
        ("timestamp '2020-01-02 03:04:05'", "timestamp", datetime(2020, 1, 2, 3, 4, 5)),
        ("cast('2020-01-02 03:04:05.5' as timestamp)", "timestamp", datetime(2020, 1, 2, 3, 4, 5, 500000)),
        ("current_date()", "date", date(2024, 5, 1)),
        ("CURRENT_DATE", "date", date(2024, 5, 1)),
        ("current_timestamp()", "timestamp", NOW),
        ("current_user()", "string", "etl"),
    ],
)
def test_a_default_has_the_value_that_hive_stores(text: str, kind: str, expected: object) -> None:
    """Literals, casts of one, times and the user, with the column's type."""
    found = default_value(text, parse_hive_type(kind), "DEFAULT", NOW, "etl")
    assert found.as_py() == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("concat('a', 'b')", "string"),
        ("unhex('00')", "binary"),
        ("'abc'", "binary"),
        ("cast(1.5 as string)", "string"),
        ("cast(date '2024-1-1' as string)", "string"),
        ("cast(timestamp '2024-01-01 00:00:00.100' as string)", "string"),
        ("cast(cast('abcdef' as varchar(3)) as string)", "string"),
        ("cast(cast(1.9 as int) as double)", "double"),
        ("cast(cast(1.5 as decimal) as decimal(5,1))", "decimal(5,1)"),
        ("cast('1_0' as int)", "int"),
        ("cast('nan' as double)", "double"),
        ("9223372036854775808", "bigint"),
        ("'abc'", "int"),
        ("300", "tinyint"),
        ("1.25", "decimal(2,1)"),
        ("array(1)", "array<int>"),
        ("'a' 'b' (", "string"),
    ],
)
def test_other_defaults_are_refused(text: str, kind: str) -> None:
    """The message says to give a value."""
    with pytest.raises(ConfigurationError, match=r"Give the column a value|cannot be parsed"):
        default_value(text, parse_hive_type(kind), "DEFAULT", NOW, "etl")
