"""Removal of the remains of transactions: staged files of ended ones, and locks of abandoned ones.

A driver that dies leaves its staging directory and, on an object store, its unfinished uploads. Readers do
not see them, but they take up space. The metastore reports which transactions have ended. The next
transaction on the table removes these files too. To release the locks of abandoned transactions, abort the
transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from metastore_client.model import OpenTxns
from mutation_api.errors import CorruptFileError, TableNotFoundError, TableNotMutableError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.catalog import Catalog, OpenTable, TableSpec, database_and_table
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.staging import Abandoned, find_abandoned, remove_abandoned
from mutation_api.upkeep.kept_files import find_removable, is_of_kept_files, remove_kept
from mutation_api.upkeep.transaction_files import files_below

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweptSize:
    """The size of the output found in one location."""

    file_count: int
    byte_count: int


@dataclass(frozen=True)
class SweptTable:
    """The findings in a table, or the reason why it was skipped.

    ``found`` lists the output that ended transactions had left there, and files from before compactions whose
    time is over. ``removed`` is the removed part of it.
    ``sizes`` are the files and bytes of ``found``, in its order. Unfinished uploads, whose size a store does
    not report, count like the marks that stand for them.
    """

    table: str
    found: tuple[Abandoned, ...]
    removed: tuple[Abandoned, ...]
    reason: str | None = None
    sizes: tuple[SweptSize, ...] = ()

    @property
    def size(self) -> SweptSize:
        """The number of files and bytes found."""
        return SweptSize(sum(s.file_count for s in self.sizes), sum(s.byte_count for s in self.sizes))

    def to_dict(self) -> dict[str, object]:
        """Return the findings as a JSON-serialisable dict."""
        found = [
            {
                "txn": each.txn_id,
                "location": str(each.location),
                "removed": each in self.removed,
                "file_count": size.file_count,
                "byte_count": size.byte_count,
            }
            for each, size in zip(self.found, self.sizes, strict=True)
        ]
        return {"table": self.table, "found": found, "reason": self.reason}


def sweep(metastore: MetastoreClient, name: str, *, dry_run: bool = False) -> Iterator[SweptTable]:
    """Remove the output that ended transactions have left in one table or in every table of a database.

    Files of open transactions are never touched, and neither are files that appear during the sweep.

    Args:
        metastore: lists the tables and the open transactions.
        name: a database, or ``database.table``.
        dry_run: True to find files without removing them.

    Yields:
        One result for each table; for a table that is not an ACID table, the reason.

    Raises:
        ConnectionFailedError, TransactionError: If the server could not be queried.
        ConfigurationError: If ``name`` is neither.
        TableNotFoundError: If the table does not exist.
        TableNotMutableError: If the table is not an ACID table that this version supports.
    """
    database, table = database_and_table(name)
    with metastore_errors_as_ours(f"could not sweep database {database}"):
        names = metastore.get_all_tables(database) if table is None else [table]
        for each in names:
            try:
                yield _sweep(metastore, TableSpec(database, each.lower(), TableRole.SOURCE), dry_run)
            except TableNotFoundError:
                if table is not None:
                    raise
                continue  # dropped since it was listed
            except TableNotMutableError as error:
                if table is not None:
                    raise
                yield SweptTable(f"{database}.{each}", (), (), str(error))


def _sweep(metastore: MetastoreClient, spec: TableSpec, dry_run: bool) -> SweptTable:
    catalog = Catalog(metastore)
    opened = catalog.with_partitions(catalog.read_with_partition_names(spec))
    table = opened.table
    # Ask before listing directories: one that appears later belongs to a later transaction.
    open_txns = metastore.get_open_txns()
    found = [*find_abandoned(table, open_txns), *_removable(opened, open_txns)]
    sizes = tuple(_size(each) for each in found)
    removed: tuple[Abandoned, ...] = ()
    if found and not dry_run:
        expired = [each for each in found if is_of_kept_files(each.location.name)]
        kept = [each for each in expired if remove_kept(each.location)]
        removed = (*remove_abandoned(table, open_txns), *kept)
    return SweptTable(table.full_name, tuple(found), removed, sizes=sizes)


def _removable(opened: OpenTable, open_txns: OpenTxns) -> list[Abandoned]:
    """Return files from before compactions that are no longer kept."""

    def look(location: Location) -> list[Abandoned]:
        try:
            return find_removable(location, open_txns)
        except (OSError, CorruptFileError) as error:
            _log.warning("could not look for kept files in %s: %s", location, error)
            return []

    table = opened.table
    names = opened.partition_names if table.partition_keys else [""]
    locations = [table.partition_location(name) for name in names]
    threads = storage_at(table.location).threads
    return [each for found in side_by_side(look, locations, threads) for each in found]


def _size(each: Abandoned) -> SweptSize:
    if each.txn_id is None:
        return SweptSize(1, 0)  # an empty file
    try:
        files = files_below(each.location)
    except OSError as error:
        _log.warning("could not look for files in %s: %s", each.location, error)
        return SweptSize(0, 0)
    return SweptSize(len(files), sum(file.size for file in files))


def abort_transactions(metastore: MetastoreClient, txn_ids: Iterable[int]) -> Iterator[int]:
    """Abort transactions of any client.

    Args:
        metastore: the metastore in which they are open.
        txn_ids: the ids, as listed by ``hive-mutate show txns``.

    Yields:
        Each id as soon as that transaction is aborted. An already aborted transaction is not an error.

    Raises:
        NoSuchTxnError: If a transaction is committed or the id does not exist. The metastore does not report
            which of the two applies, so this is not converted to an error of this package, whose message
            would state which changes are visible.
        MetastoreError: If the server could not be queried.
    """
    for txn_id in txn_ids:
        metastore.abort_txn(txn_id)
        yield txn_id
