"""TableView: what a reader sees of one table: its descriptor, where its partitions lie, and the valid ids.

A transaction or a snapshot that a client opened gives one (:func:`open_table`), and so does a directory that
no metastore describes (:func:`mutation_api.scan.directory.open_directory`). A reader need not know which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from metastore_client.model import PartitionInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable

__all__ = ["SnapshotSource", "TableView", "open_table"]


class SnapshotSource(Protocol):
    """What is needed of a begun transaction, a snapshot that a client opened, or a past one."""

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The transactions it sees, compactions among them."""
        ...

    def valid_ids(self, full_name: str) -> ValidIdList:
        """Which of the ids in the files of one of its tables it sees."""
        ...

    def table(self, full_name: str) -> AcidTable:
        """Descriptor of one of its tables."""
        ...

    def partitions(self, full_name: str) -> Sequence[PartitionInfo]:
        """Partitions of one of its tables; none if it has no partition keys."""
        ...


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


def open_table(source: SnapshotSource, full_name: str) -> TableView:
    """The view that a transaction or an open snapshot has of one of its tables.

    Files are protected only as long as the source holds its lock: read while it is open.

    Args:
        source: what ``client.open_snapshot("db.table")`` gives, or a begun transaction that declared the
            table.
        full_name: ``database.table``.

    Raises:
        ConfigurationError: the source does not have the table.
        TransactionStateError: it is not open.
    """
    table = source.table(full_name)
    names = [p.name for p in source.partitions(full_name)] if table.partition_keys else [""]
    return TableView(
        table,
        {name: table.partition_location(name) for name in names},
        source.valid_ids(table.full_name),
        source.valid_txn_list,
    )
