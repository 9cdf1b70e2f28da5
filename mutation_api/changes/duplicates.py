"""Several source rows that act on one row: either an error before anything is written, or reduced to one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Row, Window

from mutation_api.changes.clauses import SOURCE, Expression
from mutation_api.changes.expressions import column_of
from mutation_api.errors import DuplicateKeyError

__all__ = [
    "DUPLICATES_SHOWN_DEFAULT",
    "FirstBy",
    "duplicate_key_error",
    "first_by",
    "keep_first",
    "order_of",
]

DUPLICATES_SHOWN_DEFAULT = 5
ROWS_SHOWN = 3
"""Number of source rows that a message shows for one key."""


@dataclass(frozen=True)
class FirstBy:
    """If several source rows would act on one row, only the first in this order does."""

    columns: tuple[Expression, ...]


def first_by(*columns: Expression) -> FirstBy:
    """Order source rows that act on the same row: ``first_by(col("source.updated").desc())``.

    Rows equal in all columns are ordered by a hash of their content, which is the same in each run.
    """
    if not columns:
        raise ValueError("first_by needs at least one column to order by")
    return FirstBy(columns)


def keep_first(rows: DataFrame, group: Sequence[str], order: Sequence[Column], where: Column) -> DataFrame:
    """Among the rows for which ``where`` is true, keep the first of each group. All others stay."""
    # The others are spread by their content; as one group they would all go to one task.
    spread = sf.when(~where, sf.xxhash64(sf.to_json(SOURCE)))
    rank = sf.row_number().over(Window.partitionBy(where, spread, *group).orderBy(*order))
    return rows.withColumn("__rank", rank).where(~where | (sf.col("__rank") == 1)).drop("__rank")


def order_of(first: FirstBy) -> list[Column]:
    """The order's columns and, for ties, a hash of the source row's content."""
    return [*map(column_of, first.columns), sf.xxhash64(sf.to_json("source"))]


def duplicate_key_error(table_name: str, key_count: int, samples: Sequence[Row]) -> DuplicateKeyError:
    """The error that names some of the keys.

    Args:
        table_name: ``database.table``.
        key_count: number of such keys in all.
        samples: rows of ``key`` (JSON text), ``row_count`` and ``rows`` (JSON texts of source rows).
    """
    shown = "; ".join(_described(row) for row in samples)
    more = f"; and {key_count - len(samples):,} more" if key_count > len(samples) else ""
    have = "key has" if key_count == 1 else "keys have"
    return DuplicateKeyError(
        f"table {table_name}: {key_count:,} {have} several source rows that would act, so the outcome "
        f"would be random: {shown}{more}. Nothing was written. Keep one source row for each key, or define "
        "which one counts with on_duplicate=first_by(…)"
    )


def _described(row: Row) -> str:
    rows = sorted(row["rows"])
    more = ", …" if row["row_count"] > len(rows[:ROWS_SHOWN]) else ""
    key = ", ".join(f"{name}={value!r}" for name, value in json.loads(row["key"]).items())
    return f"({key}) in {row['row_count']:,} rows: {', '.join(rows[:ROWS_SHOWN])}{more}"
