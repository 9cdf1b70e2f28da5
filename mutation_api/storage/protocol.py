"""The protocol of storages, and the faults of a machine that are not the storage's.

Storage: the operations of a file system or an object store that writing, publishing and reading need.

Each kind of storage has its own module. Schemes are known in this package only.

Files are published in one of two ways. A file system stages a file under a hidden name and *renames* it
(``publishes_by_rename``). An object store cannot rename: it takes the parts of a multipart upload to the
**final** key and shows nothing of it until the upload is completed, which is a request without data. In both
cases the writer calls :meth:`Storage.stage`, and the committer calls :meth:`Storage.publish`.

Which errors come from the machine that reads, and say nothing about a file.
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

__all__ = ["FileEntry", "OutputFile", "Staged", "Storage", "is_fault_of_machine", "os_error"]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An existing file or directory.

    ``size`` is in bytes, 0 for directories. ``modified`` is when a file was written, in seconds since 1970
    by the storage's clock; None if the storage does not say, as object stores do of directories.
    """

    location: Location
    is_directory: bool
    size: int
    modified: float | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Its name in its directory."""
        return self.location.name


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that is written and not published.

    ``location``: that of the hidden file, or the target of an upload. ``upload_id`` and ``part_tags`` (in the
    order of the parts) name an upload to an object store. Otherwise they are empty, except for a tag by which
    a storage recognises its own file. Files found by :meth:`Storage.unfinished` have no part tags.
    """

    location: Location
    upload_id: str = ""
    part_tags: tuple[str, ...] = ()


class OutputFile(Protocol):
    """A file being written, by one thread at a time. A file that is not closed must be discarded.

    It is invisible until :meth:`close`, or, if it is staged, until it is published.
    """

    @property
    def staged(self) -> Staged:
        """The written file, for :meth:`Storage.publish`; complete after :meth:`close`."""
        ...

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append bytes; returns their number. Raises OSError."""
        ...

    def restart(self) -> pa.NativeFile:
        """Empty the file and return a stream over the bytes written so far. May be called once.

        The stream is valid until this file is closed or discarded. Raises OSError.
        """
        ...

    def close(self) -> None:
        """Complete the file and make it durable as far as the storage can. May be called twice.

        May be called from another thread than the writer's. On some storages it mostly waits: close files in
        parallel. Raises OSError; then :meth:`discard` the file.
        """
        ...

    def discard(self) -> None:
        """Remove the file, closed or not, unless it is published. May be called twice. Raises OSError."""
        ...


class Storage(Protocol):
    """One file system or bucket. Safe to use from several threads, and in a process forked after its use.

    Every method raises OSError or a subclass that fits (FileNotFoundError, FileExistsError, PermissionError,
    NotADirectoryError, IsADirectoryError, TimeoutError …) with errno, the reason in one line, and the
    location's text as its ``filename``. Callers wrap it in the error of their layer. A location of another
    scheme or authority is refused (EXDEV) before anything happens, so that the same path elsewhere is never
    touched. If the answer to a request is lost, the method finds out whether the request took effect.
    """

    @property
    def publishes_by_rename(self) -> bool:
        """Whether staged files lie under their hidden names; otherwise they are unfinished uploads."""
        ...

    @property
    def has_directories(self) -> bool:
        """Whether empty directories exist; otherwise a directory without files cannot be recognised."""
        ...

    @property
    def threads(self) -> int:
        """Number of parallel calls that are worth it here: a call mostly waits."""
        ...

    @property
    def closing_waits(self) -> bool:
        """Whether closing a file mostly waits, so that a task ends with a wait for its last files."""
        ...

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name, including hidden ones.

        Raises FileNotFoundError, NotADirectoryError. An object store has no empty directories: a location
        with nothing below it is not found.
        """
        ...

    def stat(self, location: Location) -> FileEntry | None:
        """The file or directory there, or None."""
        ...

    def open_input(self, location: Location) -> pa.NativeFile:
        """A seekable stream over the bytes of a file. Raises FileNotFoundError, IsADirectoryError."""
        ...

    def create(self, location: Location) -> OutputFile:
        """Create a file that appears under its own name, at the latest when it is closed. Its directory must
        exist.

        Raises FileExistsError, here or in ``close``, if the file exists: nothing is overwritten.
        """
        ...

    def create_directory(self, directory: Location) -> None:
        """Create a directory and its parents; an existing one is fine. Object stores do nothing."""
        ...

    def stage(self, hidden: Location, target: Location) -> OutputFile:
        """Create a file that is to be published as ``target``.

        A storage that renames keeps it at ``hidden`` until then; the directory of ``hidden`` must exist. An
        object store uploads to ``target`` and uses no hidden name.

        Raises FileExistsError, here or in ``close``, if ``hidden`` exists.
        """
        ...

    def publish(self, staged: Staged, target: Location) -> None:
        """Make a staged file appear under its name, in one atomic step; the target's directory must exist.

        Raises FileExistsError if the target exists (nothing is overwritten), FileNotFoundError if the staged
        file does not. An upload that is complete already is fine if the target is its result.
        """
        ...

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """Uploads below a directory that are neither completed nor aborted, sorted by location.

        A storage that renames has none.
        """
        ...

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Remove staged files; missing ones are fine. Raises the first error after all have been tried."""
        ...

    def delete_file(self, location: Location) -> None:
        """Delete a file and what belongs to it.

        Raises FileNotFoundError if it is missing (an object store need not).
        """
        ...

    def delete_directory(self, directory: Location) -> None:
        """Delete a directory and everything in it; a missing one is fine."""
        ...

    def sync_directory(self, directory: Location) -> None:
        """Force the names in a directory to disk if a power cut could lose them."""
        ...


def os_error(number: int, location: Location) -> OSError:
    """An error as :class:`Storage` promises it; Python chooses the subclass by the number."""
    return OSError(number, os.strerror(number), str(location))


def is_fault_of_machine(error: BaseException) -> bool:
    """Whether a file may be sound although it could not be read.

    The operating system gives its own errors a number (too many open files, no permission, no memory); those
    of decoders have none. A missing file is one of the table.

    Args:
        error: of reading a file.
    """
    if isinstance(error, OSError):
        return error.errno not in (None, errno.ENOENT)
    return type(error) is ReadError
