"""Where the settings of a keytab come from; logins themselves are judged in tests/integration/clusters."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from metastore_client.errors import InvalidConfigurationError
from metastore_client.hive_site import MetastoreConfig, shipped_by_spark
from mutation_api.errors import ConfigurationError
from mutation_api.storage import hadoop_settings
from mutation_api.storage.hadoop_settings import HadoopSettings, has_keytab, log_in_as_spark, use_keytab
from tests.support.hadoop_files import write_site


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a container of YARN, in which this process runs; with Spark's configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONTAINER_ID", "container_1_1_1_1")
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HIVE_CONF_DIR", raising=False)
    (tmp_path / "__spark_conf__" / "__hadoop_conf__").mkdir(parents=True)
    return tmp_path


def test_what_spark_takes_along_is_read(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop's files, before those of the machine, and the metastore's address; in a container only."""
    shipped = container / "__spark_conf__" / "__hadoop_conf__"
    write_site(shipped / "core-site.xml", {"fs.defaultFS": "hdfs://a"})
    write_site(shipped / "hive-site.xml", {"hive.metastore.uris": "thrift://h:1"})
    machine = container / "machine"
    write_site(machine / "core-site.xml", {"fs.defaultFS": "hdfs://b", "dfs.replication": "2"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(machine))
    assert dict(HadoopSettings.from_environment().properties) == {
        "fs.defaultFS": "hdfs://a",
        "dfs.replication": "2",
    }
    assert MetastoreConfig.load(None).addresses[0].host == "h"
    monkeypatch.delenv("CONTAINER_ID")
    assert shipped_by_spark() is None
    assert HadoopSettings.from_environment().get("fs.defaultFS") == "hdfs://b"
    with pytest.raises(InvalidConfigurationError, match="no metastore address was given"):
        MetastoreConfig.load(None)


def test_the_keytab_of_the_container(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found in the properties that Spark writes for its driver."""
    used: list[tuple[str, Path]] = []
    monkeypatch.setattr(hadoop_settings, "use_keytab", lambda principal, file: used.append((principal, file)))
    monkeypatch.setattr(hadoop_settings.importlib.util, "find_spec", lambda name: object())
    properties = container / "__spark_conf__" / "__spark_conf__.properties"
    properties.write_text(
        "#Spark\nspark.kerberos.principal=etl/a\\:b@R\nspark.kerberos.keytab=etl.keytab-1\n"
    )
    log_in_as_spark()
    assert used == [("etl/a:b@R", Path("etl.keytab-1"))]


def test_without_a_keytab_nothing_is_done(container: Path) -> None:
    """Neither in a container nor elsewhere."""
    before = dict(os.environ)
    log_in_as_spark()
    assert dict(os.environ) == before
    assert not has_keytab()


def test_a_session_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients are opened, for its keytab and for its storage; another session is asked anew."""
    pairs = [("spark.app.name", "a"), ("spark.hadoop.dfs.replication", "2")]
    contexts = [Mock(**{"getConf.return_value.getAll.return_value": pairs}) for _ in "ab"]
    for context in contexts:
        monkeypatch.setattr(hadoop_settings, "active_spark_context", lambda context=context: context)
        for _ in range(3):
            log_in_as_spark()
            assert HadoopSettings({}).with_spark(context).get("dfs.replication") == "2"
        assert context.getConf.call_count == 1
    assert not has_keytab()


def test_without_gssapi_a_warning_says_so(
    container: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once."""
    monkeypatch.setattr(hadoop_settings, "_warned", [])
    monkeypatch.setattr(hadoop_settings.importlib.util, "find_spec", lambda name: None)
    properties = container / "__spark_conf__" / "__spark_conf__.properties"
    properties.write_text("spark.kerberos.principal=etl@R\nspark.kerberos.keytab=k\n")
    log_in_as_spark()
    log_in_as_spark()
    assert [record.message for record in caplog.records if "gssapi" in record.message] == [
        caplog.records[0].message
    ]


def test_a_keytab_that_is_not_there(tmp_path: Path) -> None:
    """The error names the file and its principal."""
    with pytest.raises(ConfigurationError, match=r"none: the keytab of etl@R .* does not exist"):
        use_keytab("etl@R", tmp_path / "none")
    assert not has_keytab()
