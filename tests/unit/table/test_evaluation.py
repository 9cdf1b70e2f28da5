"""Expressions of Arrow: what they read, their types and values."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mutation_api.errors import RecordLayoutError
from mutation_api.table.evaluation import columns_read, evaluate, paths_read, result_type

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
    assert paths_read(expression, SCHEMA, "x") == expected


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
        (pc.field("z") == 1, "column z does not exist"),
        (pc.field("N") == 1, 'column N does not exist; write pc.field("n")'),
        (pc.field("b") == "x", 'column b does not exist; write pc.field("source", "b")'),
        (
            pc.field("a") == 1,
            'column a does not exist; write pc.field("source", "a") or pc.field("target", "a")',
        ),
        (pc.field("target", "b") == 1, 'column target.b does not exist; write pc.field("source", "b")'),
        (pc.field("target", "z") == 1, "column target.z does not exist"),
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
    with pytest.raises(
        RecordLayoutError, match=r"date32.*must have the column's type, for example datetime\.date\("
    ):
        result_type(expression, pa.schema([("day", pa.date32())]), "the filter")


def test_what_the_message_advises_can_be_resolved() -> None:
    """Values of the column's own type; another scale of a decimal is compared, too."""
    schema = pa.schema([("price", pa.decimal128(9, 2))])
    assert result_type(pc.field("price") > Decimal("1.50"), schema, "the filter") == pa.bool_()
    with pytest.raises(RecordLayoutError, match=r'decimal128\(9, 2\), string.*or Decimal\("1\.50"\)$'):
        result_type(pc.field("price") > "1.50", schema, "the filter")


PRICES = pa.table(
    {
        "price": pa.array([Decimal("1"), Decimal("300.5"), None], pa.decimal128(9, 2)),
        "exact": pa.array([Decimal("1"), Decimal("12.5"), None], pa.decimal128(38, 20)),
        "n": pa.array([1, 300, None], pa.int64()),
    }
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (pc.field("price") > 100, [False, True, None]),
        (pc.field("price") > 10**12, [False, False, None]),
        (pc.field("price") == pc.field("n"), [True, False, None]),
        (pc.field("price").isin([1, 300]), [True, False, False]),
        (
            pc.field("price").isin([Decimal("1.001"), Decimal("300.50"), Decimal(10**12)]),
            [False, True, False],
        ),
        (pc.field("n").isin([Decimal("1.5"), Decimal(300), None]), [False, True, True]),
        (pc.field("exact").isin([Decimal("12.5"), Decimal("1" * 18 + "." + "1" * 20)]), [False, True, False]),
        (~pc.field("n").isin([Decimal(2**63), Decimal("-1")]), [True, True, True]),
        (pc.field("exact") < 12, [True, False, None]),
        (pc.field("exact") < pc.field("n"), [False, True, None]),
        (pc.field("exact") >= pc.field("price"), [True, False, None]),
        (pc.field("price") + 1, [Decimal("2.00"), Decimal("301.50"), None]),
        (pc.field("exact") + 1, [Decimal("2"), Decimal("13.5"), None]),
        (pc.if_else(pc.field("price") == 1, pc.field("price"), 0), [Decimal(1), Decimal(0), None]),
        (pc.coalesce(pc.field("price"), 0), [Decimal(1), Decimal("300.5"), Decimal(0)]),
        ((pc.field("price") > 100) & (pc.field("exact") + pc.field("n") > 1), [False, True, None]),
    ],
    ids=str,
)
def test_whole_numbers_beside_decimals(expression: pc.Expression, expected: list[object]) -> None:
    """Literals, columns and results; of a decimal's digits none is lost."""
    found = evaluate(expression, PRICES)
    assert found.to_pylist() == expected
    assert result_type(expression, PRICES.schema, "x") == found.type


def test_a_result_with_too_many_digits_has_no_value() -> None:
    """It is not cut."""
    rows = pa.table({"exact": pa.array([Decimal(10) ** 17], pa.decimal128(38, 20))})
    with pytest.raises(pa.ArrowInvalid, match="precision"):
        evaluate(pc.field("exact") * 1000, rows)


def test_other_columns_do_not_matter() -> None:
    """Those of types that Arrow cannot compute with, and any number of them."""
    union = pa.dense_union([pa.field("a", pa.int32()), pa.field("b", pa.string())])
    schema = pa.schema([("n", pa.int64()), ("u", union), *((f"c{at}", pa.int8()) for at in range(3000))])
    wide = pc.field("c0") > 1
    for at in range(1, 1000):
        wide &= pc.field(f"c{at}") > at
    assert result_type(pc.field("n") > 1, schema, "x") == pa.bool_()
    assert paths_read(wide, schema, "x") == {(f"c{at}",) for at in range(1000)}


@pytest.mark.parametrize("text", ["FieldPath(0)", "field_ref", "end"])
def test_a_text_names_no_column(text: str) -> None:
    """Whatever it says; a number does, and is refused."""
    schema = pa.schema([("s", pa.string())])
    assert columns_read(pc.field("s") == text, schema, "x") == {"s"}
    with pytest.raises(RecordLayoutError, match="refers to a column by its number"):
        columns_read((pc.field(0) == text) | (pc.field("s") == text), schema, "x")


def test_the_fields_that_a_function_reads_of_a_struct() -> None:
    """Those of the struct itself need not be named by the expression."""
    expression = pc.struct_field(pc.field("source"), "b") == "x"
    assert paths_read(expression, SCHEMA, "x") == {("source", "b")}


@pytest.mark.parametrize("values", [[0.0], [-0.0, 7.5], [0], [Decimal("0.0")]], ids=str)
@pytest.mark.parametrize("data_type", [pa.float32(), pa.float64()], ids=str)
def test_both_zeros_are_one_value(data_type: pa.DataType, values: list[object]) -> None:
    """As for ``=``, here and in Hive."""
    rows = pa.table({"x": pa.array([0.0, -0.0, 1.5, None], data_type)})
    assert evaluate(pc.field("x").isin(values), rows).to_pylist() == [True, True, False, False]
    assert evaluate(pc.field("x") == values[0], rows).to_pylist() == [True, True, False, None]
