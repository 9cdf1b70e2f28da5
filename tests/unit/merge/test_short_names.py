"""Conditions whose columns have no side before them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from mutation_api.errors import ConfigurationError
from mutation_api.merge.spark_expressions import names_side, with_sides

pytestmark = pytest.mark.slow

SIDES = {"op": "source", "we ird": "source", "xs": "source", "address": "source", "old": "target"}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("op = 'op'", "source.op = 'op'"),
        ("OP='D' AND old > 1", "source.OP='D' AND target.old > 1"),
        ("source.op = target.op", "source.op = target.op"),
        (
            "`we ird` > 3 OR exists(xs, op -> op > 1)",
            "source.`we ird` > 3 OR exists(source.xs, op -> op > 1)",
        ),
        ("address.city IN ('é', op)", "source.address.city IN ('é', source.op)"),
        ("/* ü */ op(1) = current_date AND other", "/* ü */ op(1) = current_date AND other"),
        ("op /* op */ IS NULL -- op", "source.op /* op */ IS NULL -- op"),
    ],
)
def test_the_side_is_put_before_columns_alone(spark: SparkSession, condition: str, expected: str) -> None:
    """Texts, comments, functions, variables of lambdas and names of no column stay as they are."""
    assert with_sides(spark, condition, SIDES) == expected


def test_sides_are_found(spark: SparkSession) -> None:
    """Only where a column is named with its side."""
    assert names_side(spark, "source.a = Target.b", "target")
    assert not names_side(spark, "source.a = 'target.b'", "target")


def test_what_is_no_condition_is_refused(spark: SparkSession) -> None:
    """The message has the text and the parser's reason."""
    with pytest.raises(ConfigurationError, match=r"'op = = 1' is not an SQL condition: .*at or near '='"):
        with_sides(spark, "op = = 1", SIDES)
