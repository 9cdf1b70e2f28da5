"""The proxy before object stores: what it passes on, and how it fails when it is told to."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from judges.storages.store_proxy import HOST, Answer, Faults, Request, StoreProxy, act


def echo(request: Request) -> Answer:
    """A server that answers with what it got."""
    return Answer(200, [("X-Method", request.method)], request.body, str(len(request.body)))


@pytest.fixture
def proxy() -> Iterator[StoreProxy]:
    """A proxy before :func:`echo`; operations are called as methods are, in lower case."""
    with StoreProxy(Faults(), lambda method, _: method.lower()) as made:
        made.serve(echo)
        yield made
        made.shutdown()


def asked(proxy: StoreProxy, method: str = "GET", body: bytes = b"content") -> tuple[int, bytes]:
    """Status and body of the answer to one request."""
    connection = http.client.HTTPConnection(HOST, proxy.server_port, timeout=60)
    try:
        connection.request(method, "/key", body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_requests_are_passed_on_and_counted(proxy: StoreProxy) -> None:
    """By operation, from one question to the next."""
    assert asked(proxy) == (200, b"content")
    assert asked(proxy, "HEAD") == (200, b"")
    assert act(proxy, {"do": "take_counts"}) == {"counts": {"get": 1, "head": 1}}
    assert act(proxy, {"do": "take_counts"}) == {"counts": {}}
    assert act(proxy, {"do": "address"}) == {"endpoint": f"http://{HOST}:{proxy.server_port}"}


def test_every_nth_request_meets_a_busy_server(proxy: StoreProxy) -> None:
    """Until it is told to do well again."""
    act(proxy, {"do": "faults", "busy_every": 2})
    assert [asked(proxy)[0] for _ in range(4)] == [200, 503, 200, 503]
    act(proxy, {"do": "faults"})
    assert [asked(proxy)[0] for _ in range(2)] == [200, 200]


def test_answers_of_an_operation_are_lost(proxy: StoreProxy) -> None:
    """As many as were asked for; the server did what it was asked."""
    act(proxy, {"do": "faults", "lost_answers": {"put": 1}})
    assert asked(proxy, "GET")[0] == 200
    with pytest.raises(http.client.RemoteDisconnected):
        asked(proxy, "PUT")
    assert asked(proxy, "PUT")[0] == 200


def test_the_bytes_of_an_object_are_torn(proxy: StoreProxy) -> None:
    """Half of them come; only reading is torn."""
    act(proxy, {"do": "faults", "torn_answers": 1})
    assert asked(proxy, "PUT") == (200, b"content")
    with pytest.raises(http.client.IncompleteRead) as caught:
        asked(proxy)
    assert caught.value.partial == b"con"
    assert asked(proxy) == (200, b"content")


def test_a_server_is_gone_for_a_while(proxy: StoreProxy) -> None:
    """It closes each connection."""
    act(proxy, {"do": "faults", "gone_seconds": 60.0})
    with pytest.raises(http.client.RemoteDisconnected):
        asked(proxy)
    act(proxy, {"do": "faults", "gone_seconds": 0.0})
    assert asked(proxy)[0] == 200


def test_an_unknown_request_is_refused(proxy: StoreProxy) -> None:
    """By its name."""
    with pytest.raises(ValueError, match="sing"):
        act(proxy, {"do": "sing"})
