"""A driver that dies, and a metastore that goes away: all or nothing, and the next transaction works."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from judges.hive import Hive23
from metastore_client.errors import MetastoreError, MetastoreUnavailableError
from metastore_client.model import TxnState
from metastore_client.thrift_client import ThriftMetastoreClient, connect
from metastore_client.valid_ids import ValidTxnList
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.transaction_state import TransactionState
from mutation_api.errors import CommitOutcomeUnknownError, DeltaWriteError
from mutation_api.worker.coordinator import MutatorCoordinator
from tests.client_support import files_below
from tests.fix_clock import FakeClock
from tests.fix_metastore import acid_table_info
from tests.integration.dying_driver import insert

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DRIVER_TIMEOUT_SECONDS = 120
OLD_ROWS = [[0, "old row", "old"]]
ALL_ROWS = [[0, "old row", "old"], [1, "new row", "old"], [2, "new row", "new"]]


@pytest.fixture
def metastore(hive: Hive23) -> Iterator[ThriftMetastoreClient]:
    with connect(hive.uri) as client:
        yield client


def _create(hive: Hive23, full_name: str) -> str:
    hive.sql(
        f"CREATE TABLE {full_name} (id bigint, msg string) PARTITIONED BY (ds string) CLUSTERED BY (id) "
        "INTO 1 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    hive.sql(f"INSERT INTO {full_name} PARTITION (ds='old') VALUES (0, 'old row')")
    return full_name


def _rows(hive: Hive23, full_name: str) -> list[list[object]]:
    return sorted(hive.sql(f"SELECT id, msg, ds FROM {full_name}"))


def _drive(hive: Hive23, drivers: dict[str, int]) -> str:
    """Run a driver for each table up to its step; what they print."""
    words = [f"{table}={step}" for table, step in drivers.items()]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.integration.dying_driver", hive.uri, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DRIVER_TIMEOUT_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def _create_beside_each_other(
    metastore: ThriftMetastoreClient, database: str, root: Path, count: int
) -> list[str]:
    """Tables k1, k2 … in folders ``table=k1`` …, so that Hive's readers read all of them in one call."""
    names = [f"k{n}" for n in range(1, count + 1)]
    for name in names:
        (root / f"table={name}").mkdir(parents=True)
        info = acid_table_info(database, name, "ds")
        metastore.create_table(dataclasses.replace(info, num_buckets=1, location=f"file:{root}/table={name}"))
    return [f"{database}.{name}" for name in names]


def _rows_by_table(
    hive: Hive23, metastore: ThriftMetastoreClient, root: Path
) -> dict[str, list[tuple[object, ...]]]:
    """What a reader who comes now sees in each of the tables beside each other: (partition, id, msg)."""
    valid = ValidTxnList.from_open_txns(metastore.get_open_txns(), None)
    rows: dict[str, list[tuple[object, ...]]] = {}
    for row in hive.read(root, "id:bigint,msg:string", valid.to_text()):
        table, _, partition = row.partition.removeprefix("table=").partition("/")
        rows.setdefault(table, []).append((partition.removeprefix("ds="), *row.values))
    return {table: sorted(found) for table, found in rows.items()}


def _client(metastore: ThriftMetastoreClient, full_name: str, clock: FakeClock | None = None):  # type: ignore[no-untyped-def]
    database, table = full_name.split(".")
    builder = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(60)
    if clock is not None:
        builder = builder.clock(clock)
    return builder.add_sink_table(database, table, create_partitions=True).build()


def test_killed_at_every_step_between_open_and_commit(
    hive: Hive23, hive_database: str, metastore: ThriftMetastoreClient
) -> None:
    """Kill -9 of the driver before each of its steps.

    Readers see none of its rows, or all if the commit was done: at once, after the server has timed it out,
    and after the initiator has forgotten what it forgets. The next transaction on the tables works and finds
    no leftovers.
    """
    complete = _create(hive, f"{hive_database}.complete")
    steps = _drive(hive, {complete: 0}).split()
    assert {"lock", "add_dynamic_partitions", "publish", "commit_txn"} <= set(steps)
    assert _rows(hive, complete) == ALL_ROWS

    root = hive.warehouse / f"{hive_database}.db" / "killed"
    tables = _create_beside_each_other(metastore, hive_database, root, len(steps))
    _commit(metastore, tables, [("old", 0, "old row")])
    only_old = {f"k{n}": [("old", 0, "old row")] for n in range(1, len(steps) + 1)}

    _drive(hive, {table: n for n, table in enumerate(tables, 1)})
    assert _rows_by_table(hive, metastore, root) == only_old, steps
    hive.time_out_transactions(0)
    hive.initiator()
    assert _rows_by_table(hive, metastore, root) == only_old, steps
    _commit(metastore, tables, [("old", 1, "new row"), ("new", 2, "new row")])
    all_rows = [("new", 2, "new row"), ("old", 0, "old row"), ("old", 1, "new row")]
    assert _rows_by_table(hive, metastore, root) == dict.fromkeys(only_old, all_rows), steps
    assert [f for f in files_below(root, hidden=True) if "_mutation_" in f] == []


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


class _CutLine:
    """A metastore whose line breaks at a call, before it is sent or after it was done."""

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
            raise MetastoreUnavailableError("line cut", outcome_unknown=True)

        return cut


@pytest.mark.parametrize("after", [False, True])
def test_a_line_cut_during_commit(
    hive: Hive23, hive_database: str, metastore: ThriftMetastoreClient, after: bool
) -> None:
    """Whether the commit had arrived or not: it is asked for again, and the rows are there once."""
    table = _create(hive, f"{hive_database}.cut")
    client = _client(_CutLine(metastore, "commit_txn", after=after, times=1), table)  # type: ignore[arg-type]
    with client, client.new_transaction() as transaction:
        insert(transaction, table)
    assert transaction.state is TransactionState.COMMITTED
    assert _rows(hive, table) == ALL_ROWS


def test_a_metastore_that_stays_away_during_commit(
    hive: Hive23, hive_database: str, metastore: ThriftMetastoreClient
) -> None:
    """Nobody knows, so nothing is removed: here the commit had arrived, and the rows are there."""
    table = _create(hive, f"{hive_database}.away")
    gone = _CutLine(metastore, "commit_txn", after=True, times=1)
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


def _always_fails(line: _CutLine, name: str, *, first: bool) -> None:
    """Every later call fails; the first commit still arrives."""
    original = getattr(line, name)
    calls: list[str] = []

    def failing(*arguments, **options):  # type: ignore[no-untyped-def]
        calls.append(name)
        if first and len(calls) == 1:
            return original(*arguments, **options)
        raise MetastoreUnavailableError("nobody there")

    setattr(line, name, failing)


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
    assert states[transaction.id] is TxnState.ABORTED
    assert _rows(hive, table) == OLD_ROWS
    with pytest.raises(MetastoreError):
        metastore.commit_txn(transaction.id)
    with _client(metastore, table) as client, client.new_transaction() as following:
        insert(following, table)
    assert _rows(hive, table) == ALL_ROWS
