"""Partitions that a merge has to read, according to conditions on partition columns only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from mutation_api.changes.clauses import TARGET
from mutation_api.changes.resolve import Alternatives
from mutation_api.changes.spark_merge.expressions import Expression, column_of
from mutation_api.changes.spark_merge.sides import column_type
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import parse_partition_name
from mutation_api.table.partition_value import stored_partition_value
from mutation_api.types.hive_type import parse_hive_type

__all__ = ["partitions_where"]

_NAME = "__partition"


def partitions_where(
    spark: SparkSession, table: AcidTable, names: Sequence[str], alternatives: Alternatives[Expression]
) -> list[str] | None:
    """Names of the partitions whose rows may fulfil one of the alternatives; None for all of them.

    Args:
        spark: the session that evaluates the conditions.
        table: a partitioned table.
        names: names of the existing partitions.
        alternatives: conditions on partition columns only; one without parts always holds.
    """
    if not alternatives:
        return []
    if not names or not all(alternatives):
        return None
    kinds = [parse_hive_type(key.type) for key in table.partition_keys]
    rows = [
        (
            name,
            *(
                stored_partition_value(text, kind, table.null_partition_text)
                for text, kind in zip(parse_partition_name(name), kinds, strict=True)
            ),
        )
        for name in names
    ]
    schema = StructType([StructField(_NAME, StringType())])
    for key in table.partition_keys:
        schema = schema.add(key.name, column_type(key))
    known = spark.createDataFrame(rows, schema).alias(TARGET)
    try:
        holds = [reduce(lambda a, b: a & b, map(column_of, parts)) for parts in alternatives]
        chosen = known.where(reduce(lambda a, b: a | b, holds)).select(_NAME)
    except (AnalysisException, ParseException):
        return None  # Spark cannot always parse its own text of a condition
    return [row[0] for row in chosen.collect()]
