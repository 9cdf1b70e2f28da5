"""Counting a merge's rows by a column of the source, and looking at the counts before anything is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyspark.sql.functions as sf
import pytest
from pyspark.sql import SparkSession

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import MergeCounts, MergeInto, MergeReport, merge_into
from mutation_api.errors import ContradictionError, RecordLayoutError
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.create_acid_table import create_acid_table

pytestmark = [pytest.mark.slow, pytest.mark.tasks]

NAME = "default.t"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))


def client_of(directory: Path) -> MutatorClient:
    """A client of a new table."""
    metastore = InMemoryMetastore(directory, capabilities=HIVE_4_1)
    create_acid_table(metastore, NAME, COLUMNS, clustered_by=["id"], num_buckets=1)
    return MutatorClientBuilder().metastore(metastore).add_sink_table("default", "t").build()


def merging(
    spark: SparkSession, transaction: Transaction, count_by: str | None, *rows: tuple[int, str, str]
) -> MergeInto:
    """Rows of id, message and the file they come from; of file ``d`` for deletion."""
    columns = dict(zip(("id", "msg", "File"), zip(*rows, strict=True), strict=True))
    source = spark.createDataFrame(pa.table({name: list(values) for name, values in columns.items()}))
    merge = merge_into(transaction, NAME, source=source, on=["id"], count_by=count_by)
    merge.whenMatched("source.msg = 'gone'").delete().whenMatched().updateAll()
    return merge.whenNotMatched("source.msg <> 'gone'").insertAll()


@pytest.mark.long
def test_rows_are_counted_by_a_column_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    """Rows without a clause do not count; the column need not be the table's; a dry run counts, too."""
    with client_of(tmp_path) as client:
        with client.new_transaction() as transaction:
            report = merging(
                spark, transaction, "FILE", (1, "a", "x"), (2, "b", "x"), (3, "c", "y")
            ).execute()
            assert report.counts_by == {"x": MergeCounts(inserted=2), "y": MergeCounts(inserted=1)}
            assert report.written is not None
        with client.new_transaction() as transaction:
            rows = ((1, "a", "x"), (2, "z", "y"), (3, "gone", "y"), (4, "gone", "y"), (5, "e", "z"))
            dry = merging(spark, transaction, "file", *rows).dry_run(samples=0)
            done = merging(spark, transaction, "file", *rows).execute()
    assert done.counts_by == dry.counts_by
    assert done.counts_by == {
        "x": MergeCounts(unchanged=1),
        "y": MergeCounts(updated=1, deleted=1),
        "z": MergeCounts(inserted=1),
    }
    assert sum(done.counts_by.values(), MergeCounts()) == done.total


@pytest.mark.parametrize("by_column", [False, True])
def test_a_column_of_one_side_needs_no_side(spark: SparkSession, tmp_path: Path, by_column: bool) -> None:
    """In SQL, as PySpark's mergeInto takes it; a Column is refused before anything is read."""
    source = spark.sql(
        "select * from values (1, 'a', 'D'), (2, 'b', 'I'), (3, 'c', 'D') as source(id, msg, op)"
    )
    with client_of(tmp_path) as client, client.new_transaction() as transaction:
        insert = merge_into(transaction, NAME, source=source, on=["id"])
        if by_column:
            with pytest.raises(
                RecordLayoutError,
                match=r"default\.t: .*whenNotMatched.*name each column with its side, source.x",
            ):
                insert.whenNotMatched(sf.col("op") == "I").insertAll().execute()
        else:
            insert = insert.whenMatched("op = 'D'").delete()
            insert = insert.whenNotMatched("op = 'I' AND id > 1").insert(
                {"id": "id", "msg": "concat(msg, op)"}
            )
            assert insert.execute().total == MergeCounts(inserted=1)


def test_the_source_must_have_the_column(spark: SparkSession, tmp_path: Path) -> None:
    """An extra column that is neither counted by nor read is refused."""
    with client_of(tmp_path) as client, client.new_transaction() as transaction:
        with pytest.raises(RecordLayoutError, match=r"count_by='nope': the source has no such column"):
            merging(spark, transaction, "nope", (1, "a", "x")).execute()
        with pytest.raises(RecordLayoutError, match="no condition reads: file"):
            merging(spark, transaction, None, (1, "a", "x")).execute()


def test_the_counts_may_be_refused_before_writing(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is staged then."""

    def refuse(report: MergeReport) -> None:
        raise ContradictionError(f"{report.total.inserted} inserts")

    with client_of(tmp_path) as client, client.new_transaction() as transaction:
        with pytest.raises(ContradictionError, match="1 inserts"):
            merging(spark, transaction, "file", (1, "a", "x")).execute(before_writing=refuse)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
