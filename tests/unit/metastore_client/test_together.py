"""Calls of a client that wait for the network at the same time; no server is needed for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote import thrift_answers
from metastore_client.remote.thrift_calls import MOST_TOGETHER
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from metastore_client.testing import InMemoryMetastore

CALLERS = 16
BOUND_SECONDS = 120


@pytest.fixture
def client() -> Iterator[ThriftMetastoreClient]:
    with ThriftMetastoreClient(MetastoreConfig.load("thrift://localhost:1")) as client:
        yield client


@pytest.fixture(params=["thrift", "memory"])
def either(request: pytest.FixtureRequest, client: ThriftMetastoreClient) -> MetastoreClient:
    return client if request.param == "thrift" else InMemoryMetastore()


def test_results_come_in_order(either: MetastoreClient) -> None:
    assert either.together() == []
    assert either.together(*(lambda number=number: number for number in range(9))) == list(range(9))


def test_calls_wait_at_the_same_time(client: ThriftMetastoreClient) -> None:
    meeting = threading.Barrier(MOST_TOGETHER)
    assert sorted(client.together(*[lambda: meeting.wait(BOUND_SECONDS)] * MOST_TOGETHER)) == [0, 1, 2, 3]


def test_the_first_error_is_raised_after_all_have_ended(either: MetastoreClient) -> None:
    ended = threading.Event()

    def fails(text: str) -> None:
        raise ValueError(text)

    def ends() -> None:
        assert not ended.wait(0.05)
        ended.set()

    with pytest.raises(ValueError, match="first"):
        either.together(lambda: fails("first"), ends, lambda: fails("third"))
    assert ended.is_set()


def test_calls_that_make_calls_never_wait_for_each_other(client: ThriftMetastoreClient) -> None:
    """There are fewer helping threads than callers; each would wait for a free one."""

    def many(depth: int) -> int:
        return 1 if not depth else sum(client.together(*[lambda: many(depth - 1)] * 3))

    with ThreadPoolExecutor(CALLERS) as callers:
        counts = [callers.submit(many, 3) for _ in range(CALLERS)]
        assert [count.result(BOUND_SECONDS) for count in counts] == [27] * CALLERS


def test_a_forked_process_has_helpers_of_its_own(client: ThriftMetastoreClient) -> None:
    numbers = (lambda: 1, lambda: 2)
    assert client.together(*numbers) == [1, 2]
    child = os.fork()
    if not child:
        os._exit(0 if client.together(*numbers) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _meet(client: ThriftMetastoreClient) -> list[threading.Thread]:
    """Let all helpers work at once."""
    meeting = threading.Barrier(MOST_TOGETHER)

    def meet() -> threading.Thread:
        meeting.wait(BOUND_SECONDS)
        return threading.current_thread()

    return client.together(*[meet] * MOST_TOGETHER)[1:]


def test_closing_ends_the_helpers(client: ThriftMetastoreClient) -> None:
    found = _meet(client)
    client.close()
    assert [thread for thread in found if thread.is_alive()] == []


def test_helpers_that_nobody_needs_end(
    client: ThriftMetastoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their connections, for which the server keeps threads; later calls find others."""
    ended: list[str] = []
    monkeypatch.setattr(client._pool, "give_back", lambda: ended.append(threading.current_thread().name))
    monkeypatch.setattr(thrift_answers, "IDLE_SECONDS", 0.01)
    found = _meet(client)
    for thread in found:
        thread.join(BOUND_SECONDS)
    assert len(ended) == MOST_TOGETHER - 1
    assert not {*_meet(client)} & {*found}
