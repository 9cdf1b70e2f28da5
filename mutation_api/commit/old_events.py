"""Finds update and delete events that Hive 2 wrote into a table that a later Hive serves.

Hive 3 and 4 take every event of a delta for an insert. So they show updated rows of such a table twice and
deleted rows as nulls, until the Hive that wrote the old files has compacted them. A change before that would
make the damage permanent.

The check is cheap: it opens only deltas without the mark of the new format, and first reads the files' tails.

Source: Hive's upgrade notes for ACID tables; observed on 3.1.3 (both versions of an updated row are read).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import pyarrow.compute as pc

from mutation_api.acid.footer import ACID_STATS, ACID_VERSION
from mutation_api.acid.layout import ACID_VERSION_FILE, BUCKET_PREFIX, DELTA_PREFIX
from mutation_api.errors import TableNotMutableError
from mutation_api.orc.format.checked_file import faults_of, open_orc
from mutation_api.orc.format.tail import read_tail
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Storage
from mutation_api.storage.side_by_side import side_by_side
from mutation_api.storage.tree import Directories, directories_below
from mutation_api.table.acid_table import AcidTable

__all__ = ["refuse_old_events"]


def refuse_old_events(table: AcidTable, partition_names: Iterable[str]) -> None:
    """Refuse such events in partitions ('' for the whole of an unpartitioned table).

    Raises:
        TableNotMutableError: such events were found; names partition and file.
        CorruptFileError: a file is not an ORC file.
        OSError: the directory could not be read.
    """
    names = list(partition_names)
    directories = directories_below(table.partition_location(name) for name in names)
    threads = storage_at(table.location).threads
    side_by_side(functools.partial(_refuse, table, directories), names, threads)


def _refuse(table: AcidTable, directories: Directories, name: str) -> None:
    location = table.partition_location(name)
    for file in _unmarked_files(directories, location):
        if _holds_changes(storage_at(location), file):
            where = f" partition {name}" if name else ""
            raise TableNotMutableError(
                f"table {table.full_name}{where} cannot be changed: {file} holds updates or deletes in "
                "the format of Hive 2, which this server's Hive reads as inserts. Compact it with Hive 2 "
                "(ALTER TABLE … COMPACT 'major') before the upgrade, or rewrite its rows"
            )


def _unmarked_files(storage: Directories, location: Location) -> Iterator[Location]:
    for directory in _children(storage, location):
        if directory.is_directory and directory.name.startswith(DELTA_PREFIX):
            files = [f for f in _children(storage, directory.location) if not f.is_directory]
            if all(f.name != ACID_VERSION_FILE for f in files):
                yield from (f.location for f in files if f.name.startswith(BUCKET_PREFIX) and f.size)


def _children(storage: Directories, location: Location) -> list[FileEntry]:
    """What lies there; nothing where another transaction was aborted, or a cleaner came by, meanwhile."""
    try:
        return storage.list(location)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _holds_changes(storage: Storage, file: Location) -> bool:
    try:
        with faults_of(file):
            metadata = read_tail(storage, file).user_metadata
            if ACID_VERSION in metadata or not _counts_changes(metadata.get(ACID_STATS, b"").decode()):
                return False
            # Hive 2.3 sometimes puts the counts of a delete delta into its insert delta: the events decide.
            with storage.open_input(file) as stream:
                operations = open_orc(stream).read(columns=["operation"]).column("operation")
            return bool(pc.any(pc.not_equal(operations, 0)).as_py())
    except FileNotFoundError:
        return False  # removed meanwhile


def _counts_changes(statistics: str) -> bool:
    """Whether the counts ``inserts,updates,deletes`` include updates or deletes."""
    _, _, changes = statistics.partition(",")
    return any(int(n) for n in changes.split(",") if n)
