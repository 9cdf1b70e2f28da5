"""What is told of a table's past, against what was done to it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.errors import InvalidAnswerError
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.errors import TableNotMutableError
from mutation_api.hive.connect import connect
from mutation_api.upkeep.history import EventCounts, partition_events, table_history
from mutation_api.upkeep.transaction_files import transactions_of_write_ids
from mutation_api.upkeep.verify.finding import IdState
from tests.support.client_support import table_info
from tests.support.golden_tables import GoldenTable


def rows(*ids: int) -> pa.Table:
    """Rows of a table of id and msg."""
    return pa.table({"id": pa.array(ids, pa.int32()), "msg": ["x"] * len(ids)})


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("capabilities", "properties"),
    [(HIVE_2_3, "legacy"), (HIVE_2_3, "default"), (HIVE_3_1, "default"), (HIVE_4_1, "default")],
)
def test_what_was_done(tmp_path: Path, capabilities: object, properties: str) -> None:
    """Three commits, an abort and an open transaction, with other transactions between them."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=capabilities)  # type: ignore[arg-type]
    parameters = {"transactional": "true", "transactional_properties": properties}
    metastore.create_table(
        table_info(partitioned=False, location=(tmp_path / "t").as_uri(), parameters=parameters)
    )
    name, txns = "default.t", []
    with connect(metastore) as hive:
        for change in ("append", "update", "delete", "abort", "append"):
            for _ in range(3):
                metastore.commit_txn(metastore.open_txn("else", "where", ""))
            with hive.transaction(name) as tx:
                table = tx.table(name)
                if change == "append":
                    table.append(rows(1, 2, 3, 4))
                elif change == "update":
                    table.merge(
                        rows(2, 3).set_column(1, "msg", pa.array(["y", "y"])), on=["id"]
                    ).when_matched_update_all().execute()
                elif change == "delete":
                    table.delete(table.scan(row_ids=True, limit=1))
                txns.append(tx.txn_id)
                if change == "abort":
                    tx.abort()
        history = table_history(metastore, name)
    entries = {entry.txn_id: entry for entry in history.entries if entry.txn_id in txns}
    is_legacy = properties == "legacy"
    updated = EventCounts(updates=2) if is_legacy else EventCounts(inserts=2, deletes=2)
    expected = [EventCounts(inserts=4), updated, EventCounts(deletes=1), EventCounts(inserts=4)]
    committed = [txns[0], txns[1], txns[2], txns[4]]
    assert [entries[txn].total for txn in committed] == expected
    assert all(entries[txn].state is IdState.COMMITTED for txn in committed)
    times = [entries[txn].written or 0.0 for txn in committed]
    assert times == sorted(times)
    assert times[0] > 0
    if txns[3] in entries:
        assert entries[txns[3]].state is IdState.ABORTED
    assert (history.rewritten, history.forgotten_through, history.problems) == ((), 0, ())
    text = json.loads(json.dumps(history.to_dict()))
    assert text["ids"][0]["partitions"] == {"": {"inserts": 4, "updates": 0, "deletes": 0}}


def test_events_survive_a_minor_compaction_of_hive() -> None:
    """Hive 4.1's own: its compacted deltas tell of each id what its own deltas told."""
    golden = GoldenTable("acid_v4/bucketed_minor")
    view = golden.view()
    found = partition_events("", view.table.location, view.table.version)
    assert found.problems == []
    assert sum(c.inserts - c.deletes for c in found.counts.values()) == golden.row_count


def test_of_compacted_deltas_alone(tmp_path: Path) -> None:
    """The same numbers when the cleaner has removed what was compacted."""
    golden = GoldenTable("acid_v4/bucketed_minor")
    copy = Path(shutil.copytree(golden.folder / "data", tmp_path / "t"))
    before = partition_events("", golden.view().table.location, golden.view().table.version)
    for directory in copy.iterdir():
        if "_v" not in directory.name:
            shutil.rmtree(directory)
    view = golden.view(copy)
    after = partition_events("", view.table.location, view.table.version)
    assert after.counts == before.counts
    assert {d.name for d in after.directories} == {p.name for p in copy.iterdir()}


@pytest.mark.parametrize("capabilities", [HIVE_3_1, HIVE_4_1])
def test_transactions_of_write_ids(capabilities: object) -> None:
    """All pairs, whatever order ids were given out in, and none that is too old to be asked for."""
    metastore = InMemoryMetastore(capabilities=capabilities)  # type: ignore[arg-type]
    metastore.create_table(table_info(partitioned=False, location="file:/nowhere"))
    expected = {}
    for number in range(40):
        txns = [metastore.open_txn("u", "h", ""), metastore.open_txn("u", "h", "")]
        for txn in reversed(txns):
            if (number + txn) % 3:
                expected[metastore.allocate_write_id(txn, "default", "t")] = txn
        metastore.commit_txn(txns[0])
        if number % 5:
            metastore.abort_txn(txns[1])
    newest = metastore.get_open_txns().high_watermark
    assert transactions_of_write_ids(metastore, "default.t", newest) == expected
    recent = {id: txn for id, txn in expected.items() if txn > newest - 10}
    assert transactions_of_write_ids(metastore, "default.t", newest, recent_txns=10) == recent


def test_no_such_table() -> None:
    """It is refused."""
    with pytest.raises(TableNotMutableError, match="does not exist"):
        table_history(InMemoryMetastore(), "default.nothing")


class _HighMetastore(InMemoryMetastore):
    """Its write ids begin above 2^40."""

    def get_valid_write_ids(self, names: Sequence[str], valid: ValidTxnList) -> dict[str, ValidWriteIdList]:
        return {
            name: ValidWriteIdList(_HIGH + ids.high_watermark, tuple(_HIGH + id for id in ids.exceptions))
            for name, ids in super().get_valid_write_ids(names, valid).items()
        }


class _EndlessMetastore(InMemoryMetastore):
    """It hides all of 2^40 write ids from a snapshot that does not see all transactions."""

    def get_valid_write_ids(self, names: Sequence[str], valid: ValidTxnList) -> dict[str, ValidWriteIdList]:
        hidden = ValidWriteIdList(1, (1,), table=names[0])
        return {names[0]: hidden if valid.exceptions else ValidWriteIdList(_HIGH, table=names[0])}


_HIGH = 2**40


def _with_commits(metastore: InMemoryMetastore) -> int:
    """The newest of three transactions that wrote."""
    metastore.create_table(table_info(partitioned=False, location="file:/nowhere"))
    for _ in range(3):
        txn_id = metastore.open_txn("u", "h", "")
        metastore.allocate_write_id(txn_id, "default", "t")
        metastore.commit_txn(txn_id)
    return txn_id


def test_transactions_of_high_write_ids() -> None:
    """The lower ones are not looked at: they may be as many as memory has bytes."""
    metastore = _HighMetastore(capabilities=HIVE_4_1)
    newest = _with_commits(metastore)
    found = transactions_of_write_ids(metastore, "default.t", newest)
    assert found == {_HIGH + 1: newest - 2, _HIGH + 2: newest - 1, _HIGH + 3: newest}


def test_more_hidden_write_ids_than_a_server_has() -> None:
    metastore = _EndlessMetastore(capabilities=HIVE_4_1)
    newest = _with_commits(metastore)
    with pytest.raises(InvalidAnswerError, match=r"default\.t: ids 1 to 1099511627776"):
        transactions_of_write_ids(metastore, "default.t", newest)
