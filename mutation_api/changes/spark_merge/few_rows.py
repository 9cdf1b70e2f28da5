"""Merges of few rows: the driver itself reads, joins and writes; Spark evaluates source and expressions.

Jobs over many tasks take two seconds, however few the rows. The result is the same: keys are compared by the
rules of Spark's join, and where they might not be, or rows may be many, there is no such plan.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, IntegralType, MapType, StructType

from mutation_api.change_set.staged_writer import LookingTransaction
from mutation_api.changes.clauses import Clause
from mutation_api.changes.keyed_rows.limits import READ_BYTES_MAX
from mutation_api.changes.keyed_rows.source_rows import plain_batch
from mutation_api.changes.local_merge.local_plan import LocalMergePlan
from mutation_api.changes.merge_options import MergeOptions
from mutation_api.changes.resolve import resolve
from mutation_api.changes.spark_merge.expressions import Expression, ExpressionAnalyser
from mutation_api.changes.spark_merge.sides import Sides
from mutation_api.changes.spark_merge.spark_evaluator import SparkEvaluator
from mutation_api.local.local_options import LocalOptions
from mutation_api.spark.few_rows import collected_if_few, is_few

__all__ = ["few_rows_plan"]


def few_rows_plan(
    transaction: LookingTransaction,
    table_name: str,
    source: DataFrame,
    keys: tuple[str, ...] | None,
    clauses: tuple[Clause[Expression], ...],
    options: MergeOptions,
    *,
    shows_rows: bool,
) -> LocalMergePlan | None:
    """The plan of a merge of few rows.

    Args:
        transaction: begun; the table is one of its sinks.
        table_name: ``database.table``.
        source: the rows to merge.
        keys: key columns; None if the merge has another condition.
        clauses: in their order.
        options: of the merge.
        shows_rows: as of :class:`LocalMergePlan`.

    Returns:
        None if rows may be many, the condition is more than equal keys, or keys have types for which only
        Spark's own join is sure.

    Raises:
        RecordLayoutError, TableNotMutableError: see :func:`mutation_api.changes.resolve.resolve`.
    """
    if keys is None or not is_few(source):
        return None
    transaction.check()
    spark = source.sparkSession
    table = transaction.table(table_name)
    sides = Sides.of(table, source)
    analyser = ExpressionAnalyser(spark, table.full_name, sides.source_schema, sides.target_schema)
    plan = resolve(table, analyser, keys, None, clauses, options)
    if not all(_is_sure(analyser.source[key], analyser.target[key]) for key in keys):
        return None
    found = collected_if_few(sides.source)
    if found is None:
        return None
    rows = plain_batch(found)
    evaluator = SparkEvaluator(spark, table, plan, rows, sides.source_schema, sides.target_schema, options)
    local = LocalOptions()
    merge = LocalMergePlan(transaction, table, rows, keys, plan, evaluator, options, local, shows_rows)
    return merge if merge.bytes_to_read <= READ_BYTES_MAX else None


def _is_sure(found: DataType, wanted: DataType) -> bool:
    """Whether equal values are those that Spark's join finds equal; nested ones are left to it."""
    if isinstance(wanted, ArrayType | MapType | StructType):
        return False
    return found == wanted or (isinstance(found, IntegralType) and isinstance(wanted, IntegralType))
