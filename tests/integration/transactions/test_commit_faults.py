"""A driver that dies, and a metastore that goes away: all or nothing, and the next transaction works."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from judges.hive.judge import HiveJudge
from metastore_client.errors import MetastoreError, MetastoreUnavailableError
from metastore_client.model import TableInfo, TxnState
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from metastore_client.valid_ids import ValidTxnList
from mutation_api.errors import CommitOutcomeUnknownError, DeltaWriteError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.transaction_state import TransactionState
from mutation_api.upkeep.sweep import sweep
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_clock import FakeClock
from tests.fixtures.fix_hive_elsewhere import ELSEWHERE
from tests.fixtures.fix_metastore import acid_table_info
from tests.integration.drivers.dying_driver import STEPS, insert
from tests.integration.drivers.steps import run_program
from tests.integration.storages.remote_table import hidden, text_for_judge

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("leaves_nothing")]

OLD_ROWS = [[0, "old row", "old"]]
SOME_STEPS = ("close", "publish", "commit_txn")
ALL_ROWS = [[0, "old row", "old"], [1, "new row", "old"], [2, "new row", "new"]]


@pytest.fixture
def metastore(hive: Hive23) -> Iterator[ThriftMetastoreClient]:
    with open_client(hive.uri) as client:
        yield client


def _create(hive: HiveJudge, full_name: str) -> str:
    hive.sql(
        f"CREATE TABLE {full_name} (id bigint, msg string) PARTITIONED BY (ds string) CLUSTERED BY (id) "
        "INTO 1 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    hive.sql(f"INSERT INTO {full_name} PARTITION (ds='old') VALUES (0, 'old row')")
    return full_name


def _rows(hive: HiveJudge, full_name: str) -> list[list[object]]:
    return sorted(hive.sql(f"SELECT id, msg, ds FROM {full_name}"))


def _drive(hive: HiveJudge, writer: str, drivers: dict[str, int]) -> str:
    """Run a driver for each table up to its step; what they print."""
    return run_program("dying_driver", hive.uri, writer, drivers)


def _create_beside_each_other(
    hive: HiveJudge, metastore: ThriftMetastoreClient, database: str, root: Location, names: Sequence[str]
) -> list[str]:
    """Tables in folders ``table=k1`` …, so that Hive 2.3's readers read all of them in one call."""
    for name in names:
        place = root / f"table={name}"
        storage_at(place).create_directory(place)
        info = _table_info(hive, f"{database}.{name}")
        metastore.create_table(dataclasses.replace(info, location=str(place)))
    return [f"{database}.{name}" for name in names]


def _table_info(hive: HiveJudge, full_name: str) -> TableInfo:
    info = dataclasses.replace(acid_table_info(*full_name.split("."), "ds"), num_buckets=1)
    if hive.line == "2.3":
        return info
    return dataclasses.replace(
        info, parameters={"transactional": "true", "transactional_properties": "default"}
    )


def _rows_by_table(
    hive: HiveJudge, metastore: ThriftMetastoreClient, root: Location, tables: Sequence[str]
) -> dict[str, list[tuple[object, ...]]]:
    """What a reader who comes now sees in each of the tables beside each other: (partition, id, msg)."""
    rows: dict[str, list[tuple[object, ...]]] = {}
    if isinstance(hive, Hive23):
        valid = ValidTxnList.from_open_txns(metastore.get_open_txns(), None)
        for row in hive.read(text_for_judge(root), "id:bigint,msg:string", valid.to_text()):
            table, _, partition = row.partition.removeprefix("table=").partition("/")
            rows.setdefault(table, []).append((partition.removeprefix("ds="), *row.values))
    else:
        for table in tables:
            found = [tuple(row) for row in hive.sql(f"SELECT ds, id, msg FROM {table}")]
            rows |= {table.partition(".")[2]: found} if found else {}
    return {table: sorted(found) for table, found in rows.items()}


def _client(metastore: ThriftMetastoreClient, full_name: str, clock: FakeClock | None = None):  # type: ignore[no-untyped-def]
    database, table = full_name.split(".")
    builder = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(60)
    if clock is not None:
        builder = builder.clock(clock)
    return builder.add_sink_table(database, table, create_partitions=True).build()


def _check_killed_at_steps(
    hive: HiveJudge,
    database: str,
    metastore: ThriftMetastoreClient,
    writer: str,
    *,
    every: bool,
    sweeps: bool,
) -> list[str]:
    """Kill a driver for each step, or for the last one of some names; gives all steps.

    Readers see none of its rows, or all if the commit was done: at once, after the server has timed it out,
    and after the initiator has forgotten what it forgets. What is left staged goes away, by a sweep or by the
    next transaction on the tables, which works.
    """
    complete = f"{database}.complete"
    metastore.create_table(_table_info(hive, complete))
    _commit(metastore, [complete], [("old", 0, "old row")])
    steps = _drive(hive, writer, {complete: 0}).split()
    assert {"lock", "add_dynamic_partitions", "publish", "commit_txn"} <= set(steps)
    assert _rows(hive, complete) == ALL_ROWS

    tried = list(range(1, len(steps) + 1)) if every else [_last(steps, name) for name in SOME_STEPS]
    root = Location.parse(metastore.get_table(*complete.split(".")).location).parent / "killed"
    tables = _create_beside_each_other(hive, metastore, database, root, [f"k{n}" for n in tried])
    _commit(metastore, tables, [("old", 0, "old row")])
    only_old = {f"k{n}": [("old", 0, "old row")] for n in tried}

    _drive(hive, writer, dict(zip(tables, tried, strict=True)))
    assert _rows_by_table(hive, metastore, root, tables) == only_old, steps
    hive.time_out_transactions(0)
    hive.initiator()
    assert _rows_by_table(hive, metastore, root, tables) == only_old, steps
    if sweeps:
        assert any(hidden(root / f"table=k{n}") for n in tried)
        swept = {each.table: each for each in sweep(metastore, database)}
        assert all(swept[table].removed == swept[table].found for table in tables)
        assert hidden(root) == []
        assert _rows_by_table(hive, metastore, root, tables) == only_old, steps
    _commit(metastore, tables, [("old", 1, "new row"), ("new", 2, "new row")])
    all_rows = [("new", 2, "new row"), ("old", 0, "old row"), ("old", 1, "new row")]
    assert _rows_by_table(hive, metastore, root, tables) == dict.fromkeys(only_old, all_rows), steps
    assert hidden(root) == []
    return steps


def _last(steps: Sequence[str], name: str) -> int:
    return len(steps) - steps[::-1].index(name)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("writer", "every"),
    [
        ("coordinator", False),
        ("local-merge", False),
        pytest.param("coordinator", True, marks=pytest.mark.long),
        pytest.param("local-merge", True, marks=pytest.mark.long),
    ],
)
def test_killed_at_every_step_between_open_and_commit(
    hive: Hive23, hive_database: str, metastore: ThriftMetastoreClient, writer: str, every: bool
) -> None:
    """Kill -9 of the driver before each of its steps, or some: all or nothing, and no leftovers."""
    _check_killed_at_steps(hive, hive_database, metastore, writer, every=every, sweeps=False)


@pytest.mark.sampled(1)
@pytest.mark.timeout(1800)  # some hundred drivers one after the other
@pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_killed_between_the_steps_of_a_transaction(
    hive_line: HiveJudge, line_database: str, every: bool
) -> None:
    """A transaction of six verbs on one table: nothing of the ones before remains."""
    with open_client(hive_line.uri) as metastore:
        _check_killed_at_steps(hive_line, line_database, metastore, STEPS, every=every, sweeps=False)


@pytest.mark.long
@pytest.mark.timeout(1800)  # some sixty drivers one after the other
@pytest.mark.parametrize(("storage", "line"), ELSEWHERE)
def test_killed_at_steps_elsewhere(
    hive_elsewhere: HiveJudge,
    database_elsewhere: str,
    storage: str,
    conf_elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same where files do not lie on the local disk; of unfinished uploads, too, a sweep leaves none."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(conf_elsewhere))
    with open_client(hive_elsewhere.uri) as metastore:
        steps = _check_killed_at_steps(
            hive_elsewhere, database_elsewhere, metastore, "coordinator", every=True, sweeps=True
        )
    assert {"create", "stage", "close"} <= set(steps)
    assert (storage == "s3") == ("request" in steps)


def _commit(
    metastore: ThriftMetastoreClient, tables: Iterable[str], rows: Iterable[tuple[str, int, str]]
) -> None:
    """Insert the rows (partition, id, msg) into each table, in one transaction."""
    builder = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(60)
    for table in tables:
        builder = builder.add_sink_table(*table.split("."), create_partitions=True)
    with builder.build() as client, client.new_transaction() as transaction:
        for table in tables:
            with MutatorCoordinator(transaction.table(table)) as coordinator:
                for partition, id, msg in rows:
                    coordinator.insert([partition], {"id": id, "msg": msg})
            transaction.add_manifests(table, coordinator.writer_id, coordinator.close())


class _CutConnection:
    """A metastore whose connection breaks at a call, before it is sent or after it was done."""

    def __init__(self, client: ThriftMetastoreClient, call: str, *, after: bool, times: int) -> None:
        self._client = client
        self._call = call
        self._after = after
        self._times = times

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        method = getattr(self._client, name)
        if name != self._call or self._times == 0:
            return method

        def cut(*arguments, **options):  # type: ignore[no-untyped-def]
            self._times -= 1
            if self._after:
                method(*arguments, **options)
            raise MetastoreUnavailableError("connection cut", outcome_unknown=True)

        return cut


@pytest.mark.parametrize("after", [False, True])
def test_a_line_cut_during_commit(
    hive: Hive23, hive_database: str, metastore: ThriftMetastoreClient, after: bool
) -> None:
    """Whether the commit had arrived or not: it is asked for again, and the rows are there once."""
    table = _create(hive, f"{hive_database}.cut")
    client = _client(_CutConnection(metastore, "commit_txn", after=after, times=1), table)  # type: ignore[arg-type]
    with client, client.new_transaction() as transaction:
        insert(transaction, table)
    assert transaction.state is TransactionState.COMMITTED
    assert _rows(hive, table) == ALL_ROWS


def test_a_metastore_that_stays_away_during_commit(
    hive: Hive23, hive_database: str, metastore: ThriftMetastoreClient
) -> None:
    """Nobody knows, so nothing is removed: here the commit had arrived, and the rows are there."""
    table = _create(hive, f"{hive_database}.away")
    gone = _CutConnection(metastore, "commit_txn", after=True, times=1)
    clock = FakeClock()
    with _client(gone, table, clock) as client:  # type: ignore[arg-type]
        transaction = client.new_transaction()
        transaction.begin()
        insert(transaction, table)
        for name in ("get_open_txns", "commit_txn"):
            _always_fails(gone, name, first=name == "commit_txn")
        with pytest.raises(CommitOutcomeUnknownError):
            transaction.commit()
    assert _rows(hive, table) == ALL_ROWS


def _always_fails(metastore: _CutConnection, name: str, *, first: bool) -> None:
    """Every later call fails; the first commit still arrives."""
    original = getattr(metastore, name)
    calls: list[str] = []

    def failing(*arguments, **options):  # type: ignore[no-untyped-def]
        calls.append(name)
        if first and len(calls) == 1:
            return original(*arguments, **options)
        raise MetastoreUnavailableError("nobody there")

    setattr(metastore, name, failing)


def test_a_directory_that_cannot_be_made_aborts_everything(
    hive: Hive23, hive_database: str, metastore: ThriftMetastoreClient
) -> None:
    """The file system fails in the second of two partitions: the first one's files go away again."""
    table = _create(hive, f"{hive_database}.blocked")
    with _client(metastore, table) as client:
        transaction = client.new_transaction()
        transaction.begin()
        insert(transaction, table)
        metastore.add_partitions(*table.split("."), [("new",)])
        place = hive.warehouse / table.replace(".", ".db/") / "ds=new"
        place.rmdir()
        place.write_text("in the way")
        with pytest.raises(DeltaWriteError, match=table):
            transaction.commit()
        place.unlink()
    states = {t.id: t.state for t in metastore.get_open_txns().txns}
    assert states[transaction.txn_id] is TxnState.ABORTED
    assert _rows(hive, table) == OLD_ROWS
    with pytest.raises(MetastoreError):
        metastore.commit_txn(transaction.txn_id)
    with _client(metastore, table) as client, client.new_transaction() as following:
        insert(following, table)
    assert _rows(hive, table) == ALL_ROWS
