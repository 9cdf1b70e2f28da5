"""docs/replication.md, block by block as it stands there, on two metastores; in between we write."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive4, replication_settings
from metastore_client.model import ColumnInfo
from mutation_api.cli.main import main
from mutation_api.errors import TableNotMutableError
from mutation_api.hive.connect import connect
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.integration.replication.replicated import Side, forget
from tests.support.hadoop_files import write_site

pytestmark = [pytest.mark.slow, pytest.mark.long]

PAGE = Path(__file__).parents[3] / "docs" / "replication.md"
BLOCK = re.compile(r"^```(sql|sh|properties) (a|b|both)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))


def sections() -> dict[str, list[tuple[str, str, list[str]]]]:
    """The page's blocks by heading: kind, site, lines."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = zip(parts[1::2], parts[2::2], strict=True)
    return {
        head: [(kind, site, text.splitlines()) for kind, site, text in BLOCK.findall(body)]
        for head, body in found
    }


class Sites:
    """A and B."""

    def __init__(self, a: Side, b: Side, folder: Path) -> None:
        self.sides = {"a": a, "b": b}
        self.values = {f"${name}": f"file:{folder}/{name.lower()}" for name in ("DUMPS", "BACK", "AGAIN")}
        self.folder = folder

    def run(self, heading: str, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        """All blocks of a section, in order."""
        for kind, site, lines in sections()[heading]:
            for line in lines:
                for name, value in self.values.items():
                    line = line.replace(name, value)
                if kind == "sql":
                    self.sides[site].judge.sql(line)
                elif kind == "sh":
                    self.command(site, line, capsys, patch)

    def command(
        self, site: str, line: str, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        write_site(self.folder / site / "hive-site.xml", {"hive.metastore.uris": self.sides[site].judge.uri})
        patch.setenv("HIVE_CONF_DIR", str(self.folder / site))
        words = shlex.split(line)
        assert words[0] == "hive-mutate"
        assert main(words[1:]) == 0, f"{line}\n{capsys.readouterr()}"
        assert capsys.readouterr().out


@pytest.fixture
def sites(hive_notifying: Hive4, hive_target: Hive4, tmp_path: Path) -> Iterator[Sites]:
    """Two Hives; A has a database ``sales`` with a table."""
    with connect(hive_notifying.uri) as at_a, connect(hive_target.uri) as at_b:
        made = Sites(Side(hive_notifying, "sales", at_a), Side(hive_target, "sales", at_b), tmp_path)
        hive_notifying.sql("CREATE DATABASE sales")
        create_acid_table(at_a.metastore, "sales.orders", COLUMNS)
        try:
            yield made
        finally:
            for side in made.sides.values():
                side.judge.time_out_transactions(0)
                forget(side)
                side.judge.sql("DROP DATABASE IF EXISTS sales CASCADE")


def test_the_settings_are_those_of_the_judges() -> None:
    """So what the other tests show holds for a server that is set as the page says."""
    ((_, _, lines),) = (b for blocks in sections().values() for b in blocks if b[0] == "properties")
    ours: Mapping[str, str] = replication_settings(Path("folder"))
    for line in lines:
        name, _, value = line.partition("=")
        if name != "hive.metastore.event.db.notification.api.auth":  # every judge has that
            assert name in ours, line
            assert value in {ours[name], "$KEPT"}, line


@pytest.mark.parametrize("hive_notifying", ["4.1"], indirect=True)
def test_the_blocks_of_the_page(
    sites: Sites, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page says of rows and of writers holds after each section."""
    a, b = sites.sides["a"], sites.sides["b"]
    heads = [head for head, blocks in sections().items() if blocks]
    assert heads == ["Settings", "A cycle", "Planned fail-over", "Unplanned fail-over"]
    a.append("orders", 1)
    sites.run("Settings", capsys, monkeypatch)
    for number in (2, 3):
        sites.run("A cycle", capsys, monkeypatch)
        assert b.rows("orders") == a.rows("orders")
        refused(b)
        a.append("orders", number)
    sites.run("Planned fail-over", capsys, monkeypatch)
    refused(a)
    b.append("orders", 4)
    assert ids(b) == [1, 2, 3, 4]
    sites.run("Unplanned fail-over", capsys, monkeypatch)
    refused(b)
    a.append("orders", 5)
    assert ids(a) == [1, 2, 3, 5]
    assert ids(b) == [1, 2, 3]


def refused(side: Side) -> None:
    with pytest.raises(TableNotMutableError, match="replicat"):
        side.append("orders", 1000)


def ids(side: Side) -> list[int]:
    return [int(row.values[0]) for row in side.rows("orders")]
