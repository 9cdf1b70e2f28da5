"""An HDFS of two NameNodes and three DataNodes, real Hive on it, and a table that outlives faults."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from judges.hdfs_cluster import MiniHdfs
from judges.hive import HiveJudge
from metastore_client.thrift_client import connect
from mutation_api.client.sweep import sweep
from mutation_api.storage.connect import configure
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.hdfs import HdfsStorage
from mutation_api.storage.location import Location
from tests.fix_hdfs import HIVE_MAY_BE_ANYBODY, SAFE_MODE_AT_START
from tests.fix_hive_elsewhere import KINDS
from tests.fix_judge import new_database, note_judge
from tests.fix_metastore import MetastoreProxy
from tests.integration.remote_table import client_of, create, hidden, insert, seen

COPIES = {"dfs.replication": "2"}

At = Callable[[str, int, Callable[[], object]], None]
"""Has something done before the n-th call of a method of HdfsStorage."""


class NameNodeProxy(MetastoreProxy):
    """A TCP proxy that knows the names of a NameNode's calls."""

    def __init__(self, address: str) -> None:
        super().__init__(f"thrift://{address}")

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.uri.removeprefix("thrift://")

    def _cut_for(self, data: bytes) -> bool | None:
        for name, cuts in self._cuts.items():
            if cuts and (chr(len(name)) + name).encode() in data:
                self.calls.append(name)
                return cuts.pop(0)
        return None


class FaultyTable:
    """A table, and what Hive has to read in it once the test is over; see the fixture."""

    def __init__(self, hdfs: MiniHdfs, hive: HiveJudge, name: str) -> None:
        self.hdfs = hdfs
        self.hive = hive
        self.name = name
        self.expected: list[tuple[Any, ...]] = []
        create(hive, name)
        with connect(hive.uri) as metastore:
            self.location = Location.parse(metastore.get_table(*name.split(".")).location)

    def write(self, rows: dict[str, list[int]]) -> None:
        """Insert in one transaction."""
        with client_of(self.hive, self.name) as client, client.new_transaction() as transaction:
            insert(transaction, self.name, rows)

    def expect(self, rows: dict[str, list[int]]) -> None:
        """Hive has to read these, too."""
        found = [(number, f"m{number}", f"ds={part}") for part, numbers in rows.items() for number in numbers]
        self.expected = sorted([*self.expected, *found])

    def check(self) -> None:
        """All or nothing by Hive's reading; a sweep removes what is left; the next transaction works."""
        assert seen(self.hive, self.name) == self.expected
        self.hive.time_out_transactions(0)
        with connect(self.hive.uri) as metastore:
            (swept,) = sweep(metastore, *self.name.split("."))
        assert len(swept.found) == len(swept.removed)
        assert hidden(self.location) == []
        self.write({"a": [1000]})
        self.expect({"a": [1000]})
        assert seen(self.hive, self.name) == self.expected


@pytest.fixture(scope="session")
def hdfs_ha(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    """Two NameNodes, of which one is active, and three DataNodes."""
    configuration = {**HIVE_MAY_BE_ANYBODY, **SAFE_MODE_AT_START}
    with MiniHdfs(
        tmp_path_factory.mktemp("hdfs_ha"), data_nodes=3, name_nodes=2, configuration=configuration
    ) as cluster:
        note_judge(request.config, cluster.description)
        yield cluster


@pytest.fixture(scope="session")
def hives_on_ha() -> Iterator[dict[str, HiveJudge]]:
    """Judges by line, filled by those who ask."""
    started: dict[str, HiveJudge] = {}
    yield started
    for judge in started.values():
        judge.close()


@pytest.fixture
def hive_on_ha(
    hdfs_ha: MiniHdfs,
    hives_on_ha: dict[str, HiveJudge],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[HiveJudge]:
    """The judge of the line that an indirect parameter names (2.3) with its warehouse on the name service.

    This process finds that HDFS by ``HADOOP_CONF_DIR``. All serves again after the test.
    """
    line = str(getattr(request, "param", "2.3"))
    if line not in hives_on_ha:
        warehouse = f"/warehouse{line}"
        hdfs_ha.make_directory(warehouse, mode="777")
        settings = {
            **hdfs_ha.settings,
            **COPIES,
            "hive.metastore.warehouse.dir": f"{hdfs_ha.location}{warehouse}",
        }
        hives_on_ha[line] = KINDS[line](tmp_path_factory.mktemp("hive_on_ha"), settings)
        note_judge(request.config, f"{hives_on_ha[line].description} on HDFS with two NameNodes")
    with found_by_files(tmp_path_factory.mktemp("conf"), hdfs_ha.settings, monkeypatch):
        yield hives_on_ha[line]
        hdfs_ha.heal()


@contextlib.contextmanager
def found_by_files(
    folder: Path, settings: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Hadoop's files for these settings, in the folder that ``HADOOP_CONF_DIR`` names."""
    write_site(folder / "core-site.xml", {k: v for k, v in settings.items() if k.startswith("fs.")})
    rest = {k: v for k, v in settings.items() if not k.startswith("fs.")}
    write_site(folder / "hdfs-site.xml", {**rest, **COPIES})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))
    configure(HadoopSettings())  # forget what was found before
    configure(None)
    yield
    configure(HadoopSettings())
    monkeypatch.delenv("HADOOP_CONF_DIR")
    configure(None)


def write_site(file: Path, properties: Mapping[str, str]) -> None:
    """One of Hadoop's files."""
    rows = [
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    ]
    file.write_text(f"<configuration>{''.join(rows)}</configuration>")


@pytest.fixture
def faulty_table(hdfs_ha: MiniHdfs, hive_on_ha: HiveJudge) -> Iterator[FaultyTable]:
    """A table with rows, for a test in which something goes wrong.

    Afterwards, with all healed: Hive reads what was there or was added to ``expected``, a sweep leaves
    nothing hidden, and the next transaction works.
    """
    with new_database(hive_on_ha) as database:
        table = FaultyTable(hdfs_ha, hive_on_ha, f"{database}.t")
        table.write({"a": [1, 2], "b": [3, 4]})
        table.expect({"a": [1, 2], "b": [3, 4]})
        yield table
        hdfs_ha.heal()
        table.check()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    """See :data:`At`."""

    def at_call(method: str, number: int, event: Callable[[], object]) -> None:
        original = getattr(HdfsStorage, method)
        calls = itertools.count(1)

        def wrapped(storage: HdfsStorage, *arguments: Any) -> Any:
            if next(calls) == number:
                event()
            return original(storage, *arguments)

        monkeypatch.setattr(HdfsStorage, method, wrapped)

    return at_call
