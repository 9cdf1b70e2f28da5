"""Files of change sources, wherever they lie: how inputs list and open them, and name them to people.

A local file goes by its plain path, as it always did, in messages and watermarks; any other by its location.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mutation_api.errors import ConfigurationError, InputError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location, LocationLike
from mutation_api.storage.protocol import FileEntry

__all__ = ["Places", "all_located", "children", "entry_at", "is_link", "located", "opened", "readable"]

Places = LocationLike | Sequence[LocationLike]
"""What users give for files and folders: one, or several."""

_HIDDEN = (".", "_")
"""What names begin with that nobody's data has, as Hadoop sees it."""

_BEING_COPIED = "._COPYING_"
"""Ends the name of a file that "hadoop fs -put" is still writing."""

_READ_BYTES = 4 * 1024 * 1024
"""Asked of a storage at once where a file is read on and on: a request takes time, however small."""


def located(place: LocationLike) -> Location:
    """The place that a user means. Raises ConfigurationError."""
    try:
        return Location.given(place)
    except OSError as error:
        raise ConfigurationError(f"{place}: {error.strerror}") from error


def all_located(places: Places) -> tuple[Location, ...]:
    """The places that a user means. Raises ConfigurationError."""
    if isinstance(places, str) or not isinstance(places, Sequence):
        return (located(places),)
    return tuple(map(located, places))


def entry_at(location: Location) -> FileEntry | None:
    """The file or folder there, or None. Raises OSError."""
    return storage_at(location).stat(location)


def children(folder: Location) -> list[FileEntry]:
    """What lies in a folder, by name, without what is hidden or still being copied there. Raises OSError."""
    found = storage_at(folder).list(folder)
    return [e for e in found if not e.name.startswith(_HIDDEN) and not e.name.endswith(_BEING_COPIED)]


def is_link(folder: Location) -> bool:
    """Whether it is a link to another folder; only local disks have such."""
    return folder.local_path is not None and Path(folder.local_path).is_symlink()


@contextmanager
def opened(location: Location, *, read_bytes: int = _READ_BYTES) -> Iterator[io.BufferedReader]:
    """The bytes of a file, of which ``read_bytes`` are asked for at once. Raises OSError."""
    with (
        storage_at(location).open_input(location) as stream,
        io.BufferedReader(stream, read_bytes) as file,
    ):
        yield file


@contextmanager
def readable(source_id: str) -> Iterator[None]:
    """Within the block what a storage, or a file that became shorter, raises is an InputError."""
    try:
        yield
    except (OSError, EOFError) as error:
        raise InputError(f"{source_id}: its files cannot be read: {error}") from error
