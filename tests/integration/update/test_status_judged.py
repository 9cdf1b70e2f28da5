"""What the status says of a server, against the server's own tables."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.client import MetastoreClient
from metastore_client.model import (
    ColumnInfo,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
)
from metastore_client.remote.thrift_client import open_client
from mutation_api.cdc.update import status as status_module
from mutation_api.cdc.update.status import UpdateStatus, status_text, update_status
from mutation_api.cdc.update.status_html import status_page
from mutation_api.upkeep.compact import CompactionThreshold, compact_table
from tests.fixtures.fix_judge import LINES
from tests.support.shops import Shop, SqliteSource

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
DAY = ColumnInfo("day", "string")
STATES = {"initiated": "i", "working": "w", "ready for cleaning": "r", "succeeded": "s"}
LATER_SECONDS = 10_000


def _lock(metastore: MetastoreClient, shop: Shop, user: str) -> tuple[int, int, LockState]:
    """A transaction that asks for the table alone: its id, its lock's, and the answer."""
    database, table = shop.table.split(".")
    txn = metastore.open_txn(user, "host", "etl")
    component = LockComponent(
        LockType.EXCLUSIVE, LockLevel.TABLE, database, table, None, DataOperationType.UPDATE
    )
    answer = metastore.lock(LockRequest((component,), txn, user, "host", "etl"))
    return txn, answer.lock_id, answer.state


def _compactions_of(hive: HiveJudge, shop: Shop) -> list[tuple[str | None, ...]]:
    """Partition, kind and state of those that wait or run, and of those that are done."""
    database, table = shop.table.split(".")
    queries = (
        f"SELECT {p}_PARTITION, {p}_TYPE, {p}_STATE FROM {name} "
        f"WHERE {p}_DATABASE = '{database}' AND {p}_TABLE = '{table}'"
        for p, name in (("CQ", "COMPACTION_QUEUE"), ("CC", "COMPLETED_COMPACTIONS"))
    )
    return sorted(tuple(row) for query in queries for row in hive.metastore_rows(query))


def _told_compactions(status: UpdateStatus) -> list[tuple[str | None, ...]]:
    kinds = {"MAJOR": "a", "MINOR": "i"}
    return sorted((each.partition, kinds[each.type.name], STATES[each.state]) for each in status.compactions)


@pytest.mark.feature("incremental update from a database")
@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_g16_the_status_says_what_the_server_has(
    hive_line: HiveJudge, line_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compactions that wait and that are done, the transaction of the last extraction, locks that wait and
    who holds them up, transactions without a sign of life.
    """
    source = SqliteSource(tmp_path)
    source.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, day TEXT)")
    one = CompactionThreshold(1)
    with open_client(hive_line.uri) as metastore:
        shop = Shop(source, metastore, line_database, COLUMNS, DAY)
        shop.enable()
        for first in (0, 10):
            source.run(
                *[f"INSERT INTO orders VALUES ({first + n}, 'x', 'd{n % 2}')" for n in range(10)],
            )
            shop.extract()
        first = update_status(metastore, shop.table)
        assert first.watermark is not None
        components = hive_line.metastore_rows(
            "SELECT max(CTC_TXNID) FROM COMPLETED_TXN_COMPONENTS "
            f"WHERE CTC_DATABASE = '{line_database}' AND CTC_TABLE = 'orders'"
        )
        assert [[str(first.watermark.txn_id)]] == components
        for partition, kind in (("day=d0", "major"), ("day=d1", "minor")):
            compact_table(
                metastore, shop.table, kind=kind, partitions=[partition], threshold=one, wait_seconds=None
            )
        queued = update_status(metastore, shop.table)
        assert _told_compactions(queued) == _compactions_of(hive_line, shop)
        assert [each.state for each in queued.active_compactions] == ["initiated", "initiated"]
        hive_line.worker()
        hive_line.worker()
        hive_line.cleaner()
        done = update_status(metastore, shop.table)
        assert _told_compactions(done) == _compactions_of(hive_line, shop)
        assert done.active_compactions == []
        rows = {each.partition: each.deltas.row_count for each in done.sizes}
        assert rows["day=d0"] == 0

        holder, _, granted = _lock(metastore, shop, "ann")
        waiting, lock_id, waits = _lock(metastore, shop, "bob")
        assert (granted, waits) == (LockState.ACQUIRED, LockState.WAITING)
        now = status_module.time.time()
        monkeypatch.setattr(status_module.time, "time", lambda: now + LATER_SECONDS)
        late = update_status(metastore, shop.table)
        monkeypatch.undo()
        assert late.sizes == ()
        assert f"transaction {holder}" in late.sizes_error
        assert f"(unknown: {late.sizes_error})" in status_text(late)
        assert late.sizes_error in html.unescape(status_page([late], late.at))
        (lock,) = late.waiting_locks
        told = (str(lock.lock_id), str(lock.blocked_by), lock.user)
        assert told[0] == str(lock_id)
        assert [[*told]] == hive_line.metastore_rows(
            "SELECT HL_LOCK_EXT_ID, HL_BLOCKEDBY_EXT_ID, HL_USER FROM HIVE_LOCKS "
            f"WHERE HL_DB = '{line_database}' AND HL_LOCK_STATE = 'w'"
        )
        open_txns = hive_line.metastore_rows("SELECT TXN_ID, TXN_USER FROM TXNS WHERE TXN_STATE = 'o'")
        assert sorted([str(each.id), each.user] for each in late.dead_txns) == sorted(open_txns)
        assert {holder, waiting} <= {each.id for each in late.dead_txns}
        for txn in (holder, waiting):
            metastore.abort_txn(txn)
