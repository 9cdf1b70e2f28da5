"""Reading configurations."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from metastore_client.errors import InvalidConfigurationError
from metastore_client.hive_site import (
    Address,
    MetastoreConfig,
    UriSelection,
    parse_duration_seconds,
    read_hive_site,
)

URIS = "hive.metastore.uris"


def write_site(folder: Path, **values: str) -> Path:
    entries = "".join(
        f"<property><name>{k.replace('__', '.')}</name><value>{v}</value></property>"
        for k, v in values.items()
    )
    file = folder / "hive-site.xml"
    file.write_text(f"<?xml version='1.0'?><configuration>{entries}</configuration>")
    return file


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("thrift://a:1", [("a", 1)]),
        ("thrift://a:1, thrift://b.c:2", [("a", 1), ("b.c", 2)]),
        ("a", [("a", 9083)]),
        ("thrift://[::1]:5/", [("::1", 5)]),
        ("thrift://a:1,thrift://a:1", [("a", 1)]),
    ],
)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    """A list with commas; the port may be left out; doubles count once."""
    assert MetastoreConfig.from_uris(text).addresses == tuple(Address(*each) for each in addresses)


@pytest.mark.parametrize("text", ["", ",", "http://a:1", "thrift://a:x", "thrift://a:70000", "thrift://"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """The error shows the text."""
    with pytest.raises(InvalidConfigurationError):
        MetastoreConfig.from_uris(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("300", 300.0), ("300s", 300.0), (" 5 min ", 300.0), ("100ms", 0.1), ("1d", 86400.0)],
        *[("2h", 7200.0), ("1.5m", 90.0), ("7 seconds", 7.0), ("10us", 1e-5), ("2 HOURS", 7200.0)],
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """Hive's units, with and without a space, short and long."""
    assert parse_duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "-1s", "1e3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Rather than taken for zero."""
    with pytest.raises(InvalidConfigurationError, match="not a duration"):
        parse_duration_seconds(text)


def test_all_keys_are_read() -> None:
    """Each key that decides about the connection."""
    config = MetastoreConfig.from_mapping(
        {
            URIS: "thrift://a:1",
            "hive.metastore.uri.selection": "sequential",
            "hive.metastore.client.socket.timeout": "20m",
            "hive.metastore.connect.retries": "7",
            "hive.metastore.client.connect.retry.delay": "500ms",
            "hive.metastore.failure.retries": "4",
            "hive.metastore.thrift.compact.protocol.enabled": "true",
            "hive.metastore.thrift.framed.transport.enabled": "TRUE",
            "hive.metastore.execute.setugi": "false",
        }
    )
    assert config.selection is UriSelection.SEQUENTIAL
    assert (config.socket_timeout_seconds, config.connect_retry_delay_seconds) == (1200.0, 0.5)
    assert (config.connect_rounds, config.failure_retries) == (7, 4)
    assert (config.is_compact, config.is_framed, config.sets_user) == (True, True, False)


def test_defaults_are_hives() -> None:
    """Missing keys have Hive's defaults."""
    config = MetastoreConfig.from_mapping({URIS: "thrift://a:1"})
    assert config.selection is UriSelection.RANDOM
    assert (config.socket_timeout_seconds, config.connect_rounds, config.failure_retries) == (600.0, 3, 1)
    assert (config.is_compact, config.is_framed, config.sets_user) == (False, False, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hive.metastore.uri.selection", "ROUND_ROBIN"),
        ("hive.metastore.client.socket.timeout", "soon"),
        ("hive.metastore.connect.retries", "many"),
        ("hive.metastore.thrift.framed.transport.enabled", "yes"),
        ("hive.metastore.use.SSL", "1"),
        ("hive.metastore.client.thrift.transport.mode", "udp"),
        ("hive.metastore.client.auth.mode", "LDAP"),
        ("hive.metastore.client.auth.mode", "JWT"),
        ("hive.metastore.client.auth.mode", "PLAIN"),
        ("hadoop.rpc.protection", "none"),
    ],
)
def test_a_value_that_makes_no_sense_names_its_key(key: str, value: str) -> None:
    """Also one that is invalid without another."""
    with pytest.raises(InvalidConfigurationError, match=key.replace(".", r"\.")):
        MetastoreConfig.from_mapping({URIS: "thrift://a:1", key: value})


def test_no_address_is_refused() -> None:
    """The error names the key to set."""
    with pytest.raises(InvalidConfigurationError, match=r"hive\.metastore\.uris"):
        MetastoreConfig.from_mapping({})


def test_a_file_is_found_by_path_folder_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HIVE_CONF_DIR goes before HADOOP_CONF_DIR."""
    hive, hadoop = tmp_path / "hive", tmp_path / "hadoop"
    for folder, host in ((hive, "h"), (hadoop, "d")):
        folder.mkdir()
        write_site(folder, hive__metastore__uris=f"thrift://{host}:1")
    assert MetastoreConfig.load(hive).addresses[0].host == "h"
    assert MetastoreConfig.load(str(hive / "hive-site.xml")).addresses[0].host == "h"
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop))
    monkeypatch.delenv("HIVE_CONF_DIR", raising=False)
    assert MetastoreConfig.load(None).addresses[0].host == "d"
    monkeypatch.setenv("HIVE_CONF_DIR", str(hive))
    assert MetastoreConfig.load(None).addresses[0].host == "h"
    monkeypatch.setenv("HIVE_CONF_DIR", str(tmp_path / "nowhere"))
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(InvalidConfigurationError, match="nowhere"):
        MetastoreConfig.load(None)


def test_every_kind_of_source_is_taken() -> None:
    """Text, mapping and configuration; a user given wins."""
    config = MetastoreConfig.load("thrift://a:1", user="me")
    assert config.user == "me"
    assert MetastoreConfig.load(config) is config
    assert MetastoreConfig.load({URIS: "thrift://a:1"}, user="me") == config


def test_the_user_is_hadoops_if_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """HADOOP_USER_NAME names the user on a cluster without Kerberos."""
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    assert MetastoreConfig.from_uris("thrift://a:1").user == "etl"


def test_references_in_a_file_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To other keys and to the environment; an unknown reference stays, a circular one ends."""
    monkeypatch.setenv("PORT", "77")
    file = write_site(
        tmp_path, host="a", uri="thrift://${host}:${env:PORT}", lost="${nothing}", one="${two}", two="${one}"
    )
    values = read_hive_site(file)
    assert values["uri"] == "thrift://a:77"
    assert values["lost"] == "${nothing}"
    assert values["one"].startswith("${")


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    "values",
    [
        {"a": "${a}${a}"},
        {"a": "${a} and ${a} and ${a}"},
        {"a": "${b}${b}", "b": "${a}${a}"},
        {"k0": "x" * 1000, **{f"k{n}": f"${{k{n - 1}}}" * 10 for n in range(1, 10)}},
        {"a": "${b}" * 24_000, "b": "${c}" * 24_000, "c": "x" * 99_000},
        {"a": "${env:LONG}" * 10_000},
    ],
)
def test_references_make_no_endless_value(
    tmp_path: Path, values: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names file and key, before the value is made."""
    monkeypatch.setenv("LONG", "x" * 50_000)
    file = write_site(tmp_path, **values)
    tracemalloc.start()
    try:
        with pytest.raises(
            InvalidConfigurationError, match=r"hive-site\.xml: the value of \w+ has more than"
        ):
            read_hive_site(file)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_long_value_without_references_is_as_it_is(tmp_path: Path) -> None:
    """The file's own size bounds it."""
    assert read_hive_site(write_site(tmp_path, a="x" * 300_000, b="${user.name}"))["a"] == "x" * 300_000


@pytest.mark.parametrize("text", ["", "<configuration>", "<other/>"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """The error names the file."""
    (tmp_path / "hive-site.xml").write_text(text)
    with pytest.raises(InvalidConfigurationError, match=r"hive-site\.xml"):
        read_hive_site(tmp_path)
    with pytest.raises(InvalidConfigurationError, match="no such file"):
        read_hive_site(tmp_path / "missing.xml")


def test_a_duration_without_end_is_refused() -> None:
    """It would become infinity, and waits of it fail."""
    with pytest.raises(InvalidConfigurationError, match="not a duration"):
        parse_duration_seconds("9" * 400)
