"""The first copy of a table that is far larger than the memory for it, as Hive reads it."""

from __future__ import annotations

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api import LocalOptions
from tests.integration.update.conftest import KINDS
from tests.support.shops import Shop, Source

pytestmark = pytest.mark.slow

ROWS = 20_000
LITTLE = LocalOptions(memory_bytes=1 << 20)
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
DAY = ColumnInfo("day", "string")
FILL = {
    "postgresql": f"SELECT i, repeat('x', 200) || i, 'd' || i % 3 FROM generate_series(1, {ROWS}) i",
    "mysql": (
        "SELECT seq, CONCAT(REPEAT('x', 200), seq), CONCAT('d', seq % 3) FROM (SELECT ROW_NUMBER() "
        "OVER () AS seq FROM information_schema.COLUMNS a, "
        f"information_schema.COLUMNS b LIMIT {ROWS}) numbers"
    ),
    "sqlite": (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) "
        "SELECT i, printf('%s%d', replace(hex(zeroblob(100)), '0', 'x'), i), 'd' || (i % 3) FROM n"
    ),
}
TOTALS = "SELECT day, count(*), sum(id), sum(length(item)) FROM {} GROUP BY day"


@pytest.mark.feature("incremental update from a database")
@pytest.mark.parametrize(
    ("source", "hive_line"),
    [
        ("postgresql", "3.1"),
        *(
            pytest.param(kind, line, marks=pytest.mark.long)
            for kind, line in zip(KINDS, ("2.3", "4.1", "4.1"), strict=True)
        ),
    ],
    indirect=True,
)
def test_g4_hive_reads_the_first_copy(source: Source, hive_line: HiveJudge, line_database: str) -> None:
    """4 MiB through 1 MiB of memory; each row once, in its partition; the next extraction finds nothing."""
    source.run(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, item VARCHAR(250), day VARCHAR(10))",
        f"INSERT INTO orders {FILL[source.kind]}",
    )
    with open_client(hive_line.uri) as metastore:
        shop = Shop(source, metastore, line_database, COLUMNS, DAY)
        shop.enable()
        (table,) = shop.extract(local=LITTLE).ingested.tables
        assert table.merge.total.inserted == ROWS
        source.run("DELETE FROM orders WHERE id < 10", "UPDATE orders SET item = 'new' WHERE id = 10")
        shop.extract(local=LITTLE)
    found = hive_line.sql(TOTALS.format(shop.table))
    expected = source.rows(TOTALS.format("orders"))
    assert sorted(list(map(str, row)) for row in found) == sorted(list(map(str, row)) for row in expected)
    assert len(found) == 3
