"""Plan many partitions of a table at once: their directories are listed side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.orc.read.snapshot_reader import SnapshotSplit, plan_splits
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.side_by_side import side_by_side
from mutation_api.storage.tree import directories_below
from mutation_api.table.acid_table import AcidTable

__all__ = ["plan_partitions"]


def plan_partitions(
    table: AcidTable,
    locations: Mapping[str, Location],
    valid: ValidIdList,
    valid_txns: ValidTxnList | None,
    *,
    is_whole_table: bool,
) -> list[SnapshotSplit]:
    """What a snapshot reads of partitions; arguments and errors as of :func:`plan_splits`.

    Args:
        table: whose they are.
        locations: of the partitions by name; '' for an unpartitioned table.
        valid: see there.
        valid_txns: see there.
        is_whole_table: these are all its partitions, so all that lies below the table may be listed.

    Returns:
        By partition, in the order given.
    """
    places: Iterable[Location] = locations.values()
    if is_whole_table:
        places = [table.location if place.is_within(table.location) else place for place in places]
    directories = directories_below(places)

    def plan(partition: tuple[str, Location]) -> list[SnapshotSplit]:
        name, location = partition
        return plan_splits(table, name, location, valid, valid_txns, directories)

    threads = storage_at(table.location).threads
    return [split for splits in side_by_side(plan, locations.items(), threads) for split in splits]
