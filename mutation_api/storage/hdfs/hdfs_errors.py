"""Errors of the HDFS client as OSError: with errno, one line of text, and the location.

The NameNode's errors are distinguished by the name of their Java class, the client's own by their texts,
since the client has no classes for them.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from mutation_api.storage.hdfs.hdfs_login import what_to_do
from mutation_api.storage.location import Location

__all__ = ["is_passing", "may_be_data_nodes", "os_errors"]

_RPC_ERROR = re.compile(r"RPCError\(\"(?P<name>[\w.$]+)\", \"(?P<text>.*)", re.DOTALL)
_LOGIN_ERROR = re.compile(r"(GSSAPIError\(.*?, \"(?P<text>.*)\"\)|NoSASLMechanism)$", re.DOTALL)
_END_OF_FIRST_LINE = re.compile(r"\\n|\n")
_TOKEN_REFUSED = "InvalidToken"
_ERRORS: dict[str, tuple[type[OSError], int]] = {
    "AccessControlException": (PermissionError, errno.EACCES),
    "AuthorizationException": (PermissionError, errno.EACCES),
    _TOKEN_REFUSED: (PermissionError, errno.EACCES),
    "FileNotFoundException": (FileNotFoundError, errno.ENOENT),
    "FileAlreadyExistsException": (FileExistsError, errno.EEXIST),
    "AlreadyBeingCreatedException": (FileExistsError, errno.EEXIST),
    "ParentNotDirectoryException": (NotADirectoryError, errno.ENOTDIR),
    "PathIsNotDirectoryException": (NotADirectoryError, errno.ENOTDIR),
    "PathIsNotEmptyDirectoryException": (OSError, errno.ENOTEMPTY),
    "DSQuotaExceededException": (OSError, errno.EDQUOT),
    "NSQuotaExceededException": (OSError, errno.EDQUOT),
    "QuotaByStorageTypeExceededException": (OSError, errno.EDQUOT),
    "SafeModeException": (OSError, errno.EROFS),
    "StandbyException": (ConnectionRefusedError, errno.ECONNREFUSED),
    "RetriableException": (BlockingIOError, errno.EAGAIN),
    "SnapshotException": (PermissionError, errno.EPERM),
}
"""By the last part of the Java class's name. In safe mode reading works and writing does not."""

_STARTING = re.compile(r"turned off automatically|There are 0 datanode\(s\) running")
"""The NameNode is in safe mode, or without DataNodes, because it has just started."""
_OS_ERROR = re.compile(r"\(os error (?P<number>\d+)\)")
_PASSING = (errno.EAGAIN, errno.ECONNABORTED, errno.ECONNRESET, errno.EPIPE)
"""Errors that may pass with time. The client itself waits for a NameNode that refuses connections."""

_ACROSS_MOUNTS = "Cannot rename across different name services"
_OF_DATA_NODES = ("DataTransferError", 'OperationFailed("Failed to complete file in time')
_NUMBERS: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
    ConnectionRefusedError: errno.ECONNREFUSED,
    TimeoutError: errno.ETIMEDOUT,
}


@contextlib.contextmanager
def os_errors(location: Location) -> Iterator[None]:
    """Turn the client's errors into OSError with errno, one line of text and the location."""
    try:
        yield
    except OSError as error:
        raise _plain(error, location) from None
    except RuntimeError as error:
        raise _of_java(str(error), location) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise OSError(
            errno.EIO, f"the HDFS client failed: {_first_line(str(error))}", str(location)
        ) from None


def is_passing(error: OSError) -> bool:
    """Whether the error may pass with time."""
    return error.errno in _PASSING


def may_be_data_nodes(error: OSError) -> bool:
    """Whether DataNodes may be the cause: the client waits for NameNodes that refuse connections, but tries a
    DataNode only once.
    """
    return is_passing(error) or error.errno == errno.ECONNREFUSED


def _plain(error: OSError, location: Location) -> OSError:
    if error.errno is not None and error.filename is not None:
        return error
    text = _first_line(str(error))
    if type(error) is OSError and error.errno is None:
        found = _OS_ERROR.search(text)
        number = int(found["number"]) if found else _without_number(text)
        return OSError(number, text, str(location))  # of the class that the number has
    number = error.errno or _NUMBERS.get(type(error), errno.EIO)
    return type(error)(number, text, str(location))


def _without_number(text: str) -> int:
    """The errno for an error without one: the client raises these for connections and for unknown hosts."""
    return errno.EHOSTUNREACH if "lookup address" in text else errno.ECONNABORTED


def _of_java(text: str, location: Location) -> OSError:
    login = _LOGIN_ERROR.search(text)
    if login is not None:
        reason = _first_line(login["text"] or "neither a ticket nor a token of ours is wanted")
        return PermissionError(errno.EACCES, f"{reason}; {what_to_do()}", str(location))
    match = _RPC_ERROR.search(text)
    if match is None:
        return OSError(_number_by_client(text), _first_line(text), str(location))
    if _STARTING.search(text):
        return BlockingIOError(errno.EAGAIN, _first_line(match["text"]), str(location))
    name = match["name"].rpartition(".")[2].rpartition("$")[2]
    kind, number = _ERRORS.get(name, (OSError, errno.EIO))
    advice = f"; {what_to_do()}" if name == _TOKEN_REFUSED else ""
    return kind(number, f"{name}: {_first_line(match['text'])}{advice}", str(location))


def _number_by_client(text: str) -> int:
    if text.startswith(_OF_DATA_NODES):
        return errno.ECONNABORTED
    return errno.EXDEV if _ACROSS_MOUNTS in text else errno.EIO


def _first_line(text: str) -> str:
    line = _END_OF_FIRST_LINE.split(text, maxsplit=1)[0].strip()
    return line.removesuffix('")').replace('\\"', '"').strip('"')
