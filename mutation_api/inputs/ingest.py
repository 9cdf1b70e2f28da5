"""ingest: apply a change source to the tables that follow it, and write the watermarks, in one transaction.

The steps: begin, which takes the write lock of the watermarks, so a second run of the source waits here; read
the watermarks; read the source from there on; reduce each table's operations to the last of each key; merge
them; write the watermarks; commit. After a crash at any step the tables and the watermarks are both old or
both new. The next run continues from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from metastore_client.client import MetastoreClient
from mutation_api.changes.merge_report import MergeReport
from mutation_api.changes.spark_merge.merge import MergeInto, merge_into
from mutation_api.client.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.client.listener import LockFailureListener
from mutation_api.client.mutator_client import MutatorClient
from mutation_api.client.tables.catalog import split_full_name
from mutation_api.client.transaction import Transaction
from mutation_api.errors import ConfigurationError, ContradictionError, RecordLayoutError
from mutation_api.inputs.ingest_report import IngestedTable, IngestReport
from mutation_api.inputs.log_walk import DELETE, FIRST_OPERATION, FIRST_POSITION, INSERT, UPDATE
from mutation_api.inputs.reduce import SAMPLES_SHOWN, Contradictions, ReducedLog, reduced_log
from mutation_api.inputs.source import (
    OPERATION,
    POSITION,
    Batch,
    ChangeSource,
    Position,
    SourceTable,
    TableOperations,
)
from mutation_api.inputs.watermark import (
    Watermark,
    Watermarks,
    ensure_watermark_table,
    watermark_table_beside,
    watermark_table_exists,
)
from mutation_api.spark.active_session import given_or_active
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.read.snapshot_frame import snapshot
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.table.acid_table import AcidTable

__all__ = ["Following", "ingest"]


@dataclass(frozen=True)
class Following:
    """A table that follows a table of a source.

    ``source_table`` is the source's name for it, ``target`` is ``database.table``. ``key``: columns that
    identify a row of the target; empty if the source names them.
    """

    source_table: str
    target: str
    key: tuple[str, ...] = ()


def ingest(
    metastore: MetastoreClient,
    tables: Sequence[Following],
    source: ChangeSource,
    *,
    spark: SparkSession | None = None,
    watermark_table: str | None = None,
    dry_run: bool = False,
    strict: bool = False,
    create_partitions: bool = False,
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    listener: LockFailureListener | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> IngestReport:
    """Bring tables up to the end of a change source.

    Operations that were applied before are not applied again. If a log is read again nevertheless, because
    its watermarks were deleted or its beginning overlaps with a first full copy, the resulting rows are the
    same.

    Args:
        metastore: where the tables are; stays open.
        tables: the pairs of source table and target; each table occurs once.
        source: the log.
        spark: the session; default: the active one of this thread.
        watermark_table: ``database.table``; created on demand. By default ``mutation_watermarks`` in the
            database of the targets, which must then be the same for all. Runs that share the table wait for
            each other; give each source its own table to avoid that.
        dry_run: report what would be done and write nothing; the lock is taken nevertheless.
        strict: refuse operations that cannot follow one another, or that contradict the rows of the table;
            otherwise they are counted. Use it only if the log begins with the table.
        create_partitions: whether missing partitions are created; otherwise they are refused.
        user: the user name for the metastore.
        lock_timeout_seconds: how long to wait for another run, or another writer of the tables.
        listener: is called when the transaction is lost while it runs.
        progress: is called with a line of text for each step.

    Raises:
        ConfigurationError: the tables make no sense, or there is no session.
        LockNotAcquiredError: another run, or writer, did not end in time; the message names it.
        SourcePositionError: the source does not have what follows the watermark, or lies before it.
        ContradictionError: operations contradict, and ``strict`` is set; or two operations on one key
            have the same position.
        InputFormatError, RecordLayoutError, RecordValueError: see :class:`ChangeSource` and ``merge_into``.
        Others: as :meth:`Transaction.begin` and :meth:`Transaction.commit`. Nothing was applied then.
    """
    followed = _checked(tables)
    run = _Run(
        given_or_active(spark),
        source,
        followed,
        _watermark_table(followed, watermark_table),
        strict,
        progress,
    )
    has_watermarks = not dry_run or watermark_table_exists(metastore, run.watermark_table)
    if not dry_run:
        ensure_watermark_table(metastore, run.watermark_table)
    builder = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(lock_timeout_seconds)
    for each in run.tables:
        builder.add_sink_table(each.target, create_partitions=create_partitions)
    if has_watermarks:
        builder.add_sink_table(run.watermark_table)
    if user is not None:
        builder.user(user)
    if listener is not None:
        builder.lock_failure_listener(listener)
    with builder.build() as client:
        return _in_transaction(run, client, has_watermarks=has_watermarks, dry_run=dry_run)


@dataclass(frozen=True)
class _Run:
    """The arguments of one call of :func:`ingest`, checked."""

    spark: SparkSession
    source: ChangeSource
    tables: tuple[Following, ...]
    watermark_table: str
    strict: bool
    progress: Callable[[str], None]


@dataclass(frozen=True)
class _Reduced:
    """A table's operations, reduced; ``is_emptied`` as of :class:`TableOperations`."""

    table: SourceTable
    log: ReducedLog
    is_emptied: bool


def _in_transaction(run: _Run, client: MutatorClient, *, has_watermarks: bool, dry_run: bool) -> IngestReport:
    run.progress(f"{run.source.source_id}: waiting for the lock on {', '.join(t.target for t in run.tables)}")
    with client.new_transaction() as transaction:
        marks = Watermarks.read(transaction, run.watermark_table) if has_watermarks else None
        sources = [
            SourceTable(each.source_table, transaction.table(each.target), each.key) for each in run.tables
        ]
        for each in sources:
            _check_names(each.target)
        after = _positions(run, marks)
        run.progress(f"{run.source.source_id}: reading, in transaction {transaction.id}")
        batch = run.source.read(run.spark, sources, after)
        if batch.position is None:
            transaction.abort()
            return IngestReport(run.source.source_id, dry_run, None, after, None, ())
        new = [_watermark(run, transaction, each, batch.position) for each in run.tables]
        if marks is not None:
            marks.check_forward(new)
        found = _applied(run, transaction, batch, dry_run=dry_run)
        if dry_run:
            transaction.abort()
        elif marks is not None:
            marks.write(transaction, new)
            run.progress(f"{run.source.source_id}: committing transaction {transaction.id}")
        txn_id = None if dry_run else transaction.id
    return IngestReport(run.source.source_id, dry_run, txn_id, after, batch.position, found)


def _applied(
    run: _Run, transaction: Transaction, batch: Batch, *, dry_run: bool
) -> tuple[IngestedTable, ...]:
    """Reduce the operations of all tables, so that a log that contradicts itself is refused before anything
    is written, then merge them one by one.
    """
    with ExitStack() as stack:
        logs = [stack.enter_context(_reduced(run, each)) for each in batch.tables]
        return tuple(_merged(run, transaction, each, dry_run=dry_run) for each in logs)


@contextmanager
def _reduced(run: _Run, given: TableOperations) -> Iterator[_Reduced]:
    table = given.table
    name = table.target.full_name
    if not table.key:
        raise ConfigurationError(
            f"table {name}: neither you nor source {run.source.source_id} says which columns are the key of "
            f"{table.name}: name them"
        )
    _check_columns(table.target, given.operations)
    what = f"source {run.source.source_id}, table {table.name}: its log"
    log = reduced_log(
        given.operations, table.key, POSITION, operation_column=OPERATION, strict=run.strict, what=what
    )
    with log as reduced:
        emptied = "emptied, then " if given.is_emptied else ""
        run.progress(f"{name}: {emptied}{reduced.operation_count:,} operations on {reduced.key_count:,} keys")
        yield _Reduced(table, reduced, given.is_emptied)


def _merged(run: _Run, transaction: Transaction, given: _Reduced, *, dry_run: bool) -> IngestedTable:
    def refuse_contradictions(report: MergeReport) -> None:
        found = _contradictions_with_table(given, report)
        if run.strict and found.total:
            raise _table_contradicts(run, transaction, given, found)

    merge = _merge(transaction, given)
    if not (given.log.key_count or given.is_emptied):
        report = MergeReport.of(given.table.target.full_name, (), is_dry_run=dry_run)
    elif dry_run:
        report = merge.dry_run(samples=0)
        refuse_contradictions(report)
    else:
        report = merge.merge(before_writing=refuse_contradictions)
    run.progress(str(report).partition("\n")[0])
    return IngestedTable(
        given.table.name,
        given.log.operation_count,
        given.log.key_count,
        given.log.contradictions + _contradictions_with_table(given, report),
        report,
        given.is_emptied,
    )


def _merge(transaction: Transaction, given: _Reduced) -> MergeInto:
    merge = merge_into(
        transaction,
        given.table.target.full_name,
        source=given.log.rows.drop(FIRST_POSITION),
        on=given.table.key,
        missing_columns="error",
        count_by=FIRST_OPERATION,
    )
    is_delete = f"{quoted('source', OPERATION)} = '{DELETE}'"
    merge.whenMatched(is_delete).delete()
    merge.whenMatched().updateAll()
    merge.whenNotMatched(f"NOT ({is_delete})").insertAll()
    if given.is_emptied:
        merge.whenNotMatchedBySource().delete()
    return merge


def _contradictions_with_table(given: _Reduced, report: MergeReport) -> Contradictions:
    """First operations that contradict the rows of the table, derived from the counts of the merge.

    A key whose last operation is a delete, and which the table does not have, is not in the report. A table
    that was emptied has no rows, whatever rows the merge read.
    """
    log = given.log
    if given.is_emptied:
        first = Counter[str]()
        for (operation, _), keys in log.outcomes.items():
            first[operation] += keys
        return Contradictions(0, first[UPDATE], first[DELETE])

    def absent(first: str) -> int:
        counts = report.counts_by.get(first)
        inserted, deleted = (counts.inserted, counts.deleted) if counts else (0, 0)
        return inserted + max(0, log.outcomes.get((first, DELETE), 0) - deleted)

    inserts = report.counts_by.get(INSERT)
    present = 0
    if inserts is not None:
        present = inserts.updated + inserts.moved + inserts.unchanged + inserts.deleted
    return Contradictions(present, absent(UPDATE), absent(DELETE))


def _table_contradicts(
    run: _Run, transaction: Transaction, given: _Reduced, found: Contradictions
) -> ContradictionError:
    """The error, with some of the keys; they are looked up again, since a refusal may take longer."""
    key = given.table.key
    name = given.table.target.full_name
    with translated_worker_errors(f"looking for contradictions with table {name}"):
        present = snapshot(transaction, name, columns=key, spark=run.spark).select(
            *[sf.col(quoted(k)).alias(f"__{k}") for k in key], sf.lit(True).alias("__is_present")
        )
        if given.is_emptied:
            present = present.limit(0)
        same = [sf.col(quoted(k)) == sf.col(quoted(f"__{k}")) for k in key]
        is_insert = sf.col(FIRST_OPERATION) == INSERT
        wrong = given.log.rows.join(present, same, "left").where(
            is_insert == sf.coalesce("__is_present", sf.lit(False))
        )
        shown = wrong.select(
            FIRST_OPERATION,
            sf.to_json(sf.struct(*[sf.col(quoted(k)).alias(k) for k in key])).alias("key"),
            sf.to_json(FIRST_POSITION).alias("order"),
        )
        rows = shown.orderBy("order", "key").limit(SAMPLES_SHOWN).collect()
    samples = [f"{row[FIRST_OPERATION]} of key {row['key']} at {row['order']}" for row in rows]
    more = ", …" if found.total > len(samples) else ""
    return ContradictionError(
        f"source {run.source.source_id}, table {given.table.name}: its log contradicts the rows of {name}: "
        f"{found}: {'; '.join(samples)}{more}. Nothing was written. Was part of the log applied before, or "
        "does the log not begin with this table? If the rows are right, run without strict"
    )


def _check_names(table: AcidTable) -> None:
    taken = sorted({*table.column_names, *table.partition_key_names} & {OPERATION, POSITION})
    if taken:
        raise RecordLayoutError(
            f"table {table.full_name} cannot follow a source: it has a column {taken[0]!r}, a name that "
            "operations need; rename the column"
        )


def _check_columns(table: AcidTable, operations: DataFrame) -> None:
    found = {name.lower() for name in operations.columns}
    missing = sorted({OPERATION, POSITION} - found)
    if missing:
        raise RecordLayoutError(
            f"table {table.full_name}: its operations lack the columns {', '.join(missing)}; found "
            f"{', '.join(operations.columns)}"
        )


def _checked(tables: Sequence[Following]) -> tuple[Following, ...]:
    if not tables:
        raise ConfigurationError("name at least one table to follow")
    checked = tuple(
        Following(t.source_table, ".".join(split_full_name(t.target)), tuple(k.lower() for k in t.key))
        for t in tables
    )
    for names in ([t.source_table for t in checked], [t.target for t in checked]):
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ConfigurationError(
                f"table {doubled[0]} is named twice: in a run one target follows one table of the source"
            )
    return checked


def _watermark_table(tables: Sequence[Following], given: str | None) -> str:
    databases = sorted({split_full_name(each.target)[0] for each in tables})
    default = watermark_table_beside(min(each.target for each in tables))
    if given is None and len(databases) > 1:
        raise ConfigurationError(
            f"the targets are in several databases ({', '.join(databases)}): name the table for the "
            f"watermarks, such as {default}, and name the same one in each run"
        )
    name = ".".join(split_full_name(given or default))
    if name in {each.target for each in tables}:
        raise ConfigurationError(f"table {name} cannot be both a target and the table of watermarks")
    return name


def _positions(run: _Run, marks: Watermarks | None) -> Mapping[str, Position]:
    if marks is None:
        return {}
    found = {t.source_table: marks.get(run.source.source_id, t.source_table, t.target) for t in run.tables}
    return {name: Position(mark.order, mark.text) for name, mark in found.items() if mark is not None}


def _watermark(run: _Run, transaction: Transaction, table: Following, position: Position) -> Watermark:
    return Watermark(
        run.source.source_id,
        table.source_table,
        table.target,
        position.order,
        position.text,
        transaction.id,
        datetime.now(UTC).replace(tzinfo=None),
    )
