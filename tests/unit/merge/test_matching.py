"""Keys of a source, collected to read the table by them; the joins by which rows are paired."""

from __future__ import annotations

import dataclasses
from collections.abc import Set
from decimal import Decimal
from typing import Any

import pyspark.sql.functions as sf
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from mutation_api.format.layout import AcidVersion
from mutation_api.merge.clauses import Match
from mutation_api.merge.resolve import Equality
from mutation_api.merge.spark_expressions import Sides
from mutation_api.merge.spark_matching import ScatteredKeys, SourceKeys, match_rows, source_keys
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable

pytestmark = [pytest.mark.slow, pytest.mark.tasks]

TABLE = AcidTable(
    database="d",
    name="t",
    location=Location.parse("/t"),
    columns=(AcidColumn("id", "int"), AcidColumn("s", "struct<a:int>")),
    partition_keys=(AcidColumn("p", "string"),),
    num_buckets=-1,
    bucket_columns=(),
    version=AcidVersion.V2_HIVE4,
    bucketing_version=2,
)
"""Its type of ``id`` matters only where keys determine buckets."""

SCHEMAS = "id {}, p string, s struct<a:int>"


def sides(spark: SparkSession, kind: str, target_kind: str, *values: str) -> Sides:
    """A source of these SQL values in its column ``id``; p is the last digit of none, s a struct."""
    rows = ", ".join(f"(CAST({v} AS {kind}), 'x', struct(1))" for v in values)
    source = spark.sql(f"SELECT * FROM VALUES {rows} AS v(id, p, s)")
    return Sides(source, source.schema, StructType.fromDDL(SCHEMAS.format(target_kind)))


def found_keys(
    both: Sides, *names: str, limit: int = 100, null_safe: bool = False, table: AcidTable = TABLE
) -> SourceKeys | ScatteredKeys | None:
    """Keys of columns that are called the same on both sides."""
    equalities = [Equality(name, name, null_safe) for name in names]
    return source_keys(both, equalities, limit, table=table, prune_buckets=True, is_whole_condition=True)


def collected(both: Sides, *names: str, limit: int = 100, null_safe: bool = False) -> SourceKeys | None:
    """Keys that are not scattered."""
    keys = found_keys(both, *names, limit=limit, null_safe=null_safe)
    assert not isinstance(keys, ScatteredKeys)
    return keys


def ids(keys: SourceKeys | None) -> list[Any]:
    """Values of the only key column."""
    assert keys is not None
    (column,) = keys.table.columns
    return sorted(column.to_pylist(), key=repr)


def test_keys_are_distinct_and_without_null(spark: SparkSession) -> None:
    """NULL equals nothing, except with null-safe keys; then it is a key."""
    both = sides(spark, "bigint", "bigint", "1", "2", "2", "NULL")
    keys = collected(both, "id")
    assert ids(keys) == [1, 2]
    assert keys is not None and (keys.is_exact, keys.is_unique) == (True, False)
    safe = collected(both, "id", null_safe=True)
    assert ids(safe) == [1, 2, None]
    unique = collected(sides(spark, "bigint", "bigint", "1", "2", "NULL"), "id")
    assert unique is not None and unique.is_unique


@pytest.mark.parametrize(
    ("kind", "target_kind", "values", "expected"),
    [
        ("bigint", "int", ["1", "3000000000"], [1]),
        ("decimal(10,3)", "decimal(5,2)", ["1.500", "123456.000"], [Decimal("1.50")]),
        ("decimal(10,3)", "int", ["7.000"], [7]),
        ("double", "float", ["0.5"], [0.5]),
    ],
)
def test_keys_of_other_types_are_as_the_table_has_them(
    spark: SparkSession, kind: str, target_kind: str, values: list[str], expected: list[Any]
) -> None:
    """A value that the table's column cannot hold is not a key; then some needless rows may be read."""
    keys = collected(sides(spark, kind, target_kind, *values), "id")
    assert ids(keys) == expected
    assert keys is not None and not keys.is_exact and not keys.is_unique


@pytest.mark.parametrize(
    ("kind", "target_kind"), [("string", "int"), ("date", "timestamp_ntz"), ("int", "double")]
)
def test_types_that_are_compared_in_a_third_one_give_no_keys(
    spark: SparkSession, kind: str, target_kind: str
) -> None:
    """Unequal values of the table's type might be equal there."""
    value = "'2020-01-01'" if kind == "date" else "1"
    assert collected(sides(spark, kind, target_kind, value), "id") is None


def test_a_struct_is_left_out_of_several_keys(spark: SparkSession) -> None:
    """The other keys still determine which rows may match."""
    both = sides(spark, "int", "int", "1")
    assert collected(both, "s") is None
    keys = collected(both, "id", "s")
    assert keys is not None and keys.table.column_names == ["id"] and not keys.is_exact


def test_of_a_large_source_only_partitions_are_collected(spark: SparkSession) -> None:
    """The limit is one of rows; values of partition columns are distinct before they are counted."""
    both = sides(spark, "int", "int", "1", "2", "3")
    assert collected(both, "id", limit=2) is None
    keys = collected(both, "id", "p", limit=2)
    assert keys is not None and keys.table.to_pydict() == {"p": ["x"]}
    assert not keys.is_exact and not keys.is_unique


def test_many_keys_that_tell_the_bucket_stay_in_spark(spark: SparkSession) -> None:
    """In the table's types, not distinct; unless they are few, or buckets cannot be relied on."""
    table = dataclasses.replace(TABLE, num_buckets=4, bucket_columns=("ID",))
    both = sides(spark, "bigint", "int", "1", "1", "3000000000", "4")
    keys = found_keys(both, "id", "p", limit=2, table=table)
    assert isinstance(keys, ScatteredKeys) and not keys.null_safe and not keys.is_exact
    assert sorted(keys.rows.collect(), key=repr) == [(1, "x"), (1, "x"), (4, "x"), (None, "x")]
    assert isinstance(found_keys(both, "id", "p", limit=4, table=table), SourceKeys)
    for keys in (
        found_keys(both, "p", limit=2, table=table),
        source_keys(
            both,
            [Equality(name, name, False) for name in ("id", "p")],
            2,
            table=table,
            prune_buckets=False,
            is_whole_condition=True,
        ),
    ):
        assert isinstance(keys, SourceKeys) and keys.table.to_pydict() == {"p": ["x"]}


class Table:
    """Reads a table of a few ids, and records its calls."""

    def __init__(self, spark: SparkSession, *values: int) -> None:
        rows = ", ".join(f"({v})" for v in values)
        self.rows = spark.sql(f"SELECT * FROM VALUES {rows} AS v(id)")
        self.calls: list[tuple[Set[Match], bool, bool]] = []

    def __call__(
        self,
        matches: Set[Match],
        keys: SourceKeys | ScatteredKeys | None = None,
        *,
        without_keys: bool = False,
    ) -> DataFrame:
        assert not isinstance(keys, ScatteredKeys)
        self.calls.append((matches, keys is not None, without_keys))
        rows = self.rows
        if keys is not None:
            is_key = sf.col("id").isin(*keys.table["id"].to_pylist())
            rows = rows.where(~is_key if without_keys else is_key)
        return rows.select(sf.struct("id").alias("target"))


EVERYTHING = {(1, 1), (2, None), (None, 3), (None, 4)}


@pytest.mark.long
@pytest.mark.parametrize("wanted", [{m} for m in Match] + [set(Match), set(Match) - {Match.MATCHED}])
@pytest.mark.parametrize("has_keys", [True, False])
def test_pairs(spark: SparkSession, wanted: set[Match], has_keys: bool) -> None:
    """The kinds of rows that are wanted, whichever way the table is read."""
    both = sides(spark, "int", "int", "1", "2")
    read = Table(spark, 1, 3, 4)
    source = both.source.select(sf.struct("id").alias("source"))
    keys = collected(both, "id") if has_keys else None
    pairs = match_rows(source, read, sf.expr("source.id = target.id"), wanted, keys, cached := [])
    found = {tuple(row) for row in pairs.selectExpr("source.id", "target.id").collect()}
    assert len(cached) == (has_keys and wanted != {Match.NOT_MATCHED_BY_SOURCE})
    for rows in cached:
        rows.unpersist()
    of_kind = {
        Match.MATCHED: {(1, 1)},
        Match.NOT_MATCHED: {(2, None)},
        Match.NOT_MATCHED_BY_SOURCE: {(None, 3), (None, 4)},
    }
    assert set().union(*(of_kind[m] for m in wanted)) <= found <= EVERYTHING
    assert all(by_key == has_keys for _, by_key, _ in read.calls)


def test_inexact_keys_do_not_tell_who_has_no_match(spark: SparkSession) -> None:
    """A row of the table whose key only looks like one of the source's would be missed."""
    both = sides(spark, "decimal(4,2)", "int", "1", "2.4")
    read = Table(spark, 1, 2, 3)
    source = both.source.select(sf.struct("id").alias("source"))
    on = sf.expr("source.id = target.id")
    pairs = match_rows(source, read, on, set(Match), collected(both, "id"), [])
    found = {tuple(row) for row in pairs.selectExpr("CAST(source.id AS double)", "target.id").collect()}
    assert found == {(1.0, 1), (2.4, None), (None, 2), (None, 3)}
    assert [(by_key, without) for _, by_key, without in read.calls] == [(False, False)]
