"""Looks up the ROW__IDs of updates and deletes in the transaction's snapshot, before anything is written.

Hive silently writes an update of a row that does not exist as a new row, and ignores a delete of one. This
check finds both. It costs another evaluation of the changes and a scan of the touched partitions' ROW__IDs.
"""

from __future__ import annotations

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from mutation_api.acid.event import Operation
from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.change_set.address import BUCKET_PROPERTY, OPERATION, PARTITION, ROW_NUMBER, TXN
from mutation_api.change_set.unknown_rows import UNKNOWN_ROWS_SHOWN, UnknownRow, unknown_rows_error
from mutation_api.table.acid_table import AcidTable

__all__ = ["touched_partitions", "verify_row_ids"]

IDENTITY = (PARTITION, TXN, BUCKET_PROPERTY, ROW_NUMBER)
"""Columns that identify a row of a table."""


def touched_partitions(addresses: DataFrame) -> list[str]:
    """Names of the partitions in which the changes update or delete rows, sorted."""
    names = _existing_rows(addresses).select(PARTITION).distinct().collect()
    return sorted(row[0] for row in names)


def verify_row_ids(table: AcidTable, addresses: DataFrame, snapshot: DataFrame) -> None:
    """Check that every update and delete names a row of the snapshot.

    Args:
        table: the table, for messages.
        addresses: ADDRESS_COLUMNS of the changes.
        snapshot: at least the column ROW__ID of the touched partitions.

    Raises:
        RowIdNotFoundError: some do not; the message names the first few, with partition and bucket.
    """
    partition = sf.col(f"{ROW_ID_COLUMN}.partition") if table.partition_keys else sf.lit("")
    known = snapshot.select(
        partition.alias(PARTITION),
        sf.col(f"{ROW_ID_COLUMN}.{table.version.transaction_field}").alias(TXN),
        sf.col(f"{ROW_ID_COLUMN}.bucketid").alias(BUCKET_PROPERTY),
        sf.col(f"{ROW_ID_COLUMN}.rowid").alias(ROW_NUMBER),
    )
    missing = (
        _existing_rows(addresses)
        .select(*IDENTITY, OPERATION)
        .join(known, list(IDENTITY), "left_anti")
        .take(UNKNOWN_ROWS_SHOWN)
    )
    if missing:
        raise unknown_rows_error(table, [UnknownRow(*row) for row in missing])


def _existing_rows(addresses: DataFrame) -> DataFrame:
    return addresses.where(sf.col(OPERATION) != int(Operation.INSERT))
