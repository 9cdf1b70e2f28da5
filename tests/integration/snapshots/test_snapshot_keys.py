"""``spark.snapshot(keys=…)``: the rows of Hive's own readers that have one of the keys, and no others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mutation_api import read_table
from mutation_api.errors import DirectoryStateError
from tests.integration.conftest import MakeTable
from tests.integration.transactions.live_table import FilledTable, delete, insert, update

pytestmark = pytest.mark.slow


def test_rows_with_the_keys_are_those_of_hive(filled_anew: FilledTable, spark: SparkSession) -> None:
    """After updates (in legacy tables in place), deletes and inserts; key columns need not be given."""
    table = filled_anew
    table.commit(
        update("a", table.row_id(2), 2, "two"),
        delete("a", table.row_id(4)),
        insert("a", 20),
        insert("b", 30),
    )
    wanted = {("a", 2), ("a", 4), ("a", 20), ("b", 2), ("b", 30), ("c", 2)}
    theirs = [
        (row.partition, row.row_id, row.values[1])
        for row in table.rows()
        if (str(row.partition).removeprefix("ds="), row.values[0]) in wanted
    ]
    ds, ids = zip(*sorted(wanted), strict=True)
    keys = pa.table({"DS": pa.array(ds), "id": pa.array(ids, pa.int64())})
    with table.client() as client, client.open_snapshot(table.full_name) as opened:
        frame = read_table(opened, table.full_name, columns=["msg"], keys=keys, spark=spark)
        # Twice: a DataFrame may be evaluated again, so its keys must still be there.
        for _ in range(2):
            ours = [(row["ROW__ID"][3], tuple(row["ROW__ID"])[:3], row["msg"]) for row in frame.collect()]
            assert sorted(ours) == sorted(theirs)
    assert len(theirs) == 4


def test_null_keys(make_table: MakeTable, spark: SparkSession) -> None:
    """NULL, in a data or a partition column, equals NULL only if that is asked for."""
    table = make_table(keys="n int")
    table.commit(insert([7], 1), insert([7], None), insert([None], 1), insert([None], None))
    keys = pa.table({"id": pa.array([1, None], pa.int64()), "n": pa.array([7, None], pa.int32())})
    with table.client() as client, client.open_snapshot(table.full_name) as opened:
        for null_safe, expected in ((False, {(1, 7)}), (True, {(1, 7), (None, None)})):
            frame = read_table(
                opened, table.full_name, columns=["id", "n"], keys=keys, null_safe_keys=null_safe, spark=spark
            )
            assert {(row["id"], row["n"]) for row in frame.collect()} == expected


def test_only_partitions_of_the_keys_are_listed(filled_anew: FilledTable, spark: SparkSession) -> None:
    """The other one holds what is refused, and nobody minds; a key of no partition is no error either."""
    table = filled_anew
    (delta,) = (table.directory / "ds=b").glob("delta_*")
    (delta / "part-0").touch()
    with table.client() as client, client.open_snapshot(table.full_name) as opened:
        for ds, count in (("a", 1), ("z", 0)):
            keys = pa.table({"ds": [ds], "id": [5]})
            assert read_table(opened, table.full_name, keys=keys, spark=spark).count() == count
        with pytest.raises(DirectoryStateError, match="part-0"):
            read_table(opened, table.full_name, keys=pa.table({"id": [5]}), spark=spark)
