"""``hive-mutate ingest`` and ``watermarks``: usage and what they print; the source is a list in memory."""

from __future__ import annotations

import argparse
import contextlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metastore_client.errors import TxnAbortedError
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import cli
from mutation_api.cli import spark_engine, watermarks
from mutation_api.cli.ingest import command as ingest
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from mutation_api.transaction.clock import SystemClock
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.change_source import ListSource, entries

LOG = entries("1 insert 1 one\n2 insert 2 two\n3 delete 1")
NEEDED = ("ingest", "list", "--entries", "3", "--metastore", "thrift://nowhere:1")


class ListKind:
    """A kind of source: the first entries of LOG."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--entries", type=int, required=True)

    @staticmethod
    def source_from(arguments: argparse.Namespace) -> ListSource:
        return ListSource(LOG[: arguments.entries])

    @staticmethod
    def tables_from(arguments: argparse.Namespace) -> list[tuple[str, str, tuple[str, ...]]]:
        return [("orders", "default.orders", ("id",))]


class ClosingSource(ListSource):
    """Holds something until it is left."""

    is_closed = False

    def __enter__(self) -> ClosingSource:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kind known."""
    monkeypatch.setattr(ingest, "KINDS", {"list": "a list in memory"})
    monkeypatch.setattr(ingest, "_module", lambda name: ListKind)


@pytest.fixture
def metastore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryMetastore:
    """What the commands connect to; it has a table ``default.orders``."""
    made = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    columns = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
    create_acid_table(made, "default.orders", columns, clustered_by=["id"], num_buckets=1)
    for module in (ingest, watermarks):
        monkeypatch.setattr(module, "metastore_from", lambda arguments: contextlib.nullcontext(made))
    return made


@pytest.fixture(params=[pytest.param("spark", marks=pytest.mark.slow), "local"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine; of Spark the session that runs already."""
    name: str = request.param
    if name == "spark":
        spark = request.getfixturevalue("spark")
        monkeypatch.setattr(spark_engine, "spark_session", lambda name: contextlib.nullcontext(spark))
    return name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ingest",), "the following arguments are required: KIND"),
        (("ingest", "paper"), "argument KIND: invalid choice: 'paper' (choose from "),
        (("ingest", "list"), "the following arguments are required: --entries"),
        ((*NEEDED, "--follow", "0"), "--follow requires seconds above 0"),
        ((*NEEDED, "--follow", "1", "--dry-run"), "cannot be combined with --dry-run"),
        (("watermarks",), "use --table, --watermark-table, or both"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    """Status 2, and what is wrong with it."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == EXIT_USAGE
    assert message in capsys.readouterr().err


def test_a_run_that_loses_a_race_is_attempted_again(
    metastore: InMemoryMetastore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads the source again from the same position, so that each operation is applied once."""
    words = ("ingest", "list", "--engine", "local", "--quiet", "--json", "--entries")
    pauses: list[float] = []
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: pauses.append(seconds))
    metastore.fail_next("commit_txn", TxnAbortedError("Transaction txnid:1 already aborted"))
    assert main([*words, "2"]) == EXIT_FAILED
    assert "TransactionAbortedError" in capsys.readouterr().err
    for entries_read, operations in (("2", 2), ("3", 1)):
        metastore.fail_next("commit_txn", TxnAbortedError("Transaction txnid:2 already aborted"))
        assert main([*words, entries_read, "--attempts", "2"]) == EXIT_OK
        (table,) = json.loads(capsys.readouterr().out)["tables"]
        assert table["operation_count"] == operations
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ingest", "--help"), ["neither loses an operation nor applies one twice", "a list in memory"]),
        (
            ("ingest", "list", "--help"),
            ["--entries", "--strict", "--watermark-table", "Only the last operation on each key"],
        ),
        (("watermarks", "--help"), ["--remove", "consumer:NAME"]),
    ],
)
def test_help(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: list[str]) -> None:
    """What a run does, its kinds, and each kind's own arguments beside the common ones."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert [text for text in expected if text not in printed] == []


def test_every_kind_of_source_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each module is a kind, and its arguments go together with the common ones."""
    monkeypatch.undo()
    modules = {name for _, name, _ in pkgutil.iter_modules(cli.ingest.__path__)}
    assert modules - {"command", "kafka_arguments", "log_arguments", "table_map"} == {*ingest.KINDS}
    for name in ingest.KINDS:
        with pytest.raises(SystemExit) as caught:
            main(["ingest", name, "--help"])
        assert caught.value.code == 0
        printed = capsys.readouterr().out
        assert printed.startswith(f"usage: hive-mutate ingest {name} ")
        assert "--watermark-table" in printed


def test_a_kind_whose_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others work; this one says what to install."""

    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'pymysql'", name="pymysql")

    monkeypatch.setattr(ingest, "_module", missing)
    with pytest.raises(SystemExit) as caught:
        main(NEEDED)
    assert caught.value.code == EXIT_USAGE
    expected = "needs the Python module 'pymysql': pip install 'hive-mutation-api[list]'"
    assert expected in capsys.readouterr().err


@pytest.mark.long
def test_what_a_run_prints(
    metastore: InMemoryMetastore, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run, a run as JSON with its steps on standard error, and one that finds nothing new."""
    words = ("--engine", engine)
    assert main([*NEEDED, "--dry-run", "--quiet", *words]) == EXIT_OK
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == f'list:test: would be applied up to {{"seqno": 3}} ({engine})'
    assert printed.err == ""
    assert main(["ingest", "list", "--entries", "2", "--json", *words]) == EXIT_OK
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert (report["position"], report["tables"][0]["inserted"]) == ('{"seqno": 2}', 2)
    assert report["engine"] == engine
    assert "default.orders: 2 operations on 2 keys" in printed.err.splitlines()
    assert main(["ingest", "list", "--entries", "2", "--quiet", *words]) == EXIT_OK
    assert capsys.readouterr().out == 'list:test: nothing new after {"seqno": 2}\n'


def test_a_refusal_is_one_line(metastore: InMemoryMetastore, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1."""
    assert main(["ingest", "list", "--entries", "2", "--quiet"]) == EXIT_OK
    words = ("--watermark-table", "default.other", "--strict", "--quiet")
    assert main(["ingest", "list", "--entries", "2", *words]) == EXIT_FAILED
    assert capsys.readouterr().err.startswith(
        "hive-mutate ingest: ContradictionError: source list:test, table orders: its log contradicts the rows"
    )


def test_it_follows_until_it_is_interrupted(
    metastore: InMemoryMetastore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A report when there is something new; in the end the source is closed; status 130."""
    source = ClosingSource(LOG[:1])
    monkeypatch.setattr(ListKind, "source_from", lambda arguments: source)
    pauses: list[float] = []
    steps: Iterator[Callable[[], Any]] = iter([list, lambda: setattr(source, "log", LOG)])

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(ingest, "sleep", sleep)
    words = ("--follow", "0.5", "--quiet", "--json")
    assert main(["ingest", "list", "--entries", "1", *words]) == EXIT_INTERRUPTED
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["position"] for report in reports] == ['{"seqno": 1}', '{"seqno": 3}']
    assert pauses == [0.5] * 3
    assert source.is_closed


def test_watermarks_are_shown(metastore: InMemoryMetastore, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table and as JSON, by table and by source; none where nothing was applied."""
    assert main(["watermarks", "--table", "default.orders"]) == EXIT_OK
    assert capsys.readouterr().out == "no watermarks in default.mutation_watermarks\n"
    assert main(["ingest", "list", "--entries", "3", "--quiet", "--json"]) == EXIT_OK
    txn_id = json.loads(capsys.readouterr().out)["txn_id"]
    assert main(["watermarks", "--table", "DEFAULT.orders"]) == EXIT_OK
    header, line = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "SOURCE"
    assert line.startswith(f'list:test  orders        default.orders  {{"seqno": 3}}  {txn_id}')
    assert main(["watermarks", "--watermark-table", "default.mutation_watermarks", "--json"]) == EXIT_OK
    mark = json.loads(capsys.readouterr().out)
    assert mark.pop("applied_at").endswith("Z")
    assert mark == {
        "source": "list:test",
        "source_table": "orders",
        "table": "default.orders",
        "position": '{"seqno": 3}',
        "order": [3],
        "txn_id": txn_id,
    }
    for other in (("--source", "list:other", "--table", "default.x"), ("--table", "default.x")):
        assert main(["watermarks", *other]) == EXIT_OK
        assert capsys.readouterr().out == "no watermarks in default.mutation_watermarks\n"


class SparkOnlySource:
    """As a user may have written it for Spark."""

    source_id = "mine:x"

    def read(self, spark: object, tables: object, after: object) -> object:
        raise AssertionError("it is not read")


def test_a_source_that_only_spark_reads(
    metastore: InMemoryMetastore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked to do without Spark, the command refuses before it takes a lock; else it starts Spark."""
    monkeypatch.setattr(ListKind, "source_from", lambda arguments: SparkOnlySource())
    assert main([*NEEDED, "--engine", "local", "--quiet"]) == EXIT_FAILED
    error = capsys.readouterr().err
    assert "ConfigurationError: source mine:x can only be read by Spark" in error
    assert metastore.get_all_tables("default") == ["orders"]

    class StartedError(Exception):
        pass

    def started(name: str) -> None:
        raise StartedError

    monkeypatch.setattr(spark_engine, "spark_session", started)
    with pytest.raises(StartedError):
        main([*NEEDED, "--quiet"])


@pytest.mark.thorough
def test_a_small_run_imports_nothing_large() -> None:
    """Neither Spark nor pandas, whatever file source it is."""
    program = (
        "import sys, pyarrow\n"
        "from mutation_api.cli.ingest import command, canal, collector, debezium, maxwell, mysql, tungsten\n"
        "from mutation_api.cli.engine_arguments import engine_module\n"
        "engine_module('local')\n"
        "pyarrow.array([1])\n"
        "print({'pyspark', 'py4j', 'pandas'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["set()"]
