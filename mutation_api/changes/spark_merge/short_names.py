"""Completes column names without ``source.`` or ``target.`` in conditions that users type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from mutation_api.changes.clauses import SOURCE, TARGET
from mutation_api.errors import ConfigurationError
from mutation_api.spark.jvm import sql_parser

__all__ = ["names_side", "sides_of", "with_sides"]


def with_sides(spark: SparkSession, condition: str, sides: Mapping[str, str]) -> str:
    """The condition with ``source.`` or ``target.`` before the columns that have neither.

    ``op = 'D'`` becomes ``source.op = 'D'``. Literals, functions and the bodies of lambdas stay, because
    Spark's own parser finds the columns.

    Args:
        spark: the session.
        condition: SQL.
        sides: the side of each column, by its name in lower case.

    Raises:
        ConfigurationError: the condition is not a SQL expression.
    """
    positions = {at: sides[name] for name, at in _names(spark, condition) if name in sides}
    for at, side in sorted(positions.items(), reverse=True):
        if not condition[at:].lower().startswith((f"{SOURCE}.", f"{TARGET}.")):
            condition = f"{condition[:at]}{side}.{condition[at:]}"
    return condition


def sides_of(columns: Mapping[str, frozenset[str]], sides: Sequence[str]) -> dict[str, str]:
    """The side of each column that one of ``sides`` alone has; ``columns`` are those of each side."""
    return {
        name: side
        for side in sides
        for name in columns[side].difference(*(columns[other] for other in sides if other != side))
    }


def names_side(spark: SparkSession, condition: str, side: str) -> bool:
    """Whether the condition names a column with ``side``. Raises ConfigurationError as :func:`with_sides`."""
    return any(name == side for name, _ in _names(spark, condition))


def _names(spark: SparkSession, condition: str) -> list[tuple[str, int]]:
    """(first part in lower case, its position) of each column name in the text."""
    try:
        return list(_attributes(sql_parser(spark).parseExpression(condition)))
    except ParseException as error:
        reason = " ".join(str(error).split("\n\n")[0].split())
        raise ConfigurationError(f"{condition!r} is not a SQL condition: {reason}") from error


def _attributes(expression: Any) -> Iterator[tuple[str, int]]:
    if expression.getClass().getSimpleName() == "UnresolvedAttribute":
        yield str(expression.nameParts().head()).lower(), int(expression.origin().startIndex().get())
    children = expression.children()
    for i in range(children.size()):
        yield from _attributes(children.apply(i))
