"""Inserts that depend on what was read: two writers of one key never both succeed on Hive 4."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from judges.hive.judge import HiveJudge
from mutation_api import HiveTransaction, MutatorClientBuilder, merge_into
from mutation_api.errors import ConfigurationError, WriteConflictError
from mutation_api.hive.connect import connect
from mutation_api.transaction.transaction import Transaction

pytestmark = pytest.mark.slow

LAYOUTS = {
    "partitioned": "PARTITIONED BY (day string) CLUSTERED BY (id) INTO 2 BUCKETS",
    "plain": "",
}
COLUMNS = {"partitioned": "id int, item string", "plain": "id int, item string, day string"}


def _table(judge: HiveJudge, database: str, layout: str, properties: str = "") -> str:
    name = f"{database}.t"
    judge.sql(
        f"CREATE TABLE {name} ({COLUMNS[layout]}) {LAYOUTS[layout]} STORED AS ORC "
        f"TBLPROPERTIES ('transactional'='true'{properties})"
    )
    return name


def _rows(*rows: tuple[int, str, str]) -> pa.Table:
    ids, items, days = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int32()), "item": list(items), "day": list(days)})


def _upsert(tx: HiveTransaction, name: str, *rows: tuple[int, str, str]) -> None:
    merge = tx.table(name).merge(_rows(*rows), on=["id"])
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _replace(tx: HiveTransaction, name: str, *rows: tuple[int, str, str]) -> None:
    """Of the rows of a partition, as users write it."""
    table = tx.table(name)
    table.delete(table.scan(row_ids=True, where=pc.field("day") == rows[0][2]))
    table.append(_rows(*rows))


@pytest.mark.long
@pytest.mark.parametrize("days", [("a", "a"), ("a", "b")], ids=["one partition", "two partitions"])
@pytest.mark.parametrize("write", [_upsert, _replace])
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_the_second_writer_of_a_key_gets_a_conflict(
    hive_line: HiveJudge,
    line_database: str,
    layout: str,
    write: Callable[..., None],
    days: tuple[str, str],
) -> None:
    """Whether its partition is there or not; two that replace different partitions do not meet."""
    name = _table(hive_line, line_database, layout)
    meets = days[0] == days[1] or write is _upsert or layout == "plain"
    with connect(hive_line.uri, write_lock="optimistic") as hive:
        with hive.transaction(name, create_partitions=True) as late:
            write(late, name, (1, "late", days[1]))
            with hive.transaction(name, create_partitions=True) as early:
                write(early, name, (1, "early", days[0]))
            if meets:
                with pytest.raises(WriteConflictError, match=name):
                    late.commit()
        expected = [[1, "early"]] if meets else [[1, "early"], [1, "late"]]
        assert hive_line.sql(f"SELECT id, item FROM {name} ORDER BY item") == expected
        with hive.transaction(name) as again:
            _upsert(again, name, (1, "again", days[0]))
        hive_line.initiator()
        assert [row[1] for row in hive_line.sql(f"SELECT id, item FROM {name}")].count("again") == len(
            expected
        )


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_appends_do_not_meet(hive_line: HiveJudge, line_database: str) -> None:
    """Those that are said to be only inserts; a merge beside them sees a conflict with another merge only."""
    name = _table(hive_line, line_database, "partitioned")
    with connect(hive_line.uri, write_lock="optimistic") as hive:
        only = {"create_partitions": True, "insert_only": True}
        with hive.transaction(name, **only) as late:
            late.table(name).append(_rows((1, "late", "a")))
            with hive.transaction(name, **only) as early:
                early.table(name).append(_rows((2, "early", "a")))
            with hive.transaction(name) as merging:
                _upsert(merging, name, (3, "merged", "a"))
    assert hive_line.sql(f"SELECT count(*) FROM {name}") == [[3]]


@pytest.mark.parametrize("lock", ["exclusive", "optimistic"])
@pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)
def test_a_merge_is_refused_where_others_insert(
    hive_line: HiveJudge, line_database: str, lock: str, engine_session: SparkSession | None
) -> None:
    """In a transaction for inserts only, since the keys that others insert meanwhile are not seen."""
    name = _table(hive_line, line_database, "partitioned")
    if hive_line.line == "3.1":
        lock = "exclusive"
    refused = pytest.raises(ConfigurationError, match=r"insert_only=True, .*create it without insert_only")
    if engine_session is None:
        with connect(hive_line.uri, write_lock=lock) as hive:
            inserting = hive.transaction(name, create_partitions=True, insert_only=True)
            with refused, inserting as tx:
                _upsert(tx, name, (1, "x", "a"))
    else:
        builder = MutatorClientBuilder().metastore(hive_line.uri).write_lock(lock)
        builder.add_sink_table(name, create_partitions=True, insert_only=True)
        source = engine_session.createDataFrame([(1, "x", "a")], "id int, item string, day string")
        with builder.build() as client, refused, client.new_transaction() as transaction:
            assert isinstance(transaction, Transaction)
            merge = merge_into(transaction, name, source=source, on=["id"]).whenMatched().updateAll()
            merge.whenNotMatched().insertAll().execute()
    assert hive_line.sql(f"SELECT * FROM {name}") == []


@pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)
def test_merges_into_insert_only_tables_wait_for_each_other(hive_line: HiveJudge, line_database: str) -> None:
    """Such a table is locked as others are, unless the transaction is said to be for inserts only."""
    name = _table(hive_line, line_database, "plain", ", 'transactional_properties'='insert_only'")
    database, _, table = name.partition(".")
    with connect(hive_line.uri) as hive:
        with hive.transaction(name) as tx:
            merge = tx.table(name).merge(_rows((1, "x", "a")), on=["id"]).when_not_matched_insert_all()
            merge.execute()
            (lock,) = hive.metastore.show_locks(database, table)
            assert lock.type.name != "SHARED_READ"
        with hive.transaction(name, insert_only=True) as tx:
            tx.table(name).append(_rows((2, "y", "a")))
            (lock,) = hive.metastore.show_locks(database, table)
            assert lock.type.name == "SHARED_READ"
    assert hive_line.sql(f"SELECT id FROM {name} ORDER BY id") == [[1], [2]]
