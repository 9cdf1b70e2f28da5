"""ingest: apply a change source to its target tables and write the watermarks, in one transaction.

The steps of a run:

* Begin the transaction. It takes the write lock on the watermarks, so a second run of the source waits here.
* Read the watermarks, and the source from there on.
* Reduce each table's operations to the last one of each key, and merge them.
* Add all operations to the histories and the tables of changes that follow the same table of the source.
* Write the watermarks, and commit.

After a crash at any step the tables and the watermarks are both old or both new. The next run continues from
there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metastore_client.client import MetastoreClient
from mutation_api.cdc.added_columns import with_columns_added
from mutation_api.cdc.choice import engine_for
from mutation_api.cdc.engine import AnySource, Engine, Reading, ReducedTable, TableLog
from mutation_api.cdc.ingest_report import (
    AppliedTable,
    Contradictions,
    IngestedChanges,
    IngestedHistory,
    IngestedTable,
    IngestReport,
    LogCounts,
    changed_rows,
    contradictions_with_table,
    log_contradicts_table,
    read_watermarks,
)
from mutation_api.cdc.kept_changes import KeptChanges
from mutation_api.cdc.mappings import AnyMapping, FollowedTable, emptied_error, followed_tables
from mutation_api.cdc.source import Position, SourceTable
from mutation_api.cdc.watermark import Watermarks, watermark_now
from mutation_api.errors import ConfigurationError, SourcePositionError
from mutation_api.merge.merge_report import MergeReport
from mutation_api.read.table_view import open_table, table_bytes
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.transaction.catalog import normal_full_name, split_full_name
from mutation_api.transaction.listener import LockFailureListener, SaidByTheNextStep
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.alter_acid_table import SchemaMode, check_mode
from mutation_api.upkeep.watermark_table import (
    ensure_watermark_table,
    watermark_table_beside,
    watermark_table_exists,
)
from mutation_api.write.local_plan import LocalOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """The options of :func:`ingest`. See there for those that are not explained here.

    ``changed_rows_advice`` is for sources that read inserted rows again, and assert that rows never change.
    With it, an insert of an equal row is not a contradiction, and the error for a changed row ends with this
    advice. If None, the source returns each operation once. ``known_watermarks``: watermarks that the caller
    has already read.
    """

    changed_rows_advice: str | None = None
    watermark_table: str | None = None
    known_watermarks: Watermarks | None = None
    dry_run: bool = False
    strict: bool = False
    create_partitions: bool = False
    schema: SchemaMode = "exact"
    user: str | None = None
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT
    lock_failure_listener: LockFailureListener | None = None
    progress: Callable[[str], None] = lambda line: None


def ingest(
    metastore: MetastoreClient,
    mappings: Sequence[AnyMapping],
    source: AnySource,
    *,
    spark: SparkSession | None = None,
    local: LocalOptions | None = None,
    watermark_table: str | None = None,
    dry_run: bool = False,
    strict: bool = False,
    create_partitions: bool = False,
    schema: SchemaMode = "exact",
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    lock_failure_listener: LockFailureListener | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> IngestReport:
    """Bring tables up to the end of a change source.

    Operations that were applied before are not applied again. A log may be read again nevertheless, because
    its watermarks were deleted or its beginning overlaps with a first full copy. The resulting rows are then
    the same.

    The work is done by Spark, or by this process alone, with the same result. If neither ``spark`` nor
    ``local`` is given, the active session of this thread is used. Without an active session, this process
    does the work if it can read the source.

    Args:
        metastore: the metastore of the tables; stays open.
        mappings: the target tables and the source tables that they follow. Each target occurs once. A
            ``TableMapping`` keeps the rows of a source table, a ``HistoryMapping`` their versions, and a
            ``ChangesMapping`` all changes. Mappings of one source table move together.
        source: the log.
        spark: the session that does the work.
        local: the memory and threads to use if this process does the work, without Spark. The new operations
            must fit into half of the memory.
        watermark_table: the watermark table, ``database.table``; created if it does not exist. If None,
            ``mutation_watermarks`` in the database of the targets, which must then be the same for all. Runs
            that share the table wait for each other; to avoid that, give each source its own table.
        dry_run: report what the run would do, and write nothing. The lock is taken nevertheless.
        strict: refuse operations that cannot follow one another, or that contradict the rows of the table.
            If False, they are counted. Use it only if the log goes back to the creation of the table.
        create_partitions: create missing partitions. If False, they are refused.
        schema: ``"add"`` to add columns that the source has and a table lacks before the transaction begins,
            as ``alter_acid_table`` does; they are NULL in older rows. A MySqlSource describes its columns,
            and so do messages of Debezium with schemas. ``"exact"`` refuses such columns.
        user: the user name for the metastore. If None, the default user.
        lock_timeout_seconds: how long to wait for another run, or for another writer of the tables.
        lock_failure_listener: called if the transaction is lost while it runs.
        progress: called with one line for each step.

    Raises:
        ConfigurationError: If the tables are invalid, there is no session, this process cannot read the
            source, the operations need more memory than is allowed, or the source does not give the times
            that a history needs.
        LockNotAcquiredError: If another run or writer did not end in time. The message names it.
        SourcePositionError: If the source does not have what follows the watermark, or its log ends
            before the watermark.
        ContradictionError: If operations contradict each other or the table, and ``strict`` is set. Also if
            two operations on one key have the same position.
        StoppedAtStatementError: If the log has a statement that changes a table without logging rows.
            Everything before it was applied and committed; see the error's ``report``.
        InputFormatError, RecordLayoutError, RecordValueError: See :class:`ChangeSource` and ``merge_into``.
        Others: See :meth:`Transaction.begin` and :meth:`Transaction.commit`. Nothing was applied then.
    """
    options = IngestOptions(
        watermark_table=watermark_table,
        dry_run=dry_run,
        strict=strict,
        create_partitions=create_partitions,
        schema=schema,
        user=user,
        lock_timeout_seconds=lock_timeout_seconds,
        lock_failure_listener=lock_failure_listener,
        progress=progress,
    )
    return ingest_by(engine_for(source, spark, local), metastore, mappings, source, options)


def ingest_by(
    engine: Engine,
    metastore: MetastoreClient,
    mappings: Sequence[AnyMapping],
    source: AnySource,
    options: IngestOptions,
) -> IngestReport:
    """Run :func:`ingest` with an engine that has been checked to read the source. See there for errors."""
    followed = followed_tables(mappings)
    check_mode(options.schema, f"source {source.source_id}")
    run = _Run(engine, source, followed, _watermark_table(followed, options.watermark_table), options)
    if options.schema == "add":
        source = with_columns_added(
            metastore,
            followed,
            source,
            _positions(run, read_watermarks(metastore, run.watermark_table)),
            dry_run=options.dry_run,
            user=options.user,
            lock_timeout_seconds=options.lock_timeout_seconds,
            progress=options.progress,
        )
        run = dataclasses.replace(run, source=source)
    has_watermarks = not options.dry_run or watermark_table_exists(metastore, run.watermark_table)
    if not options.dry_run:
        ensure_watermark_table(metastore, run.watermark_table)
    builder = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(options.lock_timeout_seconds)
    for each in run.targets:
        builder.add_sink_table(each.target, create_partitions=options.create_partitions)
    if has_watermarks:
        builder.add_sink_table(run.watermark_table)
    if options.user is not None:
        builder.user(options.user)
    builder.lock_failure_listener(options.lock_failure_listener or SaidByTheNextStep())
    with builder.build() as client:
        report = _in_transaction(run, client, has_watermarks=has_watermarks)
    report.check_stop()
    return report


@dataclass(frozen=True)
class _Run:
    """The checked arguments of one call of :func:`ingest_by`."""

    engine: Engine
    source: AnySource
    followed: tuple[FollowedTable, ...]
    watermark_table: str
    options: IngestOptions

    @property
    def targets(self) -> list[AnyMapping]:
        """The mappings of all targets."""
        return [mapping for table in self.followed for mapping in table.mappings]

    def progress(self, line: str) -> None:
        """Report a step to the caller's function."""
        self.options.progress(line)

    def log_of(self, table: SourceTable) -> str:
        """Return the name of a table's log, for messages."""
        return f"source {self.source.source_id}, table {table.name}: its log"


def _in_transaction(run: _Run, client: MutatorClient, *, has_watermarks: bool) -> IngestReport:
    source_id, dry_run = run.source.source_id, run.options.dry_run
    run.progress(f"{source_id}: waiting for the lock on {', '.join(m.target for m in run.targets)}")
    with client.new_transaction() as transaction:
        known = run.options.known_watermarks
        marks = Watermarks.read(transaction, run.watermark_table, known=known) if has_watermarks else None
        tables = {each.target: transaction.table(each.target) for each in run.targets}
        sources = [each.source_table(tables) for each in run.followed]
        after = _positions(run, marks)
        run.progress(f"{source_id}: reading, in transaction {transaction.txn_id}")
        reading = run.engine.read(run.source, sources, after, functools.partial(_target_bytes, transaction))
        stop = reading.stop
        if reading.position is None:
            transaction.abort()
            return IngestReport(
                source_id, dry_run, None, after, None, (), reading.engine, stop, reading.warnings
            )
        positions = dict.fromkeys((each.name for each in run.followed), reading.position)
        if stop is not None:
            positions = dict(stop.positions)
        new = [
            watermark_now(
                source_id, each.source_table, each.target, positions[each.source_table], transaction.txn_id
            )
            for each in run.targets
            if each.source_table in positions
        ]
        if marks is not None:
            marks.check_forward([mark for mark in new if mark.source_table not in reading.set_back])
        found = tuple(_applied(run, transaction, reading))
        if dry_run:
            transaction.abort()
        elif marks is not None:
            marks.write(transaction, new, set_back=reading.set_back)
            run.progress(f"{source_id}: committing transaction {transaction.txn_id}")
        txn_id = None if dry_run else transaction.txn_id
    return IngestReport(
        source_id,
        dry_run,
        txn_id,
        after,
        reading.position,
        tuple(each for each in found if isinstance(each, IngestedTable)),
        reading.engine,
        stop,
        reading.warnings,
        tuple(each for each in found if isinstance(each, IngestedHistory)),
        tuple(each for each in found if isinstance(each, IngestedChanges)),
    )


def _target_bytes(transaction: Transaction, table: SourceTable) -> int:
    return table_bytes(open_table(transaction, table.target.full_name))


def _applied(run: _Run, transaction: Transaction, reading: Reading) -> Iterator[AppliedTable]:
    """Reduce the operations of all tables, then apply them target by target.

    A log that contradicts itself, or has no times for a history, is therefore refused before anything is
    written.
    """
    followed = {each.name: each for each in run.followed}
    with ExitStack() as stack:
        logs = [(each, stack.enter_context(_reduced(run, each, followed))) for each in reading.tables]
        kept = {log.table.name: _kept(run, transaction, log, followed) for log, _ in logs}
        for log, reduced in logs:
            if followed[log.table.name].rows is not None:
                yield _merged(run, transaction, log, reduced)
            for each in kept[log.table.name]:
                yield _added(run, transaction, log, each, reduced.counts)


def _kept(
    run: _Run, transaction: Transaction, log: TableLog, followed: Mapping[str, FollowedTable]
) -> list[KeptChanges]:
    """Return how operations become rows of histories and of tables of changes, after checking them.

    Raises InputFormatError if the source emptied the table, ConfigurationError if it does not give times.
    """
    table = followed[log.table.name]
    if table.kept and log.is_emptied:
        raise emptied_error(run.log_of(log.table), table)
    return [
        KeptChanges.of(
            run.source.source_id, each, transaction.table(each.target), log.table.key, log.column_names
        )
        for each in table.kept
    ]


def _added(
    run: _Run, transaction: Transaction, log: TableLog, kept: KeptChanges, counts: LogCounts
) -> IngestedHistory | IngestedChanges:
    dry_run = run.options.dry_run
    if kept.rules is not None:
        history = log.add_history(transaction, kept, kept.rules, dry_run=dry_run)
        run.progress(str(history))
        return IngestedHistory(log.table.name, counts.operation_count, history)
    changes = log.add_changes(transaction, kept, dry_run=dry_run)
    run.progress(str(changes).partition("\n")[0])
    return IngestedChanges(log.table.name, counts.operation_count, changes)


@contextmanager
def _reduced(run: _Run, log: TableLog, followed: Mapping[str, FollowedTable]) -> Iterator[ReducedTable]:
    table = log.table
    name = table.target.full_name
    if not table.key:
        raise ConfigurationError(
            f"table {name}: the key of source table {table.name} is not known: source "
            f"{run.source.source_id} does not define it. Name the key columns"
        )
    is_kept = bool(followed[table.name].kept)
    with log.reduced(what=run.log_of(table), strict=run.options.strict, is_kept=is_kept) as reduced:
        emptied = "emptied, then " if log.is_emptied else ""
        counts = reduced.counts
        run.progress(f"{name}: {emptied}{counts.operation_count:,} operations on {counts.key_count:,} keys")
        yield reduced


def _merged(run: _Run, transaction: Transaction, log: TableLog, reduced: ReducedTable) -> IngestedTable:
    table, counts = log.table, reduced.counts

    def refuse_contradictions(report: MergeReport) -> None:
        found = _contradictions(run, log, counts, report)
        if not (run.options.strict and found.total):
            return
        what, target, advice = run.log_of(table), table.target.full_name, run.options.changed_rows_advice
        if advice is not None:
            raise changed_rows(what, target, found.total, reduced.changed(transaction), advice)
        raise log_contradicts_table(what, target, found, reduced.contradicting(transaction))

    if not (counts.key_count or log.is_emptied):
        report = MergeReport.of(table.target.full_name, (), is_dry_run=run.options.dry_run)
    elif run.options.dry_run:
        report = reduced.dry_run(transaction)
        refuse_contradictions(report)
    else:
        report = reduced.merge(transaction, refuse_contradictions)
    run.progress(str(report).partition("\n")[0])
    with_table = _contradictions(run, log, counts, report)
    return IngestedTable(
        table.name,
        counts.operation_count,
        counts.key_count,
        counts.contradictions + with_table,
        report,
        log.is_emptied,
    )


def _contradictions(run: _Run, log: TableLog, counts: LogCounts, report: MergeReport) -> Contradictions:
    reads_again = run.options.changed_rows_advice is not None
    return contradictions_with_table(counts, report, is_emptied=log.is_emptied, reads_again=reads_again)


def _watermark_table(followed: Sequence[FollowedTable], given: str | None) -> str:
    targets = [each.target for table in followed for each in table.mappings]
    databases = sorted({split_full_name(each)[0] for each in targets})
    default = watermark_table_beside(min(targets))
    if given is None and len(databases) > 1:
        raise ConfigurationError(
            f"the targets are in several databases ({', '.join(databases)}): name the watermark table, "
            f"such as {default}, and use the same one in each run"
        )
    name = normal_full_name(given or default)
    if name in targets:
        raise ConfigurationError(f"table {name} cannot be both a target and the watermark table")
    return name


def _positions(run: _Run, marks: Watermarks | None) -> Mapping[str, Position]:
    """Return the position that each table of the source was applied to, if it was.

    Raises SourcePositionError if the targets of one table have different positions.
    """
    found = {}
    for table in run.followed:
        known = [
            (each.target, None if marks is None else marks.get(run.source.source_id, table.name, each.target))
            for each in table.mappings
        ]
        first = known[0][1]
        for target, mark in known:
            if (None if mark is None else mark.order) != (None if first is None else first.order):
                shown = [f"{name}: {'nothing' if m is None else m.shown}" for name, m in known]
                raise SourcePositionError(
                    f"source {run.source.source_id}, table {table.name}: its targets have different "
                    f"watermarks ({'; '.join(shown)}), so they cannot move together. Nothing was written. "
                    f"Follow {target} in runs of its own, with another watermark table; or follow all of "
                    "them from the beginning, under another name of the source"
                )
        if first is not None:
            found[table.name] = Position(first.order, first.text)
    return found
