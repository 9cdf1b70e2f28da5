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

from judges.hive.hive_judges import Hive23
from judges.hive.judge import SPEED_OPTIONS, HiveJudge
from judges.storages.s3_server import S3Server
from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import LockLostError, TransactionAbortedError, WorkerError
from mutation_api.merge.merge_report import MergeCounts
from mutation_api.merge.spark_merge import merge_into
from mutation_api.spark import job
from mutation_api.spark.job import apply_changes
from mutation_api.spark.tasks import ChangeWriter
from mutation_api.storage.connect import configure_storage, settings, storage_at
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.manifest import DeltaManifest, staging_directory
from mutation_api.transaction.transaction_state import TransactionState
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_clock import FakeClock, wait_until
from tests.fixtures.fix_hive_elsewhere import ELSEWHERE
from tests.integration.jobs.spark_cluster import spark_cluster
from tests.integration.storages.remote_table import check_nothing_is_left, files_in, hidden

pytestmark = [pytest.mark.slow, pytest.mark.tasks, pytest.mark.usefixtures("leaves_nothing")]

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROOT = Path(__file__).parents[3]
ROWS = 5000
BATCH_ROWS = 200
OPTIONS = WriterOptions(sort_memory_bytes=150_000)
"""A task gets several batches, has to put some aside, and can fail between two that it writes."""
TWIN_TIMEOUT_SECONDS = 400


@dataclasses.dataclass(frozen=True)
class RaisesOnce(ChangeWriter):
    """A writer whose first attempt at each task raises after it wrote its first batch."""

    def in_order(self, table_name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return fail_after_first(super().in_order(table_name, batches), raise_an_error)


@dataclasses.dataclass(frozen=True)
class DiesOnce(ChangeWriter):
    """A writer whose process is killed in the first attempt at each task, after it wrote its first batch."""

    def in_order(self, table_name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return fail_after_first(super().in_order(table_name, batches), kill_this_process)


@dataclasses.dataclass(frozen=True)
class AlwaysRaises(ChangeWriter):
    """A writer none of whose attempts succeeds."""

    def in_order(self, table_name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        in_order = super().in_order(table_name, batches)
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
    return create(hive, f"{hive_database}.t")


@pytest.fixture
def table_elsewhere(hive_elsewhere: HiveJudge, database_elsewhere: str) -> str:
    """The same on a ``storage``."""
    return create(hive_elsewhere, f"{database_elsewhere}.t")


def create(hive: HiveJudge, name: str) -> str:
    hive.sql(
        f"CREATE TABLE {name} (id bigint, msg string) PARTITIONED BY (ds string) "
        "CLUSTERED BY (id) INTO 4 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    return name


def builder(hive: HiveJudge, table: str) -> MutatorClientBuilder:
    return MutatorClientBuilder().metastore(hive.uri).add_sink_table(*table.split("."), True)


def inserts(spark: SparkSession):
    return spark.range(ROWS).selectExpr(
        "'insert' operation", "id", "concat('m', id) msg", "concat('d', id % 3) ds"
    )


def below(location: Location) -> list[Location]:
    """All files, and unfinished uploads."""
    return [*_files_below(location), *(each.location for each in storage_at(location).unfinished(location))]


def _files_below(location: Location) -> list[Location]:
    entries = files_in(location)
    found = [_files_below(e.location) if e.is_directory else [e.location] for e in entries]
    return [place for places in found for place in places]


def staged_files(location: Location) -> list[Location]:
    """Those that wait for the commit; marks of attempts are none."""
    uploads = storage_at(location).unfinished(location)
    hidden_files = [p for p in _files_below(location) if "_mutation_" in p.path and "bucket" in p.name]
    return hidden_files + [each.location for each in uploads]


def check_all_rows(hive: HiveJudge, table: str) -> None:
    assert hive.sql(f"SELECT count(*), count(DISTINCT id), sum(id) FROM {table}") == [
        [ROWS, ROWS, ROWS * (ROWS - 1) // 2]
    ]


@pytest.mark.long
@pytest.mark.sampled(1)
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
    _check_a_lost_attempt(writer, hive, table, spark, monkeypatch)


@pytest.mark.long
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("writer", [RaisesOnce, DiesOnce])
def test_a_lost_attempt_of_a_merge(
    writer: type[ChangeWriter],
    hive: Hive23,
    table: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that owns buckets reads, decides and writes once more; nothing is doubled or left."""
    with builder(hive, table).build() as client:
        with client.new_transaction() as transaction:
            apply_changes(transaction, table, inserts(spark), options=OPTIONS)
        monkeypatch.setattr(job, "ChangeWriter", writer)
        source = inserts(spark).drop("operation").where("id >= 1000").withColumn("msg", sf.lit("new"))
        more = source.withColumn("id", sf.col("id") + ROWS)
        with client.new_transaction() as transaction:
            merge = merge_into(transaction, table, source=source.unionAll(more), on=["id"])
            merge.whenMatched().updateAll()
            merge.whenNotMatched().insertAll()
            merge.whenNotMatchedBySource("target.id < 500").delete()
            report = merge.execute(options=OPTIONS)
            assert report.written is not None
            assert len(staged_files(client.tables[0].location)) == report.written.file_count
        assert report.total == MergeCounts(inserted=ROWS - 1000, updated=ROWS - 1000, deleted=500)
        assert hidden(client.tables[0].location) == []
    sql = f"SELECT count(*), count(DISTINCT id), sum(CASE WHEN msg = 'new' THEN 1 ELSE 0 END) FROM {table}"
    rows = 2 * (ROWS - 1000)
    assert hive.sql(sql) == [[rows + 500, rows + 500, rows]]


@pytest.mark.long
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(
    ("storage", "line", "writer"),
    [
        ("hdfs", "2.3", DiesOnce),
        ("s3", "2.3", RaisesOnce),
        *(("hdfs", line, RaisesOnce) for line in ("2.3", "3.1", "4.1")),
        *(("s3", line, DiesOnce) for line in ("2.3", "4.1")),
    ],
)
def test_a_lost_attempt_leaves_no_trace_elsewhere(
    writer: type[ChangeWriter],
    hive_elsewhere: HiveJudge,
    table_elsewhere: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same on HDFS and on S3."""
    _check_a_lost_attempt(writer, hive_elsewhere, table_elsewhere, spark, monkeypatch)


def _check_a_lost_attempt(
    writer: type[ChangeWriter],
    hive: HiveJudge,
    table: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "ChangeWriter", writer)
    with builder(hive, table).build() as client:
        with client.new_transaction() as transaction:
            summary = apply_changes(transaction, table, inserts(spark), num_partitions=2, options=OPTIONS)
            assert len(staged_files(client.tables[0].location)) == summary.file_count == 12
        assert hidden(client.tables[0].location) == []
    check_all_rows(hive, table)


@pytest.mark.long
@pytest.mark.usefixtures("small_batches")
def test_a_job_that_fails_for_good_leaves_nothing(
    hive: Hive23, table: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When no attempt succeeds the error is short, nothing is left, and the next transaction works."""
    _check_a_job_that_fails(hive, table, spark, monkeypatch)


ELSEWHERE_IN_LONG = [pytest.param(*case, marks=pytest.mark.long) for case in ELSEWHERE]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(("storage", "line"), ELSEWHERE_IN_LONG)
def test_a_job_that_fails_for_good_leaves_nothing_elsewhere(
    hive_elsewhere: HiveJudge, table_elsewhere: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on HDFS and on S3."""
    _check_a_job_that_fails(hive_elsewhere, table_elsewhere, spark, monkeypatch)


def _check_a_job_that_fails(
    hive: HiveJudge, table: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(
    ("storage", "line"), [("s3", "2.3"), pytest.param("s3", "4.1", marks=pytest.mark.long)]
)
def test_a_bad_network_during_a_job(
    hive_elsewhere: HiveJudge, table_elsewhere: str, spark: SparkSession, s3: S3Server
) -> None:
    """The store is busy, and loses answers, while tasks upload and the driver completes: the rows are there
    once, and of requests that were carried out twice nothing is left.
    """
    lost = {"create_upload": 3, "upload_part": 2, "put": 2, "complete_upload": 3, "abort_upload": 1}
    with builder(hive_elsewhere, table_elsewhere).build() as client:
        s3.fail(busy_every=5, lost_answers=lost)
        with client.new_transaction() as transaction:
            apply_changes(transaction, table_elsewhere, inserts(spark), num_partitions=2)
        s3.fail()
        assert hidden(client.tables[0].location) == []
    check_all_rows(hive_elsewhere, table_elsewhere)


@pytest.mark.parametrize(("storage", "line"), [pytest.param("s3", "2.3", marks=pytest.mark.long)])
@pytest.mark.parametrize("requests", [12, 25, 32])
def test_keys_that_expire_during_a_job(
    hive_elsewhere: HiveJudge, table_elsewhere: str, spark: SparkSession, s3: S3Server, requests: int
) -> None:
    """After some requests the token of the configuration is good no more: the error says so, all is aborted,
    and with new keys a sweep leaves nothing.
    """
    token = {"fs.s3a.access.key": "first", "fs.s3a.secret.key": "s", "fs.s3a.session.token": "t"}
    configure_storage(HadoopSettings({**s3.settings, **token}))
    s3.expire({"first": requests})
    with builder(hive_elsewhere, table_elsewhere).build() as client:
        with (
            pytest.raises(WorkerError, match="credentials for the store have expired"),
            client.new_transaction() as transaction,
        ):
            apply_changes(transaction, table_elsewhere, inserts(spark), num_partitions=2)
        assert transaction.state is TransactionState.ABORTED
    configure_storage(HadoopSettings(s3.settings))
    with open_client(hive_elsewhere.uri) as metastore:
        check_nothing_is_left(metastore, table_elsewhere.partition(".")[0])
    with builder(hive_elsewhere, table_elsewhere).build() as client, client.new_transaction() as transaction:
        apply_changes(transaction, table_elsewhere, inserts(spark), num_partitions=2)
    check_all_rows(hive_elsewhere, table_elsewhere)


def test_a_lost_transaction_cancels_the_job(
    hive: Hive23, table: str, spark: SparkSession, clock: FakeClock, tmp_path: Path
) -> None:
    """Somebody aborts the transaction while Spark works: the job is cancelled, and the loss is raised."""
    started = tmp_path / "started"

    def dawdle(value: int) -> int:
        started.touch()
        threading.Event().wait(600)
        return value

    slow = inserts(spark).withColumn("id", sf.udf(dawdle, "bigint", useArrow=False)("id"))
    with builder(hive, table).clock(clock).build() as client:

        def abort_behind_its_back() -> None:
            wait_until(started.exists, "the start of the slow task")
            client.metastore.abort_txn(transaction.txn_id)
            clock.advance(3600)

        transaction = client.new_transaction()
        transaction.begin()
        thief = threading.Thread(target=abort_behind_its_back)
        thief.start()
        with pytest.raises((LockLostError, TransactionAbortedError), match=str(transaction.txn_id)):
            apply_changes(transaction, table, slow)
        thief.join()
        transaction.abort()
        tracker = spark.sparkContext.statusTracker()
        wait_until(lambda: not tracker.getActiveJobsIds(), "the end of the Spark job")
        wait_until(lambda: not below(client.tables[0].location), "the removal of everything staged")
    assert hive.sql(f"SELECT count(*) FROM {table}") == [[0]]


@pytest.mark.long
def test_a_loser_that_writes_after_the_job_does_not_disturb_the_commit(
    hive: Hive23, table: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that nobody waits for may still write when the manifests are in; its files go, unread."""
    _check_a_late_loser(hive, table, spark, monkeypatch)


@pytest.mark.parametrize(("storage", "line"), ELSEWHERE_IN_LONG)
def test_a_loser_that_writes_after_the_job_does_not_disturb_the_commit_elsewhere(
    hive_elsewhere: HiveJudge, table_elsewhere: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on HDFS and on S3."""
    _check_a_late_loser(hive_elsewhere, table_elsewhere, spark, monkeypatch)


def _check_a_late_loser(
    hive: HiveJudge, table: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_in: list[DeltaManifest] = []
    with builder(hive, table).build() as client, client.new_transaction() as transaction:
        add = transaction.add_manifests

        def remember(name: str, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
            handed_in.extend(manifests)
            add(name, writer_id, manifests)

        monkeypatch.setattr(transaction, "add_manifests", remember)
        apply_changes(transaction, table, inserts(spark), num_partitions=2, options=OPTIONS)
        # Two more attempts of the same writer at the same group: one complete, one cut off in the middle.
        bound = transaction.table(table)
        late = MutatorCoordinator(bound, writer_id=handed_in[0].writer_id, attempt_id="late")
        late.insert(["d0"], {"id": 0, "msg": "loser"})
        (manifest,) = late.close()
        directory = staging_directory(bound.location, transaction.txn_id) / manifest.writer_id / "torn"
        storage = storage_at(directory)
        storage.create_directory(directory)
        torn = storage.stage(directory / "0_delta_bucket_00000", manifest.target)
        torn.write(b"half")
        torn.close()
    assert hidden(client.tables[0].location) == []
    assert hive.sql(f"SELECT count(*), sum(id), sum(if(msg = 'loser', 1, 0)) FROM {table}") == [
        [ROWS, ROWS * (ROWS - 1) // 2, 0]
    ]


@pytest.mark.long
def test_a_speculative_twin_wins_alone(hive: Hive23, table: str, tmp_path: Path) -> None:
    """A task stalls, Spark runs it again on another host: one manifest a group, no files of the loser."""
    _check_a_twin(hive, table, tmp_path)


@pytest.mark.parametrize(
    ("storage", "line"), [pytest.param(storage, "2.3", marks=pytest.mark.long) for storage in ("hdfs", "s3")]
)
def test_a_speculative_twin_wins_alone_elsewhere(
    hive_elsewhere: HiveJudge,
    table_elsewhere: str,
    conf_elsewhere: Path,
    tmp_path: Path,
) -> None:
    """The same on HDFS and on S3."""
    _check_a_twin(hive_elsewhere, table_elsewhere, tmp_path, HADOOP_CONF_DIR=str(conf_elsewhere))


def _check_a_twin(hive: HiveJudge, table: str, folder: Path, **environment: str) -> None:
    marker = folder / "stalled"
    with spark_cluster(folder) as master:
        command = [sys.executable, "-m", "tests.integration.drivers.speculative_driver"]
        done = subprocess.run(
            [*command, master, hive.uri, table, str(marker)],
            capture_output=True,
            text=True,
            timeout=TWIN_TIMEOUT_SECONDS,
            check=False,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert marker.exists()
    assert found["files"] == found["groups"] == 12
    losers = set(found["attempts"]) - set(found["winners"])
    assert len(losers) == 1, found
    tasks = [name.split("-")[0] for name in found["attempts"]]
    assert tasks.count(losers.pop().split("-")[0]) == 2
    with open_client(hive.uri) as metastore:
        assert hidden(Location.parse(metastore.get_table(*table.split(".")).location)) == []
    check_all_rows(hive, table)


@pytest.mark.long
@pytest.mark.parametrize(
    ("storage", "line", "how"),
    [
        ("hdfs", "2.3", "by file"),
        *(("hdfs", line, "by session") for line in ("3.1", "4.1")),
        ("s3", "2.3", "by session"),
        ("s3", "4.1", "by file"),
    ],
)
def test_a_cluster_whose_machines_share_nothing(
    hive_elsewhere: HiveJudge, table_elsewhere: str, conf_elsewhere: Path, tmp_path: Path, how: str
) -> None:
    """The driver alone knows the storage, from its Hadoop files or its session; it and the two workers have
    no folder in common. Inserts, a merge by key and a snapshot are what Hive sees.
    """
    own = tmp_path / "driver"
    (own / "tmp").mkdir(parents=True)
    (tmp_path / "cluster").mkdir()
    environment = {**os.environ, "TMPDIR": str(own / "tmp"), "SPARK_LOCAL_DIRS": str(own)}
    pairs = [f"spark.hadoop.{name}={text}" for name, text in settings().properties.items()]
    if how == "by file":
        environment["HADOOP_CONF_DIR"], pairs = str(conf_elsewhere), []
    with spark_cluster(tmp_path / "cluster") as master:
        done = subprocess.run(
            [
                sys.executable,
                Path(__file__).parents[1] / "drivers" / "cluster_driver.py",
                *(master, hive_elsewhere.uri, table_elsewhere, " ".join(SPEED_OPTIONS), *pairs),
            ],
            capture_output=True,
            text=True,
            timeout=TWIN_TIMEOUT_SECONDS,
            check=False,
            cwd=own,
            env=environment,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    expected = [[n, "new" if n % 4 == 2 else f"m{n}", f"d{n % 3}"] for n in range(200) if n % 4]
    assert found["rows"] == expected
    assert sorted(hive_elsewhere.sql(f"SELECT id, msg, ds FROM {table_elsewhere}")) == expected
    first, second = (json.loads(place) for place in found["places"])
    assert first["told"] == second["told"] == "nothing"
    for name in ("runs in", "temporary", "shuffles"):
        assert first[name] != second[name]
        assert all(place[name].startswith(f"{tmp_path}/cluster/") for place in (first, second))
