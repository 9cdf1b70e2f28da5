"""TableView: what a reader sees of one table: its descriptor, where its partitions lie, and the valid ids.

A transaction or a snapshot that a client opened gives one (:func:`open_table`), and so does a directory that
no metastore describes (:func:`mutation_api.scan.directory.open_directory`). A reader need not know which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.snapshot_view import SnapshotView

__all__ = ["TableView", "open_table"]


@dataclass(frozen=True)
class TableView:
    """What a reader sees of one table.

    ``locations`` are those of the partitions by (escaped) name; '' alone is that of a table without partition
    keys. ``valid_ids`` are the ids in its files that are seen: write ids, in version 1 transaction ids.
    ``valid_txns`` are the transactions that are seen; they tell which compactions have committed.
    """

    table: AcidTable
    locations: Mapping[str, Location]
    valid_ids: ValidIdList
    valid_txns: ValidTxnList


def open_table(view: SnapshotView, table_name: str) -> TableView:
    """The view that a transaction or an open snapshot has of one of its tables.

    Files are protected only as long as the view holds its lock: read while it is open.

    Args:
        view: what ``client.open_snapshot("db.table")`` gives, or a begun transaction that declared the
            table.
        table_name: ``database.table``.

    Raises:
        ConfigurationError: the view does not have the table.
        TransactionStateError: it is not open.
    """
    table = view.table(table_name)
    names = [p.name for p in view.partitions(table_name)] if table.partition_keys else [""]
    return TableView(
        table,
        {name: table.partition_location(name) for name in names},
        view.valid_ids(table.full_name),
        view.valid_txn_list,
    )
