"""The life of a transaction on the in-memory metastore: what is visible when, and what is left behind."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from metastore_client.errors import MetastoreError, MetastoreUnavailableError, NoSuchTxnError
from metastore_client.model import (
    ColumnInfo,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    TxnState,
)
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import (
    CommitOutcomeUnknownError,
    ConfigurationError,
    ConnectionFailedError,
    LockLostError,
    ManifestError,
    PartitionCreationError,
    TableNotMutableError,
    TransactionAbortedError,
    TransactionStateError,
    WriteConflictError,
)
from mutation_api.storage.location import Location
from mutation_api.transaction.manifest import FileKind, staging_directory
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.transaction.transaction_state import TransactionState
from tests.fixtures.fix_clock import FakeClock, wait_until
from tests.support.client_support import ATTEMPT, WRITER, builder, files_below, stage, table_info

T = "default.t"
PARTITION = "ds=a/hr=1"


class Listener:
    """Remembers its calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[tuple[object, ...]] = []
        self._error = error

    def lock_failed(self, lock_id, txn_id, tables, error) -> None:  # type: ignore[no-untyped-def]
        self.told.append((lock_id, txn_id, list(tables), error))
        if self._error is not None:
            raise self._error


@pytest.fixture(params=[HIVE_2_3, HIVE_3_1, HIVE_4_1], ids=lambda c: c.line)
def metastore(tmp_path: Path, request: pytest.FixtureRequest) -> InMemoryMetastore:
    result = InMemoryMetastore(tmp_path, capabilities=request.param)
    result.create_table(table_info("t"))
    result.create_table(table_info("flat", partitioned=False))
    result.add_partitions("default", "t", [("a", "1")])
    return result


@pytest.fixture
def client(metastore: InMemoryMetastore, clock: FakeClock):
    with builder(metastore, clock, "t", "flat").lock_failure_listener(Listener()).build() as result:
        yield result


def _write(  # type: ignore[no-untyped-def]
    transaction: Transaction, full_name: str = T, partition: str = PARTITION, **options
) -> None:
    table = transaction.table(full_name)
    changes = options.get("updates", 0) + options.get("deletes", 0)
    manifests = []
    if table.version.splits_updates and changes:
        manifests = [stage(table, partition, **(options | {"kind": FileKind.DELETE_DELTA, "inserts": 0}))]
        options["deletes"] = 0
    if not manifests or options.get("inserts", 1) + options.get("updates", 0):
        manifests.append(stage(table, partition, **options))
    transaction.add_manifests(full_name, options.get("writer_id", WRITER), manifests)


def _registers(metastore: InMemoryMetastore, txn_id: int, operation: DataOperationType) -> None:
    """Another transaction has written to the partition."""
    has_write_ids = metastore.capabilities().has_write_ids
    write_id = metastore.allocate_write_id(txn_id, "default", "t") if has_write_ids else None
    metastore.add_dynamic_partitions(txn_id, "default", "t", [PARTITION], operation, write_id=write_id)


def _state(metastore: InMemoryMetastore, txn_id: int) -> TxnState | None:
    return next((t.state for t in metastore.get_open_txns().txns if t.id == txn_id), None)


def _nothing_visible(metastore: InMemoryMetastore, transaction: Transaction, tmp_path: Path) -> None:
    """The transaction is aborted (or forgotten) and none of its files remains, hidden ones included."""
    assert _state(metastore, transaction.txn_id) in (TxnState.ABORTED, None)
    left = files_below(tmp_path, hidden=True)
    assert [f for f in left if not f.endswith("_orc_acid_version")] == []
    assert metastore.show_locks() == []


def test_change_sets_of_a_table_are_numbered(client: MutatorClient) -> None:
    """By whatever name; a failed one does not count, and Hive 2 takes only one."""
    with client.new_transaction() as transaction:
        with pytest.raises(ValueError, match="bad change"), transaction.changing(T):
            raise ValueError("bad change")
        with transaction.changing(T), transaction.changing("default.flat"):
            assert transaction.table(T).statement_id == 0
            with pytest.raises(TransactionStateError, match="receiving another"), transaction.changing(T):
                pass
        if transaction.table(T).version.uses_write_ids:
            assert transaction.table(T).statement_id == 1
            with transaction.changing("DEFAULT.T"):
                pass
            assert transaction.table(T).statement_id == 2
        else:
            with (
                pytest.raises(TransactionStateError, match=r"default\.t already has its changes"),
                transaction.changing("DEFAULT.T"),
            ):
                pass
    with client.new_transaction() as transaction, transaction.changing(T):
        pass
    with pytest.raises(TransactionStateError), transaction.changing(T):
        pass


def test_commit_publishes_all_tables_at_once(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """The files of every table get their final names, staging goes away, the transaction is committed."""
    with client.new_transaction() as transaction:
        _write(transaction, bucket_id=0)
        _write(transaction, writer_id="second", bucket_id=1)
        _write(transaction, "default.flat", "")
        assert files_below(tmp_path) == []
    assert transaction.state is TransactionState.COMMITTED
    assert files_below(tmp_path) == [
        "flat/delta_0000001_0000001_0000/bucket_00000",
        f"t/{PARTITION}/delta_0000001_0000001_0000/bucket_00000",
        f"t/{PARTITION}/delta_0000001_0000001_0000/bucket_00001",
    ]
    assert not Path(staging_directory(Location.given(tmp_path / "t"), 1).path).exists()
    uses_write_ids = metastore.capabilities().has_write_ids
    directory = tmp_path / "t" / PARTITION / ("delta_0000001_0000001_0000" if uses_write_ids else ".")
    assert (directory / "_orc_acid_version").read_bytes() == (b"2" if uses_write_ids else b"\0\0\0\0")
    assert _state(metastore, transaction.txn_id) is None
    assert metastore.show_locks() == []


def test_partitions_are_registered_before_files_become_visible(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aborted transaction that registered nothing comes back to life on Hive 2.3; hence the order."""
    seen: list[tuple[list[str], DataOperationType, list[str]]] = []

    def spy(txn_id, database, table, names, operation, *, write_id) -> None:  # type: ignore[no-untyped-def]
        seen.append((list(names), operation, files_below(tmp_path)))

    monkeypatch.setattr(metastore, "add_dynamic_partitions", spy)
    with client.new_transaction() as transaction:
        _write(transaction, updates=1)
    assert seen == [([PARTITION], DataOperationType.UPDATE, [])]


def test_inserts_alone_are_no_updates(client: MutatorClient, metastore: InMemoryMetastore) -> None:
    """Two transactions that only insert never conflict, so they must not be registered as updates."""
    with client.new_transaction() as transaction:
        _write(transaction)
    other = metastore.open_txn("u", "h", "")
    _registers(metastore, other, DataOperationType.UPDATE)
    metastore.commit_txn(other)


def test_an_empty_transaction_commits(client: MutatorClient) -> None:
    """An empty transaction is not an error."""
    with client.new_transaction() as transaction:
        pass
    assert transaction.state is TransactionState.COMMITTED
    assert [t.file_count for t in transaction.summary.tables] == [0, 0]


def test_an_error_in_the_block_aborts_and_travels_on(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """The user's own error is what the caller sees; nothing is left."""
    transaction = client.new_transaction()
    with pytest.raises(ZeroDivisionError), transaction:
        _write(transaction)
        raise ZeroDivisionError
    assert transaction.state is TransactionState.ABORTED
    _nothing_visible(metastore, transaction, tmp_path)


def test_a_failing_abort_never_hides_the_users_error(
    client: MutatorClient, metastore: InMemoryMetastore, caplog: pytest.LogCaptureFixture
) -> None:
    """The abort's failure is logged."""
    transaction = client.new_transaction()
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError), transaction:
        metastore.fail_next("abort_txn", MetastoreUnavailableError("connection cut"))
        raise ZeroDivisionError
    assert "connection cut" in caplog.text


def test_it_is_used_once(client: MutatorClient) -> None:
    """No step is possible after commit, and none but abort after abort."""
    transaction = client.new_transaction()
    for step in (
        transaction.commit,
        transaction.check,
        lambda: transaction.table(T),
        lambda: transaction.txn_id,
    ):
        with pytest.raises(TransactionStateError):
            step()
    transaction.begin()
    with pytest.raises(TransactionStateError, match="already begun"):
        transaction.begin()
    transaction.commit()
    late = (
        transaction.begin,
        transaction.commit,
        transaction.abort,
        transaction.check,
        lambda: transaction.table(T),
        lambda: transaction.add_manifests(T, WRITER, []),
    )
    for step in late:
        with pytest.raises(TransactionStateError):
            step()
    aborted = client.new_transaction()
    aborted.begin()
    aborted.abort()
    aborted.abort()
    for step in (aborted.begin, aborted.commit):
        with pytest.raises(TransactionStateError, match="aborted"):
            step()


def test_commit_inside_the_block_is_not_repeated(client: MutatorClient, metastore: InMemoryMetastore) -> None:
    """The context manager ends only what is open."""
    with client.new_transaction() as transaction:
        transaction.commit()
    assert metastore.calls.count("commit_txn") == 1


@pytest.mark.parametrize("end", ["abort_txn", "commit_txn"])
def test_ended_by_somebody_else_is_refused_before_anything_is_visible(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path, end: str
) -> None:
    """A commit asks first whether the transaction is alive; published files could otherwise come to life."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    getattr(metastore, end)(transaction.txn_id)
    with pytest.raises((TransactionAbortedError, LockLostError)):
        transaction.commit()
    assert transaction.state is TransactionState.ABORTED
    _nothing_visible(metastore, transaction, tmp_path)
    assert "add_dynamic_partitions" not in metastore.calls


def test_loss_is_told_and_commit_refused_with_the_cause(
    metastore: InMemoryMetastore, clock: FakeClock
) -> None:
    """Listener and callbacks get it once, from the heartbeat; the commit is refused with the same
    cause.
    """
    listener = Listener()
    callbacks: list[Exception] = []
    with builder(metastore, clock, "t").lock_failure_listener(listener).build() as client:
        transaction = client.new_transaction()
        transaction.begin()
        transaction.on_lost(callbacks.append)
        lock_id = metastore.show_locks()[0].lock_id
        metastore.abort_txn(transaction.txn_id)
        clock.wait_for_waiters(2)
        clock.advance(100)
        wait_until(lambda: bool(callbacks), "the loss")
        assert [t[:3] for t in listener.told] == [(lock_id, transaction.txn_id, [T])]
        with pytest.raises(TransactionAbortedError, match="was aborted"):
            transaction.check()
        late: list[Exception] = []
        transaction.on_lost(late.append)
        assert len(late) == 1
        with pytest.raises(TransactionAbortedError, match="was aborted"):
            transaction.commit()
    assert len(callbacks) == len(listener.told) == 1


def test_a_listener_that_raises_changes_nothing(
    metastore: InMemoryMetastore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is logged, and the callbacks still run."""
    callbacks: list[Exception] = []
    listener = Listener(RuntimeError("listener broke"))
    with builder(metastore, clock, "t").lock_failure_listener(listener).build() as client:
        transaction = client.new_transaction()
        transaction.begin()
        transaction.on_lost(callbacks.append)
        metastore.abort_txn(transaction.txn_id)
        with pytest.raises(TransactionAbortedError):
            transaction.commit()
    assert "listener broke" in caplog.text
    assert len(callbacks) == 1


def test_the_first_to_commit_wins(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """A write conflict is an abort that names winner and resource; nothing of ours stays."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction, updates=1)
    winner = metastore.open_txn("them", "there", "")
    _registers(metastore, winner, DataOperationType.UPDATE)
    metastore.commit_txn(winner)
    with pytest.raises(WriteConflictError, match=f"Transaction {winner} changed default/t/{PARTITION}"):
        transaction.commit()
    assert transaction.state is TransactionState.ABORTED
    _nothing_visible(metastore, transaction, tmp_path)


@pytest.mark.parametrize("arrived", [True, False])
def test_a_commit_whose_answer_is_lost_is_asked_for_again(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path, arrived: bool
) -> None:
    """Repeating a commit is harmless, so a broken connection alone is not an error."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    metastore.fail_next("commit_txn", MetastoreUnavailableError("connection cut"), after=arrived)
    transaction.commit()
    assert transaction.state is TransactionState.COMMITTED
    assert len(files_below(tmp_path)) == 1


def test_an_unreachable_metastore_leaves_the_outcome_open(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """Nothing is removed, since it may be committed; no further step is possible."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    for call in ("commit_txn", "get_open_txns"):
        metastore.fail_next(call, MetastoreUnavailableError("gone"), times=1000, after=call == "commit_txn")
    with pytest.raises(CommitOutcomeUnknownError, match="show txns"):
        transaction.commit()
    assert transaction.state is TransactionState.OUTCOME_UNKNOWN
    assert len(files_below(tmp_path)) == 1
    for step in (transaction.commit, transaction.abort):
        with pytest.raises(TransactionStateError, match="find out whether it is committed"):
            step()


def test_a_server_that_cannot_commit_is_made_to_abort(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """A fault of the server that stays: what is still open is aborted, so that it cannot commit later."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    metastore.fail_next("commit_txn", MetastoreError("database is full"), times=1000)
    with pytest.raises(Exception, match="database is full"):
        transaction.commit()
    assert transaction.state is TransactionState.ABORTED
    _nothing_visible(metastore, transaction, tmp_path)


def test_forgotten_after_a_lost_answer_means_committed(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """An aborted transaction with records stays listed, so an unlisted one was committed and cleaned away."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    metastore.fail_next("commit_txn", MetastoreUnavailableError("connection cut"), after=True)
    metastore.fail_next("commit_txn", NoSuchTxnError("No such transaction txnid:1"))
    transaction.commit()
    assert transaction.state is TransactionState.COMMITTED
    assert len(files_below(tmp_path)) == 1


def test_ended_by_somebody_at_the_last_moment_is_unknown(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """Unknown to the server at the first commit, though alive a moment before: nothing is removed."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    metastore.fail_next("commit_txn", NoSuchTxnError("No such transaction txnid:1"), after=True)
    with pytest.raises(CommitOutcomeUnknownError):
        transaction.commit()
    assert len(files_below(tmp_path)) == 1


@pytest.mark.parametrize(
    "call",
    [
        "get_table",
        "get_partitions_by_names",
        "add_dynamic_partitions",
        "record_row_counts",
    ],
)
def test_a_failing_metastore_before_the_commit_leaves_nothing(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path, call: str
) -> None:
    """Whatever call fails between the first check and the commit: aborted, and every file removed."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    metastore.fail_next(call, MetastoreUnavailableError("connection cut"))
    with pytest.raises(ConnectionFailedError, match="connection cut"):
        transaction.commit()
    assert transaction.state is TransactionState.ABORTED
    _nothing_visible(metastore, transaction, tmp_path)


def test_partitions_are_read_when_somebody_asks(
    client: MutatorClient, metastore: InMemoryMetastore, clock: FakeClock
) -> None:
    """A transaction reads only their names, and the rest once, when it is needed."""
    with client.new_transaction() as transaction:
        transaction.valid_ids(T)
    assert "get_partitions_by_names" not in metastore.calls
    with client.new_transaction() as transaction:
        assert [p.name for p in transaction.partitions(T)] == [PARTITION]
        transaction.table(T)
        assert transaction.partitions("default.flat") == ()
    assert metastore.calls.count("get_partitions_by_names") == 1


def test_partitions_are_those_of_the_beginning(client: MutatorClient, metastore: InMemoryMetastore) -> None:
    """Partitions that others add later are not among them."""
    with client.new_transaction() as transaction:
        metastore.add_partitions("default", "t", [("b", "2")])
        assert [p.name for p in transaction.partitions(T)] == [PARTITION]


def test_places_apart_from_the_table_are_cleaned_when_they_are_known(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staging of a dead transaction beside a partition that lies elsewhere."""
    directory = tmp_path / "elsewhere"
    (info,) = metastore.get_partitions_by_names("default", "t", [PARTITION])
    moved = dataclasses.replace(info, location=str(directory))
    monkeypatch.setattr(metastore, "get_partitions_by_names", lambda *_, **__: [moved])
    dead = client.new_transaction()
    dead.begin()
    stage(dataclasses.replace(dead.table(T), location=Location.given(directory)), PARTITION)
    metastore.abort_txn(dead.txn_id)
    assert list(directory.iterdir())
    with client.new_transaction() as transaction:
        transaction.table(T)
        assert not list(directory.iterdir())


def test_files_without_manifests_are_refused(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """A coordinator that was never closed would lose its rows; the original commits without a word."""
    transaction = client.new_transaction()
    transaction.begin()
    stage(transaction.table(T), PARTITION, writer_id="forgotten")
    with pytest.raises(ManifestError, match="forgotten wrote files but handed in no manifests"):
        transaction.commit()
    _nothing_visible(metastore, transaction, tmp_path)


def test_one_writer_hands_in_once(client: MutatorClient) -> None:
    """A second list of the same writer is a mistake of the caller."""
    with client.new_transaction() as transaction:
        _write(transaction)
        with pytest.raises(ManifestError, match="twice"):
            transaction.add_manifests(T, WRITER, [])


def test_two_change_sets_on_one_group_are_refused(client: MutatorClient) -> None:
    """Both would have to be one file, and row ids would be given twice."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    _write(transaction, writer_id="second")
    with pytest.raises(ManifestError, match="written 2 times, by second, writer"):
        transaction.commit()


def test_missing_partitions_are_refused_by_name(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """With create_partitions=False the original commits rows that no reader sees."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction, partition="ds=new/hr=7")
    with pytest.raises(PartitionCreationError, match="ds=new/hr=7 do not exist"):
        transaction.commit()
    _nothing_visible(metastore, transaction, tmp_path)
    assert metastore.get_partition_names("default", "t") == [PARTITION]


def test_missing_partitions_are_created_if_allowed(
    metastore: InMemoryMetastore, clock: FakeClock, tmp_path: Path
) -> None:
    """All of them in one call; the summary lists them apart from existing ones."""
    with builder(metastore, clock, "t", create_partitions=True).build() as client:
        with client.new_transaction() as transaction:
            _write(transaction, partition="ds=x%3Ay/hr=7")
            _write(transaction, writer_id="b", partition=PARTITION)
        table = transaction.summary.tables[0]
    assert table.partitions_touched == (PARTITION, "ds=x%3Ay/hr=7")
    assert table.partitions_created == ("ds=x%3Ay/hr=7",)
    assert metastore.calls.count("add_partitions") == 2  # one by the fixture
    assert len(files_below(tmp_path)) == 2


def test_dropped_meanwhile(client: MutatorClient, metastore: InMemoryMetastore) -> None:
    """A table that went away is named; nothing is published to its old location."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    metastore.drop_table("default", "t", delete_data=False)
    with pytest.raises(TableNotMutableError, match=r"default\.t was dropped"):
        transaction.commit()
    assert transaction.state is TransactionState.ABORTED


def test_altered_meanwhile(client: MutatorClient, metastore: InMemoryMetastore) -> None:
    """Files written for the old columns must not become part of the new table."""
    transaction = client.new_transaction()
    transaction.begin()
    _write(transaction)
    before = metastore.get_table("default", "t")
    metastore.drop_table("default", "t", delete_data=False)
    metastore.create_table(
        table_info("t", location=before.location, columns=(*before.columns, ColumnInfo("more", "int")))
    )
    with pytest.raises(TableNotMutableError, match=r"default\.t was altered .* its columns"):
        transaction.commit()


def test_altered_between_connect_and_begin_is_read_anew(
    client: MutatorClient, metastore: InMemoryMetastore
) -> None:
    """The descriptor that goes to the workers is read under the lock."""
    before = metastore.get_table("default", "t")
    metastore.drop_table("default", "t", delete_data=False)
    metastore.create_table(table_info("t", location=before.location, num_buckets=5))
    with client.new_transaction() as transaction:
        assert transaction.table(T).num_buckets == 5
        assert transaction.table(T).txn_id == transaction.txn_id


def test_unfit_since_connect_leaves_nothing_open(client: MutatorClient, metastore: InMemoryMetastore) -> None:
    """A refusal in begin aborts what was opened for it."""
    metastore.drop_table("default", "t", delete_data=False)
    transaction = client.new_transaction()
    with pytest.raises(TableNotMutableError, match="does not exist"):
        transaction.begin()
    assert transaction.state is TransactionState.ABORTED
    assert metastore.show_locks() == []


def test_what_a_dead_driver_staged_is_removed(
    client: MutatorClient, metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """Only directories of transactions that are over; those of open ones and of unknown ids stay."""
    dead, alive = metastore.open_txn("u", "h", ""), metastore.open_txn("u", "h", "")
    metastore.abort_txn(dead)
    staged = {i: Path(staging_directory(Location.given(tmp_path / "t"), i).path) for i in (dead, alive, 999)}
    for directory in staged.values():
        (directory / "w" / "0").mkdir(parents=True)
        (directory / "w" / "0" / "file").write_bytes(b"x")
    with client.new_transaction():
        pass
    assert [i for i, directory in staged.items() if directory.exists()] == [alive, 999]


def test_losing_attempts_do_not_disturb(client: MutatorClient, tmp_path: Path) -> None:
    """A speculative twin's files lie in an attempt without manifests and go away with the staging
    directory.
    """
    with client.new_transaction() as transaction:
        winner = stage(transaction.table(T), PARTITION)
        stage(transaction.table(T), PARTITION, attempt_id="1", content=b"half a fi")
        transaction.add_manifests(T, WRITER, [winner])
    assert len(files_below(tmp_path)) == 1
    assert ATTEMPT != "1"


def test_insert_only_sinks_refuse_changes(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    """Their lock lets others change the same rows."""
    with builder(metastore, clock, "t", insert_only=True).build() as client:
        transaction = client.new_transaction()
        transaction.begin()
        _write(transaction, inserts=0, deletes=3)
        with pytest.raises(ManifestError, match="3 deletes, but the sink was added with insert_only"):
            transaction.commit()


def test_a_source_takes_no_manifests(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    """Writing to a table that is only read is refused at once."""
    both = builder(metastore, clock, "t").add_source_table("default", "flat").build()
    with both as client, client.new_transaction() as transaction:
        assert transaction.table("default.flat").txn_id is None
        with pytest.raises(ConfigurationError, match="is a source"):
            transaction.add_manifests("default.flat", WRITER, [])
        with pytest.raises(ConfigurationError, match="not part of the transaction"):
            transaction.table("default.other")


def _ask(metastore: InMemoryMetastore, table: str, type: LockType) -> int:
    """Another client requests a lock on a table of the default database."""
    txn_id = metastore.open_txn("somebody", "elsewhere", "")
    wanted = LockComponent(type, LockLevel.TABLE, "default", table, None, DataOperationType.UPDATE)
    metastore.lock(LockRequest((wanted,), txn_id, "somebody", "elsewhere", ""))
    return txn_id


def test_locks_of_others(metastore: InMemoryMetastore, client: MutatorClient) -> None:
    """Locks of writers, granted or waiting; neither readers' locks nor the transaction's own."""
    with client.new_transaction() as transaction:
        writer = _ask(metastore, "t", LockType.SHARED_WRITE)
        _ask(metastore, "t", LockType.SHARED_READ)
        _ask(metastore, "other", LockType.SHARED_WRITE)
        (found,) = transaction.other_locks("Default.T")
        assert (found.txn_id, found.state, found.user) == (writer, LockState.WAITING, "somebody")
        assert transaction.other_locks("default.flat") == ()
        metastore.fail_next("show_locks", MetastoreUnavailableError("connection cut"))
        with pytest.raises(ConnectionFailedError, match=r"could not list the locks of table default\.t"):
            transaction.other_locks(T)
    with pytest.raises(TransactionStateError):
        transaction.other_locks(T)


def test_summary_counts_what_the_user_did(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    """In a split table an update is in two files but counts once."""
    metastore.create_table(
        table_info(
            "split",
            partitioned=False,
            parameters={"transactional": "true", "transactional_properties": "default"},
        )
    )
    with builder(metastore, clock, "split").build() as client, client.new_transaction() as transaction:
        table = transaction.table("default.split")
        manifests = [
            stage(table, inserts=5, updates=3),
            stage(table, kind=FileKind.DELETE_DELTA, inserts=0, updates=3, deletes=2),
        ]
        transaction.add_manifests("default.split", WRITER, manifests)
    summary = transaction.summary
    (counts,) = summary.tables
    assert (counts.inserted, counts.updated, counts.deleted, counts.file_count) == (5, 3, 2, 2)
    assert summary.to_dict()["txn_id"] == 1
    assert "default.split" in str(summary)
    assert "committed" in str(summary)
    assert list(summary.phase_seconds) == ["begin", "work", "publish", "commit"]
