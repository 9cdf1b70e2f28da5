"""Logins by Kerberos and by delegation token at a real metastore of Hive 2.3, with a key server of our own.

Runs with ``--kerberos`` only: see tests/fixtures/fix_kerberos.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from thrift.Thrift import TMessageType, TType

from metastore_client.delegation_token import DelegationToken
from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.errors import SecureConnectionError
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote.thrift_client import open_client
from metastore_client.transport.connection import Connection, open_socket
from metastore_client.transport.security import Protection, TokenLogin
from tests.fixtures.fix_kerberos import REALM, KeyServer
from tests.integration.metastore.test_transport_judged import check_calls, client_of

pytestmark = [pytest.mark.kerberos, pytest.mark.slow]

SERVER = f"hive/localhost@{REALM}"
SASL = {
    "hive.metastore.sasl.enabled": "true",
    "hive.metastore.kerberos.principal": f"hive/_HOST@{REALM}",
}
CORE_SITE = """<configuration>
<property><name>hadoop.security.authentication</name><value>kerberos</value></property>
<property><name>hadoop.rpc.protection</name><value>authentication,integrity,privacy</value></property>
</configuration>"""


@pytest.fixture(scope="module")
def kerberos(key_server: KeyServer) -> Iterator[KeyServer]:
    """A key server with keys for the server and for ``etl``, whose ticket this process has."""
    (key_server.folder / "core-site.xml").write_text(CORE_SITE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", f"FILE:{key_server.ticket('etl')}")
        # Hadoop takes it from the class path alone, not from settings of the metastore.
        options = f"{os.environ['JDK_JAVA_OPTIONS']} -Xbootclasspath/a:{key_server.folder}"
        patch.setenv("JDK_JAVA_OPTIONS", options)
        yield key_server


@pytest.fixture(scope="module")
def uri(kerberos: KeyServer) -> Iterator[str]:
    """A metastore that asks for Kerberos."""
    settings = {
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": SERVER,
        "hive.metastore.kerberos.keytab.file": str(kerberos.keytab("hive/localhost")),
    }
    with EmbeddedMetastore(kerberos.folder / "metastore", configuration=settings) as metastore:
        yield metastore.uri.replace("127.0.0.1", "localhost")


@pytest.mark.parametrize("protection", ["authentication", "integrity", "privacy", ""])
def test_a_ticket_opens_the_door(uri: str, protection: str) -> None:
    """With every protection, and with the strongest that the server offers."""
    with client_of(uri, SASL, {"hadoop.rpc.protection": protection}) as client:
        check_calls(client)


def test_no_ticket_no_login(uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And a server that the key server does not know is not talked to."""
    unknown = {**SASL, "hive.metastore.kerberos.principal": f"hive/elsewhere@{REALM}"}
    with pytest.raises(SecureConnectionError, match="hive/elsewhere"), client_of(uri, unknown):
        pass
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'none'}")
    with pytest.raises(SecureConnectionError, match="see klist and kinit"), client_of(uri, SASL):
        pass


def test_a_delegation_token_needs_no_ticket(
    uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server gives one to who has a ticket; signed or not, but not with a wrong password."""
    token = DelegationToken.from_text(token_from(uri, SASL))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'none'}")
    addresses = MetastoreConfig.from_uris(uri).addresses
    for protection in (Protection.AUTHENTICATION, Protection.INTEGRITY):
        config = MetastoreConfig(addresses, login=TokenLogin(token), protections=protection)
        with open_client(config) as client:
            check_calls(client)
    wrong = DelegationToken(token.identifier, b"guess")
    with pytest.raises(SecureConnectionError, match="DIGEST-MD5"):
        open_client(MetastoreConfig(addresses, login=TokenLogin(wrong)))


def token_from(uri: str, settings: Mapping[str, str]) -> str:
    """Ask for a token; the product has no call for it."""
    config = MetastoreConfig.from_mapping({**settings, "hive.metastore.uris": uri})
    connection = Connection(config.addresses[0], config, open_socket)
    protocol = connection.protocol
    protocol.writeMessageBegin("get_delegation_token", TMessageType.CALL, 1)
    protocol.writeStructBegin("args")
    for number, text in ((1, "etl"), (2, "etl")):
        protocol.writeFieldBegin("", TType.STRING, number)
        protocol.writeString(text)
        protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeMessageEnd()
    protocol.trans.flush()
    assert protocol.readMessageBegin()[1] == TMessageType.REPLY
    protocol.readStructBegin()
    _, kind, number = protocol.readFieldBegin()
    assert (kind, number) == (TType.STRING, 0), "the server gives no token"
    text = str(protocol.readString())
    connection.close()
    return text
