"""The metastore over Thrift: :class:`ThriftMetastoreClient`.

:mod:`~metastore_client.remote.thrift_calls` makes a single call.
:mod:`~metastore_client.remote.thrift_tables` and :mod:`~metastore_client.remote.thrift_transactions` define
the calls, and which of them are repeated when the connection breaks.

Source of the calls about compactions: Hive's Worker and AcidCompactionService (4.0 to 4.2). The answers were
    tried on 2.3.10, 3.1.3 and 4.1.0 (tests/contract).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from metastore_client._thrift.gen import Metastore4
from metastore_client.errors import InvalidRequestError, UnsupportedByServerError
from metastore_client.hive_site import MetastoreConfig
from metastore_client.model import CompactionEnd, CompactionInfo, CompactionJob, CompactionType
from metastore_client.remote.thrift_answers import Answer
from metastore_client.remote.thrift_calls import ThriftCalls
from metastore_client.remote.thrift_statistics_calls import StatisticsCalls
from metastore_client.remote.thrift_transactions import TransactionCalls
from metastore_client.remote.thrift_values import compaction_info, safe_text, ttypes


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
