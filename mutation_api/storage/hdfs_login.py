"""Login to HDFS: checks before ``hdfs-native`` connects, since that client's own errors are not specific
enough.

The client looks up a delegation token by the address that it connects to. In most tokens, Hadoop identifies
the NameNode by its IP address, so a token is overlooked if the location names the host. So the client is
given the address in the token. Without a token, the client accepts what the NameNode requires, even no
authentication. Hadoop refuses that, and so does this module. If the settings demand no security but the
NameNode requires Kerberos, the client waits for three minutes and then reports that the connection was cut.

The client reads tokens and tickets at each connection, so it uses renewed tickets.
"""

from __future__ import annotations

import datetime
import errno
import io
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metastore_client.delegation_token import DelegationToken, fields, read_delimited, texts
from mutation_api.storage.hadoop_settings import AUTHENTICATION, VARIABLE, HadoopSettings, hdfs_tokens

_ASK_SECONDS = 2.0
_MARGIN_MILLIS = 60_000
"""The client ignores a token that expires sooner than this."""
_SIMPLE = "SIMPLE"
_FALLBACK = "ipc.client.fallback-to-simple-auth-allowed"
_LINK = re.compile(r"fs\.viewfs\.mounttable\..+?\.link(Fallback$|\.)")
_URL = re.compile(r"(?P<start>hdfs://(?:[^/@]*@)?)(?P<authority>[^/]+)(?P<path>.*)", re.DOTALL)

_QUESTION = (
    b"hrpc\x09\x00\xdf"  # version 9, no service class, SASL
    b"\x00\x00\x00\x0e"
    b"\x0a\x08\x02\x10\x00\x18\x41\x22\x00\x28\x01"  # RpcRequestHeaderProto: call -33, which is for SASL
    b"\x02\x10\x01"  # RpcSaslProto: NEGOTIATE
)
_AUTHS, _METHOD = 4, 1
"""Field numbers of RpcSaslProto, and of the SaslAuth in it."""


@dataclass(frozen=True)
class _NameNode:
    """A NameNode, or all NameNodes of a name service.

    ``services`` are the service names in tokens for it, and ``addresses`` are its addresses.
    """

    services: Sequence[str]
    addresses: Sequence[str]


def log_in(url: str, settings: HadoopSettings) -> tuple[str, dict[str, str]]:
    """Return the URL and the properties with which the client authenticates this user.

    Raises:
        OSError: If the settings and the NameNode disagree on whether authentication is required (EACCES, a
            PermissionError), or if the token file cannot be read (EINVAL).
    """
    tokens = hdfs_tokens()
    properties = {**settings.properties, AUTHENTICATION: "kerberos" if settings.is_secure else "simple"}
    if not url.startswith("viewfs:"):
        return _addressed(url, settings, tokens), properties
    for name, target in settings.properties.items():
        if _LINK.match(name) and target.startswith("hdfs:"):
            properties[name] = _addressed(target, settings, tokens)
    return url, properties


def what_to_do() -> str:
    """Return advice for a user who was refused, including the tokens of this process."""
    advice = "get a ticket with kinit (see klist), or name a keytab in KRB5_CLIENT_KTNAME; "
    path = os.environ.get(VARIABLE)
    if not path:
        return f"{advice}{VARIABLE} is not set"
    try:
        found = ", ".join(_described(token) for token in hdfs_tokens())
    except OSError as error:
        return f"{advice}{path}: {error.strerror}"
    return f"{advice}{path} ({VARIABLE}) contains tokens for {found or 'no HDFS'}"


def _described(token: DelegationToken) -> str:
    last = datetime.datetime.fromtimestamp(token.last_millis / 1000, datetime.UTC)
    verb = "ends" if _is_fresh(token) else "ended"
    return f"{token.service} ({verb} {last:%Y-%m-%dT%H:%M:%SZ})"


def _is_fresh(token: DelegationToken) -> bool:
    return token.last_millis > time.time() * 1000 + _MARGIN_MILLIS


def _addressed(url: str, settings: HadoopSettings, tokens: Sequence[DelegationToken]) -> str:
    """Return the URL with the address in one of this process's tokens, if a token fits."""
    match = _URL.fullmatch(url)
    if match is None:
        return url  # the client reports the error
    name_node = _name_node(match["authority"], settings)
    services = [token.service for token in tokens if token.service in name_node.services]
    if services and not settings.is_secure:
        raise _refused(
            f"{os.environ[VARIABLE]} ({VARIABLE}) contains a token for it that would not be used, because "
            f"{_stated(settings)}",
            url,
        )
    usable = [t.service for t in tokens if t.service in services and _is_fresh(t)]
    _check_methods(name_node, settings, url, has_token=bool(usable))
    if usable and ":" in match["authority"]:
        return f"{match['start']}{usable[0]}{match['path']}"
    return url


def _name_node(authority: str, settings: HadoopSettings) -> _NameNode:
    if ":" in authority:
        return _NameNode([authority, *_resolved(authority)], [authority])
    names = (settings.get(f"dfs.ha.namenodes.{authority}") or "").split(",")
    addresses = [settings.get(f"dfs.namenode.rpc-address.{authority}.{name.strip()}") for name in names]
    return _NameNode([f"ha-hdfs:{authority}"], [address for address in addresses if address])


def _resolved(address: str) -> Iterator[str]:
    """Yield the address with the IP address of its host, as it appears in Hadoop's tokens."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return  # the client reports the error
    for *_, peer in found:
        yield f"{peer[0]!s}:{port}"


def _check_methods(name_node: _NameNode, settings: HadoopSettings, url: str, *, has_token: bool) -> None:
    """Raise an error if the settings and the NameNode disagree on whether authentication is required."""
    methods = next(filter(None, map(_methods, name_node.addresses)), None)
    if methods is None:
        return  # the client reports the error
    if not settings.is_secure and _SIMPLE not in methods:
        raise _refused(f"it requires {' or '.join(methods)}, but {_stated(settings)}", url)
    takes_anybody = _SIMPLE in methods and not has_token
    if settings.is_secure and takes_anybody and not settings.flag(_FALLBACK, default=False):
        raise _refused(f"it requires no authentication, but {_stated(settings)} ({_FALLBACK} allows it)", url)


def _stated(settings: HadoopSettings) -> str:
    return (
        f"{AUTHENTICATION} is {settings.get(AUTHENTICATION, 'simple')!r}; set it in core-site.xml in "
        f"HADOOP_CONF_DIR or with spark.hadoop.{AUTHENTICATION}"
    )


def _refused(why: str, url: str) -> PermissionError:
    return PermissionError(errno.EACCES, f"did not connect to the NameNode: {why}", url)


def _methods(address: str) -> list[str] | None:
    """Return a NameNode's login methods (SIMPLE, KERBEROS, TOKEN), or None if it does not report them."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _ASK_SECONDS) as connection:
            connection.sendall(_QUESTION)
            with connection.makefile("rb") as answer:
                answer.read(4)  # its length
                read_delimited(answer)  # RpcResponseHeaderProto
                said = read_delimited(answer)
        auths = [value for number, value in fields(io.BytesIO(said)) if number == _AUTHS]
        return [texts(io.BytesIO(auth))[_METHOD].decode() for auth in auths if isinstance(auth, bytes)]
    except (OSError, EOFError, ValueError, LookupError):
        return None
