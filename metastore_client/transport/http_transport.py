"""Thrift over HTTP: each call is a POST, many of them on one connection.

Refused: Thrift's own client, which opens a new connection for each call and takes an error page for an
answer.
"""

from __future__ import annotations

import html
import http.client
import io
import re
from typing import Any

from thrift.transport.TTransport import TTransportBase, TTransportException

from metastore_client.errors import (
    InvalidConfigurationError,
    MetastoreUnavailableError,
    SecureConnectionError,
)
from metastore_client.transport.security import HttpConfig

__all__ = ["HttpTransport", "http_headers"]

USER_HEADER = "x-actor-username"

_CONTENT_TYPE = "application/x-thrift"
_MAX_REASON_CHARACTERS = 300
_REFUSALS = {http.client.UNAUTHORIZED: "the login", http.client.FORBIDDEN: "this user"}


def http_headers(config: HttpConfig, user: str) -> dict[str, str]:
    """Make the headers of every request.

    Args:
        config: the HTTP settings.
        user: our name if the settings name no user.

    Raises:
        InvalidConfigurationError: HTTP cannot carry a header.

    Source: HiveMetaStoreClient.createHttpClientBuilder of Hive 4.1: the user's name or a token, never both.
    """
    headers = {"Content-Type": _CONTENT_TYPE, "Accept": _CONTENT_TYPE}
    if config.bearer_token is None:
        headers[USER_HEADER] = config.user or user
    else:
        headers["Authorization"] = f"Bearer {config.bearer_token}"
    headers.update(config.headers)
    for name, value in headers.items():
        if not (
            value.isprintable() and value.isascii() and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)
        ):
            raise InvalidConfigurationError(f"the HTTP header {name!r} cannot be sent: only ASCII text can")
    return headers


class HttpTransport(TTransportBase):  # type: ignore[misc]
    """Carries calls over an open connection. A closed connection is thrown away, not opened again.

    Args:
        connected: an open Thrift socket.
        host: the server's name, with the port.
        path: the path of the address.
        headers: the headers of every request.
    """

    def __init__(self, connected: Any, host: str, path: str, headers: dict[str, str]) -> None:
        self._connected = connected
        self._path = "/" + path.lstrip("/")
        self._headers = headers
        self._request = io.BytesIO()
        self._answer = io.BytesIO()
        self._http = http.client.HTTPConnection(host)
        self._http.sock = connected.handle
        self._http.auto_open = 0

    def isOpen(self) -> bool:  # noqa: N802 - Thrift's name
        """Whether the server has its end open; it closes connections that were idle for long."""
        return self._http.sock is not None and bool(self._connected.isOpen())

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
        self._connected.close()

    def write(self, data: bytes) -> None:
        """Add to the next request."""
        self._request.write(data)

    def flush(self) -> None:
        """Send the request and receive the answer.

        Raises:
            TTransportException: the connection broke, or the server failed: the call may have taken effect.
            SecureConnectionError: the server refuses our login; nothing was done.
            MetastoreUnavailableError: there is no metastore at this path.
        """
        body = self._request.getvalue()
        self._request = io.BytesIO()
        try:
            self._http.request("POST", self._path, body, self._headers)
            response = self._http.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise TTransportException(message=f"HTTP: {error or type(error).__name__}") from error
        if response.status != http.client.OK:
            self.close()
            raise self._failure(response, answer)
        self._answer = io.BytesIO(answer)

    def read(self, count: int) -> bytes:
        """Give at most ``count`` bytes of the answer.

        Raises:
            TTransportException: the answer has no more bytes.
        """
        found = self._answer.read(count)
        if not found:
            raise TTransportException(TTransportException.END_OF_FILE, "HTTP: the answer is truncated")
        return found

    def _failure(self, response: http.client.HTTPResponse, answer: bytes) -> Exception:
        text = f"HTTP: POST {self._path} was answered {response.status} {response.reason}: {_reason(answer)}"
        if response.status in _REFUSALS:
            return SecureConnectionError(f"the server refuses {_REFUSALS[response.status]}; {text}")
        if response.status in (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED):
            return MetastoreUnavailableError(f"no metastore is at this path; {text}")
        failure: Exception = TTransportException(message=text)
        return failure


def _reason(answer: bytes) -> str:
    """The text of an error page, or its title."""
    text = answer.decode("utf-8", errors="replace")
    title = re.search(r"<title>(.*?)</title>", text, re.DOTALL | re.IGNORECASE)
    return " ".join(html.unescape(title[1] if title else text).split())[:_MAX_REASON_CHARACTERS]
