"""The judge judges: Hive's readers and compactor see what its SQL wrote, and what is wrong raises."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from judges.errors import HiveError, JudgeError, ReadersDisagreeError
from judges.hive.hive_judges import Hive23
from judges.hive.model import HiveRow
from metastore_client.remote.thrift_client import open_client

pytestmark = pytest.mark.slow

COLUMNS = "id:bigint,msg:string"
LEFT = [(2, "changed"), (3, None), (4, "tab\there")]
"""The rows that the statements of ``mutated_table`` leave."""


@pytest.fixture(params=["legacy", "default"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def mutated_table(hive: Hive23, hive_database: str, layout: str) -> str:
    table = f"{hive_database}.t"
    properties = "" if layout == "legacy" else f", 'transactional_properties'='{layout}'"
    hive.sql(
        f"CREATE TABLE {table} (id bigint, msg string) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC "
        f"TBLPROPERTIES ('transactional'='true'{properties})"
    )
    hive.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, NULL), (4, 'tab\there')")
    hive.sql(f"UPDATE {table} SET msg = 'changed' WHERE id = 2")
    hive.sql(f"DELETE FROM {table} WHERE id = 1")
    return table


def _directory(hive: Hive23, table: str) -> Path:
    return hive.warehouse / (table.replace(".", ".db/"))


def _visible(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if not path.name.startswith(".")}


def _rows(hive: Hive23, table: str, layout: str) -> list[HiveRow]:
    return hive.read(_directory(hive, table), COLUMNS, transactional_properties=layout, buckets=2)


def test_sql_readers_and_compactor_agree(hive: Hive23, mutated_table: str, layout: str) -> None:
    """SQL and both readers give the same rows and ROW__IDs before and after minor and major compaction."""
    before = _rows(hive, mutated_table, layout)
    assert sorted(row.values for row in before) == LEFT
    selected = hive.sql(f"SELECT ROW__ID, id, msg FROM {mutated_table}")
    assert sorted(
        (tuple(json.loads(row_id).values()), (id_, msg)) for row_id, id_, msg in selected
    ) == sorted((row.row_id, row.values) for row in before)
    for kind, left in (("minor", "delta"), ("major", "base")):
        hive.compact(mutated_table, kind)
        assert sorted(map(repr, _rows(hive, mutated_table, layout))) == sorted(map(repr, before))
        names = _visible(_directory(hive, mutated_table))
        assert {name.replace("delete_", "").split("_")[0] for name in names} == {left}


def test_later_transactions_are_hidden(hive: Hive23, mutated_table: str, layout: str) -> None:
    """The readers leave out what lies above the high watermark of the valid-transaction list."""
    first = min(row.row_id[0] for row in _rows(hive, mutated_table, layout) if row.row_id)
    valid = f"{first}:9223372036854775807"
    rows = hive.read(
        _directory(hive, mutated_table), COLUMNS, valid, transactional_properties=layout, buckets=2
    )
    assert sorted(row.values[0] for row in rows) == [1, 2, 3, 4]


@pytest.mark.long
def test_second_exception_of_a_valid_txn_list_counts(hive: Hive23, hive_database: str) -> None:
    """Every exception of the list hides its transaction; with the wrong jar in front the third came back."""
    table = f"{hive_database}.t"
    hive.sql(
        f"CREATE TABLE {table} (id bigint, msg string) CLUSTERED BY (id) INTO 1 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true')"
    )
    for id_ in range(4):
        hive.sql(f"INSERT INTO {table} VALUES ({id_}, 'x')")
    rows = hive.read(_directory(hive, table), COLUMNS)
    txn_ids = [row.row_id[0] for row in rows if row.row_id]
    valid = f"{txn_ids[-1]}:{txn_ids[0]}:" + ":".join(map(str, txn_ids[:3]))
    assert [row.values[0] for row in hive.read(_directory(hive, table), COLUMNS, valid)] == [3]


def test_state_names_what_hive_reads(hive: Hive23, mutated_table: str, layout: str) -> None:
    """The directory state lists deltas before a major compaction and a base with obsolete deltas after it."""
    directory = _directory(hive, mutated_table)
    before = hive.acid_state(directory)
    assert before.base is None
    assert set(before.deltas) == _visible(directory)
    hive.compact(mutated_table, "major", clean=False)
    after = hive.acid_state(directory)
    assert after.base is not None
    assert (after.deltas, set(after.obsolete)) == ((), set(before.deltas))
    hive.cleaner()


def test_expired_transactions_are_aborted(hive: Hive23) -> None:
    """A round of the metastore's time-out aborts a transaction without heartbeats, not a fresh one."""
    with open_client(hive.uri) as metastore:
        txn_id = metastore.open_txn("judge", "localhost", "test")
        hive.time_out_transactions()
        assert metastore.heartbeat_txn_range(txn_id, txn_id).aborted == frozenset()
        hive.time_out_transactions(0)
        assert metastore.heartbeat_txn_range(txn_id, txn_id).aborted == {txn_id}


def test_hash_is_hives_own(hive: Hive23) -> None:
    """Known values of version 1: an int is its own hash, NULL is 0, several columns combine by 31."""
    assert hive.hash(["int"], [[7], [None], [-1]]) == [7, 0, -1]
    assert hive.hash(["int", "string"], [[7, "x"]]) == [7 * 31 + ord("x")]


def test_refusal_carries_hives_words(hive: Hive23) -> None:
    """A statement that Hive refuses raises its message; the judge goes on."""
    with pytest.raises(HiveError, match="Table not found"):
        hive.sql("SELECT * FROM no_such_table")
    assert hive.sql("SHOW DATABASES LIKE 'default'") == [["default"]]


def test_settings_hold_for_one_statement(hive: Hive23, hive_database: str) -> None:
    """A setting given with one statement does not change the next."""
    hive.sql(f"CREATE TABLE {hive_database}.t (id int)")
    query = f"SELECT id FROM {hive_database}.t ORDER BY id"
    with pytest.raises(HiveError, match="Order by-s without limit are disabled"):
        hive.sql(query, settings={"hive.mapred.mode": "strict"})
    assert hive.sql(query) == []


def test_disagreeing_readers_are_reported(hive: Hive23, hive_database: str) -> None:
    """A wrong delete count makes one reader resurrect rows; the judge raises, it does not choose."""
    table = f"{hive_database}.t"
    hive.sql(
        f"CREATE TABLE {table} (id bigint, msg string) CLUSTERED BY (id) INTO 1 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default', "
        "'orc.compress'='NONE')"
    )
    hive.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    hive.sql(f"DELETE FROM {table} WHERE id = 1")
    (bucket,) = _directory(hive, table).glob("delete_delta_*/bucket_00000")
    content = bucket.read_bytes()
    # With the tag and the length before it: the key of the last row may end in the same digits.
    counts, wrong = b"\x12\x050,0,1", b"\x12\x050,0,0"
    assert content.count(counts) == 1
    bucket.write_bytes(content.replace(counts, wrong))
    with pytest.raises(ReadersDisagreeError, match="1 rows by the row reader, 2 by the vectorised one"):
        _rows(hive, table, "default")


def test_unreadable_directory_is_an_error(hive: Hive23, tmp_path: Path) -> None:
    """A missing directory is an error, not a table without rows."""
    with pytest.raises(HiveError, match="not a directory"):
        hive.read(tmp_path / "missing", COLUMNS)


@pytest.mark.long
def test_judge_ends_with_its_input_and_says_so(tmp_path: Path) -> None:
    """A killed judge raises with its log's path; closing it twice is harmless."""
    with Hive23(tmp_path) as judge:
        os.kill(judge.pid, signal.SIGKILL)
        with pytest.raises(JudgeError, match=r"judge\.log"):
            judge.hash(["int"], [[1]])
        judge.close()
    shutil.rmtree(tmp_path)
