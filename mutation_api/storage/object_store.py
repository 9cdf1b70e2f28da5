"""The common part of object stores: locations that are keys, and files that appear in one request.

There are no directories. A location counts as one if anything is below it, or if another program left a mark
for it. Such a mark is listed only as a directory.

A file is first written to the local disk, and sent when it is closed. So memory is bounded, a failed request
can be repeated, and the written bytes can be read again. Inputs read ranges.

A request may have taken effect although its answer was lost. When it is repeated, the store reports that the
object exists. A name in the object's metadata, which is new for each file, identifies it as this writer's.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import io
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from typing import IO, Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged, os_error


class SizedInput(io.RawIOBase, abc.ABC):
    """A readable file whose bytes a subclass fetches. It never requests bytes outside the file.

    Args:
        size: size of the file in bytes.
        name: name of the file, for errors.
    """

    def __init__(self, size: int, name: str | None = None) -> None:
        super().__init__()
        self._size = size
        self._name = name
        self._position = 0

    @abc.abstractmethod
    def _bytes_at(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` up to, but not including, ``stop``. There is at least one.

        Raises:
            OSError: If the bytes cannot be read.
        """

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position, which may be past the end, and return it.

        Raises:
            OSError: If the position would be negative.
        """
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "cannot seek to a position before the beginning", self._name)
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Read and return up to ``size`` bytes, or the rest of the file if ``size`` is negative.

        At the end of the file there are none.

        Raises:
            OSError: If the bytes cannot be read.
        """
        left = max(0, self._size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        data = self._bytes_at(self._position, self._position + count)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Read and return the rest of the file."""
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes and return their number."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


TAIL_BYTES = 64 * 1024
"""Number of bytes read when a file is opened. They usually contain the footer of an ORC file, or all of a
small file."""
_FEWEST_READ_BYTES = 256 * 1024
"""The minimum number of bytes that a later read fetches. A request takes as long as the transfer of this many
bytes."""

Send = Callable[[Staged, IO[bytes], int], Staged]
"""A function that sends a body, of the given number of bytes, as the staged file."""


class ObjectOutput:
    """A file being written. See :class:`~mutation_api.storage.protocol.OutputFile`."""

    def __init__(
        self,
        location: Location,
        send: Send,
        take_back: Callable[[Staged], object],
        begin: Callable[[Location], Staged] = Staged,
    ) -> None:
        """Create the local copy.

        Args:
            location: location of the file.
            send: function that sends the file. :meth:`close` calls it once.
            take_back: function that removes the sent data, or an upload that was only begun.
            begin: function that begins the file. :meth:`close` calls it once, before ``send``.
        """
        self._begin = begin
        self._send = send
        self._take_back = take_back
        self._written = Staged(location)
        self._is_closed = False
        self._earlier: IO[bytes] | None = None
        self._spool: IO[bytes] = _local_copy()

    @property
    def staged(self) -> Staged:
        """The location of the file. After :meth:`close`, the result of ``send``."""
        return self._written

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append bytes to the local copy."""
        return self._spool.write(data)

    def restart(self) -> pa.NativeFile:
        """Return the bytes written so far, from the local copy."""
        self._earlier, self._spool = self._spool, _local_copy()
        self._earlier.seek(0)
        return pa.PythonFile(self._earlier, mode="r")

    def close(self) -> None:
        """Send the file."""
        if self._is_closed:
            return
        with self._spool as spool:
            size = spool.seek(0, os.SEEK_END)
            spool.seek(0)
            self._written = self._begin(self._written.location)
            self._written = self._send(self._written, spool, size)
        self._is_closed = True
        self._drop_copies()

    def discard(self) -> None:
        """Drop the local copy, and remove the sent data or the begun upload."""
        self._drop_copies()
        if self._is_closed or self._written.upload_id:
            self._take_back(self._written)

    def _drop_copies(self) -> None:
        self._spool.close()
        if self._earlier is not None:
            self._earlier.close()


def _local_copy() -> IO[bytes]:
    """Create a file without a name on the local disk (``TMPDIR``)."""
    return tempfile.TemporaryFile(prefix="hive-mutation-")


class RangeReader(SizedInput):
    """A file that is read with range requests. Its end has already been read."""

    def __init__(self, read: Callable[[int, int], bytes], size: int, tail: bytes) -> None:
        """Prepare the reader. ``read`` returns the bytes from a start up to, but not including, a stop."""
        super().__init__(size)
        self._read_range = read
        self._known_start = size - len(tail)
        self._known = tail

    def _bytes_at(self, start: int, stop: int) -> bytes:
        self._know(start, stop)
        return self._known[start - self._known_start : stop - self._known_start]

    def _know(self, start: int, stop: int) -> None:
        """Load these bytes unless they are loaded. Bytes loaded before are dropped."""
        if self._known_start <= start and stop <= self._known_start + len(self._known):
            return
        stop = min(self._size, max(stop, start + _FEWEST_READ_BYTES))
        self._known = self._read_range(start, stop)
        self._known_start = start


def opened(read: Callable[[int, int], bytes], size: int) -> pa.NativeFile:
    """Return a seekable stream over the bytes of an object. The end of the object is read immediately.

    ``read`` returns the bytes from a start up to, but not including, a stop. Its errors are raised.
    """
    if not size:
        return nothing()
    return pa.PythonFile(RangeReader(read, size, read(max(0, size - TAIL_BYTES), size)), mode="r")


def nothing() -> pa.NativeFile:
    """Return an empty stream, since stores cannot return a range of an empty file."""
    return pa.PythonFile(io.BytesIO(b""), mode="r")


_Head = TypeVar("_Head")


class ObjectStore(abc.ABC, Generic[_Head]):
    """A bucket or container. See :class:`~mutation_api.storage.protocol.Storage`.

    Subclasses make the requests. ``_Head`` is the type in which their client returns an object without its
    bytes.
    """

    publishes_by_rename: ClassVar[bool]
    has_directories = False
    threads = 16
    closing_waits = False
    may_have_put: ClassVar[type[OSError]] = OSError
    """The error of a put request after which the object may exist nevertheless."""

    def __init__(self, scheme: str, container: str) -> None:
        self._scheme = scheme
        self._container = container

    # ---- what each store does differently

    @abc.abstractmethod
    def delete_file(self, location: Location) -> None:
        """Delete a file. A missing one is not an error."""

    @abc.abstractmethod
    def _head(self, location: Location) -> _Head | None:
        """Return the head of the object at a location, or None.

        Raises:
            OSError: If the request fails.
        """

    @abc.abstractmethod
    def _own_name(self, head: _Head) -> str | None:
        """Return the name that this library gave an object, or None if another program wrote it."""

    @abc.abstractmethod
    def _put_new(self, location: Location, own_name: str, body: IO[bytes], size: int) -> None:
        """Create an object with this name in its metadata.

        Raises:
            FileExistsError: If the object exists.
        """

    def _is_folder(self, head: _Head) -> bool:
        """Return True if an object represents a directory."""
        return False

    # ---- what is common to all stores

    def create(self, location: Location) -> ObjectOutput:
        """Create a file, which appears when it is closed."""
        self._key(location)
        return ObjectOutput(location, self._put, lambda written: self.delete_file(written.location))

    def create_directory(self, directory: Location) -> None:
        """Do nothing: there are no directories, or a file creates its own."""
        self._key(directory)

    def publish_directory(self, hidden: Location, target: Location) -> None:
        """Refuse: the objects of a directory would appear one by one."""
        self._key(hidden)
        raise os_error(errno.ENOTSUP, target)

    def sync_directory(self, directory: Location) -> None:
        """Do nothing: the store answers only when the data is durable."""
        self._key(directory)

    def _put(self, written: Staged, body: IO[bytes], size: int) -> Staged:
        """Create an object. Its only tag is the name that identifies its writer.

        Raises:
            FileExistsError: If another writer's object exists.
        """
        own_name = uuid.uuid4().hex
        with self._unless_own(written.location, own_name, self.may_have_put):
            self._put_new(written.location, own_name, body, size)
        return Staged(written.location, part_tags=(own_name,))

    @contextlib.contextmanager
    def _unless_own(
        self, location: Location, own_name: str | None, after: type[OSError] = OSError
    ) -> Iterator[None]:
        """Ignore a failure if the request took effect: the object at the location has this name."""
        try:
            yield
        except after:
            if not self._is_own(location, own_name):
                raise

    def _is_own(self, location: Location, own_name: str | None) -> bool:
        """Return True if the object at the location was written under this name. If None, it had no name."""
        head = None if own_name is None else self._head(location)
        return head is not None and self._own_name(head) == own_name

    def _check_directory(self, directory: Location) -> None:
        """Raise an error unless this location, which has nothing below it, is a directory."""
        head = self._head(directory)
        if head is None:
            raise os_error(errno.ENOENT, directory)
        if not self._is_folder(head):
            raise os_error(errno.ENOTDIR, directory)

    def _prefix(self, directory: Location) -> str:
        """Return the common prefix of all keys below a location."""
        key = self._key(directory)
        return f"{key}/" if key else ""

    def _key(self, location: Location) -> str:
        if (location.scheme, location.authority) != (self._scheme, self._container):
            raise OSError(
                errno.EXDEV, f"the location is not in {self._scheme}://{self._container}", str(location)
            )
        return location.path.lstrip("/")

    def _location(self, key: str) -> Location:
        return Location(self._scheme, self._container, f"/{key}")


def check_uploaded_to(staged: Staged, target: Location) -> None:
    """Raise OSError (EXDEV) if the upload is for another location, since it cannot be renamed."""
    if staged.location != target:
        raise OSError(errno.EXDEV, f"uploaded to {staged.location}; it cannot be renamed", str(target))
