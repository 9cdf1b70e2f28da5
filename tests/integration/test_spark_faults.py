"""Tasks that fail, workers that die, a lock that is lost while Spark writes: all or nothing, no leftovers."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from judges.hive import Hive23
from metastore_client.client import MetastoreClient
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.commit.manifest import DeltaManifest
from mutation_api.errors import LockLostError, TransactionAbortedError, WorkerError
from mutation_api.spark import job
from mutation_api.spark.change_writer import ChangeWriter
from mutation_api.spark.job import apply_changes
from mutation_api.storage.location import Location
from mutation_api.worker.coordinator import MutatorCoordinator, WriterOptions
from tests.fix_clock import FakeClock, wait_until
from tests.integration.spark_cluster import spark_cluster

pytestmark = pytest.mark.slow

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 5000
BATCH_ROWS = 200
OPTIONS = WriterOptions(sort_memory_bytes=150_000)
"""A task gets several batches, has to put some aside, and can fail between two that it writes."""
TWIN_TIMEOUT_SECONDS = 400


@dataclasses.dataclass(frozen=True)
class RaisesOnce(ChangeWriter):
    """A writer whose first attempt at each task raises after it wrote its first batch."""

    def in_order(self, table_name: str, pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        return fail_after_first(super().in_order(table_name, pieces), raise_an_error)


@dataclasses.dataclass(frozen=True)
class DiesOnce(ChangeWriter):
    """A writer whose process is killed in the first attempt at each task, after it wrote its first batch."""

    def in_order(self, table_name: str, pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        return fail_after_first(super().in_order(table_name, pieces), kill_this_process)


@dataclasses.dataclass(frozen=True)
class AlwaysRaises(ChangeWriter):
    """A writer none of whose attempts succeeds."""

    def in_order(self, table_name: str, pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        in_order = super().in_order(table_name, pieces)
        return fail_after_first(in_order, raise_an_error, last_attempt=99)


def fail_after_first(batches, fail, last_attempt: int = 0):
    for number, batch in enumerate(batches):
        if number == 1 and TaskContext.get().attemptNumber() <= last_attempt:
            fail()
        yield batch


def raise_an_error() -> None:
    raise RuntimeError("the disk is on fire")


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Several Arrow batches for each task."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, str(BATCH_ROWS))
    yield
    spark.conf.unset(name)


@pytest.fixture
def table(hive: Hive23, hive_database: str) -> str:
    """An empty partitioned table."""
    hive.sql(
        f"CREATE TABLE {hive_database}.t (id bigint, msg string) PARTITIONED BY (ds string) "
        "CLUSTERED BY (id) INTO 4 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    return f"{hive_database}.t"


def builder(hive: Hive23, table: str) -> MutatorClientBuilder:
    return MutatorClientBuilder().metastore(hive.uri).add_sink_table(*table.split("."), True)


def inserts(spark: SparkSession):
    return spark.range(ROWS).selectExpr(
        "'insert' operation", "id", "concat('m', id) msg", "concat('d', id % 3) ds"
    )


def below(location: Location) -> list[Path]:
    return sorted(p for p in Path(location.path).rglob("*") if p.is_file())


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("writer", [RaisesOnce, DiesOnce])
def test_a_lost_attempt_leaves_no_trace(
    writer: type[ChangeWriter],
    hive: Hive23,
    table: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that raises or is killed is tried again; its files are gone, its rows not doubled."""
    monkeypatch.setattr(job, "ChangeWriter", writer)
    with builder(hive, table).build() as client:
        with client.new_transaction() as transaction:
            summary = apply_changes(transaction, table, inserts(spark), num_partitions=2, options=OPTIONS)
            staged = [p for p in below(client.tables[0].location) if "_mutation_" in str(p)]
            assert len(staged) == summary.file_count == 12
        assert not [p for p in below(client.tables[0].location) if "_mutation_" in str(p)]
    assert hive.sql(f"SELECT count(*), count(DISTINCT id), sum(id) FROM {table}") == [
        [ROWS, ROWS, ROWS * (ROWS - 1) // 2]
    ]


@pytest.mark.usefixtures("small_batches")
def test_a_job_that_fails_for_good_leaves_nothing(
    hive: Hive23, table: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When no attempt succeeds the error is short, nothing is left, and the next transaction works."""
    with builder(hive, table).build() as client:
        location = client.tables[0].location
        with monkeypatch.context() as patched:
            patched.setattr(job, "ChangeWriter", AlwaysRaises)
            with (
                pytest.raises(WorkerError, match="the disk is on fire"),
                client.new_transaction() as transaction,
            ):
                apply_changes(transaction, table, inserts(spark), num_partitions=2, options=OPTIONS)
        wait_until(lambda: not below(location), "the removal of everything staged")
        with client.new_transaction() as transaction:
            apply_changes(transaction, table, inserts(spark), num_partitions=2, options=OPTIONS)
    assert hive.sql(f"SELECT count(*) FROM {table}") == [[ROWS]]


def test_a_lost_transaction_cancels_the_job(
    hive: Hive23, table: str, spark: SparkSession, clock: FakeClock, tmp_path: Path
) -> None:
    """Somebody aborts the transaction while Spark works: the job is cancelled, and the loss is raised."""
    started = tmp_path / "started"

    def dawdle(value: int) -> int:
        started.touch()
        threading.Event().wait(120)
        return value

    slow = inserts(spark).withColumn("id", sf.udf(dawdle, "bigint", useArrow=False)("id"))
    with builder(hive, table).clock(clock).build() as client:

        def abort_behind_its_back() -> None:
            wait_until(started.exists, "the start of the slow task", 60)
            client.metastore.abort_txn(transaction.id)
            clock.advance(3600)

        transaction = client.new_transaction()
        transaction.begin()
        thief = threading.Thread(target=abort_behind_its_back)
        thief.start()
        with pytest.raises((LockLostError, TransactionAbortedError), match=str(transaction.id)):
            apply_changes(transaction, table, slow)
        thief.join()
        transaction.abort()
        tracker = spark.sparkContext.statusTracker()
        wait_until(lambda: not tracker.getActiveJobsIds(), "the end of the Spark job")
        wait_until(lambda: not below(client.tables[0].location), "the removal of everything staged")
    assert hive.sql(f"SELECT count(*) FROM {table}") == [[0]]


def test_a_loser_that_writes_after_the_job_does_not_disturb_the_commit(
    hive: Hive23, table: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that nobody waits for may still write when the manifests are in; its files go, unread."""
    handed_in: list[DeltaManifest] = []
    with builder(hive, table).build() as client, client.new_transaction() as transaction:
        add = transaction.add_manifests

        def remember(name: str, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
            handed_in.extend(manifests)
            add(name, writer_id, manifests)

        monkeypatch.setattr(transaction, "add_manifests", remember)
        apply_changes(transaction, table, inserts(spark), num_partitions=2, options=OPTIONS)
        # Two more attempts of the same writer at the same group: one complete, one cut off in the middle.
        late = MutatorCoordinator(
            transaction.table(table), writer_id=handed_in[0].writer_id, attempt_id="late"
        )
        late.insert(["d0"], {"id": 0, "msg": "loser"})
        (manifest,) = late.close()
        complete = Path(manifest.staged.location.path)
        torn = complete.parent.parent / "torn" / complete.name
        torn.parent.mkdir()
        torn.write_bytes(complete.read_bytes()[: manifest.byte_count // 2])
    assert not [p for p in below(client.tables[0].location) if "_mutation_" in str(p)]
    assert hive.sql(f"SELECT count(*), sum(id), sum(if(msg = 'loser', 1, 0)) FROM {table}") == [
        [ROWS, ROWS * (ROWS - 1) // 2, 0]
    ]


def test_a_speculative_twin_wins_alone(
    hive: Hive23, table: str, live_metastore: MetastoreClient, tmp_path: Path
) -> None:
    """A task stalls, Spark runs it again on another host: one manifest a group, no files of the loser."""
    marker = tmp_path / "stalled"
    with spark_cluster(tmp_path) as master:
        command = [sys.executable, "-m", "tests.integration.speculative_driver"]
        done = subprocess.run(
            [*command, master, hive.uri, table, str(marker)],
            capture_output=True,
            text=True,
            timeout=TWIN_TIMEOUT_SECONDS,
            check=False,
            cwd=Path(__file__).parents[2],
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert marker.exists()
    assert found["files"] == found["groups"] == 12
    losers = set(found["attempts"]) - set(found["winners"])
    assert len(losers) == 1, found
    tasks = [name.split("-")[0] for name in found["attempts"]]
    assert tasks.count(losers.pop().split("-")[0]) == 2
    location = Location.parse(live_metastore.get_table(*table.split(".")).location)
    assert not [p for p in below(location) if "_mutation_" in str(p)]
    assert hive.sql(f"SELECT count(*), count(DISTINCT id), sum(id) FROM {table}") == [
        [ROWS, ROWS, ROWS * (ROWS - 1) // 2]
    ]
