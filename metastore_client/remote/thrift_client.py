"""The metastore over Thrift: :class:`ThriftMetastoreClient`.

:mod:`~metastore_client.remote.thrift_calls` makes a single call.
:mod:`~metastore_client.remote.thrift_tables` and :mod:`~metastore_client.remote.thrift_transactions` define
the calls about tables and transactions, and which of them are repeated when the connection breaks. The calls
about statistics and compactions are here.

Source of the calls about compactions: Hive's Worker and AcidCompactionService (4.0 to 4.2). The answers were
    tried on 2.3.10, 3.1.3 and 4.1.0 (tests/contract).
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from metastore_client._thrift.gen import Metastore4
from metastore_client.errors import (
    InvalidRequestError,
    MetastoreError,
    NoSuchObjectError,
    UnsupportedByServerError,
)
from metastore_client.hive_site import MetastoreConfig
from metastore_client.model import (
    ColumnStatistics,
    CompactionEnd,
    CompactionInfo,
    CompactionJob,
    CompactionType,
    TableInfo,
)
from metastore_client.remote.thrift_answers import Answer
from metastore_client.remote.thrift_calls import ThriftCalls, batches
from metastore_client.remote.thrift_statistics import (
    ENGINE,
    column_statistics,
    statistics_of_partitions,
    with_row_counts,
    writer_ids,
)
from metastore_client.remote.thrift_tables import FETCH_PARTITIONS_BATCH, RACE_TRIES, TableCalls
from metastore_client.remote.thrift_transactions import TransactionCalls
from metastore_client.remote.thrift_values import CATALOG, compaction_info, partition_info, safe_text, ttypes
from metastore_client.valid_ids import CountRows, ValidWriteIdList

_NO_MERGE = "only Hive 4 adds statistics to those of an ACID table; 3.1.3 hangs up"
_NO_DELETION = "Hive 4 does not delete statistics of ACID tables; ANALYZE TABLE replaces them"


def open_client(
    target: MetastoreConfig | str | Mapping[str, str] | Path | None = None, *, user: str | None = None
) -> ThriftMetastoreClient:
    """Connect to a metastore and probe its capabilities.

    Args:
        target: ``thrift://host:port`` (several are separated by commas), a :class:`MetastoreConfig`, the keys
            of a hive-site.xml, or the path of one. If None, the file in HIVE_CONF_DIR or HADOOP_CONF_DIR.
        user: user name on the server. If None, HADOOP_USER_NAME, otherwise the user of this process.

    Raises:
        InvalidConfigurationError: If the target is invalid.
        MetastoreUnavailableError: If no server answered.
    """
    client = ThriftMetastoreClient(MetastoreConfig.load(target, user=user))
    try:
        client.capabilities()
    except BaseException:
        client.close()
        raise
    return client


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
        # In a request to add those of several partitions, Hive 4 takes one partition's marks for another's.
        for names in batches(sorted(statistics), FETCH_PARTITIONS_BATCH if replaces else 1):
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


class CompactionCalls(ThriftCalls):
    """The calls about compactions of a :class:`~metastore_client.client.MetastoreClient`."""

    def compact(
        self,
        database: str,
        table: str,
        partition: str | None,
        type: CompactionType,
        properties: Mapping[str, str] | None = None,
        *,
        pool: str | None = None,
    ) -> bool:
        """Queue a compaction. Return False if one is already queued or running.

        See :meth:`MetastoreClient.compact`.
        """
        request = ttypes.CompactionRequest(
            dbname=database.lower(),
            tablename=table.lower(),
            partitionname=partition,
            type=int(type),
            properties=None if properties is None else dict(properties),
            poolName=pool,
        )
        return self._call("compact2", request, repeat=True)["accepted"].flag()

    def show_compactions(self, id: int | None = None) -> list[CompactionInfo]:
        """Return the compaction queue and its history. See :meth:`MetastoreClient.show_compactions`."""
        answer = self._call("show_compact", ttypes.ShowCompactRequest(id=id), repeat=True)
        found = [compaction_info(each) for each in answer["compacts"].elements()]
        return [each for each in found if id in (None, each.id)]

    def next_compaction(
        self, worker_id: str, worker_version: str, pool: str | None = None
    ) -> CompactionJob | None:
        """Take a compaction from the queue. See :meth:`MetastoreClient.next_compaction`.

        The call is not repeated: a job whose answer was lost stays with this worker until the server assigns
        it to another one.
        """
        if not self.capabilities().has_compaction_workers:
            raise UnsupportedByServerError("only Hive 4 lets other programs run compactions")
        request = ttypes.FindNextCompactRequest(
            workerId=safe_text(worker_id), workerVersion=safe_text(worker_version), poolName=pool
        )
        return self._call("find_next_compact2", request, service=Metastore4)["ci"].optional(_job)

    def compaction_job(self, entry: CompactionInfo) -> CompactionJob:
        """Return the job of an entry of the queue. See :meth:`MetastoreClient.compaction_job`."""
        assert entry.id is not None, "Hive 4 numbers the entries of its queue"
        sent = ttypes.CompactionInfoStruct(
            id=entry.id,
            dbname=entry.database,
            tablename=entry.table,
            partitionname=entry.partition,
            type=int(entry.type),
            runas=entry.run_as or None,
            workerId=entry.worker_id or None,
            start=entry.start_time,
            highestWriteId=entry.highest_write_id,
        )
        return CompactionJob(
            entry.id, entry.database, entry.table, entry.partition, entry.type, entry.run_as, sent
        )

    def compaction_began(
        self, job: CompactionJob, txn_id: int, highest_write_id: int, run_as: str
    ) -> CompactionJob:
        """Report the transaction of a compaction. See :meth:`MetastoreClient.compaction_began`."""
        entry: Any = copy.copy(job.entry)
        entry.runas = job.run_as or safe_text(run_as)
        entry.highestWriteId = highest_write_id
        self._call("update_compactor_state", entry, txn_id, service=Metastore4)
        return replace(job, run_as=entry.runas, entry=entry)

    def compaction_ended(self, job: CompactionJob, end: CompactionEnd, reason: str = "") -> None:
        """Report how a compaction ended. See :meth:`MetastoreClient.compaction_ended`."""
        entry: Any = copy.copy(job.entry)
        if reason:
            entry.errorMessage = safe_text(reason)
        self._call(end.value, entry, service=Metastore4)


def _job(answer: Answer) -> CompactionJob:
    return CompactionJob(
        answer["id"].id(),
        answer["dbname"].text(),
        answer["tablename"].text(),
        answer["partitionname"].optional(Answer.text),
        answer["type"].member(CompactionType),
        answer["runas"].text_or_empty(),
        answer.struct(),
        max(0, answer["numberOfBuckets"].optional(lambda each: each.number_from(None)) or 0),
        answer["orderByClause"].text_or_empty(),
    )


class ThriftMetastoreClient(StatisticsCalls, TransactionCalls, CompactionCalls):
    """A :class:`~metastore_client.client.MetastoreClient` for a real server. It is a context manager.

    Several threads may use it. Each thread has its own connection, which is made at its first call.
    """

    def get_config_value(self, name: str, default: str) -> str:
        """Return a configuration value of the server, or the default if the server refuses to report it.

        See :meth:`MetastoreClient.get_config_value`. Settings that it hides come from hive-site.xml.
        """
        default = self.config.site.get(name, default)
        told = self._pool.get().settings
        if (name, default) not in told:
            try:
                told[name, default] = self._call("get_config_value", name, default, repeat=True).text()
            except InvalidRequestError:  # the server does not report this key to clients
                told[name, default] = default
        return told[name, default]
