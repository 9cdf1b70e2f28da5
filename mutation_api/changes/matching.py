"""Pairs of source and target rows: the seam behind which tables are joined one way or another.

The way here is an ordinary join of Spark's. A way that joins bucket by bucket beside the writer has to give
the same DataFrame as :func:`match_rows`.
"""

from __future__ import annotations

from collections.abc import Collection

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame

from mutation_api.changes.clauses import SOURCE, TARGET, Match

__all__ = ["match_rows"]

_JOINS = {
    frozenset({Match.MATCHED}): "inner",
    frozenset({Match.NOT_MATCHED}): "left_anti",
    frozenset({Match.NOT_MATCHED_BY_SOURCE}): "right",
    frozenset({Match.MATCHED, Match.NOT_MATCHED}): "left",
    frozenset({Match.MATCHED, Match.NOT_MATCHED_BY_SOURCE}): "right",
    frozenset({Match.NOT_MATCHED, Match.NOT_MATCHED_BY_SOURCE}): "full",
    frozenset(Match): "full",
}


def match_rows(
    source: DataFrame, target: DataFrame, condition: Column, wanted: Collection[Match]
) -> DataFrame:
    """Bring each target row together with the source rows for which ``condition`` is true.

    Args:
        source: one struct column ``source``, never null.
        target: one struct column ``target``, never null.
        condition: boolean over both.
        wanted: the kinds of rows that are asked for; others may be missing.

    Returns:
        columns ``source`` and ``target``: a row for each pair, null on the side that a row lacks. Spark
        broadcasts the source by itself where it is small and no row of it has to be kept.
    """
    joined = source.join(target, condition, _JOINS[frozenset(wanted)])
    if TARGET not in joined.columns:
        joined = joined.withColumn(TARGET, sf.lit(None).cast(target.schema[TARGET].dataType))
    return joined.select(SOURCE, TARGET)
