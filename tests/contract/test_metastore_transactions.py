"""Behaviours of transactions, in memory and on Hive 2.3.10, 3.1.3, 4.1.0 and 4.2.1."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.errors import MetastoreError, NoSuchLockError, NoSuchTxnError, TxnAbortedError
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    TableInfo,
    TxnState,
)
from metastore_client.remote.thrift_client import open_client
from metastore_client.testing import InMemoryMetastore
from metastore_client.valid_ids import ValidTxnList
from tests.fixtures.fix_metastore import KINDS, LINES
from tests.fixtures.fix_newest import HIVE_4

INSERT, UPDATE, DELETE = DataOperationType.INSERT, DataOperationType.UPDATE, DataOperationType.DELETE
NEVER_USED_TXN_ID = 9_000_000


def open_txn(metastore: MetastoreClient) -> int:
    return metastore.open_txn("user", "host", "agent")


def state_of(metastore: MetastoreClient, txn_id: int) -> TxnState | None:
    return next((t.state for t in metastore.get_open_txns().txns if t.id == txn_id), None)


def write(
    metastore: MetastoreClient, txn_id: int, table: TableInfo, partition: str, operation: DataOperationType
) -> None:
    metastore.add_dynamic_partitions(
        txn_id,
        table.database,
        table.name,
        [partition],
        operation,
        write_id=write_id(metastore, txn_id, table.database, table.name),
    )


@pytest.fixture
def aborted(metastore: MetastoreClient, make_table: Callable[..., TableInfo]) -> int:
    """An aborted transaction that has written. A server forgets those that have not, at some later time."""
    txn_id = open_txn(metastore)
    write(metastore, txn_id, make_table("aborted", "ds"), "ds=a", INSERT)
    metastore.abort_txn(txn_id)
    return txn_id


def write_id(metastore: MetastoreClient, txn_id: int, database: str, table: str) -> int | None:
    """The write id that a registration carries; None where the server has none."""
    if not metastore.capabilities().has_write_ids:
        return None
    return metastore.allocate_write_id(txn_id, database, table)


def test_ids_grow_and_the_high_watermark_is_the_last_one(metastore: MetastoreClient) -> None:
    """A later transaction has a higher id, and no id above the watermark was given out."""
    first, second = open_txn(metastore), open_txn(metastore)
    assert first < second
    assert metastore.get_open_txns().high_watermark == second


def test_an_open_transaction_is_listed_with_its_owner(metastore: MetastoreClient) -> None:
    """Other clients see the owner of a transaction and its last heartbeat."""
    txn_id = open_txn(metastore)
    (listed,) = [t for t in metastore.get_open_txns().txns if t.id == txn_id]
    assert (listed.state, listed.user, listed.hostname) == (TxnState.OPEN, "user", "host")
    assert listed.last_heartbeat_time is not None and listed.started_time is not None
    assert listed.last_heartbeat_time >= listed.started_time


def test_commit_leaves_the_list_and_abort_stays_in_it(metastore: MetastoreClient, aborted: int) -> None:
    """What is not listed counts as committed, so an aborted transaction has to stay."""
    committed = open_txn(metastore)
    metastore.commit_txn(committed)
    assert state_of(metastore, committed) is None
    assert state_of(metastore, aborted) is TxnState.ABORTED


def test_a_snapshot_sees_committed_and_own_writes_only(
    metastore: MetastoreClient, make_table: Callable[..., TableInfo]
) -> None:
    """Valid is what committed before, and what the transaction itself writes; the text form keeps it so.

    On 2.3 also what began later and has committed already.
    """
    has_write_ids = metastore.capabilities().has_write_ids
    committed, aborted, _, own = (open_txn(metastore) for _ in range(4))
    metastore.commit_txn(committed)
    write(metastore, aborted, make_table("t", "ds"), "ds=a", INSERT)
    metastore.abort_txn(aborted)
    later, faster = open_txn(metastore), open_txn(metastore)
    metastore.commit_txn(faster)
    open_txns = metastore.get_open_txns()
    valid = ValidTxnList.from_open_txns(open_txns, own, has_write_ids=has_write_ids)
    valid = ValidTxnList.parse(valid.to_write_id_text() if has_write_ids else valid.to_text())
    assert [i for i in range(committed, faster + 3) if valid.is_valid(i)] == [
        committed,
        own,
        *([] if has_write_ids else [faster]),
    ]
    assert not valid.is_valid(later)
    assert valid.high_watermark == (own if has_write_ids else faster)


def test_a_text_with_quotes_or_of_any_length_is_taken(metastore: MetastoreClient) -> None:
    """User, host and agent go into SQL text on a 2.3 server; no text may break the call."""
    txn_id = metastore.open_txn("o'brien" * 40, 'h"ost', "agent's " * 100)
    assert state_of(metastore, txn_id) is TxnState.OPEN


def test_commit_of_an_aborted_transaction_is_refused(metastore: MetastoreClient, aborted: int) -> None:
    """An aborted transaction never becomes visible."""
    with pytest.raises(TxnAbortedError, match=f"txnid:{aborted}"):
        metastore.commit_txn(aborted)
    assert state_of(metastore, aborted) is TxnState.ABORTED


def test_a_commit_may_be_repeated_once_something_was_written(
    metastore: MetastoreClient, make_table: Callable[..., TableInfo]
) -> None:
    """After a lost answer the commit is asked for again; the server remembers it by its records."""
    table, txn_id = make_table("t", "ds"), open_txn(metastore)
    write(metastore, txn_id, table, "ds=a", INSERT)
    metastore.commit_txn(txn_id)
    metastore.commit_txn(txn_id)


def test_a_repeated_commit_of_an_empty_transaction(metastore: MetastoreClient, line: str) -> None:
    """Without records the server forgets the transaction when it commits; only 4.x does so a while later."""
    txn_id = open_txn(metastore)
    metastore.commit_txn(txn_id)
    if line in HIVE_4:
        metastore.commit_txn(txn_id)
        return
    with pytest.raises(NoSuchTxnError):
        metastore.commit_txn(txn_id)


def test_abort_may_be_repeated_but_not_after_commit(
    metastore: MetastoreClient, aborted: int, make_table: Callable[..., TableInfo]
) -> None:
    """Abort of an aborted transaction succeeds; of a committed or unknown one it does not."""
    table, committed = make_table("t", "ds"), open_txn(metastore)
    metastore.abort_txn(aborted)
    write(metastore, committed, table, "ds=a", INSERT)
    metastore.commit_txn(committed)
    with pytest.raises(NoSuchTxnError, match="already committed"):
        metastore.abort_txn(committed)
    with pytest.raises(NoSuchTxnError):
        metastore.abort_txn(NEVER_USED_TXN_ID)


def test_a_heartbeat_tells_the_fate_of_each_id(
    metastore: MetastoreClient, make_table: Callable[..., TableInfo]
) -> None:
    """It never raises: aborted ids and ids unknown (committed ones too) come back as sets."""
    alive, aborted, committed = (open_txn(metastore) for _ in range(3))
    write(metastore, aborted, make_table("t", "ds"), "ds=a", INSERT)
    metastore.abort_txn(aborted)
    metastore.commit_txn(committed)
    result = metastore.heartbeat_txn_range(alive, committed)
    assert (result.aborted, result.nosuch) == (frozenset({aborted}), frozenset({committed}))
    assert metastore.heartbeat_txn_range(alive, alive).aborted == frozenset()


@pytest.mark.parametrize(
    ("earlier", "later", "conflicts"),
    [
        *[(UPDATE, UPDATE, "u/u"), (UPDATE, DELETE, "d/u"), (DELETE, UPDATE, "u/d")],
        *[
            (DELETE, DELETE, "d/d on 4.x"),
            (UPDATE, INSERT, None),
            (INSERT, UPDATE, None),
            (INSERT, INSERT, None),
        ],
        *[(DELETE, INSERT, None), (INSERT, DELETE, None)],
    ],
)
def test_the_first_of_two_overlapping_writers_wins(
    metastore: MetastoreClient,
    make_table: Callable[..., TableInfo],
    earlier: DataOperationType,
    later: DataOperationType,
    conflicts: str | None,
) -> None:
    """The conflict matrix of one partition; the text names resource, winner, own and other operation."""
    if conflicts == "d/d on 4.x":
        conflicts = "d/d" if metastore.capabilities().has_exclusive_write_lock else None
    table = make_table("t", "ds")
    winner, loser = open_txn(metastore), open_txn(metastore)
    write(metastore, winner, table, "ds=p", earlier)
    write(metastore, loser, table, "ds=p", later)
    metastore.commit_txn(winner)
    if conflicts is None:
        metastore.commit_txn(loser)
        return
    with pytest.raises(TxnAbortedError) as caught:
        metastore.commit_txn(loser)
    assert (
        f"Aborting [txnid:{loser},{loser}] due to a write conflict on {table.database}/t/ds=p "
        f"committed by [txnid:{winner},{loser}] {conflicts}"
    ) in str(caught.value)
    assert state_of(metastore, loser) is TxnState.ABORTED


@pytest.mark.parametrize("other_partition", ["ds=q", "ds=P"])
def test_writers_of_different_partitions_do_not_conflict(
    metastore: MetastoreClient, make_table: Callable[..., TableInfo], other_partition: str
) -> None:
    """Partitions are distinguished by their name, with case."""
    table = make_table("t", "ds")
    first, second = open_txn(metastore), open_txn(metastore)
    write(metastore, first, table, "ds=p", UPDATE)
    write(metastore, second, table, other_partition, UPDATE)
    metastore.commit_txn(first)
    metastore.commit_txn(second)


def test_a_transaction_that_began_after_the_commit_does_not_conflict(
    metastore: MetastoreClient, make_table: Callable[..., TableInfo]
) -> None:
    """It has seen the earlier change in its snapshot."""
    table, first = make_table("t", "ds"), open_txn(metastore)
    write(metastore, first, table, "ds=p", UPDATE)
    metastore.commit_txn(first)
    second = open_txn(metastore)
    write(metastore, second, table, "ds=p", UPDATE)
    metastore.commit_txn(second)


def test_registration_needs_an_open_transaction(
    metastore: MetastoreClient, aborted: int, make_table: Callable[..., TableInfo]
) -> None:
    """Neither an aborted nor an unknown transaction can write."""
    table = make_table("t", "ds")
    with pytest.raises(TxnAbortedError):
        write(metastore, aborted, table, "ds=a", UPDATE)
    with pytest.raises(NoSuchTxnError):
        write(metastore, NEVER_USED_TXN_ID, table, "ds=a", UPDATE)


def test_registration_refuses_an_operation_that_says_nothing(
    metastore: MetastoreClient, make_table: Callable[..., TableInfo]
) -> None:
    """UNSET is not a valid operation."""
    table, txn_id = make_table("t", "ds"), open_txn(metastore)
    with pytest.raises(MetastoreError):
        write(metastore, txn_id, table, "ds=a", DataOperationType.UNSET)


@pytest.mark.parametrize("name", ["ds=a'b", "ds=a:b", "DS=a", "a", "ds=" + "x" * 765])
def test_registration_refuses_names_that_hive_would_not_write(
    metastore: MetastoreClient, make_table: Callable[..., TableInfo], name: str
) -> None:
    """A raw quote breaks the server's SQL, any other spelling names a partition that does not exist."""
    table, txn_id = make_table("t", "ds"), open_txn(metastore)
    with pytest.raises(MetastoreError):
        write(metastore, txn_id, table, name, UPDATE)
    metastore.commit_txn(txn_id)


def test_many_partitions_register_at_once(
    metastore: MetastoreClient, make_table: Callable[..., TableInfo]
) -> None:
    """More names than go into one call, and the same ones twice."""
    table, txn_id = make_table("t", "ds"), open_txn(metastore)
    names = [f"ds={i}" for i in range(1_100)]
    own = write_id(metastore, txn_id, table.database, "t")
    for _ in range(2):
        metastore.add_dynamic_partitions(txn_id, table.database.upper(), "T", names, INSERT, write_id=own)
    metastore.add_dynamic_partitions(txn_id, table.database, "t", [], INSERT, write_id=own)
    metastore.commit_txn(txn_id)


TIMEOUT_SECONDS = 10.0
"""Far longer than the steps of a test that must come before it ends."""


@pytest.fixture(scope="module")
def impatient_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMetastore]:
    """A real metastore that reaps after ten seconds."""
    reaper = "hive.timedout.txn.reaper"
    configuration = {
        "hive.txn.timeout": f"{TIMEOUT_SECONDS:g}s",
        f"{reaper}.start": "0s",
        f"{reaper}.interval": "1s",
        "hive.compactor.check.interval": "1s",
    }
    with EmbeddedMetastore(tmp_path_factory.mktemp("impatient"), configuration=configuration) as metastore:
        yield metastore


class Timed:
    """A metastore with a short time-out and a way to let its reaper come round."""

    def __init__(self, client: MetastoreClient, wait_until: Callable[[Callable[[], bool]], None]) -> None:
        self.client = client
        self.wait_until = wait_until


@pytest.fixture(params=KINDS)
def timed(request: pytest.FixtureRequest) -> Iterator[Timed]:
    """In memory the clock moves on by hand; on the real ones it runs.

    The 2.3 one runs its reaper and initiator itself, for the other two the judge calls them.
    """
    kind, _, line = request.param.partition("-")
    if request.param == "real-2.3":
        with open_client(request.getfixturevalue("impatient_metastore").uri) as client:
            yield Timed(client, _poll)
        return
    if kind == "real":
        judge = request.getfixturevalue(f"hive{line.replace('.', '')}")

        def let_judge(condition: Callable[[], bool]) -> None:
            def is_so() -> bool:
                is_done = condition()  # a beat comes just before the reaper
                time.sleep(0.2)
                judge.time_out_transactions(TIMEOUT_SECONDS)
                judge.initiator()
                return is_done

            _poll(is_so)

        with open_client(judge.uri) as client:
            yield Timed(client, let_judge)
        return
    now = [1_000.0]
    metastore = InMemoryMetastore(
        txn_timeout_seconds=TIMEOUT_SECONDS, clock=lambda: now[0], capabilities=LINES[line]
    )

    def let_pass(condition: Callable[[], bool]) -> None:
        for _ in range(400):
            if condition():
                return
            now[0] += 0.1
            metastore.reap()
            metastore.forget_empty_aborted()
        raise AssertionError("did not happen")

    yield Timed(metastore, let_pass)


def _poll(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, "did not happen within 180 s"


def lock_one(
    metastore: MetastoreClient, txn_id: int, table: str, *, dynamic: bool = False
) -> tuple[int, LockState]:
    """Lock a table against all other writers."""
    is_4 = metastore.capabilities().has_exclusive_write_lock
    type = LockType.EXCL_WRITE if is_4 else LockType.SHARED_WRITE
    component = LockComponent(
        type, LockLevel.TABLE, "default", table, None, UPDATE, is_dynamic_partition_write=dynamic
    )
    response = metastore.lock(LockRequest((component,), txn_id, "user", "host", "agent"))
    return response.lock_id, response.state


@pytest.mark.sampled(1)
def test_a_transaction_that_does_not_beat_is_reaped_and_its_lock_freed(timed: Timed) -> None:
    """A dead client's lock goes to the next one after the time-out; waiting keeps a transaction alive."""
    dead = open_txn(timed.client)
    dead_lock, state = lock_one(timed.client, dead, "reaped")
    assert state is LockState.ACQUIRED
    waiting = open_txn(timed.client)
    lock_id, state = lock_one(timed.client, waiting, "reaped")
    assert state is LockState.WAITING
    timed.wait_until(lambda: timed.client.check_lock(lock_id, waiting).state is LockState.ACQUIRED)
    with pytest.raises(TxnAbortedError):
        timed.client.commit_txn(dead)
    with pytest.raises(NoSuchLockError):
        timed.client.check_lock(dead_lock, dead)
    assert dead in timed.client.heartbeat_txn_range(dead, dead).aborted
    timed.client.abort_txn(waiting)


@pytest.mark.sampled(1)
def test_beats_keep_a_transaction_alive(timed: Timed) -> None:
    """A transaction with heartbeats outlives one without, opened at the same time."""
    beating, silent = open_txn(timed.client), open_txn(timed.client)

    def silent_is_dead() -> bool:
        timed.client.heartbeat_txn_range(beating, beating)
        return state_of(timed.client, silent) is not TxnState.OPEN

    timed.wait_until(silent_is_dead)
    assert state_of(timed.client, beating) is TxnState.OPEN
    timed.client.commit_txn(beating)


@pytest.mark.sampled(1)
def test_which_aborted_transactions_are_forgotten(timed: Timed) -> None:
    """Why partitions are registered before files appear: what is forgotten counts as committed.

    A lock that announces partitions is not enough, but on 4.x, which notes the table until they are known.
    """
    client = timed.client
    empty, announced, registered = (open_txn(client) for _ in range(3))
    lock_one(client, announced, "announced", dynamic=True)
    own = write_id(client, registered, "default", "somewhere")
    client.add_dynamic_partitions(registered, "default", "somewhere", ["ds=a"], UPDATE, write_id=own)
    for txn_id in (empty, announced, registered):
        client.abort_txn(txn_id)
    if client.capabilities().has_exclusive_write_lock:
        rounds = itertools.count()
        timed.wait_until(lambda: next(rounds) == 3)
        assert state_of(client, announced) is TxnState.ABORTED
    else:
        forgotten = (empty, announced)
        timed.wait_until(lambda: all(state_of(client, txn_id) is None for txn_id in forgotten))
    assert state_of(client, registered) is TxnState.ABORTED


@pytest.mark.sampled(1)
def test_a_reaped_transaction_can_do_nothing_more(timed: Timed) -> None:
    """Each call says so, and abort still succeeds."""
    client = timed.client
    txn_id = open_txn(client)
    own = write_id(client, txn_id, "default", "reaped_too")
    lock_one(client, txn_id, "reaped_too")
    timed.wait_until(lambda: state_of(client, txn_id) is not TxnState.OPEN)
    with pytest.raises(TxnAbortedError):
        client.add_dynamic_partitions(txn_id, "default", "reaped_too", ["ds=a"], UPDATE, write_id=own)
    with pytest.raises(TxnAbortedError):
        lock_one(client, txn_id, "reaped_too")
    if client.capabilities().has_write_ids:
        with pytest.raises(TxnAbortedError):
            client.allocate_write_id(txn_id, "default", "another")
    client.abort_txn(txn_id)
    assert txn_id in client.heartbeat_txn_range(txn_id, txn_id).aborted
