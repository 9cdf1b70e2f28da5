"""Every line's judge judges: its SQL, its two readers, its compactor, its hash and its metastore agree."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from judges.errors import HiveError, ReadersDisagreeError
from judges.hive.hive_judges import Hive4, Hive31, Hive41
from judges.hive.judge import HiveJudge
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockResponse,
    LockState,
    LockType,
)
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from tests.fixtures.fix_clock import wait_until
from tests.fixtures.fix_judge import LINES, new_database
from tests.fixtures.fix_newest import HIVE_4

pytestmark = pytest.mark.slow

LEFT = [(2, "changed"), (3, None), (4, "tab\there")]
"""The rows that the statements of ``_mutated_table`` leave."""


def _mutated_table(judge: HiveJudge, database: str) -> str:
    table = f"{database}.t"
    judge.sql(
        f"CREATE TABLE {table} (id bigint, msg string) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default', "
        "'orc.compress'='NONE')"
    )
    judge.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, NULL), (4, 'tab\there')")
    judge.sql(f"UPDATE {table} SET msg = 'changed' WHERE id = 2")
    judge.sql(f"DELETE FROM {table} WHERE id = 1")
    return table


def _directory(judge: HiveJudge, table: str) -> Path:
    return judge.warehouse / (table.replace(".", ".db/"))


def _kinds(directory: Path) -> set[str]:
    names = {path.name for path in directory.iterdir() if not path.name.startswith(".")}
    return {name.replace("delete_", "").split("_")[0] for name in names}


@pytest.mark.long  # of 2.3 by default, in test_judge.py
@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_sql_readers_and_compactor_agree(hive_line: HiveJudge, line_database: str) -> None:
    """Both readers give SQL's rows before and after both compactions; then a broken delete divides them."""
    table = _mutated_table(hive_line, line_database)
    before = hive_line.table_rows(table)
    assert sorted(row.values for row in before) == LEFT
    assert all(row.partition == "" and row.row_id is not None and len(row.row_id) == 3 for row in before)
    for kind, left in (("minor", "delta"), ("major", "base")):
        hive_line.compact(table, kind)
        assert sorted(map(repr, hive_line.table_rows(table))) == sorted(map(repr, before))
        assert _kinds(_directory(hive_line, table)) == {left}
    finished = [each for each in hive_line.compactions() if each.database == line_database]
    assert [(each.kind, each.state) for each in finished].count(("minor", "succeeded")) == 1
    hive_line.sql(f"DELETE FROM {table} WHERE id = 3")
    (bucket,) = _directory(hive_line, table).glob("delete_delta_*/bucket_*")
    content = bucket.read_bytes()
    assert content.count(b"0,0,1") == 1
    bucket.write_bytes(content.replace(b"0,0,1", b"0,0,0"))
    if hive_line.line in HIVE_4:  # it does not look at the count of deletes
        assert len(hive_line.table_rows(table)) == 2
    else:
        with pytest.raises(ReadersDisagreeError, match="2 rows by the row reader, 3 by the vectorised one"):
            hive_line.table_rows(table)


@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_values_come_as_such(hive_line: HiveJudge, line_database: str) -> None:
    """All kinds of values, nested ones too, pass both readers; partitions are named as their directories."""
    table = f"{line_database}.t"
    columns = (
        "id bigint, m map<string,int>, a array<string>, e array<string>, s struct<x:int,y:string>, "
        "c char(4), d decimal(10,2), dt date, ts timestamp, b binary, f double, t boolean"
    )
    hive_line.sql(
        f"CREATE TABLE {table} ({columns}) PARTITIONED BY (ds string, hr int) "
        "CLUSTERED BY (id) INTO 1 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    hive_line.sql(
        f"INSERT INTO {table} PARTITION (ds, hr) SELECT 1, map('k', 2), array(cast(NULL AS string)), "
        "array(''), named_struct('x', 1, 'y', 'tab\there'), 'ab', 1.25, date '2020-02-29', "
        "timestamp '1950-01-01 00:00:00.5', unhex('00ff'), cast('NaN' AS double), true, 'a b:c', 7"
    )
    (row,) = hive_line.table_rows(table)
    assert row.partition in {"ds=a b%3Ac/hr=7"}
    assert (hive_line.warehouse / f"{line_database}.db" / "t" / row.partition).is_dir()
    nested = ('{"k":2}', "[null]", '[""]', '{"x":1,"y":"tab\\there"}')
    plain = ("1.25", "2020-02-29", "1950-01-01 00:00:00.5", "00ff", "NaN", True)
    assert row.values[:5] == (1, *nested)
    assert str(row.values[5]).rstrip() == "ab"
    assert row.values[6:] == plain
    assert hive_line.table_rows(table, row_ids=False)[0].row_id is None


@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_metastore_is_one(hive_line: HiveJudge, line_database: str) -> None:
    """SQL, the metastore's own tables and its round of time-outs see the same transactions and tables."""
    hive_line.sql("CREATE TABLE t (id int)", database=line_database)
    names = hive_line.metastore_rows(
        'select T."TBL_NAME" from TBLS T join DBS D on T."DB_ID" = D."DB_ID" '
        f"""where D."NAME" = '{line_database}'"""
    )
    assert names == [["t"]]
    hive_line.time_out_transactions(0)
    assert hive_line.metastore_rows("select TXN_ID from TXNS where TXN_STATE = 'o'") == []
    with pytest.raises(HiveError, match=r"(?i)table not found"):
        hive_line.table_rows(f"{line_database}.missing")
    assert hive_line.sql("SHOW TABLES", database=line_database) == [["t"]]
    assert hive_line.uri.startswith("thrift://127.0.0.1:")


@pytest.mark.newest
@pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)
def test_hashes_and_states_are_hives_own(hive_line: Hive31 | Hive41, tmp_path: Path) -> None:
    """Known hashes of both versions, and the choice among deltas as a list of write ids makes it."""
    assert hive_line.hash(["int", "string"], [[7, "x"], [None, None]], version=1) == [7 * 31 + ord("x"), 0]
    assert hive_line.hash(["int"], [[7], [None]]) == [-970880120, 0]
    for name in ("base_0000002", "delta_0000001_0000001_0000", "delta_0000003_0000003_0000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "bucket_00000").write_bytes(b"x")
    (tmp_path / "delete_delta_0000004_0000004_0000").mkdir()
    (tmp_path / "delete_delta_0000004_0000004_0000" / "bucket_00000").write_bytes(b"x")
    state = hive_line.acid_state(tmp_path, "d.t:4:4:4:")
    assert (state.base, state.deltas) == ("base_0000002", ("delta_0000003_0000003_0000",))
    assert state.obsolete == ("delta_0000001_0000001_0000",)
    everything = hive_line.acid_state(tmp_path, "d.t:4:9223372036854775807::")
    assert set(everything.deltas) == {"delta_0000003_0000003_0000", "delete_delta_0000004_0000004_0000"}


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)
def test_vectorised_pass_is_vectorised(hive_line: HiveJudge, line_database: str) -> None:
    """With the settings of the second pass a query for ROW__ID and columns runs on vectors, else on rows."""
    table = _mutated_table(hive_line, line_database)
    query = f"EXPLAIN VECTORIZATION SUMMARY SELECT ROW__ID, id, msg FROM {table}"
    settings = {"hive.fetch.task.conversion": "none", "hive.vectorized.execution.enabled": "true"}
    plan = "\n".join(str(line) for (line,) in hive_line.sql(query, settings=settings))
    assert "Execution mode: vectorized" in plan
    settings["hive.vectorized.execution.enabled"] = "false"
    plan = "\n".join(str(line) for (line,) in hive_line.sql(query, settings=settings))
    assert "Execution mode: vectorized" not in plan


@pytest.mark.long
@pytest.mark.parametrize("hive_notifying", ["4.1"], indirect=True)
def test_write_notifications_are_logged(hive_notifying: Hive4) -> None:
    """With DML events on, Hive's own DELETE leaves its file and sub-directory in the server's log."""
    table = _mutated_table(hive_notifying, "default")
    logged = hive_notifying.metastore_rows(
        "select WNL_FILES from TXN_WRITE_NOTIFICATION_LOG where WNL_TABLE = 't' order by WNL_WRITEID"
    )
    directory = "delete_delta_0000003_0000003_0000"
    assert len(logged) == 3
    files = str(logged[2][0])
    assert files.endswith(f"#{directory}")
    assert f"/{directory}/bucket_0000" in files
    events = hive_notifying.metastore_rows("select EVENT_TYPE from NOTIFICATION_LOG")
    assert {("OPEN_TXN",), ("ALLOC_WRITE_ID_EVENT",), ("COMMIT_TXN",)} <= {
        tuple(map(str, each)) for each in events
    }
    hive_notifying.sql(f"DROP TABLE {table}")


def test_commit_while_others_look_at_their_waiting_locks(hive41: Hive41) -> None:
    """Left alone, 4.1 on Derby locks itself up here at once: commit and check_lock wait for each other."""
    with new_database(hive41) as database, open_client(hive41.uri) as ours, open_client(hive41.uri) as theirs:
        hive41.sql(
            f"CREATE TABLE {database}.t (id bigint) STORED AS ORC TBLPROPERTIES ('transactional'='true')"
        )
        for _ in range(5):
            _commit_while_other_waits(ours, theirs, database)


def _commit_while_other_waits(
    ours: ThriftMetastoreClient, theirs: ThriftMetastoreClient, database: str
) -> None:
    looks: list[LockState] = []
    (txn_id, held), (other_id, waiting) = _begin(ours, database), _begin(theirs, database)
    assert (held.state, waiting.state) == (LockState.ACQUIRED, LockState.WAITING)

    def look() -> None:
        while not looks or looks[-1] is LockState.WAITING:
            looks.append(theirs.check_lock(waiting.lock_id, other_id).state)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    wait_until(lambda: bool(looks), "the first look")
    ours.commit_txn(txn_id)
    looking.join(120)
    assert looks[0] is LockState.WAITING
    assert not looking.is_alive()
    theirs.abort_txn(other_id)


def _begin(metastore: ThriftMetastoreClient, database: str) -> tuple[int, LockResponse]:
    component = LockComponent(
        LockType.EXCL_WRITE, LockLevel.TABLE, database, "t", None, DataOperationType.UPDATE
    )
    txn_id = metastore.open_txn("tests", "here", "locks")
    metastore.allocate_write_id(txn_id, database, "t")
    return txn_id, metastore.lock(LockRequest((component,), txn_id, "tests", "here", "locks"))
