"""Shared parts of the examples: a metastore on this machine, and a table to change."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from metastore_client import ColumnInfo, EmbeddedMetastore, TableInfo, open_client
from mutation_api import create_acid_table


@contextlib.contextmanager
def metastore_address(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the address from the command line, or that of a metastore started for the block."""
    if arguments:
        yield arguments[0]
        return
    with (
        tempfile.TemporaryDirectory(prefix="example-") as folder,
        EmbeddedMetastore(Path(folder)) as metastore,
    ):
        yield metastore.uri


class PrintLoss:
    """A listener that reports a lost lock to the user. A real program would stop its work."""

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        """Print the loss. The heartbeat's thread calls this."""
        print(f"lost lock {lock_id} of transaction {txn_id} on {', '.join(tables)}: {error}")


def create_table(
    uri: str,
    table: str,
    columns: str,
    partition_keys: str,
    bucket_column: str,
    num_buckets: int,
    *,
    layout: str = "legacy",
    location: str = "",
) -> None:
    """Create a transactional table as ``CREATE TABLE … CLUSTERED BY … STORED AS ORC`` would.

    On Hive 2 the table has the requested layout. Later versions of Hive have only one.

    Args:
        uri: the metastore's address.
        table: ``database.table``.
        columns: ``name type, name type``.
        partition_keys: the partition columns in the same form. Empty for an unpartitioned table.
        bucket_column: the CLUSTERED BY column.
        num_buckets: number of buckets.
        layout: ``legacy``, or ``default`` for split update.
        location: the table's directory, on Hive 2. If '', the server chooses it.
    """
    data, keys = _columns(columns), _columns(partition_keys)
    with open_client(uri) as metastore:
        if metastore.capabilities().has_write_ids:
            create_acid_table(
                metastore, table, data, keys, clustered_by=(bucket_column,), num_buckets=num_buckets
            )
            return
        database, _, name = table.partition(".")
        metastore.create_table(
            TableInfo(
                database=database,
                name=name,
                columns=data,
                partition_keys=keys,
                num_buckets=num_buckets,
                bucket_columns=(bucket_column,),
                location=location,
                parameters={"transactional": "true", "transactional_properties": layout},
            )
        )


def _columns(text: str) -> tuple[ColumnInfo, ...]:
    pairs = [part.strip().split(" ", 1) for part in text.split(", ")] if text else []
    return tuple(ColumnInfo(name, kind) for name, kind in pairs)
