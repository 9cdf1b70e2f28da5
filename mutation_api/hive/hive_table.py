"""HiveTable and SnapshotTable: one table of a transaction, which can be changed, or of a snapshot.

TableHandle: one table outside of both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.client import MetastoreClient
from mutation_api.format.event import DELETE, INSERT, UPDATE
from mutation_api.hive.table_changes import TableChanges
from mutation_api.merge.clauses import FirstBy
from mutation_api.merge.local_merge import LocalMerge, local_merge
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.read.read_ahead import WAITING_BYTES_DEFAULT
from mutation_api.read.table_scan import TableScan, arrow_schema
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import AcidTable, SnapshotView
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.history import TableHistory, table_history
from mutation_api.upkeep.verify.verify import Progress, VerifyReport, verify_table
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.write.local_plan import LocalOptions

__all__ = ["HiveTable", "SnapshotTable", "TableHandle"]

_WAITING_PART = 4
"""One part in _WAITING_PART of the memory is for rows that were read ahead."""


class TableHandle:
    """A table of a metastore, as it was described when the handle was made. Created by ``Hive.table``.

    It holds no lock. To read rows, use ``Hive.snapshot``; to change them, ``Hive.transaction``.

    Args:
        metastore: the metastore's client.
        table: the table's descriptor.
    """

    def __init__(self, metastore: MetastoreClient, table: AcidTable) -> None:
        self._metastore = metastore
        self._table = table

    def __repr__(self) -> str:
        """Return the name and the columns."""
        columns = ", ".join(f"{column.name} {column.type}" for column in self._table.all_columns)
        return f"TableHandle({self.name}: {columns})"

    @property
    def name(self) -> str:
        """The name ``database.table``, in lower case."""
        return self._table.full_name

    @property
    def schema(self) -> pa.Schema:
        """The columns as scans read them: data columns, then partition columns."""
        return arrow_schema(self._table)

    def history(self) -> TableHistory:
        """Return the changes of the table, transaction by transaction; see ``table_history``.

        Raises:
            TableNotFoundError: If the table was dropped.
            ConnectionFailedError, TransactionError: If the server could not be asked.
            OSError: If a directory cannot be listed.
        """
        return table_history(self._metastore, self.name)

    def verify(self, *, threads: int | None = None, progress: Progress | None = None) -> VerifyReport:
        """Examine all files of the table, as a snapshot of this moment reads them; see ``verify_table``.

        Args:
            threads: the number of files to examine at a time. If None, one per processor.
            progress: called now and then, from any thread.

        Raises:
            TableNotFoundError: If the table was dropped.
            LockNotAcquiredError, ConnectionFailedError, TransactionError: See Transaction.begin.
            ReadError, OSError: If a directory cannot be listed, or this machine cannot read a file.
        """
        return verify_table(self._metastore, self.name, threads=threads, progress=progress)


class SnapshotTable:
    """A table as its snapshot or transaction sees it. Created by ``HiveSnapshot.table``.

    Args:
        view: the open snapshot or transaction.
        name: ``database.table``, one of its tables.
        local: memory and threads.
    """

    def __init__(self, view: SnapshotView, name: str, local: LocalOptions) -> None:
        self._view = view
        self._local = local
        self._name = view.table(name).full_name

    @property
    def name(self) -> str:
        """The name ``database.table``, in lower case."""
        return self._name

    @property
    def schema(self) -> pa.Schema:
        """The columns as :meth:`scan` reads them: data columns, then partition columns."""
        return self.scan().schema

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | str | None = None,
        *,
        row_ids: bool = False,
        limit: int | None = None,
        timestamps: TimestampForm = TimestampForm.MICROSECONDS,
        truncate_nanoseconds: bool = False,
    ) -> TableScan:
        """Describe a read; ``to_arrow()``, ``to_pandas()``, ``to_polars()``, … of the result read the rows.

        It reads the table as it was when the transaction began or the snapshot was opened, with the changes
        that the transaction has made before this call. It can read only while the transaction or snapshot is
        open.

        Args:
            columns: names of data and partition columns, in any case, in the desired order. If None, all.
            filter: the rows to read: an Arrow expression over the table's columns (in lower case), or the
                name of a boolean column. Partitions without matching rows are not read.
            row_ids: True to put ROW__ID first, which updates and deletes need.
            limit: the number of rows after which reading ends.
            timestamps: the form of timestamps in data columns. ``MICROSECONDS`` holds the years 1 to 9999,
                ``NANOSECONDS`` all digits of the years 1678 to 2261, ``TEXT`` both.
            truncate_nanoseconds: True to cut digits below microseconds. Otherwise a value that has them is an
                error, if ``timestamps`` is ``MICROSECONDS``.

        Raises:
            TransactionStateError: If the transaction or snapshot is not open, or if the transaction has
                changed the table and cannot read these changes: on Hive 2, and on storages that show files
                only after the commit (object stores).
            MutationError: If earlier changes of the transaction are wrong; see ``HiveTransaction.commit``.
        """
        self._before_reading()
        return TableScan(
            open_table(self._view, self._name),
            columns=columns,
            filter=filter,
            row_ids=row_ids,
            limit=limit,
            timestamps=timestamps,
            truncate_nanoseconds=truncate_nanoseconds,
            threads=self._local.thread_count,
            waiting_bytes=min(WAITING_BYTES_DEFAULT, self._local.memory_bytes // _WAITING_PART),
        )

    def _before_reading(self) -> None:
        """Do nothing: a snapshot has no changes of its own."""


class HiveTable(SnapshotTable):
    """A table of a transaction. Created by ``HiveTransaction.table``.

    Data is any object with Arrow's C stream or C array interface: tables, batches and readers of pyarrow,
    DataFrames of pandas (2.2 and later) and Polars, relations of DuckDB, scans. Data is read and checked at
    once. Columns are found by name, in any case and order.

    Calls work like a sequence of statements: each sees the changes of the calls before it.

    Args:
        transaction: a transaction that has begun.
        name: ``database.table``.
        changes: the collected changes of the table.
        local: memory and threads.
    """

    def __init__(
        self, transaction: Transaction, name: str, changes: TableChanges, local: LocalOptions
    ) -> None:
        super().__init__(transaction, name, local)
        self._transaction = transaction
        self._changes = changes

    def append(self, data: object) -> int:
        """Add new rows and return their number.

        Args:
            data: all columns of the table; a column ROW__ID is ignored.

        Raises:
            TransactionStateError, LockLostError, TransactionAbortedError: If the transaction is not open or
                is lost.
            RecordLayoutError: If columns are missing, extra or duplicate, or have incompatible types.
            DeltaWriteError: If the rows fit neither into memory nor into a temporary file.
        """
        return self._changes.add(data, INSERT)

    def update(self, data: object, *, verify_row_ids: bool = False) -> int:
        """Give existing rows new values and return the number of rows.

        A row stays in its partition and bucket. To move it, delete it and append its new form.

        Args:
            data: ROW__ID, as ``scan(row_ids=True)`` reads it, and all columns of the table.
            verify_row_ids: True to look up every ROW__ID that the transaction changes in this table before
                anything is written. Needed only for ROW__IDs that were not read in this transaction.

        Raises:
            MutationError: See :meth:`append`.
        """
        return self._changes.add(data, UPDATE, verify_row_ids=verify_row_ids)

    def delete(self, data: object, *, verify_row_ids: bool = False) -> int:
        """Delete rows and return their number.

        Args:
            data: ROW__ID, as ``scan(row_ids=True)`` reads it: a column among any others, or a struct array
                alone.
            verify_row_ids: True to look up the ROW__IDs first; see :meth:`update`.

        Raises:
            MutationError: See :meth:`append`.
        """
        return self._changes.add(data, DELETE, verify_row_ids=verify_row_ids)

    def apply(
        self,
        changes: object,
        *,
        operation_column: str = OPERATION_COLUMN_DEFAULT,
        verify_row_ids: bool = False,
    ) -> int:
        """Apply inserts, updates and deletes from one source and return their number.

        Args:
            changes: the operation ('insert', 'update' or 'delete', in any case), ROW__ID (ignored for
                inserts), and all columns of the table; deletes need none of these.
            operation_column: name of the operation column.
            verify_row_ids: True to look up the ROW__IDs first; see :meth:`update`.

        Raises:
            MutationError: See :meth:`append`.
        """
        return self._changes.add(
            changes, None, operation_column=operation_column, verify_row_ids=verify_row_ids
        )

    def merge(
        self,
        source: object,
        on: Sequence[str],
        *,
        null_safe: bool = False,
        on_duplicate: str | FirstBy = "error",
        missing_columns: str = "null",
        write_unchanged: bool = False,
        prune_buckets: bool = True,
        count_by: str | None = None,
    ) -> LocalMerge:
        """Begin a merge by key: add clauses to the result, then call ``execute()`` or ``dry_run()``::

            orders.merge(rows, on=["id"]).when_matched_update_all().when_not_matched_insert_all().execute()

        The merge compares with the table as it was when the transaction began, with the changes that the
        transaction has made before ``execute()``. On Hive 2 it must come before other changes of the table.

        Args:
            source: the rows to merge; held in memory together with the table's rows that they match.
            on: key columns, which both sides must have; a single string is one column.
            null_safe: True if NULL equals NULL; in SQL it does not.
            on_duplicate: how to handle source rows that would change the same row or insert the same key:
                ``error``, or ``first_by("updated")``.
            missing_columns: how to handle columns that the source lacks in ``…_all``: ``null`` inserts NULL
                and keeps the values on update; ``error`` refuses the merge.
            write_unchanged: True to write updates without comparing them with the rows that they replace.
            prune_buckets: True to read only the buckets to which the source's keys hash.
            count_by: a column of the source; the report also counts rows by its values.

        Raises:
            TransactionStateError: If the transaction is not open, or only reads the table. On Hive 2 also if
                the table already has changes.
            ConfigurationError: If an option is invalid, or the source needs more memory than allowed.
            RecordLayoutError: If the source is not Arrow data or has a duplicate column.
        """
        self._changes.checked_sink()
        begun = local_merge(
            self._transaction,
            self.name,
            source=source,
            on=on,
            null_safe=null_safe,
            on_duplicate=on_duplicate,
            missing_columns=missing_columns,
            write_unchanged=write_unchanged,
            prune_buckets=prune_buckets,
            count_by=count_by,
            local=self._local,
        )
        merge = dataclasses.replace(
            begun, before_reading=self._changes.before_reading, write=self._changes.add_merged
        )
        self._changes.expect(merge)
        return merge

    def _before_reading(self) -> None:
        """Write the changes that were collected, so that the read sees them."""
        self._changes.before_reading()
