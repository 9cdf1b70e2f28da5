"""Storage: what is asked of a file system, or of an object store, by those who write, publish and read.

A module for each kind of storage; nothing outside of this package knows schemes.

Files appear in one of two ways. A file system stages a file under a hidden name and *renames* it
(``publishes_by_rename``). An object store cannot rename: it takes the parts of a multipart upload to the
**final** key and shows nothing of it until the upload is completed, which is a request without data. Both
are :meth:`Storage.stage`, by whoever writes, and :meth:`Storage.publish`, by whoever commits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from mutation_api.storage.location import Location

__all__ = ["FileEntry", "OutputFile", "Staged", "Storage", "os_error"]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file or directory that is there; ``size`` is in bytes and 0 for directories."""

    location: Location
    is_directory: bool
    size: int

    @property
    def name(self) -> str:
        """Its name in its directory."""
        return self.location.name


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that is written and not published.

    ``location``: where it lies hidden; of an upload, where it will appear. ``upload_id`` and ``part_tags``
    (of the parts in their order) name an upload to an object store, else they are empty, but for what a
    storage knows its own by. One that :meth:`Storage.unfinished` found has no part tags.
    """

    location: Location
    upload_id: str = ""
    part_tags: tuple[str, ...] = ()


class OutputFile(Protocol):
    """A file being written, by one thread at a time. It is seen by nobody before :meth:`close`, or, staged,
    before it is published; a file that is not closed has to be discarded.
    """

    @property
    def staged(self) -> Staged:
        """What was written, for :meth:`Storage.publish`; complete when it is closed."""
        ...

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append bytes; gives their number. Raises OSError."""
        ...

    def restart(self) -> pa.NativeFile:
        """What was written so far, to be read; the file itself is empty again. At most once.

        The stream is good until this file is closed or discarded. Raises OSError.
        """
        ...

    def close(self) -> None:
        """Make the file complete, and safe from a power cut as far as the storage can. Twice is fine.

        May be called from another thread than the one that wrote, and takes long on some storages without
        working: close files side by side. Raises OSError; then :meth:`discard` it.
        """
        ...

    def discard(self) -> None:
        """Remove what was written, closed or not, published not. Twice is fine. Raises OSError."""
        ...


class Storage(Protocol):
    """One file system or bucket. Safe to use from several threads, and in a process forked after its use.

    Every method raises OSError or a subclass that fits (FileNotFoundError, FileExistsError, PermissionError,
    NotADirectoryError, IsADirectoryError, TimeoutError …) with errno, the reason in one line, and the
    location's text as its ``filename``; callers wrap it in the error of their layer. A location of another
    scheme or authority is refused (EXDEV) before anything happens, so that nothing is ever done to the same
    path elsewhere. Where a request's answer is lost, a method finds out what became of it.
    """

    @property
    def publishes_by_rename(self) -> bool:
        """Whether staged files lie under their hidden names; otherwise they are unfinished uploads."""
        ...

    @property
    def has_directories(self) -> bool:
        """Whether a directory is there without anything in it; otherwise that cannot be known."""
        ...

    @property
    def threads(self) -> int:
        """How many calls side by side pay here: what a call takes is mostly waiting."""
        ...

    @property
    def closing_waits(self) -> bool:
        """Whether the closing of a file waits long without working, so that whoever writes files waits for
        the last at its end.
        """
        ...

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name, hidden ones too.

        Raises FileNotFoundError, NotADirectoryError. An object store has no empty directories: there a
        location with nothing below it is not found.
        """
        ...

    def stat(self, location: Location) -> FileEntry | None:
        """The file or directory there, or None."""
        ...

    def open_input(self, location: Location) -> pa.NativeFile:
        """A seekable stream over the bytes of a file. Raises FileNotFoundError, IsADirectoryError."""
        ...

    def create(self, location: Location) -> OutputFile:
        """Create a file that appears under its own name, at the latest when it is closed; its directory must
        exist.

        Raises FileExistsError if it is there, here or in ``close``: nothing is overwritten.
        """
        ...

    def create_directory(self, directory: Location) -> None:
        """Create a directory and its parents; an existing one is fine. Object stores have nothing to do."""
        ...

    def stage(self, hidden: Location, target: Location) -> OutputFile:
        """Create a file that is to be published as ``target``: by rename it lies at ``hidden`` till then,
        whose directory must exist; an object store uploads to ``target`` and uses no hidden name.

        Raises FileExistsError if ``hidden`` is there, here or in ``close``.
        """
        ...

    def publish(self, staged: Staged, target: Location) -> None:
        """Make a staged file appear under its name, in one atomic step; the target's directory must exist.

        Raises FileExistsError if the target is there (nothing is overwritten), FileNotFoundError without the
        staged file. An upload that is complete already, with nothing else under the target's name, is fine.
        """
        ...

    def unfinished(self, directory: Location) -> Sequence[Staged]:
        """Uploads below a directory that are neither completed nor aborted, by location. By rename: none."""
        ...

    def abandon(self, staged: Iterable[Staged]) -> None:
        """Remove staged files; missing ones are fine. Raises the first error when all have been tried."""
        ...

    def delete_file(self, location: Location) -> None:
        """Delete a file, and what belongs to it. Raises FileNotFoundError if it is missing (an object store
        need not).
        """
        ...

    def delete_directory(self, directory: Location) -> None:
        """Delete a directory and everything in it; a missing one is fine."""
        ...

    def sync_directory(self, directory: Location) -> None:
        """Force the names in a directory to disk, where a power cut could lose them."""
        ...


def os_error(number: int, location: Location) -> OSError:
    """An error as :class:`Storage` promises them; Python gives it the class that fits its number."""
    return OSError(number, os.strerror(number), str(location))
