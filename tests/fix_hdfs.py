"""A real HDFS for the run, and an empty directory in it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from judges.hdfs_cluster import MiniHdfs
from mutation_api.storage.connect import configure
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from tests.fix_judge import note_judge

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def hdfs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    """One NameNode and one DataNode; without it every test that asks fails."""
    with MiniHdfs(tmp_path_factory.mktemp("hdfs")) as cluster:
        note_judge(request.config, cluster.description)
        yield cluster


@pytest.fixture
def hdfs_root(hdfs: MiniHdfs) -> Iterator[Location]:
    """An empty directory that everybody may write; this process finds its HDFS."""
    path = f"/tests/{next(_numbers)}"
    hdfs.make_directory(path, mode="777")
    configure(HadoopSettings(hdfs.settings))
    yield Location.parse(f"{hdfs.location}{path}")
    configure(None)
