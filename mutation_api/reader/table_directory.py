"""Partitions and ACID version of a table without a metastore, from its directories alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from mutation_api.acid.footer import ACID_VERSION
from mutation_api.acid.layout import ACID_VERSION_FILE, is_hidden
from mutation_api.errors import CorruptFileError, DirectoryStateError
from mutation_api.orc.format.tail import OrcTail, read_tail
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Storage
from mutation_api.storage.side_by_side import side_by_side
from mutation_api.storage.tree import Directories, directories_below

__all__ = ["find_partitions", "is_written_by_hive_4", "uses_write_ids"]

AT_A_TIME = 100
"""Number of partitions to examine; the first one usually suffices."""

_ACID_DIRECTORY = re.compile(r"(base|delta|delete_delta)_.*")
_NAMED_BY_HIVE_4 = re.compile(r"(base|delta|delete_delta)_.*_v[0-9]+|bucket_[0-9]+_[0-9]+")
_DATA_FILE = re.compile(r"(bucket_)?[0-9]+(_[0-9]+)?(_copy_[0-9]+)?")


def find_partitions(location: Location) -> dict[str, Location]:
    """Locations of the partitions below a table's location, by escaped name (``ds=x/hr=1``).

    Directories named ``key=value`` are partitions, nested for several keys. '' alone means that the table is
    not partitioned.

    Raises:
        DirectoryStateError: the directory is missing, partitions have different keys, or data lies beside
        them.
    """
    try:
        found = dict(_partitions(location))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DirectoryStateError(f"{location}: no such directory") from error
    keys = {tuple(part.partition("=")[0] for part in name.split("/")) for name in found}
    if len(keys) > 1:
        shown = " and ".join(sorted("/".join(k) or "none" for k in keys)[:2])
        raise DirectoryStateError(f"{location}: partitions have different keys: {shown}")
    return found


def uses_write_ids(locations: Iterable[Location]) -> bool:
    """Whether partitions have the version 2 layout: Hive 3 and later mark each directory, or each file."""
    for names, tail in _acid_directories(locations):
        if ACID_VERSION_FILE in names or any(map(_NAMED_BY_HIVE_4.fullmatch, names)):
            return True
        if tail is not None and ACID_VERSION in tail.user_metadata:
            return True
    return False


def is_written_by_hive_4(locations: Iterable[Location]) -> bool:
    """Whether Hive 4, or a writer for it, wrote files of version 2: their names or calendars show it."""
    for names, tail in _acid_directories(locations):
        if any(map(_NAMED_BY_HIVE_4.fullmatch, names)) or (tail and tail.is_proleptic is not None):
            return True
    return False


def _acid_directories(locations: Iterable[Location]) -> Iterator[tuple[list[str], OrcTail | None]]:
    """For each base and delta: its name and those of its files, and the tail of one of its files, if any."""
    rest = iter(locations)
    while some := list(itertools.islice(rest, AT_A_TIME)):
        for found in side_by_side(_acid_directories_in, some, storage_at(some[0]).threads):
            yield from found


def _acid_directories_in(location: Location) -> list[tuple[list[str], OrcTail | None]]:
    storage = storage_at(location)
    found: list[tuple[list[str], OrcTail | None]] = []
    for directory in storage.list(location):
        if directory.is_directory and _ACID_DIRECTORY.fullmatch(directory.name):
            entries = storage.list(directory.location)
            files = [e for e in entries if e.size and _DATA_FILE.fullmatch(e.name)]
            tail = _tail(storage, files[0].location) if files else None
            found.append(([directory.name, *(e.name for e in entries)], tail))
    return found


def _tail(storage: Storage, file: Location) -> OrcTail | None:
    try:
        return read_tail(storage, file)
    except CorruptFileError:
        return None  # reading the file will raise the error


def _partitions(location: Location) -> Iterator[tuple[str, Location]]:
    directories = directories_below([location])
    level = [("", location)]
    while level:
        below = side_by_side(
            lambda named: _partitions_in(directories, *named), level, storage_at(location).threads
        )
        yield from (named for named, found in zip(level, below, strict=True) if not found)
        level = [named for found in below for named in found]


def _partitions_in(directories: Directories, name: str, location: Location) -> list[tuple[str, Location]]:
    """Partitions in the directory of the table or of a partition."""
    entries = [e for e in directories.list(location) if not is_hidden(e.name)]
    below = [e for e in entries if _is_partition(e)]
    if below and len(below) < len(entries):
        other = next(e for e in entries if e not in below)
        raise DirectoryStateError(f"{location} holds partitions ({below[0].name}) and data ({other.name})")
    return [(f"{name}/{e.name}" if name else e.name, e.location) for e in below]


def _is_partition(entry: FileEntry) -> bool:
    key, equals, _ = entry.name.partition("=")
    return entry.is_directory and bool(key and equals)
