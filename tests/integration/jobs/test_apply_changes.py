"""apply_changes against a real metastore; real Hive reads what it wrote."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from judges.hive.hive_judges import Hive23
from mutation_api.errors import (
    BucketIdError,
    MutationError,
    RecordLayoutError,
    RecordSequenceError,
    RecordValueError,
    RowIdNotFoundError,
    TransactionStateError,
    WorkerError,
)
from mutation_api.spark.job import apply_changes
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from tests.fixtures.fix_clock import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.tasks]

LAYOUTS = ("legacy", "default")


@dataclass
class Bench:
    """A table, a client for it and the means to look at it."""

    hive: Hive23
    client: MutatorClient
    spark: SparkSession
    table: str
    is_partitioned: bool

    def rows(self) -> list[tuple[Any, ...]]:
        """What Hive's SQL reads: (id, msg, ds), sorted."""
        ds = "ds" if self.is_partitioned else "'-'"
        rows = self.hive.sql(f"SELECT id, msg, {ds} FROM {self.table}")
        return sorted((tuple(row) for row in rows), key=repr)

    def changes(self, *values: tuple[str, Any, int | None, str | None, str | None]) -> DataFrame:
        """Changes of (operation, ROW__ID, id, msg, ds)."""
        frame = self.spark.createDataFrame(
            list(values),
            "operation string, ROW__ID struct<transactionid:bigint,bucketid:int,rowid:bigint>, "
            "id bigint, msg string, ds string",
        )
        return frame if self.is_partitioned else frame.drop("ds")

    def load(self, *rows: tuple[int, str, str]) -> None:
        """Insert rows in a transaction of their own."""
        with self.client.new_transaction() as transaction:
            apply_changes(transaction, self.table, self.changes(*[("insert", None, *row) for row in rows]))

    def hidden(self) -> list[Path]:
        """Everything staged below the table."""
        root = Path(self.client.tables[0].location.path)
        return list(root.glob("_mutation_*"))


def make_bench(
    hive: Hive23,
    spark: SparkSession,
    database: str,
    *,
    layout: str,
    is_partitioned: bool,
    create: bool = True,
) -> Bench:
    partitioned = "PARTITIONED BY (ds string)" if is_partitioned else ""
    hive.sql(
        f"CREATE TABLE {database}.t (id bigint, msg string) {partitioned} CLUSTERED BY (id) INTO 4 BUCKETS "
        f"STORED AS ORC TBLPROPERTIES ('transactional'='true', 'transactional_properties'='{layout}')"
    )
    builder = (
        MutatorClientBuilder().metastore(hive.uri).add_sink_table(database, "t", create_partitions=create)
    )
    return Bench(hive, builder.build().connect(), spark, f"{database}.t", is_partitioned)


@pytest.fixture(
    params=[(layout, kind) for layout in LAYOUTS for kind in ("partitioned", "flat")], ids="-".join
)
def bench(
    request: pytest.FixtureRequest, hive: Hive23, hive_database: str, spark: SparkSession
) -> Iterator[Bench]:
    """Each layout, partitioned and not."""
    layout, kind = request.param
    made = make_bench(hive, spark, hive_database, layout=layout, is_partitioned=kind == "partitioned")
    yield made
    made.client.close()


@pytest.fixture
def legacy(hive: Hive23, hive_database: str, spark: SparkSession) -> Iterator[Bench]:
    """A partitioned table in the legacy layout."""
    made = make_bench(hive, spark, hive_database, layout="legacy", is_partitioned=True)
    yield made
    made.client.close()


def row_ids(bench: Bench, transaction: Any) -> dict[int, Any]:
    """ROW__ID, without its partition, by id."""
    rows = read_table(transaction, bench.table, spark=bench.spark).select("id", "ROW__ID").collect()
    return {row["id"]: tuple(row["ROW__ID"])[:3] for row in rows}


@pytest.mark.sampled(2)
def test_insert_update_and_delete_become_visible_together_at_the_commit(bench: Bench) -> None:
    """All three kinds in one change set; Hive sees exactly what is left, and only after the commit."""
    bench.load(*[(i, f"m{i}", f"d{i % 3}") for i in range(30)])
    before = bench.rows()
    ds = "d1" if bench.is_partitioned else "-"
    with bench.client.new_transaction() as transaction:
        old = read_table(transaction, bench.table, spark=bench.spark)
        changes = (
            old.where("id % 5 = 0")
            .withColumns({"msg": sf.lit("new"), "operation": sf.lit("Update")})
            .unionByName(old.where("id % 5 = 1").withColumn("operation", sf.lit("DELETE")))
            .unionByName(
                bench.changes(("insert", None, 100, "in", "d1")).drop("ROW__ID"), allowMissingColumns=True
            )
        )
        summary = apply_changes(transaction, bench.table, changes)
        assert bench.rows() == before
    expected = [r for r in before if r[0] % 5 > 1] + [(r[0], "new", r[2]) for r in before if r[0] % 5 == 0]
    assert bench.rows() == sorted([*expected, (100, "in", ds)], key=repr)
    assert (summary.inserted, summary.updated, summary.deleted) == (1, 6, 6)
    assert len(summary.partitions) == (3 if bench.is_partitioned else 0)
    assert "1 inserted, 6 updated, 6 deleted" in str(summary)
    assert not bench.hidden()


@pytest.mark.long
@pytest.mark.sampled(1)
def test_a_row_moves_to_another_partition_by_delete_and_insert(bench: Bench) -> None:
    """A row changes its partition by a delete and an insert in one change set."""
    bench.load((1, "a", "x"), (2, "b", "x"))
    with bench.client.new_transaction() as transaction:
        identifier = row_ids(bench, transaction)[1]
        changes = bench.changes(("delete", identifier, 1, "a", "x"), ("insert", identifier, 1, "a", "y"))
        apply_changes(transaction, bench.table, changes)
    assert bench.rows() == sorted(
        [(1, "a", "y" if bench.is_partitioned else "-"), (2, "b", "x" if bench.is_partitioned else "-")]
    )


@pytest.mark.long
def test_an_empty_change_set_commits(legacy: Bench) -> None:
    """No changes: nothing is written and the commit succeeds."""
    legacy.load((1, "a", "x"))
    with legacy.client.new_transaction() as transaction:
        summary = apply_changes(transaction, legacy.table, legacy.changes())
    assert (summary.row_count, summary.file_count, summary.partitions) == (0, 0, ())
    assert legacy.rows() == [(1, "a", "x")]


@pytest.mark.long
def test_deletes_need_nothing_but_the_row_id(legacy: Bench) -> None:
    """ROW__ID as the snapshot reads it knows the partition; no other column is needed for a delete."""
    legacy.load((1, "a", "x"), (2, "b", "y"))
    with legacy.client.new_transaction() as transaction:
        doomed = read_table(transaction, legacy.table, spark=legacy.spark).where("id = 2").select("ROW__ID")
        apply_changes(transaction, legacy.table, doomed.withColumn("operation", sf.lit("delete")))
    assert legacy.rows() == [(1, "a", "x")]


def refused(
    bench: Bench, changes: DataFrame, error: type[MutationError], message: str, **options: Any
) -> None:
    """Check that the change set is refused, nothing is left of it, and the transaction still works."""
    before = bench.rows()
    with bench.client.new_transaction() as transaction:
        with pytest.raises(error, match=message):
            apply_changes(transaction, bench.table, changes, **options)
        root = Path(transaction.table(bench.table).location.path)
        assert not [p for p in root.rglob("*") if p.is_file() and "_mutation_" in str(p)]
        apply_changes(transaction, bench.table, bench.changes(("insert", None, 77, "after", "x")))
    assert bench.rows() == sorted([*before, (77, "after", "x")], key=repr)


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (("merge", None, 1, "m", "x"), RecordValueError, "operation must be one of"),
        ((None, None, 1, "m", "x"), RecordValueError, "operation must be one of"),
        (("update", None, 1, "m", "x"), RecordValueError, "needs the complete ROW__ID"),
        (("delete", (1, 9, 0), 1, "m", "x"), BucketIdError, "a bucket that the table does not have"),
        (("update", (0, 0, 0), 3, "m", "x"), BucketIdError, "another bucket"),
        (("delete", (10**12, 0, 0), 1, "m", "x"), RowIdNotFoundError, "cannot contain"),
        (("insert", None, 1, "m", "p" * 800), MutationError, "ds"),
    ],
)
def test_a_bad_change_leaves_nothing_behind(
    legacy: Bench, change: tuple[Any, ...], error: type[MutationError], message: str
) -> None:
    """One bad change among good ones: our own error, no file, and the transaction can be used again."""
    legacy.load((1, "a", "x"))
    refused(legacy, legacy.changes(("insert", None, 5, "good", "x"), change), error, message)


@pytest.mark.long
@pytest.mark.sampled(1)
def test_two_changes_of_one_row_are_refused(bench: Bench) -> None:
    """The same ROW__ID twice is an error that names it, whichever of the two would have won."""
    bench.load((1, "a", "x"), (5, "b", "x"))
    with bench.client.new_transaction() as transaction:
        identifier = row_ids(bench, transaction)[5]
        changes = bench.changes(("update", identifier, 5, "new", "x"), ("delete", identifier, 5, None, "x"))
        with pytest.raises(RecordSequenceError, match=str(identifier[0])):
            apply_changes(transaction, bench.table, changes)
        transaction.abort()
    assert len(bench.rows()) == 2


@pytest.mark.long
def test_an_update_in_a_partition_that_does_not_exist_is_refused(legacy: Bench) -> None:
    """Even with create_partitions an update cannot make a partition: its row cannot have been there."""
    legacy.load((1, "a", "x"))
    with legacy.client.new_transaction() as transaction:
        identifier = row_ids(legacy, transaction)[1]
    refused(
        legacy,
        legacy.changes(("update", identifier, 1, "m", "elsewhere")),
        RowIdNotFoundError,
        "partitions that do not exist: ds=elsewhere",
    )


@pytest.mark.long
@pytest.mark.sampled(1)
def test_row_ids_are_looked_up_when_asked(bench: Bench) -> None:
    """verify_row_ids finds changes of rows that are gone or never were, before a file is written."""
    bench.load(*[(i, "m", "x") for i in range(8)])
    with bench.client.new_transaction() as transaction:
        identifiers = row_ids(bench, transaction)
    txn, bucket, _ = identifiers[4]
    real = ("update", identifiers[5], 5, "new", "x")
    with bench.client.new_transaction() as transaction:
        with pytest.raises(RowIdNotFoundError, match=rf"update of \({txn}, {bucket}, 4444\)") as caught:
            changes = bench.changes(real, ("update", (txn, bucket, 4444), 4, "never", "x"))
            apply_changes(transaction, bench.table, changes, verify_row_ids=True)
        assert str(tuple(identifiers[5])) not in str(caught.value)
        assert not bench.hidden()
        summary = apply_changes(transaction, bench.table, bench.changes(real), verify_row_ids=True)
    assert summary.verify_seconds > 0
    assert [r[1] for r in bench.rows() if r[0] == 5] == ["new"]


def test_a_table_gets_its_changes_once(legacy: Bench) -> None:
    """A second apply to the same table in one transaction is refused before any work."""
    with legacy.client.new_transaction() as transaction:
        apply_changes(transaction, legacy.table, legacy.changes(("insert", None, 1, "a", "x")))
        with pytest.raises(TransactionStateError, match=r"already has its changes .*: combine"):
            apply_changes(transaction, legacy.table.upper(), legacy.changes(("insert", None, 2, "b", "x")))
    assert legacy.rows() == [(1, "a", "x")]


def test_wrong_columns_cost_nothing(legacy: Bench) -> None:
    """A layout error is found before any job runs."""
    with legacy.client.new_transaction() as transaction:
        with pytest.raises(RecordLayoutError, match="columns that the table does not have: extra"):
            changes = legacy.changes(("insert", None, 1, "a", "x")).withColumn("extra", sf.lit(1))
            apply_changes(transaction, legacy.table, changes)
        assert not legacy.hidden()


@pytest.mark.sampled(1)
def test_an_aborted_transaction_leaves_nothing(bench: Bench) -> None:
    """What was staged goes with the abort; Hive reads what it read before."""
    bench.load((1, "a", "x"))
    before = bench.rows()
    with pytest.raises(ZeroDivisionError), bench.client.new_transaction() as transaction:
        apply_changes(transaction, bench.table, bench.changes(("insert", None, 2, "b", "x")))
        assert bench.hidden()
        raise ZeroDivisionError
    assert not bench.hidden()
    assert bench.rows() == before


def test_special_partition_values(legacy: Bench) -> None:
    """Special characters, NULL and the empty text as partition values, as Hive reads them back."""
    values = ["a b", "x/y", "50%", "k=v", "ü", "'q'", None, ""]
    with legacy.client.new_transaction() as transaction:
        changes = legacy.changes(*[("insert", None, i, "m", ds) for i, ds in enumerate(values)])
        apply_changes(transaction, legacy.table, changes)
    default = "__HIVE_DEFAULT_PARTITION__"
    found = {row[0]: row[2] for row in legacy.rows()}
    assert found == {i: ds or found[i] for i, ds in enumerate(values)}
    assert {found[6], found[7]} <= {None, default}


def test_the_callers_own_failure_is_a_worker_error(legacy: Bench) -> None:
    """An exception in the caller's DataFrame arrives short, not as two hundred lines of stack."""
    changes = legacy.changes(("insert", None, 1, "a", "x")).withColumn(
        "id", sf.udf(lambda value: value // 0, "bigint", useArrow=False)("id")
    )
    with legacy.client.new_transaction() as transaction:
        with pytest.raises(WorkerError, match="ZeroDivisionError") as caught:
            apply_changes(transaction, legacy.table, changes)
        transaction.abort()
    assert len(str(caught.value)) < 1500


@pytest.mark.long
def test_ctrl_c_cancels_the_job(legacy: Bench, tmp_path: Path) -> None:
    """KeyboardInterrupt stops the Spark job, and nothing stays staged."""
    started = tmp_path / "started"

    def dawdle(value: int) -> int:
        started.touch()
        threading.Event().wait(600)
        return value

    slow = legacy.changes(("insert", None, 1, "a", "x")).withColumn(
        "id", sf.udf(dawdle, "bigint", useArrow=False)("id")
    )
    interrupter = threading.Thread(target=_interrupt_when, args=(started,))
    with pytest.raises(KeyboardInterrupt), legacy.client.new_transaction() as transaction:
        interrupter.start()
        apply_changes(transaction, legacy.table, slow)
    interrupter.join()
    tracker = legacy.spark.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveJobsIds(), "the Spark job's end")
    assert not legacy.hidden()
    assert legacy.rows() == []


def _interrupt_when(path: Path) -> None:
    wait_until(path.exists, "the start of the slow task")
    os.kill(os.getpid(), signal.SIGINT)
