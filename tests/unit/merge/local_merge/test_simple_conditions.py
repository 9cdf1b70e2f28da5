"""The conditions that the local engine reads itself: what they mean, and what is left to Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mutation_api.errors import RecordLayoutError, UnsupportedLocallyError
from mutation_api.merge.clauses import SOURCE, TARGET
from mutation_api.merge.sql_conditions import parsed_column, parsed_condition, resolved_condition
from mutation_api.table.evaluation import evaluate

TYPES = {
    "op": pa.string(),
    "n": pa.int8(),
    "big": pa.int64(),
    "price": pa.decimal128(6, 2),
    "part": pa.decimal128(2, 2),
    "ok": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "ratio": pa.float64(),
    "narrow": pa.float32(),
    "raw": pa.binary(),
    "tags": pa.list_(pa.string()),
    "source": pa.string(),
}
ROWS: list[dict[str, Any]] = [
    {
        "op": "D",
        "n": 5,
        "big": 2**40,
        "price": Decimal("1.50"),
        "part": Decimal("0.10"),
        "ok": True,
        "day": datetime.date(2024, 2, 29),
        "ratio": 0.5,
        "tags": [],
        "source": "s",
    },
    {"op": "é", "n": -5, "big": -1, "price": Decimal(0), "ok": False, "day": datetime.date(1, 1, 1)},
    {},
]


SIDES = {"id": pa.int32(), "op": pa.string()}, {"id": pa.int32(), "old": pa.int32()}
"""Columns of the source and of the table."""


def held(text: str) -> list[bool | None]:
    """The truth of a condition over ROWS, all of them of the source, if it reads any."""
    expression, sides = resolved_condition(text, TYPES, {})
    assert sides <= {SOURCE}
    rows = pa.array(ROWS, pa.struct(list(TYPES.items())))
    found: list[bool | None] = evaluate(expression, pa.table({SOURCE: rows})).to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("op = 'D'", [True, False, None]),
        ("OP='D'", [True, False, None]),
        (" source.op <> 'D' ", [False, True, None]),
        ("Source.Op != 'D'", [False, True, None]),
        ("op > 'Z'", [False, True, None]),
        ("op = ''", [False, False, None]),
        ("op = 'a AND b -- c'", [False, False, None]),
        ("source = 's'", [True, None, None]),
        ("n < 300", [True, True, None]),
        ("n >= -5", [True, True, None]),
        ("n = 005", [True, False, None]),
        ("big > 999999999999", [True, False, None]),
        ("price = 1.5", [True, False, None]),
        ("price <= 0", [False, True, None]),
        ("price <> -1.50", [True, True, None]),
        ("ok = TRUE", [True, False, None]),
        ("ok <> false", [True, False, None]),
        ("day = '2024-02-29'", [True, False, None]),
        ("day < '2024-02-29'", [False, True, None]),
        ("n IS NULL", [False, False, True]),
        ("tags is  not\tnull", [True, False, False]),
        ("ratio IS NULL", [False, True, True]),
        ("op = 'D' AND n > 1", [True, False, None]),
        ("op = 'D'and n > 9 AND ok IS NOT NULL", [False, False, False]),
        ("true", [True, True, True]),
        ("op = 'D' OR n = -5 OR NULL IS NULL AND ok", [True, True, None]),
        ("NOT (op = 'D' AND ok)", [False, True, None]),
        ("! ok", [False, True, None]),
        ("NOT op = 'D' AND NOT n IS NULL", [False, True, False]),
        ("'D' == op", [True, False, None]),
        ("`source`.`op` <=> 'D'", [True, False, False]),
        ("op IS NOT DISTINCT FROM 'D'", [True, False, False]),
        ("op = NULL", [None, None, None]),
        ("op <=> null", [False, False, True]),
        ("null = 'D'", [None, None, None]),
        ("op IN ('D', 'x')", [True, False, None]),
        ("n NOT IN (5, NULL)", [False, None, None]),
        ("n BETWEEN - 5 AND +0", [False, True, None]),
        ("op BETWEEN 'A' AND 'D'", [True, False, None]),
        ("op LIKE '_'", [True, True, None]),
        ("op NOT LIKE 'D%'", [False, True, None]),
        ("'50%' LIKE '5!__' ESCAPE '!'", [False, False, False]),
        ("op LIKE '!_!%' ESCAPE '!'", [False, False, None]),
        ("source .op = 'D'", [True, False, None]),
        ("day = DATE'2024-02-29'", [True, False, None]),
        ("day = CAST('2024-02-29' AS DATE)", [True, False, None]),
        ("day IN ('2024-02-29', '2024-03-01')", [True, False, None]),
        ("at < TIMESTAMP_NTZ '2024-02-29 00:00:00.5'", [None, None, None]),
        ("n = 5L AND n = 5. AND n > .5 AND n = 5.0", [True, False, None]),
        ("n >= -2147483648", [True, True, None]),
        ("n + 1 = 6", [True, False, None]),
        ("n % 2 = -1", [False, True, None]),
        ("price * 2 - n > -2.5", [True, True, None]),
        ("big < 1000000000000000000", [True, True, None]),
        ("price = 1.555", [False, False, None]),
        ("price < 10000", [True, True, None]),
        ("price IN (1.5, 2)", [True, False, None]),
        ("part = 0", [False, None, None]),
        ("ok = (n > 0)", [True, True, None]),
        ("ok IS TRUE", [True, False, False]),
        ("ok IS NOT FALSE", [True, False, True]),
        ("coalesce(price, n, 0) = 0", [False, True, True]),
        ("nvl(op, '') = ''", [False, False, True]),
        ("if(ok, n, 0) = 5", [True, False, False]),
        ("CASE WHEN n > 0 THEN 'plus' WHEN n < 0 THEN 'minus' END = 'plus'", [True, False, None]),
        ("cast(n AS string) = '5'", [True, False, None]),
        ("cast(price AS decimal(8,3)) = 1.5", [True, False, None]),
        ("cast(n AS bigint) * 100 = 500", [True, False, None]),
        ("cast(NULL AS int) IS NULL", [True, True, True]),
        ("length(trim(op)) = 1", [True, True, None]),
        ("year(day) = 2024", [True, False, None]),
        ("ratio / 2 IS NULL", [False, True, True]),
    ],
)
def test_what_a_condition_means(text: str, expected: list[bool | None]) -> None:
    """Three truth values; names and keywords in any case."""
    assert held(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "because it is empty"),
        ("op = 'D' AND", "it cannot be parsed"),
        ("AND op = 'D'", "it cannot be parsed"),
        ("op = 'D' n = 1", "it cannot be parsed"),
        ("op = 'D' AND AND n = 1", "it cannot be parsed"),
        ("op = 'D", "Error tokenizing"),
        ("n !> 5", ""),
        ('op = "D"', 'because of "'),
        ("op = 'it''s'", "because of CONCAT('it', 's')"),
        ("op = 'a' 'b'", "because of CONCAT('a', 'b')"),
        (r"op = 'a\'b'", "because of \\"),
        (r"op = 'a\nb'", "because of \\"),
        ("op = '${env:HOME}'", "because of ${"),
        ("op = r'D'", "because of 'r' before a string"),
        ("op = int '5'", "because of 'int' before a string"),
        ("op = X'1F'", "because of 'X' before a string"),
        ("op = 'D' -- all", "because of '-- all'"),
        ("op = 'D' /* all */", "because of '/* all */'"),
        ("/* all */ op = 'D'", "because of '/* all */ op'"),
        ("op = 'D';", "because of ';'"),
        ("op\u00a0= 'D'", "because of"),
        ("n = 1_000", "because of '1_000'"),
        ("n ISNULL", "because of 'ISNULL'"),
        ("ok IS UNKNOWN", "because of 'UNKNOWN'"),
        ("n = 5 IS NULL", "it has IS after a comparison"),
        ("n = 5 = ok", "put n = 5 in parentheses"),
        ("n = big IN (5)", "put big IN (5) in parentheses"),
        ("n BETWEEN 1 AND 2 = ok", "put n BETWEEN 1 AND 2 in parentheses"),
        ("op LIKE 'D' = ok", "put op LIKE 'D' in parentheses"),
        ("ok = NOT ok", "put NOT ok in parentheses"),
        ("source.op.x = 'D'", "because of the name source.op.x"),
        ("other.op = 'D'", "because of the name other.op"),
        ("a.b.c.d.e = 'D'", "because of the name a.b.c.d"),
        ("upper(op) = 'D'", "because of the function upper"),
        ("`length`(op) = 1", "because of the function `length`"),
        ("like('D%', op)", "because of the function like"),
        ("int(op) = 5", "because of the function int"),
        ("op::int = 5", "because of '::'"),
        ("ok && ok", "because of '&&'"),
        ("op ~~ 'D'", "because of '~~'"),
        ("trim(BOTH FROM op) = 'D'", "because of 'FROM'"),
        ("op || 'x' = 'Dx'", "because of '||'"),
        ("op RLIKE op", "it cannot be parsed"),
        ("op LIKE ANY ('D', 'E')", "because of"),
        ("op IS DISTINCT FROM 'D'", "because of op IS DISTINCT FROM 'D'"),
        ("n DIV 2 = 1", "because of n DIV 2"),
        ("n & 1 = 1", "because of '&'"),
        ("tags[0] = 'D'", "because of '['"),
        ("exists(tags, x -> x = 'D')", "because of the function exists"),
        ("n IN (SELECT 1)", "it cannot be parsed"),
        ("(op, n) = ('D', 5)", "because of (op, n)"),
        ("op = :x", "because of ':'"),
        ("op = ?", "because of '?'"),
        ("cast(op AS char(3)) = 'D'", "because of 'char'"),
        ("cast(op AS varchar(3)) = 'D'", "because of 'varchar'"),
        ("interval = 'D'", "because of 'interval'"),
        ("öp = 'D'", "because of 'öp'"),
        ("(" * 5000 + "ok" + ")" * 5000, ""),
    ],
)
def test_other_texts_are_for_spark(text: str, part: str) -> None:
    """Whatever another parser may read differently; the message names the part."""
    with pytest.raises(UnsupportedLocallyError) as caught:
        parsed_condition(text)
    message = str(caught.value)
    assert message.startswith(f"only Spark can interpret the condition {text!r}")
    assert message.count("only Spark") == 1
    assert part in message


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("price / 2 > 1 OR cast(op AS int) = 5", "price / 2: Hive releases round it differently"),
        ("cast(op AS int) = 5", "CAST(op AS INT): the conversion from string may fail or change the value"),
        ("cast(price AS decimal(5,2)) = 1", "CAST(price AS DECIMAL(5, 2)): the conversion from decimal"),
        ("cast(big AS int) = 1", "CAST(big AS INT): the conversion from int64 may fail"),
        ("cast(price AS double) = 5", "CAST(price AS DOUBLE): the conversion from decimal"),
        ("cast(price AS string) = '1.50'", "CAST(price AS STRING): the conversion from decimal"),
        ("cast(at AS date) = '2024-02-29'", "CAST(at AS DATE): the conversion from timestamp[us]"),
        ("at > TIMESTAMP '2024-02-29 00:00:00'", "Write TIMESTAMP_NTZ before the string"),
        ("at > TIMESTAMP_NTZ '2024-02-29'", "'2024-02-29' must be written like 2024-05-01 10:00:00"),
        ("n % part = 1", "n % part"),
        ("n % n = 1", "n % n: its type is smaller than int"),
        ("n % 0 = 1", "n % 0: its divisor may be zero"),
        ("big % -1 = 0", "big % -1"),
        ("-n = 5", "-n: its type is smaller than int"),
        ("op + 1 = 5", "op + 1"),
        ("wide * wide > 1", "wide * wide: its result may need more than 38 digits"),
        ("wide + big > 1", "wide + big: its result may need more than 38 digits"),
        ("big IN (1.5, 0.12345678901234567890)", "it needs more than 38 digits"),
        ("coalesce(op, n) = 'D'", "COALESCE(op, n): its values have no common type here"),
        ("coalesce(wide, big, part) = 1", "its values have no common type here"),
        ("CASE n WHEN 5 THEN true ELSE false END", "CASE n WHEN 5 THEN TRUE ELSE FALSE END"),
        ("if(n, true, false)", "n: it is of type int8, not a condition"),
        ("op AND ok", "op: it is of type string, not a condition"),
        ("op LIKE op", "op LIKE op"),
        ("n LIKE '5'", "n LIKE '5'"),
        ("op LIKE '!D' ESCAPE '!'", "an escape must stand before %, _ or itself"),
        ("op LIKE 'D!' ESCAPE '!'", "an escape must stand before %, _ or itself"),
        ("op LIKE 'D%' ESCAPE '%'", "op LIKE 'D%' ESCAPE '%'"),
        ("length(tags) = 1", "LENGTH(tags)"),
        ("year(at) = 2024", "YEAR(at)"),
        ("trim(LEADING 'D' FROM op) = ''", "because of 'LEADING' before a string"),
        (" OR ".join(["n = 1"] * 5000), "nested too deeply"),
    ],
)
def test_other_values_are_for_spark(text: str, part: str) -> None:
    """What may fail, be rounded, or depend on a time zone; the message names the part."""
    wide = {"wide": pa.decimal128(38, 20)}
    with pytest.raises(UnsupportedLocallyError, match=r"only Spark|nested too deeply") as caught:
        resolved_condition(text, {**TYPES, **wide}, {})
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "op = 5",
        "op = TRUE",
        "op = n",
        "n = '5'",
        "n = TRUE",
        "price = '1.5'",
        "big = 0.12345678901234567890",
        "ok = 'true'",
        "ok < TRUE",
        "ok = 1",
        "day = '2024-2-3'",
        "day = '2024-02-30'",
        "day = '0000-01-01'",
        "day = 20240229",
        "day = at",
        "at = '2024-02-29 00:00:00'",
        "ratio = price",
        "narrow = 0.5",
        "ratio IN (0.5)",
        "raw = 'D'",
        "tags = 'D'",
    ],
)
def test_other_types_are_for_spark(text: str) -> None:
    """The message names column, type and literal."""
    expected = r"only Spark can (compare '\w+', of type .*, with .* by|interpret ratio IN)"
    with pytest.raises(UnsupportedLocallyError, match=expected):
        resolved_condition(text, TYPES, {})


@pytest.mark.parametrize("text", ["op", "n + 1", "NULL"])
def test_a_value_is_not_a_condition(text: str) -> None:
    """An error with either engine."""
    with pytest.raises(RecordLayoutError, match=r"must be boolean, got (string|int32|null)"):
        resolved_condition(text, TYPES, {})


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.large_string(), "D", "x LIKE 'D' AND x = 'D'"),
        (pa.uint16(), 40_000, "x = 40000 AND x + 1 > 40000"),
        (pa.uint64(), 2**63, "x = 9223372036854775808"),
        (pa.timestamp("s"), 10, "x = TIMESTAMP_NTZ '1970-01-01 00:00:10'"),
        (pa.timestamp("ns"), 10, "x > TIMESTAMP_NTZ '1970-01-01 00:00:00'"),
        (pa.null(), None, "x IS NULL AND (x = 1 OR x <=> NULL)"),
    ],
)
def test_other_types_of_arrow(kind: pa.DataType, value: Any, text: str) -> None:
    """Sources in Python have types that files do not have."""
    expression, _ = resolved_condition(text, {"x": kind}, {})
    rows = pa.StructArray.from_arrays([pa.array([value], kind)], ["x"])
    assert evaluate(expression, pa.table({SOURCE: rows})).to_pylist() == [True]


def test_names_that_are_words_of_sql() -> None:
    """Columns may have the names of keywords, except of those that this grammar needs."""
    names = [
        "order",
        "values",
        "table",
        "select",
        "left",
        "date",
        "timestamp",
        "user",
        "if",
        "cast",
        "like me",
    ]
    kinds = dict.fromkeys(names, pa.int32())
    for name in names:
        text = f"`{name}` = 1 AND source.`{name}` IN (1, 2)"
        assert resolved_condition(text, kinds, {})[1] == {SOURCE}
        if " " not in name:
            assert resolved_condition(text.replace("`", "").upper(), kinds, {})[1] == {SOURCE}


def test_the_side_of_a_column() -> None:
    """The first that has it, unless the text says it."""

    def sides(text: str, *preferred: str) -> set[str]:
        return {*resolved_condition(text, *SIDES, preferred or (SOURCE, TARGET))[1]}

    assert sides("id = 1") == {SOURCE}
    assert sides("old = 1") == {TARGET}
    assert sides("id = 1 AND Target.id = 1") == {SOURCE, TARGET}
    assert sides("id = 1", TARGET) == {TARGET}
    assert sides("source.id = 1", TARGET) == {SOURCE}


@pytest.mark.parametrize(
    ("text", "preferred", "reason"),
    [
        ("more = 1", (SOURCE, TARGET), "source (id, op) and target (id, old): column more does not exist"),
        ("old = 1", (SOURCE,), "source (id, op): column old does not exist"),
        ("op = 1", (TARGET,), "target (id, old): column op does not exist"),
        (
            "Target.Op = 'x'",
            (SOURCE, TARGET),
            "source (id, op) and target (id, old): column target.op does not exist",
        ),
        ("source.user = 'x'", (SOURCE,), "source (id, op): column source.user does not exist"),
        ("op = 5 AND more IS NULL", (SOURCE,), "source (id, op): column more does not exist"),
    ],
)
def test_a_column_that_no_side_has(text: str, preferred: tuple[str, ...], reason: str) -> None:
    """An error in either engine, so Spark is not asked; also if something else is left to it."""
    with pytest.raises(RecordLayoutError) as caught:
        resolved_condition(text, *SIDES, preferred)
    assert str(caught.value) == f"the condition {text!r} cannot be resolved over {reason}"


@pytest.mark.parametrize("name", ["current_date", "USER", "session_user", "localtime", "current_soon"])
def test_functions_without_parentheses_are_for_spark(name: str) -> None:
    """Unless a column is called so, or the text says that it is one of a side."""
    with pytest.raises(
        UnsupportedLocallyError, match=f"only Spark can resolve '{name.lower()}', which is not a column"
    ):
        resolved_condition(f"{name} = 'x'", *SIDES)
    kinds = {name.lower(): pa.string()}
    assert resolved_condition(f"{name} = 'x'", kinds, {})[1] == {SOURCE}
    with pytest.raises(RecordLayoutError):
        resolved_condition(f"source.{name} = 'x'", *SIDES)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_struct_called_as_a_side_is_for_spark(side: str) -> None:
    """The name may be a field of it."""
    kinds = {side: pa.struct([("x", pa.string())])}
    for sides in (({}, kinds), (kinds, {})):
        with pytest.raises(UnsupportedLocallyError, match=f"only Spark can resolve '{side}.x'"):
            resolved_condition(f"{side}.x = 'D'", *sides)


def test_columns_of_orders() -> None:
    """What is read of a text."""
    assert parsed_column(" Source.Seen ") == (SOURCE, "seen")
    assert parsed_column("seen") == (None, "seen")
    assert parsed_column("cast(seen as int)") is parsed_column("null") is parsed_column("") is None
    assert parsed_column("`Target`.`we ird`") == (TARGET, "we ird")
    assert parsed_column("n + 1") is parsed_column("other.n") is None
    expression, _ = resolved_condition("op = 'D'", {"op": pa.string()}, {})
    assert expression.equals(pc.field(SOURCE, "op") == "D")
