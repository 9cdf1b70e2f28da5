"""Encrypted, authenticated and other connections, to real metastores of Hive 2.3 and 4.1."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive41
from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.errors import MetastoreUnavailableError, SecureConnectionError
from metastore_client.model import TxnState
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from tests.fixtures.fix_judge import started

pytestmark = pytest.mark.slow

TLS_FILES = Path(__file__).parents[2] / "golden" / "tls"
PASSWORD = "changeit"
TLS_SERVER = {
    "hive.metastore.use.SSL": "true",
    "hive.metastore.keystore.path": str(TLS_FILES / "server.p12"),
    "hive.metastore.keystore.password": PASSWORD,
}
TLS_CLIENT = {
    "hive.metastore.use.SSL": "true",
    "hive.metastore.truststore.path": str(TLS_FILES / "trust.jks"),
    "hive.metastore.truststore.password": PASSWORD,
}
OTHER = {"hive.metastore.truststore.path": str(TLS_FILES / "other_ca.pem")}
HTTP = {"hive.metastore.client.thrift.transport.mode": "http"}


@contextlib.contextmanager
def client_of(
    uri: str, *settings: Mapping[str, str], user: str | None = None
) -> Iterator[ThriftMetastoreClient]:
    values = {"hive.metastore.uris": uri}
    for each in settings:
        values.update(each)
    with open_client(values, user=user) as client:
        yield client


def check_calls(client: ThriftMetastoreClient) -> None:
    """A transaction, many calls, and one with a long request and a long answer."""
    txn_id = client.open_txn(user="etl", hostname="here", agent_info="test")
    long_text = "".join(chr(33 + at % 90) for at in range(300_000))
    assert client.get_config_value("hive.no.such.key", long_text) == long_text
    for _ in range(20):
        states = {txn.id: txn.state for txn in client.get_open_txns().txns}
        assert states[txn_id] is TxnState.OPEN
    client.abort_txn(txn_id)


@pytest.fixture(scope="module")
def https_uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A metastore of Hive 4.1 that speaks HTTPS."""
    settings = {
        **TLS_SERVER,
        # Over HTTP the server has no defaults for these two and does not say that they are missing.
        "hive.metastore.keystore.type": "PKCS12",
        "hive.metastore.keymanagerfactory.algorithm": "SunX509",
        "hive.metastore.server.thrift.transport.mode": "http",
        "hive.metastore.client.thrift.http.path": "hms",  # the server takes its path from the client's key
    }
    with started(Hive41, request, tmp_path_factory, settings) as judge:
        yield judge.uri


@pytest.mark.feature("metastore behind HTTPS", lines=["4.1"])
def test_https(https_uri: str) -> None:
    """With the path and the trust store of the keys; the user in a header is the one the server sees."""
    path = {"hive.metastore.client.thrift.http.path": "hms"}
    with client_of(https_uri, HTTP, TLS_CLIENT, path) as client:
        assert client.capabilities().has_exclusive_write_lock
        check_calls(client)
    with (
        pytest.raises(MetastoreUnavailableError, match=r"no metastore at this path|was answered 4"),
        client_of(https_uri, HTTP, TLS_CLIENT),
    ):
        pass
    with (
        pytest.raises(SecureConnectionError, match="certificate"),
        client_of(https_uri, HTTP, TLS_CLIENT, OTHER),
    ):
        pass


@pytest.mark.long
@pytest.mark.feature("metastore behind TLS", "metastore with user and password", lines=["4.1"])
def test_tls_and_password(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hive 4.1, which then knows who we are; a wrong password, or none, is no login."""
    settings = {
        **TLS_SERVER,
        "metastore.authentication": "CONFIG",
        "metastore.authentication.config.username": "etl",
        "metastore.authentication.config.password": "secret",
        "metastore.execute.setugi": "false",  # the server insists
    }
    plain = {
        "hive.metastore.client.auth.mode": "PLAIN",
        "hive.metastore.client.plain.username": "etl",
        "etl": "secret",
    }
    with started(Hive41, request, tmp_path_factory, settings) as judge:
        with client_of(judge.uri, TLS_CLIENT, plain) as client:
            check_calls(client)
        for wrong in ({**plain, "etl": "guess"}, {}):
            with pytest.raises(MetastoreUnavailableError) as caught, client_of(judge.uri, TLS_CLIENT, wrong):
                pass
            assert isinstance(caught.value, SecureConnectionError) == bool(wrong)


@pytest.mark.feature("metastore behind TLS", lines=["2.3"])
@pytest.mark.long
def test_tls(tmp_path: Path) -> None:
    """Hive 2.3, with compact protocol and framing inside."""
    inside = {
        "hive.metastore.thrift.compact.protocol.enabled": "true",
        "hive.metastore.thrift.framed.transport.enabled": "true",
    }
    configuration = {**TLS_SERVER, **TLS_CLIENT, **inside}
    with EmbeddedMetastore(tmp_path, configuration=configuration) as metastore:
        with client_of(metastore.uri, TLS_CLIENT, inside) as client:
            check_calls(client)
        with (
            pytest.raises(SecureConnectionError, match="certificate"),
            client_of(metastore.uri, TLS_CLIENT, OTHER),
        ):
            pass
        with pytest.raises(MetastoreUnavailableError, match="TLS"), client_of(metastore.uri, inside):
            pass
