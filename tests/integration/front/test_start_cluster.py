"""docs/start/cluster.md, from the first question to a merge under YARN, on a real HDFS, YARN and Hive."""

from __future__ import annotations

from pathlib import Path

import pytest

from judges.hive.judge import HiveJudge
from tests.fixtures.fix_yarn import YarnCluster, submitting_environment, write_defaults
from tests.support.doc_blocks import DOCS, run_blocks
from tests.support.hadoop_files import write_site

pytestmark = [pytest.mark.slow, pytest.mark.long]

PAGE = DOCS / "start" / "cluster.md"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True)
def test_the_commands_of_the_page(yarn: YarnCluster, hive_on_hdfs: HiveJudge, tmp_path: Path) -> None:
    """All but installing and where this machine has its files; Hive has the rows in the end."""
    write_site(tmp_path / "hive" / "hive-site.xml", {"hive.metastore.uris": hive_on_hdfs.uri})
    hive_on_hdfs.sql("CREATE DATABASE sales")
    try:
        said = run_blocks(
            PAGE,
            tmp_path,
            without=("install", "where"),
            **{
                **submitting_environment(yarn.conf),
                "HIVE_CONF_DIR": str(tmp_path / "hive"),
                "SPARK_CONF_DIR": str(write_defaults(tmp_path / "spark")),
            },
        )
        assert "merged 3 inserted" in said
        assert said.count("merged 1 inserted, 1 updated") == 2
        found = hive_on_hdfs.sql("SELECT id, item, price FROM sales.first_orders ORDER BY id")
    finally:
        hive_on_hdfs.time_out_transactions(0)
        hive_on_hdfs.sql("DROP DATABASE sales CASCADE")
    assert [[key, item] for key, item, _ in found] == [
        [1, "tea"],
        [2, "coffee"],
        [3, "wine"],
        [4, "juice"],
        [5, "still water"],
        [6, "milk"],
    ]
    assert [float(price) for _, _, price in found] == [3.5, 4.5, 9, 2.5, 1.1, 1.9]
