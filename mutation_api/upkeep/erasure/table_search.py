"""The search for keys in every file below the locations of a table and of its partitions.

Directories are walked as the storage lists them, including hidden ones and those of aborted or replaced
transactions. Files that disappear meanwhile are gone. Unfinished uploads to an object store hold bytes that
nobody can read; they are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from metastore_client.partition_name import parse_partition_name
from mutation_api.errors import RecordValueError
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.layout import is_hidden
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.storage.tree import side_by_side
from mutation_api.table.partition_value import stored_partition_value
from mutation_api.transaction.manifest import STAGING_PREFIX
from mutation_api.upkeep.erasure.file_search import SearchedFile, SoughtKeys, search_file
from mutation_api.upkeep.kept_files import kept_directory_of
from mutation_api.upkeep.transaction_files import files_below

_STAGING_NAME = re.compile(re.escape(STAGING_PREFIX) + r"(\d+)")

Progress = Callable[[str], None]


@dataclass(frozen=True)
class FoundFile:
    """A file and its place.

    ``partition`` is the escaped name, '' in a table without partition columns; None if the file is not below
    a partition that the metastore knows. ``staged_by`` is the transaction in whose staging directory the file
    is. ``is_hidden`` is True if it is in another hidden directory. ``kept_in`` is the directory of files from
    before a compaction that it is in.
    """

    searched: SearchedFile
    partition: str | None
    staged_by: int | None = None
    is_hidden: bool = False
    kept_in: Location | None = None

    @property
    def location(self) -> Location:
        """The location of the file."""
        return self.searched.entry.location

    @property
    def is_compactable(self) -> bool:
        """True if a compaction of the partition replaces the file, after which the server removes it."""
        return self.partition is not None and self.staged_by is None and not self.is_hidden

    @property
    def is_removable(self) -> bool:
        """True if the server, a sweep or an erasure removes the file, now or when a transaction has ended."""
        return self.is_compactable or self.staged_by is not None or self.kept_in is not None


@dataclass(frozen=True)
class TableSearch:
    """All files below the locations of a table.

    ``partitions`` are the names of its partitions, '' for a table without partition columns.
    ``upload_count`` is the number of unfinished uploads below the locations.
    """

    sought: SoughtKeys
    roots: tuple[Location, ...]
    partitions: tuple[str, ...]
    files: tuple[FoundFile, ...]
    upload_count: int = 0

    @property
    def full_name(self) -> str:
        """The table's name, ``database.table``."""
        return self.sought.table.full_name

    @cached_property
    def left(self) -> tuple[FoundFile, ...]:
        """The files that hold a key, or could not be searched."""
        return tuple(file for file in self.files if not file.searched.is_free)

    @property
    def partitions_to_rewrite(self) -> list[str]:
        """The partitions with such files that a compaction replaces, by name."""
        return sorted({f.partition for f in self.left if f.is_compactable and f.partition is not None})

    @property
    def is_free(self) -> bool:
        """True if every byte was searched and no key was found."""
        return not self.left and not self.upload_count

    @property
    def byte_count(self) -> int:
        """The size of all files."""
        return sum(file.searched.entry.size for file in self.files)

    @property
    def found_rows(self) -> int:
        """The number of rows with a key in all files, including those that no reader sees."""
        return sum(file.searched.found_rows for file in self.files)

    @cached_property
    def sought_partitions(self) -> frozenset[str]:
        """The partitions whose name has one of the keys."""
        return sought_partitions(self.sought, self.partitions)

    def shown(self, location: Location) -> str:
        """Return the path of a file below the table's location, or of partition N outside: ``N:path``.

        Values of a sought partition column are left out.
        """
        number, root = next((n, root) for n, root in enumerate(self.roots) if location.is_within(root))
        path = self.masked(location.relative_to(root))
        return path if root == self.sought.table.location else f"{number}:{path}"

    def masked(self, path: str) -> str:
        """Return a path or a partition's name without values of a sought partition column."""
        if not self.sought.is_in_path:
            return path
        name = re.escape(self.sought.column.name)
        return re.sub(rf"(^|/)({name})=[^/]*", r"\1\2=…", path, flags=re.IGNORECASE)


def search_table(
    sought: SoughtKeys,
    locations: Mapping[str, Location],
    *,
    threads: int | None = None,
    progress: Progress = lambda line: None,
) -> TableSearch:
    """Search all files below a table's locations.

    Args:
        sought: the keys and the table.
        locations: the locations of the partitions by escaped name; '' is the table without partition columns.
        threads: number of files to search at once. If None, as many as the storage serves well. Each thread
            holds the key column of a stripe in memory.
        progress: called with a line after every thousandth file.

    Raises:
        OSError: If a directory cannot be listed.
    """
    table = sought.table
    roots = _outermost([table.location, *locations.values()])
    by_location = {location: name for name, location in locations.items()}
    found = sought_partitions(sought, locations)
    threads = threads or storage_at(table.location).threads
    entries = [(root, entry) for root in roots for entry in _files(root, threads)]

    def search(numbered: tuple[int, tuple[Location, FileEntry]]) -> FoundFile | None:
        number, (root, entry) = numbered
        if number and number % _FILES_PER_LINE == 0:
            progress(f"{table.full_name}: searched {number:,} of {len(entries):,} files")
        partition = _partition_of(entry.location, root, by_location)
        names = entry.location.relative_to(root).split("/")
        staging = next((match for name in names if (match := _STAGING_NAME.fullmatch(name))), None)
        in_hidden = any(is_hidden(name) for name in names[:-1])
        is_sought = None if partition is None or in_hidden else partition in found
        try:
            searched = search_file(sought, entry, is_sought_partition=is_sought)
        except FileNotFoundError:
            return None
        kept = kept_directory_of("/".join(names))
        kept_in = None if kept is None else root / kept
        return FoundFile(searched, partition, int(staging[1]) if staging else None, in_hidden, kept_in)

    files = side_by_side(search, enumerate(entries), threads)
    uploads = sum(len(storage_at(root).unfinished(root)) for root in roots)
    kept = tuple(file for file in files if file is not None)
    return TableSearch(sought, roots, tuple(sorted(locations)), kept, uploads)


_FILES_PER_LINE = 1000


def sought_partitions(sought: SoughtKeys, names: Iterable[str]) -> frozenset[str]:
    """Return the partitions whose name has a key; none if the keys are not in a partition column."""
    if not sought.is_in_path:
        return frozenset()
    table = sought.table
    at = table.partition_key_names.index(sought.column.name)
    kind = parse_hive_type(sought.column.type)
    found = []
    for name in names:
        try:
            value = stored_partition_value(parse_partition_name(name)[at][1], kind, table.null_partition_text)
        except RecordValueError:
            continue
        if value is not None and sought.has_python(value):
            found.append(name)
    return frozenset(found)


def _outermost(locations: Sequence[Location]) -> tuple[Location, ...]:
    """Return the locations that are not below another one of them."""
    kept: list[Location] = []
    for location in sorted(set(locations), key=lambda each: len(each.path)):
        if not any(location.is_within(other) for other in kept):
            kept.append(location)
    return tuple(kept)


def _files(root: Location, threads: int) -> list[FileEntry]:
    try:
        entries = storage_at(root).list(root)
    except FileNotFoundError:
        return []
    below = side_by_side(files_below, [e.location for e in entries if e.is_directory], threads)
    return [*(entry for entry in entries if not entry.is_directory), *(e for files in below for e in files)]


def _partition_of(file: Location, root: Location, partitions: Mapping[Location, str]) -> str | None:
    directory = file.parent
    while directory not in partitions:
        if directory == root or directory.path == "/":
            return None
        directory = directory.parent
    return partitions[directory]
