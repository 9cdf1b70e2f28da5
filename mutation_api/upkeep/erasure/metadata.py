"""Keys in the metastore: in the names of partitions, and as ends of recorded ranges.

A partition whose name has a key is dropped when it is empty, under the exclusive lock that Hive's DDL takes.
Ranges of a column that end with a key are deleted where the server allows it. Hive 4 refuses to delete
statistics of an ACID table, so there ANALYZE must replace them.
"""

from __future__ import annotations

from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT
from mutation_api.transaction.clock import Clock
from mutation_api.upkeep.create_acid_table import under_exclusive_lock
from mutation_api.upkeep.erasure.obstacles import Obstacle
from mutation_api.upkeep.erasure.table_search import TableSearch
from mutation_api.upkeep.transaction_files import files_below

__all__ = ["RemovedMetadata", "remove_metadata"]


@dataclass(frozen=True)
class RemovedMetadata:
    """The result: partitions dropped, statistics of partitions removed, and what could not be removed."""

    partitions_dropped: int = 0
    statistics_removed: int = 0
    obstacles: tuple[Obstacle, ...] = ()


def remove_metadata(metastore: MetastoreClient, search: TableSearch, clock: Clock) -> RemovedMetadata:
    """Remove keys from the metastore, after a search that found none in files.

    Args:
        metastore: the server.
        search: that search.
        clock: measures the wait for the lock.

    Raises:
        LockNotAcquiredError: If others used the table for too long.
        MetastoreError: If the server failed.
        OSError: If a directory cannot be listed.
    """
    if search.sought.is_in_path:
        names = sorted(search.sought_partitions)
        count = sum(_is_dropped(metastore, search, name, clock) for name in names)
        left = (_partitions_left(search, len(names) - count),) if count < len(names) else ()
        return RemovedMetadata(partitions_dropped=count, obstacles=left)
    names = _statistics_with_keys(metastore, search)
    if not names:
        return RemovedMetadata()
    if not metastore.capabilities().deletes_column_statistics:
        return RemovedMetadata(obstacles=(_statistics_left(search, len(names)),))
    table = search.sought.table
    partitions = names if table.partition_keys else None
    metastore.delete_column_statistics(table.database, table.name, partitions, search.sought.column.name)
    return RemovedMetadata(statistics_removed=len(names))


def _is_dropped(metastore: MetastoreClient, search: TableSearch, name: str, clock: Clock) -> bool:
    """Drop a partition whose rows were deleted and compacted. Return False if it is not empty any more."""
    files = [file.searched for file in search.files if file.partition == name]
    if any(file.row_count for file in files):
        return False
    table = search.sought.table
    lock = (None, LOCK_TIMEOUT_SECONDS_DEFAULT, clock)
    with under_exclusive_lock(metastore, table.database, table.name, *lock):
        now = {entry.location: entry.size for entry in files_below(table.partition_location(name))}
        if now != {file.entry.location: file.entry.size for file in files}:
            return False
        metastore.drop_partition(table.database, table.name, name)
    return True


def _statistics_with_keys(metastore: MetastoreClient, search: TableSearch) -> list[str]:
    """Return the partitions of which a recorded range of the key column ends with a key."""
    sought, table = search.sought, search.sought.table
    names = list(search.partitions) if table.partition_keys else None
    found = metastore.get_column_statistics(table.database, table.name, names, [sought.column.name])
    return [
        name
        for name, columns in found.items()
        if any(
            end is not None and sought.has_python(end) for each in columns for end in (each.low, each.high)
        )
    ]


def _partitions_left(search: TableSearch, count: int) -> Obstacle:
    return Obstacle(
        "partition",
        search.full_name,
        f"{count} partitions whose name has a key are not empty, or were just written",
        "Run the same command again",
    )


def _statistics_left(search: TableSearch, count: int) -> Obstacle:
    where = f" of {count} partitions" if search.sought.table.partition_keys else ""
    return Obstacle(
        "statistics",
        search.full_name,
        f"the metastore's range of column {search.sought.column.name}{where} still ends with a key",
        "Let Hive compute it again (ANALYZE TABLE … COMPUTE STATISTICS FOR COLUMNS), then run the same "
        "command again",
    )
