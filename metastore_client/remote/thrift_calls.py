"""Makes single calls to a metastore over Thrift: connection, repetition, errors, and the server's abilities.

A call is repeated after a broken connection if its caller states that doing it twice changes nothing. A 3.1
server also hangs up when it fails internally, so a broken connection does not prove that a node is down.

If a field is missing, generated Python code encodes only half of a request, and the server hangs up on it. So
requests are checked before they are sent, and a connection is discarded after any failure of its call except
a declared error.

The answer of a server is returned as an :class:`~metastore_client.remote.thrift_answers.Answer`. To read it,
the caller must state its type.

Source: Hive's hive_metastore.thrift. The answers of servers were tried on 2.3.10, 3.1.3 and 4.1.0
    (tests/contract, tests/integration).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any, Self, TypeVar

from thrift.Thrift import TApplicationException, TException
from thrift.transport.TTransport import TTransportException

from metastore_client._thrift.gen import Metastore, Metastore4
from metastore_client.capabilities import Capabilities
from metastore_client.errors import (
    AlreadyExistsError,
    InvalidAnswerError,
    InvalidRequestError,
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchLockError,
    NoSuchObjectError,
    NoSuchTxnError,
    TxnAbortedError,
    TxnOpenError,
    UnsupportedByServerError,
)
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote.thrift_answers import Answer, Helpers, check_argument, done
from metastore_client.remote.thrift_values import CATALOG, ttypes
from metastore_client.transport.connection import Connection, ConnectionPool, OpenSocket, open_socket

_ERRORS: dict[type[TException], type[MetastoreError]] = {
    ttypes.AlreadyExistsException: AlreadyExistsError,
    ttypes.ConfigValSecurityException: InvalidRequestError,
    ttypes.InvalidObjectException: InvalidRequestError,
    ttypes.InvalidOperationException: InvalidRequestError,
    ttypes.MetaException: MetastoreError,
    ttypes.NoSuchLockException: NoSuchLockError,
    ttypes.NoSuchObjectException: NoSuchObjectError,
    ttypes.NoSuchTxnException: NoSuchTxnError,
    ttypes.TxnAbortedException: TxnAbortedError,
    ttypes.TxnOpenException: TxnOpenError,
}
_REQUESTS_WITH_CONTENTS = ("create_database", "create_table", "create_table_req", "add_partitions_req")
"""Calls in which a MetaException, the server's general error, means that the request's contents are
invalid."""

MOST_TOGETHER = 4
"""Maximum number of connections of one caller that wait for the server at the same time."""

_Item = TypeVar("_Item")


class ThriftCalls:
    """The engine of a client for a real server; subclasses define the calls. It is a context manager.

    Several threads may use it. Each thread has its own connection, which is made at its first call.
    """

    def __init__(self, config: MetastoreConfig, *, open_socket: OpenSocket = open_socket) -> None:
        self.config = config
        self._pool = ConnectionPool(config, self._introduce, open_socket=open_socket)
        self._mutex = threading.Lock()
        self._capabilities: Capabilities | None = None
        self._helpers: tuple[int, Helpers] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"

    @property
    def address(self) -> str:
        """The server's addresses as they were given. Different metastores have different addresses.

        See :meth:`MetastoreClient.address`.
        """
        return ",".join(map(str, self.config.addresses))

    def capabilities(self) -> Capabilities:
        """Return the capabilities of this server. They are probed once and then cached.

        See :meth:`MetastoreClient.capabilities`.
        """
        with self._mutex:
            if self._capabilities is None:
                self._capabilities = self._probe()
            return self._capabilities

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        """Make independent calls concurrently, so that they wait for the network at the same time.

        See :meth:`MetastoreClient.together`. Helper threads make all calls except the first.

        When the first call has ended, the caller itself makes all calls that no thread has begun. So a call
        that itself uses this method never waits for a thread that waits for it.
        """
        helped = [self._helpers_of_process().submit(call) for call in calls[1:]]
        outcomes: list[Future[Any]] = []
        for number, call in enumerate(calls):
            is_mine = number == 0 or helped[number - 1].cancel()
            outcomes.append(done(call) if is_mine else helped[number - 1])
        wait(outcomes)
        return [outcome.result() for outcome in outcomes]

    def _helpers_of_process(self) -> Helpers:
        with self._mutex:
            if self._helpers is None or self._helpers[0] != os.getpid():  # a forked child has no threads
                self._helpers = os.getpid(), Helpers(MOST_TOGETHER - 1, self._pool.give_back)
            return self._helpers[1]

    def close(self) -> None:
        """Close the connections of all threads. May be called more than once.

        See :meth:`MetastoreClient.close`.
        """
        with self._mutex:
            helpers, self._helpers = self._helpers, None
        self._pool.close()
        if helpers is not None and helpers[0] == os.getpid():
            helpers[1].close()

    def _probe(self) -> Capabilities:
        """Probe with calls that have no effect.

        Versions are not reliable: 2.3 and 3.1 report the same one, and vendors mix releases.
        """
        no_notifications = ttypes.WriteNotificationLogBatchRequest(
            catalog=CATALOG, db="default", table="", requestList=[]
        )
        has_write_ids = self._knows("get_catalogs")
        return Capabilities(
            version=self._call("getVersion", repeat=True).text(),
            has_write_ids=has_write_ids,
            has_exclusive_write_lock=has_write_ids and self._knows("get_latest_txnid_in_conflict", 0),
            has_write_notifications=has_write_ids
            and self._knows("add_write_notification_log_in_batch", no_notifications),
            has_min_history=has_write_ids and self._knows("add_write_ids_to_min_history", 0, {}),
        )

    def _knows(self, name: str, *arguments: Any) -> bool:
        try:
            self._call(name, *arguments, service=Metastore4, repeat=True)
        except UnsupportedByServerError:
            return False
        return True

    def _introduce(self, connection: Connection) -> None:
        """Send the user name to a server. A second time on the same connection makes the server hang up."""
        if not self.config.sets_user:
            return
        try:
            _exchange(connection, Metastore, "set_ugi", (self.config.user, []))
        except _UnusableConnection as unusable:
            raise unusable.error from unusable.__cause__

    def _call(self, name: str, *arguments: Any, service: Any = Metastore, repeat: bool = False) -> Answer:
        """Make one call and return its answer.

        Args:
            name: name of the call in the interface description.
            arguments: arguments of the call in the interface description.
            service: the generated module that contains the call.
            repeat: True if doing the call twice is harmless. It is then repeated if the connection breaks.
        """
        for argument in arguments:
            check_argument(argument, name)
        tries_left = self.config.failure_retries if repeat else 0
        broken: MetastoreUnavailableError | None = None
        while True:
            try:
                connection = self._pool.get()
            except MetastoreUnavailableError as error:
                raise broken or error from error  # the earlier attempt may have taken effect
            try:
                return self._exchange_once(connection, service, name, arguments)
            except MetastoreUnavailableError as error:
                if tries_left == 0:
                    raise
                tries_left -= 1
                broken = error

    def _exchange_once(
        self, connection: Connection, service: Any, name: str, arguments: Sequence[Any]
    ) -> Answer:
        """Send a request and read its answer. Discard the connection if its state is unknown."""
        try:
            return _exchange(connection, service, name, arguments)
        except _UnusableConnection as unusable:
            self._pool.discard(connection)
            raise unusable.error from unusable.__cause__
        except MetastoreUnavailableError:
            self._pool.discard(connection)
            raise
        except MetastoreError:
            raise
        except BaseException:  # such as an interrupt: the answer is still in transit
            self._pool.discard(connection)
            raise


class _UnusableConnection(Exception):
    """An error after which the connection can no longer be used."""

    def __init__(self, error: MetastoreError) -> None:
        super().__init__(str(error))
        self.error = error


def _exchange(connection: Connection, service: Any, name: str, arguments: Sequence[Any]) -> Answer:
    """Send a request, read the answer and translate errors."""
    client = service.Client(connection.protocol)
    about = f"{name}: the request"
    try:
        getattr(client, f"send_{name}")(*arguments)
        about = f"the answer of {connection.address} to {name}"
        answer = getattr(client, f"recv_{name}")()
    except MetastoreUnavailableError:  # from the transport, with its own message
        raise
    except (TTransportException, OSError, EOFError) as error:
        raise MetastoreUnavailableError(
            f"{name}: the connection to {connection.address} broke before the answer arrived "
            f"({error}); the call may have taken effect",
            outcome_unknown=True,
        ) from error
    except TApplicationException as error:
        raise _application_error(error, name, connection) from error
    except tuple(_ERRORS) as error:
        translated = _ERRORS[type(error)]
        if translated is MetastoreError and name in _REQUESTS_WITH_CONTENTS:
            translated = InvalidRequestError
        raise translated(f"{name}: {error.message}") from error
    except Exception as error:
        kind, what = (InvalidAnswerError, "decoded") if "answer" in about else (MetastoreError, "encoded")
        text = f"{about} could not be {what}: {error or type(error).__name__}"
        raise _UnusableConnection(kind(text)) from error
    return Answer(answer, about)


def _application_error(error: TApplicationException, name: str, connection: Connection) -> Exception:
    """Return the error for a failure that the server has not declared for the call."""
    if error.type == TApplicationException.UNKNOWN_METHOD:
        return UnsupportedByServerError(f"the server {connection.address} does not have the call {name}")
    failure = MetastoreError(f"{name}: the server {connection.address} failed: {error.message}")
    # After an internal error, the connection stays usable. After any other error, such as a request that the
    # server could not read, the server hangs up.
    return failure if error.type == TApplicationException.INTERNAL_ERROR else _UnusableConnection(failure)


def batches(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """Yield the items in their order, ``size`` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
