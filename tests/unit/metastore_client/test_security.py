"""The security keys of a hive-site.xml."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest

from metastore_client.delegation_token import DelegationToken, read_token_file
from metastore_client.errors import InvalidConfigurationError, MissingExtraError
from metastore_client.hive_site import MetastoreConfig
from metastore_client.transport.security import (
    HttpConfig,
    KerberosLogin,
    PlainLogin,
    Protection,
    TlsConfig,
    TokenLogin,
)
from metastore_client.transport.tls import pkcs12, read_certificates

TLS_FILES = Path(__file__).parents[2] / "golden" / "tls"


def config_of(**values: str) -> MetastoreConfig:
    given = {"hive.metastore." + name.replace("__", "."): value for name, value in values.items()}
    return MetastoreConfig.from_mapping({"hive.metastore.uris": "thrift://a:1", **given})


def test_tls() -> None:
    """A trust store is optional; a configuration built by hand may switch off the check of host names."""
    assert config_of().tls is None
    assert config_of(use__SSL="true").tls == TlsConfig()
    config = config_of(use__SSL="true", truststore__path="/t.jks", truststore__password="secret")
    assert config.tls == TlsConfig(Path("/t.jks"), "secret")
    assert "secret" not in repr(config)


def test_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP has no framing and no set_ugi; the token comes from where Hive takes it."""
    config = config_of(
        client__thrift__transport__mode="HTTP",
        server__thrift__http__path="/hms",
        client__plain__username="etl",
        client__http__additional__headers="a=1, b = x=y",
        thrift__framed__transport__enabled="true",
    )
    assert config.http == HttpConfig("/hms", "etl", None, (("a", "1"), ("b", "x=y")))
    assert (config.is_framed, config.sets_user, config.login) == (False, False, None)
    both = {"server__thrift__http__path": "s", "client__thrift__http__path": "c"}
    assert config_of(client__thrift__transport__mode="http", **both).http == HttpConfig("c")
    monkeypatch.setenv("HMS_JWT", "abc.def.ghi")
    config = config_of(client__thrift__transport__mode="http", client__auth__mode="jwt")
    assert config.http == HttpConfig(bearer_token="abc.def.ghi")
    assert "abc.def" not in repr(config)
    with pytest.raises(InvalidConfigurationError, match=r"additional\.headers"):
        config_of(client__thrift__transport__mode="http", client__http__additional__headers="oops")


def test_keys_may_be_spelled_without_hive() -> None:
    """As servers and clients from 3.0 on do."""
    config = MetastoreConfig.from_mapping(
        {
            "metastore.thrift.uris": "thrift://a:1",
            "metastore.use.SSL": "true",
            "metastore.connect.retries": "9",
        }
    )
    assert (config.tls, config.connect_rounds) == (TlsConfig(), 9)


def test_a_password_is_the_value_of_the_key_named_like_the_user() -> None:
    """Which is what Hadoop falls back to without a credential provider."""
    values = {"hive.metastore.uris": "thrift://a:1", "etl": "secret"}
    values |= {"hive.metastore.client.auth.mode": "PLAIN", "hive.metastore.client.plain.username": "etl"}
    config = MetastoreConfig.from_mapping(values)
    assert config.login == PlainLogin("etl", "secret")
    assert not config.sets_user
    assert "secret" not in repr(config)


def test_a_token_goes_before_a_ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of the file's tokens that is for a metastore, with the configured signature."""
    settings = {"sasl__enabled": "true", "kerberos__principal": "hive/_HOST@R"}
    assert config_of(**settings).login == KerberosLogin("hive/_HOST@R")
    tokens = [
        written_token(b"h", b"x", b"HDFS_DELEGATION_TOKEN", b""),
        written_token(b"id", b"pw", b"HIVE_DELEGATION_TOKEN", b""),
        written_token(b"i" * 200, b"pw", b"HIVE_DELEGATION_TOKEN", b"sig"),
    ]
    file = tmp_path / "tokens"
    file.write_bytes(b"HDTS\0" + bytes([len(tokens)]) + b"".join(b"\x01n" + each for each in tokens) + b"\0")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(file))
    assert config_of(**settings).login == TokenLogin(DelegationToken(b"id", b"pw"))
    found = config_of(**settings, token__signature="sig").login
    assert isinstance(found, TokenLogin)
    assert found.token.identifier == b"i" * 200
    assert config_of(**settings, token__signature="other").login == KerberosLogin("hive/_HOST@R")
    for damaged in (b"HDTS\1", b"HDTS\0\x05\x01n", b"nope", b"HDTS\0\x88"):
        file.write_bytes(damaged)
        with pytest.raises(InvalidConfigurationError, match="tokens"):
            read_token_file(file)


def written_token(identifier: bytes, password: bytes, kind: bytes, service: bytes) -> bytes:
    def text(value: bytes) -> bytes:
        length = bytes([len(value)]) if len(value) < 128 else b"\x8f" + bytes([len(value)])
        return length + value

    return text(identifier) + text(password) + text(kind) + text(service)


def test_a_file_in_the_newer_format(tmp_path: Path) -> None:
    """Protobuf, in which unknown fields are skipped; other content is refused."""

    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(value)) + value

    def varint(number: int) -> bytes:
        return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])

    unknown = b"\x38\xff\x01" + b"\x41" + b"f" * 8 + b"\x4d" + b"i" * 4
    token = field(1, b"i" * 200) + field(2, b"pw") + field(3, b"HIVE_DELEGATION_TOKEN") + unknown
    secret = field(2, field(1, b"alias") + field(2, b"secret"))
    credentials = field(1, field(1, b"alias") + field(2, token + field(4, b"sig"))) + secret
    file = tmp_path / "tokens"
    content = b"HDTS\1" + varint(len(credentials)) + credentials
    file.write_bytes(content)
    assert read_token_file(file) == [DelegationToken(b"i" * 200, b"pw", service="sig")]
    for damaged in (content[:-1], b"HDTS\1\x02\x0b\x00", b"HDTS\1" + b"\xff" * 11, b"HDTS\2"):
        file.write_bytes(damaged)
        with pytest.raises(InvalidConfigurationError, match="tokens"):
            read_token_file(file)


def test_how_long_a_token_may_live() -> None:
    """The identifier contains it; a damaged identifier is refused."""
    identifier = b"\0\x03etl\x04yarn\0" + b"\x8a" + bytes(6) + b"\x8e\x03\xe8" + b"\1\1"
    assert DelegationToken(identifier, b"").last_millis == 1000
    with pytest.raises(InvalidConfigurationError, match="kind K for S is damaged"):
        _ = DelegationToken(b"\0\x09etl", b"", "K", "S").last_millis


def test_a_token_in_text_form() -> None:
    """Url-safe base64, whose padding Hadoop leaves out."""
    data = written_token(b"\xfb\xff", b"pw", b"HIVE_DELEGATION_TOKEN", b"")
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    assert DelegationToken.from_text(text) == DelegationToken(b"\xfb\xff", b"pw")
    for wrong in ("", "%%%", text[:8]):
        with pytest.raises(InvalidConfigurationError, match="not a delegation token"):
            DelegationToken.from_text(wrong)


def test_a_principal_needs_all_its_parts() -> None:
    """And _HOST is the host of the address."""
    assert KerberosLogin("hive/_HOST@R").principal_of("Node1.x") == "hive/node1.x@R"
    assert KerberosLogin("hive/m@R").principal_of("n") == "hive/m@R"
    for wrong in ("", "hive", "hive@R", "hive/@R", "hive/h"):
        with pytest.raises(InvalidConfigurationError, match="principal"):
            KerberosLogin(wrong)


def test_protections() -> None:
    """All, unless the key is set; none under TLS, which protects already."""
    values = {"hive.metastore.uris": "thrift://a:1"}
    assert MetastoreConfig.from_mapping(values).protections == Protection(7)
    values["hadoop.rpc.protection"] = "integrity, privacy"
    assert MetastoreConfig.from_mapping(values).protections == Protection.INTEGRITY | Protection.PRIVACY
    values["hive.metastore.use.SSL"] = "true"
    assert MetastoreConfig.from_mapping(values).protections == Protection.AUTHENTICATION


def test_trust_stores_say_the_same_in_every_form(tmp_path: Path) -> None:
    """PEM, JKS and PKCS #12 of one certificate; errors name the path of the file."""
    pem = read_certificates(TLS_FILES / "ca.pem")
    assert read_certificates(TLS_FILES / "trust.jks", "changeit") == pem
    assert read_certificates(TLS_FILES / "trust.jks") == pem
    if pkcs12 is None:
        with pytest.raises(MissingExtraError, match=r"hive-mutation-api\[pkcs12\]"):
            read_certificates(TLS_FILES / "trust.p12", "changeit")
    else:
        assert read_certificates(TLS_FILES / "trust.p12", "changeit") == pem
        with pytest.raises(InvalidConfigurationError, match="password"):
            read_certificates(TLS_FILES / "trust.p12", "wrong")
    with pytest.raises(InvalidConfigurationError, match="password is wrong"):
        read_certificates(TLS_FILES / "trust.jks", "wrong")
    with pytest.raises(InvalidConfigurationError, match="no trusted certificate"):
        read_certificates(TLS_FILES / "README.md")
    with pytest.raises(InvalidConfigurationError, match="cannot read"):
        read_certificates(tmp_path)
    whole = (TLS_FILES / "trust.jks").read_bytes()
    damaged = tmp_path / "damaged.jks"
    for content in (whole[:200], whole[:8] + struct.pack(">II", 1, 7) + whole[16:]):
        damaged.write_bytes(content)
        with pytest.raises(InvalidConfigurationError, match="damaged"):
            read_certificates(damaged)
