"""Errors of the AWS client and of a store as OSError: with errno, one line of text, and the location."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator, Sequence

from botocore.exceptions import BotoCoreError, ClientError

from mutation_api.storage.location import Location

__all__ = [
    "BrokenAnswerError",
    "ConflictError",
    "ExpiredKeysError",
    "OutOfRangeError",
    "UnknownConditionError",
    "of_code",
    "os_errors",
]

_MISSING = ("404", "NoSuchKey", "NotFound", "NoSuchBucket")
_NO_UPLOAD = ("NoSuchUpload", "404")
_TAKEN = ("PreconditionFailed", "412")
_BUSY = ("SlowDown", "503", "ServiceUnavailable", "RequestLimitExceeded", "Throttling", "TooManyRequests")
_REFUSED = ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "400")
"""The answer to a HEAD has only a status. With valid keys none of our HEADs is a bad request."""
_EXPIRED_HINT = "the credentials for the store have expired; give new ones and run the job again"
_CONFLICT = ("ConditionalRequestConflict", "409")
_UNKNOWN_CONDITION = ("NotImplemented", "501", "InvalidArgument")


class OutOfRangeError(OSError):
    """The requested range lies behind the end."""


class BrokenAnswerError(ConnectionError):
    """The connection broke in the middle of an answer."""


class ExpiredKeysError(PermissionError):
    """The keys have expired."""


class ConflictError(OSError):
    """Another request writes the same key at this time; ours may be repeated."""


class UnknownConditionError(OSError):
    """The store does not know the condition."""


@contextlib.contextmanager
def os_errors(location: Location) -> Iterator[None]:
    """Turn the client's errors into OSError with errno, one line of text and the location."""
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
        text = f"the provider of the store's keys does not answer in JSON: {error}"
        raise PermissionError(errno.EACCES, text, str(location)) from None
    except RuntimeError as error:
        if "expired" not in str(error):  # the client's error for fetched keys that have expired already
            raise
        raise ExpiredKeysError(errno.EACCES, f"{error} ({_EXPIRED_HINT})", str(location)) from None


def of_code(code: str, text: str, location: Location) -> OSError:
    """The error that a store means by a code."""
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
