"""Files of one transaction in one table: what it staged, and what lies under its id's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mutation_api.acid.layout import DeltaDirectory, is_hidden, parse_directory_name
from mutation_api.commit.manifest import STAGING_PREFIX
from mutation_api.errors import DirectoryStateError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.storage.side_by_side import side_by_side
from mutation_api.table.acid_table import AcidTable

__all__ = ["TransactionDirectory", "files_below", "transaction_directories"]


@dataclass(frozen=True)
class TransactionDirectory:
    """A directory of a transaction's files. ``is_staged``: hidden, and not published yet."""

    partition: str
    location: Location
    is_staged: bool
    file_count: int
    byte_count: int


def transaction_directories(
    table: AcidTable, partitions: list[str], txn_id: int, own_id: int | None
) -> list[TransactionDirectory]:
    """Directories of one transaction.

    Args:
        table: the table, with the locations of its partitions.
        partitions: their escaped names, [''] for an unpartitioned table.
        txn_id: the transaction; staging directories are named by it.
        own_id: its id in file names: the write id, in v1 the transaction's; None: not known.

    Raises:
        OSError: a directory cannot be listed.
    """
    roots = dict.fromkeys([table.location, *table.partition_locations.values()])
    found = [each for root in roots for each in _staged(root, txn_id)]
    if own_id is not None:
        threads = storage_at(table.location).threads
        for published in side_by_side(lambda name: _published(table, name, own_id), partitions, threads):
            found += published
    return found


def files_below(directory: Location) -> list[FileEntry]:
    """All files below a directory, hidden ones included; none if it is missing. Raises OSError."""
    try:
        entries = storage_at(directory).list(directory)
    except FileNotFoundError:
        return []
    files = [entry for entry in entries if not entry.is_directory]
    for entry in entries:
        if entry.is_directory:
            files += files_below(entry.location)
    return files


def _staged(root: Location, txn_id: int) -> Iterator[TransactionDirectory]:
    directory = root / f"{STAGING_PREFIX}{txn_id}"
    if storage_at(root).stat(directory) is not None:
        yield _directory("", directory, is_staged=True)


def _published(table: AcidTable, name: str, own_id: int) -> list[TransactionDirectory]:
    location = table.partition_location(name)
    try:
        entries = storage_at(location).list(location)
    except FileNotFoundError:
        return []
    found = []
    for entry in entries:
        if not entry.is_directory or is_hidden(entry.name):
            continue
        try:
            parsed = parse_directory_name(entry.name, table.version)
        except DirectoryStateError:
            continue
        is_delta = isinstance(parsed, DeltaDirectory) and parsed.first == parsed.last
        if (
            parsed is not None
            and parsed.last == own_id
            and (is_delta or not isinstance(parsed, DeltaDirectory))
        ):
            found.append(_directory(name, entry.location, is_staged=False))
    return found


def _directory(partition: str, location: Location, *, is_staged: bool) -> TransactionDirectory:
    files = files_below(location)
    return TransactionDirectory(partition, location, is_staged, len(files), sum(file.size for file in files))
