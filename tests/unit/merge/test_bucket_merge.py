"""Merges whose tasks own buckets: when they do, in how many passes, and what a refusal leaves behind."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.sql.functions as sf
import pytest
from pyspark.sql import DataFrame, SparkSession

from metastore_client import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import (
    DirectoryStateError,
    DuplicateKeyError,
    MergeCounts,
    MergeInto,
    MutatorClient,
    MutatorClientBuilder,
    WriterOptions,
    apply_changes,
    create_acid_table,
    first_by,
    merge_into,
    read_table,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.merge import spark_merge, table_side
from mutation_api.merge.bucket_owners import Owners, SourceSplitter
from mutation_api.merge.outcome import MergeOutcome
from mutation_api.merge.source_rows import check_memory
from mutation_api.merge.spark_buckets import BucketPlan, bucket_plan
from mutation_api.spark.tasks import CHANGES, TASK, ChangeWriter
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.write.apply import apply_arrow
from tests.fixtures.fix_spark import rows_paired_by_spark

pytestmark = [pytest.mark.slow, pytest.mark.tasks]

NAME = "default.t"
ROWS = 60
BUCKETS = 3
MEMORY = 1000
"""More than the keys of a bucket, and less than its rows with WIDE strings."""
WIDE = 200
SCHEMA = "id bigint, n int, msg string, ds string"


@pytest.fixture
def client(spark: SparkSession, tmp_path: Path) -> Iterator[MutatorClient]:
    """A client of a table of ROWS rows in two partitions."""
    with client_of(tmp_path, "ds") as made:
        fill(spark, made)
        yield made


def client_of(directory: Path, partition: str = "", buckets: int = BUCKETS) -> MutatorClient:
    """A client of a new table, bucketed by ``id`` unless there are no buckets."""
    metastore = InMemoryMetastore(directory, capabilities=HIVE_4_1)
    columns = [ColumnInfo(*each.split()) for each in SCHEMA.split(", ")]
    create_acid_table(
        metastore,
        NAME,
        [each for each in columns if each.name != partition],
        [each for each in columns if each.name == partition],
        clustered_by=["id"] if buckets else [],
        num_buckets=buckets or None,
    )
    return MutatorClientBuilder().metastore(metastore).add_sink_table(NAME, create_partitions=True).build()


def fill(spark: SparkSession, client: MutatorClient, wide: int = 1) -> None:
    """Insert ROWS rows with strings of ``wide`` times two or three characters."""
    given = rows(spark, range(ROWS)).withColumn("msg", sf.repeat("msg", sf.lit(wide)))
    with client.new_transaction() as transaction:
        apply_changes(transaction, NAME, given.withColumn("operation", sf.lit("insert")))


def rows(spark: SparkSession, ids: range, n: str = "id", ds: str = "id % 2") -> DataFrame:
    """Rows in the table's columns; ``n`` and ``ds`` are SQL."""
    return spark.range(ids.start, ids.stop, ids.step).selectExpr(
        "id", f"CAST({n} AS int) n", "concat('m', id) msg", f"CAST({ds} AS string) ds"
    )


def seen(spark: SparkSession, client: MutatorClient) -> list[tuple[Any, ...]]:
    """All rows of the table."""
    with client.open_snapshot(NAME) as view:
        found = read_table(view, NAME, columns=["id", "n", "msg", "ds"], spark=spark).drop("ROW__ID")
        return sorted(map(tuple, found.collect()))


def whole(merge: MergeInto) -> MergeInto:
    """Make the table equal to the source, except for rows below 5."""
    merge.whenMatched("source.n = -1").delete()
    merge.whenMatched().updateAll()
    merge.whenNotMatched().insertAll()
    merge.whenNotMatchedBySource("target.id >= 5").delete()
    return merge


@pytest.mark.parametrize(
    "sort_memory_bytes", [1 << 20, pytest.param(400, marks=pytest.mark.long)], ids=["one pass", "passes"]
)
def test_rows_are_those_that_spark_pairs(
    spark: SparkSession, client: MutatorClient, tmp_path: Path, sort_memory_bytes: int
) -> None:
    """Rows of all kinds, also moved to another partition, in one pass over each bucket or in many."""
    given = rows(spark, range(20, ROWS + 30, 2), n="IF(id < 30, -1, id + 1)", ds="id % 3")
    options = WriterOptions(sort_memory_bytes=sort_memory_bytes)
    reports = []
    with client_of(tmp_path / "other", "ds") as other:
        fill(spark, other)
        for each in (client, other):
            paired = rows_paired_by_spark() if each is other else pytest.MonkeyPatch.context()
            with paired, each.new_transaction() as transaction:
                merge = whole(merge_into(transaction, NAME, source=given, on=["id"]))
                reports += [merge.dry_run(samples=2), merge.execute(options=options)]
        assert seen(spark, client) == seen(spark, other)
    dry, done, other_dry, other_done = reports
    assert done.total == MergeCounts(inserted=15, updated=5, deleted=40, moved=10)
    assert [each.total for each in reports] == [done.total] * 4
    assert [each.partitions for each in reports] == [done.partitions] * 4
    assert (dry.samples, dry.groups) == (other_dry.samples, other_dry.groups)
    assert dry.file_count == done.file_count == other_done.file_count


def test_rows_of_the_table_limit_a_pass(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few bytes of source rows that match many bytes of table rows are merged in several parts."""
    plans, held, cut = list[BucketPlan | str](), list[int](), list[int]()

    def recorded(*args: Any, **options: Any) -> BucketPlan | str:
        plans.append(bucket_plan(*args, **options))
        return plans[-1]

    def checked(name: str, what: str, byte_count: int, memory_bytes: int) -> None:
        if memory_bytes < byte_count:
            cut.append(byte_count)
        check_memory(name, what, byte_count, memory_bytes)
        held.append(memory_bytes)

    monkeypatch.setattr(spark_merge, "bucket_plan", recorded)
    monkeypatch.setattr(table_side, "check_memory", checked)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(client_of(tmp_path, "ds"))
        fill(spark, client, WIDE)
        transaction = stack.enter_context(client.new_transaction())
        given = spark.range(40, 80)
        merge = merge_into(transaction, NAME, source=given, on=["id"]).whenMatched().update({"n": "-1"})
        expected = merge.dry_run().total
        (plan,) = plans
        assert isinstance(plan, BucketPlan)
        task = plan.task
        source = given.toArrow().cast(task.source)
        found = MergeOutcome(task.keys, None)
        writer = ChangeWriter("", "w", WriterOptions(sort_memory_bytes=MEMORY), HadoopSettings())
        split = SourceSplitter(task.owners, task.keys, tuple(task.source.names), 1 << 20)
        for piece in split(iter(source.combine_chunks().to_batches())):
            (number,), (stream,) = piece.column(TASK).to_pylist(), piece.column(CHANGES).to_pylist()
            merged = dataclasses.replace(task, writer=writer, is_dry_run=True).merged(number, [stream])
            found.add_outcome(merged.outcome)
        assert found.report(transaction, task.owners.table, is_dry_run=True).total == expected
    assert len(cut) >= BUCKETS
    assert max(held) <= source.nbytes + MEMORY, "a part was read without a limit"


Begin = Callable[[MergeInto], MergeInto]

REASONS: dict[str, tuple[dict[str, Any], Begin]] = {
    "": ({}, lambda merge: merge.whenMatched("upper(source.msg) = 'M' AND target.n > 1").delete()),
    "computed values": (
        {},
        lambda merge: merge.whenMatched().update({"msg": "upper(source.msg)", "n": "target.n + source.n"}),
    ),
    "an order": (
        {"on_duplicate": first_by("source.n", "upper(source.msg)")},
        lambda merge: merge.whenNotMatched().insertAll(),
    ),
    "the condition of whenMatched(upper(target.msg) = 'M').delete reads the table": (
        {},
        lambda merge: merge.whenMatched("upper(target.msg) = 'M'").delete(),
    ),
    "the value of n in whenMatched().update reads the table": (
        {},
        lambda merge: merge.whenMatched().update({"n": "hash(target.msg)"}),
    ),
    "its keys do not determine the bucket or partition of a row": (
        {"on": ["n"]},
        lambda merge: merge.whenMatched().delete(),
    ),
    "its keys do not determine the bucket or partition": (
        {},
        lambda merge: merge.whenNotMatched().insert({"id": "source.id + 1"}),
    ),
    "its condition is not just equal key columns": (
        {"on": "source.id = target.id"},
        lambda merge: merge.whenMatched().delete(),
    ),
    "prune_buckets=False": ({"prune_buckets": False}, lambda merge: merge.whenMatched().delete()),
}
"""The options and clauses of merges, by the reason why Spark has to pair their rows."""


@pytest.mark.long
@pytest.mark.parametrize("reason", REASONS)
def test_reasons_why_spark_pairs_rows(
    spark: SparkSession, client: MutatorClient, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Each is named; the merge does the same with it and without it."""
    found: list[BucketPlan | str] = []

    def recorded(*args: Any, **options: Any) -> BucketPlan | str:
        found.append(bucket_plan(*args, **options))
        return found[-1]

    monkeypatch.setattr(spark_merge, "bucket_plan", recorded)
    options, clauses = REASONS[reason]
    totals = []
    for paired in (pytest.MonkeyPatch.context(), rows_paired_by_spark()):
        with paired, client.new_transaction() as transaction:
            given = rows(spark, range(50, 70), n="id % 100")
            totals.append(
                clauses(merge_into(transaction, NAME, source=given, **{"on": ["id"], **options}))
                .dry_run()
                .total
            )
    assert totals[0] == totals[1]
    owned = not reason or reason in ("computed values", "an order")
    assert isinstance(found[0], BucketPlan) if owned else str(found[0]).startswith(reason)


@pytest.mark.long
def test_an_expression_that_fails_for_other_rows(spark: SparkSession, client: MutatorClient) -> None:
    """Spark pairs the rows then: an earlier clause takes the row with which the second condition fails."""
    given = rows(spark, range(ROWS - 2, ROWS), n=f"{ROWS - 1} - id")
    with client.new_transaction() as transaction:
        merge = merge_into(transaction, NAME, source=given, on=["id"]).whenMatched("source.n = 0").delete()
        report = merge.whenMatched("10 DIV source.n = 10").updateAll().execute()
    assert report.total == MergeCounts(deleted=1, updated=1)


@pytest.mark.long
def test_a_refused_merge_leaves_no_files(spark: SparkSession, client: MutatorClient, tmp_path: Path) -> None:
    """One task finds a doubled key, after or before others wrote."""
    given = rows(spark, range(ROWS))
    before = files(tmp_path)
    with client.new_transaction() as transaction:
        merge = merge_into(transaction, NAME, source=given.union(given.where("id = 7")), on=["id"])
        merge.whenMatched().update({"n": "source.n + 1"})
        with pytest.raises(DuplicateKeyError, match=r"1 key has more.*\(id=7\) in 2 rows"):
            merge.execute()
        assert files(tmp_path) == before
        merge = merge_into(transaction, NAME, source=given, on=["id"]).whenMatched().updateAll()
        assert merge.execute().total == MergeCounts(unchanged=ROWS)
        assert files(tmp_path) == before


def files(directory: Path) -> set[Path]:
    """All files."""
    return {path for path in directory.rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.parametrize("clause", ["matched", "by source"])
def test_rows_in_wrong_buckets_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clause: str
) -> None:
    """Their keys are sought elsewhere, so a source row would be inserted twice, or a row deleted wrongly."""
    resolve = BucketIdResolver.resolve

    def wrong(self: BucketIdResolver, batch: pa.RecordBatch) -> pa.Array:
        return pa.array((resolve(self, batch).to_numpy() + 1) % BUCKETS, pa.int32())

    with client_of(tmp_path) as client:
        with monkeypatch.context() as patch, client.new_transaction() as transaction:
            patch.setattr(BucketIdResolver, "resolve", wrong)
            apply_arrow(
                transaction,
                NAME,
                rows(spark, range(ROWS)).withColumn("operation", sf.lit("insert")).toArrow(),
            )
        with client.new_transaction() as transaction:
            merge = merge_into(transaction, NAME, source=rows(spark, range(0, ROWS, 4)), on=["id"])
            if clause == "matched":
                merge.whenNotMatched().insertAll()
            else:
                merge.whenNotMatchedBySource().delete()
            with pytest.raises(DirectoryStateError, match="but hash to others"):
                merge.execute()


@pytest.mark.long
@pytest.mark.parametrize("buckets", [0, BUCKETS])
def test_partitions_own_keys_of_tables_without_buckets(
    spark: SparkSession, tmp_path: Path, buckets: int
) -> None:
    """If the keys hold the partition, its task writes all of it."""
    with client_of(tmp_path, "ds", buckets) as client:
        fill(spark, client)
        with client.new_transaction() as transaction:
            given = rows(spark, range(10, ROWS + 10), n="id + 1", ds="id % 4")
            report = whole(merge_into(transaction, NAME, source=given, on=["id", "ds"])).execute()
        found = seen(spark, client)
    assert report.total == MergeCounts(inserted=36, updated=24, deleted=31)
    expected = rows(spark, range(10, ROWS + 10), n="id + 1", ds="id % 4")
    assert found == sorted([*map(tuple, expected.collect()), *map(tuple, rows(spark, range(5)).collect())])


def test_the_owner_of_a_key_owns_its_group() -> None:
    """By bucket, by partition, and by both."""
    table = AcidTable(
        database="default",
        name="t",
        location=Location.parse("file:/warehouse/t"),
        columns=(AcidColumn("id", "bigint"),),
        partition_keys=(AcidColumn("ds", "string"),),
        num_buckets=BUCKETS,
        bucket_columns=("id",),
        version=AcidVersion.V1_LEGACY,
    )
    keys = pa.record_batch({"id": pa.array(range(500)), "ds": pa.array([f"d{n % 7}" for n in range(500)])})
    for by_partition, by_bucket in itertools.product((True, False), repeat=2):
        owners = Owners(table, 5, by_partition, by_bucket)
        found = owners.of_keys(keys).tolist()
        groups = [(f"ds=d{n % 7}", n % BUCKETS) for n in range(500)]  # a bigint's hash in version 1
        assert found == [owners.of_group(*group) for group in groups]
        assert (len(set(found)) > 1) == (by_partition or by_bucket)
