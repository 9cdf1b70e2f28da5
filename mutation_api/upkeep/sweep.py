"""Sweep: removes what transactions that are over left staged in tables; the metastore says which are over.

A driver that dies leaves its staging directory, and on an object store its unfinished uploads. Readers see
neither, but both take up room. The next transaction on the table removes them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from metastore_client.errors import NoSuchObjectError
from mutation_api.client.catalog import Catalog, TableSpec
from mutation_api.client.failure import metastore_errors_as_ours
from mutation_api.commit.staging import Abandoned, find_abandoned, remove_abandoned
from mutation_api.errors import TableNotMutableError
from mutation_api.table.acid_table import TableRole

__all__ = ["SweptTable", "sweep"]


@dataclass(frozen=True)
class SweptTable:
    """What was found in a table, or why it was not looked at.

    ``found`` is what lay there of transactions that are over, ``removed`` what of it is gone now.
    """

    table: str
    found: tuple[Abandoned, ...]
    removed: tuple[Abandoned, ...]
    reason: str | None = None


def sweep(
    metastore: MetastoreClient, database: str, table: str | None = None, *, dry_run: bool = False
) -> Iterator[SweptTable]:
    """Look at one table, or at every table of a database, and remove what the dead left.

    What an open transaction has staged is never touched, and neither is what appears while this runs.

    Args:
        metastore: says which tables there are and which transactions are open.
        database: its name.
        table: one of its tables; None for all.
        dry_run: only look.

    Yields:
        Each ACID table.

    Raises:
        ConnectionFailedError, TransactionError: the server could not be asked.
        TableNotMutableError: ``table`` is no ACID table that this version knows.
    """
    with metastore_errors_as_ours(f"could not sweep database {database}"):
        names = metastore.get_all_tables(database) if table is None else [table]
        for name in names:
            try:
                yield _sweep(metastore, TableSpec(database.lower(), name.lower(), TableRole.SOURCE), dry_run)
            except NoSuchObjectError:
                continue  # dropped since it was listed
            except TableNotMutableError as error:
                if table is not None:
                    raise
                yield SweptTable(f"{database}.{name}", (), (), str(error))


def _sweep(metastore: MetastoreClient, spec: TableSpec, dry_run: bool) -> SweptTable:
    catalog = Catalog(metastore)
    table = catalog.with_partitions(catalog.read_with_partition_names(spec)).table
    # Before the directories are listed: one that appears later belongs to a later transaction.
    open_txns = metastore.get_open_txns()
    found = find_abandoned(table, open_txns)
    removed = () if dry_run or not found else tuple(remove_abandoned(table, open_txns))
    return SweptTable(table.full_name, tuple(found), removed)
