"""Partitions of a table found from its directories alone, for tables that no metastore describes."""

from __future__ import annotations

from collections.abc import Iterator

from mutation_api.acid.layout import is_hidden
from mutation_api.errors import DirectoryStateError
from mutation_api.orc.storage import FileEntry, Storage

__all__ = ["find_partitions"]


def find_partitions(location: str) -> dict[str, str]:
    """Locations of the partitions below a table's location, by escaped name (``ds=x/hr=1``).

    Directories named ``key=value`` are partitions, nested ones of several keys; '' alone means that there are
    none and the table is not partitioned.

    Raises:
        DirectoryStateError: no such directory, or partitions of different keys, or data beside partitions.
    """
    storage = Storage.for_location(location)
    try:
        found = dict(_partitions(storage, storage.path(location), ""))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DirectoryStateError(f"{location}: no such directory") from error
    keys = {tuple(part.partition("=")[0] for part in name.split("/")) for name in found}
    if len(keys) > 1:
        shown = " and ".join(sorted("/".join(k) or "none" for k in keys)[:2])
        raise DirectoryStateError(f"{location}: partitions have different keys: {shown}")
    return found


def _partitions(storage: Storage, path: str, name: str) -> Iterator[tuple[str, str]]:
    entries = [e for e in storage.list(path) if not is_hidden(e.name)]
    below = [e for e in entries if _is_partition(e)]
    if not below:
        yield name, path
        return
    if len(below) < len(entries):
        other = next(e for e in entries if e not in below)
        raise DirectoryStateError(f"{path} holds partitions ({below[0].name}) and data ({other.name})")
    for entry in below:
        yield from _partitions(storage, entry.path, f"{name}/{entry.name}" if name else entry.name)


def _is_partition(entry: FileEntry) -> bool:
    key, equals, _ = entry.name.partition("=")
    return entry.is_directory and bool(key and equals)
