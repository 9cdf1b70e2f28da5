"""What the AWS client raises, and what a store answers, as an OSError of ours: with errno, one line, and the
location.
"""

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
"""The answer to a HEAD has a status alone; with good keys no HEAD of ours is a bad request."""
_EXPIRED_HINT = "the credentials for the store have expired; give new ones and run the job again"
_CONFLICT = ("ConditionalRequestConflict", "409")
_UNKNOWN_CONDITION = ("NotImplemented", "501", "InvalidArgument")


class OutOfRangeError(OSError):
    """The range that was asked for lies behind the end."""


class BrokenAnswerError(ConnectionError):
    """An answer began well and did not end."""


class ExpiredKeysError(PermissionError):
    """The keys were good once."""


class ConflictError(OSError):
    """Somebody writes the same key; the request may be repeated."""


class UnknownConditionError(OSError):
    """The store does not know the condition."""


@contextlib.contextmanager
def os_errors(location: Location) -> Iterator[None]:
    """What the client raises as an OSError of ours: with errno, one line, and the location."""
    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        request_id = error.response.get("ResponseMetadata", {}).get("RequestId", "")
        text = f"{told.get('Message') or error.operation_name} ({told.get('Code')}, request {request_id})"
        raise of_code(str(told.get("Code", "")), text, location) from None
    except BotoCoreError as error:
        raise _of_client(error, location) from None
    except json.JSONDecodeError as error:  # the store answers in XML
        text = f"whoever tells the keys for the store does not answer in JSON: {error}"
        raise PermissionError(errno.EACCES, text, str(location)) from None
    except RuntimeError as error:
        if "expired" not in str(error):  # so the client says that keys which it has just got are over
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
