"""Calls about statistics, to a real metastore. See StatisticsRecords."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from metastore_client.errors import (
    InvalidRequestError,
    MetastoreError,
    NoSuchObjectError,
    UnsupportedByServerError,
)
from metastore_client.model import ColumnStatistics, TableInfo
from metastore_client.remote.thrift_calls import batches
from metastore_client.remote.thrift_statistics import (
    ENGINE,
    column_statistics,
    statistics_of_partitions,
    with_row_counts,
    writer_ids,
)
from metastore_client.remote.thrift_tables import FETCH_PARTITIONS_BATCH, RACE_TRIES, TableCalls
from metastore_client.remote.thrift_values import CATALOG, partition_info, ttypes
from metastore_client.valid_ids import CountRows, ValidWriteIdList

_NO_MERGE = "only Hive 4 adds statistics to those of an ACID table; 3.1.3 hangs up"
_NO_DELETION = "Hive 4 does not delete statistics of ACID tables; ANALYZE TABLE replaces them"


class StatisticsCalls(TableCalls):
    """The calls about statistics."""

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

        See :meth:`MetastoreClient.record_row_counts`.

        The server has no call for this: objects are read, changed and written back immediately.
        """
        if (write_id is None) != (valid_write_ids is None):
            raise InvalidRequestError(f"{database}.{table}: pass write_id and valid_write_ids together")
        if not self.capabilities().answers_from_statistics:
            count = dict.fromkeys
        writer = writer_ids(write_id, valid_write_ids)

        just_read = [] if described is None else [described]

        def record_of_table() -> int:
            read = just_read.pop() if just_read else self.get_table(database, table)
            recorded = {"": (read.parameters, copy.copy(read.sent))}
            changed = with_row_counts(recorded, count, valid_write_ids, columns or {})
            for raw in changed:
                self._alter_raw_table(raw, writer)
            return len(changed)

        if partition_names is None:
            return _again_after_a_race(record_of_table)
        of_table = described or self.get_table(database, table)

        def record_of_partitions(names: Sequence[str]) -> int:
            recorded = {}
            for each in self._get_partitions(of_table, names):
                partition = partition_info(each, of_table)
                recorded[partition.name] = partition.parameters, each.struct()
            changed = with_row_counts(recorded, count, valid_write_ids, columns or {})
            if changed:
                self._alter_raw_partitions(database, table, changed, writer)
            return len(changed)

        return sum(
            _again_after_a_race(functools.partial(record_of_partitions, batch))
            for batch in batches(sorted(set(partition_names)), FETCH_PARTITIONS_BATCH)
        )

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

        See :meth:`MetastoreClient.get_column_statistics`.
        """
        self.get_table(database, table)  # a server answers for a missing one as if it had no statistics
        asked: dict[str, Any] = {
            "dbName": database.lower(),
            "tblName": table.lower(),
            "colNames": [name.lower() for name in columns],
            "catName": CATALOG,
            "engine": ENGINE,
            "validWriteIdList": None if valid_write_ids is None else valid_write_ids.to_text(),
        }
        if partition_names is None:
            answer = self._call("get_table_statistics_req", ttypes.TableStatsRequest(**asked), repeat=True)
            found = {"": column_statistics(answer["tableStats"], asked["colNames"])}
        else:
            found = {}
            for batch in batches(sorted(set(partition_names)), FETCH_PARTITIONS_BATCH):
                request = ttypes.PartitionsStatsRequest(partNames=list(batch), **asked)
                parts = self._call("get_partitions_statistics_req", request, repeat=True)["partStats"]
                by_name = sorted(parts.by_name().items())
                found.update((name, column_statistics(each, asked["colNames"])) for name, each in by_name)
        return {name: columns for name, columns in found.items() if columns}

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
        """Add statistics of new rows. See :meth:`MetastoreClient.merge_column_statistics`."""
        is_hive_4 = self.capabilities().has_exclusive_write_lock
        if not is_hive_4:
            self.get_table(database, table)  # 3.1 hangs up if it is missing
            if not replaces:
                raise UnsupportedByServerError(_NO_MERGE)
        writer = writer_ids(write_id, valid_write_ids) if is_hive_4 else {}
        for names in batches(sorted(statistics), FETCH_PARTITIONS_BATCH):
            of_these = {name: statistics[name] for name in names}
            request = ttypes.SetPartitionsStatsRequest(
                colStats=statistics_of_partitions(database, table, of_these, has_timestamps=is_hive_4),
                needMerge=not replaces,
                engine=ENGINE,
                **writer,
            )
            # Added twice, the counts of NULL would be too high.
            self._call("set_aggr_stats_for", request, repeat=replaces)

    def delete_column_statistics(
        self, database: str, table: str, partition_names: Sequence[str] | None, column: str
    ) -> None:
        """Delete recorded statistics. See :meth:`MetastoreClient.delete_column_statistics`."""
        self.get_table(database, table)
        if not self.capabilities().deletes_column_statistics:
            raise UnsupportedByServerError(_NO_DELETION)
        of_table = (database.lower(), table.lower())
        names = [()] if partition_names is None else [(name,) for name in sorted(set(partition_names))]
        call = f"delete_{'table' if partition_names is None else 'partition'}_column_statistics"
        for name in names:
            with contextlib.suppress(NoSuchObjectError):
                self._call(call, *of_table, *name, column.lower(), ENGINE, repeat=True)


def _again_after_a_race(change: Callable[[], int]) -> int:
    """Change parameters.

    If another client changes the same ones at that moment, repeat with their new values. If two clients add
    one parameter at the same time, the second violates a key of the server's table of parameters
    (``TABLE_PARAMS``, ``PARTITION_PARAMS``), and no part of its change is stored.
    """
    for _ in range(RACE_TRIES - 1):
        try:
            return change()
        except MetastoreError as error:
            if "_PARAMS" not in str(error):
                raise
    return change()
