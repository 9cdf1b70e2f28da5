"""``hive-mutate merge``: its usage; what the local engine does, and which engine gets which merge."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from metastore_client.errors import TxnAbortedError
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import MutatorClientBuilder, TableScan, open_table
from mutation_api.cli import engine_arguments, merge
from mutation_api.cli.engine_arguments import LOCAL, SPARK
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mutation_api.transaction import builder
from mutation_api.transaction.clock import TELL_AFTER_SECONDS, WAIT_LOG, SystemClock
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_clock import FakeClock

NEEDED = ("merge", "--table", "d.t", "--key", "id", "--source", "x.csv")
SENT_TO_SPARK = "Spark has it"

Rows = list[tuple[Any, ...]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("merge", "--table", "d.t"), "the following arguments are required: --key, --source"),
        ((*NEEDED, "--no-update", "--update-when", "true"), "use either --no-update or --update-when"),
        ((*NEEDED, "--no-insert", "--insert-when", "true"), "use either --no-insert or --insert-when"),
        ((*NEEDED, "--delete-missing", "--delete-missing-when", "true"), "use either --delete-missing or"),
        ((*NEEDED, "--no-update", "--no-insert"), "--no-update and --no-insert leave nothing to do"),
        ((*NEEDED, "--missing-columns", "skip"), "invalid choice: 'skip'"),
        ((*NEEDED, "--engine", "hive"), "invalid choice: 'hive'"),
        ((*NEEDED, "--attempts", "many"), "invalid int value: 'many'"),
        ((*NEEDED, "--local-memory", "0"), "'0': expected an integer number of MiB, at least 1"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    """Status 2, and what is wrong with it."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == EXIT_USAGE
    assert message in capsys.readouterr().err


def test_help_tells_what_happens_to_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults, what a deletion means for inserts, and which SQL needs Spark."""
    with pytest.raises(SystemExit) as caught:
        main(["merge", "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "the other rows are inserted" in printed
    assert "A row for which --delete-when is true is never inserted." in printed
    assert "All other SQL needs Spark" in printed


def test_files_are_looked_for_before_anything_is_begun(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A missing file and one of an unknown format: status 1, though no metastore answers."""
    nowhere = ("--metastore", "thrift://127.0.0.1:1")
    assert main([*NEEDED[:-1], str(tmp_path / "no.csv"), *nowhere]) == EXIT_FAILED
    assert f"file not found: {tmp_path / 'no.csv'}" in capsys.readouterr().err
    (tmp_path / "x.txt").touch()
    assert main([*NEEDED[:-1], str(tmp_path / "x.txt"), *nowhere]) == EXIT_FAILED
    assert "name the format with --format, one of csv, json, orc, parquet" in capsys.readouterr().err


@pytest.fixture
def metastore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryMetastore:
    """What the command connects to; it has the table ``default.t (id int, msg string, ds string)``."""
    result = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "int"), ColumnInfo("msg", "string")]
    create_acid_table(
        result, "default.t", columns, [ColumnInfo("ds", "string")], clustered_by=["id"], num_buckets=2
    )
    monkeypatch.setattr(merge, "metastore_from", lambda _: contextlib.nullcontext(result))
    return result


@pytest.fixture(autouse=True)
def spark_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives work to Spark gets an error that says so."""
    real = engine_arguments.engine_module

    def module(engine: str) -> ModuleType:
        assert engine != SPARK, SENT_TO_SPARK
        return real(engine)

    monkeypatch.setattr(engine_arguments, "engine_module", module)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyspark looks as if it were not installed."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else real(name))


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(metastore: InMemoryMetastore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Merge a CSV of this text; returns status, output and errors."""

    def merged(text: str, *words: object) -> tuple[int, str, str]:
        file = tmp_path / "x.csv"
        file.write_text(text)
        needed = ("merge", "--table", "default.t", "--key", "id", "--source", file)
        status = main([str(word) for word in (*needed, *words)])
        return status, *capsys.readouterr()

    assert merged("id,msg,ds\n1,one,a\n2,two,a\n3,three,b\n", "--create-partitions")[0] == EXIT_OK
    return merged


def rows_of(metastore: InMemoryMetastore) -> Rows:
    """The rows of the table."""
    with MutatorClientBuilder().metastore(metastore).build() as client:
        view = client.open_snapshot("default.t")
        found = TableScan(open_table(view, "default.t"), columns=["id", "msg", "ds"]).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.mark.thorough
def test_marked_rows_are_deleted(metastore: InMemoryMetastore, run: Run) -> None:
    """Updated, inserted and deleted rows; a dry run reports the same, and writes nothing."""
    text = "op,id,msg,ds\nU,1,ONE,a\nD,2,,\nI,4,four,c\nD,9,,\nU,3,three,b\n"
    words = ("--delete-when", "op = 'D'", "--create-partitions")
    before = rows_of(metastore)
    status, out, err = run(text, *words, "--dry-run", "--json")
    assert status == EXIT_OK, err
    report = json.loads(out)
    counts = {"inserted": 1, "updated": 1, "deleted": 1, "moved": 0, "unchanged": 1}
    assert {name: report[name] for name in counts} == counts
    assert (report["engine"], report["dry_run"], report["new_partitions"]) == (LOCAL, True, ["ds=c"])
    assert len(report["samples"]) == 3
    assert rows_of(metastore) == before
    for extra in ((), ("--dry-run",)):
        status, _, err = run(text, *words[:2], *extra)
        assert (status, rows_of(metastore)) == (EXIT_FAILED, before)
        assert "ds=c do not exist; create them" in err
        assert "with --create-partitions on the command line" in err
    status, out, err = run(text, *words)
    assert status == EXIT_OK, err
    assert out.splitlines()[0] == (
        "default.t: merged 1 inserted, 1 updated, 1 deleted, 0 moved, 1 unchanged (local)"
    )
    assert rows_of(metastore) == [(1, "ONE", "a"), (3, "three", "b"), (4, "four", "c")]


def test_it_says_whom_it_waits_for(
    metastore: InMemoryMetastore, run: Run, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    """A long wait for the lock is told once, with its holder; the error names the option."""
    before = rows_of(metastore)
    with MutatorClientBuilder().metastore(metastore).user("ann").add_sink_table("default.t").build() as other:
        holder = other.new_transaction()
        holder.begin()
        with monkeypatch.context() as patch:
            patch.setattr(builder, "SystemClock", lambda: clock)
            status, out, err = run("id,msg,ds\n1,x,a\n", "--lock-timeout", "60")
    assert (status, out, rows_of(metastore)) == (EXIT_FAILED, "", before)
    told, refused = err.splitlines()
    assert told.startswith("hive-mutate merge: transaction ")
    assert f"of transaction {holder.txn_id}, ann@" in told
    assert f"(hive-mutation-api pid {os.getpid()}); it waits for at most" in told
    left = int(told.rpartition(" s more")[0].rpartition(" ")[2])
    assert 50 < left <= 60 - TELL_AFTER_SECONDS
    assert "LockNotAcquiredError" in refused
    assert "raise --lock-timeout, or abort" in refused
    status, _, err = run("id,msg,ds\n1,x,a\n", "--lock-timeout", "0")
    assert (status, "--lock-timeout must be above 0" in err) == (EXIT_FAILED, True)
    assert logging.getLogger(WAIT_LOG).handlers == []


@pytest.mark.thorough
def test_a_merge_that_loses_a_race_is_attempted_again(
    metastore: InMemoryMetastore,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each failure is one warning, and the last error says how many attempts were made."""
    before = rows_of(metastore)
    pauses: list[float] = []
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: pauses.append(seconds))
    conflict = "Aborting [txnid:2,3] due to a write conflict on default/t/ds=a committed by [txnid:3,3] u/u"

    def lose(times: int) -> None:
        for _ in range(times):
            metastore.fail_next("commit_txn", TxnAbortedError(conflict))

    lose(2)
    status, out, err = run("id,msg,ds\n1,x,a\n", "--attempts", "2")
    assert (status, out, rows_of(metastore)) == (EXIT_FAILED, "", before)
    refused, note = err.splitlines()
    (told,) = caplog.messages
    assert told.startswith("hive-mutate merge: attempt 1 of 2 failed, the next one begins in 0.")
    assert "Transaction 3 changed default/t/ds=a and committed first" in told
    assert refused.startswith("hive-mutate merge: WriteConflictError: ")
    assert note == "hive-mutate merge: 2 of 2 attempts were made"
    lose(2)
    status, out, err = run("id,msg,ds\n1,x,a\n", "--attempts", "3")
    assert (status, err, len(caplog.messages), len(pauses)) == (EXIT_OK, "", 3, 3)
    assert out.startswith("default.t: merged 0 inserted, 1 updated")
    assert rows_of(metastore)[0] == (1, "x", "a")
    lose(1)
    status, _, err = run("id,msg,ds\n1,y,a\n")
    assert (status, len(err.splitlines()), len(pauses)) == (EXIT_FAILED, 1, 3)
    status, _, err = run("id,msg,ds\n1,y,a\n", "--attempts", "0")
    assert (status, "got 0, expected an integer of at least 1" in err) == (EXIT_FAILED, True)


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (
            "id,msg,ds\n1,x,a\n7,x,a\n",
            ("--update-when", "target.msg = 'two' AND msg <> 'z'", "--no-insert"),
            [(1, "one", "a"), (2, "two", "a"), (3, "three", "b")],
        ),
        (
            "id,msg,ds\n2,x,a\n7,x,a\n8,y,a\n",
            ("--update-when", "target.msg = 'two'", "--insert-when", "msg = 'y'"),
            [(1, "one", "a"), (2, "x", "a"), (3, "three", "b"), (8, "y", "a")],
        ),
        (
            "id,msg,ds\n1,x,a\n",
            ("--delete-missing-when", "ds = 'a' AND id > 1"),
            [(1, "x", "a"), (3, "three", "b")],
        ),
        ("id,msg,ds\n1,x,a\n", ("--delete-missing", "--no-update"), [(1, "one", "a")]),
        (
            "id,msg,ds,seen\n1,x,a,1\n1,y,a,3\n1,z,a,2\n",
            ("--first-by", "source.seen desc", "--first-by", "msg"),
            [(1, "y", "a"), (2, "two", "a"), (3, "three", "b")],
        ),
        (
            "id,msg,ds,gone\n1,x,a,y\n7,x,a,\n8,y,a,y\n",
            ("--delete-when", "gone = 'y' AND target.msg IS NOT NULL", "--insert-when", "gone IS NULL"),
            [(2, "two", "a"), (3, "three", "b"), (7, "x", "a")],
        ),
        (
            "id,msg,ds,op\n1,x,a,U\n2,y,a,D\n7,z,b,I\n8,w,b,I\n",
            (
                *("--delete-when", "op IN ('D', 'X') OR `op` IS NULL"),
                *("--update-when", "NOT source.msg <=> target.msg AND target.msg LIKE 'o__' AND ID * 2 = 2"),
                *("--insert-when", "CASE WHEN id % 2 = 0 THEN msg END = 'w'"),
            ),
            [(1, "x", "a"), (3, "three", "b"), (8, "w", "b")],
        ),
        (
            "id\n1\n9\n",
            ("--no-insert", "--write-unchanged", "--all-buckets"),
            [(1, "one", "a"), (2, "two", "a"), (3, "three", "b")],
        ),
    ],
)
def test_rules(
    metastore: InMemoryMetastore, run: Run, text: str, words: tuple[str, ...], expected: Rows
) -> None:
    """What each option does to the table."""
    status, _, err = run(text, *words, "--engine", LOCAL)
    assert status == EXIT_OK, err
    assert rows_of(metastore) == expected


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (
            "id,msg,ds\n1,a,a\n1,b,a\n",
            (),
            "DuplicateKeyError: table default.t: 1 key has more than one source row",
        ),
        ("id,msg,ds\none,a,a\n", (), "column id (int) has 'one' in row"),
        ("id,colour\n1,red\n", (), "columns that are not in the table and that no condition reads: colour"),
        (
            "id,colour\n1,red\n",
            ("--delete-when", "color = 'red'"),
            "RecordLayoutError: table default.t: the condition \"color = 'red'\" cannot be resolved over "
            "source (id, colour) and target (id, msg, ds): column color does not exist",
        ),
        ("id,msg\n1,a\n", ("--missing-columns", "error"), "the source lacks the columns ds"),
        (
            "id,msg,ds\n1,a,a\n",
            ("--delete-when", "target.msg = 'x'"),
            "--delete-when \"target.msg = 'x'\" reads the table's row, which rows to insert do not "
            "have. Choose the rows to insert with --insert-when, or pass --no-insert",
        ),
    ],
)
def test_what_is_refused(
    metastore: InMemoryMetastore, run: Run, text: str, words: tuple[str, ...], message: str
) -> None:
    """One line, options called as they are on the command line; nothing is written."""
    before = rows_of(metastore)
    status, out, err = run(text, *words)
    assert (status, out) == (EXIT_FAILED, "")
    assert message in err
    assert rows_of(metastore) == before


FOR_SPARK = [
    (
        "id,msg\n1,a\n",
        ("--update-when", "upper(msg) = 'A'"),
        'only Spark can interpret the condition "upper(msg)',
    ),
    (
        "id,msg\n1,a\n",
        ("--update-when", "id > 1 OR msg > 5"),
        "only Spark can compare 'msg', of type string, with 5",
    ),
    (
        "id,msg\n1,a\n",
        ("--delete-when", "cast(id AS float) = 1"),
        "only Spark can interpret CAST(id AS FLOAT)",
    ),
    ("id,msg\n1,a\n", ("--update-when", "id = '1'"), "only Spark can compare 'id', of type int32, with '1'"),
    (
        "id,msg\n1,a\n",
        ("--insert-when", "current_date = '2024-05-01'"),
        "only Spark can resolve 'current_date', which is not a column of source (id, msg)",
    ),
    (
        "id,msg,n\n1,a,2\n",
        ("--first-by", "cast(n AS int)"),
        "--first-by 'cast(n AS int)': only Spark can order",
    ),
    ("id,msg,n\n1,a,2\n", ("--first-by", "n DESC NULLS FIRST"), "only Spark can order by this"),
    ("id,msg\n1,a\n", ("--first-by", "colour"), "only Spark can order by this. Without Spark, it must be"),
    (
        "id,msg,ds\n" + "7,a,a\n" * 100_000,
        ("--local-memory", "1", "--first-by", "msg"),
        "the source would need more than the 1,048,576 bytes that the local engine may use",
    ),
]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(("text", "words", "message"), FOR_SPARK)
def test_what_only_spark_does(
    metastore: InMemoryMetastore, run: Run, text: str, words: tuple[str, ...], message: str
) -> None:
    """Refused with advice by --engine local; given to Spark otherwise, before anything is written."""
    before = rows_of(metastore)
    status, out, err = run(text, *words, "--engine", LOCAL)
    assert (status, out) == (EXIT_FAILED, "")
    assert err.startswith("hive-mutate merge: ConfigurationError: --engine local: ")
    assert message in err
    assert err.rstrip().endswith("Change this, or use --engine spark")
    with pytest.raises(AssertionError, match=SENT_TO_SPARK):
        run(text, *words)
    assert rows_of(metastore) == before


@pytest.mark.usefixtures("without_spark")
def test_without_pyspark(run: Run) -> None:
    """The reason, and what to install."""
    status, _, err = run("id,msg\n1,a\n", "--update-when", "upper(msg) = 'A'")
    assert status == EXIT_FAILED
    assert "only Spark can interpret the condition" in err
    assert "pyspark is not installed: pip install hive-mutation-api[spark]" in err


def test_large_tables_are_read_by_spark(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the local engine is asked for; and what has no keys of the source does not count."""
    monkeypatch.setattr(engine_arguments, "READ_BYTES_MAX", 10)
    with pytest.raises(AssertionError, match=SENT_TO_SPARK):
        run("id,msg\n1,a\n")
    assert run("id,msg\n1,a\n", "--engine", LOCAL)[0] == EXIT_OK
