"""A real HDFS for the run, and an empty directory in it for each test."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

import pytest

from judges.hdfs_cluster import MiniHdfs
from mutation_api.storage.connect import configure, settings
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from tests.fix_judge import note_judge

HIVE_MAY_BE_ANYBODY = {"hadoop.proxyuser.hive.hosts": "*", "hadoop.proxyuser.hive.groups": "*"}
"""Hive's compactor works as the owner of the directory."""

GROUPS = {"hadoop.user.group.static.mapping.overrides": "etl=etl,lake;hive=hive,lake"}
SAFE_MODE_AT_START = {"dfs.namenode.safemode.extension.testing": "1500"}
"""A NameNode that is started again goes through it."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def hdfs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    """One NameNode and one DataNode; without it every test that asks fails."""
    configuration = {**HIVE_MAY_BE_ANYBODY, **GROUPS, **SAFE_MODE_AT_START}
    with MiniHdfs(tmp_path_factory.mktemp("hdfs"), configuration=configuration) as cluster:
        note_judge(request.config, cluster.description)
        yield cluster


@contextlib.contextmanager
def as_user(name: str) -> Iterator[None]:
    """Be somebody else to HDFS, who is no superuser; in this process, for clients that are new."""
    before = settings()
    os.environ["HADOOP_USER_NAME"] = name
    configure(before.with_properties({"hadoop.test.user": name}))
    try:
        yield
    finally:
        del os.environ["HADOOP_USER_NAME"]
        configure(before)


@pytest.fixture
def hdfs_root(hdfs: MiniHdfs) -> Iterator[Location]:
    """An empty directory that everybody may write; this process finds its HDFS."""
    path = f"/tests/{next(_numbers)}"
    hdfs.make_directory(path, mode="777")
    configure(HadoopSettings(hdfs.settings))
    yield Location.parse(f"{hdfs.location}{path}")
    configure(None)
