"""Repeating: which requests to S3 are repeated, and how long a store may be gone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from botocore.exceptions import ConnectionClosedError, NoCredentialsError, ReadTimeoutError

from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.s3_requests import LONGEST_PAUSE_SECONDS, Repeating
from mutation_api.storage.s3_settings import S3Settings


def answer(status: int, code: str = "") -> tuple[SimpleNamespace, dict[str, dict[str, str]]]:
    return SimpleNamespace(status_code=status), {"Error": {"Code": code}} if code else {}


def test_a_store_may_be_gone_for_twenty_seconds() -> None:
    """By default, for all random pauses; the pauses of a request add up to less than a minute."""
    attempts = S3Settings.of_bucket("b", HadoopSettings()).attempts
    for _ in range(200):
        pauses = [Repeating(attempts).pause_seconds(attempt) for attempt in range(1, attempts)]
        assert max(pauses) <= LONGEST_PAUSE_SECONDS
        assert 20 <= sum(pauses) <= 45


@pytest.mark.parametrize(
    ("response", "caught"),
    [
        (None, ConnectionClosedError(endpoint_url="http://x")),
        (None, ReadTimeoutError(endpoint_url="http://x")),
        (None, ConnectionResetError()),
        (answer(503, "SlowDown"), None),
        (answer(500), None),
        (answer(400, "RequestTimeout"), None),
        (answer(429), None),
    ],
)
def test_what_passes_is_sent_again(response: tuple[object, object] | None, caught: Exception | None) -> None:
    """As often as configured."""
    repeating = Repeating(3)
    assert [
        repeating(attempts=n, response=response, caught_exception=caught) is not None for n in (1, 2, 3)
    ] == [True, True, False]


@pytest.mark.parametrize(
    ("response", "caught"),
    [
        (answer(200), None),
        (answer(403, "AccessDenied"), None),
        (answer(400, "ExpiredToken"), None),
        (answer(412, "PreconditionFailed"), None),
        (None, NoCredentialsError()),
    ],
)
def test_what_stays_is_final(response: tuple[object, object] | None, caught: Exception | None) -> None:
    """The result would be the same."""
    assert Repeating(10)(attempts=1, response=response, caught_exception=caught) is None
