"""The matrix of values by Spark: DataFrames of every type into columns of every type of Hive.

What is stored is what the documentation promises, or the values are refused with an error of ours. Cells that
are stored share a table, so that there are few jobs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from metastore_client import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import (
    MutationError,
    MutatorClientBuilder,
    apply_changes,
    connect,
    create_acid_table,
    merge_into,
)
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.spark.job import FEW_BYTES_DEFAULT
from tests.fixtures.fix_spark import few_rows_to_the_driver
from tests.support.spark_matrix import SparkCell, random_spark_cell
from tests.support.value_matrix import ROWS, text_form

pytestmark = pytest.mark.slow

NAME = "default.cells"
COLUMNS = 16
REFUSED = 4
WAYS = ("apply", "merged rows", "merged into rows", "key")


def frame_of(spark: SparkSession, cells: Sequence[SparkCell]) -> DataFrame:
    """The columns id, c0, c1, …"""
    ddl = ", ".join(["id bigint", *(f"c{at} {cell.spark_type}" for at, cell in enumerate(cells))])
    rows = [(row, *(cell.values[row] for cell in cells)) for row in range(ROWS)]
    return spark.createDataFrame(rows, ddl)


def write(spark: SparkSession, metastore: InMemoryMetastore, frame: DataFrame, way: str) -> None:
    """Bring the rows into the table, in one transaction."""
    builder = MutatorClientBuilder().metastore(metastore).add_sink_table(NAME)
    with builder.build() as client, client.new_transaction() as transaction:
        if way == "apply":
            apply_changes(transaction, NAME, frame.selectExpr("'insert' operation", "*"))
            return
        on = ["id", "c0"] if way == "key" else ["id"]
        merge = merge_into(transaction, NAME, source=frame, on=on, null_safe=True)
        merge.whenMatched().updateAll()
        merge.whenNotMatched().insertAll().execute(num_partitions=1)


def stored(directory: Path, spark: SparkSession, cells: Sequence[SparkCell], way: str) -> list[list[Any]]:
    """The columns after the rows came in."""
    directory.mkdir()
    metastore = InMemoryMetastore(directory, capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "bigint"), *(ColumnInfo(f"c{at}", c.hive_type) for at, c in enumerate(cells))]
    create_acid_table(metastore, NAME, columns, clustered_by=["id"], num_buckets=2)
    frame = frame_of(spark, cells)
    if way == "merged into rows":
        nulls = ", ".join(f"cast(null as void) c{at}" for at in range(len(cells)))
        write(spark, metastore, spark.range(ROWS).selectExpr("id", *nulls.split(", ")), "apply")
    write(spark, metastore, frame, way)
    with connect(metastore) as hive, hive.snapshot(NAME) as view:
        rows = view.table(NAME).scan(timestamps=TimestampForm.TEXT).to_arrow().sort_by("id")
    return [rows[f"c{at}"].to_pylist() for at in range(len(cells))]


def check(directory: Path, spark: SparkSession, seed: int, *, by_tasks: bool) -> None:
    """A table of cells that are stored, and some that are not."""
    rng = random.Random(seed)
    cells = [random_spark_cell(rng) for _ in range(3 * COLUMNS)]
    good = [cell for cell in cells if cell.promised() is not None][:COLUMNS]
    bad = [cell for cell in cells if cell.promised() is None][:REFUSED]
    way = rng.choice(WAYS[:3])
    with few_rows_to_the_driver(spark, 0 if by_tasks else FEW_BYTES_DEFAULT):
        found = stored(directory / f"{seed}", spark, good, way)
        for cell, values in zip(good, found, strict=True):
            assert text_form(values) == text_form(cell.promised() or []), f"seed {seed}: {way}: {cell}"
        for number, cell in enumerate([*bad, good[0]]):
            way = rng.choice(WAYS) if cell in bad else "key"
            try:
                stored(directory / f"{seed}-{number}", spark, [cell], way)
            except MutationError:
                continue
            assert cell not in bad, f"seed {seed}: {way}: {cell} is stored"


def test_random_frames(tmp_path: Path, spark: SparkSession) -> None:
    """By the driver, which merges few rows itself."""
    check(tmp_path, spark, 1, by_tasks=False)


@pytest.mark.long
@pytest.mark.parametrize("by_tasks", [False, True])
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_random_frames(tmp_path: Path, spark: SparkSession, seed: int, *, by_tasks: bool) -> None:
    """The same of others, also by tasks."""
    check(tmp_path, spark, seed, by_tasks=by_tasks)


@pytest.mark.parametrize("kind", ["interval month", "interval day to second", "time", "variant"])
def test_types_that_hive_lacks(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    """Refused before a job, whichever the column and the way."""
    literal = {
        "interval month": "interval 3 month",
        "interval day to second": "interval 1 second",
        "time": "time'10:00:00'",
        "variant": "parse_json('1')",
    }[kind]
    try:
        frame = spark.range(1).selectExpr("id", f"{literal} c0")
    except Exception:
        pytest.skip(f"this Spark has no {kind}")
    for number, hive_type in enumerate(("bigint", "string", "binary", "timestamp")):
        home = tmp_path / str(number)
        home.mkdir()
        metastore = InMemoryMetastore(home, capabilities=HIVE_4_1)
        columns = [ColumnInfo("id", "bigint"), ColumnInfo("c0", hive_type)]
        create_acid_table(metastore, NAME, columns, clustered_by=["id"], num_buckets=2)
        for way in ("apply", "merged rows"):
            with pytest.raises(MutationError, match="c0"):
                write(spark, metastore, frame, way)
