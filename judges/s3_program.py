"""An S3 server behind a proxy that counts requests and simulates faults; run as a program.

    python judges/s3_program.py

Answers one line of JSON for each line of JSON on its input, and ends with it.
"""

from __future__ import annotations

import http.client
import json
import logging
import re
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from moto.server import ThreadedMotoServer

HOST = "127.0.0.1"
SLOW_DOWN = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
EXPIRED = (
    b'<?xml version="1.0"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)
NO_SUCH_UPLOAD = (
    b'<?xml version="1.0"?><Error><Code>NoSuchUpload</Code>'
    b"<Message>The specified upload does not exist.</Message></Error>"
)
_ACCESS_KEY = re.compile(r"Credential=([^/,]+)/")
_HOP_BY_HOP = ("connection", "transfer-encoding", "keep-alive")


class Faults:
    """Simulated faults, and the number of requests by operation."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.latency_seconds = 0.0
        self.busy_every = 0
        self.lost_answers: Counter[str] = Counter()
        self.torn_answers = 0
        self.gone_until = 0.0
        self.requests_left: dict[str, int] = {}
        self.counts: Counter[str] = Counter()

    def is_expired(self, authorization: str) -> bool:
        """Whether the access key that signed a request has used up its number of requests."""
        signed_by = _ACCESS_KEY.search(authorization)
        key = "" if signed_by is None else signed_by[1]
        with self._guard:
            if key not in self.requests_left:
                return False
            self.requests_left[key] -= 1
            return self.requests_left[key] < 0

    def of(self, operation: str) -> tuple[float, bool, bool, bool]:
        """Seconds to wait; whether to answer 503, to lose the answer, to cut the connection."""
        with self._guard:
            self.counts[operation] += 1
            number = sum(self.counts.values())
            is_busy = self.busy_every > 0 and number % self.busy_every == 0
            is_lost = not is_busy and self.lost_answers[operation] > 0
            if is_lost:
                self.lost_answers[operation] -= 1
            return self.latency_seconds, is_busy, is_lost, time.monotonic() < self.gone_until

    def tears(self, operation: str) -> bool:
        """Whether the connection breaks in the middle of the bytes of an object."""
        with self._guard:
            is_torn = operation == "get" and self.torn_answers > 0
            self.torn_answers -= is_torn
            return is_torn


def operation_of(method: str, target: str) -> str:
    """The S3 operation of a request."""
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    is_object = parts.path.strip("/").count("/") > 0
    if "uploads" in query:
        return "create_upload" if method == "POST" else "list_uploads"
    if "uploadId" in query:
        return {"PUT": "upload_part", "POST": "complete_upload", "DELETE": "abort_upload"}.get(
            method, "parts"
        )
    if "delete" in query:
        return "delete_many"
    if not is_object:
        return {"GET": "list", "PUT": "create_bucket", "HEAD": "head_bucket"}.get(method, method)
    return {"GET": "get", "PUT": "put", "HEAD": "head", "DELETE": "delete"}.get(method, method)


def handler_of(faults: Faults, port: int) -> type[BaseHTTPRequestHandler]:
    """A handler that passes requests on to the server at a port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            operation = operation_of(self.command, self.path)
            seconds, is_busy, is_lost, is_gone = faults.of(operation)
            if is_gone:
                self.close_connection = True
                return
            if seconds:
                time.sleep(seconds)
            if faults.is_expired(self.headers.get("Authorization", "")):
                self._answer(400, [("Content-Type", "application/xml")], EXPIRED)
                return
            if is_busy:
                self._answer(503, [("Content-Type", "application/xml")], SLOW_DOWN)
                return
            status, headers, data = self._ask_server(body)
            if status == 500 and operation == "complete_upload":  # moto fails where S3 answers
                status, headers, data = 404, [("Content-Type", "application/xml")], NO_SUCH_UPLOAD
            if is_lost:
                self.close_connection = True
                return
            self._answer(status, headers, data, is_torn=faults.tears(operation))

        def _ask_server(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            server = http.client.HTTPConnection(HOST, port, timeout=60)
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
                server.request(self.command, self.path, body, headers)
                answer = server.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            finally:
                server.close()

        def _answer(
            self, status: int, headers: list[tuple[str, str]], data: bytes, *, is_torn: bool = False
        ) -> None:
            self.send_response_only(status)
            lengths = [value for name, value in headers if name.lower() == "content-length"]
            for name, value in headers:
                if name.lower() not in (*_HOP_BY_HOP, "content-length"):
                    self.send_header(name, value)
            is_head = self.command == "HEAD"
            self.send_header("Content-Length", lengths[0] if is_head and lengths else str(len(data)))
            self.end_headers()
            if is_torn:
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            elif not is_head:
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


def act(faults: Faults, address: str, request: dict[str, Any]) -> dict[str, Any]:
    """Execute the request of a line."""
    match request["do"]:
        case "address":
            return {"endpoint": address}
        case "faults":
            faults.latency_seconds = request["latency_seconds"]
            faults.busy_every = request["busy_every"]
            faults.lost_answers = Counter(request["lost_answers"])
            faults.torn_answers = request["torn_answers"]
            faults.gone_until = time.monotonic() + request["gone_seconds"]
            return {}
        case "expire":
            faults.requests_left = dict(request["requests_left"])
            return {}
        case "take_counts":
            counts, faults.counts = dict(faults.counts), Counter()
            return {"counts": counts}
    raise ValueError(f"unknown request {request['do']}")


def main() -> None:
    """Serve until the input ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    answers = sys.stdout
    sys.stdout = sys.stderr
    server = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    faults = Faults()
    proxy = ThreadingHTTPServer((HOST, 0), handler_of(faults, port))
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    address = f"http://{HOST}:{proxy.server_address[1]}"
    for line in sys.stdin:
        print(json.dumps(act(faults, address, json.loads(line))), file=answers, flush=True)
    proxy.shutdown()
    server.stop()


if __name__ == "__main__":
    main()
