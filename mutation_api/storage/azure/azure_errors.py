"""Errors of Azure's client as OSError: with errno, one line of text, the location, and no signature."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from mutation_api.storage.location import Location

__all__ = ["os_errors"]

_NO_BLOCKS = ("InvalidBlockList", "InvalidBlockId")
_BUSY = (429, 503)
_SIGNATURE = re.compile(r"\bsig=[^&\s'\")]+")


@contextlib.contextmanager
def os_errors(location: Location) -> Iterator[None]:
    """Turn the client's errors into OSError with errno, one line of text (no signature) and the location."""
    try:
        yield
    except ClientAuthenticationError as error:
        raise PermissionError(errno.EACCES, _line(error), str(location)) from None
    except HttpResponseError as error:
        raise _of_answer(error, location) from None
    except AzureError as error:
        raise _of_client(error, location) from None


def _of_answer(error: HttpResponseError, location: Location) -> OSError:
    reported = getattr(error, "error_code", None) or error.reason or ""
    code = str(getattr(reported, "value", reported))
    text = f"{_line(error)} ({code}, request {_request_id(error)})"
    status = error.status_code
    if code in _NO_BLOCKS or status == 404:
        return FileNotFoundError(errno.ENOENT, text, str(location))
    if code == "DirectoryIsNotEmpty":
        return OSError(errno.ENOTEMPTY, text, str(location))
    if code == "BlobAlreadyExists" or status == 412:
        return FileExistsError(errno.EEXIST, text, str(location))
    if status in (401, 403):
        return PermissionError(errno.EACCES, text, str(location))
    if status in _BUSY:
        return BlockingIOError(errno.EAGAIN, text, str(location))
    return OSError(errno.EIO, text, str(location))


def _of_client(error: AzureError, location: Location) -> OSError:
    text = _line(error)
    if "timed out" in text.lower() or "timeout" in text.lower():
        return TimeoutError(errno.ETIMEDOUT, text, str(location))
    if isinstance(error, (ServiceRequestError, ServiceResponseError)):
        return ConnectionError(errno.ECONNREFUSED, text, str(location))
    return OSError(errno.EIO, text, str(location))


def _line(error: AzureError) -> str:
    first = next(iter(str(error.message or error).strip().splitlines()), type(error).__name__)
    return _SIGNATURE.sub("sig=…", first)


def _request_id(error: HttpResponseError) -> str:
    headers = getattr(error.response, "headers", None) or {}
    return str(headers.get("x-ms-request-id", ""))
