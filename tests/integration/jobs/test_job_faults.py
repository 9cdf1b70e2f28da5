"""Faults while a job writes and commits: the metastore dies, beats are lost, the storage is full or gone.

After each: all or nothing as Hive reads it, nothing left in staging, and a following transaction works.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from judges.hive.hive_judges import Hive23, s3a_jars
from judges.hive.judge import HiveJudge
from metastore_client.embedded import server as server_module
from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.errors import MetastoreUnavailableError
from metastore_client.java import hive_class_path
from metastore_client.model import TxnState
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api.errors import (
    CommitOutcomeUnknownError,
    ConnectionFailedError,
    DeltaWriteError,
    LockLostError,
)
from mutation_api.storage.connect import settings, storage_at
from mutation_api.storage.protocol import OutputFile, Storage
from mutation_api.transaction.manifest import STAGING_PREFIX
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction_state import TransactionState
from tests.fixtures.fix_clock import FakeClock, wait_until
from tests.fixtures.fix_metastore import MetastoreProxy
from tests.integration.conftest import MakeTable
from tests.integration.storages.remote_table import check_nothing_is_left, hidden
from tests.integration.transactions.live_table import LiveTable, insert, is_aborted, write

pytestmark = pytest.mark.slow

TXN_TIMEOUT_SECONDS = 300.0
"""``hive.txn.timeout`` of every server here; the clock is ours, so nobody waits for it."""
BEATING_THREADS = 2
FILE_SIZE_LIMIT_BYTES = 1 << 20

CHANGES = (insert("old", 1), insert("new", 2))
BEFORE = [("ds=old", 0, "old")]
AFTER = [("ds=new", 2, "new"), *BEFORE, ("ds=old", 1, "new")]


class Listener:
    """Remembers of which transactions it was told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def lock_failed(self, lock_id: Any, txn_id: int, tables: Any, error: Any) -> None:
        self.told.append(txn_id)


class RescuingClock(FakeClock):
    """Calls ``rescue`` at the second sleep, as if somebody had noticed."""

    def __init__(self, rescue: Callable[[], object]) -> None:
        super().__init__()
        self._rescue = rescue

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if len(self.sleeps) == 2:
            self._rescue()


class KillingMetastore:
    """A metastore client whose server is killed at the first call of a name, before or after it is done."""

    def __init__(self, client: Any, server: EmbeddedMetastore, call: str, *, after: bool = False) -> None:
        self._client = client
        self._server = server
        self._call: str | None = call
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return self._killed_at(method) if name == self._call else method

    def _killed_at(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self._call = None
            if self._after:
                method(*arguments, **named)
            self._server.kill()
            if self._after:
                raise MetastoreUnavailableError("killed before it could answer", outcome_unknown=True)
            return method(*arguments, **named)

        return call


def pass_time(clock: FakeClock, seconds: float) -> None:
    """Let time pass in small steps, in each of which the beats that are due are sent and answered."""
    for _ in range(10):
        clock.wait_for_waiters(BEATING_THREADS)
        clock.advance(seconds / 10)
    clock.wait_for_waiters(BEATING_THREADS)


def check_works_again(table: LiveTable) -> None:
    """Nothing of the failed transaction is seen or staged, and the same changes can be made now."""
    assert table.values() == BEFORE
    assert table.staged() == set()
    table.commit(*CHANGES)
    assert table.values() == AFTER
    assert table.staged() == set()


# -- the metastore dies ------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMetastore]:
    """A metastore that may be killed; each test leaves it running."""
    with EmbeddedMetastore(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def line(server: EmbeddedMetastore) -> Iterator[ThriftMetastoreClient]:
    """A client of it that gives up at once when nobody answers."""
    with open_client(_impatient(server.uri)) as client:
        yield client


@pytest.fixture
def table(hive: Hive23, line: ThriftMetastoreClient) -> LiveTable:
    """A table in that metastore with one row; Hive reads its directory."""
    return with_a_row(LiveTable.create(hive, line, "default"))


def with_a_row(table: LiveTable) -> LiveTable:
    table.commit(insert("old", 0, "old"))
    return table


def _impatient(uri: str) -> dict[str, str]:
    return {
        "hive.metastore.uris": uri,
        "hive.metastore.connect.retries": "1",
        "hive.metastore.client.connect.retry.delay": "1ms",
    }


def _client(table: LiveTable, metastore: Any, clock: FakeClock, listener: Listener) -> MutatorClient:
    return table.builder().metastore(metastore).clock(clock).lock_failure_listener(listener).build()


@pytest.mark.long
def test_the_metastore_is_killed_and_started_again_during_the_job(
    server: EmbeddedMetastore, table: LiveTable, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers need no metastore; the beats of its absence are lost, later ones succeed, all is committed."""
    listener = Listener()
    with (
        _client(table, table.metastore, clock, listener) as client,
        client.new_transaction() as transaction,
    ):
        transaction.table(table.full_name)  # what a job is given, read before it starts
        server.kill()
        pass_time(clock, 0.7 * TXN_TIMEOUT_SECONDS)
        assert f"heartbeat of transaction {transaction.txn_id} failed" in caplog.text
        write(transaction, table.full_name, CHANGES)
        server.start()
        pass_time(clock, 0.9 * TXN_TIMEOUT_SECONDS)
        transaction.check()
        assert table.values() == BEFORE
    assert transaction.state is TransactionState.COMMITTED
    assert listener.told == []
    assert table.values() == AFTER
    assert table.staged() == set()


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("after", [False, True], ids=["before it was done", "after it was done"])
def test_the_metastore_is_killed_and_started_again_during_the_commit(
    server: EmbeddedMetastore, table: LiveTable, after: bool
) -> None:
    """The commit is asked for again, within its bound, and its outcome found out: the rows are there once."""
    _check_killed_during_the_commit(server, table, after=after)


def _check_killed_during_the_commit(server: EmbeddedMetastore, table: LiveTable, *, after: bool) -> None:
    clock = RescuingClock(server.start)
    killing = KillingMetastore(table.metastore, server, "commit_txn", after=after)
    with (
        _client(table, killing, clock, Listener()) as client,
        client.new_transaction() as transaction,
    ):
        write(transaction, table.full_name, CHANGES)
    assert transaction.state is TransactionState.COMMITTED
    assert server.is_running and sum(clock.sleeps) < 60
    assert table.values() == AFTER
    table.commit(insert("old", 3))
    assert table.values() == [*AFTER, ("ds=old", 3, "new")]
    assert table.staged() == set()


@pytest.mark.long
def test_the_metastore_stays_away_when_files_are_to_be_published(
    server: EmbeddedMetastore, table: LiveTable, clock: FakeClock
) -> None:
    """Nothing is published; what the server still takes for open is ended by its reaper, and work goes on."""
    killing = KillingMetastore(table.metastore, server, "add_dynamic_partitions")
    with _client(table, killing, clock, Listener()) as client:
        files = table.files()
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, table.full_name, CHANGES)
        with pytest.raises(ConnectionFailedError, match=f"transaction {transaction.txn_id}"):
            transaction.commit()
        assert transaction.state is TransactionState.ABORTED
        assert table.files() == files
        assert table.staged() == set()
        server.start()
    _reap(table, transaction.txn_id)
    check_works_again(table)


@pytest.mark.long
def test_the_metastore_stays_away_for_longer_than_the_commit_can_wait(
    server: EmbeddedMetastore, table: LiveTable, clock: FakeClock
) -> None:
    """Nobody can know the outcome, so nothing is removed; it was not committed, and no row is ever seen."""
    killing = KillingMetastore(table.metastore, server, "commit_txn")
    with _client(table, killing, clock, Listener()) as client:
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, table.full_name, CHANGES)
        with pytest.raises(CommitOutcomeUnknownError, match="if the transaction is listed as open"):
            transaction.commit()
        assert sum(clock.sleeps) == pytest.approx(60)
        server.start()
    assert any(f"delta_{transaction.txn_id:07d}" in name for name in table.files())
    _reap(table, transaction.txn_id)
    check_works_again(table)


def _reap(table: LiveTable, txn_id: int) -> None:
    """Do what the server's reaper does some minutes later: no beat comes for the transaction any more."""
    found = table.txn(txn_id)
    assert found is not None and found.state is TxnState.OPEN
    assert table.values() == BEFORE
    table.metastore.abort_txn(txn_id)


# -- beats are lost ----------------------------------------------------------------------------------------
@pytest.fixture
def proxy(hive: Hive23, metastore_proxy: Callable[[str], MetastoreProxy]) -> MetastoreProxy:
    """A line to the judge's metastore that can be cut."""
    return metastore_proxy(hive.uri)


@pytest.fixture
def filled_table(make_table: MakeTable) -> LiveTable:
    """A table in the judge's metastore with one row."""
    return with_a_row(make_table())


def test_beats_that_are_lost_for_a_while_do_no_harm(
    filled_table: LiveTable, proxy: MetastoreProxy, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The transaction survives a cut shorter than 0.8 of the server's timeout, and nobody is alarmed."""
    table, listener = filled_table, Listener()
    with (
        open_client(_impatient(proxy.uri)) as line,
        _client(table, line, clock, listener) as client,
        client.new_transaction() as transaction,
    ):
        write(transaction, table.full_name, CHANGES)
        proxy.go_down()
        pass_time(clock, 0.7 * TXN_TIMEOUT_SECONDS)
        assert f"heartbeat of transaction {transaction.txn_id} failed" in caplog.text
        proxy.come_up()
        pass_time(clock, 0.9 * TXN_TIMEOUT_SECONDS)
        transaction.check()
    assert listener.told == []
    assert table.values() == AFTER
    assert table.staged() == set()


@pytest.mark.parametrize("returns", [True, False], ids=["the connection returns", "the connection stays cut"])
def test_beats_that_are_lost_for_too_long_lose_the_transaction(
    hive: Hive23, filled_table: LiveTable, proxy: MetastoreProxy, clock: FakeClock, returns: bool
) -> None:
    """Listener and job are told once, before the reaper can have struck; the commit is refused."""
    table, listener, lost = filled_table, Listener(), list[Exception]()
    with open_client(_impatient(proxy.uri)) as line, _client(table, line, clock, listener) as client:
        transaction = client.new_transaction()
        transaction.begin()
        transaction.on_lost(lost.append)
        write(transaction, table.full_name, CHANGES)
        proxy.go_down()
        clock.wait_for_waiters(BEATING_THREADS)
        clock.advance(0.8 * TXN_TIMEOUT_SECONDS)
        wait_until(lambda: bool(lost), "the loss")
        if returns:
            proxy.come_up()
        with pytest.raises(LockLostError, match=f"transaction {transaction.txn_id} could not reach"):
            transaction.commit()
        assert transaction.state is TransactionState.ABORTED
        assert len(lost) == 1 and listener.told == [transaction.txn_id]
    if not returns:
        hive.time_out_transactions(0)
    assert table.txn(transaction.txn_id) is None or is_aborted(table, transaction.txn_id)
    check_works_again(table)


# -- the disk is full, or cannot be written ----------------------------------------------------------------
@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow beyond a bound: the kernel refuses it as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE_LIMIT_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_disk_is_full_while_a_task_writes(filled_table: LiveTable) -> None:
    """The error of the file system travels on, and the transaction is aborted."""
    table = filled_table
    big = os.urandom(2 * FILE_SIZE_LIMIT_BYTES).hex()
    with (
        full_disk(),
        pytest.raises(DeltaWriteError, match=f"{table.full_name}.*File too large"),
        table.transaction() as transaction,
    ):
        write(transaction, table.full_name, [insert("old", 1, big), *CHANGES])
    assert transaction.state is TransactionState.ABORTED
    check_works_again(table)


def test_the_staging_directory_cannot_be_made(filled_table: LiveTable) -> None:
    """The first file already is refused."""
    table = filled_table
    with table.client() as client:
        transaction = client.new_transaction()
        transaction.begin()
        in_the_way = table.directory / f"{STAGING_PREFIX}{transaction.txn_id}"
        in_the_way.write_text("a file where a directory should be")
        with pytest.raises(DeltaWriteError, match=table.full_name):
            write(transaction, table.full_name, CHANGES)
        transaction.abort()
        in_the_way.unlink()
    check_works_again(table)


def no_space(original: Callable[..., Any], text: str, good_calls: int) -> Callable[..., Any]:
    """A method of a storage that fails for places with ``text`` after some calls for them."""
    calls: list[str] = []

    def method(storage: Storage, *arguments: Any) -> Any:
        if text in str(arguments):
            calls.append(text)
            if len(calls) > good_calls:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))
        return original(storage, *arguments)

    return method


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("cleaning_fails", [False, True], ids=["cleaning works", "cleaning fails too"])
@pytest.mark.parametrize(
    ("step", "text"),
    [
        ("create_directory", "delta_"),
        ("create", "_orc_acid_version"),
        ("publish", "bucket_"),
        ("sync_directory", "delta_"),
    ],
)
def test_the_disk_is_full_while_files_are_published(
    filled_table: LiveTable, monkeypatch: pytest.MonkeyPatch, step: str, text: str, cleaning_fails: bool
) -> None:
    """It fails in one of two partitions: the other one's files go away again, or are never seen."""
    _check_full_at_commit(filled_table, monkeypatch, step, text, cleaning_fails=cleaning_fails)


CLEANING = ("abandon", "delete_file", "delete_directory")


def _check_full_at_commit(
    table: LiveTable, monkeypatch: pytest.MonkeyPatch, step: str, text: str, *, cleaning_fails: bool
) -> None:
    kind = type(storage_at(table.location))
    before = table.files()
    with table.client() as client:
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, table.full_name, CHANGES)
        good_calls = 0 if step == "create" else 1  # only the new partition lacks the version file
        with monkeypatch.context() as patch:
            patch.setattr(kind, step, no_space(getattr(kind, step), text, good_calls))
            for each in CLEANING if cleaning_fails else ():
                patch.setattr(kind, each, no_space(getattr(kind, each), "", 0))
            with pytest.raises(DeltaWriteError, match=f"{table.full_name}.*No space left"):
                transaction.commit()
        assert is_aborted(table, transaction.txn_id)
        assert cleaning_fails or table.files() == before
    assert table.values() == BEFORE
    if cleaning_fails:  # the next transaction on the table removes what was staged
        # files get their names beside the one that cannot be made
        assert bool(table.staged()) is (step in ("create_directory", "publish"))
        with table.transaction():
            assert table.staged() == set()
    check_works_again(table)


# -- tables that lie elsewhere -----------------------------------------------------------------------------
on_hdfs_and_s3 = pytest.mark.parametrize(("storage", "line"), [("hdfs", "2.3"), ("s3", "2.3")])


class FullOutput:
    """A file whose end does not fit any more."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file.staged.location))


STEPS_OF_A_TASK = {
    "hdfs": [("create_directory", "_mutation_", 0), ("stage", "bucket_", 0), ("stage", "bucket_", 1)],
    "s3": [("create", "_mutation_", 0), ("begin_upload", "bucket_", 1), ("send_parts", "bucket_", 1)],
}
"""Method, a part of its arguments' text, and how many calls with that go well."""


@pytest.mark.long
@on_hdfs_and_s3
def test_the_storage_is_full_while_a_task_writes(
    make_table_elsewhere: MakeTable, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error travels on, at whichever step; nothing is left, neither before nor after the abort."""
    table = with_a_row(make_table_elsewhere())
    kind = type(storage_at(table.location))
    stage = kind.stage
    failing = [(name, no_space(getattr(kind, name), *how)) for name, *how in STEPS_OF_A_TASK[storage]]
    for name, method in [*failing, ("stage", lambda *places: FullOutput(stage(*places)))]:
        with (
            monkeypatch.context() as patch,
            pytest.raises(DeltaWriteError, match=f"{table.full_name}.*No space left"),
            table.transaction() as transaction,
        ):
            patch.setattr(kind, name, method)
            write(transaction, table.full_name, CHANGES)
        assert transaction.state is TransactionState.ABORTED
        assert hidden(table.location) == []
    check_works_again(table)


STEPS_OF_A_COMMIT = [
    ("hdfs", "create_directory", "delta_", True),
    ("hdfs", "create", "_orc_acid_version", False),
    ("hdfs", "publish", "bucket_", False),
    ("s3", "create", "_orc_acid_version", False),
    ("s3", "publish", "bucket_", True),
]


@pytest.mark.parametrize("line", ["2.3"])
@pytest.mark.parametrize(
    ("storage", "step", "text", "cleaning_fails"),
    [
        ("hdfs", "publish", "bucket_", True),
        ("s3", "publish", "bucket_", False),
        *(pytest.param(*case, marks=pytest.mark.long) for case in STEPS_OF_A_COMMIT),
    ],
)
def test_the_storage_is_full_while_files_are_published(
    make_table_elsewhere: MakeTable,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    text: str,
    cleaning_fails: bool,
) -> None:
    """As on a disk; unfinished uploads go away, too."""
    table = with_a_row(make_table_elsewhere())
    _check_full_at_commit(table, monkeypatch, step, text, cleaning_fails=cleaning_fails)


@pytest.fixture
def server_elsewhere(
    hive_elsewhere: HiveJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmbeddedMetastore]:
    """A metastore that may be killed, and reaches the storage."""
    path = os.pathsep.join([hive_class_path(), *map(str, s3a_jars("3.5"))])
    monkeypatch.setattr(server_module, "hive_class_path", lambda: path)
    with EmbeddedMetastore(tmp_path / "server", configuration=settings().properties) as server:
        yield server


@pytest.mark.long
@pytest.mark.parametrize(("storage", "line"), [("s3", "2.3"), ("hdfs", "2.3")])
def test_the_metastore_is_killed_during_the_commit_elsewhere(
    hive_elsewhere: HiveJudge, database_elsewhere: str, server_elsewhere: EmbeddedMetastore
) -> None:
    """After it was done, which is the worse: the rows are there once."""
    assert isinstance(hive_elsewhere, Hive23)
    place = hive_elsewhere.sql(f"DESCRIBE DATABASE {database_elsewhere}")[0][2]
    with open_client(_impatient(server_elsewhere.uri)) as line:
        made = LiveTable.create(hive_elsewhere, line, "default", location=f"{place}/killed")
        _check_killed_during_the_commit(server_elsewhere, with_a_row(made), after=True)
        check_nothing_is_left(line, "default")
