"""Overwrites of whole tables and partitions on real Hive: what its readers, its SQL and its compactors find.

On Hive 4 the new rows become a base, which costs no more than to append them. On Hive 3.1 the old rows are
deleted one by one: an aborted base there makes queries fail, or Hive's cleaner remove the rows before it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo, LockState
from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import TableNotMutableError, TransactionStateError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.storage.connect import storage_at
from mutation_api.transaction import lease
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.verify.verify import verify_table
from tests.fixtures.fix_clock import wait_until
from tests.integration.transactions.test_lines import (
    KEYS,
    Line,
    Row,
    Table,
    assert_nothing_is_left_open,
    on_both,
    rows_of,
)
from tests.integration.transactions.test_lines import line as line

pytestmark = pytest.mark.slow

on_4 = pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
LAYOUTS = [
    pytest.param(3, KEYS, id="bucketed partitions"),
    pytest.param(0, KEYS, id="partitions"),
    pytest.param(0, (), id="plain"),
]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int32())])


@pytest.fixture
def hive(line: Line) -> Iterator[Hive]:
    """A connection to the release's metastore."""
    with connect(line.metastore) as hive:
        yield hive


def data(table: Table, rows: Sequence[Row]) -> pa.Table:
    """Rows for a table; even ids belong to partition a, odd ones to b."""
    found = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
    if table.is_partitioned:
        found = found.append_column("ds", pa.array([table.partition_of(row)[3:] for row in rows]))
    return found


def expect(table: Table, rows: Sequence[Row], replaced: Sequence[str] | None = None) -> None:
    """Let the model replace the rows of some partitions, or all."""
    kept = {
        id_: (place, row)
        for id_, (place, row) in table.expected.items()
        if replaced is not None and place not in replaced
    }
    table.expected = kept | {row[0]: (table.partition_of(row), row) for row in rows}


def bases(table: Table) -> list[str]:
    """The names of all bases."""
    with table.client() as client, client.open_snapshot(table.name) as view:
        found = view.table(table.name)
        places = [p.name for p in view.partitions(table.name)] if table.is_partitioned else [""]
        entries = [
            entry
            for each in places
            for entry in storage_at(found.location).list(found.partition_location(each))
        ]
    return sorted(entry.name for entry in entries if entry.name.startswith("base_"))


@pytest.mark.long
@on_both
@pytest.mark.parametrize(("buckets", "keys"), LAYOUTS)
def test_hive_reads_changes_and_compacts_overwrites(
    line: Line, hive: Hive, buckets: int, keys: Sequence[ColumnInfo]
) -> None:
    """The whole table, some partitions, no rows; then UPDATE, DELETE and MERGE by Hive, and compactions."""
    table, is_4 = line.table(buckets, keys=keys), line.judge.line != "3.1"
    table.change(inserts=rows_of(range(12)))
    table.change(updates=[(3, "changed", 1)], deletes=[4])
    written = hive.table(table.name)

    report = written.overwrite(data(table, rows_of(range(20, 26))))
    assert (report.deleted, report.inserted, report.is_base) == (11, 6, is_4)
    expect(table, rows_of(range(20, 26)))
    table.check()
    table.check_queries()
    assert len(bases(table)) == (is_4 and (2 if keys else 1))

    if keys:
        new: list[Row] = [(n, "odd", 1) for n in (31, 33)]
        report = written.overwrite(data(table, new), partitions="dynamic")
        assert (report.deleted, report.partitions, report.is_base) == (3, ("ds=b",), is_4)
        expect(table, new, ["ds=b"])
        table.check()
        assert written.overwrite(data(table, []), partitions=[{"ds": "a"}]).is_base is is_4
        expect(table, [], ["ds=a"])
        table.check()
        table.check_queries()
        table.change(inserts=rows_of(range(40, 46)))
    table.sql("UPDATE TABLE SET name = 'by Hive' WHERE id % 3 = 0")
    table.sql("DELETE FROM TABLE WHERE id % 5 = 1")
    for id_, (place, row) in [*table.expected.items()]:
        if id_ % 3 == 0:
            table.expected[id_] = (place, (id_, "by Hive", row[2]))
        if id_ % 5 == 1:
            del table.expected[id_]
    table.check()
    for kind in ("minor", "major"):
        table.compact(kind)
        table.check()
        table.change(inserts=rows_of(range(50, 53) if kind == "minor" else range(53, 56)))
    written.overwrite(data(table, rows_of(range(60, 64))))
    expect(table, rows_of(range(60, 64)))
    table.check()
    value = ", 'a'" if keys else ""
    table.sql(
        "MERGE INTO TABLE t USING (SELECT stack(2, 60, 100) AS (id)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = 'merged' "
        f"WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'm', 7{value})"
    )
    table.expected[60] = (table.expected[60][0], (60, "merged", 600))
    table.expected[100] = (table.partition_of((100, "", 0)), (100, "m", 7))
    table.check()
    written.overwrite(data(table, []))
    expect(table, [])
    assert table.sql("SELECT * FROM TABLE") == [] == table.seen_by_us()
    assert table.sql("SELECT count(*) FROM TABLE") == [[0]]
    assert verify_table(line.metastore, table.name).damages == ()
    assert_nothing_is_left_open(line)


@pytest.mark.long
@on_both
def test_overwrites_of_two_tables_and_a_merge_of_a_third(line: Line, hive: Hive) -> None:
    """In one transaction: all are seen, or none."""
    one, other, third = line.table(2), line.table(keys=KEYS), line.table()
    for table in (one, other, third):
        table.change(inserts=rows_of(range(6)))
    new: list[Row] = [(n, "new", n) for n in range(4, 9)]
    for fails in (True, False):
        with (
            contextlib.suppress(ZeroDivisionError),
            hive.transaction(*(t.name for t in (one, other, third))) as tx,
        ):
            for table in (one, other):
                assert tx.table(table.name).overwrite(data(table, new)).is_base is (line.judge.line != "3.1")
            tx.table(third.name).upsert(data(third, new), on=["id"])
            if fails:
                raise ZeroDivisionError
        if not fails:
            expect(one, new)
            expect(other, new)
            third.expected |= {row[0]: ("", row) for row in new}
        for table in (one, other, third):
            table.check()
            table.check_queries()


@pytest.mark.long
@on_both
@pytest.mark.parametrize("keys", [pytest.param(KEYS, id="partitions"), pytest.param((), id="plain")])
def test_other_steps_before_or_after_delete_the_old_rows(
    line: Line, hive: Hive, keys: Sequence[ColumnInfo]
) -> None:
    """A base would hide the deltas of its write id."""
    table = line.table(2, keys=keys)
    table.change(inserts=rows_of(range(8)))
    with hive.transaction(table.name) as tx:
        written = tx.table(table.name)
        written.overwrite(data(table, rows_of(range(10, 14))))
        written.append(data(table, rows_of(range(20, 22))))
        assert written.scan().to_arrow().num_rows == 6
    expect(table, [*rows_of(range(10, 14)), *rows_of(range(20, 22))])
    table.check()
    with hive.transaction(table.name) as tx:
        written = tx.table(table.name)
        written.append(data(table, rows_of(range(30, 33))))
        assert not written.overwrite(data(table, rows_of(range(40, 44)))).is_base
        assert written.overwrite(data(table, rows_of(range(50, 54)))).deleted == 4
    expect(table, rows_of(range(50, 54)))
    table.check()
    with hive.transaction(table.name) as tx:
        written = tx.table(table.name)
        assert written.overwrite(data(table, [])).deleted == 4
        assert written.scan().to_arrow().num_rows == 0
        written.append(data(table, rows_of(range(60, 62))))
        written.delete(where="id = 60")
    expect(table, rows_of(range(61, 62)))
    table.check()
    table.compact("minor")
    table.compact("major")
    table.check()
    assert [base for base in bases(table) if base.startswith("base_0000002")] == []


@pytest.mark.long
@on_4
@pytest.mark.newest
@pytest.mark.parametrize("dies", [False, True])
def test_nobody_reads_a_base_before_its_commit(
    line: Line, hive: Hive, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Hive 4 would read the base of the smallest open write id. A client that dies then leaves nothing."""
    table = line.table(keys=KEYS)
    table.change(inserts=rows_of(range(6)))
    new, seen = rows_of(range(10, 13)), []
    finish = Transaction._finish

    def reading(transaction: Transaction, *given: Any) -> None:
        table.check()
        seen.extend(bases(table))
        if dies:
            raise KeyboardInterrupt
        finish(transaction, *given)

    monkeypatch.setattr(Transaction, "_finish", reading)
    if not dies:
        hive.table(table.name).overwrite(data(table, new))
        expect(table, new)
    else:
        with pytest.raises(KeyboardInterrupt):
            hive.table(table.name).overwrite(data(table, new))
        line.judge.time_out_transactions(0)
    assert len(seen) == 2 and all("_v" in name for name in seen)
    monkeypatch.undo()
    table.check()
    table.change(inserts=rows_of(range(20, 24)))
    table.check()
    for place in "ab":
        line.judge.compact(table.name, "minor", partition=f"ds='{place}'")
        table.check()
    assert not dies or bases(table) == []


@on_4
def test_a_base_under_a_guard_is_hidden_by_its_write_id(
    line: Line, hive: Hive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that waited has a guard with a smaller write id, which is open until the commit."""
    table = line.table()
    table.change(inserts=rows_of(range(6)))
    seen: list[str] = []
    finish = Transaction._finish

    def reading(transaction: Transaction, *given: Any) -> None:
        if transaction.summary.roll_overs:
            table.check()
            seen.extend(bases(table))
        finish(transaction, *given)

    def wait_and_overwrite() -> None:
        with open_client(line.judge.uri) as metastore, connect(metastore) as other:
            reports.append(other.table(table.name).overwrite(data(table, rows_of(range(30, 33)))))

    reports: list[Any] = []
    monkeypatch.setattr(Transaction, "_finish", reading)
    monkeypatch.setattr(lease, "queue_up", lambda *_, **__: Mock())  # as on another machine
    with hive.transaction(table.name) as tx:
        tx.table(table.name).append(data(table, rows_of(range(10, 12))))
        waiting = threading.Thread(target=wait_and_overwrite)
        waiting.start()
        place = table.name.split(".")
        wait_until(
            lambda: any(each.state is LockState.WAITING for each in line.metastore.show_locks(*place)),
            "the other's request",
        )
        table.expected |= {row[0]: ("", row) for row in rows_of(range(10, 12))}
    waiting.join(120)
    assert reports and reports[0].is_base and reports[0].deleted == 8
    assert len(seen) == 1 and "_v" not in seen[0]
    expect(table, rows_of(range(30, 33)))
    table.check()
    table.check_queries()


@pytest.mark.long
@on_4
@pytest.mark.newest
def test_rows_of_concurrent_inserters_stay(line: Line, hive: Hive) -> None:
    """Under a smaller write id, which a base would hide, or a greater one; committed before or after."""
    table = line.table(keys=KEYS)
    table.change(inserts=rows_of(range(6)))
    for step, (smaller, commits_first) in enumerate(
        [(True, True), (True, False), (False, True), (False, False)]
    ):
        new, inserted = (
            rows_of(range(100 * step + 10, 100 * step + 13)),
            rows_of(range(100 * step + 50, 100 * step + 53)),
        )
        inserter = hive.transaction(table.name, insert_only=True)
        overwriter = hive.transaction(table.name)
        for each in (inserter, overwriter) if smaller else (overwriter, inserter):
            each.begin()
        inserter.table(table.name).append(data(table, inserted))
        if commits_first:
            inserter.commit()
        report = overwriter.table(table.name).overwrite(data(table, new))
        assert report.is_base is not smaller
        overwriter.commit()
        if not commits_first:
            inserter.commit()
        expect(table, [*new, *inserted])
        table.check()
        table.check_queries()


@pytest.mark.long
@on_4
@pytest.mark.newest
def test_insert_only_tables(line: Line, hive: Hive) -> None:
    """Their rows cannot be deleted one by one, so an overwrite is the only step of a transaction."""
    table = line.table(keys=KEYS)
    name = f"{line.database}.only{table.name.rpartition('.')[2]}"
    hive.create_table(
        name, "id bigint, name string, n int, ds string", partitioned_by=["ds"], insert_only=True
    )
    hive.table(name).append(data(table, rows_of(range(6))), create_partitions=True)

    def ids() -> list[int]:
        found = [row[0] for row in line.judge.sql(f"SELECT id FROM {name} ORDER BY id")]
        with hive.snapshot(name) as view:
            assert sorted(view.table(name).scan(["id"]).to_arrow().column("id").to_pylist()) == found
        assert line.judge.sql(f"SELECT count(*) FROM {name}") == [[len(found)]]
        return found

    report = hive.table(name).overwrite(data(table, rows_of(range(11, 14, 2))), partitions="dynamic")
    assert (report.deleted, report.is_base) == (3, True)
    assert ids() == [0, 2, 4, 11, 13]
    hive.table(name).overwrite(data(table, []), partitions=[{"ds": "a"}])
    assert ids() == [11, 13]
    line.judge.sql(f"INSERT INTO {name} PARTITION (ds) VALUES (20, 'x', 1, 'a'), (21, 'x', 1, 'b')")
    for place in "ab":
        line.judge.compact(name, "major", partition=f"ds='{place}'")
    assert ids() == [11, 13, 20, 21]
    with pytest.raises(TransactionStateError, match="must be its only step"), hive.transaction(name) as tx:
        tx.table(name).overwrite(data(table, rows_of(range(30, 32))))
        tx.table(name).append(data(table, rows_of(range(40, 42))))
    with pytest.raises(TableNotMutableError, match="before all other steps"), hive.transaction(name) as tx:
        tx.table(name).append(data(table, rows_of(range(40, 42))))
        tx.table(name).overwrite(data(table, rows_of(range(30, 32))))
    assert ids() == [11, 13, 20, 21]


ROUND = 100
"""Overwrites after which Hive compacts the table. On 3.1 each of them leaves two more directories."""


@on_both
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("times", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_hive_reads_old_or_new_rows(line: Line, times: int) -> None:
    """While another thread overwrites two partitions again and again. Hive compacts them after each round."""
    table = line.table(keys=KEYS)
    table.change(inserts=[(n, "0", 0) for n in range(10)])
    failed: list[BaseException] = []

    def overwriting(steps: range) -> None:
        try:
            with open_client(line.judge.uri) as metastore, connect(metastore) as hive:
                for step in steps:
                    rows: list[Row] = [(n, str(step), step) for n in range(10 + step % 7)]
                    hive.table(table.name).overwrite(data(table, rows))
        except BaseException as error:
            failed.append(error)

    latest, reads = 0, 0
    for first in range(1, times + 1, ROUND):
        steps = range(first, min(first + ROUND, times + 1))
        thread = threading.Thread(target=overwriting, args=[steps])
        thread.start()
        while thread.is_alive():
            vectorised = "true" if reads % 2 else "false"
            settings = {"hive.fetch.task.conversion": "none", "hive.vectorized.execution.enabled": vectorised}
            found = table.sql("SELECT id, n FROM TABLE", **settings)
            (step,) = {n for _, n in found}
            assert sorted(id_ for id_, _ in found) == [*range(10 + step % 7)]
            assert step >= latest
            latest, reads = step, reads + 1
        thread.join()
        assert failed == []
        if steps[-1] < times:
            table.compact("major")
    assert reads > 1
    assert {row[0] for row in table.sql("SELECT n FROM TABLE")} == {times}
