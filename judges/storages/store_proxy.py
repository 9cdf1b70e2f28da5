"""A proxy in front of an object store's emulator that counts requests and simulates faults.

A program that serves such a store answers one line of JSON for each line of JSON on its input, and ends with
it.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any

HOST = "127.0.0.1"
_BUSY = 503
_NOT_PASSED_ON = ("connection", "transfer-encoding", "keep-alive", "content-length")


@dataclass(frozen=True)
class Request:
    """A request as received."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """A server's answer; ``length`` is what a HEAD tells of a body that it has not. Of a torn one half of the
    body is sent.
    """

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    length: str
    is_torn: bool = False


@dataclass(frozen=True)
class Fate:
    """What becomes of one request: how long it waits, whether the server is gone, or busy, and whether the
    answer is lost.
    """

    seconds: float
    is_gone: bool
    is_busy: bool
    is_lost: bool


Ask = Callable[[Request], Answer]
Refuse = Callable[[Request, Fate], Answer | None]
"""What a request is answered that the server does not see; None: it is passed on."""


class Faults:
    """Simulated faults, and the number of requests by operation."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.plan()

    def plan(
        self,
        *,
        latency_seconds: float = 0.0,
        busy_every: int = 0,
        lost_answers: Mapping[str, int] | None = None,
        torn_answers: int = 0,
        gone_seconds: float = 0.0,
    ) -> None:
        """See :meth:`judges.storages.store_server.StoreServer.fail`."""
        with self._guard:
            self._latency_seconds = latency_seconds
            self._busy_every = busy_every
            self._lost_answers = Counter(lost_answers or {})
            self._torn_answers = torn_answers
            self._gone_until = time.monotonic() + gone_seconds

    def take_counts(self) -> dict[str, int]:
        """Requests by operation since the last call."""
        with self._guard:
            counts, self._counts = self._counts, Counter()
        return dict(counts)

    def of(self, operation: str) -> Fate:
        """The fate of the next request."""
        with self._guard:
            self._counts[operation] += 1
            is_busy = self._busy_every > 0 and self._counts.total() % self._busy_every == 0
            is_lost = not is_busy and self._lost_answers[operation] > 0
            self._lost_answers[operation] -= is_lost
            return Fate(self._latency_seconds, time.monotonic() < self._gone_until, is_busy, is_lost)

    def tears(self, operation: str) -> bool:
        """Whether the connection breaks in the middle of the bytes of an object."""
        with self._guard:
            is_torn = operation == "get" and self._torn_answers > 0
            self._torn_answers -= is_torn
            return is_torn


def busy(_: Request, fate: Fate) -> Answer | None:
    """Refuse as a server does that is busy, and says no more."""
    return Answer(_BUSY, [], b"", "0") if fate.is_busy else None


def server_at(port: int) -> Ask:
    """Ask the server behind the proxy."""

    def ask(request: Request) -> Answer:
        server = http.client.HTTPConnection(HOST, port, timeout=60)
        try:
            server.request(request.method, request.target, request.body, dict(request.headers))
            answer = server.getresponse()
            headers = [(k, v) for k, v in answer.getheaders() if k.lower() not in _NOT_PASSED_ON]
            body = answer.read()
            length = answer.getheader("Content-Length") or str(len(body))
            return Answer(answer.status, headers, body, length)
        finally:
            server.close()

    return ask


class StoreProxy(ThreadingHTTPServer):
    """A proxy on a free port; :meth:`serve` lets it work.

    Args:
        faults: what goes wrong.
        operation_of: names the operation of a method and a target.
        refuse: answers requests that the server does not see.
    """

    daemon_threads = True

    def __init__(
        self, faults: Faults, operation_of: Callable[[str, str], str], refuse: Refuse = busy
    ) -> None:
        super().__init__((HOST, 0), _Handler)
        self.faults = faults
        self.operation_of = operation_of
        self.refuse = refuse
        self.ask: Ask | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.server_port}"

    def serve(self, ask: Ask) -> None:
        """Pass requests on, in the background."""
        self.ask = ask
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: StoreProxy

    def _pass_on(self) -> None:
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _NOT_PASSED_ON}
        request = Request(self.command, self.path, headers, self._read_body())
        answer = self._answer_to(request)
        if answer is None:
            self.close_connection = True
        else:
            self._send(answer)

    def _answer_to(self, request: Request) -> Answer | None:
        """What to answer; None: nothing."""
        assert self.server.ask is not None
        operation = self.server.operation_of(request.method, request.target)
        fate = self.server.faults.of(operation)
        if fate.is_gone:
            return None
        time.sleep(fate.seconds)
        refusal = self.server.refuse(request, fate)
        if refusal is not None:
            return refusal
        answer = self.server.ask(request)
        if fate.is_lost:
            return None
        return dataclasses.replace(answer, is_torn=self.server.faults.tears(operation))

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, text in answer.headers:
            self.send_header(name, text)
        is_head = self.command == "HEAD"
        self.send_header("Content-Length", answer.length if is_head else str(len(answer.body)))
        self.end_headers()
        if answer.is_torn:
            self.wfile.write(answer.body[: len(answer.body) // 2])
            self.close_connection = True
        elif not is_head:
            self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = _pass_on  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def wait_for(port: int, process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until a process listens at a port. Raises TimeoutError, also if it has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        server = http.client.HTTPConnection(HOST, port, timeout=1)
        try:
            server.connect()
        except OSError:
            time.sleep(0.02)
        else:
            return
        finally:
            server.close()
    raise TimeoutError(f"nobody listens at port {port}; exit code {process.poll()}")


def answer_lines(act: Callable[[dict[str, Any]], dict[str, Any]], answers: IO[str]) -> None:
    """Do what each line asks for, and write an answer, until the input ends."""
    for line in sys.stdin:
        print(json.dumps(act(json.loads(line))), file=answers, flush=True)


def act(proxy: StoreProxy, request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a line asks for: any store's program does these."""
    match request:
        case {"do": "address"}:
            return {"endpoint": proxy.address}
        case {"do": "faults", **plan}:
            proxy.faults.plan(**plan)
            return {}
        case {"do": "take_counts"}:
            return {"counts": proxy.faults.take_counts()}
    raise ValueError(f"unknown request {request['do']}")
