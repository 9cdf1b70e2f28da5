"""The view of a partition that a compaction may rewrite, and the checks that nobody else works on it."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping

from metastore_client.client import MetastoreClient, compactions_of
from mutation_api.errors import CompactionError, ConfigurationError
from mutation_api.orc.read.event_file import EventFile
from mutation_api.read.partition_files import list_partition_files
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.table_view import TableView, open_table
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.snapshot import Snapshot

_INITIATOR = "hive.compactor.initiator.on"
NO_AUTO_COMPACTION = "no_auto_compaction"
"""The table property that keeps the server's initiator from a table."""


def compactable_view(snapshot: Snapshot, table: str, partition: str, up_to: int | None = None) -> TableView:
    """Return the view of a table that a compaction may rewrite: up to the first id that is open.

    Transactions with later ids may still write rows that a new base would hide. ``up_to`` may be a lower id.

    Raises:
        CompactionError: If the table is sorted, or the partition does not exist.
    """
    view = open_table(snapshot, table)
    if partition not in view.locations:
        raise CompactionError(f"table {view.table.full_name}: it no longer has a partition {partition!r}")
    if snapshot.description(table).sort_columns:
        raise CompactionError(
            f"table {view.table.full_name} is sorted; Hive does not compact sorted tables either"
        )
    last = view.valid_ids.min_open - 1
    if up_to is not None:
        # Ids in a base cannot be taken out of it again.
        bases = [file.last for file in files_read(view, partition) if not file.is_of_delta]
        last = min(last, max([up_to, *bases]))
    return dataclasses.replace(view, valid_ids=view.valid_ids.up_to(last))


def files_read(view: TableView, partition: str) -> list[EventFile]:
    """Return the files of a partition that a view reads.

    Raises:
        DirectoryStateError, CorruptFileError: See :mod:`mutation_api.read.partition_files`.
    """
    location = view.locations[partition]
    return list_partition_files(storage_at(location), view.table, location, view.valid_ids, view.valid_txns)


def partition_location(
    metastore: MetastoreClient, database: str, name: str, partition: str
) -> Location | None:
    """Return the location of a partition now; '' for an unpartitioned table. None if it does not exist.

    Raises:
        MetastoreError: If the server could not be queried.
    """
    if not partition:
        return Location.parse(metastore.get_table(database, name).location)
    found = metastore.get_partitions_by_names(database, name, [partition])
    return Location.parse(found[0].location) if found else None


def queued_state(metastore: MetastoreClient, database: str, name: str, partition: str) -> str | None:
    """Return the state of a compaction of a partition in the server's queue that has not ended.

    A compaction ends when the cleaner has removed the old files. The cleaner removes all that is obsolete
    when it runs, not only what its compaction replaced.

    Raises:
        MetastoreError: If the server could not be queried.
    """
    for each in compactions_of(metastore, database, name):
        if (each.partition or "") == partition and each.may_change_files:
            return each.state
    return None


def check_unqueued(metastore: MetastoreClient, database: str, name: str, partition: str, where: str) -> None:
    """Refuse if Hive's own compactor works on a partition, or may begin at any time. Before Hive 4.

    Two results with one name would be nested. Hive's worker takes no lock there.

    Raises:
        ConfigurationError: If the initiator may add the partition to the queue.
        CompactionError: If the queue has it.
        MetastoreError: If the server could not be queried.
    """
    check_initiator(metastore, database, name, where)
    if (found := queued_state(metastore, database, name, partition)) is not None:
        raise CompactionError(
            f"{where}: a compaction by Hive is {found}. Wait for it: hive-mutate show compactions"
        )


def check_initiator(metastore: MetastoreClient, database: str, name: str, where: str) -> None:
    """Refuse if the server's initiator may add a table to the queue. Before Hive 4.

    Raises:
        ConfigurationError: If it may.
        MetastoreError: If the server could not be queried.
    """
    parameters = metastore.get_table(database, name).parameters
    is_automatic = metastore.get_config_value(_INITIATOR, "true").strip().lower() != "false"
    if is_automatic and not has_no_auto_compaction(parameters):
        raise ConfigurationError(
            f"{where}: the server's initiator may have Hive compact it at the same time. Let Hive "
            f"compact it, or set {_INITIATOR}=false or the table property '{NO_AUTO_COMPACTION}'='true'"
        )


def has_no_auto_compaction(parameters: Mapping[str, str]) -> bool:
    """Return True if the server's initiator leaves a table with these properties alone.

    Source: Hive's Initiator.noAutoCompactSet (2.3, 3.1): the name in upper case counts if the other one is
        missing.
    """
    value = parameters.get(NO_AUTO_COMPACTION, parameters.get(NO_AUTO_COMPACTION.upper(), ""))
    return value.lower() == "true"


def splits_by_bucket(table: AcidTable, splits: Iterable[SnapshotSplit]) -> dict[int, list[SnapshotSplit]]:
    """Return splits by the bucket of the file into which a compaction writes their rows.

    Raises:
        CompactionError: If a file has no bucket in its name.
    """
    buckets: dict[int, list[SnapshotSplit]] = defaultdict(list)
    for split in splits:
        bucket = split.bucket_id
        if bucket < 0:
            if table.version.has_row_ids or table.is_bucketed:
                raise CompactionError(
                    f"{split.files[0].location} has no bucket in its name. Let Hive compact the partition"
                )
            bucket = 0  # without buckets, a file of an insert-only table may hold any row
        buckets[bucket].append(split)
    return buckets
