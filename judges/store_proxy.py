"""A proxy in front of an object store's emulator that counts requests and simulates faults.

``s3_program.py`` has its own proxy, which knows S3's errors.
"""

from __future__ import annotations

import http.client
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["HOST", "Answer", "Ask", "Faults", "Request", "proxy_of", "serve", "server_at", "wait_for"]

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
    """A server's answer; ``length`` is the body's length that an answer to HEAD reports without a body."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    length: str


Ask = Callable[[Request], Answer]


class Faults:
    """Simulated faults, and the number of requests by operation."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.busy_every = 0
        self.lost_answers: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def of(self, operation: str) -> tuple[bool, bool]:
        """Whether to answer that the server is busy, and whether to lose the answer."""
        with self._guard:
            self.counts[operation] += 1
            is_busy = self.busy_every > 0 and sum(self.counts.values()) % self.busy_every == 0
            is_lost = not is_busy and self.lost_answers[operation] > 0
            if is_lost:
                self.lost_answers[operation] -= 1
            return is_busy, is_lost


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


def proxy_of(faults: Faults, operation_of: Callable[[str, str], str]) -> ThreadingHTTPServer:
    """A proxy on a free port; :func:`serve` starts it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        ask: Ask

        def _pass_on(self) -> None:
            body = self._read_body()
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _NOT_PASSED_ON}
            is_busy, is_lost = faults.of(operation_of(self.command, self.path))
            if is_busy:
                self._answer(Answer(_BUSY, [], b"", "0"))
                return
            answer = Handler.ask(Request(self.command, self.path, headers, body))
            if is_lost:
                self.close_connection = True
                return
            self._answer(answer)

        def _read_body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def _answer(self, answer: Answer) -> None:
            self.send_response_only(answer.status)
            for name, text in answer.headers:
                self.send_header(name, text)
            is_head = self.command == "HEAD"
            self.send_header("Content-Length", answer.length if is_head else str(len(answer.body)))
            self.end_headers()
            if not is_head:
                self.wfile.write(answer.body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = _pass_on  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    proxy = ThreadingHTTPServer((HOST, 0), Handler)
    proxy.daemon_threads = True
    return proxy


def serve(proxy: ThreadingHTTPServer, ask: Ask) -> None:
    """Pass requests on, in the background."""
    handler: Any = proxy.RequestHandlerClass
    handler.ask = staticmethod(ask)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()


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
    raise TimeoutError(f"no process listens at port {port}; exit code {process.poll()}")
