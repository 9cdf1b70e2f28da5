"""Keys in the metastore, and copies of rows outside a table's files, which a search of files cannot see.

A partition whose name has a key is dropped when it is empty, under the exclusive lock that Hive's DDL takes.
Ranges of a column that end with a key are deleted where the server allows it. Hive 4 refuses to delete
statistics of an ACID table, so there ANALYZE must replace them.

Snapshots of HDFS can be looked for, since they are listed below a directory's name ``.snapshot``. Everything
else is named in the report, so that nobody takes it for searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT
from mutation_api.transaction.clock import Clock
from mutation_api.transaction.exclusive_lock import under_exclusive_lock
from mutation_api.upkeep.erasure.obstacles import Obstacle
from mutation_api.upkeep.erasure.table_search import TableSearch
from mutation_api.upkeep.transaction_files import files_below

_SNAPSHOTS = ".snapshot"
_WITH_SNAPSHOTS = ("hdfs", "viewfs")
_OBJECT_STORES = ("s3a", "gs", "abfss")
_REPLICATED = "repl.source.for"


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


def snapshots(searches: Sequence[TableSearch]) -> list[Obstacle]:
    """Return the snapshots of HDFS that hold one of the tables' directories."""
    return [
        Obstacle(
            "snapshot",
            search.full_name,
            f"HDFS snapshot {snapshot} holds the directory as it was",
            "Delete the snapshot (hdfs dfs -deleteSnapshot), and run the same command again",
        )
        for search in searches
        for root in search.roots
        for snapshot in _snapshots_of(root)
    ]


def _snapshots_of(root: Location) -> Iterator[str]:
    if root.scheme not in _WITH_SNAPSHOTS:
        return
    storage, directory = storage_at(root), root
    while True:
        try:
            found = storage.list(directory / _SNAPSHOTS)
        except OSError:  # the directory has no snapshots, or may not be listed
            found = []
        for each in found:
            held = each.location if directory == root else each.location / root.relative_to(directory)
            if storage.stat(held) is not None:
                yield str(each.location)
        if directory.path == "/":
            return
        directory = directory.parent


def not_looked_at(metastore: MetastoreClient, searches: Sequence[TableSearch]) -> tuple[dict[str, str], ...]:
    """Return the places that were not searched: ``{"place": …, "found": …}``.

    Raises:
        MetastoreError: If the server could not be asked.
    """
    databases = sorted({search.sought.table.database for search in searches})
    schemes = {root.scheme for search in searches for root in search.roots}
    replicated = [name for name in databases if metastore.get_database_parameters(name).get(_REPLICATED)]
    places = [
        ("change manager's directory", _change_manager(metastore, replicated)),
        (
            "replicas",
            f"the databases {', '.join(replicated)} are replicated: erase there as well"
            if replicated
            else "no database of the tables is marked as the source of a replication",
        ),
        ("other tables, views, exports and caches", "rows that queries copied there are not found"),
        ("backups", "nothing is known about them"),
        (
            "column statistics in the metastore",
            "their ranges were compared with the keys; numbers of distinct values and histograms were not",
        ),
    ]
    if schemes & {*_WITH_SNAPSHOTS, "file"}:
        places.append(("trash directories and freed blocks of disks", "they were not searched"))
    if schemes & {*_OBJECT_STORES}:
        places.append(("older versions of objects", "they remain if the bucket keeps versions"))
    return tuple({"place": place, "found": found} for place, found in places)


def _change_manager(metastore: MetastoreClient, replicated: Sequence[str]) -> str:
    is_on = metastore.get_config_value("hive.repl.cm.enabled", "").strip().lower() == "true"
    if not is_on:
        return "hive.repl.cm.enabled is not true at this metastore"
    where = metastore.get_config_value("hive.repl.cmrootdir", "").strip() or "unknown"
    kept = metastore.get_config_value("hive.repl.cm.retain", "").strip() or "unknown"
    if not replicated:
        return f"it is {where}, but no database of the tables is marked as the source of a replication"
    return f"{where} may hold replaced files; it keeps them for hive.repl.cm.retain = {kept}"
