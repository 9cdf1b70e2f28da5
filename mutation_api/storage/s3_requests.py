"""Requests to one bucket of S3: their repetition, their errors, and keys that may expire.

Each request is repeated with back-off, up to ``fs.s3a.attempts.maximum`` attempts. The client's own modes
fail when a store is unavailable for a while. Its "standard" mode starts with a pause of a twentieth of a
second, so eight attempts are over after three seconds. It also stops repeating after a hundred parallel
requests have been repeated. Its "legacy" mode waits a random time without a lower bound. Here, each pause is
twice the previous one, less a random share of up to half, so that many workers do not return at the same
time. Ten attempts take 20 to 41 seconds.

Keys may expire at any time. If the AWS client found them itself, it looks for them again when the store
reports them as expired. This is needed for a profile or an environment that another program keeps up to date.

Errors of the client or the store become OSError with errno, a one-line reason and the location.
"""

from __future__ import annotations

import contextlib
import errno
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as ClientConnectionError

from mutation_api.storage.hadoop_settings import ClientOfProcess
from mutation_api.storage.location import Location
from mutation_api.storage.s3_settings import S3Settings

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 16.0
_PASSING_STATUS = (408, 429, 500, 502, 503, 504)
_PASSING_CODES = (
    "InternalError",
    "RequestTimeout",
    "SlowDown",
    "ServiceUnavailable",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
)


class Repeating:
    """The pauses between the AWS client's attempts. It handles the client's event ``needs-retry``.

    The client signs each repetition again, with the keys that are valid at that time.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts

    def pause_seconds(self, attempt: int) -> float:
        """Return the time to wait after an attempt. The first attempt is 1."""
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1))
        return longest * random.uniform(0.5, 1.0)

    def __call__(
        self, attempts: int, response: tuple[Any, Any] | None, caught_exception: Exception | None, **_: Any
    ) -> float | None:
        """Return the pause after this answer, or after a failure to get one.

        None means that the request is not repeated.
        """
        if attempts >= self._attempts or not _is_passing(response, caught_exception):
            return None
        return self.pause_seconds(attempts)


def _is_passing(response: tuple[Any, Any] | None, caught: Exception | None) -> bool:
    if response is None:
        return isinstance(caught, (ClientConnectionError, HTTPClientError, ConnectionError))
    http, parsed = response
    return http.status_code in _PASSING_STATUS or parsed.get("Error", {}).get("Code") in _PASSING_CODES


_MISSING = ("404", "NoSuchKey", "NotFound", "NoSuchBucket")
_NO_UPLOAD = ("NoSuchUpload", "404")
_TAKEN = ("PreconditionFailed", "412")
_BUSY = ("SlowDown", "503", "ServiceUnavailable", "RequestLimitExceeded", "Throttling", "TooManyRequests")
_REFUSED = ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "400")
"""The codes of answers that mean expired keys. The answer to a HEAD request has only a status; with valid
keys, this library's HEAD requests are never bad requests."""
_EXPIRED_HINT = "the credentials for the store have expired; provide new ones and run the job again"
_CONFLICT = ("ConditionalRequestConflict", "409")
_UNKNOWN_CONDITION = ("NotImplemented", "501", "InvalidArgument")


class OutOfRangeError(OSError):
    """Raised when the requested range is behind the end of the object."""


class BrokenAnswerError(ConnectionError):
    """Raised when the connection broke in the middle of an answer."""


class ExpiredKeysError(PermissionError):
    """Raised when the keys have expired."""


class ConflictError(OSError):
    """Raised when another request is writing the same key at this time. The request may be repeated."""


class UnknownConditionError(OSError):
    """Raised when the store does not support the condition."""


@contextlib.contextmanager
def os_errors(location: Location) -> Iterator[None]:
    """Turn the client's errors into OSError with errno, a one-line reason and the location."""
    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        request_id = error.response.get("ResponseMetadata", {}).get("RequestId", "")
        text = f"{answer.get('Message') or error.operation_name} ({answer.get('Code')}, request {request_id})"
        raise of_code(str(answer.get("Code", "")), text, location) from None
    except BotoCoreError as error:
        raise _of_client(error, location) from None
    except json.JSONDecodeError as error:  # the store answers in XML
        text = f"the provider of the store's keys did not answer with JSON: {error}"
        raise PermissionError(errno.EACCES, text, str(location)) from None
    except RuntimeError as error:
        if "expired" not in str(error):  # the client's error for fetched keys that have already expired
            raise
        raise ExpiredKeysError(errno.EACCES, f"{error} ({_EXPIRED_HINT})", str(location)) from None


def of_code(code: str, text: str, location: Location) -> OSError:
    """Return the error that corresponds to a store's code."""
    kinds: list[tuple[Sequence[str], type[OSError], int]] = [
        (_MISSING + _NO_UPLOAD, FileNotFoundError, errno.ENOENT),
        (_TAKEN, FileExistsError, errno.EEXIST),
        (_REFUSED, PermissionError, errno.EACCES),
        (_EXPIRED, ExpiredKeysError, errno.EACCES),
        (_BUSY, BlockingIOError, errno.EAGAIN),
        (("InvalidRange", "416"), OutOfRangeError, errno.EINVAL),
        (_CONFLICT, ConflictError, errno.EBUSY),
        (_UNKNOWN_CONDITION, UnknownConditionError, errno.ENOTSUP),
    ]
    if code in _EXPIRED:
        text = f"{text}: {_EXPIRED_HINT}"
    for codes, kind, number in kinds:
        if code in codes:
            return kind(number, " ".join(text.split()), str(location))
    return OSError(errno.EIO, " ".join(text.split()), str(location))


def _of_client(error: BotoCoreError, location: Location) -> OSError:
    text = " ".join(str(error).split())
    name = type(error).__name__
    if "Timeout" in name:
        return TimeoutError(errno.ETIMEDOUT, text, str(location))
    if "Credential" in name or "Profile" in name:
        return PermissionError(errno.EACCES, text, str(location))
    if "Connection" in name or "Endpoint" in name or "HTTPClient" in name:
        return ConnectionError(errno.ECONNREFUSED, text, str(location))
    return OSError(errno.EIO, text, str(location))


_Answer = TypeVar("_Answer")

_CONNECT_SECONDS = 10
_READ_SECONDS = 60


class S3Requests:
    """A client that makes requests to one bucket.

    It raises OSError, is thread safe and works after a fork.
    """

    def __init__(self, bucket: str, settings: S3Settings, threads: int) -> None:
        """Prepare the client. Up to ``threads`` requests may run in parallel."""
        self._bucket = bucket
        self._settings = settings
        self._client = ClientOfProcess(lambda: _client(settings, threads))

    def ask(self, operation: str, location: Location, **arguments: Any) -> dict[str, Any]:
        """Make one request and return its answer."""

        def request(client: Any) -> dict[str, Any]:
            answer: dict[str, Any] = getattr(client, operation)(**self._common(), **arguments)
            return answer

        return self._with_good_keys(location, request)

    def pages(self, operation: str, location: Location, **arguments: Any) -> Sequence[dict[str, Any]]:
        """Return all pages of a listing."""

        def pages(client: Any) -> Sequence[dict[str, Any]]:
            paginator = client.get_paginator(operation)
            return tuple(paginator.paginate(**self._common(), EncodingType="url", **arguments))

        return self._with_good_keys(location, pages)

    def content(self, location: Location, **arguments: Any) -> tuple[dict[str, Any], bytes]:
        """Return the answer and the bytes of an object.

        Repeat the request if the connection breaks before the end.
        """
        repeating = Repeating(self._settings.attempts)
        for attempt in range(1, self._settings.attempts):
            try:
                return self._content_at_once(location, arguments)
            except BrokenAnswerError:
                time.sleep(repeating.pause_seconds(attempt))
        return self._content_at_once(location, arguments)

    def _content_at_once(
        self, location: Location, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bytes]:
        answer = self.ask("get_object", location, **arguments)
        try:
            return answer, answer["Body"].read()
        except (HTTPClientError, IncompleteReadError) as error:
            text = f"the connection broke in the middle of an answer: {' '.join(str(error).split())}"
            raise BrokenAnswerError(errno.ECONNRESET, text, str(location)) from None

    def _with_good_keys(self, location: Location, request: Callable[[Any], _Answer]) -> _Answer:
        """Make a request. If the keys have expired, make it again with a client that looks for new ones."""
        with os_errors(location):
            client = self._client.get()
        try:
            with os_errors(location):
                return request(client)
        except ExpiredKeysError:
            if not self._settings.finds_keys_itself:
                raise
        self._client.forget(client)
        with os_errors(location):
            return request(self._client.get())

    def _common(self) -> dict[str, str]:
        payer = {"RequestPayer": "requester"} if self._settings.requester_pays else {}
        return {"Bucket": self._bucket, **payer}


def _client(settings: S3Settings, threads: int) -> Any:
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=max(threads, settings.max_connections),
        retries={"mode": "standard", "total_max_attempts": 1},  # see repeating
        s3={"addressing_style": "path" if settings.path_style else "auto"},
        signature_version=botocore.UNSIGNED if settings.anonymous else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = boto3.session.Session(
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        aws_session_token=settings.session_token,
        region_name=settings.region,
    )
    client = session.client("s3", endpoint_url=settings.endpoint, config=config)
    client.meta.events.register("needs-retry.s3", Repeating(settings.attempts))
    return client
