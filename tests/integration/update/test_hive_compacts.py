"""Compaction by Hive's own compactor, asked for by ours, while the table is followed."""

from __future__ import annotations

import contextlib
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from judges.process import in_rounds
from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api.cli.main import main
from mutation_api.errors import CompactionError
from mutation_api.upkeep.compact import CompactionThreshold, compact_table, read_sizes
from mutation_api.upkeep.doctor import doctor
from tests.fixtures.fix_newest import HIVE_4
from tests.integration.upkeep.soundness import check_sound
from tests.support.shops import Shop, SqliteSource

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
DAY = ColumnInfo("day", "string")


def _compactor(judge: HiveJudge) -> AbstractContextManager[None]:
    """Rounds of the worker, as the server's threads do them."""

    def work() -> None:
        with contextlib.suppress(HiveError):  # a compaction failed; its state tells
            judge.worker()

    return in_rounds(work, 0.2)


@pytest.mark.feature("requesting compactions and waiting for them")
@pytest.mark.parametrize(
    "hive_line",
    [pytest.param("2.3", marks=pytest.mark.long), "3.1", pytest.param("4.1", marks=pytest.mark.long)],
    indirect=True,
)
def test_g12_partitions_with_deltas_are_compacted_and_read_the_same(
    hive_line: HiveJudge, line_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, the others are left alone; extraction goes on; too few changes are left alone."""
    source = SqliteSource(tmp_path)
    source.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, day TEXT)")
    with open_client(hive_line.uri) as metastore:
        shop = Shop(source, metastore, line_database, COLUMNS, DAY)
        shop.enable()
        for some in (range(15), range(15, 30)):
            source.run(*[f"INSERT INTO orders VALUES ({n}, 'x{n}', 'd{n % 3}')" for n in some])
            shop.extract()
        with _compactor(hive_line):
            first = compact_table(metastore, shop.table, threshold=CompactionThreshold(30), wait_seconds=120)
            assert [each.partition for each in first.partitions] == ["day=d0", "day=d1", "day=d2"]
            assert {each.state for each in first.partitions} <= {"ready for cleaning", "succeeded"}
            source.run("UPDATE orders SET item = 'new' WHERE id = 3", "DELETE FROM orders WHERE id = 6")
            shop.extract()
            assert compact_table(metastore, shop.table, threshold=CompactionThreshold(10)).partitions == ()
            words = ["compact", shop.table, "--metastore", hive_line.uri, "--wait", "2m"]
            assert main([*words, "--delta-threshold", "1", "--quiet"]) == 0
            assert "day=d0: major compaction" in capsys.readouterr().out
        assert sum(each.deltas.row_count or 0 for each in read_sizes(metastore, shop.table)) == 0
        source.run("INSERT INTO orders VALUES (100, 'alone', 'd9')")
        shop.extract()
        with _compactor(hive_line):
            (alone,) = compact_table(metastore, shop.table, threshold=CompactionThreshold(1)).partitions
        assert (alone.state == "refused") == (hive_line.line in HIVE_4)  # a delta alone is left as it is
    found = hive_line.sql(f"SELECT id, item, day FROM {shop.table} ORDER BY id")
    assert [tuple(row) for row in found] == source.rows("SELECT id, item, day FROM orders ORDER BY id")


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_g12_a_rebalance_that_the_server_cannot_do(
    hive_line: HiveJudge, line_database: str, tmp_path: Path
) -> None:
    """Hive 4 does it on Tez alone, which is not here: its reason is told, and no row is harmed."""
    source = SqliteSource(tmp_path)
    source.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    with open_client(hive_line.uri) as metastore:
        shop = Shop(source, metastore, line_database, COLUMNS, bucketed_by=None)
        shop.enable()
        for some in (range(50), range(50, 60)):
            source.run(*[f"INSERT INTO orders VALUES ({n}, 'x{n}')" for n in some])
            shop.extract()
        one = CompactionThreshold(1)
        with (
            _compactor(hive_line),
            pytest.raises(CompactionError, match=r"rebalance compaction failed .* only supported in Tez"),
        ):
            compact_table(metastore, shop.table, kind="rebalance", threshold=one, wait_seconds=240)
        source.run("UPDATE orders SET item = 'new' WHERE id = 3", "DELETE FROM orders WHERE id = 6")
        shop.extract()
        assert check_sound(metastore, shop.table).row_count == 59
    assert _by_hive(hive_line, shop) == source.rows("SELECT id, item FROM orders ORDER BY id")


@pytest.mark.parametrize(
    ("hive_line", "method"),
    [
        ("3.1", "changelog"),
        *(
            pytest.param(line, method, marks=pytest.mark.long)
            for line, method in (
                ("3.1", "changelog-insert"),
                ("2.3", "changelog"),
                ("4.1", "changelog-insert"),
            )
        ),
    ],
    indirect=["hive_line"],
)
def test_g6_g7_g13_an_extraction_while_hive_compacts(
    hive_line: HiveJudge, line_database: str, tmp_path: Path, method: str
) -> None:
    """It writes elsewhere; under the table's one name every reader has each row once, whatever the method."""
    source = SqliteSource(tmp_path)
    source.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    with open_client(hive_line.uri) as metastore:
        shop = Shop(source, metastore, line_database, COLUMNS)
        shop.enable(method=method)
        for first in (0, 100):
            source.run(*[f"INSERT INTO orders VALUES ({first + n}, 'x')" for n in range(100)])
            shop.extract()
        compact_table(metastore, shop.table, threshold=CompactionThreshold(1), wait_seconds=None)
        with _compactor(hive_line):
            _wait_for(metastore, shop.table, "working")
            source.run("INSERT INTO orders VALUES (500, 'during')")
            if method == "changelog":
                source.run("UPDATE orders SET item = 'new' WHERE id = 3", "DELETE FROM orders WHERE id = 6")
            shop.extract()
            expected = source.rows("SELECT id, item FROM orders ORDER BY id")
            assert sorted((row["id"], row["item"]) for row in shop.rows()) == expected
            _wait_for(metastore, shop.table, "ready for cleaning", "succeeded")
        assert _by_hive(hive_line, shop) == expected
        hive_line.cleaner()
        assert _by_hive(hive_line, shop) == expected
        (sizes,) = read_sizes(metastore, shop.table)
        events = {"changelog": 4, "changelog-insert": 1}[method]
        assert (sizes.base.row_count, sizes.deltas.row_count) == (200, events)


def test_a_compaction_that_must_fail_says_why(hive: HiveJudge, hive_database: str, tmp_path: Path) -> None:
    """Hive 2.3 and an empty property of the table, which doctor names, too; without it, it is done."""
    source = SqliteSource(tmp_path)
    source.run(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)", "INSERT INTO orders VALUES (1, 'x')"
    )
    with open_client(hive.uri) as metastore:
        shop = Shop(source, metastore, hive_database, COLUMNS)
        shop.enable()
        shop.extract()
        hive.sql(f"ALTER TABLE {shop.table} SET TBLPROPERTIES ('note'='')")
        one = CompactionThreshold(1)
        with _compactor(hive), pytest.raises(CompactionError, match=r"failed .*'note' is empty: remove it"):
            compact_table(metastore, shop.table, threshold=one, wait_seconds=120)
        (found,) = doctor(metastore, f"{hive_database}.orders").tables
        assert "'note' is empty" in str(found.trouble)
        hive.sql(f"ALTER TABLE {shop.table} UNSET TBLPROPERTIES ('note')")
        assert doctor(metastore, f"{hive_database}.orders").tables[0].trouble is None
        with _compactor(hive):
            compact_table(metastore, shop.table, threshold=one, wait_seconds=120)


def _wait_for(metastore: MetastoreClient, table: str, *states: str) -> None:
    """Until the newest compaction of a table is in one of these states."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        found = [e for e in metastore.show_compactions() if f"{e.database}.{e.table}" == table]
        if any(each.state in states for each in found):
            return
        time.sleep(0.05)
    raise AssertionError(f"no compaction of {table} is {states}; found {found}")


def _by_hive(judge: HiveJudge, shop: Shop) -> list[tuple[object, ...]]:
    return [tuple(row) for row in judge.sql(f"SELECT id, item FROM {shop.table} ORDER BY id")]
