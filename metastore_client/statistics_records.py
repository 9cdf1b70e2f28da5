"""StatisticsRecords: the part of a metastore client that reads and records statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from metastore_client.model import ColumnStatistics, TableInfo
from metastore_client.valid_ids import CountRows, ValidWriteIdList


class StatisticsRecords(Protocol):
    """The calls about statistics. See :class:`~metastore_client.client.MetastoreClient`."""

    def record_row_counts(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        count: CountRows,
        *,
        write_id: int | None = None,
        valid_write_ids: ValidWriteIdList | None = None,
        described: TableInfo | None = None,
        columns: Mapping[str, Collection[str]] | None = None,
    ) -> int:
        """Record accurate row counts, and mark column statistics as not accurate.

        ``count`` is not called if the server does not answer queries from statistics, or if the writer gives
        no ids. In these cases, statistics are no longer marked as accurate.

        Args:
            database: name of the table's database.
            table: name of the table.
            partition_names: escaped names; those that do not exist are skipped. If None, the table itself.
            count: function that returns the new row counts for the recorded ones. It is called once for a few
                hundred partitions.
            write_id: the writer's write id.
            valid_write_ids: the write ids that the writer sees. Pass both ids or neither.
            described: the table as it was just read, which saves reading it again.
            columns: by partition ('' for the table), the columns whose statistics stay accurate if they are.

        Returns:
            The number of objects that were changed.

        Raises:
            NoSuchObjectError: If the table does not exist.
            InvalidRequestError: If only one of the two ids is given.
        """
        ...

    def get_column_statistics(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        columns: Sequence[str],
        *,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> dict[str, tuple[ColumnStatistics, ...]]:
        """Return the recorded statistics of columns, accurate or not.

        COLUMN_STATS_ACCURATE in the parameters says which are accurate.

        Args:
            database: name of the table's database.
            table: name of the table.
            partition_names: escaped names, fetched in batches. If None, the table must be unpartitioned.
            columns: names of data columns.
            valid_write_ids: the write ids of a snapshot. A server that answers queries from statistics then
                omits the statistics from which it would not answer queries on this snapshot.

        Returns:
            Statistics by partition name ('' for an unpartitioned table), ordered by column. Partitions
            without statistics are omitted.

        Raises:
            NoSuchObjectError: If the table does not exist.
        """
        ...

    def merge_column_statistics(
        self,
        database: str,
        table: str,
        statistics: Mapping[str, Sequence[ColumnStatistics]],
        *,
        replaces: bool = False,
        write_id: int | None = None,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> None:
        """Add statistics of new rows to the recorded ones, as Hive's INSERT does.

        The server adds them to those columns only whose statistics are accurate. It adds estimates of
        distinct values by their sketches if ``hive.stats.fetch.bitvector`` is set; otherwise, it keeps the
        higher one.

        Args:
            database: name of the table's database.
            table: name of the table.
            statistics: by escaped name of the partition, which exists; '' for an unpartitioned table.
            replaces: True to replace the recorded ones and mark them as accurate.
            write_id: the writer's write id.
            valid_write_ids: the write ids that the writer sees. Pass both ids or neither.

        Raises:
            NoSuchObjectError: If the table or a partition does not exist.
            UnsupportedByServerError: If they are to be added, and the server is older than Hive 4.
        """
        ...

    def delete_column_statistics(
        self, database: str, table: str, partition_names: Sequence[str] | None, column: str
    ) -> None:
        """Delete the recorded statistics of a column. Those that do not exist are skipped.

        Args:
            database: name of the table's database.
            table: name of the table.
            partition_names: escaped names. If None, the table must be unpartitioned.
            column: name of a data column.

        Raises:
            NoSuchObjectError: If the table does not exist.
            UnsupportedByServerError: If the server does not have ``deletes_column_statistics``.
        """
        ...


def merged_statistics(old: ColumnStatistics | None, new: ColumnStatistics) -> ColumnStatistics:
    """Return statistics of old and new rows together, as a server without the sketches of old rows does.

    Source: the column statistics mergers of Hive's metastore (3.1 to 4.2).
    """
    if old is None:
        return new
    lows = [end for end in (old.low, new.low) if end is not None]
    highs = [end for end in (old.high, new.high) if end is not None]
    return dataclasses.replace(
        new,
        null_count=old.null_count + new.null_count,
        low=min(lows, default=None),
        high=max(highs, default=None),
        true_count=_sum(old.true_count, new.true_count),
        false_count=_sum(old.false_count, new.false_count),
        distinct_count=_most(old.distinct_count, new.distinct_count),
        sketch=b"",
        max_length=_most(old.max_length, new.max_length),
        average_length=_most(old.average_length, new.average_length),
    )


def replaced_statistics(old: ColumnStatistics | None, new: ColumnStatistics) -> ColumnStatistics:
    """Return what a server has recorded after ``new``: without a range, the old one stays.

    Source: ``StatObjectConverter.setFieldsIntoOldStats`` of Hive's metastore.
    """
    if old is None or new.low is not None:
        return new
    return dataclasses.replace(new, low=old.low, high=old.high)


_Number = TypeVar("_Number", int, float)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _most(one: _Number | None, other: _Number | None) -> _Number | None:
    return other if one is None else one if other is None else max(one, other)
