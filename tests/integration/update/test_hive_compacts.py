"""Compaction by Hive's own compactor, asked for by ours, while the table is followed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from judges.hive.hive_judges import HiveJudge
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import connect
from mutation_api.cli.main import main
from mutation_api.update.compact import CompactionThreshold, compact_table, read_sizes
from tests.support.shops import Shop, SqliteSource

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
DAY = ColumnInfo("day", "string")


@contextlib.contextmanager
def _compactor(judge: HiveJudge) -> Iterator[None]:
    """Rounds of the worker, as the server's threads do them."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.2):
            judge.worker()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


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
    source.run(*[f"INSERT INTO orders VALUES ({n}, 'x{n}', 'd{n % 3}')" for n in range(30)])
    with connect(hive_line.uri) as metastore:
        shop = Shop(source, metastore, line_database, COLUMNS, DAY)
        shop.enable()
        shop.extract()
        with _compactor(hive_line):
            first = compact_table(metastore, shop.table, threshold=CompactionThreshold(30), wait_seconds=120)
            assert [each.partition for each in first.partitions] == ["day=d0", "day=d1", "day=d2"]
            assert {each.state for each in first.partitions} <= {"ready for cleaning", "succeeded"}
            source.run("UPDATE orders SET item = 'new' WHERE id = 3", "DELETE FROM orders WHERE id = 6")
            shop.extract()
            assert compact_table(metastore, shop.table, threshold=CompactionThreshold(10)).partitions == ()
            words = ["update", "compact", "--table", shop.table, "--metastore", hive_line.uri, "--wait", "2m"]
            assert main([*words, "--delta-threshold", "1", "--quiet"]) == 0
            assert "day=d0: major compaction" in capsys.readouterr().out
        assert sum(each.deltas.row_count or 0 for each in read_sizes(metastore, shop.table)) == 0
    found = hive_line.sql(f"SELECT id, item, day FROM {shop.table} ORDER BY id")
    assert [tuple(row) for row in found] == source.rows("SELECT id, item, day FROM orders ORDER BY id")
