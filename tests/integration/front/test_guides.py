"""The pages of docs/guides: their blocks run as they stand there, on real Hive, and print what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from judges.mysql import MySqlJudge
from tests.support.doc_blocks import DOCS, Block, blocks, programs, run_block, run_blocks

pytestmark = pytest.mark.slow

GUIDES = [page for page in sorted((DOCS / "guides").glob("*.md")) if programs(page)]
QUICK = "read"
"""The guide of the default run: a few seconds, without Spark."""
INGEST = DOCS / "guides" / "ingest.md"


@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(page, marks=[] if page.stem == QUICK else [pytest.mark.long], id=page.stem)
        for page in GUIDES
    ],
)
def test_its_blocks_run(guide: Path, sales: Hive23, conf: Path, tmp_path: Path) -> None:
    """All but those that need a MySQL, which the next test runs."""
    run_blocks(guide, tmp_path, without=("mysql",), HIVE_CONF_DIR=str(conf))


def test_the_lines_from_mysql_to_hive(sales: Hive23, conf: Path, tmp_path: Path, mysql: MySqlJudge) -> None:
    """Hive then reads what MariaDB has; and again after changes, when the lines run once more."""
    server = {
        "MYSQL_HOST": f"127.0.0.1:{mysql.port}",
        "MYSQL_USER": mysql.user,
        "HIVE_MUTATE_MYSQL_PASSWORD": mysql.password,
        "HIVE_CONF_DIR": str(conf),
    }
    (script,) = (each.text for each in blocks(INGEST) if each.name == "mysql")
    (again,) = re.findall(r"^hive-mutate ingest (?:.*\\\n)*.*$", script, re.MULTILINE)
    mysql.sql("CREATE DATABASE shop")
    try:
        columns = "id INT PRIMARY KEY, customer VARCHAR(40), total DECIMAL(9,2), placed DATETIME"
        mysql.sql(f"CREATE TABLE shop.orders ({columns})")
        mysql.sql(
            "INSERT INTO shop.orders VALUES (1, 'Ada', 12.5, '2024-08-06 09:00:00'), (2, NULL, 7, NULL)"
        )
        assert "sales.orders" in run_blocks(INGEST, tmp_path, only=("mysql",), **server)
        assert sales.sql("SELECT id, customer, total, placed FROM sales.orders ORDER BY id") == [
            [1, "Ada", "12.5", "2024-08-06 09:00:00.0"],
            [2, None, "7", None],
        ]
        mysql.sql("DELETE FROM shop.orders WHERE id = 1")
        mysql.sql("UPDATE shop.orders SET customer = 'Grace' WHERE id = 2")
        run_block(Block("sh", "", again), tmp_path, **server)
        assert sales.sql("SELECT id, customer, total FROM sales.orders") == [[2, "Grace", "7"]]
    finally:
        mysql.sql("DROP DATABASE shop")
