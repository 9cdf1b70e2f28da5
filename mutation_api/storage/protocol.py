"""The protocol of storages: the operations that writing, publishing and reading need.

A storage is a file system or an object store. Each kind has its own module. Only this package knows schemes.

Files are published in one of two ways. A file system stages a file under a hidden name and *renames* it
(``publishes_by_rename``). An object store cannot rename. It receives the parts of a multipart upload for the
**final** key and shows nothing until the upload is completed, which is a request without data. In both cases
the writer calls :meth:`Storage.stage`, and the committer calls :meth:`Storage.publish`.

Errors of the reading machine, which say nothing about a file, are distinguished from errors of the file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from mutation_api.errors import ReadError
from mutation_api.storage.location import Location


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An existing file or directory.

    ``size`` is in bytes, 0 for directories. ``modified`` is the time when a file was written, in seconds
    since 1970 by the storage's clock. It is None if the storage does not report it, as for directories of
    object stores.
    """

    location: Location
    is_directory: bool
    size: int
    modified: float | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The name of the file or directory in its parent directory."""
        return self.location.name


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that has been written but not published.

    ``location`` is that of the hidden file, or the target of an upload. ``upload_id`` and ``part_tags`` (in
    the order of the parts) identify an upload to an object store. Otherwise they are empty, except for a tag
    by which a storage recognises its own file. Files found by :meth:`Storage.unfinished` have no part tags.
    """

    location: Location
    upload_id: str = ""
    part_tags: tuple[str, ...] = ()


class OutputFile(Protocol):
    """A file being written, by one thread at a time. A file that is not closed must be discarded.

    The file is invisible until :meth:`close`. If it is staged, it is invisible until it is published.
    """

    @property
    def staged(self) -> Staged:
        """The written file, for :meth:`Storage.publish`. It is complete after :meth:`close`."""
        ...

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append bytes and return their number.

        Raises:
            OSError: If the bytes cannot be written.
        """
        ...

    def restart(self) -> pa.NativeFile:
        """Empty the file and return a stream over the bytes written so far. May be called once.

        The stream is valid until this file is closed or discarded.

        Raises:
            OSError: If the bytes cannot be kept or read.
        """
        ...

    def close(self) -> None:
        """Complete the file and make it as durable as the storage can. May be called more than once.

        A thread other than the writer's may call this. On some storages closing mostly waits, so close files
        in parallel.

        Raises:
            OSError: If the file is not complete. Then :meth:`discard` it.
        """
        ...

    def discard(self) -> None:
        """Remove the file, closed or not, unless it is published. May be called more than once.

        Raises:
            OSError: If the file cannot be removed.
        """
        ...


class Storage(Protocol):
    """A file system or bucket. It is thread safe and works in a process forked after its use.

    Every method raises OSError or a subclass that fits (FileNotFoundError, FileExistsError, PermissionError,
    NotADirectoryError, IsADirectoryError, TimeoutError …). The error has an errno, the reason in one line,
    and the location as its ``filename``. Callers wrap it in the error of their layer. A location with another
    scheme or authority is refused (EXDEV) before anything happens, so that the same path elsewhere is never
    touched. If the answer to a request is lost, the method finds out whether the request took effect.
    """

    @property
    def publishes_by_rename(self) -> bool:
        """True if staged files exist under their hidden names, false if they are unfinished uploads."""
        ...

    @property
    def has_directories(self) -> bool:
        """True if empty directories exist. Otherwise, a directory without files cannot be recognised."""
        ...

    @property
    def threads(self) -> int:
        """The number of parallel calls that is useful for this storage. A call mostly waits."""
        ...

    @property
    def closing_waits(self) -> bool:
        """True if closing a file mostly waits, so that a task ends with a wait for its last files."""
        ...

    def list(self, directory: Location) -> list[FileEntry]:
        """Return the children of a directory, sorted by name, including hidden ones.

        An object store has no empty directories: a location with nothing below it is not found.

        Raises:
            FileNotFoundError: If the directory does not exist.
            NotADirectoryError: If the location is a file.
        """
        ...

    def stat(self, location: Location) -> FileEntry | None:
        """Return the file or directory at a location, or None if there is none."""
        ...

    def open_input(self, location: Location) -> pa.NativeFile:
        """Return a seekable stream over the bytes of a file.

        Raises:
            FileNotFoundError: If the file does not exist.
            IsADirectoryError: If the location is a directory.
        """
        ...

    def create(self, location: Location) -> OutputFile:
        """Create a file that appears under its own name when it is closed, or earlier.

        Its directory must exist.

        Raises:
            FileExistsError: If the file exists (raised here or by ``close``). Nothing is overwritten.
        """
        ...

    def create_directory(self, directory: Location) -> None:
        """Create a directory and its parents.

        An existing directory is not an error. Object stores do nothing.
        """
        ...

    def stage(self, hidden: Location, target: Location) -> OutputFile:
        """Create a file that will be published as ``target``.

        A storage that renames keeps the file at ``hidden`` until then. The directory of ``hidden`` must
        exist. An object store uploads to ``target`` and uses no hidden name.

        Raises:
            FileExistsError: If ``hidden`` exists (raised here or by ``close``).
        """
        ...

    def publish(self, staged: Staged, target: Location) -> None:
        """Make a staged file appear under its name in one atomic step. The target's directory must exist.

        If an upload is already complete, this succeeds if the target is its result.

        Raises:
            FileExistsError: If the target exists. Nothing is overwritten.
            FileNotFoundError: If the staged file does not exist.
        """
        ...

    def publish_directory(self, hidden: Location, target: Location) -> None:
        """Make a hidden directory appear under its name with all its files, in one atomic step.

        Raises:
            FileExistsError: If the target exists. Nothing is overwritten.
            FileNotFoundError: If the hidden directory does not exist.
            OSError: If the storage has no directories (ENOTSUP); see ``has_directories``.
        """
        ...

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """Return the uploads below a directory that are neither completed nor aborted, sorted by location.

        A storage that renames has none.
        """
        ...

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Remove staged files and skip missing ones. After trying all, raise the first error."""
        ...

    def delete_file(self, location: Location) -> None:
        """Delete a file and any file that belongs to it.

        Raises:
            FileNotFoundError: If the file does not exist. An object store need not raise this.
        """
        ...

    def delete_directory(self, directory: Location) -> None:
        """Delete a directory and everything in it. A missing directory is not an error."""
        ...

    def sync_directory(self, directory: Location) -> None:
        """Force the names in a directory to disk if a power failure could lose them."""
        ...


def os_error(number: int, location: Location) -> OSError:
    """Return an OSError in the form that :class:`Storage` promises.

    Python derives the class from the number.
    """
    return OSError(number, os.strerror(number), str(location))


def is_fault_of_machine(error: BaseException) -> bool:
    """Return True if the file may be intact although it could not be read.

    The operating system's errors have a number (too many open files, no permission, no memory). Errors of
    decoders have none. A missing file is an error of the table.

    Args:
        error: the error raised when the file was read.
    """
    if isinstance(error, OSError):
        return error.errno not in (None, errno.ENOENT)
    return type(error) is ReadError
