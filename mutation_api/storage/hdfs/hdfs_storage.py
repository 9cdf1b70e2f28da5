"""HDFS, by ``hdfs-native``: no JVM in the workers.

Closing a file takes half a second, nearly all of it waiting: the NameNode says "not yet" at first, and the
client sleeps before it asks again. So files are closed side by side, in many threads; small ones are created
there, too.

A NameNode that is away, starts, or hands over to another is waited for, and what became of a change whose
answer was lost is found out: a file that was renamed is known by its hidden name, which is gone, and its
size, one that was created by its lease, one that was closed by its length after the lease was recovered. A
DataNode that is down is still given out for ten minutes; the client copes with one that goes down, not with
one that is down when a file begins, so such a file is begun anew.

What is made gets the mode of the directory it is made in (files without x): a table's directory says who
works on the table, and Hive's cleaner, which is another user, has to delete what we made. Below a default ACL
all is asked for, and the ACL decides. The client honours neither umask nor ``dfs.replication`` nor
``dfs.blocksize`` of the configuration, so they are said with each file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from hdfs_native import Client, WriteOptions

from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.hdfs.hdfs_login import log_in, what_to_do
from mutation_api.storage.hdfs.patience import Patience
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Staged
from mutation_api.storage.sized_input import SizedInput

__all__ = ["HdfsStorage", "connect"]

THREADS = 256
"""Each waits for half a second to close a file, and a task may write one every two milliseconds."""
_OUTPUT_BUFFER_BYTES = 1024 * 1024
_DEFAULT_PORT = 8020
_KNOWN_DIRECTORIES = 4096
_ALL = 0o777
_READ_WRITE = 0o666
_PIPELINES = 20
"""How often a file is begun again whose first block could not be written."""
_RECOVERY_POLL_SECONDS = 0.2

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
"""By the last part of the Java class's name. Safe mode: nothing can be written, reading works."""

_STARTING = re.compile(r"turned off automatically|There are 0 datanode\(s\) running")
"""The NameNode is in safe mode, or without DataNodes, because it has just started."""
_OWN_LEASE = re.compile(r"is already the current lease holder|current leaseholder is trying to recreate")
_OS_ERROR = re.compile(r"\(os error (?P<number>\d+)\)")
_PASSING = (errno.EAGAIN, errno.ECONNABORTED, errno.ECONNRESET, errno.EPIPE)
"""What waiting may help against; for who refuses connections the client has waited."""

_ACROSS_MOUNTS = "Cannot rename across different name services"
_OF_DATA_NODES = ("DataTransferError", 'OperationFailed("Failed to complete file in time')

_Result = TypeVar("_Result")


def connect(scheme: str, authority: str, settings: HadoopSettings) -> HdfsStorage:
    """The file system of a NameNode, a name service or a mount table; nobody is asked yet.

    Raises:
        OSError: EINVAL, the location names no NameNode and ``fs.defaultFS`` none either.
    """
    if authority:
        return HdfsStorage(scheme, authority, _url(scheme, authority, settings), settings)
    default = settings.get("fs.defaultFS") or settings.get("fs.default.name") or ""
    if not default.startswith(f"{scheme}://"):
        raise OSError(
            errno.EINVAL,
            f"a location without a NameNode goes by fs.defaultFS, which is {default!r}: set HADOOP_CONF_DIR, "
            "or name the NameNode",
            f"{scheme}:/",
        )
    return HdfsStorage(scheme, "", default.rstrip("/"), settings)


def _url(scheme: str, authority: str, settings: HadoopSettings) -> str:
    services = [name.strip() for name in (settings.get("dfs.nameservices") or "").split(",")]
    if scheme == "hdfs" and ":" not in authority and authority not in services:
        return f"{scheme}://{authority}:{_DEFAULT_PORT}"
    return f"{scheme}://{authority}"


@dataclass(frozen=True)
class _Modes:
    """What is asked for in a directory."""

    directory: int
    file: int


class HdfsStorage:
    """One HDFS; see :class:`~mutation_api.storage.protocol.Storage`."""

    publishes_by_rename = True
    has_directories = True
    threads = THREADS
    closing_waits = True

    def __init__(self, scheme: str, authority: str, url: str, settings: HadoopSettings) -> None:
        self._scheme = scheme
        self._authority = authority
        self._url = url
        self._patience = Patience(settings)
        self._settings = self._patience.settings
        self._guard = threading.Lock()
        self._clients: dict[int, Client] = {}
        self._modes: dict[str, _Modes] = {}

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name."""
        path = self._path(directory)
        found = self._ask(directory, lambda client: [*client.list_status(path)])
        if [status.path for status in found] == [path] and not found[0].isdir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
        return sorted((self._entry(status) for status in found), key=lambda entry: entry.name)

    def stat(self, location: Location) -> FileEntry | None:
        """The file or directory there, or None."""
        try:
            return self._entry(self._status(location))
        except FileNotFoundError:
            return None

    def open_input(self, location: Location) -> pa.NativeFile:
        """A seekable stream over the bytes of a file."""
        path = self._path(location)
        if self._status(location).isdir:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(location))
        reader = self._ask(location, lambda client: client.read(path))
        return pa.PythonFile(_Reader(reader, location), mode="r")

    def create(self, location: Location) -> _HdfsOutput:
        """Create a file, which is seen as it is written."""
        self._path(location)
        return _HdfsOutput(self, location)

    def create_directory(self, directory: Location) -> None:
        """Create a directory and its parents, each with the mode of its own parent."""
        missing = []
        while self.stat(directory) is None and directory.path != "/":
            missing.append(directory)
            directory = directory.parent
        for each in reversed(missing):
            self._create_one_directory(each)

    def stage(self, hidden: Location, target: Location) -> _HdfsOutput:
        """Create the hidden file."""
        self._path(hidden)
        self._path(target)
        return _HdfsOutput(self, hidden)

    def publish(self, staged: Staged, target: Location) -> None:
        """Rename the staged file, whose only tag is its size."""
        self.rename(staged.location, target, int(staged.part_tags[0]) if staged.part_tags else None)

    def rename(self, source: Location, target: Location, size: int | None = None) -> None:
        """One atomic step, which refuses an existing target. A file of another size is not taken for ours."""
        paths = self._path(source), self._path(target)

        def rename_again(client: Client) -> None:
            try:
                with _os_errors(source):
                    client.rename(*paths, False)
            except FileNotFoundError:
                found = client.get_file_info(paths[1])
                if found.isdir or size not in (None, found.length):
                    raise

        self._ask(source, lambda client: client.rename(*paths, False), again=rename_again)

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """Nothing is uploaded here."""
        self._path(directory)
        return ()

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Delete staged files."""
        for each in staged:
            with contextlib.suppress(FileNotFoundError):
                self.delete_file(each.location)

    def delete_file(self, location: Location) -> None:
        """Delete a file; also one that a dead writer left open."""
        path = self._path(location)
        is_deleted = self._ask(
            location,
            lambda client: client.delete(path, False),
            again=lambda client: client.delete(path, False) or True,
        )
        if not is_deleted:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(location))

    def delete_directory(self, directory: Location) -> None:
        """Delete a directory and everything in it."""
        path = self._path(directory)
        with contextlib.suppress(FileNotFoundError):
            self._ask(directory, lambda client: client.delete(path, True))

    def refusal(self, directory: Location) -> PermissionError | None:
        """Ask for the removal of a file that is not there: the NameNode looks at permissions first.

        It knows groups, ACLs and superusers, as nobody else does, and changes nothing.
        """
        try:
            self.delete_file(directory / f"_mutation_probe_{uuid.uuid4().hex}")
        except PermissionError as error:
            return PermissionError(error.errno, error.strerror, str(directory))
        except FileNotFoundError:
            return None
        return None

    def sync_directory(self, directory: Location) -> None:
        """Nothing to do: the NameNode's journal is on disk before it answers."""
        self._path(directory)

    def open_writer(self, location: Location) -> Any:
        """The client's own writer of a new file, which must not exist, in a directory that does."""
        path = self._path(location)
        mode = self._modes_in(location.parent).file
        first, over_own = (self._write_options(mode, overwrite=overwrite) for overwrite in (False, True))

        def create_again(client: Client) -> Any:
            try:
                return client.create(path, first)
            except FileExistsError as error:
                if not _OWN_LEASE.search(str(error)):
                    raise
                return client.create(path, over_own)

        return self._ask(location, lambda client: client.create(path, first), again=create_again)

    def finish_writing(self, location: Location, size: int) -> bool:
        """Whether a file whose writer could not close it has all that was written, and is closed now."""
        path = self._path(location)
        deadline = time.monotonic() + self._patience.seconds
        while not self._ask(location, lambda client: client.recover_lease(path)):
            if time.monotonic() > deadline:
                return False
            time.sleep(_RECOVERY_POLL_SECONDS)
        return bool(self._status(location).length == size)

    def _write_options(self, mode: int, *, overwrite: bool) -> WriteOptions:
        number = self._settings.number
        return WriteOptions(
            block_size=number("dfs.blocksize", 0) or None,
            replication=number("dfs.replication", 0) or None,
            permission=mode,
            overwrite=overwrite,
            create_parent=False,
        )

    def _create_one_directory(self, directory: Location) -> None:
        modes = self._modes_in(directory.parent)
        path = self._path(directory)
        self._ask(directory, lambda client: client.mkdirs(path, modes.directory, False))

    def _modes_in(self, directory: Location) -> _Modes:
        path = self._path(directory)
        if path not in self._modes:
            if len(self._modes) >= _KNOWN_DIRECTORIES:
                self._modes.clear()
            self._modes[path] = self._find_modes(directory)
        return self._modes[path]

    def _find_modes(self, directory: Location) -> _Modes:
        with contextlib.suppress(OSError), _os_errors(directory):  # ACLs may be switched off
            acl = self._connected().get_acl_status(self._path(directory))
            if any(entry.scope == "default" for entry in acl.entries):
                return _Modes(_ALL, _READ_WRITE)
        mode = self._status(directory).permission & _ALL
        return _Modes(mode, mode & _READ_WRITE)

    def _status(self, location: Location) -> Any:
        path = self._path(location)
        return self._ask(location, lambda client: client.get_file_info(path))

    def _ask(
        self,
        location: Location,
        work: Callable[[Client], _Result],
        *,
        again: Callable[[Client], _Result] | None = None,
    ) -> _Result:
        """Ask the NameNode; if it is away for a while, later ``again``, which finds what ``work`` did."""

        def translated(ask: Callable[[Client], _Result]) -> _Result:
            with _os_errors(location):
                return ask(self._connected())

        return self._patience.repeat(
            lambda: translated(work),
            _is_passing,
            None if again is None else lambda: translated(again),
        )

    def _entry(self, status: Any) -> FileEntry:
        location = Location(self._scheme, self._authority, status.path)
        return FileEntry(location, status.isdir, 0 if status.isdir else status.length)

    def _connected(self) -> Client:
        """The client of this process: one that was made before a fork hangs for ever after it.

        That of the parent is kept, too, since it would hang as well when it is dropped.
        """
        process_id = os.getpid()
        client = self._clients.get(process_id)
        if client is None:
            with self._guard:
                client = self._clients.get(process_id) or Client(*log_in(self._url, self._settings))
                self._clients[process_id] = client
        return client

    def _path(self, location: Location) -> str:
        if (location.scheme, location.authority) != (self._scheme, self._authority):
            raise OSError(errno.EXDEV, f"the location does not lie in {self._url}", str(location))
        return location.path


class _HdfsOutput:
    """A file being written; see :class:`~mutation_api.storage.protocol.OutputFile`.

    It is created when its buffer is full, or when it is closed: whoever writes small files and has them
    closed in the background never waits for the NameNode.

    A file may be completed by whoever recovers its lease: nothing but a manifest tells that it is whole.
    """

    def __init__(self, storage: HdfsStorage, location: Location) -> None:
        self._storage = storage
        self._location = location
        self._buffer = bytearray()
        self._size = 0
        self._whole: bytes | None = b""
        """All that was sent, as long as that is one piece."""
        self._earlier: tuple[Location, pa.NativeFile] | None = None
        self._writer: Any = None
        self._is_created = False
        self._is_closed = False

    @property
    def staged(self) -> Staged:
        """Where it lies, and its size."""
        return Staged(self._location, part_tags=(str(self._size + len(self._buffer)),))

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append bytes."""
        count = memoryview(data).nbytes
        self._buffer += memoryview(data)
        if len(self._buffer) >= _OUTPUT_BUFFER_BYTES:
            self._flush()
        return count

    def restart(self) -> pa.NativeFile:
        """What was written so far, under another name."""
        self._complete()
        aside = self._location.parent / f"_{self._location.name}.earlier"
        self._storage.rename(self._location, aside, self._size)
        self._earlier = (aside, self._storage.open_input(aside))
        self._size, self._whole = 0, b""
        self._is_created = False
        return self._earlier[1]

    def close(self) -> None:
        """Complete the file: the NameNode and as many DataNodes as it asks for have it."""
        self._delete_earlier()
        if not self._is_closed:
            self._complete()
            self._is_closed = True

    def discard(self) -> None:
        """Delete the file."""
        self._is_closed = True
        self._drop_writer()
        self._delete_earlier()
        self._buffer.clear()
        if self._is_created:
            with contextlib.suppress(FileNotFoundError):
                self._storage.delete_file(self._location)

    def _open(self) -> None:
        if self._writer is None:
            self._writer = self._storage.open_writer(self._location)
            self._is_created = True

    def _flush(self) -> None:
        self._open()
        # As bytes: the client takes any other buffer item by item, 10 to 60 times slower.
        data = bytes(self._buffer)
        self._buffer.clear()
        self._whole = data if not self._size else None
        self._size += len(data)
        try:
            self._send(data)
        except OSError as error:
            if self._whole is None or not _may_be_data_nodes(error):
                raise
            self._write_anew(close=False)

    def _complete(self) -> None:
        self._open()
        if self._buffer:
            self._flush()
        try:
            self._close_writer()
        except OSError as error:
            if not _may_be_data_nodes(error):
                raise
            if self._whole is not None:
                self._write_anew(close=True)
            elif not self._storage.finish_writing(self._location, self._size):
                raise
        self._drop_writer()

    def _write_anew(self, *, close: bool) -> None:
        """Begin the file again with what it has: the NameNode may choose other DataNodes."""
        assert self._whole is not None
        for left in reversed(range(_PIPELINES)):
            self._drop_writer()
            with contextlib.suppress(FileNotFoundError):
                self._storage.delete_file(self._location)
            self._open()
            try:
                self._send(self._whole)
                if close:
                    self._close_writer()
            except OSError as error:
                if not left or not _may_be_data_nodes(error):
                    raise
            else:
                return

    def _send(self, data: bytes) -> None:
        with _os_errors(self._location):
            self._writer.write(data)

    def _close_writer(self) -> None:
        with _os_errors(self._location):
            self._writer.close()

    def _drop_writer(self) -> None:
        """The client's wrapper would try to complete the file when it goes away."""
        if self._writer is not None:
            self._writer.inner = io.BytesIO()
            self._writer = None

    def _delete_earlier(self) -> None:
        if self._earlier is not None:
            aside, stream = self._earlier
            stream.close()
            self._storage.delete_directory(aside)
            self._earlier = None


class _Reader(SizedInput):
    """A file over the client's reader, which panics where one reads past the end."""

    def __init__(self, reader: Any, location: Location) -> None:
        super().__init__(len(reader), str(location))
        self._reader = reader
        self._location = location

    def _bytes_at(self, start: int, stop: int) -> bytes:
        with _os_errors(self._location):
            return bytes(self._reader.read_range(start, stop - start))


@contextlib.contextmanager
def _os_errors(location: Location) -> Iterator[None]:
    """What the client raises as an OSError of ours: with errno, one line, and the location."""
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


_NUMBERS: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
    ConnectionRefusedError: errno.ECONNREFUSED,
    TimeoutError: errno.ETIMEDOUT,
}


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
    """The client raises it for its connections, and for hosts that nobody knows."""
    return errno.EHOSTUNREACH if "lookup address" in text else errno.ECONNABORTED


def _is_passing(error: OSError) -> bool:
    return error.errno in _PASSING


def _may_be_data_nodes(error: OSError) -> bool:
    """The client waits for NameNodes that refuse connections, and tries a DataNode once."""
    return _is_passing(error) or error.errno == errno.ECONNREFUSED


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
