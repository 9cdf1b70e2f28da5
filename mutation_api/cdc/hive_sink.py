"""hive_sink: the function that a streaming query calls for each batch, through ``foreachBatch``.

A batch is one transaction over all of its tables and their marks. So a batch that Spark repeats after a crash
is recognised and skipped, even if the crash hid the result of the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from metastore_client.client import MetastoreClient
from mutation_api.cdc.batch_actions import (
    SOURCE_TABLE,
    BatchAction,
    BatchSummary,
    RunningBatch,
    Written,
    is_new,
    source_id_of,
)
from mutation_api.cdc.watermark import Watermarks, watermark_now
from mutation_api.errors import ConfigurationError, MutationError
from mutation_api.format.plain_array import repeated
from mutation_api.orc.write.encoders import give_back
from mutation_api.read.table_view import open_table
from mutation_api.spark.jvm import running_batch
from mutation_api.transaction.attempts import Attempts
from mutation_api.transaction.builder import (
    LOCK_TIMEOUT_SECONDS_DEFAULT,
    MetastoreTarget,
    MutatorClientBuilder,
    opener_of,
)
from mutation_api.transaction.catalog import normal_full_name, split_full_name
from mutation_api.transaction.listener import SaidByTheNextStep
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.delta_sizes import DeltaSizes, delta_sizes
from mutation_api.upkeep.watermark_table import ensure_watermark_table, watermark_table_beside

_log = logging.getLogger(__name__)

HINT_BATCHES = 50
"""The number of batches written by this process after which the deltas are counted."""
HINT_DELTAS = 100
"""The number of delta directories in a partition from which a warning is logged, or they are joined."""
COMPACTORS = ("hive", "own")


@dataclass(frozen=True)
class BatchReport:
    """The result of a batch.

    ``txn_id``: the transaction that wrote it, or None if every table already had it. ``tables``: the reports
    of the actions, by table.
    """

    number: int
    txn_id: int | None
    tables: dict[str, BatchSummary]

    def to_dict(self) -> dict[str, object]:
        """Return the report as a dict of JSON types only."""
        return {
            "number": self.number,
            "txn_id": self.txn_id,
            "tables": {name: each.to_dict() for name, each in self.tables.items()},
        }

    def __str__(self) -> str:
        if self.txn_id is None:
            return f"batch {self.number}: was already applied"
        done = "; ".join(str(each).partition("\n")[0] for each in self.tables.values())
        return f"batch {self.number}, transaction {self.txn_id}: {done}"


@dataclass
class HiveSink:
    """The function for ``DataStreamWriter.foreachBatch``, made by :func:`hive_sink`, which explains it."""

    metastore: MetastoreTarget
    name: str
    actions: Sequence[BatchAction]
    watermark_table: str
    create_partitions: bool = False
    user: str | None = None
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT
    progress: Callable[[BatchReport], None] = lambda report: None
    attempts: Attempts = field(default_factory=Attempts)
    compactor: str = "hive"
    failure: MutationError | None = field(default=None, init=False)
    _written_count: int = field(default=0, init=False)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write a batch, unless the tables already have it.

        Raises:
            SourcePositionError: If tables and checkpoint do not belong together.
            ConfigurationError: If it was not called by a streaming query.
            Other errors: See the actions, :meth:`Transaction.begin` and :meth:`Transaction.commit`. The query
                ends, and none of the batch is visible, or all of it (CommitOutcomeUnknownError).
                Starting the query again continues correctly.
        """
        try:
            report = self._write(batch, self._running(batch, number))
        except MutationError as error:
            self.failure = error
            raise
        finally:
            give_back()  # otherwise free memory adds up: 0.3 MiB per batch while the query runs
        self.progress(report)

    def await_termination(self, query: StreamingQuery, timeout: int | None = None) -> bool:
        """Wait as ``query.awaitTermination`` does, and raise the library's own error if a batch was refused.

        Args:
            query: the query that writes these batches.
            timeout: maximum time in seconds. If None, wait until the query ends.

        Returns:
            True if the query has ended.
        """
        try:
            ended = query.awaitTermination(timeout) if timeout is not None else query.awaitTermination()
        except StreamingQueryException:
            if self.failure is not None:
                raise self.failure from None
            raise
        return True if ended is None else bool(ended)

    def _running(self, batch: DataFrame, number: int) -> RunningBatch:
        found = running_batch(batch, number)
        if found is None:
            raise ConfigurationError(
                f"streaming query {self.name!r}: batch {number} does not belong to a running query. Only "
                "foreachBatch may call this"
            )
        return RunningBatch(found[0], number, found[1])

    def _write(self, batch: DataFrame, running: RunningBatch) -> BatchReport:
        with self._connected() as metastore:
            ensure_watermark_table(metastore, self.watermark_table)
            with self._builder(metastore).build() as client:
                what = f"streaming query {self.name!r}, batch {running.number}"
                report = self.attempts.run(what, lambda _: self._attempt(client, batch, running))
            if report.txn_id is not None:
                self._written_count += 1
                if self._written_count % HINT_BATCHES == 0:
                    self._tend(metastore)
        return report

    def _attempt(self, client: MutatorClient, batch: DataFrame, running: RunningBatch) -> BatchReport:
        """Write a batch in one transaction, unless the tables have it; its marks are read under the lock."""
        with client.new_transaction() as transaction:
            marks = Watermarks.read(transaction, self.watermark_table)
            new = [each for each in self.actions if self._is_new(running, marks, each)]
            if not new:
                transaction.abort()
                return BatchReport(running.number, None, {})
            found = _written(transaction, batch, new)
            source_id, position, txn_id = source_id_of(self.name), running.position, transaction.txn_id
            marks.write(
                transaction,
                [watermark_now(source_id, SOURCE_TABLE, each.table, position, txn_id) for each in new],
            )
        return BatchReport(running.number, transaction.txn_id, found)

    @contextmanager
    def _connected(self) -> Iterator[MetastoreClient]:
        open_metastore, is_ours = opener_of(self.metastore, self.user)
        metastore = open_metastore()
        try:
            yield metastore
        finally:
            if is_ours:
                metastore.close()

    def _builder(self, metastore: MetastoreClient) -> MutatorClientBuilder:
        builder = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(self.lock_timeout_seconds)
        builder.lock_failure_listener(SaidByTheNextStep())
        for each in self.actions:
            builder.add_sink_table(
                each.table, create_partitions=self.create_partitions, insert_only=each.inserts_only
            )
        if self.user is not None:
            builder.user(self.user)
        return builder.add_sink_table(self.watermark_table)

    def _is_new(self, running: RunningBatch, marks: Watermarks, action: BatchAction) -> bool:
        mark = marks.get(source_id_of(self.name), SOURCE_TABLE, action.table)
        written = Written(self.name, action.table, self.watermark_table, action.first_batch)
        return is_new(running, mark, written)

    def _tend(self, metastore: MetastoreClient) -> None:
        """Compact tables with so many deltas that reading them becomes slow, or warn of them."""
        names = [each.table for each in self.actions] + [self.watermark_table]
        builder = MutatorClientBuilder().metastore(metastore)
        for name in names:
            builder.add_source_table(name)
        with builder.build() as client, client.open_snapshot(*names) as snapshot:
            sizes = {name: delta_sizes(open_table(snapshot, name), counts_rows=False) for name in names}
        for name, partitions in sizes.items():
            many = [each for each in partitions if each.directory_count >= HINT_DELTAS]
            if self.compactor == "own":
                for each in many:
                    self._compact(metastore, name, each.partition)
            elif many:
                self._warn(name, max(many, key=lambda each: each.directory_count))

    def _warn(self, name: str, sizes: DeltaSizes) -> None:
        where = f"partition {sizes.partition} of table {name}" if sizes.partition else f"table {name}"
        _log.warning(
            "streaming query %r: %s has %d delta directories, which every reader opens. Is Hive's compactor "
            "running? To request a compaction, run hive-mutate compact %s",
            self.name,
            where,
            sizes.directory_count,
            name,
        )

    def _compact(self, metastore: MetastoreClient, name: str, partition: str) -> None:
        """Join the deltas of a partition. The batch is committed already, so a failure is only logged."""
        try:
            done = compact_partition(metastore, name, partition, kind="minor")
        except MutationError as error:
            _log.warning("streaming query %r: could not compact: %s", self.name, error)
        else:
            _log.info("streaming query %r: %s", self.name, done)


def _written(
    transaction: Transaction, batch: DataFrame, actions: Sequence[BatchAction]
) -> dict[str, BatchSummary]:
    """Write a batch. It is persisted, so its rows are read from the stream only once."""
    batch.persist()
    try:
        return {each.table: each.write(transaction, batch) for each in actions}
    finally:
        batch.unpersist()


def hive_sink(
    metastore: MetastoreTarget,
    name: str,
    *actions: BatchAction,
    watermark_table: str | None = None,
    create_partitions: bool = False,
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    progress: Callable[[BatchReport], None] = lambda report: None,
    attempts: int | Attempts = 1,
    compactor: str = "hive",
) -> HiveSink:
    """Return a function for ``foreachBatch`` that writes each batch of a streaming query exactly once::

        orders = MergeRows("sales.orders", on=["id"])
        sink = hive_sink("thrift://host:9083", "orders", orders)
        query = changes.writeStream.foreachBatch(sink).option("checkpointLocation", "…").start()
        sink.await_termination(query)

    All rows of a batch, in all of its tables, become visible in one transaction, together with a mark that
    identifies the batch. A batch that Spark repeats after a crash is skipped. If checkpoint and tables do not
    belong together, the batch is refused and nothing is written. This is the case if a checkpoint was deleted
    or restored from an older copy, if a table was restored from an older copy, or if a second query has the
    same name.

    The source must be able to read a batch again (Kafka and files can, a socket cannot). Spark itself
    requires this for its guarantees.

    Args:
        metastore: the metastore, see :meth:`MutatorClientBuilder.metastore`.
        name: the query's name in the marks. It must stay the same as long as this query writes to the tables.
        actions: the operations on the rows of a batch, one action per table.
        watermark_table: ``database.table`` for the marks, created on demand. By default
            ``mutation_watermarks`` in the database of the tables, which must then be the same for all.
            Queries that share this table wait for each other.
        create_partitions: True to create missing partitions. If False, they are refused.
        user: the user name for the metastore.
        lock_timeout_seconds: maximum time for which a batch waits for other writers of its tables.
        progress: called with the report of each batch.
        attempts: the most attempts for a batch that loses a race: the lock was not granted in time, another
            transaction committed first, or the transaction was ended from outside. See ``Hive.run``.
        compactor: ``hive`` to leave compactions to Hive and warn of many deltas. ``own`` to join them in this
            process, between two batches: every 50 batches, the deltas of partitions with 100 or more are
            joined to one (minor). It requires Hive 4.

    Raises:
        ConfigurationError: If there is no action, if ``compactor`` is neither, if two actions have the same
            table, if a name is not ``database.table``, or if the tables are in several databases and
            ``watermark_table`` is not given.
    """
    if not name or not actions:
        raise ConfigurationError("a streaming query requires a name and at least one action")
    targets = [normal_full_name(each.table) for each in actions]
    wrong = [each.table for each, target in zip(actions, targets, strict=True) if each.table != target]
    if wrong:
        raise ConfigurationError(f"table {wrong[0]}: the name must be in lower case, as in Hive")
    doubled = repeated(targets)
    if doubled:
        raise ConfigurationError(
            f"table {doubled[0]} has two actions, but a transaction takes one change set per table. Combine "
            "the rows of both in one action"
        )
    if watermark_table is None and len({split_full_name(each)[0] for each in targets}) > 1:
        raise ConfigurationError(
            "the tables are in several databases. Name the table for the marks with watermark_table"
        )
    marks = normal_full_name(watermark_table or watermark_table_beside(targets[0]))
    if marks in targets:
        raise ConfigurationError(f"table {marks} cannot be both a target and the watermark table")
    if compactor not in COMPACTORS:
        raise ConfigurationError(f"compactor={compactor!r}: expected one of {', '.join(COMPACTORS)}")
    return HiveSink(
        metastore,
        name,
        actions,
        marks,
        create_partitions,
        user,
        lock_timeout_seconds,
        progress,
        Attempts.of(attempts),
        compactor,
    )
