"""The metastore goes away, comes back, or loses a line in the middle of a call; judge is a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.errors import MetastoreError, MetastoreUnavailableError, NoSuchTxnError
from metastore_client.hive_site import Address, MetastoreConfig, UriSelection
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    TxnState,
)
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from tests.fixtures.fix_metastore import MetastoreProxy, acid_table_info

pytestmark = pytest.mark.slow

MakeProxy = Callable[[str], MetastoreProxy]


@pytest.fixture
def proxy(embedded_metastore: EmbeddedMetastore, metastore_proxy: MakeProxy) -> MetastoreProxy:
    """A line to the real server that can be cut."""
    return metastore_proxy(embedded_metastore.uri)


def config_for(*uris: str, **more: object) -> MetastoreConfig:
    addresses = tuple(Address("127.0.0.1", int(uri.rpartition(":")[2])) for uri in uris)
    return MetastoreConfig(
        addresses=addresses, selection=UriSelection.SEQUENTIAL, connect_retry_delay_seconds=0.0, **more
    )  # type: ignore[arg-type]


def state_of(client: ThriftMetastoreClient, txn_id: int) -> TxnState | None:
    return next((t.state for t in client.get_open_txns().txns if t.id == txn_id), None)


def lock_request(txn_id: int, table: str) -> LockRequest:
    component = LockComponent(
        LockType.SHARED_WRITE, LockLevel.TABLE, "default", table, None, DataOperationType.UPDATE
    )
    return LockRequest((component,), txn_id, "user", "host", "agent")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not happen within 60 s"


@pytest.mark.parametrize("after", [False, True])
def test_calls_that_may_be_doubled_survive_a_cut(proxy: MetastoreProxy, after: bool) -> None:
    """Whether the request or its answer is lost, the call is repeated on a new line and nobody notices."""
    with ThriftMetastoreClient(config_for(proxy.uri)) as client:
        txn_id = client.open_txn("user", "host", "agent")
        proxy.cut("heartbeat_txn_range", after=after)
        assert client.heartbeat_txn_range(txn_id, txn_id).nosuch == frozenset()
        proxy.cut("add_dynamic_partitions", after=after)
        client.add_dynamic_partitions(txn_id, "default", "t", ["ds=a"], DataOperationType.UPDATE)
        response = client.lock(lock_request(txn_id, f"cut{after}"))
        proxy.cut("check_lock", after=after)
        assert client.check_lock(response.lock_id, txn_id).state is LockState.ACQUIRED
        proxy.cut("abort_txn", after=after)
        client.abort_txn(txn_id)
        assert state_of(client, txn_id) is TxnState.ABORTED
    assert proxy.calls.count("abort_txn") == 2


@pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)
def test_transactions_are_listed_without_users_where_their_list_fails(
    hive_line: HiveJudge, metastore_proxy: MakeProxy
) -> None:
    """The ids and states are those of the full list."""
    proxy = metastore_proxy(hive_line.uri)
    with ThriftMetastoreClient(config_for(proxy.uri)) as client:
        table = acid_table_info("default", f"listed{os.getpid()}")
        client.create_table(table)
        ids = [client.open_txn("user", "host", "agent") for _ in range(12)]
        for txn_id in ids[::3]:  # a transaction that has written stays listed after it was aborted
            write_id = client.allocate_write_id(txn_id, table.database, table.name)
            client.add_dynamic_partitions(
                txn_id, table.database, table.name, [], DataOperationType.INSERT, write_id=write_id
            )
            client.lock(lock_request(txn_id, table.name))
            client.abort_txn(txn_id)
        listed = client.get_open_txns()
        proxy.cut("get_open_txns_info", after=False, times=2)
        bare = client.get_open_txns()
        assert proxy.calls[-1] == "get_open_txns"
        assert bare.high_watermark == listed.high_watermark
        assert [(each.id, each.state) for each in bare.txns] == [(e.id, e.state) for e in listed.txns]
        assert {each.state for each in bare.txns if each.id in ids} == {TxnState.OPEN, TxnState.ABORTED}
        assert {(each.user, each.started_time) for each in bare.txns} == {("", None)}


@pytest.mark.parametrize("after", [False, True])
def test_a_lock_is_never_asked_for_twice(proxy: MetastoreProxy, after: bool) -> None:
    """A second request in one transaction would be granted past the queue; the caller has to begin anew."""
    with ThriftMetastoreClient(config_for(proxy.uri)) as client:
        txn_id = client.open_txn("user", "host", "agent")
        proxy.cut("lock", after=after)
        with pytest.raises(MetastoreUnavailableError, match=r"lock: .* may have taken effect") as caught:
            client.lock(lock_request(txn_id, f"once{after}"))
        assert caught.value.outcome_unknown
        assert proxy.calls.count("lock") == 1
        assert len(client.show_locks("default", f"once{after}")) == int(after)
        client.abort_txn(txn_id)


@pytest.mark.parametrize("after", [False, True])
def test_a_commit_whose_answer_is_lost_is_left_to_the_caller(proxy: MetastoreProxy, after: bool) -> None:
    """The error says that the outcome is unknown; the server's list tells it."""
    with ThriftMetastoreClient(config_for(proxy.uri)) as client:
        txn_id = client.open_txn("user", "host", "agent")
        client.add_dynamic_partitions(txn_id, "default", "t", ["ds=a"], DataOperationType.INSERT)
        proxy.cut("commit_txn", after=after)
        with pytest.raises(MetastoreUnavailableError) as caught:
            client.commit_txn(txn_id)
        assert caught.value.outcome_unknown
        assert proxy.calls.count("commit_txn") == 1
        wait_until(lambda: state_of(client, txn_id) is (None if after else TxnState.OPEN))
        client.commit_txn(txn_id)
        assert state_of(client, txn_id) is None


def test_a_line_cut_while_idle_is_noticed_before_the_call(proxy: MetastoreProxy) -> None:
    """Not even a lock request fails then: nothing has been sent yet."""
    with ThriftMetastoreClient(config_for(proxy.uri)) as client:
        txn_id = client.open_txn("user", "host", "agent")
        proxy.cut_all()
        wait_until(lambda: not proxy._lines)
        assert client.lock(lock_request(txn_id, "idle")).state is LockState.ACQUIRED
        client.abort_txn(txn_id)


def test_another_address_takes_over(
    embedded_metastore: EmbeddedMetastore, metastore_proxy: MakeProxy
) -> None:
    """Both lead to one database, so the transaction goes on; with none left the error names all."""
    first, second = metastore_proxy(embedded_metastore.uri), metastore_proxy(embedded_metastore.uri)
    with ThriftMetastoreClient(config_for(first.uri, second.uri, connect_rounds=2)) as client:
        txn_id = client.open_txn("user", "host", "agent")
        assert second.calls == []
        first.go_down()
        assert client.heartbeat_txn_range(txn_id, txn_id).nosuch == frozenset()
        assert "heartbeat_txn_range" in second.calls
        second.go_down()
        with pytest.raises(MetastoreUnavailableError) as caught:
            client.commit_txn(txn_id)
        assert first.uri in str(caught.value) and second.uri in str(caught.value)
        assert not caught.value.outcome_unknown
        first.come_up()
        client.commit_txn(txn_id)


def test_each_thread_has_a_line_of_its_own(proxy: MetastoreProxy) -> None:
    """Beats in one thread and calls in others do not mix; lines of threads that ended are closed."""
    with ThriftMetastoreClient(config_for(proxy.uri)) as client:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(20):
                    txn_id = client.open_txn("user", "host", "agent")
                    assert client.heartbeat_txn_range(txn_id, txn_id).nosuch == frozenset()
                    client.commit_txn(txn_id)
                    with pytest.raises(NoSuchTxnError):
                        client.commit_txn(txn_id)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.get_all_tables("default")
        assert failures == []
        assert len(client._pool._connections) == 1


def test_the_wrong_protocol_is_told(embedded_metastore: EmbeddedMetastore) -> None:
    """The server hangs up at once; the error says what to look at."""
    config = config_for(embedded_metastore.uri, is_compact=True, connect_rounds=1)
    with (
        ThriftMetastoreClient(config) as client,
        pytest.raises(MetastoreUnavailableError, match="compact protocol"),
    ):
        client.get_all_tables("default")


@pytest.mark.long
def test_compact_protocol_and_framed_transport(tmp_path: Path) -> None:
    """Both are spoken if the server is told to; requests that fail in encoding do not garble the next."""
    configuration = {
        "hive.metastore.thrift.compact.protocol.enabled": "true",
        "hive.metastore.thrift.framed.transport.enabled": "true",
    }
    with (
        EmbeddedMetastore(tmp_path, configuration=configuration) as metastore,
        open_client({**configuration, "hive.metastore.uris": metastore.uri}) as client,
    ):
        client.create_table(acid_table_info("default", "t", "ds"))
        with pytest.raises(MetastoreError):
            client._call("get_partitions_by_names", "default", "t", ["ds=a", None])
        assert client.add_partitions("default", "t", [("a",)])[0].name == "ds=a"


@pytest.mark.long
def test_a_killed_server_comes_back_with_its_transactions(tmp_path: Path) -> None:
    """After kill -9 and a new start on the same folder: open stays open, committed stays committed."""
    with EmbeddedMetastore(tmp_path / "data") as metastore:
        with ThriftMetastoreClient(config_for(metastore.uri, connect_rounds=100)) as client:
            client.create_table(acid_table_info("default", "t", "ds"))
            committed, still_open = (client.open_txn("user", "host", "agent") for _ in range(2))
            client.add_dynamic_partitions(committed, "default", "t", ["ds=a"], DataOperationType.INSERT)
            client.commit_txn(committed)
            uri = metastore.uri
            metastore.kill()
            assert not metastore.is_running
            metastore.start()
            assert metastore.uri == uri
            assert state_of(client, committed) is None
            client.commit_txn(committed)
            assert state_of(client, still_open) is TxnState.OPEN
            client.commit_txn(still_open)
            assert client.get_all_tables("default") == ["t"]
        log = metastore.log_file
    assert log.exists() and (tmp_path / "data" / "metastore_db").is_dir()


@pytest.mark.long
def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    """It does not wait for the time-out, and the end of the log says why."""
    (tmp_path / "metastore_db").write_text("no database")
    with pytest.raises(MetastoreUnavailableError, match=r"the end of .*metastore\.log"):
        EmbeddedMetastore(tmp_path, start_timeout_seconds=60).start()


def test_a_start_that_is_given_up_leaves_nothing_behind() -> None:
    """Neither the process nor the temporary folder."""
    metastore = EmbeddedMetastore(start_timeout_seconds=0.1)
    with pytest.raises(MetastoreUnavailableError, match="did not answer within"):
        metastore.start()
    wait_until(lambda: _processes_in(metastore.data_directory) == [])
    assert not metastore.data_directory.exists()


@pytest.mark.long
def test_the_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """Nothing is left behind by kill -9 of the program that started it."""
    command = [sys.executable, "-m", "metastore_client.embedded.server", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        uri = parent.stdout.readline().strip()
        with open_client(uri) as client:
            assert client.get_all_tables("default") == []
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not _processes_in(tmp_path))


@pytest.mark.long  # the same process ends with Ctrl-C in tests/unit/cli/test_metastore.py
def test_the_command_ends_with_ctrl_c(tmp_path: Path) -> None:
    """Exit status 0, no process left, the given folder stays."""
    command = [sys.executable, "-m", "metastore_client.embedded.server", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith("thrift://127.0.0.1:")
        parent.send_signal(signal.SIGINT)
        assert parent.wait(60) == 0
    assert _processes_in(tmp_path) == []
    assert (tmp_path / "metastore_db").is_dir()


def _processes_in(folder: Path) -> list[int]:
    """Ids of the processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.readlink(entry / "cwd") == str(folder):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
