"""Connections, against servers that are only a listening socket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.hive_site import Address, MetastoreConfig, UriSelection
from metastore_client.transport.connection import Connection, ConnectionPool


class Listener:
    """Accepts connections and keeps them."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self.socket.getsockname()[1])

    def hang_up_all(self) -> int:
        """Close what has been accepted or waits to be; how many that were."""
        count = 0
        self.socket.settimeout(0.05)
        with contextlib.suppress(TimeoutError):
            while True:
                self.socket.accept()[0].close()
                count += 1
        return count

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def listeners() -> Iterator[tuple[Listener, Listener]]:
    both = (Listener(), Listener())
    yield both
    for listener in both:
        listener.close()


def config_for(*listeners: Listener, **more: object) -> MetastoreConfig:
    return MetastoreConfig(
        addresses=tuple(each.address for each in listeners),
        selection=UriSelection.SEQUENTIAL,
        connect_timeout_seconds=60,
        **more,  # type: ignore[arg-type]
    )


@contextlib.contextmanager
def pool_of(config: MetastoreConfig, **more: object) -> Iterator[ConnectionPool]:
    pool = ConnectionPool(config, more.pop("on_connect", lambda _: None), **more)  # type: ignore[arg-type]
    with contextlib.closing(pool):
        yield pool


def test_a_connection_is_kept_and_introduced_once(listeners: tuple[Listener, Listener]) -> None:
    """A second introduction on one connection would make a real server hang up."""
    introduced: list[Connection] = []
    with pool_of(config_for(listeners[0]), on_connect=introduced.append) as pool:
        connection = pool.get()
        assert pool.get() is connection
        assert introduced == [connection]


def test_a_line_that_the_server_closed_is_replaced(listeners: tuple[Listener, Listener]) -> None:
    """It is noticed before anything is sent, and the other address is tried first."""
    with pool_of(config_for(*listeners)) as pool:
        first = pool.get()
        assert first.address == listeners[0].address
        listeners[0].hang_up_all()
        second = pool.get()
        assert second is not first
        assert second.address == listeners[1].address


def test_a_discarded_connection_is_closed(listeners: tuple[Listener, Listener]) -> None:
    """And never handed out again."""
    with pool_of(config_for(listeners[0])) as pool:
        first = pool.get()
        pool.discard(first)
        assert not first.is_open()
        assert pool.get() is not first


def test_dead_addresses_are_tried_in_bounded_rounds(listeners: tuple[Listener, Listener]) -> None:
    """With a pause between rounds; the error names each address."""
    for listener in listeners:
        listener.close()
    pauses: list[float] = []
    config = config_for(*listeners, connect_rounds=3, connect_retry_delay_seconds=0.5)
    with pool_of(config, sleep=pauses.append) as pool:
        with pytest.raises(MetastoreUnavailableError) as caught:
            pool.get()
        assert pauses == [0.5, 0.5]
        assert all(str(each.address) in str(caught.value) for each in listeners)
        assert not caught.value.outcome_unknown


def test_a_failed_introduction_closes_the_line(listeners: tuple[Listener, Listener]) -> None:
    """The next address is tried."""
    seen: list[Connection] = []

    def refuse_first(connection: Connection) -> None:
        seen.append(connection)
        if connection.address == listeners[0].address:
            raise MetastoreUnavailableError("hung up")

    with pool_of(config_for(*listeners), on_connect=refuse_first) as pool:
        assert pool.get().address == listeners[1].address
        assert not seen[0].is_open()


def test_threads_do_not_share(listeners: tuple[Listener, Listener]) -> None:
    """Each gets its own; those of ended threads are closed when the next is made."""
    with pool_of(config_for(listeners[0])) as pool:
        others: list[Connection] = []
        thread = threading.Thread(target=lambda: others.append(pool.get()))
        thread.start()
        thread.join()
        own = pool.get()
        assert own is not others[0]
        assert own.is_open()
        assert not others[0].is_open()


def test_a_closed_pool_gives_nothing(listeners: tuple[Listener, Listener]) -> None:
    """Closing may be repeated."""
    with pool_of(config_for(listeners[0])) as pool:
        connection = pool.get()
        pool.close()
        pool.close()
        assert not connection.is_open()
        with pytest.raises(MetastoreUnavailableError, match="closed"):
            pool.get()
