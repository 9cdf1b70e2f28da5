"""Connecting, what it refuses and warns of, and that closing leaves nothing open."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.model import TxnState
from metastore_client.testing import InMemoryMetastore
from mutation_api.errors import (
    ConfigurationError,
    ConnectionFailedError,
    RecordValueError,
    TableNotFoundError,
    TableNotMutableError,
    TransactionStateError,
)
from mutation_api.table.acid_table import AcidTableSerializer
from mutation_api.transaction import catalog, mutator_client
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.transaction_state import TransactionState
from mutation_api.write.constraint_checks import PartitionNames
from tests.fixtures.fix_clock import WAIT_BOUND_SECONDS, FakeClock
from tests.support.client_support import builder, table_info


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    result = InMemoryMetastore(tmp_path)
    result.create_table(table_info("t"))
    return result


def test_connect_names_a_missing_table(metastore: InMemoryMetastore) -> None:
    """Refused before any transaction is opened."""
    said = r"default\.nothere does not exist at memory:\S+\. Check the name, .*hive-mutate create-table"
    with pytest.raises(TableNotFoundError, match=said):
        builder(metastore, None, "nothere").build().connect()
    nowhere = MutatorClientBuilder().metastore(metastore).add_sink_table("nodb.t")
    with pytest.raises(TableNotFoundError, match=r"table nodb\.t does not exist at .*its database nodb does"):
        nowhere.build().connect()
    assert "open_txn" not in metastore.calls


def test_connect_refuses_an_unwritable_location(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """A sink is tried out with a hidden file; nothing of it stays."""
    with builder(metastore, None, "t").build():
        assert list((tmp_path / "t").iterdir()) == []
    (tmp_path / "t").rmdir()
    (tmp_path / "t").write_text("a file where the table's directory should be")
    with pytest.raises(TableNotMutableError, match=r"cannot be read: .*Not a directory"):
        builder(metastore, None, "t").build().connect()


def test_a_location_that_cannot_be_reached_is_named_once(metastore: InMemoryMetastore) -> None:
    """The error of the storage names it, too."""
    metastore.create_table(replace(table_info("far"), location="nosuch://there/far"))
    with pytest.raises(TableNotMutableError, match="unsupported scheme") as caught:
        builder(metastore, None, "far").build().connect()
    assert str(caught.value).count("nosuch://there/far") == 1


def test_a_silent_metastore_is_a_failed_connection(metastore: InMemoryMetastore) -> None:
    """Whatever call is the first to fail, the error is ours."""
    metastore.fail_next("get_table", MetastoreUnavailableError("nobody there"))
    with pytest.raises(ConnectionFailedError, match="nobody there"):
        builder(metastore, None, "t").build().connect()


def test_nobody_listens_at_the_address(tmp_path: Path) -> None:
    """A failed connection says which address and whence it comes, and nothing of what servers may expect."""
    settings = {"hive.metastore.uris": "thrift://127.0.0.1:1", **_NO_PATIENCE}
    properties = "".join(
        f"<property><name>{n}</name><value>{v}</value></property>" for n, v in settings.items()
    )
    file = tmp_path / "hive-site.xml"
    file.write_text(f"<configuration>{properties}</configuration>")
    client = MutatorClientBuilder().metastore(str(file))
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1: .*refused") as caught:
        client.build().connect()
    assert str(caught.value).endswith(f"; the addresses were read from {file}")


_NO_PATIENCE = {"hive.metastore.connect.retries": "1", "hive.metastore.client.connect.retry.delay": "1ms"}


def test_an_address_that_makes_no_sense() -> None:
    """A mistake in the configuration and a server that is down are different errors."""
    with pytest.raises(ConfigurationError):
        MutatorClientBuilder().metastore("http://host").build().connect()


def test_nothing_works_before_connect(metastore: InMemoryMetastore) -> None:
    """Both ways of starting work say what is missing."""
    client = builder(metastore, None, "t").build()
    for call in (client.new_transaction, lambda: client.open_snapshot("default.t")):
        with pytest.raises(TransactionStateError, match="not connected"):
            call()


def test_a_client_without_tables_makes_no_transactions(metastore: InMemoryMetastore) -> None:
    """The original fails with a protocol error here."""
    with (
        builder(metastore, None).build() as client,
        pytest.raises(ConfigurationError, match="add_sink_table"),
    ):
        client.new_transaction()


def test_close_aborts_what_is_open(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    """Open transactions are aborted, snapshots released; ended ones are left alone; twice is harmless."""
    client = builder(metastore, clock, "t").build().connect()
    done = client.new_transaction()
    done.begin()
    done.commit()
    transaction = client.new_transaction()
    transaction.begin()
    snapshot = client.open_snapshot("default.t")
    client.close()
    client.close()
    assert transaction.state is TransactionState.ABORTED
    assert done.state is TransactionState.COMMITTED
    assert metastore.show_locks() == []
    assert [t.id for t in metastore.get_open_txns().txns if t.state is TxnState.OPEN] == []
    with pytest.raises(TransactionStateError, match="closed"):
        snapshot.table("default.t")


def test_warnings_for_a_server_that_never_compacts(tmp_path: Path) -> None:
    """What works but may surprise is reported once, at connect."""
    configuration = {
        "hive.compactor.initiator.on": "false",
        "hive.txn.manager": "Dummy",
        "hive.support.concurrency": "false",
    }
    metastore = InMemoryMetastore(tmp_path, configuration=configuration)
    metastore.create_table(table_info("t"))
    with builder(metastore, None, "t").build() as client:
        for text in ("initiator", "Dummy", "concurrency", "lock_failure_listener"):
            assert len([w for w in client.warnings if text in w]) == 1
        assert len(client.warnings) == 4
        assert max(map(len, client.warnings)) <= 150


def test_no_warnings_where_all_is_well(metastore: InMemoryMetastore) -> None:
    """Neither for settings that are right nor for those that the server does not report."""

    class Listener:
        def lock_failed(self, *_: object) -> None: ...

    with builder(metastore, None, "t").lock_failure_listener(Listener()).build() as client:
        assert client.warnings == ()


def test_partitions_of_sinks_are_locked_up_to_a_bound(
    metastore: InMemoryMetastore,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """So the cleaner spares what the transaction reads; above the bound it says that it may not."""
    metastore.add_partitions("default", "t", [("a", "1"), ("a", "2")])
    monkeypatch.setattr(catalog, "MAX_LOCKED_SINK_PARTITIONS", 2)
    with builder(metastore, clock, "t").build() as client:
        with client.new_transaction():
            locks = {(i.partition, i.type.name) for i in metastore.show_locks()}
        assert locks == {
            (None, "SHARED_WRITE"),
            ("ds=a/hr=1", "SHARED_READ"),
            ("ds=a/hr=2", "SHARED_READ"),
        }
        assert "cleaner" not in caplog.text
        metastore.add_partitions("default", "t", [("a", "3")])
        with client.new_transaction():
            assert [i.partition for i in metastore.show_locks()] == [None]
        assert "sink default.t has 3 partitions" in caplog.text
        with client.open_snapshot("default.t"):
            assert len(metastore.show_locks()) == 4, "what is only read is locked whatever it costs"


def test_a_process_says_a_warning_once(
    metastore: InMemoryMetastore,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each client has it; the log, once."""
    monkeypatch.setattr(mutator_client, "_told", set())
    for _ in range(2):
        with builder(metastore, clock, "t").build() as client:
            assert any("lock_failure_listener" in warning for warning in client.warnings)
    assert caplog.text.count("lock_failure_listener") == 1


def test_a_snapshot_holds_a_read_lock_and_sees_what_was_committed(
    metastore: InMemoryMetastore, clock: FakeClock
) -> None:
    """It keeps the cleaner away, lets others write, and leaves nothing when closed."""
    metastore.add_partitions("default", "t", [("a", "1")])
    with builder(metastore, clock, "t").build() as client:
        writer = client.new_transaction()
        writer.begin()
        with client.open_snapshot("DEFAULT.T") as snapshot:
            assert not snapshot.valid_txn_list.is_valid(writer.txn_id)
            assert [p.name for p in snapshot.partitions("default.t")] == ["ds=a/hr=1"]
            assert snapshot.table("default.t").txn_id is None
            assert {i.type.name for i in metastore.show_locks()} == {"SHARED_WRITE", "SHARED_READ"}
            writer.commit()
            snapshot.check()
        assert metastore.show_locks() == []
        with client.open_snapshot("default.t") as later:
            assert later.valid_txn_list.is_valid(writer.txn_id)


@pytest.mark.thorough
def test_two_hundred_readings_leave_nothing(metastore: InMemoryMetastore) -> None:
    """Neither locks and transactions at the server nor heartbeats and snapshots in this process."""
    before = set(threading.enumerate())
    with builder(metastore, None, "t").build() as client:
        for _ in range(200):
            with client.open_snapshot("default.t") as view, client.new_transaction() as transaction:
                assert set(threading.enumerate()) - before
        assert metastore.show_locks() == []
        assert [t for t in metastore.get_open_txns().txns if t.state is TxnState.OPEN] == []
        for heartbeat in set(threading.enumerate()) - before:
            heartbeat.join(WAIT_BOUND_SECONDS)
            assert not heartbeat.is_alive()
        gone = weakref.ref(view), weakref.ref(transaction)
        del view, transaction
        with client.open_snapshot("default.t"), client.new_transaction():
            gc.collect()
            assert [reference() for reference in gone] == [None, None]


@pytest.mark.parametrize(("other", "value"), [("01", 1), ("abc", None)])
def test_partitions_with_equal_values_are_read_but_not_written(
    metastore: InMemoryMetastore, clock: FakeClock, other: str, value: int | None
) -> None:
    """hr=1 and hr=01 hold the same value, hr=abc reads as NULL: a row could belong to either."""
    metastore.add_partitions("default", "t", [("a", "1"), ("a", other), ("b", "2")])
    with builder(metastore, clock, "t").build() as client, client.new_transaction() as transaction:
        table = transaction.table("default.t")
        names = PartitionNames(AcidTableSerializer.decode(AcidTableSerializer.encode(table)))
        assert names.of(("b", 2)) == "ds=b/hr=2"
        with pytest.raises(RecordValueError, match=f"default.t: the partitions .*hr={other}.* could belong"):
            names.of(("a", value))


def test_an_odd_spelling_travels_with_the_table(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    """A row with hr=1 goes to the existing partition, however that is spelled."""
    metastore.add_partitions("default", "t", [("a", "01"), ("a", "2")])
    with builder(metastore, clock, "t").build() as client, client.new_transaction() as transaction:
        table = transaction.table("default.t")
        assert table.partition_spellings == {"ds=a/hr=1": "ds=a/hr=01"}
        assert table.partition_locations == {}


def test_marks_are_what_the_server_can_take(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    """Quotes and long names make a 2.3 server fail inside its SQL."""
    user = 'o\'brien "x" ü' + "n" * 300
    with builder(metastore, clock, "t").user(user).build() as client, client.new_transaction():
        txn = metastore.get_open_txns().txns[0]
    assert txn.user.startswith("o_brien _x_ _nnn")
    assert len(txn.user) <= 120
    assert txn.agent_info == f"hive-mutation-api pid {os.getpid()}"


def test_a_table_that_is_source_and_sink_is_locked_once_as_sink(
    metastore: InMemoryMetastore, clock: FakeClock
) -> None:
    """One component per table, the stronger one."""
    both = builder(metastore, clock, "T", create_partitions=True).add_source_table("default", "t")
    with both.build() as client, client.new_transaction() as transaction:
        assert [i.type.name for i in metastore.show_locks()] == ["SHARED_WRITE"]
        assert transaction.table("default.t").create_partitions


def test_contradictory_sinks_are_refused(metastore: InMemoryMetastore) -> None:
    """Twice the same table with different options cannot be what was meant."""
    twice = builder(metastore, None, "t").add_sink_table("default", "t", True)
    with pytest.raises(ConfigurationError, match="twice"):
        twice.build()


def test_the_builder_refuses_what_makes_no_sense() -> None:
    """Zones, bounds and names are checked where they are given."""
    for call in (
        lambda b: b.time_zone("Mars/Olympus"),
        lambda b: b.lock_timeout_seconds(0),
        lambda b: b.add_sink_table("default", "a.b"),
        lambda b: b.add_source_table("", "t"),
    ):
        with pytest.raises(ConfigurationError):
            call(MutatorClientBuilder())
