"""Expressions of Arrow: what they read, their types and values."""

from __future__ import annotations

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
