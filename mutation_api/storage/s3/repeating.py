"""When a request to S3 is repeated, and after which pause.

The client's own modes fail when a store is gone for a while. Its "standard" mode waits a twentieth of a
second first, so eight attempts are over after three seconds; it stops repeating altogether when a hundred
parallel requests have been repeated. Its "legacy" mode waits a random time without a lower bound. Here each
pause is twice the one before, less up to half of it at random, so that many workers do not come back
together: ten attempts take 20 to 41 seconds.
"""

from __future__ import annotations

import random
from typing import Any

from botocore.exceptions import ConnectionError as ClientConnectionError
from botocore.exceptions import HTTPClientError

__all__ = ["Repeating"]

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
    """The pauses between the AWS client's attempts; a handler of its event ``needs-retry``.

    The client signs each repetition anew, with the keys valid at that time.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts

    def pause_seconds(self, attempt: int) -> float:
        """How long to wait after an attempt; the first attempt is 1."""
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1))
        return longest * random.uniform(0.5, 1.0)

    def __call__(
        self, attempts: int, response: tuple[Any, Any] | None, caught_exception: Exception | None, **_: Any
    ) -> float | None:
        """The pause after this answer, or after a failure to get one; None: do not repeat."""
        if attempts >= self._attempts or not _is_passing(response, caught_exception):
            return None
        return self.pause_seconds(attempts)


def _is_passing(response: tuple[Any, Any] | None, caught: Exception | None) -> bool:
    if response is None:
        return isinstance(caught, (ClientConnectionError, HTTPClientError, ConnectionError))
    http, parsed = response
    return http.status_code in _PASSING_STATUS or parsed.get("Error", {}).get("Code") in _PASSING_CODES
