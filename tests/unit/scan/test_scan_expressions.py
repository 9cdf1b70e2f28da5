"""Expressions of Arrow: what they read, their types and values."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mutation_api.errors import RecordLayoutError
from mutation_api.scan.expressions import evaluate, paths_read, result_type

SCHEMA = pa.schema(
    [
        ("source", pa.struct([("a", pa.int64()), ("b", pa.string()), ("a_", pa.int64())])),
        ("target", pa.struct([("a", pa.int64())])),
        ("n", pa.int32()),
    ]
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (pc.field("source", "a") > pc.field("target", "a"), {("source", "a"), ("target", "a")}),
        ((pc.field("n") + 1) * 2, {("n",)}),
        (pc.scalar(True), set()),
        (pc.is_null(pc.field("source", "b")) | (pc.field("n") == 3), {("source", "b"), ("n",)}),
        (pc.is_valid(pc.field("target")) & (pc.field("n") == 3), {("n",)}),
    ],
)
def test_paths_read(expression: pc.Expression, expected: set[tuple[str, ...]]) -> None:
    """Exactly the columns in the expression; a struct as a whole reads none of its fields."""
    assert paths_read(expression, SCHEMA) == expected


def test_types_and_values() -> None:
    """A value for each row, NULL where a part is NULL."""
    rows = pa.table({"n": pa.chunked_array([[1, None], [3]], pa.int32())})
    assert result_type(pc.field("n") > 1, rows.schema, "x") == pa.bool_()
    assert evaluate(pc.field("n") > 1, rows).to_pylist() == [False, None, True]
    assert evaluate(pc.scalar("x"), rows).to_pylist() == ["x"] * 3


@pytest.mark.parametrize("expression", [pc.field("z") == 1, pc.field("n") == "x", pc.field("source", "z")])
def test_what_cannot_be_resolved(expression: pc.Expression) -> None:
    """The message names the expression and the columns."""
    with pytest.raises(RecordLayoutError, match=r"^the filter .* cannot be resolved over source\.a, .*, n: "):
        result_type(expression, SCHEMA, "the filter")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (pc.field("z") == 1, "there is no column z"),
        (pc.field("N") == 1, 'there is no column N, write pc.field("n")'),
        (pc.field("b") == "x", 'there is no column b, write pc.field("source", "b")'),
        (
            pc.field("a") == 1,
            'there is no column a, write pc.field("source", "a") or pc.field("target", "a")',
        ),
        (pc.field("target", "b") == 1, 'there is no column target.b, write pc.field("source", "b")'),
        (pc.field("target", "z") == 1, "there is no column target.z"),
    ],
    ids=str,
)
def test_an_unknown_column_is_named_alone(expression: pc.Expression, reason: str) -> None:
    """With what to write, if its side or its case is all that is wrong."""
    with pytest.raises(RecordLayoutError, match=f": {re.escape(reason)}$"):
        result_type(expression, SCHEMA, "the filter")


@pytest.mark.parametrize(
    "expression",
    [pc.field("day") == "2024-05-01", pc.field("day") < 20240501, pc.field("day").isin([20240501])],
    ids=["equal", "less", "is_in"],
)
def test_a_value_of_another_type_than_the_column(expression: pc.Expression) -> None:
    """What Arrow does not compare is refused with what to give."""
    with pytest.raises(RecordLayoutError, match=r"date32.*must have the column's type, as datetime\.date\("):
        result_type(expression, pa.schema([("day", pa.date32())]), "the filter")


def test_what_the_message_advises_can_be_resolved() -> None:
    """Values of the column's own type; another scale of a decimal is compared, too."""
    schema = pa.schema([("price", pa.decimal128(9, 2))])
    assert result_type(pc.field("price") > Decimal("1.50"), schema, "the filter") == pa.bool_()
    with pytest.raises(RecordLayoutError, match=r'decimal128\(9, 2\), string.*or Decimal\("1\.50"\)$'):
        result_type(pc.field("price") > "1.50", schema, "the filter")
