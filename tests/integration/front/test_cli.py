"""``hive-mutate`` as a user runs it, against the judge's metastore; most in processes of its own."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23, Hive41
from metastore_client.client import MetastoreClient
from metastore_client.model import LockInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from tests.fixtures.fix_clock import wait_until
from tests.fixtures.fix_judge import new_database
from tests.integration.conftest import MakeTable, Run
from tests.integration.transactions.live_table import FilledTable, LiveTable, insert

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "mutation_api.cli.main"]
TIMEOUT_SECONDS = 300
ROWS_BEYOND_A_PIPE = 20_000
"""Rows whose text does not fit into the buffer of a pipe, so that the writer meets its closed end."""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    words = [*COMMAND, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def short(done: subprocess.CompletedProcess[str]) -> str:
    """The message of a run that failed: one line that names the command, and no stack."""
    assert done.returncode == EXIT_FAILED
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def edit(path: Path) -> None:
    """What a user does in a spreadsheet: change one row, mark one as gone, add one; the rest is left out."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = {(row["ds"], row["id"]): row for row in csv.DictReader(file)}
    changed = {**rows["a", "3"], "operation": "update", "msg": 'said "so", twice'}
    gone = {**rows["b", "4"], "operation": "delete"}
    new = {"operation": "insert", "id": "100", "msg": "new", "ds": "c"}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(changed))
        writer.writeheader()
        writer.writerows([new, gone, changed])


@pytest.mark.long
def test_a_saved_snapshot_is_edited_and_applied(
    hive: Hive23, live_metastore: MetastoreClient, live_database: str, tmp_path: Path, run_here: Run
) -> None:
    """A snapshot saved, edited and applied: Hive reads the edited rows; applied once more it is refused."""
    table = FilledTable.fill(hive, live_metastore, live_database, "default")
    file = tmp_path / "x.csv"
    where = ("--metastore", table.hive.uri)
    saved = run_here("read", table.full_name, "--row-ids", "--output", file, *where)
    assert (saved.returncode, saved.stdout) == (EXIT_OK, ""), saved.stderr
    edit(file)

    words = ("apply", table.full_name, file, "--create-partitions", "--verify-row-ids", *where)
    applied = run_here(*words, "--json")
    assert applied.returncode == EXIT_OK, applied.stderr
    summary = json.loads(applied.stdout)
    counts = [summary[kind] for kind in ("inserted", "updated", "deleted")]
    assert (counts, summary["partitions"]) == ([1, 1, 1], ["ds=a", "ds=b", "ds=c"])
    expected = [row for row in table.expected({3: 'said "so", twice'}) if row != ("ds=b", 4, "old")]
    assert table.values() == sorted([*expected, ("ds=c", 100, "new")], key=repr)

    again = run_here(*words)
    assert "RowIdNotFoundError" in short(again)
    assert table.values() == sorted([*expected, ("ds=c", 100, "new")], key=repr)
    assert not table.staged()


@pytest.mark.long
def test_the_way_of_a_table_on_hive_4(hive41: Hive41, tmp_path: Path, run_here: Run) -> None:
    """Created without buckets, filled by Hive's SQL, saved with its write ids, edited and applied under an
    optimistic lock; Hive reads and counts the edited rows.
    """
    file, where = tmp_path / "x.csv", ("--metastore", hive41.uri)
    with new_database(hive41) as database:
        table = f"{database}.notes"
        columns = ("--schema", "id bigint, msg string", "--partition-schema", "ds string")
        created = run_here("create-table", table, *columns, *where)
        assert created.stdout.startswith(f"created {table}, 2 columns, partitioned by ds, at "), (
            created.stderr
        )
        hive41.sql(f"INSERT INTO {table} PARTITION (ds='a') VALUES (3, 'three'), (5, 'five')")
        hive41.sql(f"INSERT INTO {table} PARTITION (ds='b') VALUES (4, 'four')")
        examined = run_here("doctor", table, *where)
        assert examined.returncode == EXIT_OK, examined.stderr
        can = f"{table}: can be changed (layout of Hive 4: v2-hive4)"
        assert can in examined.stdout.splitlines()

        saved = run_here("read", table, "--row-ids", "--output", file, *where)
        assert saved.returncode == EXIT_OK, saved.stderr
        edit(file)
        options = ("--create-partitions", "--verify-row-ids", "--write-lock", "optimistic")
        applied = run_here("apply", table, file, *options, "--json", *where)
        assert applied.returncode == EXIT_OK, applied.stderr
        summary = json.loads(applied.stdout)
        counts = [summary[kind] for kind in ("inserted", "updated", "deleted")]
        assert (counts, summary["partitions"]) == ([1, 1, 1], ["ds=a", "ds=b", "ds=c"])
        rows = {(row.partition, *row.values) for row in hive41.table_rows(table)}
        assert rows == {("ds=a", 3, 'said "so", twice'), ("ds=a", 5, "five"), ("ds=c", 100, "new")}
        assert hive41.sql(f"SELECT count(*) FROM {table}") == [[3]]


@pytest.mark.long
def test_a_value_that_does_not_fit_is_named(filled: FilledTable, tmp_path: Path) -> None:
    """A text that is no number: one line with file, column and value; nothing is written."""
    file = tmp_path / "bad.csv"
    file.write_text("operation,id,msg,ds\ninsert,12,ok,a\ninsert,twelve,bad,a\n")
    with_before = filled.state()
    message = short(run("apply", filled.full_name, file, "--metastore", filled.hive.uri))
    assert "column id (bigint) has 'twelve'" in message
    assert filled.state() == with_before


@pytest.mark.long
def test_show_and_abort(filled: FilledTable) -> None:
    """A forgotten transaction is seen with show, in JSON too, and ended with abort."""
    where = ("--metastore", filled.hive.uri)
    with open_client(filled.hive.uri) as metastore:
        txn_id = metastore.open_txn("somebody", "somewhere", "a test")
    shown = run("show", "txns", "--json", *where)
    assert shown.returncode == EXIT_OK, shown.stderr
    by_id = {row["id"]: row for row in map(json.loads, shown.stdout.splitlines())}
    assert (by_id[txn_id]["state"], by_id[txn_id]["user"]) == ("open", "somebody")
    aborted = run("abort", txn_id, *where)
    assert (aborted.returncode, aborted.stdout) == (EXIT_OK, f"transaction {txn_id} is aborted\n")
    assert "NoSuchTxnError" in short(run("abort", 10**9, *where))


def test_a_server_that_is_not_there() -> None:
    """No metastore at the address: status 1 and one line."""
    assert "127.0.0.1:1" in short(run("show", "locks", "--metastore", "thrift://127.0.0.1:1"))


def test_a_reader_that_goes_away_is_no_error(make_table: MakeTable) -> None:
    """``hive-mutate read … | head -1`` ends quietly, and its lock is released."""
    table: LiveTable = make_table(keys="", buckets=1)
    table.commit(*(insert(None, n, "x" * 20) for n in range(ROWS_BEYOND_A_PIPE)))
    words = [*COMMAND, "read", table.full_name, "--json", "--metastore", table.hive.uri]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["row"]["msg"] == "x" * 20
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(TIMEOUT_SECONDS) == EXIT_OK
    assert not locks(table)


@pytest.mark.long
def test_ctrl_c_aborts_what_apply_began(filled: FilledTable, tmp_path: Path) -> None:
    """Interrupted with its transaction open: status 130, one line, no lock left and nothing written."""
    file = tmp_path / "many.csv"
    file.write_text("operation,id,msg,ds\n" + "".join(f"insert,{n},m,a\n" for n in range(100_000)))
    before = filled.state()
    words = [*COMMAND, "apply", filled.full_name, str(file), "--metastore", filled.hive.uri]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_until(lambda: bool(locks(filled)) or process.poll() is not None, "the lock", TIMEOUT_SECONDS)
        os.killpg(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, printed) == (EXIT_INTERRUPTED, "")
    assert errors.strip().splitlines()[-1] == "hive-mutate apply: interrupted"
    assert "Traceback" not in errors
    wait_until(lambda: not locks(filled), "the release of the lock")
    assert filled.state() == before


def locks(table: LiveTable) -> list[LockInfo]:
    """Locks on the table."""
    return table.metastore.show_locks(table.info.database, table.info.name)
