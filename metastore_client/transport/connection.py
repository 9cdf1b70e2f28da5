"""Connections to a metastore: addresses with failover, time limits, one connection per thread.

A connection carries one call at a time, so every thread has its own. The heartbeat of a transaction thus
never waits behind a long commit. A connection is reused until its state is unknown: it broke, an answer was
not read to its end, or a request failed while it was being encoded (its first bytes are still in the buffer
and would garble the next call). Then it is thrown away.

One function opens a socket (:data:`OpenSocket`). :func:`open_socket` follows the configuration: bare TCP,
TLS, a login by SASL, HTTP and their combinations.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.protocol.TProtocol import TProtocolException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TFramedTransport, TTransportException

from metastore_client.errors import MetastoreUnavailableError, SecureConnectionError
from metastore_client.hive_site import Address, MetastoreConfig, UriSelection
from metastore_client.transport.http_transport import HttpTransport, http_headers
from metastore_client.transport.sasl import DigestMd5, Mechanism, Plain, log_in
from metastore_client.transport.sasl_kerberos import Kerberos
from metastore_client.transport.security import KerberosLogin, TokenLogin
from metastore_client.transport.tls import TlsSocket, start_tls

__all__ = ["Connection", "ConnectionPool", "OpenSocket", "open_socket"]

_log = logging.getLogger(__name__)
_HUNG_UP = "; a server that hangs up at once may expect TLS, SASL, HTTP, the compact protocol or framing"

OpenSocket = Callable[[Address, MetastoreConfig], Any]
"""Opens a connection to an address and returns it as a Thrift transport.

Raises OSError or MetastoreUnavailableError if another address may work, other errors if none will.
"""


def open_socket(address: Address, config: MetastoreConfig) -> Any:
    """Connect as the configuration says.

    Raises:
        OSError: the server cannot be reached.
        SecureConnectionError: TLS or the login failed.
        MetastoreUnavailableError: the connection broke during the login.
        InvalidConfigurationError: a trust store or a header is invalid, or a package is missing.
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
    """Wrap a bare socket in HTTP or SASL, if configured."""
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
    """An open connection to one server; ``protocol`` is for the generated Thrift clients.

    ``settings`` holds what the server has told of its settings. They stay as they are until it starts again,
    which ends the connection.
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
        """Whether the server has its end open; a look into the socket's buffer, without a round trip."""
        return bool(self._socket.isOpen())

    def close(self) -> None:
        """Close it; errors are ignored."""
        with contextlib.suppress(OSError):
            self._socket.close()


class _AnswersOfTheirCalls:
    """A protocol that refuses the answer to another call, which the generated clients would decode."""

    _called = ""

    def writeMessageBegin(self, name: str, kind: int, sequence: int) -> None:  # noqa: N802
        """Begin a call."""
        self._called = name
        super().writeMessageBegin(name, kind, sequence)  # type: ignore[misc]

    def readMessageBegin(self) -> tuple[str, int, int]:  # noqa: N802
        """Begin its answer. Raises TProtocolException: it is that of another call."""
        name, kind, sequence = super().readMessageBegin()  # type: ignore[misc]
        if name != self._called:
            raise TProtocolException(TProtocolException.INVALID_DATA, f"it is an answer to {name!r}")
        return name, kind, sequence


class _Binary(_AnswersOfTheirCalls, TBinaryProtocolAccelerated):  # type: ignore[misc]
    """The usual protocol."""


class _Compact(_AnswersOfTheirCalls, TCompactProtocolAccelerated):  # type: ignore[misc]
    """The compact protocol."""


class ConnectionPool:
    """One connection per thread, made when first needed.

    Args:
        config: where and how to connect.
        on_connect: called once with each new connection before its first use; may raise the errors of a call.
        open_socket: opens a socket.
        sleep: waits between two rounds over the addresses.
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
        """Give this thread's connection, a new one if there is none or the server has closed it.

        Raises:
            MetastoreUnavailableError: no address answered in any round, or the pool is closed.
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
        """Throw a connection away; the next one is made to another address first, if there is one."""
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
        """Close all connections, those of other threads too. May be called twice."""
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
                    _log.info("no connection to %s: %s", address, error)
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
        """Addresses in the order to try; the one that failed last comes at the end."""
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
    """The owner of a connection: process and thread. A forked child must not use its parent's connection."""
    return os.getpid(), threading.current_thread()


def _may_have_hung_up(error: Exception) -> bool:
    """Whether an address was reached: an OSError but a reset is of a connection that never was."""
    return isinstance(error, ConnectionResetError | MetastoreUnavailableError)
