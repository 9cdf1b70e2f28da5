"""Metastores: real ones of three lines of Hive, in-memory ones of each, and a line that can be cut."""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.embedded_server import EmbeddedMetastore
from metastore_client.model import ColumnInfo, TableInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from metastore_client.thrift_client import connect

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def embedded_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMetastore]:
    """The real metastore, shared by the session; tests use tables and databases of their own in it."""
    with EmbeddedMetastore(tmp_path_factory.mktemp("metastore")) as metastore:
        yield metastore


LINES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}
_REAL = {
    "2.3": [pytest.mark.slow],
    "3.1": [pytest.mark.slow, pytest.mark.xdist_group("hive31")],
    "4.1": [pytest.mark.slow, pytest.mark.xdist_group("hive41")],
}


def kinds(*lines: str) -> list[Any]:
    """Parameters of ``metastore``: those of the lines named, in memory and real.

    ``@pytest.mark.parametrize("metastore", kinds("4.1"), indirect=True)`` narrows a test to a line.
    """
    in_memory = [pytest.param(f"in_memory-{line}") for line in lines]
    return in_memory + [pytest.param(f"real-{line}", marks=_REAL[line]) for line in lines]


KINDS = kinds(*LINES)


@pytest.fixture(params=KINDS)
def metastore(request: pytest.FixtureRequest) -> Iterator[MetastoreClient]:
    """Each kind of metastore in turn; behaviours tested through it hold for all."""
    kind, _, line = request.param.partition("-")
    if kind == "in_memory":
        yield InMemoryMetastore(capabilities=LINES[line])
        return
    with connect(real_metastore_uri(request, line)) as client:
        yield client


@pytest.fixture
def line(request: pytest.FixtureRequest) -> str:
    """The line of Hive that ``metastore`` is of."""
    return str(request.node.callspec.params["metastore"]).partition("-")[2]


def real_metastore_uri(request: pytest.FixtureRequest, line: str) -> str:
    """Where the real metastore of a line listens; starts it if it does not run yet."""
    fixture = {"2.3": "embedded_metastore", "3.1": "hive31", "4.1": "hive41"}[line]
    return str(request.getfixturevalue(fixture).uri)


@pytest.fixture
def database(metastore: MetastoreClient) -> str:
    """A database that no other test uses."""
    name = f"db{os.getpid()}_{next(_numbers)}"  # a server may outlive a test run
    metastore.create_database(name)
    return name


@pytest.fixture
def make_table(metastore: MetastoreClient, database: str) -> Callable[..., TableInfo]:
    """Creates a transactional table in the test's database; partition keys as given, all strings."""

    def make(name: str, *keys: str, **parameters: str) -> TableInfo:
        metastore.create_table(acid_table_info(database, name, *keys, **parameters))
        return metastore.get_table(database, name)

    return make


def acid_table_info(database: str, name: str, *keys: str, **parameters: str) -> TableInfo:
    """A transactional table of ``id bigint, msg string`` in two buckets by id."""
    return TableInfo(
        database=database,
        name=name,
        columns=(ColumnInfo("id", "bigint"), ColumnInfo("msg", "string")),
        partition_keys=tuple(ColumnInfo(key, "string") for key in keys),
        num_buckets=2,
        bucket_columns=("id",),
        parameters={"transactional": "true", **parameters},
    )


@pytest.fixture
def metastore_proxy() -> Iterator[Callable[[str], MetastoreProxy]]:
    """Makes a proxy in front of a metastore address; its line can be cut at a chosen call."""
    with contextlib.ExitStack() as stack:
        yield lambda uri: stack.enter_context(MetastoreProxy(uri))


class MetastoreProxy:
    """A TCP proxy that knows the names of Thrift calls (binary protocol, not framed)."""

    def __init__(self, uri: str) -> None:
        host, _, port = uri.removeprefix("thrift://").rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._cuts: dict[str, list[bool]] = {}
        self._lines: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_down = False
        self.calls: list[str] = []

    def __enter__(self) -> MetastoreProxy:
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.go_down()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    @property
    def uri(self) -> str:
        """The address of the proxy."""
        return f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self, call: str, *, after: bool, times: int = 1) -> None:
        """Cut the line at the next calls of a name: before the server sees it, or before its answer comes."""
        self._cuts.setdefault(call, []).extend([after] * times)

    def go_down(self) -> None:
        """Cut all lines and refuse new ones."""
        self._is_down = True
        self.cut_all()

    def come_up(self) -> None:
        """Take connections again."""
        self._is_down = False

    def cut_all(self) -> None:
        """Cut all lines now."""
        for line in list(self._lines):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_down:
                client.close()
            else:
                self._start(self._carry, client)

    def _carry(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._target) as server:
            self._lines |= {client, server}
            try:
                self._carry_both(client, server)
            finally:
                self._lines -= {client, server}

    def _carry_both(self, client: socket.socket, server: socket.socket) -> None:
        drop_answer = False
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    source = key.fileobj
                    data = source.recv(1 << 16)  # type: ignore[union-attr]
                    if not data:
                        return
                    if source is server:
                        if drop_answer:
                            return
                        client.sendall(data)
                        continue
                    cut = self._cut_for(data)
                    if cut is False:
                        return
                    drop_answer = drop_answer or cut is True
                    server.sendall(data)

    def _cut_for(self, data: bytes) -> bool | None:
        """What to do with a request: True drop its answer, False drop the request, None let it pass."""
        if data[:2] != b"\x80\x01":  # not the first piece of a request
            return None
        (length,) = struct.unpack_from(">i", data, 4)
        name = data[8 : 8 + length].decode()
        self.calls.append(name)
        cuts = self._cuts.get(name)
        return cuts.pop(0) if cuts else None
