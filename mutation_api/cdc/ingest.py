"""ingest: apply a change source to its target tables and write the watermarks, in one transaction.

The steps of a run:

* Begin the transaction. It takes the write lock on the watermarks, so a second run of the source waits here.
* Read the watermarks, and the source from there on.
* Reduce each table's operations to the last one of each key, and merge them.
* Write the watermarks, and commit.

After a crash at any step the tables and the watermarks are both old or both new. The next run continues from
there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from metastore_client.client import MetastoreClient
from mutation_api.cdc.choice import engine_for
from mutation_api.cdc.engine import AnySource, Engine, Reading, ReducedTable, TableLog
from mutation_api.cdc.ingest_report import (
    Contradictions,
    IngestedTable,
    IngestReport,
    LogCounts,
    changed_rows,
    contradictions_with_table,
    log_contradicts_table,
)
from mutation_api.cdc.source import OPERATION, POSITION, DescribedSource, Position, SourceTable
from mutation_api.cdc.watermark import Watermark, Watermarks
from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.plain_array import repeated
from mutation_api.merge.merge_report import MergeReport
from mutation_api.read.table_view import open_table, table_bytes
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.transaction.catalog import Catalog, TableSpec, normal_full_name, split_full_name
from mutation_api.transaction.listener import LockFailureListener, SaidByTheNextStep
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.alter_acid_table import SchemaMode, alter_acid_table, check_mode
from mutation_api.upkeep.watermark_table import (
    ensure_watermark_table,
    watermark_table_beside,
    watermark_table_exists,
)
from mutation_api.write.local_plan import LocalOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["IngestOptions", "TableMapping", "ingest", "ingest_by"]


@dataclass(frozen=True)
class TableMapping:
    """A target table and the source table that it follows.

    ``source_table`` is the source's name for its table, ``target`` is ``database.table``. ``key`` lists the
    columns that identify a row of the target; it is empty if the source defines the key.
    """

    source_table: str
    target: str
    key: tuple[str, ...] = ()


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
    mappings: Sequence[TableMapping],
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
        mappings: the target tables and the source tables that they follow. Each table occurs once.
        source: the log.
        spark: the session that does the work.
        local: the memory and threads to use if this process does the work, without Spark. The new operations
            must fit into half of the memory.
        watermark_table: the table of watermarks, ``database.table``; created if it does not exist. If None,
            ``mutation_watermarks`` in the database of the targets, which must then be the same for all. Runs
            that share the table wait for each other; to avoid that, give each source its own table.
        dry_run: report what the run would do, and write nothing. The lock is taken nevertheless.
        strict: refuse operations that cannot follow one another, or that contradict the rows of the table.
            If False, they are counted. Use it only if the log goes back to the creation of the table.
        create_partitions: create missing partitions. If False, they are refused.
        schema: ``"add"`` to add columns that the source has and a table lacks before the transaction begins,
            as ``alter_acid_table`` does; they are NULL in older rows. Only a MySqlSource knows its columns
            in advance. ``"exact"`` refuses such columns.
        user: the user name for the metastore. If None, the default user.
        lock_timeout_seconds: how long to wait for another run, or for another writer of the tables.
        lock_failure_listener: called if the transaction is lost while it runs.
        progress: called with one line for each step.

    Raises:
        ConfigurationError: If the tables are invalid, there is no session, this process cannot read the
            source, or the operations need more memory than is allowed.
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
    mappings: Sequence[TableMapping],
    source: AnySource,
    options: IngestOptions,
) -> IngestReport:
    """Run :func:`ingest` with an engine that has been checked to read the source. See there for errors."""
    followed = _checked(mappings)
    check_mode(options.schema, f"source {source.source_id}")
    if options.schema == "add":
        source = _with_columns_added(metastore, followed, source, options)
    run = _Run(engine, source, followed, _watermark_table(followed, options.watermark_table), options)
    has_watermarks = not options.dry_run or watermark_table_exists(metastore, run.watermark_table)
    if not options.dry_run:
        ensure_watermark_table(metastore, run.watermark_table)
    builder = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(options.lock_timeout_seconds)
    for each in run.mappings:
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


def _with_columns_added(
    metastore: MetastoreClient, mappings: Sequence[TableMapping], source: AnySource, options: IngestOptions
) -> AnySource:
    """Add the source's new columns to the tables. In a dry run, return the source without these columns."""
    if not isinstance(source, DescribedSource):
        raise ConfigurationError(
            f"source {source.source_id}: schema='add' needs a source that knows its columns before it is "
            "read, such as a MySqlSource. Add columns with hive-mutate alter-table"
        )
    catalog = Catalog(metastore)
    tables = [
        SourceTable(
            each.source_table,
            catalog.read(TableSpec(*split_full_name(each.target), TableRole.SINK)).table,
            each.key,
        )
        for each in mappings
    ]
    found = source.new_columns(tables)
    for table in tables:
        altered = alter_acid_table(
            metastore,
            table.target.full_name,
            add=dict(found.get(table.name, {})),
            missing_only=True,
            dry_run=options.dry_run,
            user=options.user,
            lock_timeout_seconds=options.lock_timeout_seconds,
        )
        if altered.is_changed:
            options.progress(str(altered))
    new = [f"{name}.{column}" for name, columns in found.items() for column in columns]
    return source.leaving_out(new) if options.dry_run and new else source


@dataclass(frozen=True)
class _Run:
    """The checked arguments of one call of :func:`ingest_by`."""

    engine: Engine
    source: AnySource
    mappings: tuple[TableMapping, ...]
    watermark_table: str
    options: IngestOptions

    def progress(self, line: str) -> None:
        """Report a step to the caller's function."""
        self.options.progress(line)

    def log_of(self, table: SourceTable) -> str:
        """Return the name of a table's log, for messages."""
        return f"source {self.source.source_id}, table {table.name}: its log"


def _in_transaction(run: _Run, client: MutatorClient, *, has_watermarks: bool) -> IngestReport:
    source_id, dry_run = run.source.source_id, run.options.dry_run
    run.progress(f"{source_id}: waiting for the lock on {', '.join(m.target for m in run.mappings)}")
    with client.new_transaction() as transaction:
        known = run.options.known_watermarks
        marks = Watermarks.read(transaction, run.watermark_table, known=known) if has_watermarks else None
        sources = [
            SourceTable(each.source_table, transaction.table(each.target), each.key) for each in run.mappings
        ]
        for each in sources:
            _check_names(each.target)
        after = _positions(run, marks)
        run.progress(f"{source_id}: reading, in transaction {transaction.txn_id}")
        reading = run.engine.read(run.source, sources, after, functools.partial(_target_bytes, transaction))
        stop = reading.stop
        if reading.position is None:
            transaction.abort()
            return IngestReport(
                source_id, dry_run, None, after, None, (), reading.engine, stop, reading.warnings
            )
        positions = dict.fromkeys((each.source_table for each in run.mappings), reading.position)
        if stop is not None:
            positions = dict(stop.positions)
        new = [
            _watermark(run, transaction, each, positions[each.source_table])
            for each in run.mappings
            if each.source_table in positions
        ]
        if marks is not None:
            marks.check_forward([mark for mark in new if mark.source_table not in reading.set_back])
        found = _applied(run, transaction, reading)
        if dry_run:
            transaction.abort()
        elif marks is not None:
            marks.write(transaction, new, set_back=reading.set_back)
            run.progress(f"{source_id}: committing transaction {transaction.txn_id}")
        txn_id = None if dry_run else transaction.txn_id
    return IngestReport(
        source_id, dry_run, txn_id, after, reading.position, found, reading.engine, stop, reading.warnings
    )


def _target_bytes(transaction: Transaction, table: SourceTable) -> int:
    return table_bytes(open_table(transaction, table.target.full_name))


def _applied(run: _Run, transaction: Transaction, reading: Reading) -> tuple[IngestedTable, ...]:
    """Reduce the operations of all tables, then merge them one by one.

    A log that contradicts itself is therefore refused before anything is written.
    """
    with ExitStack() as stack:
        logs = [(each, stack.enter_context(_reduced(run, each))) for each in reading.tables]
        return tuple(_merged(run, transaction, log, reduced) for log, reduced in logs)


@contextmanager
def _reduced(run: _Run, log: TableLog) -> Iterator[ReducedTable]:
    table = log.table
    name = table.target.full_name
    if not table.key:
        raise ConfigurationError(
            f"table {name}: the key of source table {table.name} is not known: source "
            f"{run.source.source_id} does not define it. Name the key columns"
        )
    with log.reduced(what=run.log_of(table), strict=run.options.strict) as reduced:
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


def _check_names(table: AcidTable) -> None:
    taken = sorted({*table.column_names, *table.partition_key_names} & {OPERATION, POSITION})
    if taken:
        raise RecordLayoutError(
            f"table {table.full_name} cannot be an ingest target: the column name {taken[0]!r} is reserved; "
            "rename the column"
        )


def _checked(mappings: Sequence[TableMapping]) -> tuple[TableMapping, ...]:
    if not mappings:
        raise ConfigurationError("no tables to ingest: name at least one target table")
    checked = tuple(
        TableMapping(m.source_table, normal_full_name(m.target), tuple(k.lower() for k in m.key))
        for m in mappings
    )
    for names in ([m.source_table for m in checked], [m.target for m in checked]):
        doubled = repeated(names)
        if doubled:
            raise ConfigurationError(
                f"table {doubled[0]} is listed twice: in a run, each target has one source table"
            )
    return checked


def _watermark_table(mappings: Sequence[TableMapping], given: str | None) -> str:
    databases = sorted({split_full_name(each.target)[0] for each in mappings})
    default = watermark_table_beside(min(each.target for each in mappings))
    if given is None and len(databases) > 1:
        raise ConfigurationError(
            f"the targets are in several databases ({', '.join(databases)}): name the table of watermarks, "
            f"such as {default}, and use the same one in each run"
        )
    name = normal_full_name(given or default)
    if name in {each.target for each in mappings}:
        raise ConfigurationError(f"table {name} cannot be both a target and the table of watermarks")
    return name


def _positions(run: _Run, marks: Watermarks | None) -> Mapping[str, Position]:
    if marks is None:
        return {}
    found = {m.source_table: marks.get(run.source.source_id, m.source_table, m.target) for m in run.mappings}
    return {name: Position(mark.order, mark.text) for name, mark in found.items() if mark is not None}


def _watermark(run: _Run, transaction: Transaction, mapping: TableMapping, position: Position) -> Watermark:
    return Watermark(
        run.source.source_id,
        mapping.source_table,
        mapping.target,
        position.order,
        position.text,
        transaction.txn_id,
        datetime.now(UTC).replace(tzinfo=None),
    )
