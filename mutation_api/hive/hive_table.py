"""HiveTable and SnapshotTable: one table of a transaction, which can be changed, or of a snapshot."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.hive.change_part import DELETE, INSERT, UPDATE
from mutation_api.hive.table_changes import TableChanges
from mutation_api.merge.clauses import FirstBy
from mutation_api.merge.local_merge import LocalMerge, local_merge
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.read.read_ahead import WAITING_BYTES_DEFAULT
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import SnapshotView
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.write.local_plan import LocalOptions

__all__ = ["HiveTable", "SnapshotTable"]

_WAITING_PART = 4
"""One part in _WAITING_PART of the memory is for rows that are read ahead."""


class SnapshotTable:
    """A table as its snapshot or transaction sees it. Made by ``HiveSnapshot.table``.

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
        """``database.table``, in lower case."""
        return self._name

    @property
    def schema(self) -> pa.Schema:
        """Its columns as :meth:`scan` reads them: data columns, then partition columns."""
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
        """Describe a read; the result's ``to_arrow()``, ``to_pandas()``, ``to_polars()``, … read.

        It reads the table as it was when the transaction began or the snapshot was opened, whatever the
        transaction has changed since; and only as long as that is open.

        Args:
            columns: names of data and partition columns, in any case, in the order wanted; None: all.
            filter: which rows: an Arrow expression over the table's columns (in lower case), or the name of a
                boolean column. Partitions whose rows cannot meet it are not read.
            row_ids: put ROW__ID first, which updates and deletes need.
            limit: number of rows after which reading ends.
            timestamps: form of timestamps in data columns: ``MICROSECONDS`` holds the years 1 to 9999,
                ``NANOSECONDS`` all digits of the years 1678 to 2261, ``TEXT`` both.
            truncate_nanoseconds: cut digits below microseconds; otherwise a value that has them is an error,
                if ``timestamps`` is ``MICROSECONDS``.

        Raises:
            TransactionStateError: the transaction or snapshot is not open.
        """
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


class HiveTable(SnapshotTable):
    """A table of a transaction. Made by ``HiveTransaction.table``.

    Data is anything with Arrow's C stream or C array interface: tables, batches and readers of pyarrow,
    DataFrames of pandas (2.2 and later) and Polars, relations of DuckDB, scans. It is read at once, and
    written with the commit, which finds values that do not fit. Columns are found by name, in any case and
    order.

    Args:
        transaction: begun.
        name: ``database.table``.
        changes: where its changes are collected.
        local: memory and threads.
    """

    def __init__(
        self, transaction: Transaction, name: str, changes: TableChanges, local: LocalOptions
    ) -> None:
        super().__init__(transaction, name, local)
        self._transaction = transaction
        self._changes = changes

    def append(self, data: object) -> int:
        """Add new rows; returns their number.

        Args:
            data: all columns of the table; a column ROW__ID is ignored.

        Raises:
            TransactionStateError, LockLostError, TransactionAbortedError: the transaction is not open, or is
                lost.
            RecordLayoutError: columns are missing, extra or doubled, or have types that cannot fit.
            DeltaWriteError: the rows fit neither into memory nor into a temporary file.
        """
        return self._changes.add(data, INSERT)

    def update(self, data: object, *, verify_row_ids: bool = False) -> int:
        """Give existing rows new values; returns their number.

        A row stays in its partition and bucket; to move it, delete it and append its new form.

        Args:
            data: ROW__ID, as ``scan(row_ids=True)`` reads it, and all columns of the table.
            verify_row_ids: before anything is written, look up every ROW__ID that the transaction names for
                this table. Needed only for ROW__IDs that were not read in this transaction.

        Raises: as :meth:`append`.
        """
        return self._changes.add(data, UPDATE, verify_row_ids=verify_row_ids)

    def delete(self, data: object, *, verify_row_ids: bool = False) -> int:
        """Delete rows; returns their number.

        Args:
            data: ROW__ID, as ``scan(row_ids=True)`` reads it: as a column, whatever others there are, or
                alone, as a struct array.
            verify_row_ids: as of :meth:`update`.

        Raises: as :meth:`append`.
        """
        return self._changes.add(data, DELETE, verify_row_ids=verify_row_ids)

    def apply(
        self,
        changes: object,
        *,
        operation_column: str = OPERATION_COLUMN_DEFAULT,
        verify_row_ids: bool = False,
    ) -> int:
        """Apply inserts, updates and deletes from one source; returns their number.

        Args:
            changes: the operation ('insert', 'update' or 'delete', in any case), ROW__ID (ignored for
                inserts), and all columns of the table, of which deletes need none.
            operation_column: name of the operation column.
            verify_row_ids: as of :meth:`update`.

        Raises: as :meth:`append`.
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

        It compares with the table as it was when the transaction began. So a table takes one merge in a
        transaction, before its other changes.

        Args:
            source: the rows to merge; it is held in memory with the rows of the table that it matches.
            on: key columns, which both sides have; a text is one of them.
            null_safe: whether NULL equals NULL; in SQL it does not.
            on_duplicate: what to do if several source rows would act on one row or insert one key: ``error``,
                or ``first_by("updated")``.
            missing_columns: what to do if the source lacks columns for ``…_all``: ``null`` inserts NULL and
                keeps their values on update; ``error`` refuses the merge.
            write_unchanged: do not compare updates with the rows that they replace.
            prune_buckets: read only the buckets to which the source's keys hash.
            count_by: a column of the source; the report also counts rows by its values.

        Raises:
            TransactionStateError: the transaction is not open, or the table has changes already.
            ConfigurationError: an option is invalid, or the source needs more memory than allowed.
            RecordLayoutError: the source is no Arrow data, or has a column twice.
        """
        self._changes.check_first()
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
        merge = dataclasses.replace(begun, write=self._changes.add_merged)
        self._changes.expect(merge)
        return merge
