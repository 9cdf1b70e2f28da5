"""Copies of rows that a search below a table's locations cannot see, as far as anything is known about them.

Snapshots of HDFS can be looked for, since they are listed below a directory's name ``.snapshot``. Everything
else is named in the report, so that nobody takes it for searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metastore_client.client import MetastoreClient
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.upkeep.erasure.obstacles import Obstacle
from mutation_api.upkeep.erasure.table_search import TableSearch

__all__ = ["not_looked_at", "snapshots"]

_SNAPSHOTS = ".snapshot"
_WITH_SNAPSHOTS = ("hdfs", "viewfs")
_OBJECT_STORES = ("s3a", "gs", "abfss")
_REPLICATED = "repl.source.for"


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
