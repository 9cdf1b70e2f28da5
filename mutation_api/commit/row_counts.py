"""Keeps the number of rows that the metastore records right, as Hive's own statements do.

Hive 4 answers ``count(*)`` from it. A number that nobody calls accurate is counted anew from the files.

Source: observed on 4.1.0: see :mod:`metastore_client.row_counts`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping, Sequence

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError
from metastore_client.model import TableInfo
from metastore_client.row_counts import CountRows
from mutation_api.commit.table_output import TableOutput
from mutation_api.errors import MutationError
from mutation_api.reader.row_counts import count_rows
from mutation_api.storage.connect import storage_at
from mutation_api.storage.side_by_side import side_by_side
from mutation_api.storage.tree import Directories, directories_below

__all__ = ["record_row_counts", "take_back_row_counts"]

_log = logging.getLogger(__name__)


def record_row_counts(
    metastore: MetastoreClient, output: TableOutput, created: Collection[str], described: TableInfo | None
) -> None:
    """Add what a transaction inserted and deleted to the recorded numbers of rows.

    Args:
        metastore: where they are recorded.
        output: what was written; its files have no final names yet.
        created: names of the partitions that the transaction created.
        described: the table as it was read just before; None if that was a while ago.

    Raises:
        MetastoreError: see :class:`MetastoreClient`.
    """
    changes = output.row_count_changes

    def new_counts(recorded: Mapping[str, int | None]) -> Mapping[str, int | None]:
        known = {name: 0 if name in created else rows for name, rows in recorded.items()}
        counted = _counted(output, [name for name, rows in known.items() if rows is None])
        return {
            name: None if rows is None else rows + changes[name] for name, rows in (known | counted).items()
        }

    _record(metastore, output, new_counts, described)


def take_back_row_counts(metastore: MetastoreClient, output: TableOutput) -> None:
    """Subtract again what :func:`record_row_counts` added, for a transaction that never commits.

    Hive takes no number of an aborted transaction for accurate, but goes on to add to it. A failure is only
    logged: the next transaction of ours counts such rows anew.
    """
    changes = output.row_count_changes

    def old_counts(recorded: Mapping[str, int | None]) -> Mapping[str, int | None]:
        return {name: None if rows is None else rows - changes[name] for name, rows in recorded.items()}

    try:
        _record(metastore, output, old_counts)
    except (MetastoreError, MutationError) as error:
        _log.warning("table %s: numbers of rows stay too high: %s", output.table.full_name, error)


def _record(
    metastore: MetastoreClient, output: TableOutput, count: CountRows, described: TableInfo | None = None
) -> None:
    table = output.table
    metastore.record_row_counts(
        table.database,
        table.name,
        sorted(output.partition_values) if table.partition_keys else None,
        count,
        write_id=output.write_id,
        valid_write_ids=output.valid_write_ids,
        described=described,
    )


def _counted(output: TableOutput, names: Sequence[str]) -> dict[str, int | None]:
    """Rows of partitions by their files, without our own."""
    if not names:
        return {}
    table = output.table
    directories = directories_below([table.partition_location(name) for name in names])
    count = functools.partial(_count, output, directories)
    return dict(zip(names, side_by_side(count, names, storage_at(table.location).threads), strict=True))


def _count(output: TableOutput, directories: Directories, name: str) -> int | None:
    """Rows of one partition; None if its files cannot be read, which is no reason not to commit."""
    table = output.table
    assert output.valid_write_ids is not None, "a server with statistics has write ids"
    try:
        return count_rows(
            directories,
            table,
            table.partition_location(name),
            output.valid_write_ids,
            output.valid_txns,
        )
    except (MutationError, OSError) as error:
        _log.warning(
            "table %s, partition %r: its rows cannot be counted, so queries need its files: %s",
            table.full_name,
            name,
            error,
        )
        return None
