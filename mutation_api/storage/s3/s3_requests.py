"""Requests to one bucket with keys that may expire.

Each request is repeated with back-off as often as ``fs.s3a.attempts.maximum`` says (see ``repeating``).

Keys may expire at any time. If the AWS client found them itself, it looks for them again when the store calls
them expired. A profile or an environment that another program keeps fresh needs this.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import HTTPClientError, IncompleteReadError

from mutation_api.storage.client_of_process import ClientOfProcess
from mutation_api.storage.location import Location
from mutation_api.storage.s3.repeating import Repeating
from mutation_api.storage.s3.s3_errors import BrokenAnswerError, ExpiredKeysError, os_errors
from mutation_api.storage.s3.s3_settings import S3Settings

__all__ = ["S3Requests"]

_Answer = TypeVar("_Answer")

_CONNECT_SECONDS = 10
_READ_SECONDS = 60


class S3Requests:
    """Makes requests to one bucket; raises OSError. Safe to use from several threads, and after a fork."""

    def __init__(self, bucket: str, settings: S3Settings, threads: int) -> None:
        """Up to ``threads`` requests may run in parallel."""
        self._bucket = bucket
        self._settings = settings
        self._client = ClientOfProcess(lambda: _client(settings, threads))

    def ask(self, operation: str, location: Location, **arguments: Any) -> dict[str, Any]:
        """One request."""

        def request(client: Any) -> dict[str, Any]:
            answer: dict[str, Any] = getattr(client, operation)(**self._common(), **arguments)
            return answer

        return self._with_good_keys(location, request)

    def pages(self, operation: str, location: Location, **arguments: Any) -> Sequence[dict[str, Any]]:
        """All pages of a listing."""

        def pages(client: Any) -> Sequence[dict[str, Any]]:
            paginator = client.get_paginator(operation)
            return tuple(paginator.paginate(**self._common(), EncodingType="url", **arguments))

        return self._with_good_keys(location, pages)

    def content(self, location: Location, **arguments: Any) -> tuple[dict[str, Any], bytes]:
        """Answer and bytes of an object; requested again if the connection breaks in the middle of them."""
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
        """Make a request; if the keys have expired, once more with a client that looks for them again."""
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
