"""The client of one HDFS: its address, its requests, its errors, and how long it waits.

Requests wait for a NameNode that is down, is starting, or hands over to another one. The client library
itself waits for a NameNode that refuses connections or is a standby, according to Hadoop's settings
``dfs.client.failover.max.attempts``, ``….sleep.base.millis`` and ``….sleep.max.millis``. Without the first
setting, it would wait for three minutes with one NameNode, and for a quarter of a minute with three. So this
module sets it to a value that results in about a minute in both cases. The library does not wait for a
NameNode that is still starting. It does not repeat a change whose answer was lost, since it cannot know
whether the change took effect. In these two cases, this module waits and repeats, within the same time.

Errors become OSError with errno, a one-line reason and the location. The NameNode's errors are distinguished
by the name of their Java class. The library's own errors are distinguished by their messages, since it has no
classes for them.

A client that was created before a fork hangs forever after it, so each process creates its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from hdfs_native import Client

from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.hdfs_login import log_in, what_to_do
from mutation_api.storage.location import Location

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
"""Python error by the last part of the Java class's name.

In safe mode, reading works but writing does not.
"""

_STARTING = re.compile(r"turned off automatically|There are 0 datanode\(s\) running")
"""Messages of a NameNode that is in safe mode or has no DataNodes because it has just started."""
_OS_ERROR = re.compile(r"\(os error (?P<number>\d+)\)")
_PASSING = (errno.EAGAIN, errno.ECONNABORTED, errno.ECONNRESET, errno.EPIPE)
"""Temporary errors. The client itself waits for a NameNode that refuses connections."""

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
    """Turn the client's errors into OSError with errno, a one-line reason and the location."""
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
    """Return True if the error may be temporary."""
    return error.errno in _PASSING


def may_be_data_nodes(error: OSError) -> bool:
    """Return True if DataNodes may be the cause.

    The client waits for NameNodes that refuse connections, but tries a DataNode only once.
    """
    return is_passing(error) or error.errno == errno.ECONNREFUSED


def _plain(error: OSError, location: Location) -> OSError:
    if error.errno is not None and error.filename is not None:
        return error
    text = _first_line(str(error))
    if type(error) is OSError and error.errno is None:
        found = _OS_ERROR.search(text)
        number = int(found["number"]) if found else _without_number(text)
        return OSError(number, text, str(location))  # Python chooses the class by the number
    number = error.errno or _NUMBERS.get(type(error), errno.EIO)
    return type(error)(number, text, str(location))


def _without_number(text: str) -> int:
    """Return the errno for an error without one.

    The client raises these for connections and unknown hosts.
    """
    return errno.EHOSTUNREACH if "lookup address" in text else errno.ECONNABORTED


def _of_java(text: str, location: Location) -> OSError:
    login = _LOGIN_ERROR.search(text)
    if login is not None:
        reason = _first_line(login["text"] or "the NameNode accepts neither this user's ticket nor its token")
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


_ATTEMPTS = "dfs.client.failover.max.attempts"
_FIRST_SLEEP = "dfs.client.failover.sleep.base.millis"
_LONGEST_SLEEP = "dfs.client.failover.sleep.max.millis"
_FIRST_SLEEP_DEFAULT = 500
_LONGEST_SLEEP_DEFAULT = 15_000
_ROUNDS_DEFAULT = 8
"""Number of rounds. Each round asks every NameNode once, and the pauses between them add up to a minute."""

_Result = TypeVar("_Result")


class Patience:
    """The waiting times for one HDFS. ``settings`` are those passed to its client."""

    def __init__(self, settings: HadoopSettings) -> None:
        """Read the waiting times.

        Raises:
            OSError: If a setting is not a number (EINVAL).
        """
        name_nodes = _most_name_nodes(settings)
        attempts = settings.number(_ATTEMPTS, _ROUNDS_DEFAULT * name_nodes)
        self._rounds = max(1, attempts // name_nodes)
        self._first = settings.number(_FIRST_SLEEP, _FIRST_SLEEP_DEFAULT) / 1000
        self._longest = settings.number(_LONGEST_SLEEP, _LONGEST_SLEEP_DEFAULT) / 1000
        self.settings = settings.with_properties({_ATTEMPTS: str(attempts)})

    @property
    def seconds(self) -> float:
        """The approximate total waiting time."""
        return sum(self._sleeps())

    def repeat(
        self,
        work: Callable[[], _Result],
        is_passing: Callable[[OSError], bool],
        again: Callable[[], _Result] | None = None,
    ) -> _Result:
        """Return the result of ``work``.

        After a temporary error, repeat with ``again`` (by default ``work``). Other errors are raised
        immediately. When the time is up, the last error is raised.
        """
        deadline = time.monotonic() + self.seconds
        for sleep in self._sleeps():
            try:
                return work()
            except OSError as error:
                if not is_passing(error) or time.monotonic() > deadline:
                    raise
            time.sleep(sleep * random.uniform(0.5, 1.5))
            work = again or work
        return work()

    def _sleeps(self) -> Iterator[float]:
        return (min(self._first * 2**n, self._longest) for n in range(self._rounds))


def _most_name_nodes(settings: HadoopSettings) -> int:
    services = [name.strip() for name in (settings.get("dfs.nameservices") or "").split(",")]
    found = [settings.get(f"dfs.ha.namenodes.{service}") or "" for service in services]
    return max(len([name for name in names.split(",") if name.strip()] or [""]) for names in found)


_DEFAULT_PORT = 8020


def url_of(scheme: str, authority: str, settings: HadoopSettings) -> str:
    """Return the URL of a NameNode, a name service or a mount table, as the client library expects it.

    Raises:
        OSError: If neither the location nor ``fs.defaultFS`` names a NameNode (EINVAL).
    """
    if authority:
        return _url(scheme, authority, settings)
    default = settings.get("fs.defaultFS") or settings.get("fs.default.name") or ""
    if not default.startswith(f"{scheme}://"):
        raise OSError(
            errno.EINVAL,
            f"neither the location nor fs.defaultFS ({default!r}) names a NameNode: set "
            "HADOOP_CONF_DIR, or name the NameNode",
            f"{scheme}:/",
        )
    return default.rstrip("/")


def _url(scheme: str, authority: str, settings: HadoopSettings) -> str:
    services = [name.strip() for name in (settings.get("dfs.nameservices") or "").split(",")]
    if scheme == "hdfs" and ":" not in authority and authority not in services:
        return f"{scheme}://{authority}:{_DEFAULT_PORT}"
    return f"{scheme}://{authority}"


class PatientClient:
    """A client that makes requests to one HDFS and waits while it is down.

    ``settings`` are passed to the library.
    """

    def __init__(self, url: str, settings: HadoopSettings) -> None:
        """Read the timeouts.

        Raises:
            OSError: If a setting is not a number (EINVAL).
        """
        self.url = url
        self._patience = Patience(settings)
        self.settings = self._patience.settings
        self._guard = threading.Lock()
        self._clients: dict[int, Client] = {}

    @property
    def seconds(self) -> float:
        """The approximate time for which a request waits for an HDFS that is down."""
        return self._patience.seconds

    def ask(
        self,
        location: Location,
        work: Callable[[Client], _Result],
        *,
        again: Callable[[Client], _Result] | None = None,
    ) -> _Result:
        """Run ``work``, and run ``again`` later if the NameNode is down for a while.

        ``again`` determines whether ``work`` took effect.
        """

        def translated(ask: Callable[[Client], _Result]) -> _Result:
            with os_errors(location):
                return ask(self.connected())

        return self._patience.repeat(
            lambda: translated(work),
            is_passing,
            None if again is None else lambda: translated(again),
        )

    def connected(self) -> Client:
        """Return the library's client of this process.

        The parent's client is kept: dropping it would hang.
        """
        process_id = os.getpid()
        client = self._clients.get(process_id)
        if client is None:
            with self._guard:
                client = self._clients.get(process_id) or Client(*log_in(self.url, self.settings))
                self._clients[process_id] = client
        return client
