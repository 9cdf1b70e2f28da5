"""Settings that secure and authenticate a connection, and the keys from which they are read. Pure.

A key ``hive.metastore.x`` may also be spelled ``metastore.x``, as servers and clients from 3.0 on allow.

=================================================  =========================================================
key (``metastore.…`` also works, as in 3.0)        meaning
=================================================  =========================================================
hive.metastore.use.SSL                             use TLS; HTTP becomes HTTPS
hive.metastore.truststore.path                     trusted certificates: JKS, PKCS #12 or PEM, recognised by
                                                   content. If not set, the authorities of this machine
hive.metastore.truststore.password                 password of the trust store
hive.metastore.sasl.enabled                        Kerberos, or a delegation token if there is one
hive.metastore.kerberos.principal                  the server's principal, ``hive/_HOST@REALM``
hive.metastore.token.signature                     service of the delegation token in the file that
                                                   HADOOP_TOKEN_FILE_LOCATION names
hadoop.rpc.protection                              protections that SASL may negotiate: authentication,
                                                   integrity, privacy
hive.metastore.client.auth.mode                    PLAIN: user and password; JWT: token in HMS_JWT (HTTP)
hive.metastore.client.plain.username               the user for PLAIN (the key named like the user contains
                                                   the password); for HTTP the user's name
hive.metastore.client.thrift.transport.mode        binary or http
hive.metastore.client.thrift.http.path             path of the HTTP address
hive.metastore.server.thrift.http.path             path of the HTTP address, if the key above is not set
hive.metastore.client.http.additional.headers      ``name=value,name=value``
=================================================  =========================================================

Source: HiveMetaStoreClient.open and MetastoreConf of Hive 4.1; 2.3 and 3.1 have the keys without HTTP and
    PLAIN. Checked against real servers in tests/integration/metastore/test_transport_judged.py.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from metastore_client.delegation_token import DelegationToken, read_token_file
from metastore_client.errors import InvalidConfigurationError


def text_of(values: Mapping[str, str], key: str) -> str:
    """Return a value without surrounding blanks, or '' if it is not set."""
    given = values.get(key) or values.get(key.removeprefix("hive."), "")
    return given.strip()


def number(values: Mapping[str, str], key: str, default: int) -> int:
    """Return a number >= 0.

    Raises:
        InvalidConfigurationError: If the value is not such a number. The message names the key.
    """
    text = text_of(values, key)
    if not text:
        return default
    if not text.isdecimal():
        raise InvalidConfigurationError(f"{key}: expected a number >= 0, got {text!r}")
    return int(text)


def flag(values: Mapping[str, str], key: str, default: bool) -> bool:
    """Return a boolean.

    Raises:
        InvalidConfigurationError: If the value is neither true nor false. The message names the key.
    """
    text = text_of(values, key).lower()
    if text not in ("", "true", "false"):
        raise InvalidConfigurationError(f"{key}: expected true or false, got {text!r}")
    return default if not text else text == "true"


USE_SSL = "hive.metastore.use.SSL"
TRUST_STORE_PATH = "hive.metastore.truststore.path"
TRUST_STORE_PASSWORD = "hive.metastore.truststore.password"
SASL_ENABLED = "hive.metastore.sasl.enabled"
KERBEROS_PRINCIPAL = "hive.metastore.kerberos.principal"
TOKEN_SIGNATURE = "hive.metastore.token.signature"
TOKEN_FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
RPC_PROTECTION = "hadoop.rpc.protection"
AUTH_MODE = "hive.metastore.client.auth.mode"
PLAIN_USER = "hive.metastore.client.plain.username"
JWT_VARIABLE = "HMS_JWT"
TRANSPORT_MODE = "hive.metastore.client.thrift.transport.mode"
HTTP_PATHS = ("hive.metastore.client.thrift.http.path", "hive.metastore.server.thrift.http.path")
"""The 4.1 server listens on the path of the first key; its Java client uses the path of the second."""
HTTP_PATH_DEFAULT = "metastore"
HTTP_HEADERS = "hive.metastore.client.http.additional.headers"

_HOST = "_HOST"


class Protection(enum.IntFlag):
    """The protection of the data after a SASL login. The numbers are those of RFC 4752."""

    AUTHENTICATION = 1
    INTEGRITY = 2
    PRIVACY = 4


ANY_PROTECTION = Protection.AUTHENTICATION | Protection.INTEGRITY | Protection.PRIVACY


@dataclass(frozen=True)
class TlsConfig:
    """TLS to the server.

    Args:
        trust_store: a file with the trusted certificates: PEM, or a Java key store (JKS or PKCS #12; the
            latter requires the extra ``pkcs12``). If None, the authorities that this machine trusts.
        trust_store_password: password of a Java key store. If None, a JKS is not checked for changes.
        verifies_host: True if the certificate must name the host of the address. False accepts any server
            that has a trusted certificate.
    """

    trust_store: Path | None = None
    trust_store_password: str | None = field(default=None, repr=False)
    verifies_host: bool = True


@dataclass(frozen=True)
class HttpConfig:
    """HTTP instead of plain TCP, which servers from 4.0 on can speak. With :class:`TlsConfig` it is HTTPS.

    Args:
        path: path of the server's address, with or without the leading slash.
        user: name to send as ``x-actor-username`` if there is no token. If empty, the configuration's user.
        bearer_token: a signed JWT.
        headers: additional headers, name and value.
    """

    path: str = HTTP_PATH_DEFAULT
    user: str = ""
    bearer_token: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class KerberosLogin:
    """Authentication by a Kerberos ticket, which must exist (``kinit``, or KRB5_CLIENT_KTNAME).

    ``principal`` is the server's principal, ``service/host@REALM``. ``_HOST`` stands for the host of the
    address.
    """

    principal: str

    def __post_init__(self) -> None:
        service, slash, rest = self.principal.partition("/")
        host, at, realm = rest.partition("@")
        if not all((service, slash, host, at, realm)):
            raise InvalidConfigurationError(
                f"{KERBEROS_PRINCIPAL}: expected the server's principal as service/host@REALM, for "
                f"example hive/_HOST@EXAMPLE.COM, got {self.principal!r}"
            )

    def principal_of(self, host: str) -> str:
        """Return the principal of the server on a host."""
        return self.principal.replace(f"/{_HOST}@", f"/{host.lower()}@")


@dataclass(frozen=True)
class TokenLogin:
    """Authentication by a delegation token, which a metastore issued to a user with a ticket."""

    token: DelegationToken


@dataclass(frozen=True)
class PlainLogin:
    """Authentication by a password. The server receives the password, so use it only with TLS."""

    user: str
    password: str = field(repr=False)


SaslLogin = KerberosLogin | TokenLogin | PlainLogin
"""A login by SASL."""


def read_tls(values: Mapping[str, str]) -> TlsConfig | None:
    """Read the TLS settings. Return None if TLS is off."""
    if not flag(values, USE_SSL, False):
        return None
    path = text_of(values, TRUST_STORE_PATH)
    return TlsConfig(
        trust_store=Path(path) if path else None,
        trust_store_password=text_of(values, TRUST_STORE_PASSWORD) or None,
    )


def read_http(values: Mapping[str, str]) -> HttpConfig | None:
    """Read the HTTP settings. Return None if the transport is plain TCP.

    Raises:
        InvalidConfigurationError: If the mode is unknown, if a header is malformed, or if JWT is set without
            HMS_JWT.
    """
    mode = text_of(values, TRANSPORT_MODE).lower() or "binary"
    if mode == "binary":
        return None
    if mode != "http":
        raise InvalidConfigurationError(f"{TRANSPORT_MODE}: expected binary or http, got {mode!r}")
    token = None
    if _auth_mode(values) == "JWT":
        token = os.environ.get(JWT_VARIABLE)
        if not token:
            raise InvalidConfigurationError(
                f"{AUTH_MODE} is JWT: a signed token must be in the environment variable {JWT_VARIABLE}"
            )
    return HttpConfig(
        path=next(filter(None, (text_of(values, key) for key in HTTP_PATHS)), HTTP_PATH_DEFAULT),
        user=text_of(values, PLAIN_USER),
        bearer_token=token,
        headers=_headers(text_of(values, HTTP_HEADERS)),
    )


def read_login(values: Mapping[str, str]) -> SaslLogin | None:
    """Read the login for a connection that is not HTTP.

    Return None if a user name is sent without authentication. A password takes precedence over Kerberos, and
    with Kerberos a delegation token takes precedence over a ticket, as in Hive.

    Raises:
        InvalidConfigurationError: If user, password or principal are missing, or if the mode is unknown.
    """
    mode = _auth_mode(values)
    if mode == "PLAIN":
        return _plain_login(values)
    if mode == "JWT":
        raise InvalidConfigurationError(f"{AUTH_MODE} is JWT, which requires {TRANSPORT_MODE}=http")
    if mode not in ("NOSASL", "KERBEROS"):
        raise InvalidConfigurationError(f"{AUTH_MODE}: expected NOSASL, PLAIN, KERBEROS or JWT, got {mode!r}")
    if not flag(values, SASL_ENABLED, False):
        return None
    token = _token_from_environment(text_of(values, TOKEN_SIGNATURE))
    if token is not None:
        return TokenLogin(token)
    return KerberosLogin(text_of(values, KERBEROS_PRINCIPAL))


def read_protections(values: Mapping[str, str]) -> Protection:
    """Read the protections that SASL may negotiate. If the key is not set, allow all; the server decides."""
    text = text_of(values, RPC_PROTECTION)
    found = Protection(0)
    for name in filter(None, (part.strip().upper() for part in text.split(","))):
        if name not in Protection.__members__:
            raise InvalidConfigurationError(
                f"{RPC_PROTECTION}: expected authentication, integrity or privacy, got {text!r}"
            )
        found |= Protection[name]
    return found or ANY_PROTECTION


def _auth_mode(values: Mapping[str, str]) -> str:
    return text_of(values, AUTH_MODE).upper() or "NOSASL"


def _plain_login(values: Mapping[str, str]) -> PlainLogin:
    user = text_of(values, PLAIN_USER)
    if not user:
        raise InvalidConfigurationError(f"{AUTH_MODE} is PLAIN, but {PLAIN_USER} is not set")
    if user not in values:
        raise InvalidConfigurationError(
            f"{AUTH_MODE} is PLAIN, but there is no password: no key is named {user!r}. Hadoop's credential "
            "providers (.jceks) are not read. Pass PlainLogin(user, password) to MetastoreConfig instead"
        )
    return PlainLogin(user, values[user])


def _token_from_environment(signature: str) -> DelegationToken | None:
    path = os.environ.get(TOKEN_FILE_VARIABLE)
    if not path:
        return None
    return next((token for token in read_token_file(Path(path)) if token.is_for_metastore(signature)), None)


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    headers = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = part.partition("=")
        if not (name.strip() and equals):
            raise InvalidConfigurationError(f"{HTTP_HEADERS}: expected name=value, got {part!r}")
        headers.append((name.strip(), value.strip()))
    return tuple(headers)
