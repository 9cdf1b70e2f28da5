"""What versions of Spark do differently, on the installed one; the others run in integration tests."""

from __future__ import annotations

import sys
import threading

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.spark import versions
from mutation_api.spark.jvm import analyzed_plan
from mutation_api.spark.versions import (
    ANSI,
    ArrowColumn,
    ansi_rules,
    collected,
    computed,
    data_type,
    frame_of_arrow,
    in_force,
    lenient_part,
    try_cast,
    users_own,
)
from tests.fixtures.fix_clock import WAIT_BOUND_SECONDS

pytestmark = pytest.mark.slow

NAME = "spark.sql.shuffle.partitions"


def doubled(numbers: pa.Array) -> pa.Array:
    return pc.multiply(numbers, 2)


def joined(texts: pa.Array, numbers: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(texts, numbers.cast(pa.string()), "-")


def everything(spark: SparkSession) -> DataFrame:
    """Columns that have to travel as they are, and one with a name that SQL takes for another."""
    return spark.range(5).selectExpr(
        "id as `a.b`",
        "named_struct('x', if(id = 2, null, id), 'y', map('k', cast(id as decimal(38,3)))) as s",
        "timestamp'2024-02-29 23:59:59.999999' as t",
        "timestamp_ntz'0001-01-01 00:00:00.000001' as w",
        "array(cast(null as struct<z:int>)) as n",
        "cast('x' as binary) as raw",
    )


def test_what_cannot_work_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that is too old, and Spark 3.5 on a Python without distutils; others do not need that."""
    monkeypatch.setitem(sys.modules, "distutils.version", None)
    for spark in ((4, 0), (4, 3)):
        monkeypatch.setattr(versions, "SPARK", spark)
        versions.check_installed()
    monkeypatch.setattr(versions, "SPARK", (3, 5))
    with pytest.raises(ConfigurationError, match="distutils, which Python"):
        versions.check_installed()
    monkeypatch.setattr(versions, "SPARK", (3, 4))
    with pytest.raises(ConfigurationError, match="is too old"):
        versions.check_installed()


@pytest.mark.parametrize("has_udfs", [True, False])
def test_columns_computed_by_python_stand_beside_others(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, has_udfs: bool
) -> None:
    """By Arrow UDFs, and in one pass where Spark lacks them: values and types are the same."""
    if not has_udfs:
        monkeypatch.setattr(versions, "SPARK", (4, 0))
    frame = everything(spark)
    columns = {name: sf.col(f"`{name}`") for name in frame.columns}
    new = {
        "twice. as much": ArrowColumn(doubled, "int", (sf.col("`a.b`").cast("int"),)),
        "joined": ArrowColumn(joined, "string", (sf.lit("id"), sf.col("`a.b`"))),
    }
    found = computed(frame, {**columns, **new})
    assert found.columns == [*columns, *new]
    assert [f.dataType.simpleString() for f in found.schema] == [
        *(f.dataType.simpleString() for f in frame.schema),
        "int",
        "string",
    ]
    assert ("MapInArrow" in found._jdf.queryExecution().toString()) is not has_udfs
    rows = found.collect()
    assert [tuple(row)[:-2] for row in rows] == [tuple(row) for row in frame.collect()]
    assert [tuple(row)[-2:] for row in rows] == [(2 * n, f"id-{n}") for n in range(5)]


def test_what_cannot_go_through_python_is_refused_by_name(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any job, where Spark lacks Arrow UDFs."""
    monkeypatch.setattr(versions, "SPARK", (4, 0))
    frame = spark.range(1).selectExpr("id", "parse_json('1') as v", "make_interval(1) as i")
    new = ArrowColumn(doubled, "bigint", (sf.col("id"),))
    with pytest.raises(RecordLayoutError, match="column 'i' is of type interval, which Spark"):
        computed(frame, {"new": new, "i": sf.col("i")})


@pytest.mark.parametrize("has_arrow", [True, False])
def test_arrow_goes_in_and_comes_out(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, has_arrow: bool
) -> None:
    """Rows in order, none of them included, with and without Spark's own functions for it."""
    frame = everything(spark).drop("t").repartition(3).orderBy("`a.b`")
    wanted = [tuple(row) for row in frame.collect()]
    if not has_arrow:
        monkeypatch.setattr(versions, "SPARK", (3, 5))
    rows = collected(frame)
    assert rows["a.b"].to_pylist() == list(range(5))
    again = frame_of_arrow(spark, rows, frame.schema)
    assert again.schema == frame.schema
    assert sorted(tuple(row) for row in again.collect()) == sorted(wanted)
    assert collected(frame.where("false")).schema.names == frame.columns
    assert frame_of_arrow(spark, rows.slice(0, 0), frame.schema).collect() == []
    assert data_type("struct<a:int>") == StructType([StructField("a", IntegerType())])


def test_a_cast_that_fails_is_null_by_ansi_rules(spark: SparkSession) -> None:
    """Whatever the session has: 300 is no tinyint, and not 44."""
    frame = spark.sql("select 300 as `n.o`, 'x' as `t``t`")
    with in_force(spark, {ANSI: "false"}):
        assert frame.select(try_cast("n.o", "tinyint"), try_cast("t`t", "int")).collect() == [(None, None)]


def test_ansi_rules_hold_within_the_block_unless_the_user_chose(spark: SparkSession) -> None:
    """Blocks may overlap; a user's own choice stays."""
    assert users_own(spark, ANSI) is None
    with ansi_rules(spark), ansi_rules(spark):
        assert spark.conf.get(ANSI) == "true"
        assert users_own(spark, ANSI) is None
    assert spark.conf.get(ANSI, None) is None
    spark.conf.set(ANSI, "false")
    try:
        with ansi_rules(spark):
            assert spark.conf.get(ANSI) == "false"
    finally:
        spark.conf.unset(ANSI)


def test_a_column_made_without_ansi_rules_is_found(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its part that would give NULL; the session must want the rules, and Spark not have them by itself."""
    with in_force(spark, {ANSI: "false"}):
        plan = analyzed_plan(spark.range(1).selectExpr("1 + cast(cast(id as string) as int) + 1"))
    expression = plan.projectList().apply(0)
    monkeypatch.setattr(versions, "SPARK", (3, 5))
    found = lenient_part(spark, expression)
    assert found is not None
    assert "CAST" in found
    with in_force(spark, {ANSI: "false"}):
        assert lenient_part(spark, expression) is None
    strict = analyzed_plan(spark.range(1).selectExpr("1 + cast(cast(id as string) as int)"))
    assert lenient_part(spark, strict.projectList().apply(0)) is None


def test_settings_hold_until_the_last_block_ends(spark: SparkSession) -> None:
    """Blocks in several threads; the user's own value, or none, is there afterwards."""
    own = spark.conf.get(NAME, None)
    inside, go = threading.Event(), threading.Event()

    def other() -> None:
        with in_force(spark, {NAME: "7"}):
            inside.set()
            go.wait(WAIT_BOUND_SECONDS)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(WAIT_BOUND_SECONDS)
    with pytest.raises(ZeroDivisionError), in_force(spark, {NAME: "7", "spark.sql.x": "1"}):
        1 / 0  # noqa: B018
    assert spark.conf.get(NAME) == "7"
    assert users_own(spark, NAME) == own
    assert spark.conf.get("spark.sql.x", None) is None
    go.set()
    thread.join()
    assert spark.conf.get(NAME, None) == own
