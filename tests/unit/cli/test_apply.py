"""``hive-mutate apply``: which engine does the work, and that the local one needs nothing of the other."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metastore_client.errors import TxnAbortedError
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cli import apply, engine_arguments
from mutation_api.cli.engine_arguments import AUTO, LOCAL, SPARK, chosen_engine
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK
from mutation_api.errors import ConfigurationError
from mutation_api.hive.connect import connect
from mutation_api.storage.location import Location
from mutation_api.transaction.clock import SystemClock
from mutation_api.upkeep.create_acid_table import create_acid_table

LARGE = 1000


@pytest.fixture
def metastore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryMetastore:
    """What the command connects to; it has the table ``default.t (id int, msg string, ds string)``."""
    result = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "int"), ColumnInfo("msg", "string")]
    create_acid_table(result, "default.t", columns, [ColumnInfo("ds", "string")])
    monkeypatch.setattr(apply, "metastore_from", lambda _: contextlib.nullcontext(result))
    monkeypatch.setattr(engine_arguments, "LOCAL_FILE_BYTES_MAX", LARGE)
    return result


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyspark looks as if it were not installed."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else real(name))


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Status, output and errors of ``hive-mutate apply``."""
    status = main(["apply", "default.t", *map(str, words)])
    return status, *capsys.readouterr()


def file_of(path: Path, count: int) -> Path:
    """A file of inserts."""
    rows = "".join(f"insert,{n},m{n},d{n % 2}\n" for n in range(count))
    path.write_text(f"operation,id,msg,ds\n{rows}")
    return path


def test_a_small_file_is_applied_here(
    metastore: InMemoryMetastore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer says so, in JSON too."""
    file = file_of(tmp_path / "c.csv", 5)
    status, out, _ = run(capsys, file, "--create-partitions")
    assert status == EXIT_OK
    assert out.startswith("default.t, transaction 1: 5 inserted, 0 updated, 0 deleted in 2 partitions")
    assert out.endswith(" s (local)\n")
    status, out, _ = run(capsys, file, "--json")
    summary: dict[str, Any] = json.loads(out)
    assert (summary["inserted"], summary["partitions"], summary["engine"]) == (5, ["ds=d0", "ds=d1"], LOCAL)
    assert list((tmp_path / "warehouse").rglob("bucket_*"))


def test_what_is_wrong_is_one_line(
    metastore: InMemoryMetastore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With file, column and value; nothing is written."""
    file = tmp_path / "c.csv"
    file.write_text("operation,id,msg,ds\ninsert,12,ok,a\ninsert,twelve,bad,a\n")
    status, out, err = run(capsys, file, "--engine", LOCAL, "--create-partitions")
    assert (status, out) == (EXIT_FAILED, "")
    assert err.splitlines()[0].startswith(
        f"hive-mutate apply: RecordValueError: {file}, table default.t: invalid values"
    )
    assert "column id (int) has 'twelve' in row ('insert', 'twelve', 'bad', 'a')" in err
    assert not list((tmp_path / "warehouse").rglob("bucket_*"))


@pytest.mark.thorough(1)
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_second_attempt_looks_for_the_rows(
    metastore: InMemoryMetastore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_changed: bool,
) -> None:
    """The transaction that won may have changed them; then the old ROW__IDs are refused."""
    run(capsys, file_of(tmp_path / "c.csv", 2), "--create-partitions")
    with connect(metastore) as hive:

        def win(_: SystemClock, seconds: float) -> None:
            with hive.transaction("default.t") as tx:
                table, gone = tx.table("default.t"), pc.field("id") == (0 if is_changed else 1)
                table.delete(table.scan(row_ids=True, where=gone))

        with hive.snapshot("default.t") as view:
            old = view.table("default.t").scan(row_ids=True, where=pc.field("id") == 0).to_arrow()
        pq.write_table(old.append_column("operation", pa.array(["update"])), tmp_path / "old.parquet")
        monkeypatch.setattr(SystemClock, "sleep", win)
        metastore.fail_next("commit_txn", TxnAbortedError("Transaction txnid:2 already aborted"))
        status, _, err = run(capsys, tmp_path / "old.parquet", "--attempts", "2", "--engine", LOCAL)
    assert (status, "RowIdNotFoundError" in err) == ((EXIT_FAILED, True) if is_changed else (EXIT_OK, False))
    assert "hive-mutate apply: attempt 1 of 2 failed" in caplog.text


@pytest.mark.usefixtures("metastore")
def test_the_engine_that_suits_the_files(tmp_path: Path) -> None:
    """All files together are small, or Spark does it; it also gets what cannot be listed here."""
    small, large = (Location.given(file_of(tmp_path / f"{n}.csv", n)) for n in (9, 500))
    assert chosen_engine(AUTO, [small]) == chosen_engine(LOCAL, [large]) == LOCAL
    assert chosen_engine(AUTO, [small, large]) == chosen_engine(AUTO, [large]) == SPARK
    assert chosen_engine(AUTO, [small] * 9) == chosen_engine(SPARK, [small]) == SPARK
    (tmp_path / "f" / "ds=a").mkdir(parents=True)
    assert chosen_engine(AUTO, [Location.given(tmp_path / "f")]) == SPARK
    assert chosen_engine(AUTO, [Location.parse("nosuch://host/c.csv")]) == SPARK


@pytest.mark.usefixtures("metastore", "without_spark")
def test_without_pyspark_there_is_one_engine(tmp_path: Path) -> None:
    """Files of any size; Spark itself is refused with advice."""
    large = Location.given(file_of(tmp_path / "c.csv", 500))
    assert chosen_engine(AUTO, [large]) == LOCAL
    with pytest.raises(ConfigurationError, match=r"--engine spark: pyspark is not installed: pip install"):
        chosen_engine(SPARK, [large])


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["apply", "merge", "diff"])
def test_a_small_command_imports_nothing_large(command: str) -> None:
    """Neither the other engine nor what pyarrow would look for."""
    program = (
        "import sys, pyarrow\n"
        f"import mutation_api.cli.main, mutation_api.cli.{command}\n"
        "from mutation_api.cli.engine_arguments import engine_module\n"
        f"engine_module('local')\n"
        "pyarrow.array([1])\n"
        "print({'pyspark', 'pandas', 'matplotlib'} & set(sys.modules))\n"
        "print(pyarrow.table({'a': [1]}).to_pandas()['a'].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["set()", "[1]"]
