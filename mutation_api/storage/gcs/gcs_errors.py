"""What Google's client raises, as an OSError of ours: with errno, one line, and the location."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence

import requests
from google.api_core.exceptions import (
    Forbidden,
    GoogleAPICallError,
    NotFound,
    PreconditionFailed,
    RetryError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

from mutation_api.storage.location import Location

__all__ = ["os_errors"]

_KINDS: Sequence[tuple[type[Exception] | tuple[type[Exception], ...], type[OSError], int]] = (
    (NotFound, FileNotFoundError, errno.ENOENT),
    (PreconditionFailed, FileExistsError, errno.EEXIST),
    ((Forbidden, Unauthorized), PermissionError, errno.EACCES),
    ((TooManyRequests, ServiceUnavailable), BlockingIOError, errno.EAGAIN),
    ((requests.Timeout, TimeoutError), TimeoutError, errno.ETIMEDOUT),
    ((requests.ConnectionError, ConnectionError, TransportError), ConnectionError, errno.ECONNREFUSED),
    (GoogleAuthError, PermissionError, errno.EACCES),
)


@contextlib.contextmanager
def os_errors(location: Location) -> Iterator[None]:
    """Turn the client's errors into OSError with errno, one line of text and the location."""
    try:
        yield
    except RetryError as error:
        raise _of_client(error.cause or error, location) from None
    except (GoogleAPICallError, GoogleAuthError, InvalidResponse, DataCorruption) as error:
        raise _of_client(error, location) from None
    except (requests.RequestException, ConnectionError) as error:
        raise _of_client(error, location) from None


def _of_client(error: BaseException, location: Location) -> OSError:
    text = " ".join(str(error).split()) or type(error).__name__
    for kinds, kind, number in _KINDS:
        if isinstance(error, kinds):
            return kind(number, text, str(location))
    return OSError(errno.EIO, text, str(location))
