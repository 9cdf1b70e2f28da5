"""Files of change sources on any storage: how inputs list, open and name them.

Messages and watermarks name a local file by its plain path, and any other file by its location.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mutation_api.acid.layout import is_hidden
from mutation_api.errors import ConfigurationError, InputError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location, LocationLike
from mutation_api.storage.protocol import FileEntry

__all__ = [
    "FINGERPRINT_BYTES",
    "LocationsLike",
    "all_located",
    "children",
    "entry_at",
    "fingerprint",
    "fingerprint_of",
    "is_link",
    "located",
    "opened",
    "readable",
]

LocationsLike = LocationLike | Sequence[LocationLike]
"""The files and folders that a user names: one, or several."""

FINGERPRINT_BYTES = 64 * 1024
"""Number of bytes before a watermark that must not have changed."""

_BEING_COPIED = "._COPYING_"
"""The name of a file that "hadoop fs -put" is still writing ends so."""

_READ_BYTES = 4 * 1024 * 1024
"""Bytes of one request when a whole file is read: each request takes time, however small it is."""


def located(given: LocationLike) -> Location:
    """The location that a user named. Raises ConfigurationError."""
    try:
        return Location.given(given)
    except OSError as error:
        raise ConfigurationError(f"{given}: {error.strerror}") from error


def all_located(given: LocationsLike) -> tuple[Location, ...]:
    """The locations that a user named. Raises ConfigurationError."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return (located(given),)
    return tuple(map(located, given))


def entry_at(location: Location) -> FileEntry | None:
    """The file or folder there, or None. Raises OSError."""
    return storage_at(location).stat(location)


def children(folder: Location) -> list[FileEntry]:
    """Files and folders in a folder, by name; not those that are hidden or being copied. Raises OSError."""
    found = storage_at(folder).list(folder)
    return [e for e in found if not is_hidden(e.name) and not e.name.endswith(_BEING_COPIED)]


def is_link(folder: Location) -> bool:
    """Whether it is a link to another folder; only local disks have links."""
    return folder.local_path is not None and Path(folder.local_path).is_symlink()


@contextmanager
def opened(location: Location, *, read_bytes: int = _READ_BYTES) -> Iterator[io.BufferedReader]:
    """The bytes of a file; a request asks for ``read_bytes``. Raises OSError."""
    with (
        storage_at(location).open_input(location) as stream,
        io.BufferedReader(stream, read_bytes) as file,
    ):
        yield file


def fingerprint(location: Location, end: int) -> str:
    """The md5 of the bytes before ``end``, which tells a file from another one that replaced it.

    Raises OSError.
    """
    with opened(location, read_bytes=FINGERPRINT_BYTES) as file:
        file.seek(max(0, end - FINGERPRINT_BYTES))
        return fingerprint_of(file.read(min(end, FINGERPRINT_BYTES)))


def fingerprint_of(last_bytes: bytes) -> str:
    """The fingerprint of a file, by the last FINGERPRINT_BYTES of it, or fewer if it is shorter."""
    return hashlib.md5(last_bytes, usedforsecurity=False).hexdigest()


@contextmanager
def readable(source_id: str) -> Iterator[None]:
    """Within the block an error of a storage, or of a file that became shorter, becomes an InputError."""
    try:
        yield
    except (OSError, EOFError) as error:
        raise InputError(f"{source_id}: its files cannot be read: {error}") from error
