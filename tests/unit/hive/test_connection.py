"""Connecting, and that many small transactions leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.model import TxnState
from metastore_client.testing import InMemoryMetastore
from mutation_api.errors import ConfigurationError, ConnectionFailedError
from mutation_api.hive.connect import connect
from tests.support.left_threads import no_thread_is_left
from tests.unit.hive.conftest import NAME, MakeHive

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "options",
    [
        {"lock_timeout_seconds": 0},
        {"write_lock": "none"},
        {"time_zone": "Nowhere/Else"},
        {"metastore": "no address"},
        {"metastore": Path("/no/hive-site.xml")},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    """Before anything else is done."""
    with pytest.raises(ConfigurationError):
        connect(**options)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_a_metastore_that_is_not_there() -> None:
    """The error names it."""
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1"):
        connect("thrift://127.0.0.1:1")


@pytest.mark.long
def test_the_address_may_stand_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That of HIVE_CONF_DIR, if no other is given."""
    (tmp_path / "hive-site.xml").write_text(
        "<configuration><property><name>hive.metastore.uris</name><value>thrift://127.0.0.1:2</value>"
        "</property></configuration>"
    )
    with pytest.raises(ConnectionFailedError, match=":2"):
        connect(tmp_path / "hive-site.xml")
    monkeypatch.setenv("HIVE_CONF_DIR", str(tmp_path))
    with pytest.raises(ConnectionFailedError, match=":2"):
        connect()


def test_a_client_of_the_caller_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opened it closes it."""
    metastore = InMemoryMetastore()
    closed: list[bool] = []
    monkeypatch.setattr(metastore, "close", lambda: closed.append(True))
    with connect(metastore) as hive:
        assert hive.metastore is metastore
    assert not closed


@pytest.mark.thorough
@pytest.mark.parametrize("line", ["2.3", "4.1"])
@pytest.mark.parametrize("transactions", [20, pytest.param(200, marks=pytest.mark.long)])
def test_many_small_transactions_leave_nothing(
    make_hive: MakeHive, tmp_path: Path, line: str, transactions: int
) -> None:
    """No thread, open file, lock, transaction or staged file; nor do snapshots and scans that nobody ends."""
    hive = make_hive(line, keys=())
    rows = pa.table({"id": [1], "item": ["x"], "price": [1]})
    files = _open_files()
    with no_thread_is_left():
        for number in range(transactions):
            with hive.transaction(NAME) as tx:
                orders = tx.table(NAME)
                if number % 10 == 9:
                    orders.delete(orders.scan(columns=[], row_ids=True).to_arrow())
                orders.append(rows)
            if number % 10 == 0:
                with pytest.raises(KeyError), hive.transaction(NAME) as tx:
                    tx.table(NAME).append(rows)
                    raise KeyError
                with hive.snapshot(NAME) as view:
                    next(view.table(NAME).scan().to_arrow_batch_reader())
                    assert view.table(NAME).scan().count() == (2 if number else 1)
    assert _open_files() <= files
    assert len(hive._users) <= 2
    assert hive.metastore.show_locks("default", "orders") == []
    assert not [txn for txn in hive.metastore.get_open_txns().txns if txn.state is TxnState.OPEN]
    assert not list(tmp_path.rglob("_mutation_*"))


def _open_files() -> set[str]:
    """But for sockets: the JVM of an earlier test may connect to this process at any time."""
    links = {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    return {link for link in links if not link.startswith("socket:")}


_WITHOUT_PACKAGES = """
import sys
from importlib.abc import MetaPathFinder

REFUSED = {"pyspark", "py4j", "pandas", "polars", "duckdb"}

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())

import pyarrow as pa
import pyarrow.compute as pc
from metastore_client import ColumnInfo
from metastore_client.model import TxnState
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import ConfigurationError, connect, create_acid_table

with connect(InMemoryMetastore(sys.argv[1], capabilities=HIVE_4_1)) as hive:
    create_acid_table(hive.metastore, "default.t", [ColumnInfo("id", "bigint"), ColumnInfo("msg", "string")])
    with hive.transaction("default.t") as tx:
        tx.table("default.t").append(pa.table({"id": [1, 2, 3], "msg": ["a", "b", "c"]}))
    with hive.transaction("default.t") as tx:
        table = tx.table("default.t")
        source = pa.table({"id": [1, 4], "msg": ["A", "D"]})
        merge = table.merge(source, on=["id"]).when_matched_update_all().when_not_matched_insert_all()
        merge.execute()
        table.delete(table.scan(row_ids=True, where=pc.field("id") == 2))
    with hive.snapshot("default.t") as view:
        scan = view.table("default.t").scan()
        print(sorted(scan.to_arrow()["msg"].to_pylist()), scan.count())
        for form in (scan.to_pandas, scan.to_polars, lambda: scan.to_duckdb("t")):
            try:
                form()
            except ConfigurationError as error:
                print(error)
assert not REFUSED & {name.partition(".")[0] for name in sys.modules}
"""


@pytest.mark.thorough
def test_neither_spark_nor_pandas_is_needed(tmp_path: Path) -> None:
    """Where they are not installed, tables are changed and read; a form that needs one says so."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PACKAGES, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows, *missing = done.stdout.splitlines()
    assert rows == "['A', 'D', 'c'] 3"
    packages = ["pandas", "polars", "duckdb"]
    assert len(missing) == len(packages)
    for line, package in zip(missing, packages, strict=True):
        assert f"pip install hive-mutation-api[{package}]" in line
