"""HiveTable and SnapshotTable: one table of a transaction, which can be changed, or of a snapshot."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Unpack, overload

import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.client import MetastoreClient
from mutation_api.errors import ConfigurationError
from mutation_api.format.event import DELETE, INSERT, UPDATE
from mutation_api.hive.table_changes import TableChanges, as_filter
from mutation_api.merge.clauses import TARGET, MergeOptionsDict
from mutation_api.merge.history import HistoryOptionsDict, HistoryReport, HistoryRules
from mutation_api.merge.local_merge import Condition, LocalMerge, Values, changed_rows, local_merge
from mutation_api.merge.local_rules import local_history
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.source_rows import source_rows
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.read.read_ahead import WAITING_BYTES_DEFAULT
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import AcidTable, SnapshotView
from mutation_api.table.expression_parts import fields_of
from mutation_api.transaction.catalog import primary_key
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.change_set import OverwriteReport, Replaced
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.write.local_plan import LocalOptions

_WAITING_PART = 4
"""The fraction of the memory for rows that were read ahead is 1/_WAITING_PART."""


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
    def descriptor(self) -> AcidTable:
        """The table's descriptor, which can be sent to other processes."""
        return self._view.table(self._name)

    @property
    def schema(self) -> pa.Schema:
        """The columns as :meth:`scan` reads them: data columns, then partition columns."""
        return self.scan().schema

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
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
            where: the rows to read: SQL such as ``"day < date '2024-01-01'"``, or an Arrow expression over
                the table's columns (in lower case). Partitions without matching rows are not read.
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
        view = open_table(self._view, self._name)
        return TableScan(
            view,
            columns=columns,
            where=where if where is None else as_filter(where, view.table),
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
    DataFrames of pandas (2.2 and later) and Polars, relations of DuckDB, scans. Data is read and checked
    immediately. Columns are found by name, in any case and order.

    Calls work like a sequence of statements: each sees the changes of the calls before it.

    Args:
        transaction: a transaction that has begun.
        name: ``database.table``.
        changes: the collected changes of the table.
        local: memory and threads.
        metastore: the metastore's client.
    """

    def __init__(
        self,
        transaction: Transaction,
        name: str,
        changes: TableChanges,
        local: LocalOptions,
        metastore: MetastoreClient,
    ) -> None:
        super().__init__(transaction, name, local)
        self._transaction = transaction
        self._changes = changes
        self._metastore = metastore

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

    @overload
    def update(self, data: object, *, verify_row_ids: bool = False) -> int: ...

    @overload
    def update(self, *, set: Values, where: Condition = None, dry_run: bool = False) -> MergeReport: ...

    def update(
        self,
        data: object = None,
        *,
        set: Values | None = None,
        where: Condition = None,
        dry_run: bool = False,
        verify_row_ids: bool = False,
    ) -> int | MergeReport:
        """Update existing rows, by a condition or by ROW__ID::

            orders.update(set={"price": "price * 1.1"}, where="item = 'tea'")

        Args:
            data: whole new rows: ROW__ID, as ``scan(row_ids=True)`` reads it, and all columns of the table.
                Such a row stays in its partition and bucket; to move it, delete it and append its new form.
            set: new values by column: SQL or an Arrow expression over the table's columns, or a constant. A
                row whose partition or bucket changes is moved.
            where: the rows to update: SQL, or an Arrow expression. If None, all rows. A row for which it is
                NULL is not updated.
            dry_run: True to report what would be done, without writing.
            verify_row_ids: True to look up every ROW__ID of ``data`` before anything is written. Needed only
                for ROW__IDs that were not read in this transaction.

        Returns:
            With ``data`` the number of rows; with ``set`` a report.

        Raises:
            ConfigurationError: If both or neither of ``data`` and ``set`` are given.
            UnsupportedLocallyError: If only Spark or Hive can interpret the SQL.
            MutationError: See :meth:`append` and ``LocalMerge.execute``.
        """
        if set is None and data is not None:
            _check_unused("update", where=where, dry_run=dry_run)
            return self._changes.add(data, UPDATE, verify_row_ids=verify_row_ids)
        if set is None or data is not None:
            raise ConfigurationError(f"table {self.name}: update needs rows with ROW__ID, or set={{…}}")
        values = {
            name: fields_of(value, TARGET) if isinstance(value, pc.Expression) else value
            for name, value in set.items()
        }
        return _done(self._by_condition().when_not_matched_by_source_update(values, _flat(where)), dry_run)

    @overload
    def delete(self, data: object, *, verify_row_ids: bool = False) -> int: ...

    @overload
    def delete(self, *, where: pc.Expression | str, dry_run: bool = False) -> MergeReport: ...

    def delete(
        self,
        data: object = None,
        *,
        where: Condition = None,
        dry_run: bool = False,
        verify_row_ids: bool = False,
    ) -> int | MergeReport:
        """Delete rows, by a condition or by ROW__ID::

            orders.delete(where="day < date '2024-01-01'")

        Args:
            data: ROW__ID, as ``scan(row_ids=True)`` reads it: a column among any others, or a struct array
                alone.
            where: the rows to delete: SQL, or an Arrow expression. A row for which it is NULL is not deleted.
                To delete all rows, use :meth:`truncate`.
            dry_run: True to report what would be done, without writing.
            verify_row_ids: True to look up the ROW__IDs of ``data`` first; see :meth:`update`.

        Returns:
            With ``data`` the number of rows; with ``where`` a report.

        Raises:
            ConfigurationError: If both or neither of ``data`` and ``where`` are given.
            UnsupportedLocallyError: If only Spark or Hive can interpret the SQL.
            MutationError: See :meth:`append` and ``LocalMerge.execute``.
        """
        if where is None and data is not None:
            _check_unused("delete", dry_run=dry_run)
            return self._changes.add(data, DELETE, verify_row_ids=verify_row_ids)
        if where is None or data is not None:
            raise ConfigurationError(
                f"table {self.name}: delete needs rows with ROW__ID, or where=…; truncate() deletes all rows"
            )
        return _done(self._by_condition().when_not_matched_by_source_delete(_flat(where)), dry_run)

    def truncate(self, *, dry_run: bool = False) -> MergeReport:
        """Delete all rows; partitions stay.

        Where :meth:`overwrite` would write a base, an empty base replaces the rows.

        Args:
            dry_run: True to report what would be done, without writing.

        Raises:
            MutationError: See :meth:`append` and ``LocalMerge.execute``.
        """
        counts = self._changes.truncate(dry_run=dry_run)
        if counts is None:
            return _done(self._by_condition().when_not_matched_by_source_delete(), dry_run)
        deleted = [(partition, "deleted", count) for partition, count in counts.items()]
        return MergeReport.of(self.name, deleted, is_dry_run=dry_run)

    def upsert(self, data: object, on: Sequence[str] | None = None, *, dry_run: bool = False) -> MergeReport:
        """Update the rows whose key exists, and insert the others::

            orders.upsert(rows, on=["id"])

        Args:
            data: the rows; columns that they lack keep their value, and are NULL in new rows.
            on: the key columns, which must be unique in ``data``. If None, the primary key that the table
                declares; Hive does not enforce it.
            dry_run: True to report what would be done, without writing.

        Raises:
            ConfigurationError: If ``on`` is None, and the table declares no primary key.
            DuplicateKeyError: If a key occurs twice in ``data``.
            MutationError: See :meth:`merge` and ``LocalMerge.execute``.
        """
        self._changes.checked_sink()
        on = primary_key(self._metastore, self.name) if on is None else on
        return _done(self.merge(data, on).when_matched_update_all().when_not_matched_insert_all(), dry_run)

    def overwrite(
        self,
        data: object,
        *,
        partitions: str | Sequence[Mapping[str, object]] | None = None,
        where: Condition = None,
        dry_run: bool = False,
    ) -> OverwriteReport:
        """Replace rows by new ones::

            orders.overwrite(rows, partitions="dynamic")

        Args:
            data: the new rows, with all columns of the table.
            partitions: ``"dynamic"`` to replace the partitions that the new rows belong to, or the partitions
                to replace by the values of some partition columns, such as ``[{"day": date(2024, 5, 1)}]``.
                If None, the whole table is replaced.
            where: the rows to replace: SQL, or an Arrow expression. New rows must meet it as well.
            dry_run: True to report what would be done, without writing.

        Returns:
            The numbers of old and new rows.

        Raises:
            ConfigurationError: If both ``partitions`` and ``where`` are given, or a partition column does not
                exist.
            RecordValueError: If a new row does not belong to the rows that are replaced.
            MutationError: See :meth:`append` and :meth:`scan`.
        """
        table = self._changes.checked_sink()
        condition = where if where is None else as_filter(where, table)
        return self._changes.overwrite(data, Replaced.of(table, partitions, condition), dry_run=dry_run)

    def track(
        self,
        changes: object,
        key: Sequence[str],
        sequence: str | Sequence[str],
        *,
        dry_run: bool = False,
        **options: Unpack[HistoryOptionsDict],
    ) -> HistoryReport:
        """Keep the history of keys (slowly changing dimension, type 2): a row per version::

            prices.track(changes, key=["item"], sequence="updated_at")

        A change ends the key's open version and inserts a new one. A change that arrives late splits the
        version into which it falls, and one that arrives again changes nothing: the rows depend only on the
        changes, not on their order or on how they are cut into calls. See
        :mod:`mutation_api.merge.history` for the form of the rows.

        Args:
            changes: rows with the key, the sequence and the columns of a version; possibly an operation.
            key: the columns that identify a key.
            sequence: the column of the changes that orders those of a key, such as a time or a log position;
                it becomes ``valid_from``. Further columns, which the table must also have, break ties.
            dry_run: True to report what would be done, without writing.
            **options: names of columns, and the effect of deletes; see
                :class:`~mutation_api.merge.history.HistoryOptionsDict`.

        Raises:
            ConfigurationError: If an option is invalid, or the table lacks a column.
            DuplicateKeyError: If a key has two different changes at one point of the sequence.
            ContradictionError: If versions in the table overlap.
            RecordValueError: If a key or a point is NULL, or would be stored as another value.
            MutationError: See :meth:`append` and ``LocalMerge.execute``.
        """
        self._changes.checked_sink()
        rules = HistoryRules.of(self.descriptor, key, sequence, **options)
        rows = source_rows(self.name, changes, self._local)
        self._changes.before_reading()
        found = local_history(self._transaction, rules, self.name, rows, self._local)
        if not dry_run:
            self._changes.add_history(found)
        return found.report(is_dry_run=dry_run)

    def _by_condition(self) -> LocalMerge:
        self._changes.checked_sink()
        return self._ours(changed_rows(self._transaction, self.name, self._local))

    def _ours(self, merge: LocalMerge) -> LocalMerge:
        """Return a merge that sees the transaction's earlier changes, and is written as a separate step."""
        return dataclasses.replace(
            merge, before_reading=self._changes.before_reading, write=self._changes.add_merged
        )

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
        **options: Unpack[MergeOptionsDict],
    ) -> LocalMerge:
        """Begin a merge by key: add clauses to the result, then call ``execute()`` or ``dry_run()``::

            orders.merge(rows, on=["id"]).when_matched_update_all().when_not_matched_insert_all().execute()

        The merge compares with the table as it was when the transaction began, with the changes that the
        transaction has made before ``execute()``. On Hive 2 it must come before other changes of the table.

        Args:
            source: the rows to merge; held in memory together with the table's rows that they match.
            on: key columns, which both sides must have; a single string is one column.
            **options: see :class:`~mutation_api.merge.clauses.MergeOptionsDict`.

        Raises:
            TransactionStateError: If the transaction is not open, or only reads the table. On Hive 2 also if
                the table already has changes.
            ConfigurationError: If an option is invalid, or the source needs more memory than allowed.
            RecordLayoutError: If the source is not Arrow data or has a duplicate column.
        """
        self._changes.checked_sink()
        begun = local_merge(self._transaction, self.name, source=source, on=on, local=self._local, **options)
        merge = self._ours(begun)
        self._changes.expect(merge)
        return merge

    def _before_reading(self) -> None:
        """Write the changes that were collected, so that the read sees them."""
        self._changes.before_reading()


def _done(merge: LocalMerge, dry_run: bool) -> MergeReport:
    return merge.dry_run() if dry_run else merge.execute()


def _flat(where: Condition) -> Condition:
    """Return a condition on the table's rows in the form for a merge: on the side ``target``."""
    return where if where is None or isinstance(where, str) else fields_of(where, TARGET)


def _check_unused(verb: str, **options: object) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigurationError(f"{verb}: {', '.join(given)} cannot be combined with rows with ROW__ID")
