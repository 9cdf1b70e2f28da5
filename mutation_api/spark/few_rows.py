"""Collects a DataFrame whose rows are surely few; others stay where they are."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mutation_api.errors import ConfigurationError
from mutation_api.spark.jvm import estimated_bytes, is_deterministic, plan_kinds
from mutation_api.spark.versions import collected

__all__ = ["FEW_BYTES", "FEW_BYTES_DEFAULT", "collected_if_few", "few_bytes", "is_few", "is_read_alone"]

FEW_BYTES = "spark.hive.mutation.fewBytes"
"""Setting of the session: changes of at most this estimated size are handled by the driver; 0: none are."""
FEW_BYTES_DEFAULT = 16 << 20

BOUNDED = frozenset(
    (
        "Aggregate",
        "Filter",
        "GlobalLimit",
        "InMemoryRelation",
        "LocalLimit",
        "LocalRelation",
        "LogicalRelation",
        "Project",
        "Range",
        "Repartition",
        "RepartitionByExpression",
        "Sort",
        "SubqueryAlias",
        "Union",
        "Window",
    )
)
"""Nodes of a plan that give no more rows than their input, or of whose rows Spark knows the size."""

READING = frozenset(
    ("Filter", "InMemoryRelation", "LocalRelation", "LogicalRelation", "Project", "SubqueryAlias", "Union")
)
"""Those of them that handle each row by itself; a limit may take other rows each time."""


def few_bytes(spark: SparkSession) -> int:
    """The session's limit.

    Raises:
        ConfigurationError: it is not a number of bytes.
    """
    text = str(spark.conf.get(FEW_BYTES, str(FEW_BYTES_DEFAULT)))
    if not text.isdecimal():
        raise ConfigurationError(f"{FEW_BYTES}={text!r}: expected a number of bytes; 0 turns it off")
    return int(text)


def is_few(frame: DataFrame) -> bool:
    """Whether the rows are surely within the session's limit; evaluates nothing.

    Spark estimates the size of a DataFrame by the files or values at its beginning. It does not know how many
    rows a join, ``explode`` or Python gives: those may be many.
    """
    limit = few_bytes(frame.sparkSession)
    return limit > 0 and plan_kinds(frame) <= BOUNDED and estimated_bytes(frame) <= limit


def is_read_alone(frame: DataFrame) -> bool:
    """Whether rows are read and projected, and no more.

    Then it costs less to evaluate them again than to keep them, and they are the same.
    """
    return plan_kinds(frame) <= READING and is_deterministic(frame)


def collected_if_few(frame: DataFrame) -> pa.Table | None:
    """The rows of a DataFrame for which :func:`is_few` holds; None if they are more bytes than estimated."""
    rows = collected(frame)
    return rows if rows.nbytes <= few_bytes(frame.sparkSession) else None
