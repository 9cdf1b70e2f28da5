"""Transactions on real Hive 3.1 and 4.1: aborts, deaths, conflicts, waits; Hive itself says what is visible.

The tables are not bucketed, so all our rows lie in bucket 0 and the k-th row that a transaction inserts into
a partition has the ROW__ID (write id, property of bucket 0, k).
"""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from judges.errors import HiveError
from judges.hive.hive_judges import Hive4, Hive31
from judges.hive.judge import HiveJudge
from metastore_client.errors import TxnAbortedError
from metastore_client.model import (
    ColumnInfo,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
)
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api.errors import (
    LockNotAcquiredError,
    ManifestError,
    TableNotMutableError,
    TransactionAbortedError,
    WriteConflictError,
)
from mutation_api.format.event import bucket_property
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.clock import WAIT_LOG
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.upkeep.doctor import doctor
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_clock import FakeClock, wait_until
from tests.fixtures.fix_judge import new_database

pytestmark = pytest.mark.slow
each_line = pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True, scope="module")

Row = tuple[int, str]
RowId = tuple[int, int, int]

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
BUCKET_0 = bucket_property(0)
LOCK_SECONDS = 60.0
GOLDEN = Path(__file__).parents[2] / "golden" / "acid"


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, list[str]]] = []

    def lock_failed(self, lock_id, txn_id, tables, error) -> None:  # type: ignore[no-untyped-def]
        self.told.append((txn_id, list(tables)))


class Line:
    """One line of Hive with a database of its own."""

    def __init__(self, judge: HiveJudge, database: str, metastore: ThriftMetastoreClient) -> None:
        self.judge = judge
        self.database = database
        self.metastore = metastore
        self._numbers = itertools.count(1)

    @property
    def has_choice(self) -> bool:
        """Whether writers may choose not to wait for each other."""
        return self.metastore.capabilities().has_exclusive_write_lock

    def create(self, *keys: str, **how: Any) -> str:
        """A new table; keys are strings."""
        name = f"{self.database}.t{next(self._numbers)}"
        create_acid_table(self.metastore, name, COLUMNS, [ColumnInfo(k, "string") for k in keys], **how)
        return name

    def builder(self, *names: str, **options: Any) -> MutatorClientBuilder:
        result = MutatorClientBuilder().metastore(self.judge.uri).lock_timeout_seconds(60)
        for name in names:
            result = result.add_sink_table(*name.split("."), create_partitions=True, **options)
        return result

    def commit(self, name: str, inserts: Sequence[Row], partition: str | None = None) -> int:
        """Insert in a transaction of its own; returns the write id."""
        with self.builder(name).build() as client, client.new_transaction() as transaction:
            write(transaction, name, partition, inserts=inserts)
            return transaction.table(name).required_write_id()

    def rows(self, name: str, columns: str = "id, msg") -> list[tuple[Any, ...]]:
        """By Hive's SQL, which must agree with its own ``count(*)``, statistics or not."""
        found = sorted(tuple(row) for row in self.judge.sql(f"SELECT {columns} FROM {name}"))
        assert self.judge.sql(f"SELECT count(*) FROM {name}") == [[len(found)]]
        return found

    def location(self, name: str) -> Path:
        return Path(self.metastore.get_table(*name.split(".")).location.removeprefix("file:"))

    def clean(self, is_clean: Callable[[], bool]) -> None:
        """Let the cleaner go round until it has done its work: that of Hive 4 leaves alone what was
        compacted less than a second ago.
        """

        def go_round() -> bool:
            self.judge.cleaner()
            return is_clean()

        wait_until(go_round, "the cleaner")

    def resource(self, name: str) -> str:
        """As the server's messages spell it."""
        return name.replace(".", "/")

    def hold(self, name: str, type: LockType) -> int:
        """Somebody else asks for a lock on a table; returns his transaction."""
        txn_id = self.metastore.open_txn("them", "there", "somebody else")
        self.ask_for_lock(name, type, txn_id)
        return txn_id

    def ask_for_lock(self, name: str, type: LockType, txn_id: int) -> tuple[int, LockState]:
        database, table = name.split(".")
        component = LockComponent(type, LockLevel.TABLE, database, table, None, DataOperationType.SELECT)
        request = LockRequest((component,), txn_id, "them", "there", "somebody else")
        answer = self.metastore.lock(request)
        return answer.lock_id, answer.state

    def updates_without_lock(self, name: str, partition_name: str) -> int:
        """Somebody registers an update of a partition and commits; returns his transaction."""
        database, table = name.split(".")
        txn_id = self.metastore.open_txn("them", "there", "no lock")
        write_id = self.metastore.allocate_write_id(txn_id, database, table)
        self.metastore.add_dynamic_partitions(
            txn_id, database, table, [partition_name], DataOperationType.UPDATE, write_id=write_id
        )
        self.metastore.commit_txn(txn_id)
        return txn_id

    def waits(self, name: str, count: int = 1) -> Callable[[], bool]:
        """Whether so many transactions wait for a lock on the table."""
        locks = self.metastore.show_locks
        return lambda: (
            len({i.txn_id for i in locks(*name.split(".")) if i.state is LockState.WAITING}) >= count
        )


@pytest.fixture(scope="module")
def line(hive_line: HiveJudge) -> Iterator[Line]:
    with new_database(hive_line) as database, open_client(hive_line.uri) as metastore:
        yield Line(hive_line, database, metastore)


def write(
    transaction: Transaction,
    name: str,
    partition: str | None = None,
    *,
    inserts: Sequence[Row] = (),
    updates: Mapping[RowId, Row] | None = None,
    deletes: Sequence[RowId] = (),
) -> None:
    """One change set for one partition, as a plain process would write it."""
    values = [] if partition is None else [partition]
    with MutatorCoordinator(transaction.table(name)) as coordinator:
        for row_id in sorted([*(updates or {}), *deletes]):
            if updates and row_id in updates:
                id, msg = updates[row_id]
                coordinator.update(values, {"ROW__ID": row_id, "id": id, "msg": msg})
            else:
                coordinator.delete(values, {"ROW__ID": row_id})
        for id, msg in inserts:
            coordinator.insert(values, {"id": id, "msg": msg})
        transaction.add_manifests(name, coordinator.writer_id, coordinator.close())


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.long
@each_line
def test_one_transaction_over_tables_of_every_kind(line: Line) -> None:
    """Bucketed, unbucketed, partitioned, insert-only: nothing before the commit, everything after it."""
    bucketed = line.create(clustered_by=["id"], num_buckets=2)
    parts, plain = line.create("ds"), line.create(insert_only=True)
    line.judge.sql(f"INSERT INTO {parts} PARTITION (ds='p') VALUES (1, 'sql')")
    line.judge.sql(f"INSERT INTO {plain} VALUES (1, 'sql')")
    with line.builder(bucketed, parts, plain).build() as client, client.new_transaction() as transaction:
        write(transaction, bucketed, inserts=[(1, "a")])
        write(transaction, parts, "p", inserts=[(2, "b")], deletes=[(1, BUCKET_0, 0)])
        write(transaction, plain, inserts=[(2, "b")])
        assert line.rows(bucketed) == []
        assert line.rows(parts) == line.rows(plain) == [(1, "sql")]
        with pytest.raises(ManifestError, match=f"{plain}.*were added twice"):
            transaction.add_manifests(plain, next(iter(transaction._written.writers(plain))), [])
    assert line.rows(bucketed) == [(1, "a")]
    assert line.rows(parts, "id, msg, ds") == [(2, "b", "p")]
    assert line.rows(plain) == [(1, "sql"), (2, "b")]
    line.judge.sql(f"UPDATE {parts} SET msg = 'c' WHERE id = 2")
    line.judge.sql(f"DELETE FROM {bucketed} WHERE id = 1")
    assert line.rows(parts) == [(2, "c")]
    assert line.rows(bucketed) == []
    reasons = {t.table: t.reason for t in doctor(line.metastore, line.database).tables}
    assert [reasons[name] for name in (bucketed, parts, plain)] == [None] * 3


@pytest.mark.long
@each_line
def test_a_table_that_is_not_transactional_can_be_converted_as_its_refusal_says(line: Line) -> None:
    """Hive takes the statement of the message, and reads what we then change; it does not take it back."""
    name = f"{line.database}.not_yet"
    no = "TBLPROPERTIES ('transactional'='false')"
    line.judge.sql(f"CREATE TABLE {name} (id bigint, msg string) STORED AS ORC {no}")
    line.judge.sql(f"INSERT INTO {name} VALUES (1, 'old')")
    with pytest.raises(TableNotMutableError) as refused:
        line.builder(name).build().connect()
    convert = str(refused.value).partition("or convert this one, for good: ")[2]
    line.judge.sql(convert)
    with line.builder(name).build() as client, client.new_transaction() as transaction:
        write(transaction, name, updates={(0, BUCKET_0, 0): (1, "changed")}, inserts=[(2, "new")])
    assert line.rows(name) == [(1, "changed"), (2, "new")]
    with pytest.raises(HiveError):
        line.judge.sql(f"ALTER TABLE {name} SET {no}")


@pytest.mark.long
@pytest.mark.feature("`count(*)`, min and max right after a commit")
@each_line
def test_statistics_of_hive_never_answer_for_us(line: Line) -> None:
    """After ANALYZE and after INSERT Hive 4 answers count, min and max without a look at the files."""
    for keys, partition, where in (((), None, ""), (("ds",), "p", " PARTITION (ds='p')")):
        name = line.create(*keys)
        line.judge.sql(f"INSERT INTO {name}{where} VALUES (5, 'sql'), (6, 'sql')")
        line.judge.sql(f"ANALYZE TABLE {name}{where} COMPUTE STATISTICS FOR COLUMNS")
        line.commit(name, [(1, "ours"), (9, "ours")], partition)
        assert line.judge.sql(f"SELECT count(*), min(id), max(id) FROM {name}") == [[4, 1, 9]]
        assert len(line.rows(name)) == 4


class Killed(BaseException):
    """Ends the driver where it stands."""


@pytest.mark.long
@pytest.mark.feature("no leftovers after an abort or a crash")
@each_line
def test_abort_and_death_leave_nothing_that_is_ever_read(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Aborted, dead before publishing, dead between publishing and commit: initiator, worker and cleaner
    have all been there, and still nothing of it is read.
    """
    parts, flat = line.create("ds"), line.create()
    old = {name: line.commit(name, [(1, "old"), (2, "old")], p) for name, p in ((parts, "p"), (flat, None))}

    def write_ghosts(transaction: Transaction) -> None:
        for name, partition in ((parts, "p"), (flat, None)):
            changes = {(old[name], BUCKET_0, 0): (1, "ghost")}
            gone = [(old[name], BUCKET_0, 1)]
            write(transaction, name, partition, inserts=[(3, "ghost")], updates=changes, deletes=gone)

    def die(txn_id: int) -> None:
        raise Killed

    with open_client(line.judge.uri) as driver:
        client = line.builder(parts, flat).metastore(driver).clock(FakeClock()).build().connect()
        aborted = client.new_transaction()
        with pytest.raises(ZeroDivisionError), aborted:
            write_ghosts(aborted)
            raise ZeroDivisionError
        unpublished, published = client.new_transaction(), client.new_transaction()
        unpublished.begin()
        write_ghosts(unpublished)
        line.judge.time_out_transactions(0)
        published.begin()
        write_ghosts(published)
        names = {n: f"*_{published.table(n).required_write_id():07d}_0000/bucket_*" for n in (parts, flat)}
        monkeypatch.setattr(driver, "commit_txn", die)
        with pytest.raises(Killed):
            published.commit()
        monkeypatch.undo()
        line.judge.time_out_transactions(0)
        with pytest.raises(TxnAbortedError):
            line.metastore.commit_txn(published.txn_id)
        with pytest.raises(TransactionAbortedError):
            unpublished.commit()
    ghosts = {n: [*line.location(n).rglob(pattern)] for n, pattern in names.items()}
    assert [len(files) for files in ghosts.values()] == [2, 2], "a delta and a delete delta each"
    for step in (None, line.judge.initiator, line.judge.worker, line.judge.cleaner):
        if step is not None:
            step()
        assert line.rows(parts) == line.rows(flat) == [(1, "old"), (2, "old")]
    line.judge.compact(parts, "major", partition="ds='p'")
    line.judge.compact(flat, "major")
    assert line.rows(parts) == line.rows(flat) == [(1, "old"), (2, "old")]
    line.clean(lambda: not any(path.exists() for files in ghosts.values() for path in files))


@pytest.mark.long
@pytest.mark.feature("writers wait for each other")
@each_line
def test_writers_wait_for_each_other_roll_over_and_lose_nothing(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """The second waits for the first, sees its rows, updates one of them and commits; a third party that
    takes no lock and commits in between is a conflict even under the guard.
    """
    name = line.create("ds")
    with line.builder(name).build() as client:
        first, second = client.new_transaction(), client.new_transaction()
        first.begin()
        write(first, name, "p", inserts=[(1, "first")])
        waiting = in_background(second.begin)
        wait_until(line.waits(name), "the second writer in the queue")
        first_write_id = first.table(name).required_write_id()
        first.commit()
        waiting.join(60)
        assert second.summary.roll_overs == 1
        assert second.valid_txn_list.is_valid(first.txn_id)
        assert second.valid_ids(name).is_valid(first_write_id)
        second_write_id = second.table(name).required_write_id()
        write(second, name, "p", updates={(first_write_id, BUCKET_0, 0): (1, "second")})
        second.commit()
        assert second_write_id > first_write_id
        assert line.rows(name) == [(1, "second")]

        holder = line.hold(name, LockType.EXCLUSIVE)
        caplog.set_level(logging.INFO, "mutation_api.transaction.lock")
        caplog.clear()
        third = client.new_transaction()
        waiting = in_background(third.begin)
        wait_until(lambda: "waits for lock" in caplog.text, "the third writer to be told that it must wait")
        line.metastore.abort_txn(holder)
        waiting.join(60)
        assert third.summary.roll_overs == 1
        write(third, name, "p", deletes=[(second_write_id, BUCKET_0, 0)])
        winner = line.updates_without_lock(name, "ds=p")
        with pytest.raises(
            WriteConflictError, match=f"Transaction {winner} changed {line.resource(name)}/ds=p"
        ):
            third.commit()
    assert line.rows(name) == [(1, "second")]


@pytest.mark.long
@each_line
def test_the_wait_has_a_bound_and_names_the_holder(
    line: Line, caplog: pytest.LogCaptureFixture, clock: FakeClock
) -> None:
    """Behind an EXCLUSIVE and, where there is one, an EXCL_WRITE; nothing stays in the queue.

    A log line names the holder while the writer waits for it.
    """
    caplog.set_level(logging.INFO, WAIT_LOG)
    name = line.create("ds")
    kinds = [LockType.EXCLUSIVE, LockType.EXCL_WRITE if line.has_choice else LockType.SHARED_WRITE]
    for kind in kinds:
        holder = line.hold(name, kind)
        with (
            line.builder(name).lock_timeout_seconds(LOCK_SECONDS).clock(clock).build() as client,
            pytest.raises(
                LockNotAcquiredError, match=rf"{kind.name} lock .* of transaction {holder}, them@there"
            ),
        ):
            client.new_transaction().begin()
        assert sum(clock.sleeps) == pytest.approx(LOCK_SECONDS)
        clock.sleeps.clear()
        (told,) = [record.getMessage() for record in caplog.records if record.name == WAIT_LOG]
        assert f"of transaction {holder}, them@there" in told
        caplog.clear()
        assert [i.txn_id for i in line.metastore.show_locks(*name.split("."))] == [holder]
        line.metastore.abort_txn(holder)
    # who only inserts waits for the former alone
    holder = line.hold(name, kinds[1])
    with line.builder(name, insert_only=True).build() as client, client.new_transaction() as transaction:
        write(transaction, name, "p", inserts=[(1, "a")])
    assert transaction.summary.roll_overs == 0
    line.metastore.abort_txn(holder)
    assert line.rows(name) == [(1, "a")]


@each_line
def test_ddl_that_queues_between_guard_and_second_is_let_past(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for the guard, and our second transaction would wait for it."""
    caplog.set_level(logging.INFO, "mutation_api.transaction.lease")
    name = line.create("ds")
    first = line.hold(name, LockType.SHARED_WRITE)
    with line.builder(name).build() as client:
        transaction = client.new_transaction()
        waiting = in_background(transaction.begin)
        wait_until(line.waits(name), "our lock in the queue")
        ddl = line.metastore.open_txn("them", "there", "ddl")
        lock_id, state = line.ask_for_lock(name, LockType.EXCLUSIVE, ddl)
        assert state is LockState.WAITING
        line.metastore.commit_txn(first)

        def has_ddl_begun() -> bool:
            return line.metastore.check_lock(lock_id, ddl).state is LockState.ACQUIRED

        wait_until(has_ddl_begun, "the DDL to get its lock")
        assert "give way to a request for an exclusive lock" in caplog.text
        line.metastore.commit_txn(ddl)
        waiting.join(60)
        write(transaction, name, "p", inserts=[(1, "a")])
        transaction.commit()
    assert transaction.summary.roll_overs <= 1, "none if the DDL had ended before we asked again"
    assert line.rows(name) == [(1, "a")]


@pytest.mark.long
@each_line
def test_hive_sql_waits_for_us_and_no_update_is_lost(line: Line) -> None:
    """By default Hive's UPDATE and MERGE of rows that we change wait for us; then they see our rows, or are
    refused. Readers never wait.
    """
    name = line.create("ds")
    old = line.commit(name, [(1, "old"), (2, "old")], "p")
    merge = (
        f"MERGE INTO {name} t USING (SELECT 2 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET msg = concat(t.msg, ' merged')"
    )
    expected = {1: "old", 2: "old"}
    for number, statement in (
        (1, f"UPDATE {name} SET msg = concat(msg, ' updated') WHERE id = 1"),
        (2, merge),
    ):
        refusals: list[HiveError] = []

        def run(statement: str = statement, refusals: list[HiveError] = refusals) -> None:
            try:
                line.judge.sql(statement)
            except HiveError as error:
                refusals.append(error)

        with line.builder(name).build() as client, client.new_transaction() as transaction:
            assert dict(line.rows(name)) == expected
            waiting = in_background(run)
            wait_until(line.waits(name), "Hive's statement in the queue")
            row_id = (old, BUCKET_0, number - 1)
            write(transaction, name, "p", updates={row_id: (number, "ours")})
        waiting.join(120)
        word = " updated" if number == 1 else " merged"
        expected[number] = "ours" if refusals else f"ours{word}"
        assert dict(line.rows(name)) == expected, refusals


@pytest.mark.long
@pytest.mark.feature(
    "optimistic writers: first to commit wins", says={"3.1": "they wait: it has no optimistic locks"}
)
@each_line
def test_optimistic_writers_let_the_first_win(line: Line) -> None:
    """Where there is the choice: nobody waits; same partition: the later one is refused, with the name of the
    winner; another partition: both commit. Elsewhere the second waits as ever.
    """
    name = line.create("ds")
    old = {p: line.commit(name, [(1, "old")], p) for p in ("p", "q", "r")}
    first_row = {p: (write_id, BUCKET_0, 0) for p, write_id in old.items()}
    with line.builder(name).write_lock("optimistic").build() as client:
        transactions = [client.new_transaction() for _ in range(3)]
        transactions[0].begin()
        if not line.has_choice:
            waiting = in_background(transactions[1].begin)
            wait_until(line.waits(name), "the second writer in the queue")
            transactions[0].commit()
            waiting.join(60)
            transactions[1].commit()
            return
        for transaction in transactions[1:]:
            transaction.begin()
        winner, loser, other = transactions
        write(winner, name, "p", updates={first_row["p"]: (1, "first")})
        write(loser, name, "p", deletes=[first_row["p"]])
        write(other, name, "q", updates={first_row["q"]: (1, "first")})
        winner.commit()
        with pytest.raises(WriteConflictError, match=rf"{winner.txn_id} changed {line.resource(name)}/ds=p"):
            loser.commit()
        other.commit()
        assert line.rows(name, "ds, msg") == [("p", "first"), ("q", "first"), ("r", "old")]

        merge = (
            f"MERGE INTO {name} t USING (SELECT 1 AS id) s ON t.id = s.id AND t.ds = 'r' "
            "WHEN MATCHED THEN UPDATE SET msg = 'merged'"
        )
        for statement, wins in (
            (f"UPDATE {name} SET msg = 'sql' WHERE ds = 'r'", "sql"),
            (merge, "merged"),
        ):
            late, elsewhere = client.new_transaction(), client.new_transaction()
            late.begin()
            elsewhere.begin()
            line.judge.sql(f"INSERT INTO {name} PARTITION (ds='q') VALUES (2, '{wins}')")
            line.judge.sql(statement)
            write(late, name, "r", inserts=[(7, "lost")], deletes=[first_row["r"]])
            write(elsewhere, name, "p", inserts=[(8, wins)])
            with pytest.raises(WriteConflictError, match=r"changed .*/ds=r and committed first"):
                late.commit()
            elsewhere.commit()
            assert line.rows(name, "msg, ds, id")[-1][0] in ("sql", "merged")
            assert line.judge.sql(f"SELECT msg FROM {name} WHERE ds = 'r'") == [[wins]]
    assert line.judge.sql(f"SELECT count(*) FROM {name} WHERE id IN (2, 8)") == [[4]]


@each_line
def test_a_heartbeat_that_stops_loses_the_transaction(line: Line) -> None:
    """The server ends it, the listener hears of it once, the commit is refused, nothing is visible."""
    name = line.create("ds")
    clock, listener, lost = FakeClock(), Listener(), list[Exception]()
    with line.builder(name).lock_failure_listener(listener).clock(clock).build() as client:
        transaction = client.new_transaction()
        transaction.begin()
        transaction.on_lost(lost.append)
        write(transaction, name, "p", inserts=[(1, "late")])
        line.judge.time_out_transactions(0)
        clock.wait_for_waiters(2)
        clock.advance(200)
        wait_until(lambda: bool(lost), "the loss")
        with pytest.raises(TransactionAbortedError):
            transaction.commit()
    assert listener.told == [(transaction.txn_id, [name])]
    assert line.rows(name) == []
    assert line.metastore.get_partition_names(*name.split(".")) == []


@pytest.mark.long
@pytest.mark.newest
@each_line
def test_a_snapshot_keeps_the_cleaner_away(line: Line) -> None:
    """On 4.1 as an open transaction, on 4.2 as one that told its tables, on 3.1 by locks on the partitions.
    Later commits are hidden.
    """
    name = line.create("ds")
    first, second = (line.commit(name, [(i, "a")], "p") for i in (1, 2))
    with line.builder(name).build() as client:
        snapshot = client.open_snapshot(name)
        third = line.commit(name, [(3, "b")], "p")
        valid = snapshot.valid_ids(name)
        assert [valid.is_valid(i) for i in (first, second, third)] == [True, True, False]
        locks = {i.partition for i in line.metastore.show_locks(*name.split("."))}
        waits = line.metastore.capabilities().cleaner_waits_for_transactions
        assert locks == ({None} if waits else {None, "ds=p"})
        line.judge.compact(name, "major", partition="ds='p'")
        deltas = [p.name for p in (line.location(name) / "ds=p").glob("delta_*")]
        assert {f"delta_{i:07d}_{i:07d}_0000" for i in (first, second)} <= set(deltas)
        snapshot.close()
        line.clean(lambda: not [*(line.location(name) / "ds=p").glob(f"delta_{first:07d}_*")])
    assert line.rows(name, "id") == [(1,), (2,), (3,)]


@pytest.mark.feature("data of Hive 2 not yet compacted", refused="updates and deletes; only inserts work")
@each_line
def test_updates_that_hive_2_left_are_refused(line: Line) -> None:
    """An upgraded table: this line's Hive reads them wrongly, so whoever builds on them makes the damage
    lasting. Inserts of Hive 2 are read and built upon.
    """
    name, inserted = (line.create(clustered_by=["id"], num_buckets=2) for _ in range(2))
    for table, golden, last in ((name, "update_delete_legacy", 4), (inserted, "insert_only", 2)):
        for _ in range(last):
            txn_id = line.metastore.open_txn("upgrade", "here", "")
            line.metastore.allocate_write_id(txn_id, *table.split("."))
            line.metastore.commit_txn(txn_id)
        shutil.copytree(GOLDEN / golden / "data", line.location(table), dirs_exist_ok=True)

    read = map(tuple, line.judge.sql(f"SELECT id, msg FROM {name}"))
    assert sorted(read, key=str) != sorted(_golden_rows("update_delete_legacy"), key=str)
    before = sorted(p for p in line.location(name).rglob("*") if not p.name.startswith("."))
    with line.builder(name).build() as client:
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, name, inserts=[(100, "ours")])
        with pytest.raises(TableNotMutableError, match=rf"{name} .* format of Hive 2.*COMPACT 'major'"):
            transaction.commit()
    assert sorted(p for p in line.location(name).rglob("*") if not p.name.startswith(".")) == before

    rows = _golden_rows("insert_only")
    (first, *rest) = [row for row in rows if row[0] == 2]
    assert not rest
    with line.builder(inserted).build() as client, client.new_transaction() as transaction:
        write(transaction, inserted, inserts=[(100, "ours")], deletes=[(1, 0, 0)])
    expected = [row for row in rows if row != first] + [(100, "ours")]
    assert sorted(map(tuple, line.judge.sql(f"SELECT id, msg FROM {inserted}")), key=str) == sorted(
        expected, key=str
    )


@pytest.mark.feature("replication targets", refused="only replication may write to them")
@each_line
def test_targets_of_a_replication_are_refused(line: Line) -> None:
    """By their property, at once; so are tables that the server has made external."""
    name = line.create()
    line.judge.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('repl.last.id'='7')")
    external = f"{line.database}.outside"
    line.judge.sql(f"CREATE EXTERNAL TABLE {external} (id bigint) STORED AS ORC")
    for table, rule in ((name, "target of a replication"), (external, "must be a managed table")):
        with pytest.raises(TableNotMutableError, match=f"{table} cannot be used: .*{rule}"):
            line.builder(table).build().connect()
    reasons = {t.table: t.reason for t in doctor(line.metastore, line.database).tables}
    assert "replication" in str(reasons[name])


def _golden_rows(name: str) -> list[tuple[Any, ...]]:
    lines = (GOLDEN / name / "expected.jsonl").read_text(encoding="utf-8").splitlines()
    return [tuple(json.loads(each)["row"]) for each in lines]


@pytest.mark.long
@pytest.mark.feature(
    "file notifications for replication",
    lines=["3.1"],
    says="transactions and partitions are logged; file events do not exist",
)
def test_replication_hears_of_the_transaction_on_hive_3(hive31_notifying: Hive31) -> None:
    """What Hive's own listener logs of a commit and of an aborted job: our calls make it complete."""
    with new_database(hive31_notifying) as database, open_client(hive31_notifying.uri) as metastore:
        line = Line(hive31_notifying, database, metastore)
        parts = line.create("ds")
        line.commit(parts, [(1, "a"), (2, "a")], "p")
        with line.builder(parts).build() as client:
            lost = client.new_transaction()
            lost.begin()
            write(lost, parts, "p", inserts=[(4, "lost")])
            lost.abort()
        events = line.judge.metastore_rows(
            f"select EVENT_TYPE from NOTIFICATION_LOG where DB_NAME = '{database}' or "
            "EVENT_TYPE like '%TXN' order by EVENT_ID"
        )
        kinds = [str(event[0]) for event in events]
        committed = ["OPEN_TXN", "ALLOC_WRITE_ID_EVENT", "ADD_PARTITION", "COMMIT_TXN"]
        aborted = ["OPEN_TXN", "ALLOC_WRITE_ID_EVENT", "ABORT_TXN"]
        assert kinds[kinds.index("CREATE_TABLE") + 1 :] == committed + aborted


@pytest.mark.long
@pytest.mark.feature("file notifications for replication")
@pytest.mark.parametrize("hive_notifying", ["4.1"], indirect=True)
def test_replication_hears_of_every_file(hive_notifying: Hive4) -> None:
    """Of a commit each file with its directory, delete deltas too; of an aborted job nothing. The log is the
    server's own, written by Hive's listener.
    """
    with new_database(hive_notifying) as database, open_client(hive_notifying.uri) as metastore:
        line = Line(hive_notifying, database, metastore)
        parts, flat = line.create("ds"), line.create()
        old = line.commit(parts, [(1, "a"), (2, "a")], "p")
        with line.builder(parts, flat).build() as client:
            with client.new_transaction() as transaction:
                changes = {(old, BUCKET_0, 0): (1, "b")}
                write(transaction, parts, "p", updates=changes, deletes=[(old, BUCKET_0, 1)])
                write(transaction, flat, inserts=[(3, "c")])
            lost = client.new_transaction()
            lost.begin()
            write(lost, parts, "p", inserts=[(4, "lost")])
            lost.abort()
        log = line.judge.metastore_rows(
            "select WNL_TABLE, WNL_PARTITION, WNL_WRITEID, WNL_FILES from TXN_WRITE_NOTIFICATION_LOG "
            f"where WNL_DATABASE = '{database}' order by WNL_ID"
        )
        assert [(row[0], row[1], row[2]) for row in log] == [
            (parts.split(".")[1], "ds=p", "1"),
            (parts.split(".")[1], "ds=p", "2"),
            (flat.split(".")[1], "", "1"),
        ]
        written = [
            sorted(str(p) for p in line.location(name).rglob(f"*_{write_id:07d}_0000/bucket_*"))
            for name, write_id in ((parts, 1), (parts, 2), (flat, 1))
        ]
        assert [len(files) for files in written] == [1, 2, 1]
        for row, files in zip(log, written, strict=True):
            entries = str(row[3])
            for file in files:
                assert file in entries
                assert f"#{Path(file).parent.name}" in entries
            assert entries.count("bucket_") == len(files)
        events = line.judge.metastore_rows("select EVENT_TYPE from NOTIFICATION_LOG order by EVENT_ID")
        kinds = {str(event[0]) for event in events}
        assert {"OPEN_TXN", "ALLOC_WRITE_ID_EVENT", "ADD_PARTITION", "COMMIT_TXN", "ABORT_TXN"} <= kinds
