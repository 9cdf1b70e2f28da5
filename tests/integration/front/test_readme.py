"""What the README shows is a program: it runs as it stands there and prints what it says there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from judges.mariadb import MariaDb
from tests.support.hive_site import write_hive_site

pytestmark = pytest.mark.slow

README = Path(__file__).parents[3] / "README.md"
BLOCK = re.compile(r"^```(python|output|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    """The README's fenced blocks of one kind, in order."""
    return [text for found, text in BLOCK.findall(README.read_text(encoding="utf-8")) if found == kind]


def test_the_tour_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    """All python blocks, one after the other, are one program; the output blocks are what it shows."""
    program = tmp_path / "tour.py"
    program.write_text("\n".join(blocks("python")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    promised = blocks("output")
    assert promised, "the README shows no output"
    for text in promised:
        assert text.strip() in done.stdout, done.stdout


def test_the_lines_from_mysql_to_hive(tmp_path: Path, hive: Hive23, mariadb: MariaDb) -> None:
    """Hive then reads what MariaDB has; and again after changes, when the ingesting line runs once more."""
    (script,) = blocks("sh")
    (again,) = re.findall(r"^hive-mutate ingest .*$", script, re.MULTILINE)
    write_hive_site(tmp_path, hive.uri)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HIVE_CONF_DIR": str(tmp_path),
        "MYSQL_HOST": f"127.0.0.1:{mariadb.port}",
        "MYSQL_USER": mariadb.user,
        "HIVE_MUTATE_MYSQL_PASSWORD": mariadb.password,
    }

    def run(lines: str) -> str:
        done = subprocess.run(
            ["sh", "-ec", lines], capture_output=True, text=True, env=environment, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    hive.sql("CREATE DATABASE sales")
    mariadb.sql("CREATE DATABASE shop")
    try:
        columns = "id INT PRIMARY KEY, customer VARCHAR(40), total DECIMAL(9,2), placed DATETIME"
        mariadb.sql(f"CREATE TABLE shop.orders ({columns})")
        mariadb.sql(
            "INSERT INTO shop.orders VALUES (1, 'Ada', 12.5, '2024-08-06 09:00:00'), (2, NULL, 7, NULL)"
        )
        assert "sales.orders" in run(script)
        assert hive.sql("SELECT id, customer, total, placed FROM sales.orders ORDER BY id") == [
            [1, "Ada", "12.5", "2024-08-06 09:00:00.0"],
            [2, None, "7", None],
        ]
        mariadb.sql("DELETE FROM shop.orders WHERE id = 1")
        mariadb.sql("UPDATE shop.orders SET customer = 'Grace' WHERE id = 2")
        run(again)
        assert hive.sql("SELECT id, customer, total FROM sales.orders") == [[2, "Grace", "7"]]
    finally:
        mariadb.sql("DROP DATABASE shop")
        hive.sql("DROP DATABASE sales CASCADE")
