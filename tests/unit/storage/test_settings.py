"""HadoopSettings and S3Settings: the settings of Hadoop's files, and texts without secrets."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mutation_api.storage.connect import configure_storage, settings, storage_at
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.s3_settings import S3Settings

SECRET = "wJalrXUtnFEMI"


def site(file: Path, **properties: str) -> None:
    entries = "".join(
        f"<property><name>{name.replace('__', '.')}</name><value>{text}</value></property>"
        for name, text in properties.items()
    )
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"<configuration>{entries}</configuration>")


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HADOOP_CONF_DIR and HIVE_CONF_DIR, empty."""
    for name in ("HADOOP_CONF_DIR", "HIVE_CONF_DIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def test_the_files_of_hadoop_are_read(conf: Path) -> None:
    """References in a file are replaced; of hive-site.xml only storage keys count, and other files win."""
    site(conf / "HADOOP_CONF_DIR/core-site.xml", fs__defaultFS="hdfs://${name}", name="ns", fs__x="core")
    site(conf / "HADOOP_CONF_DIR/hdfs-site.xml", dfs__nameservices="ns")
    site(conf / "HIVE_CONF_DIR/hive-site.xml", fs__x="hive", fs__y="hive", hive__z="hive")
    found = HadoopSettings.from_environment()
    assert found.properties == {
        "fs.defaultFS": "hdfs://ns",
        "fs.x": "core",
        "fs.y": "hive",
        "dfs.nameservices": "ns",
    }


def test_a_file_that_is_no_configuration_is_named(conf: Path) -> None:
    """If it were ignored, another cluster would be used."""
    (conf / "HADOOP_CONF_DIR/core-site.xml").write_text("<configuration>")
    with pytest.raises(OSError, match=r"core-site\.xml") as caught:
        HadoopSettings.from_environment()
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    ("text", "number"), [("8388608", 8388608), ("8M", 8 * 2**20), ("1g", 2**30), ("64KB", 2**16), ("", 7)]
)
def test_numbers(text: str, number: int) -> None:
    """With a unit or without; an empty text counts as missing."""
    assert HadoopSettings({"x": text}).number("x", 7) == number


@pytest.mark.parametrize("text", ["many", "-1", "1.5M", "M", "1x"])
def test_other_texts_are_no_numbers(text: str) -> None:
    """The message names the property."""
    with pytest.raises(OSError, match=r"dfs\.blocksize: expected") as caught:
        HadoopSettings({"dfs.blocksize": text}).number("dfs.blocksize", 7)
    assert caught.value.errno == errno.EINVAL


def test_a_bucket_has_settings_of_its_own() -> None:
    """They win; an endpoint without a scheme gets one."""
    given = HadoopSettings(
        {
            "fs.s3a.endpoint": "minio:9000",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.access.key": "everybody",
            "fs.s3a.bucket.own.access.key": "mine",
            "fs.s3a.bucket.own.endpoint": "https://s3.own",
            "fs.s3a.multipart.size": "1M",
        }
    )
    own, other = S3Settings.of_bucket("own", given), S3Settings.of_bucket("other", given)
    assert (own.access_key, own.endpoint) == ("mine", "https://s3.own")
    assert (other.access_key, other.endpoint) == ("everybody", "http://minio:9000")
    assert own.part_bytes == 5 * 2**20, "no store takes smaller parts"


@pytest.mark.parametrize(
    ("providers", "is_static", "is_anonymous"),
    [
        ("", True, False),
        ("org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider", True, False),
        ("com.amazonaws.auth.EnvironmentVariableCredentialsProvider", False, False),
        ("org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider", False, True),
        ("my.own.Provider, org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider", True, False),
    ],
)
def test_who_provides_keys(providers: str, is_static: bool, is_anonymous: bool) -> None:
    """Given keys count only where the chain takes them."""
    given = {
        "fs.s3a.access.key": "a",
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.aws.credentials.provider": providers,
    }
    found = S3Settings.of_bucket("b", HadoopSettings(given))
    assert (found.access_key == "a", found.anonymous) == (is_static, is_anonymous)


@pytest.mark.parametrize(
    "wrong", [{"aws.credentials.provider": "my.own.Provider"}, {"encryption.algorithm": "CSE-KMS"}]
)
def test_what_this_client_cannot_do_is_refused(wrong: dict[str, str]) -> None:
    """Otherwise other keys would be used, or data would be unencrypted."""
    with pytest.raises(OSError, match=next(iter(wrong.values())).rpartition(".")[2]) as caught:
        S3Settings.of_bucket("b", HadoopSettings({f"fs.s3a.{k}": text for k, text in wrong.items()}))
    assert caught.value.errno == errno.EINVAL


def test_no_text_shows_a_secret() -> None:
    """Neither of the settings nor of a storage."""
    given = HadoopSettings({"fs.s3a.access.key": "AKIA", "fs.s3a.secret.key": SECRET})
    for each in (given, S3Settings.of_bucket("b", given)):
        assert SECRET not in f"{each!r} {each}"
        assert "AKIA" not in f"{each!r} {each}"


def test_configured_settings_replace_those_of_the_environment(conf: Path) -> None:
    """On a worker, which may have other files."""
    site(conf / "HADOOP_CONF_DIR/core-site.xml", fs__x="environment")
    configure_storage(None)
    try:
        assert settings().get("fs.x") == "environment"
        configure_storage(HadoopSettings({"fs.x": "given"}))
        assert settings().get("fs.x") == "given"
    finally:
        configure_storage(None)


def test_a_location_without_a_name_node_needs_a_default() -> None:
    """It is refused before anything happens."""
    configure_storage(HadoopSettings({}))
    try:
        with pytest.raises(OSError, match=r"fs\.defaultFS") as caught:
            storage_at(Location.parse("hdfs:/w"))
        assert caught.value.errno == errno.EINVAL
    finally:
        configure_storage(None)
