"""The watermark table: the positions up to which programs have read or applied changes.

It has one row for each (source, table of the source, target). Change sources write it in the transaction that
applies their operations (:mod:`mutation_api.cdc.watermark`), consumers of change feeds in the transaction of
their own writes, or afterwards (:mod:`mutation_api.hive.consumer`).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc

from metastore_client.client import MetastoreClient
from metastore_client.errors import AlreadyExistsError, NoSuchObjectError
from metastore_client.model import ColumnInfo
from mutation_api.errors import ConfigurationError
from mutation_api.format.directory_state import first_missing
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.feed_position import NOW, parsed_position
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.create_acid_table import create_acid_table

CONSUMER_PREFIX = "consumer:"
"""The prefix of a consumer's name in the column source_id."""

TABLE_NAME = "mutation_watermarks"
"""The default name of the table, in the database of the targets."""

WATERMARK_COLUMNS = (
    ColumnInfo("source_id", "string", "the log"),
    ColumnInfo("source_table", "string", "the table, as the source calls it"),
    ColumnInfo("target_table", "string", "the table that follows it, database.table"),
    ColumnInfo("position_order", "string", "numbers that order positions, a JSON list"),
    ColumnInfo(
        "position_text", "string", "up to where the log has been applied, as the source writes positions"
    ),
    ColumnInfo("txn_id", "bigint", "the transaction that applied it"),
    ColumnInfo("applied_at", "timestamp", "when, in UTC"),
)
WATERMARK_KEY = ("source_id", "source_table", "target_table")


def watermark_table_beside(target: str) -> str:
    """Return the default name of the table that has the watermarks of a target.

    Raises ConfigurationError if ``target`` is not ``database.table``.
    """
    return f"{split_full_name(target)[0]}.{TABLE_NAME}"


def watermark_table_exists(metastore: MetastoreClient, table_name: str) -> bool:
    """Return True if there is a table of this name.

    Raises ConnectionFailedError or TransactionError if the metastore cannot answer.
    """
    with metastore_errors_as_ours(f"could not look for table {table_name}"):
        try:
            metastore.get_table(*split_full_name(table_name))
        except NoSuchObjectError:
            return False
    return True


def ensure_watermark_table(metastore: MetastoreClient, table_name: str) -> None:
    """Create the table unless it exists. If two processes call this at once, one of them creates it.

    It has one bucket, so that every release of Hive accepts it and its few rows are in one file.

    Raises: See :func:`mutation_api.upkeep.create_acid_table.create_acid_table`.
    """
    if watermark_table_exists(metastore, table_name):
        return
    try:
        create_acid_table(metastore, table_name, WATERMARK_COLUMNS, clustered_by=["source_id"], num_buckets=1)
    except ConfigurationError as error:
        if not isinstance(error.__cause__, AlreadyExistsError):
            raise


def check_watermark_columns(table: AcidTable) -> None:
    """Raise ConfigurationError if a table does not have the columns of a watermark table."""
    wanted = {column.name: column.type for column in WATERMARK_COLUMNS}
    found = {column.name: column.type for column in table.columns}
    if found != wanted or table.partition_keys:
        raise ConfigurationError(
            f"table {table.full_name} is not a watermark table: its columns are "
            f"{', '.join(f'{name} {kind}' for name, kind in found.items())}; expected "
            f"{', '.join(f'{name} {kind}' for name, kind in wanted.items())}. Name another table"
        )


def consumer_positions(metastore: MetastoreClient, table: str, watermark_table: str | None) -> dict[str, str]:
    """Return the positions of the consumers that read changes of a table, by name.

    Args:
        metastore: the metastore.
        table: the full name of the table.
        watermark_table: the table of positions. If None, ``mutation_watermarks`` in the table's database.

    Raises:
        ConfigurationError: If it is not a watermark table, or a given one does not exist.
        Other errors: See ``client.open_snapshot`` and :meth:`TableScan.to_arrow`.
    """
    name = watermark_table or watermark_table_beside(table)
    if not watermark_table_exists(metastore, name):
        if watermark_table is not None:
            raise ConfigurationError(f"there is no table {name}, which should have the consumers' positions")
        return {}
    with MutatorClientBuilder().metastore(metastore).build() as client, client.open_snapshot(name) as view:
        opened = open_table(view, name)
        check_watermark_columns(opened.table)
        columns = ["source_id", "position_text"]
        where = (pc.field("source_table") == table) & pc.starts_with(pc.field("source_id"), CONSUMER_PREFIX)
        rows = TableScan(opened, columns=columns, where=where).to_arrow().to_pylist()
    return {row["source_id"].removeprefix(CONSUMER_PREFIX): row["position_text"] for row in rows}


def read_by_consumers(
    metastore: MetastoreClient, table: str, watermark_table: str | None = None
) -> dict[str, int | None]:
    """Return the highest id up to which each consumer of a table has read all changes, by name.

    It is None if the consumer has read everything, and 0 if it has not read anything yet.

    Args:
        metastore: the metastore.
        table: the full name of the table.
        watermark_table: the table of positions. If None, ``mutation_watermarks`` in the table's database.

    Raises:
        ConfigurationError: If a given watermark table does not exist, or is none.
        Other errors: See :func:`mutation_api.upkeep.compact.compact_table`.
    """
    positions = consumer_positions(metastore, table, watermark_table)
    if not positions:
        return {}
    with MutatorClientBuilder().metastore(metastore).build() as client, client.open_snapshot(table) as view:
        now = view.valid_ids(table)
    found: dict[str, int | None] = {}
    for name, position in positions.items():
        seen = now if position == NOW else parsed_position(position, table, now)
        missing = first_missing(now.up_to(0) if seen is None else seen, now)
        found[name] = None if missing is None else missing - 1
    return found


def read_by_all(
    metastore: MetastoreClient,
    table: str,
    watermark_table: str | None,
    progress: Callable[[str], None],
) -> int | None:
    """Return the highest id that all consumers of a table have read. None if they have read everything.

    The arguments are those of :func:`read_by_consumers`, and ``progress`` is called with the slowest one.
    """
    late = {
        name: last
        for name, last in read_by_consumers(metastore, table, watermark_table).items()
        if last is not None
    }
    if not late:
        return None
    slowest = min(late, key=lambda name: (late[name], name))
    progress(f"{table}: consumer {slowest} has read up to id {late[slowest]}, so no later one is compacted")
    return late[slowest]
