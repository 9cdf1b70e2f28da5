"""Real Hive whose warehouse does not lie on the local disk; one JVM a line and storage for the run."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from judges.hdfs_cluster import MiniHdfs
from judges.hive import Hive23, Hive31, Hive41, HiveJudge
from judges.s3_server import BUCKET, S3Server
from mutation_api.storage.connect import configure, settings
from mutation_api.storage.hadoop_settings import HadoopSettings
from tests.fix_judge import new_database, note_judge
from tests.hadoop_files import write_core_site

KINDS: Mapping[str, type[HiveJudge]] = {"2.3": Hive23, "3.1": Hive31, "4.1": Hive41}

ELSEWHERE = (("hdfs", "2.3"), ("hdfs", "3.1"), ("hdfs", "4.1"), ("s3", "2.3"), ("s3", "4.1"))
"""Storages and lines of Hive, as parameters ``storage`` and ``line`` of :func:`hive_elsewhere`."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def hives_on_hdfs(
    hdfs: MiniHdfs, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, HiveJudge]]:
    """Judges by line, filled by those who ask."""
    started: dict[str, HiveJudge] = {}
    yield started
    for judge in started.values():
        judge.close()


@pytest.fixture
def hive_on_hdfs(hdfs: MiniHdfs, request: pytest.FixtureRequest) -> Iterator[HiveJudge]:
    """The judge of the line that an indirect parameter names, with its warehouse on HDFS.

    This process finds that HDFS.
    """
    with on_hdfs(str(request.param), request) as judge:
        yield judge


@contextlib.contextmanager
def on_hdfs(line: str, request: pytest.FixtureRequest) -> Iterator[HiveJudge]:
    """See :func:`hive_on_hdfs`."""
    hdfs: MiniHdfs = request.getfixturevalue("hdfs")
    hives_on_hdfs: dict[str, HiveJudge] = request.getfixturevalue("hives_on_hdfs")
    if line not in hives_on_hdfs:
        warehouse = f"/warehouse{line}"
        hdfs.make_directory(warehouse, mode="777")
        settings = {"hive.metastore.warehouse.dir": f"{hdfs.location}{warehouse}", "dfs.replication": "1"}
        folder = request.getfixturevalue("tmp_path_factory").mktemp("hive_on_hdfs")
        hives_on_hdfs[line] = KINDS[line](folder, settings)
        note_judge(request.config, f"{hives_on_hdfs[line].description} on HDFS")
    configure(HadoopSettings(hdfs.settings))
    yield hives_on_hdfs[line]
    configure(None)


@pytest.fixture
def database_on_hdfs(hive_on_hdfs: HiveJudge) -> Iterator[str]:
    """A new database there; dropped with its tables after the test."""
    with new_database(hive_on_hdfs) as name:
        yield name


@pytest.fixture(scope="session")
def hives_on_s3(s3: S3Server) -> Iterator[dict[str, HiveJudge]]:
    """Judges by line, filled by those who ask."""
    started: dict[str, HiveJudge] = {}
    yield started
    for judge in started.values():
        judge.close()


@pytest.fixture
def hive_on_s3(s3: S3Server, request: pytest.FixtureRequest) -> Iterator[HiveJudge]:
    """The judge of the line that an indirect parameter names, with its warehouse on S3.

    This process finds that server, which does well again after the test.
    """
    with on_s3(str(request.param), request) as judge:
        yield judge


@contextlib.contextmanager
def on_s3(line: str, request: pytest.FixtureRequest) -> Iterator[HiveJudge]:
    """See :func:`hive_on_s3`."""
    s3: S3Server = request.getfixturevalue("s3")
    hives_on_s3: dict[str, HiveJudge] = request.getfixturevalue("hives_on_s3")
    if line not in hives_on_s3:
        settings = {
            "hive.metastore.warehouse.dir": f"s3a://{BUCKET}/warehouse{line}",
            # 4.1 would hide the keys from its own tasks
            "hive.conf.hidden.list": "javax.jdo.option.ConnectionPassword",
            **s3.settings,
        }
        folder = request.getfixturevalue("tmp_path_factory").mktemp("hive_on_s3")
        hives_on_s3[line] = KINDS[line](folder, settings)
        note_judge(request.config, f"{hives_on_s3[line].description} on S3")
    configure(HadoopSettings(s3.settings))
    yield hives_on_s3[line]
    s3.fail()
    s3.expire()
    configure(None)


@pytest.fixture
def hive_elsewhere(storage: str, line: str, request: pytest.FixtureRequest) -> Iterator[HiveJudge]:
    """The judge of a ``line`` with its warehouse on a ``storage``, ``hdfs`` or ``s3``; a test is parametrised
    with both.
    """
    with judge_elsewhere(storage, line, request) as judge:
        yield judge


def judge_elsewhere(
    storage: str, line: str, request: pytest.FixtureRequest
) -> contextlib.AbstractContextManager[HiveJudge]:
    """The judge of a line with its warehouse on ``hdfs`` or ``s3``; this process finds that storage."""
    return {"hdfs": on_hdfs, "s3": on_s3}[storage](line, request)


@pytest.fixture
def database_elsewhere(hive_elsewhere: HiveJudge) -> Iterator[str]:
    """A new database there; dropped with its tables after the test."""
    with new_database(hive_elsewhere) as name:
        yield name


@pytest.fixture
def conf_elsewhere(hive_elsewhere: HiveJudge, tmp_path: Path) -> Path:
    """A ``HADOOP_CONF_DIR`` by which programs find the storage."""
    return write_core_site(tmp_path / "conf", settings().properties)


@pytest.fixture
def database_on_s3(hive_on_s3: HiveJudge) -> Iterator[str]:
    """A new database there; dropped with its tables after the test."""
    with new_database(hive_on_s3) as name:
        yield name
