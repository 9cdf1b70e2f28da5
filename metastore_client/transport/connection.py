"""Connections to a metastore: addresses with failover, timeouts, sockets and HTTP.

A connection carries one call at a time, so every thread has its own. The heartbeat of a transaction thus
never waits behind a long commit. A connection is reused until its state is unknown. This is the case if it
broke, if an answer was not read to its end, or if encoding a request failed (its first bytes are still in the
buffer and would garble the next call). Then the connection is discarded.

A function opens the socket (:data:`OpenSocket`). :func:`open_socket` follows the configuration: plain TCP,
TLS, a SASL login, HTTP, and combinations of these.

With Thrift over HTTP, each call is a POST, and many calls use one connection. Thrift's own client was not
used: it opens a new connection for each call and mistakes an error page for an answer.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import io
import logging
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.protocol.TProtocol import TProtocolException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import (
    TBufferedTransport,
    TFramedTransport,
    TTransportBase,
    TTransportException,
)

from metastore_client.errors import (
    InvalidConfigurationError,
    MetastoreUnavailableError,
    SecureConnectionError,
)
from metastore_client.hive_site import Address, MetastoreConfig, UriSelection
from metastore_client.transport.sasl import DigestMd5, Kerberos, Mechanism, Plain, log_in
from metastore_client.transport.security import HttpConfig, KerberosLogin, TokenLogin
from metastore_client.transport.tls import TlsSocket, start_tls

USER_HEADER = "x-actor-username"

_CONTENT_TYPE = "application/x-thrift"
_MAX_REASON_CHARACTERS = 300
_REFUSALS = {http.client.UNAUTHORIZED: "the login", http.client.FORBIDDEN: "this user"}


def http_headers(config: HttpConfig, user: str) -> dict[str, str]:
    """Return the headers of every request.

    Args:
        config: the HTTP settings.
        user: user name for settings without a user.

    Raises:
        InvalidConfigurationError: If HTTP cannot carry a header.

    Source: HiveMetaStoreClient.createHttpClientBuilder of Hive 4.1: the user's name or a token, never both.
    """
    headers = {"Content-Type": _CONTENT_TYPE, "Accept": _CONTENT_TYPE}
    if config.bearer_token is None:
        headers[USER_HEADER] = config.user or user
    else:
        headers["Authorization"] = f"Bearer {config.bearer_token}"
    headers.update(config.headers)
    for name, value in headers.items():
        if not (
            value.isprintable() and value.isascii() and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)
        ):
            raise InvalidConfigurationError(f"cannot send HTTP header {name!r}: it must be printable ASCII")
    return headers


class HttpTransport(TTransportBase):  # type: ignore[misc]
    """A transport that makes calls over an open connection. A closed connection is discarded, not reopened.

    Args:
        connected: an open Thrift socket.
        host: the server's name, with the port.
        path: the path of the address.
        headers: the headers of every request.
    """

    def __init__(self, connected: Any, host: str, path: str, headers: dict[str, str]) -> None:
        self._connected = connected
        self._path = "/" + path.lstrip("/")
        self._headers = headers
        self._request = io.BytesIO()
        self._answer = io.BytesIO()
        self._http = http.client.HTTPConnection(host)
        self._http.sock = connected.handle
        self._http.auto_open = 0

    def isOpen(self) -> bool:  # noqa: N802 - Thrift's name
        """Return True if the server has not closed its end.

        It closes connections that have been idle for a long time.
        """
        return self._http.sock is not None and bool(self._connected.isOpen())

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
        self._connected.close()

    def write(self, data: bytes) -> None:
        """Append data to the next request."""
        self._request.write(data)

    def flush(self) -> None:
        """Send the request and receive the answer.

        Raises:
            TTransportException: If the connection broke or the server failed. The call may have taken effect.
            SecureConnectionError: If the server refuses the login. No call was made.
            MetastoreUnavailableError: If there is no metastore at this path.
        """
        body = self._request.getvalue()
        self._request = io.BytesIO()
        try:
            self._http.request("POST", self._path, body, self._headers)
            response = self._http.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise TTransportException(message=f"HTTP: {error or type(error).__name__}") from error
        if response.status != http.client.OK:
            self.close()
            raise self._failure(response, answer)
        self._answer = io.BytesIO(answer)

    def read(self, count: int) -> bytes:
        """Return at most ``count`` bytes of the answer.

        Raises:
            TTransportException: If the answer has no more bytes.
        """
        found = self._answer.read(count)
        if not found:
            raise TTransportException(TTransportException.END_OF_FILE, "HTTP: the answer is truncated")
        return found

    def _failure(self, response: http.client.HTTPResponse, answer: bytes) -> Exception:
        text = f"HTTP: POST {self._path} was answered {response.status} {response.reason}: {_reason(answer)}"
        if response.status in _REFUSALS:
            return SecureConnectionError(f"the server refuses {_REFUSALS[response.status]}; {text}")
        if response.status in (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED):
            return MetastoreUnavailableError(f"there is no metastore at this path; {text}")
        failure: Exception = TTransportException(message=text)
        return failure


def _reason(answer: bytes) -> str:
    """Return the text of an error page, or its title."""
    text = answer.decode("utf-8", errors="replace")
    title = re.search(r"<title>(.*?)</title>", text, re.DOTALL | re.IGNORECASE)
    return " ".join(html.unescape(title[1] if title else text).split())[:_MAX_REASON_CHARACTERS]


_log = logging.getLogger(__name__)
_HUNG_UP = "; a server that hangs up immediately may expect TLS, SASL, HTTP, the compact protocol or framing"

OpenSocket = Callable[[Address, MetastoreConfig], Any]
"""A function that opens a connection to an address and returns it as a Thrift transport.

It raises OSError or MetastoreUnavailableError if another address may work, and other errors if none will.
"""


def open_socket(address: Address, config: MetastoreConfig) -> Any:
    """Open a connection as the configuration specifies.

    Raises:
        OSError: If the server cannot be reached.
        SecureConnectionError: If TLS or the login failed.
        MetastoreUnavailableError: If the connection broke during the login.
        InvalidConfigurationError: If a trust store or a header is invalid, or if a package is missing.
    """
    handle = socket.create_connection(address, config.connect_timeout_seconds)
    try:
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if config.tls is not None:
            handle = start_tls(handle, address.host, config.tls)
        bare = (TSocket if config.tls is None else TlsSocket)(address.host, address.port)
        bare.setHandle(handle)
        transport = _dressed(bare, address, config)
        bare.setTimeout(config.socket_timeout_seconds * 1000)
    except TTransportException as error:
        handle.close()
        raise MetastoreUnavailableError(f"the connection broke during the login: {error}") from error
    except BaseException:
        handle.close()
        raise
    return transport


def _dressed(bare: Any, address: Address, config: MetastoreConfig) -> Any:
    """Wrap a socket in HTTP or SASL, if configured."""
    if config.http is not None:
        host = f"[{address.host}]" if ":" in address.host else address.host
        headers = http_headers(config.http, config.user)
        return HttpTransport(bare, f"{host}:{address.port}", config.http.path, headers)
    if config.login is not None:
        return log_in(bare, _mechanism(address, config))
    return bare


def _mechanism(address: Address, config: MetastoreConfig) -> Mechanism:
    login = config.login
    assert login is not None
    if isinstance(login, KerberosLogin):
        return Kerberos(login, address.host, config.protections)
    if isinstance(login, TokenLogin):
        return DigestMd5(login.token, config.protections)
    return Plain(login)


class Connection:
    """An open connection to one server. ``protocol`` is for the generated Thrift clients.

    ``settings`` contains the settings that the server has reported. They do not change until the server
    restarts, which ends the connection.
    """

    def __init__(self, address: Address, config: MetastoreConfig, open_socket: OpenSocket) -> None:
        self.address = address
        self.settings: dict[tuple[str, str], str] = {}
        self._socket = open_socket(address, config)
        framing = TFramedTransport if config.is_framed else TBufferedTransport
        encoding = _Compact if config.is_compact else _Binary
        self._transport = framing(self._socket)
        self.protocol = encoding(self._transport)

    def is_open(self) -> bool:
        """Return True if the server has not closed its end.

        This looks into the socket's buffer, without a round trip.
        """
        return bool(self._socket.isOpen())

    def close(self) -> None:
        """Close the connection and ignore errors."""
        with contextlib.suppress(OSError):
            self._socket.close()


class _AnswersOfTheirCalls:
    """A protocol that refuses the answer to another call, which the generated clients would decode."""

    _called = ""

    def writeMessageBegin(self, name: str, kind: int, sequence: int) -> None:  # noqa: N802
        """Begin to write a call."""
        self._called = name
        super().writeMessageBegin(name, kind, sequence)  # type: ignore[misc]

    def readMessageBegin(self) -> tuple[str, int, int]:  # noqa: N802
        """Begin to read the answer to the call.

        Raises:
            TProtocolException: If it is the answer to another call.
        """
        name, kind, sequence = super().readMessageBegin()  # type: ignore[misc]
        if name != self._called:
            raise TProtocolException(TProtocolException.INVALID_DATA, f"received an answer to {name!r}")
        return name, kind, sequence


class _Binary(_AnswersOfTheirCalls, TBinaryProtocolAccelerated):  # type: ignore[misc]
    """The binary protocol, which is the usual one."""


class _Compact(_AnswersOfTheirCalls, TCompactProtocolAccelerated):  # type: ignore[misc]
    """The compact protocol."""


class ConnectionPool:
    """A pool with one connection per thread, which is made when it is first needed.

    Args:
        config: settings of the connection.
        on_connect: function to call once with each new connection before its first use. It may raise the
            errors of a call.
        open_socket: function that opens a socket.
        sleep: function that waits between two rounds over the addresses.
    """

    def __init__(
        self,
        config: MetastoreConfig,
        on_connect: Callable[[Connection], None],
        *,
        open_socket: OpenSocket = open_socket,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._on_connect = on_connect
        self._open_socket = open_socket
        self._sleep = sleep
        self._mutex = threading.Lock()
        self._connections: dict[tuple[int, threading.Thread], Connection] = {}
        self._avoided: Address | None = None
        self._is_closed = False

    def get(self) -> Connection:
        """Return this thread's connection. Make a new one if there is none or if the server has closed it.

        Raises:
            MetastoreUnavailableError: If no address answered in any round, or if the pool is closed.
        """
        with self._mutex:
            if self._is_closed:
                raise MetastoreUnavailableError("this metastore client is closed")
            connection = self._connections.get(_owner())
        if connection is not None:
            if connection.is_open():
                return connection
            self.discard(connection)
        return self._connect()

    def discard(self, connection: Connection) -> None:
        """Discard a connection. The next one is made to another address first, if there is one."""
        connection.close()
        with self._mutex:
            self._avoided = connection.address
            self._connections = {o: c for o, c in self._connections.items() if c is not connection}

    def give_back(self) -> None:
        """Close this thread's connection, if it has one."""
        with self._mutex:
            connection = self._connections.pop(_owner(), None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections, including those of other threads. May be called more than once."""
        with self._mutex:
            self._is_closed = True
            connections = list(self._connections.values())
            self._connections = {}
        for connection in connections:
            connection.close()

    def _connect(self) -> Connection:
        failures: dict[Address, Exception] = {}
        for at_round in range(self._config.connect_rounds):
            if at_round > 0:
                self._sleep(self._config.connect_retry_delay_seconds)
            for address in self._order():
                try:
                    return self._connect_to(address)
                except (OSError, MetastoreUnavailableError) as error:
                    _log.info("cannot connect to %s: %s", address, error)
                    failures[address] = error
            if all(isinstance(error, SecureConnectionError) for error in failures.values()):
                break  # the error is the same in every round
        tried = "; ".join(
            f"{address}: {error or type(error).__name__}" for address, error in failures.items()
        )
        insecure = [error for error in failures.values() if isinstance(error, SecureConnectionError)]
        if insecure:
            raise SecureConnectionError(f"no secure connection to a metastore ({tried})") from insecure[0]
        raise MetastoreUnavailableError(
            f"no metastore answered in {self._config.connect_rounds} round(s) over the addresses ({tried})"
            + (f"; the addresses were {self._config.origin}" if self._config.origin else "")
            + (_HUNG_UP if any(map(_may_have_hung_up, failures.values())) else "")
        )

    def _connect_to(self, address: Address) -> Connection:
        connection = Connection(address, self._config, self._open_socket)
        try:
            self._on_connect(connection)
        except BaseException:
            connection.close()
            raise
        with self._mutex:
            if self._is_closed:
                connection.close()
                raise MetastoreUnavailableError("this metastore client is closed")
            self._close_connections_of_dead_threads()
            self._connections[_owner()] = connection
        return connection

    def _order(self) -> list[Address]:
        """Return the addresses in the order to try. The one that failed last is at the end."""
        addresses = list(self._config.addresses)
        if self._config.selection is UriSelection.RANDOM:
            random.shuffle(addresses)
        return sorted(addresses, key=lambda address: address == self._avoided)

    def _close_connections_of_dead_threads(self) -> None:
        for owner, connection in list(self._connections.items()):
            pid, thread = owner
            if pid == os.getpid() and not thread.is_alive():
                connection.close()
                del self._connections[owner]


def _owner() -> tuple[int, threading.Thread]:
    """Return the owner of a connection: process and thread.

    A forked child must not use the connection of its parent.
    """
    return os.getpid(), threading.current_thread()


def _may_have_hung_up(error: Exception) -> bool:
    """Return True if an address was reached. An OSError other than a reset means that it was not."""
    return isinstance(error, ConnectionResetError | MetastoreUnavailableError)
