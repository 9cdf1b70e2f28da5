"""``hive-mutate update``, from the first word to the last, over a real metastore."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from mutation_api.cdc.update.database import PASSWORD_VARIABLE
from mutation_api.cdc.update.sources import SOURCE_VARIABLE
from mutation_api.cli.main import main
from tests.integration.update.conftest import KINDS
from tests.support.shops import Shop, Source

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))


@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_g16_g17_a_table_s_life_by_commands(
    source: Source,
    hive: Hive23,
    live_metastore: ThriftMetastoreClient,
    live_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each command says what it did; the password is nowhere."""
    monkeypatch.setenv(PASSWORD_VARIABLE, source.password or "")
    monkeypatch.setenv(SOURCE_VARIABLE, source.url)
    source.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text)", "INSERT INTO orders VALUES (1, 'tea')"
    )
    shop = Shop(source, live_metastore, live_database, COLUMNS)
    at = ["--metastore", hive.uri]

    def command(*words: str) -> str:
        capsys.readouterr()
        assert main(["update", *words, *at]) == 0
        return capsys.readouterr().out

    table = ["--table", shop.table]
    assert "CREATE TRIGGER" in command("enable", "--source", source.url, *table, "--dry-run")
    assert "follows orders of postgresql://" in command("enable", "--source", source.url, *table)
    assert "1 inserted" in command("extract", "--all", live_database, "--quiet", "--engine", "local")
    source.run("UPDATE orders SET item = 'coffee'")
    found = json.loads(command("status", *table, "--json"))
    assert (found["outstanding"], found["extraction"]) == (1, 1)
    assert main(["update", "disable", *table, *at]) == 1
    assert "have not been extracted" in capsys.readouterr().err
    report = json.loads(command("extract", *table, "--quiet", "--json", "--engine", "local"))
    assert report["captured"]["updated"] == report["removed_from_log"] == 1
    assert main(["compact", shop.table, *at]) == 0
    assert "nothing to do" in capsys.readouterr().out
    page = tmp_path / "page.html"
    command("status", "--database", live_database, "--html", str(page))
    text = command("status", *table)
    assert "Changes outstanding:" in text
    assert "disabled; removed" in command("disable", *table, "--quiet", "--engine", "local")
    assert source.objects() == []
    assert (source.password or "?") not in page.read_text(encoding="utf-8") + text + json.dumps(found)
