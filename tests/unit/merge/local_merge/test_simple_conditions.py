"""The conditions that the local engine reads itself: what they mean, and what is left to Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mutation_api.errors import LocalEngineError, RecordLayoutError
from mutation_api.merge.clauses import SOURCE, TARGET
from mutation_api.merge.local_rules import Comparison, parsed_column, parsed_condition, resolved_condition
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
    """The truth of a condition over ROWS, all of them of the source."""
    expression, sides = resolved_condition(text, TYPES, {})
    assert sides == {SOURCE}
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
    ],
)
def test_what_a_condition_means(text: str, expected: list[bool | None]) -> None:
    """Three truth values; names and keywords in any case."""
    assert held(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "op",
        "true",
        "op = 'D' OR n = 1",
        "NOT op = 'D'",
        "(op = 'D')",
        "op = 'D' AND",
        "AND op = 'D'",
        "op = 'D' n = 1",
        "op = 'D' AND AND n = 1",
        "op == 'D'",
        "op <=> 'D'",
        "'D' = op",
        "op = n",
        "op IN ('D')",
        "op LIKE 'D'",
        "op BETWEEN 'A' AND 'D'",
        'op = "D"',
        "`op` = 'D'",
        "op = 'it''s'",
        "op = 'a' 'b'",
        r"op = 'a\'b'",
        r"op = 'a\nb'",
        "op = '${env:HOME}'",
        "op = r'D'",
        "op = 'D' -- all",
        "op = 'D' /* all */",
        "op = 'D';",
        "n = 5L",
        "n = 5.",
        "n = .5",
        "n = 5e3",
        "n = - 5",
        "n = +5",
        "n = 1_000",
        "n + 1 = 5",
        "n = NULL",
        "n IS TRUE",
        "n ISNULL",
        "source .op = 'D'",
        "source.op.x = 'D'",
        "other.op = 'D'",
        "upper(op) = 'D'",
        "day = DATE'2024-02-29'",
        "null = 'D'",
        "interval = 'D'",
        "öp = 'D'",
    ],
)
def test_other_texts_are_for_spark(text: str) -> None:
    """Whatever has more to it, also where only the writing is unusual."""
    with pytest.raises(LocalEngineError, match="only Spark can interpret the condition"):
        parsed_condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "op = 5",
        "op = TRUE",
        "n = '5'",
        "n = 5.0",
        "n = TRUE",
        "big < 1000000000000000000",
        "price = 1.555",
        "price < 10000",
        "price = '1.5'",
        "part = 0",
        "ok = 'true'",
        "ok < TRUE",
        "ok = 1",
        "day = '2024-2-3'",
        "day = '2024-02-30'",
        "day = '0000-01-01'",
        "day = 20240229",
        "at = '2024-02-29 00:00:00'",
        "ratio = 0.5",
        "ratio > 0",
        "raw = 'D'",
        "tags = 'D'",
    ],
)
def test_other_types_are_for_spark(text: str) -> None:
    """The message names column, type and literal."""
    with pytest.raises(LocalEngineError, match=r"only Spark can compare '\w+', of type .*, with .* by"):
        resolved_condition(text, TYPES, {})


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
        LocalEngineError, match=f"only Spark can resolve '{name.lower()}', which is not a column"
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
        with pytest.raises(LocalEngineError, match=f"only Spark can resolve '{side}.x'"):
            resolved_condition(f"{side}.x = 'D'", *sides)


def test_columns_and_comparisons() -> None:
    """What is read of a text."""
    assert parsed_column(" Source.Seen ") == (SOURCE, "seen")
    assert parsed_column("seen") == (None, "seen")
    assert parsed_column("cast(seen as int)") is parsed_column("null") is parsed_column("") is None
    assert parsed_condition("target.A >= 1.50 AND b IS NOT NULL") == (
        Comparison(TARGET, "a", ">=", Decimal("1.50")),
        Comparison(None, "b", "IS NOT NULL"),
    )
    expression, _ = resolved_condition("op = 'D'", {"op": pa.string()}, {})
    assert expression.equals(pc.field(SOURCE, "op") == "D")
