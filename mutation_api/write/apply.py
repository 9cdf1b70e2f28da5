"""apply_arrow: write a change set of Arrow batches as staged files of one table, in an open transaction.

The batches are read once. Each is checked, addressed and split by the thread that writes its rows. Once all
have passed the checks, the threads sort and write their shares. Until then, batches that do not fit into
memory wait in temporary files.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mutation_api.errors import (
    DeltaWriteError,
    MutationError,
    TableNotMutableError,
    TransactionStateError,
)
from mutation_api.format.event import DELETE
from mutation_api.orc.write.encoders import give_back
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import PlannedFiles, TableView
from mutation_api.table.acid_table import SORT_MEMORY_BYTES_MAX, AcidTable, WriterOptions
from mutation_api.transaction.manifest import DeltaManifest
from mutation_api.write.address import with_names_once
from mutation_api.write.arrow_input import BATCH_PART, changes_reader, looked_ahead, sized
from mutation_api.write.batch_sorter import BatchSorter
from mutation_api.write.change_set import SMALL_ROWS, ChangeSet, MemoryShare
from mutation_api.write.coordinator import MutatorCoordinator
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.write.local_plan import InsertFiles, LocalOptions, plan_changes
from mutation_api.write.row_id_check import WantedRows
from mutation_api.write.staged_writer import (
    LookingTransaction,
    OpenTransaction,
    check_partitions_exist,
    check_sink,
    raise_if_lost,
    remove_writer,
)
from mutation_api.write.writing_order import (
    Watch,
    WritingOrder,
    in_turn,
    run_all,
    split_by_writer,
    write_batch,
    writing,
)


class SortedChanges:
    """Takes addressed changes in any order, from any thread, and sorts them.

    As a context manager it removes the files with changes that did not fit into memory.

    Args:
        table_name: the table of the changes, for messages.
        shares: number of shares; all changes of a (partition, bucket) are in one share.
        memory_bytes: memory of each share.
    """

    def __init__(self, table_name: str, shares: int, memory_bytes: int) -> None:
        self._sorters = [BatchSorter(table_name, WritingOrder(), memory_bytes) for _ in range(shares)]
        self._mutexes = [threading.Lock() for _ in range(shares)]
        self._row_counts = [0] * shares
        self._files = contextlib.ExitStack()

    def __enter__(self) -> SortedChanges:
        """Return itself."""
        for sorter in self._sorters:
            self._files.enter_context(sorter)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the files."""
        self._files.close()

    @property
    def shares(self) -> list[int]:
        """The numbers of the shares that have changes."""
        return [share for share, count in enumerate(self._row_counts) if count]

    def add(self, addressed: pa.RecordBatch, number: int) -> None:
        """Add the changes of the batch with a number. Inserts keep the order of batches, as far as possible.

        Raises DeltaWriteError if rows cannot be written to a temporary file.
        """
        rows = with_names_once(addressed)
        pieces = split_by_writer(rows, len(self._sorters)) if len(self._sorters) > 1 else [(0, rows)]
        for share, piece in pieces:
            with self._mutexes[share]:
                self._sorters[share].add(piece, number)
                self._row_counts[share] += piece.num_rows

    def in_order(self, share: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a share once, after all of them were added.

        Raises DeltaWriteError like :meth:`add`.
        """
        return self._sorters[share].in_order()


SORTING_PART = 2
"""The fraction of the memory for sorting is 1/SORTING_PART."""
VERIFYING_PART = 4
"""The fraction of the memory that may hold the ROW__IDs to look up is 1/VERIFYING_PART."""


def apply_arrow(
    transaction: OpenTransaction,
    table: str,
    changes: object,
    *,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
    insert_files: int | None = None,
    verify_row_ids: bool = False,
    read_now: bool = False,
    options: WriterOptions | None = None,
    local: LocalOptions | None = None,
) -> ApplySummary:
    """Write inserts, updates and deletes of one table. The commit of the transaction makes them visible.

    ``changes`` has, in any order and case,

    * the operation: 'insert', 'update' or 'delete', in any case;
    * ``ROW__ID``: struct<writeid:bigint, bucketid:int, rowid:bigint> (Hive 2: ``transactionid``), as a scan
      with ``row_ids=True`` reads it, with or without its field ``partition``. For inserts it is ignored and
      may be null, and a change set of inserts may lack the column;
    * the table's columns, including partition columns. An update has the whole new row. A delete needs only
      ROW__ID, and the partition columns if ROW__ID does not have the partition; a change set of deletes may
      lack the other columns.

    A table accepts any number of change sets in a transaction, except on Hive 2, where it accepts only one.
    Each sees the rows that earlier ones have written, and may change them.

    An update stays in its partition and bucket; to move a row, delete and insert it. A row may be changed
    only once. Insert-only tables accept only inserts. Timestamps with a time zone are refused, since Hive's
    have none; ``pyarrow.compute.local_timestamp`` converts them to local timestamps of their zone.

    If this raises an error, nothing is kept for the table, and the transaction is still open: abort it, or
    apply the changes again. All addresses and values are checked before a file is written.

    Args:
        transaction: a transaction that has begun; the table must be one of its sinks.
        table: ``database.table``.
        changes: any object that :func:`~mutation_api.write.arrow_input.arrow_reader` reads; it is read once.
        operation_column: name of the operation column.
        insert_files: for unbucketed tables, the number of files for the inserts of a partition. By default
            one per ROWS_PER_INSERT_FILE inserts, at most one per thread, and in a partitioned table at most
            INSERT_FILES_PER_PARTITION; only one if ``wants_one_writer_if_unbucketed``.
        verify_row_ids: True to look up every ROW__ID of updates and deletes in the snapshot before anything
            is written. In later change sets of a table this is always done, unless ``read_now``.
        read_now: True if the ROW__IDs were read after the transaction's last change of the table.
        options: stripe size and compression of the files. A thread sorts in at most ``sort_memory_bytes``.
        local: memory and threads.

    Returns:
        The numbers of the written changes.

    Raises:
        TransactionStateError: If the transaction has not begun, the table is a source, or the table already
            has its change set on Hive 2.
        RecordLayoutError, RecordValueError, BucketIdError, RowIdNotFoundError, RecordSequenceError: If the
            change set is wrong; the message names rows.
        TableNotMutableError: If an insert-only table would get an update or delete.
        ConfigurationError: If ``insert_files`` is invalid, or the ROW__IDs to verify do not fit into memory.
        DeltaWriteError: If files could not be written.
        LockLostError, TransactionAbortedError: If the transaction was lost; writing has stopped.
    """
    transaction.settle(table)
    acid_table = transaction.table(table)
    check_sink(acid_table)
    with transaction.changing(acid_table.full_name):
        transaction.check()
        reader = changes_reader(changes, acid_table, operation_column)
        valid_ids = transaction.valid_ids(acid_table.full_name)
        plan = plan_changes(acid_table, reader.schema, valid_ids, operation_column)
        local = local or LocalOptions()
        batches, is_small = looked_ahead(reader, SMALL_ROWS)
        threads = 1 if is_small else local.thread_count
        parts = sized(batches, local.memory_bytes // BATCH_PART // threads)
        job = _Job(transaction, acid_table, insert_files, options, local, threads)
        verify = verify_row_ids or (acid_table.statement_id > 0 and not read_now)
        return job.run(parts, plan.addressed, verify_row_ids=verify)


def write_change_set(
    transaction: OpenTransaction,
    changes: ChangeSet,
    *,
    insert_files: int | None = None,
    verify_row_ids: bool = False,
    read_now: bool = False,
    options: WriterOptions | None = None,
    local: LocalOptions,
) -> ApplySummary:
    """Write collected changes; see :func:`apply_arrow` for arguments, result and errors."""
    table = changes.table
    with transaction.changing(table.full_name):
        transaction.check()
        threads = 1 if len(changes) < SMALL_ROWS else local.thread_count
        job = _Job(transaction, table, insert_files, options, local, threads)
        verify = verify_row_ids or (table.statement_id > 0 and not read_now)
        return job.run(changes.addressed(), lambda batch: batch, verify_row_ids=verify)


@dataclass(frozen=True)
class ReplacedRows:
    """The rows that an overwrite of whole partitions replaces, before anything is written; see :meth:`of`.

    Attributes:
        counts: the numbers of rows by (escaped) partition; partitions without rows are left out.
    """

    counts: Mapping[str, int]
    _transaction: LookingTransaction
    _view: TableView
    _files: PlannedFiles
    _local: LocalOptions

    @classmethod
    def of(
        cls,
        transaction: LookingTransaction,
        view: TableView,
        names: Sequence[str],
        local: LocalOptions | None = None,
    ) -> ReplacedRows | None:
        """Return the rows of partitions. None if an overwrite must delete them one by one.

        Raises:
            TableNotMutableError: If an insert-only table has such rows.
            CorruptFileError, DirectoryStateError: If files cannot be read.
        """
        table = view.table
        files = PlannedFiles(tuple(view.plan(names)), view.valid_ids)
        may = transaction.may_replace(table.full_name)
        counts = None
        if may:
            try:
                counts = files.row_counts()
            except OSError as error:
                raise DeltaWriteError(f"table {table.full_name}: rows cannot be counted: {error}") from error
        if counts is not None:
            return cls(counts, transaction, view, files, local or LocalOptions())
        if files.splits and not table.version.has_row_ids:
            raise TableNotMutableError(
                f"table {table.full_name} is insert-only, so its rows cannot be deleted one by one, and they "
                "cannot be replaced as a whole here. That needs Hive 4 without events for replication, a "
                "storage that renames files, and an overwrite before all other steps of the transaction: use "
                "INSERT OVERWRITE of Hive"
            )
        return None

    @property
    def row_count(self) -> int:
        """The number of all rows."""
        return sum(self.counts.values())

    def replace(self) -> None:
        """Record that the change set just written replaces the rows."""
        if self.counts:
            self._transaction.replace(self._view.table.full_name, self.counts, self._delete)

    def _delete(self) -> None:
        table = self._view.table
        if not table.version.has_row_ids:
            raise TransactionStateError(
                f"table {table.full_name} was overwritten in this transaction and is insert-only: an "
                "overwrite of such a table must be its only step. Use another transaction"
            )
        share = MemoryShare(self._local.memory_bytes // VERIFYING_PART)
        changes = ChangeSet(self._transaction, table.full_name, share, self._local)
        old = TableScan(self._view, columns=[], row_ids=True, files=self._files)
        try:
            changes.add(old, DELETE)
            write_change_set(self._transaction, changes, read_now=True, local=self._local)
        finally:
            changes.close()


@dataclass(frozen=True)
class _Job:
    """The job that writes one change set as staged files."""

    transaction: OpenTransaction
    table: AcidTable
    insert_files: int | None
    options: WriterOptions | None
    local: LocalOptions
    threads: int

    def run(
        self,
        batches: Iterable[pa.RecordBatch],
        addressed: Callable[[pa.RecordBatch], pa.RecordBatch],
        *,
        verify_row_ids: bool,
    ) -> ApplySummary:
        """Stage the changes and add their manifests to the transaction.

        Args:
            batches: the changes.
            addressed: checks and addresses a batch; called by several threads.
            verify_row_ids: True to look up every ROW__ID first.
        """
        table, transaction, threads = self.table, self.transaction, self.threads
        writer_id = uuid.uuid4().hex
        watch = Watch(transaction, writing(table))
        files = InsertFiles.of_table(table, self.insert_files, self.local.thread_count)
        started = time.monotonic()
        verify_seconds = 0.0
        try:
            with SortedChanges(table.full_name, threads, self._sort_memory()) as changes:
                wanted = self._wanted() if verify_row_ids else None

                def take(numbered: tuple[int, pa.RecordBatch]) -> None:
                    number, batch = numbered
                    rows = files.spread(addressed(batch))
                    if wanted is not None:
                        wanted.add(rows)
                    changes.add(rows, number)

                for _ in in_turn(take, enumerate(batches), threads, watch):
                    pass
                if wanted is not None:
                    verifying = time.monotonic()
                    wanted.check(transaction, threads, watch)
                    verify_seconds = time.monotonic() - verifying
                manifests = self._write(changes, writer_id, watch)
            check_partitions_exist(transaction, table, manifests)
            transaction.add_manifests(table.full_name, writer_id, manifests)
        except MutationError as error:
            remove_writer(table, writer_id)
            raise_if_lost(transaction, error)
            raise
        except BaseException:
            remove_writer(table, writer_id)
            raise
        finally:
            if threads > 1:
                give_back()
        return ApplySummary.from_manifests(
            table.full_name,
            table.required_txn_id(),
            manifests,
            verify_seconds=verify_seconds,
            write_seconds=time.monotonic() - started - verify_seconds,
        )

    def _wanted(self) -> WantedRows:
        return WantedRows(self.table, self.local.memory_bytes // VERIFYING_PART)

    def _sort_memory(self) -> int:
        share = min(self.local.memory_bytes // SORTING_PART // self.threads, SORT_MEMORY_BYTES_MAX)
        return share if self.options is None else min(share, self.options.sort_memory_bytes)

    def _write(self, changes: SortedChanges, writer_id: str, watch: Watch) -> tuple[DeltaManifest, ...]:
        def write(share: int) -> tuple[DeltaManifest, ...]:
            with MutatorCoordinator(
                self.table, writer_id=writer_id, attempt_id=str(share), options=self.options
            ) as coordinator:
                for batch in changes.in_order(share):
                    watch.check()
                    write_batch(coordinator, batch)
                return coordinator.close()

        written = run_all(write, changes.shares, self.threads, watch)
        return tuple(itertools.chain.from_iterable(written))
