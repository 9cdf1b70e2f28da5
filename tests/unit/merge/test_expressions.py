"""Parts of conditions, as Spark resolves them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pyspark.sql.functions as sf
import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.layout import AcidVersion
from mutation_api.merge.clauses import SOURCE, TARGET
from mutation_api.merge.resolve import Equality
from mutation_api.merge.spark_diff import partitions_where
from mutation_api.merge.spark_expressions import ExpressionAnalyser, with_sides
from mutation_api.spark.versions import unlogged_errors
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable

pytestmark = pytest.mark.slow

TABLE = AcidTable(
    database="d",
    name="t",
    location=Location.parse("/t"),
    columns=(AcidColumn("id", "bigint"),),
    partition_keys=(AcidColumn("name", "string"), AcidColumn("hr", "int")),
    num_buckets=1,
    bucket_columns=("id",),
    version=AcidVersion.V1_SPLIT,
    txn_id=7,
)


@pytest.fixture(scope="module")
def analyser(spark: SparkSession) -> ExpressionAnalyser:
    """Over a source and a table whose ids have different widths."""
    source = StructType.fromDDL("id int, name string, n int")
    return ExpressionAnalyser(spark, "d.t", source, StructType.fromDDL("id bigint, name string, hr int"))


def test_parts_of_a_condition(analyser: ExpressionAnalyser) -> None:
    """Equalities of bare columns, also where Spark widens one; none where the user casts or computes."""
    text = (
        "source.id = target.id AND target.name <=> source.name AND (target.hr IN (1, 2) AND source.n > 0) "
        "AND CAST(source.name AS int) = target.hr AND source.n + 1 = target.hr AND source.n = source.id"
    )
    parts = analyser.conjuncts(text, (SOURCE, TARGET), "on")
    assert [part.equality for part in parts] == [
        Equality("id", "id", False),
        Equality("name", "name", True),
        *[None] * 5,
    ]
    assert [(sorted(p.source_columns), sorted(p.target_columns)) for p in parts[2:]] == [
        ([], ["hr"]),
        (["n"], []),
        (["name"], ["hr"]),
        (["n"], ["hr"]),
        (["id", "n"], []),
    ]


def test_a_disjunction_is_one_part(analyser: ExpressionAnalyser) -> None:
    """Neither side of OR need hold."""
    parts = analyser.conjuncts("source.id = target.id OR target.hr = 1", (SOURCE, TARGET), "on")
    assert [part.equality for part in parts] == [None]


def test_partitions_are_told_by_conditions(spark: SparkSession, analyser: ExpressionAnalyser) -> None:
    """Typed values, escaped names, the default partition; a partition key called name; any alternative."""
    names = ["name=a%3Ab/hr=1", "name=a%3Ab/hr=10", "name=x/hr=2", "name=__HIVE_DEFAULT_PARTITION__/hr=9"]
    texts = [
        [part.expression for part in analyser.conjuncts(text, (TARGET,), "condition")]
        for text in ("target.hr > 9 AND target.name = 'a:b'", "target.hr = 2", "target.name IS NULL")
    ]
    assert partitions_where(spark, TABLE, names, texts[:1]) == [names[1]]
    assert partitions_where(spark, TABLE, names, texts) == names[1:]
    assert partitions_where(spark, TABLE, names, [*texts, ()]) is None
    assert partitions_where(spark, TABLE, names, []) == []


def test_a_column_needs_its_side(analyser: ExpressionAnalyser) -> None:
    """A Column cannot be completed; where rows are matched, only the sides have names."""
    assert analyser.analyse(sf.col("source.n") == 1, (SOURCE, TARGET), "on").source_columns == {"n"}
    for column in (sf.col("n") == 1, "hr = 1"):
        with pytest.raises(
            RecordLayoutError, match=r"d\.t: condition .*: name each column with its side, source"
        ):
            analyser.condition(column, (SOURCE, TARGET), "condition")


def test_a_name_behind_a_condition_is_no_condition(analyser: ExpressionAnalyser) -> None:
    """Spark's parser would take what a typing error leaves for the name of the whole."""
    for text in ("source.n = 1 andd", "source.n = 1 AS x", "source.n = 1 andd -- 2"):
        with pytest.raises(RecordLayoutError, match="cannot be resolved"):
            analyser.condition(text, (SOURCE,), "condition")
    assert analyser.condition("source.n = 1 -- one", (SOURCE,), "condition").source_columns == {"n"}


def test_what_cannot_be_resolved_is_named(analyser: ExpressionAnalyser) -> None:
    """With the columns that there are."""
    with pytest.raises(
        RecordLayoutError, match=r"table d\.t: on 'source\.x = 1' cannot be resolved over source"
    ):
        analyser.analyse("source.x = 1", (SOURCE,), "on")


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The errors that PySpark logs."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    kept = Kept()
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for each in loggers:
        each.addHandler(kept)
    yield found
    for each in loggers:
        each.removeHandler(kept)


def test_what_is_told_in_our_words_is_not_logged(
    spark: SparkSession, analyser: ExpressionAnalyser, logged: list[str]
) -> None:
    """A user's own query is logged by PySpark, also one that another thread makes meanwhile."""

    def own_query() -> None:
        with pytest.raises(AnalysisException):
            spark.range(1).selectExpr("nope + 1")

    for wrong in ("nope = 1", sf.col("nope") == 1, sf.col("n") == 1, "source.id ="):
        with pytest.raises(RecordLayoutError, match=r"cannot be resolved|name each column"):
            analyser.analyse(wrong, (SOURCE, TARGET), "on")
    with pytest.raises(ConfigurationError, match="is not an SQL condition"):
        with_sides(spark, "id = = 1", {})
    assert logged == []
    own_query()
    with unlogged_errors():
        own_query()
        other = threading.Thread(target=own_query)
        other.start()
        other.join()
    assert [text.count("nope") > 0 for text in logged] == [True, True]
