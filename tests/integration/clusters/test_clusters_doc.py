"""What docs/clusters.md shows runs as it stands there, as far as there are such clusters here."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from judges.hive.judge import HiveJudge
from judges.storages.hdfs_cluster import MiniHdfs
from mutation_api.cli import main as command
from tests.fixtures.fix_yarn import (
    YarnCluster,
    packed_python,
    put_text,
    submitting_environment,
    write_defaults,
)
from tests.integration.jobs.spark_cluster import spark_cluster
from tests.support.hadoop_files import write_site

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "clusters.md"
BLOCK = re.compile(r"^```(?:sh|python) ([\w ]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_SECONDS = 550
CHANGES = "id,item\n2,coffee\n3,water\n"
BEFORE = [[1, "tea"], [2, "juice"]]
MERGED = [[1, "tea"], [2, "coffee"], [3, "water"]]


def blocks() -> dict[str, str]:
    """The page's programs by their names."""
    return dict(BLOCK.findall(PAGE.read_text(encoding="utf-8")))


def test_the_commands_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    """All options of ``hive-mutate`` on the page exist, and take what is given to them there."""
    lines = [
        shlex.split(line)[1:]
        for text in blocks().values()
        for line in text.replace("\\\n", " ").splitlines()
        if line.startswith("hive-mutate ")
    ]
    assert len(lines) >= 4
    for words in lines:
        parser = command._parser(words[0], command._module(words[0]))
        assert parser.parse_args(words).subcommand == words[0]


@pytest.fixture
def place(hive_on_hdfs: HiveJudge, tmp_path: Path) -> Iterator[Path]:
    """A folder with the page's files; Hive has the table."""
    (tmp_path / "changes.csv").write_text(CHANGES)
    (tmp_path / "job.py").write_text(blocks()["job"])
    (tmp_path / "python.tar.gz").symlink_to(packed_python())
    hive_on_hdfs.sql("CREATE DATABASE sales")
    hive_on_hdfs.sql(
        "CREATE TABLE sales.orders (id int, item string) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true')"
    )
    hive_on_hdfs.sql("INSERT INTO sales.orders VALUES (1, 'tea'), (2, 'juice')")
    yield tmp_path
    hive_on_hdfs.time_out_transactions(0)
    hive_on_hdfs.sql("DROP DATABASE sales CASCADE")


def run(name: str, place: Path, conf: Path, **environment: str) -> None:
    """Run a block of the page in the folder."""
    tools = Path(sys.executable).parent
    done = subprocess.run(
        ["sh", "-ec", blocks()[name]],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        cwd=place,
        env={
            **submitting_environment(conf),
            "PATH": f"{tools}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "SPARK_CONF_DIR": str(write_defaults(place / "spark")),
            **environment,
        },
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"


def rows(hive: HiveJudge) -> list[list[object]]:
    """What Hive has."""
    return sorted(hive.sql("SELECT id, item FROM sales.orders"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True)
@pytest.mark.parametrize("name", ["yarn client", "yarn cluster", "yarn submit"])
def test_on_yarn(yarn: YarnCluster, hdfs: MiniHdfs, hive_on_hdfs: HiveJudge, place: Path, name: str) -> None:
    """Hive has what the commands mean."""
    write_site(yarn.conf / "hive-site.xml", {"hive.metastore.uris": hive_on_hdfs.uri})
    if name == "yarn cluster":
        put_text(hdfs, "/tmp/changes.csv", CHANGES)
    run(name, place, yarn.conf)
    if name == "yarn submit":
        assert rows(hive_on_hdfs) == [*BEFORE, *([n, f"item{n}"] for n in range(100, 200))]
    else:
        assert rows(hive_on_hdfs) == MERGED


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True)
@pytest.mark.parametrize("name", ["standalone", "submitted"])
def test_on_a_standalone_cluster(
    hdfs: MiniHdfs, hive_on_hdfs: HiveJudge, place: Path, tmp_path: Path, name: str
) -> None:
    """The driver alone is told of HDFS and of the metastore."""
    conf = tmp_path / "conf"
    write_site(conf / "core-site.xml", hdfs.settings)
    write_site(conf / "hive-site.xml", {"hive.metastore.uris": hive_on_hdfs.uri})
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster") as master:
        run(name, place, conf, SPARK_MASTER=master)
    assert rows(hive_on_hdfs) == MERGED
