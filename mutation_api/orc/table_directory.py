"""What a table's directories alone tell, for tables that no metastore describes: partitions, ACID version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mutation_api.acid.footer import ACID_VERSION
from mutation_api.acid.layout import ACID_VERSION_FILE, is_hidden
from mutation_api.errors import CorruptFileError, DirectoryStateError
from mutation_api.orc.tail import OrcTail, read_tail
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Storage

__all__ = ["find_partitions", "is_written_by_hive_4", "uses_write_ids"]

_ACID_DIRECTORY = re.compile(r"(base|delta|delete_delta)_.*")
_NAMED_BY_HIVE_4 = re.compile(r"(base|delta|delete_delta)_.*_v[0-9]+|bucket_[0-9]+_[0-9]+")
_DATA_FILE = re.compile(r"(bucket_)?[0-9]+(_[0-9]+)?(_copy_[0-9]+)?")


def find_partitions(location: Location) -> dict[str, Location]:
    """Locations of the partitions below a table's location, by escaped name (``ds=x/hr=1``).

    Directories named ``key=value`` are partitions, nested ones of several keys; '' alone means that there are
    none and the table is not partitioned.

    Raises:
        DirectoryStateError: no such directory, or partitions of different keys, or data beside partitions.
    """
    try:
        found = dict(_partitions(storage_at(location), location, ""))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DirectoryStateError(f"{location}: no such directory") from error
    keys = {tuple(part.partition("=")[0] for part in name.split("/")) for name in found}
    if len(keys) > 1:
        shown = " and ".join(sorted("/".join(k) or "none" for k in keys)[:2])
        raise DirectoryStateError(f"{location}: partitions have different keys: {shown}")
    return found


def uses_write_ids(locations: Iterable[Location]) -> bool:
    """Whether partitions are of version 2: Hive 3 and later mark each directory, or each file."""
    for names, tail in _acid_directories(locations):
        if ACID_VERSION_FILE in names or any(map(_NAMED_BY_HIVE_4.fullmatch, names)):
            return True
        if tail is not None and ACID_VERSION in tail.user_metadata:
            return True
    return False


def is_written_by_hive_4(locations: Iterable[Location]) -> bool:
    """Whether Hive 4 wrote files of version 2 (or someone for it): names or calendars tell."""
    for names, tail in _acid_directories(locations):
        if any(map(_NAMED_BY_HIVE_4.fullmatch, names)) or (tail and tail.is_proleptic is not None):
            return True
    return False


def _acid_directories(locations: Iterable[Location]) -> Iterator[tuple[list[str], OrcTail | None]]:
    """Of each base and delta: the names of and in it, and the tail of one of its files, if any."""
    for location in locations:
        storage = storage_at(location)
        for directory in storage.list(location):
            if directory.is_directory and _ACID_DIRECTORY.fullmatch(directory.name):
                entries = storage.list(directory.location)
                files = [e for e in entries if e.size and _DATA_FILE.fullmatch(e.name)]
                tail = _tail(storage, files[0].location) if files else None
                yield [directory.name, *(e.name for e in entries)], tail


def _tail(storage: Storage, file: Location) -> OrcTail | None:
    try:
        return read_tail(storage, file)
    except CorruptFileError:
        return None  # whoever reads the file will say so


def _partitions(storage: Storage, location: Location, name: str) -> Iterator[tuple[str, Location]]:
    entries = [e for e in storage.list(location) if not is_hidden(e.name)]
    below = [e for e in entries if _is_partition(e)]
    if not below:
        yield name, location
        return
    if len(below) < len(entries):
        other = next(e for e in entries if e not in below)
        raise DirectoryStateError(f"{location} holds partitions ({below[0].name}) and data ({other.name})")
    for entry in below:
        yield from _partitions(storage, entry.location, f"{name}/{entry.name}" if name else entry.name)


def _is_partition(entry: FileEntry) -> bool:
    key, equals, _ = entry.name.partition("=")
    return entry.is_directory and bool(key and equals)
