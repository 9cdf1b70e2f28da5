"""TableView: what a reader sees of one table: its descriptor, locations of its partitions, and valid ids.

:func:`open_table` makes one of a transaction or a snapshot that a client opened,
:func:`mutation_api.scan.directory.open_directory` makes one of a directory without a metastore. Readers treat
both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.reader.partition_plan import plan_partitions
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.snapshot_view import SnapshotView

__all__ = ["TableView", "open_table", "table_bytes"]


def _nothing() -> None:
    """The check of files that nobody protects."""


@dataclass(frozen=True)
class TableView:
    """What a reader sees of one table.

    Attributes:
        table: its descriptor.
        locations: those of the partitions by (escaped) name. The only name in a table without partition keys
            is ''.
        valid_ids: visible ids in its files: write ids, in version 1 transaction ids.
        valid_txns: visible transactions. They determine which compactions have committed.
        check: raises if whoever protects the files does so no more; see ``SnapshotView.check``.
    """

    table: AcidTable
    locations: Mapping[str, Location]
    valid_ids: ValidIdList
    valid_txns: ValidTxnList
    check: Callable[[], None] = field(default=_nothing, compare=False)


def open_table(view: SnapshotView, table_name: str) -> TableView:
    """The view that a transaction or an open snapshot has of one of its tables.

    Read while the snapshot or transaction is open: its lock protects the files only so long.

    Args:
        view: the result of ``client.open_snapshot("db.table")``, or a begun transaction that declared the
            table.
        table_name: ``database.table``.

    Raises:
        ConfigurationError: the table was not declared.
        TransactionStateError: the snapshot or transaction is not open.
    """
    table = view.table(table_name)
    names = [p.name for p in view.partitions(table_name)] if table.partition_keys else [""]
    return TableView(
        table,
        {name: table.partition_location(name) for name in names},
        view.valid_ids(table.full_name),
        view.valid_txn_list,
        view.check,
    )


def table_bytes(view: TableView) -> int:
    """Size of the files in which the visible rows are. Lists directories; raises as a scan of the view."""
    splits = plan_partitions(view.table, view.locations, view.valid_ids, view.valid_txns, is_whole_table=True)
    return sum(split.byte_count for split in splits)
