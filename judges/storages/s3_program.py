"""An S3 server behind a proxy that counts requests and simulates faults; run as a program.

python -m judges.storages.s3_program
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from moto.server import ThreadedMotoServer

from judges.storages.store_proxy import (
    HOST,
    Answer,
    Ask,
    Fate,
    Faults,
    Request,
    StoreProxy,
    act,
    answer_lines,
    server_at,
)

_ACCESS_KEY = re.compile(r"Credential=([^/,]+)/")


class _Keys:
    """Access keys that are good for a number of requests."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._requests_left: dict[str, int] = {}

    def expire(self, requests_left: Mapping[str, int]) -> None:
        """See :meth:`judges.storages.s3_server.S3Server.expire`."""
        with self._guard:
            self._requests_left = dict(requests_left)

    def refuse(self, request: Request, fate: Fate) -> Answer | None:
        """Refuse a request that was signed with a key whose requests are used up; another if the server is
        busy.
        """
        signature = next((v for k, v in request.headers.items() if k.lower() == "authorization"), "")
        if self._is_expired(signature):
            return _error(400, "ExpiredToken", "The provided token has expired.")
        return _error(503, "SlowDown", "Please reduce your request rate.") if fate.is_busy else None

    def _is_expired(self, signature: str) -> bool:
        signed_by = _ACCESS_KEY.search(signature)
        key = "" if signed_by is None else signed_by[1]
        with self._guard:
            if key not in self._requests_left:
                return False
            self._requests_left[key] -= 1
            return self._requests_left[key] < 0


def _operation_of(method: str, target: str) -> str:
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


def _answering_as_s3(ask: Ask) -> Ask:
    """The same server, which says that an upload is gone where moto fails."""

    def answered(request: Request) -> Answer:
        answer = ask(request)
        if answer.status == 500 and _operation_of(request.method, request.target) == "complete_upload":
            return _error(404, "NoSuchUpload", "The specified upload does not exist.")
        return answer

    return answered


def _error(status: int, code: str, message: str) -> Answer:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()
    return Answer(status, [("Content-Type", "application/xml")], body, str(len(body)))


def main() -> None:
    """Serve until the input ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    answers = sys.stdout
    sys.stdout = sys.stderr
    server = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    server.start()
    keys = _Keys()
    proxy = StoreProxy(Faults(), _operation_of, keys.refuse)
    proxy.serve(_answering_as_s3(server_at(server.get_host_and_port()[1])))

    def act_on(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "expire":
            keys.expire(request["requests_left"])
            return {}
        return act(proxy, request)

    answer_lines(act_on, answers)
    proxy.shutdown()
    server.stop()


if __name__ == "__main__":
    main()
