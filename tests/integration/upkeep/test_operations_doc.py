"""The commands of docs/operations.md, as they stand there, on a table of Hive's own."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from metastore_client.remote.thrift_client import open_client
from mutation_api.cli.main import main
from mutation_api.hive.connect import connect as connect_hive
from tests.support.hive_site import write_hive_site

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[3] / "docs" / "operations.md"
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines()
]


def test_the_commands_of_the_page(
    hive: Hive23, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each ends with exit code 0 and says something of the table."""
    assert len(COMMANDS) > 10
    hive.sql("create database if not exists sales")
    hive.sql(
        "create table sales.orders (id int, item string) clustered by (id) into 2 buckets stored as orc "
        "tblproperties ('transactional'='true', 'transactional_properties'='default')"
    )
    hive.sql("insert into sales.orders values (1, 'tea'), (2, 'coffee')")
    hive.sql("update sales.orders set item = 'water' where id = 2")
    copy = Path(shutil.copytree(hive.warehouse / "sales.db" / "orders", tmp_path / "copy"))
    with open_client(hive.uri) as metastore, connect_hive(metastore) as client:
        with client.snapshot("sales.orders") as view:
            ids = view.table("sales.orders").scan(row_ids=True).to_arrow()["ROW__ID"].to_pylist()
        first = min(row["transactionid"] for row in ids)
        dead = metastore.open_txn("ann", "host", "")
        metastore.abort_txn(dead)
    write_hive_site(tmp_path, hive.uri)
    monkeypatch.setenv("HIVE_CONF_DIR", str(tmp_path))
    values = {"$TXN": str(dead), "$COPY": str(copy), "$ID": str(first)}
    for command in COMMANDS:
        words = [values.get(word, word) for word in shlex.split(command)]
        assert words[0] == "hive-mutate"
        assert main(words[1:]) == 0, f"{command}\n{capsys.readouterr()}"
        assert capsys.readouterr().out, command
    hive.sql("drop database sales cascade")
