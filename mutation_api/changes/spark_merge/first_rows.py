"""Reduces several source rows that act on one row to one of them."""

from __future__ import annotations

from collections.abc import Sequence

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Window

from mutation_api.changes.clauses import SOURCE
from mutation_api.changes.duplicates import FirstBy
from mutation_api.changes.spark_merge.expressions import column_of

__all__ = ["keep_first", "order_of"]


def keep_first(
    rows: DataFrame, group: Sequence[str | Column], order: Sequence[Column], where: Column
) -> DataFrame:
    """Among the rows for which ``where`` is true, keep the first of each group. All others stay."""
    # The others are spread by their content; as one group they would all go to one task.
    spread = sf.when(~where, sf.xxhash64(sf.to_json(SOURCE)))
    rank = sf.row_number().over(Window.partitionBy(where, spread, *group).orderBy(*order))
    return rows.withColumn("__rank", rank).where(~where | (sf.col("__rank") == 1)).drop("__rank")


def order_of(first: FirstBy) -> list[Column]:
    """The order's columns and, for ties, a hash of the source row's content."""
    return [*map(column_of, first.columns), sf.xxhash64(sf.to_json(SOURCE))]
