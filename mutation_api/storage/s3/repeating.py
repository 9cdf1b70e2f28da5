"""When a request to S3 is sent again, and after what pause.

The client's own ways to repeat do not bear a store that is gone for a while: its "standard" mode waits a
twentieth of a second first, so eight attempts are over after three seconds, and it stops repeating at all
when a hundred requests side by side have been repeated; its "legacy" mode waits by chance alone, maybe not at
all.
Here each pause is twice the one before, less up to half of it by chance, so that many workers do not come
back together: ten attempts take 20 to 41 seconds.
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
    """Tells the AWS client how long to wait before it sends a request again; its event ``needs-retry``.

    The client signs a repetition anew, with keys that are good then.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts

    def pause_seconds(self, attempt: int) -> float:
        """How long to wait after an attempt, the first of which is 1."""
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1))
        return longest * random.uniform(0.5, 1.0)

    def __call__(
        self, attempts: int, response: tuple[Any, Any] | None, caught_exception: Exception | None, **_: Any
    ) -> float | None:
        """The pause after this answer, or this lack of one; None: it is final."""
        if attempts >= self._attempts or not _is_passing(response, caught_exception):
            return None
        return self.pause_seconds(attempts)


def _is_passing(response: tuple[Any, Any] | None, caught: Exception | None) -> bool:
    if response is None:
        return isinstance(caught, (ClientConnectionError, HTTPClientError, ConnectionError))
    http, parsed = response
    return http.status_code in _PASSING_STATUS or parsed.get("Error", {}).get("Code") in _PASSING_CODES
