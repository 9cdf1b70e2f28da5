"""Partitions that a merge has to read, told by the conditions on partition columns alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce

import pyspark.sql.functions as sf
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from mutation_api.changes.clauses import TARGET
from mutation_api.changes.sides import column_type
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import parse_partition_name, partition_value
from mutation_api.types.hive_type import parse_hive_type

__all__ = ["Alternatives", "partitions_where"]

Alternatives = Sequence[Collection[str]]
"""SQL conditions over ``target``: any of these has to hold, each with all of its parts."""

_NAME = "__partition"


def partitions_where(
    spark: SparkSession, table: AcidTable, names: Sequence[str], alternatives: Alternatives
) -> list[str] | None:
    """Names of the partitions in which rows may fulfil one of the alternatives; None for all of them.

    Args:
        spark: the session; it evaluates the conditions.
        table: partitioned.
        names: of the partitions that exist.
        alternatives: conditions on partition columns alone; one without parts always holds.
    """
    if not alternatives:
        return []
    if not names or not all(alternatives):
        return None
    kinds = [parse_hive_type(key.type) for key in table.partition_keys]
    rows = [(name, *map(partition_value, parse_partition_name(name), kinds)) for name in names]
    schema = StructType([StructField(_NAME, StringType())])
    for key in table.partition_keys:
        schema = schema.add(key.name, column_type(key))
    known = spark.createDataFrame(rows, schema).alias(TARGET)
    try:
        holds = [reduce(lambda a, b: a & b, map(sf.expr, parts)) for parts in alternatives]
        chosen = known.where(reduce(lambda a, b: a | b, holds)).select(_NAME)
    except (AnalysisException, ParseException):
        return None  # Spark's own text of a condition need not be one that it reads
    return [row[0] for row in chosen.collect()]
