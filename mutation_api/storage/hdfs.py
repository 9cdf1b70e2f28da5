"""HDFS, by ``hdfs-native``: no JVM in the workers.

Closing a file takes half a second, nearly all of it waiting: the NameNode says "not yet" at first, and the
client sleeps before it asks again. So files are closed side by side, in many threads.

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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hdfs_native import Client, WriteOptions

from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Staged

__all__ = ["HdfsStorage", "connect"]

THREADS = 128
"""Each waits for half a second to close a file, and a task may write one every four milliseconds."""
_OUTPUT_BUFFER_BYTES = 1024 * 1024
_DEFAULT_PORT = 8020
_KNOWN_DIRECTORIES = 4096
_ALL = 0o777
_READ_WRITE = 0o666

_RPC_ERROR = re.compile(r"RPCError\(\"(?P<name>[\w.$]+)\", \"(?P<text>.*)", re.DOTALL)
_END_OF_FIRST_LINE = re.compile(r"\\n|\n")
_ERRORS: dict[str, tuple[type[OSError], int]] = {
    "AccessControlException": (PermissionError, errno.EACCES),
    "AuthorizationException": (PermissionError, errno.EACCES),
    "InvalidToken": (PermissionError, errno.EACCES),
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
    "StandbyException": (ConnectionError, errno.EAGAIN),
    "RetriableException": (ConnectionError, errno.EAGAIN),
    "SnapshotException": (PermissionError, errno.EPERM),
}
"""By the last part of the Java class's name. Safe mode: nothing can be written, reading works."""


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
    threads = THREADS

    def __init__(self, scheme: str, authority: str, url: str, settings: HadoopSettings) -> None:
        self._scheme = scheme
        self._authority = authority
        self._url = url
        self._settings = settings
        self._guard = threading.Lock()
        self._clients: dict[int, Client] = {}
        self._modes: dict[str, _Modes] = {}

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name."""
        path = self._path(directory)
        with _os_errors(directory):
            found = [*self._connected().list_status(path)]
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
        with _os_errors(location):
            reader = self._connected().read(path)
            return pa.PythonFile(_Reader(reader, len(reader), location), mode="r")

    def create(self, location: Location) -> _HdfsOutput:
        """Create a file; it is seen at once, with what was closed in it."""
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
        self._path(target)
        return _HdfsOutput(self, hidden)

    def publish(self, staged: Staged, target: Location) -> None:
        """Rename the staged file."""
        self.rename(staged.location, target)

    def rename(self, source: Location, target: Location) -> None:
        """One atomic step, which refuses an existing target."""
        with _os_errors(source):
            self._connected().rename(self._path(source), self._path(target), False)

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
        with _os_errors(location):
            is_deleted = self._connected().delete(self._path(location), False)
        if not is_deleted:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(location))

    def delete_directory(self, directory: Location) -> None:
        """Delete a directory and everything in it."""
        with _os_errors(directory), contextlib.suppress(FileNotFoundError):
            self._connected().delete(self._path(directory), True)

    def sync_directory(self, directory: Location) -> None:
        """Nothing to do: the NameNode's journal is on disk before it answers."""
        self._path(directory)

    def open_writer(self, location: Location) -> Any:
        """The client's own writer of a new file, which must not exist, in a directory that does."""
        number = self._settings.number
        options = WriteOptions(
            block_size=number("dfs.blocksize", 0) or None,
            replication=number("dfs.replication", 0) or None,
            permission=self._modes_in(location.parent).file,
            overwrite=False,
            create_parent=False,
        )
        with _os_errors(location):
            return self._connected().create(self._path(location), options)

    def _create_one_directory(self, directory: Location) -> None:
        modes = self._modes_in(directory.parent)
        with _os_errors(directory):
            self._connected().mkdirs(self._path(directory), modes.directory, False)

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
        with _os_errors(location):
            return self._connected().get_file_info(self._path(location))

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
                client = self._clients.setdefault(
                    process_id, Client(self._url, dict(self._settings.properties))
                )
        return client

    def _path(self, location: Location) -> str:
        if (location.scheme, location.authority) != (self._scheme, self._authority):
            raise OSError(errno.EXDEV, f"the location does not lie in {self._url}", str(location))
        return location.path


class _HdfsOutput:
    """A file being written; see :class:`~mutation_api.storage.protocol.OutputFile`.

    Whoever drops the client's writer completes its file: nothing but a manifest tells that a file is whole.
    """

    def __init__(self, storage: HdfsStorage, location: Location) -> None:
        self._storage = storage
        self._location = location
        self._buffer = bytearray()
        self._earlier: tuple[Location, pa.NativeFile] | None = None
        self._writer: Any = storage.open_writer(location)

    @property
    def staged(self) -> Staged:
        """Where it lies."""
        return Staged(self._location)

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
        self._storage.rename(self._location, aside)
        self._earlier = (aside, self._storage.open_input(aside))
        self._writer = self._storage.open_writer(self._location)
        return self._earlier[1]

    def close(self) -> None:
        """Complete the file: the NameNode and as many DataNodes as it asks for have it."""
        self._delete_earlier()
        if self._writer is not None:
            self._complete()

    def discard(self) -> None:
        """Delete the file before its writer is dropped, which would complete it."""
        self._delete_earlier()
        self._buffer.clear()
        with contextlib.suppress(FileNotFoundError):
            self._storage.delete_file(self._location)
        self._writer = None

    def _flush(self) -> None:
        # As bytes: the client takes any other buffer item by item, 10 to 60 times slower.
        data = bytes(self._buffer)
        self._buffer.clear()
        with _os_errors(self._location):
            self._writer.write(data)

    def _complete(self) -> None:
        if self._buffer:
            self._flush()
        with _os_errors(self._location):
            self._writer.close()
        self._writer = None

    def _delete_earlier(self) -> None:
        if self._earlier is not None:
            aside, stream = self._earlier
            stream.close()
            self._storage.delete_directory(aside)
            self._earlier = None


class _Reader(io.RawIOBase):
    """A file over the client's reader, which panics where one reads past the end."""

    def __init__(self, reader: Any, size: int, location: Location) -> None:
        super().__init__()
        self._reader = reader
        self._size = size
        self._location = location
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "a position before the beginning", str(self._location))
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        with _os_errors(self._location):
            data = bytes(self._reader.read_range(self._position, count))
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


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
    number = error.errno or _NUMBERS.get(type(error), errno.EIO)
    return type(error)(number, _first_line(str(error)), str(location))


def _of_java(text: str, location: Location) -> OSError:
    match = _RPC_ERROR.search(text)
    if match is None:
        return OSError(errno.EIO, _first_line(text), str(location))
    name = match["name"].rpartition(".")[2].rpartition("$")[2]
    kind, number = _ERRORS.get(name, (OSError, errno.EIO))
    return kind(number, f"{name}: {_first_line(match['text'])}", str(location))


def _first_line(text: str) -> str:
    return _END_OF_FIRST_LINE.split(text, maxsplit=1)[0].strip().strip('"')
