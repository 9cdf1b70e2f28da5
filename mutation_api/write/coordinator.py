"""MutatorCoordinator: insert, update and delete records of one table in one transaction.

Records must arrive grouped by partition and bucket. Within a group, updates and deletes ascend by
(original_txn, bucket, row_id); in v1 legacy tables inserts follow them. The coordinator opens the files of
one group at a time, so a thousand partitions need only one encoder. It writes to hidden files of this
attempt. ``close`` returns manifests; only the committer gives files their final names.

Single records are collected and handled as a batch. Their columns, order and values are checked when
``batch_rows`` records are collected, the partition changes, or the coordinator is closed.
``WriterOptions(batch_rows=1)`` checks each record immediately.

No record is corrected or dropped: a record that cannot be written exactly is rejected. After the first error
the coordinator accepts only ``abort``.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import (
    ConfigurationError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
    TransactionStateError,
)
from mutation_api.format.event import Operation, RowIdArrays
from mutation_api.table.acid_table import AcidTable, TableRole, WriterOptions
from mutation_api.transaction.manifest import DeltaManifest
from mutation_api.write.constraint_checks import PartitionNames, PartitionValues, RecordChecks
from mutation_api.write.group_writer import GroupWriter, PendingRecords
from mutation_api.write.record_inspector import RecordInspector, Records
from mutation_api.write.staged_writer import AttemptStaging

logger = logging.getLogger(__name__)

_BATCH_TYPES = (pa.RecordBatch, pa.Table)

Record = Mapping[str, Any]
"""The values of one record by column name."""


class MutatorCoordinator:
    """Writes the changes of one table. Not thread-safe.

    As a context manager it closes at the end of the block, or aborts if the block or the closing raises.

    Args:
        table: a table that is bound to a transaction, in the role of a sink.
        writer_id: name of the job. If None, a random one. Writers of one transaction must have different
            names.
        attempt_id: name of the attempt of a task. Attempts must have different names.
        options: options of the files. If its compression is None, the table's is used.
        record_inspector: finds ROW__ID and columns in records. If None, by the table's own names.
        insert_bucket_id: number of the file for new rows if the table is not bucketed, 0 to 4095. Writers of
            one transaction must have different numbers. Ignored in bucketed tables.

    Raises:
        TransactionStateError: If the table is not bound to a transaction, or is a source.
        ConfigurationError: If an id is not a valid directory name, the table's Hive cannot read the
            compression, or ``insert_bucket_id`` is out of range.
    """

    def __init__(
        self,
        table: AcidTable,
        *,
        writer_id: str | None = None,
        attempt_id: str = "0",
        options: WriterOptions | None = None,
        record_inspector: RecordInspector | None = None,
        insert_bucket_id: int = 0,
    ) -> None:
        if table.role is not TableRole.SINK:
            raise TransactionStateError(
                f"table {table.full_name} is a source of this transaction; declare it as a sink to write "
                "to it"
            )
        self._table = table
        self._staging = AttemptStaging(
            table, uuid.uuid4().hex if writer_id is None else writer_id, attempt_id
        )
        self._options = _with_compression(options or WriterOptions(), table)
        self._inspector = record_inspector or RecordInspector(table)
        self._checks = RecordChecks(table, insert_bucket_id)
        self._groups = GroupWriter(table, self._staging, self._options, self._inspector.row_type())
        self._partitions = PartitionNames(table)
        self._manifests: tuple[DeltaManifest, ...] = ()
        self._pending = PendingRecords(table, self._inspector)
        self._is_closed = False
        self._is_aborted = False
        self._failure: BaseException | None = None

    @property
    def table(self) -> AcidTable:
        """The table to which changes are written."""
        return self._table

    @property
    def writer_id(self) -> str:
        """The name of this writer's staging directory."""
        return self._staging.writer_id

    @property
    def attempt_id(self) -> str:
        """The name of this attempt's directory below the writer's."""
        return self._staging.attempt_id

    def __enter__(self) -> MutatorCoordinator:
        """Return the coordinator itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, or abort if the block raised. An error of the abort does not hide the error of the block."""
        if self._is_aborted:
            return
        if error is not None:
            self._abort_after_error()
            return
        try:
            self.close()
        except BaseException:
            self._abort_after_error()
            raise

    def insert(
        self, partition_values: PartitionValues | None, record: Record | pa.RecordBatch | pa.Table
    ) -> None:
        """Add new rows.

        Args:
            partition_values: one value per partition column, typed or as Hive's string. None means NULL.
                Empty or None if the table is not partitioned.
            record: one record, or a batch grouped by bucket, with all data columns and names in any case.
                ROW__ID is optional. If its bucket is set, it must be the bucket of the row's values.

        Raises:
            RecordLayoutError: If columns or partition values are missing, extra or of an unsuitable type.
            RecordValueError: If a value does not fit its column.
            BucketIdError: If the attached bucket is not the row's.
            GroupRevisitedError: If the group (partition, bucket) has already been completed.
            DeltaWriteError: If a file cannot be written.
            TransactionStateError: If the coordinator is closed, aborted or failed.
        """
        self._add(Operation.INSERT, partition_values, record)

    def update(
        self, partition_values: PartitionValues | None, record: Record | pa.RecordBatch | pa.Table
    ) -> None:
        """Update existing rows. All data columns and ROW__ID are required.

        An update cannot change the bucket or partition of its row; use a delete and an insert instead.

        Raises:
            RecordSequenceError: If records are out of order, or one ROW__ID occurs twice.
            BucketIdError: If the new values belong to another bucket than the ROW__ID, or the table does not
                have the bucket.
            RowIdNotFoundError: If a ROW__ID names a row that no snapshot of this transaction can contain.
            RecordValueError: If ROW__ID is missing or belongs to another partition. See also :meth:`insert`.
            TableNotMutableError: If the table is insert-only.

        Errors of :meth:`insert` are also raised.
        """
        self._add(Operation.UPDATE, partition_values, record)

    def delete(
        self, partition_values: PartitionValues | None, record: Record | pa.RecordBatch | pa.Table
    ) -> None:
        """Delete existing rows. Only ROW__ID is required; the rest is ignored. Raises like :meth:`update`."""
        self._add(Operation.DELETE, partition_values, record)

    def write_events(
        self,
        partition_name: str,
        bucket_id: int,
        operations: NDArray[np.int8],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        """Write the next slice of one group. The caller has computed the bucket ids and sorted the rows.

        Args:
            partition_name: the escaped name, in the spelling of an existing partition; '' if not partitioned.
            bucket_id: the plain bucket id of all records, which is the number of their file.
            operations: int8, shape (n,), codes of :class:`Operation`.
            row_ids: ROW__IDs of n records. Those of inserts are ignored.
            rows: n structs with all data columns in any order. If all records are deletes, the rows are
                ignored, and may be None or lack columns.

        Raises:
            RecordLayoutError: If the arrays differ in length.
            RecordValueError: If an operation is unknown.

        Errors of :meth:`update` are also raised.
        """
        self._check_usable()
        try:
            self._flush()
            self._checks.check_events(partition_name, bucket_id, operations, row_ids, rows)
            if len(operations):
                self._write_events(partition_name, bucket_id, operations, row_ids, rows)
        except BaseException as error:
            self._failure = error
            raise

    def close(self) -> tuple[DeltaManifest, ...]:
        """Complete the last group.

        Returns:
            A manifest for each file that was written. A second call returns the same manifests.

        Raises:
            WorkerError: The first error, if one occurred.
            TransactionStateError: If the coordinator was aborted.
        """
        if self._failure is not None:
            raise self._failure
        if self._is_aborted:
            raise TransactionStateError(f"table {self._table.full_name}: the coordinator was aborted")
        if not self._is_closed:
            try:
                self._flush()
                self._manifests = self._groups.finish()
            except BaseException as error:
                self._failure = error
                raise
            self._is_closed = True
        return self._manifests

    def abort(self) -> None:
        """Delete everything that this attempt wrote. May be called twice, and after :meth:`close`.

        Raises:
            DeltaWriteError: If a file cannot be deleted. It stays hidden in the staging directory.
        """
        self._is_aborted = True
        self._pending.clear()
        self._manifests = ()
        self._groups.discard()

    def _abort_after_error(self) -> None:
        try:
            self.abort()
        except (MutationError, OSError) as error:
            logger.warning("table %s: cleaning up after an error failed: %s", self._table.full_name, error)

    # ---- records

    def _add(
        self, operation: Operation, values: PartitionValues | None, record: Record | pa.RecordBatch | pa.Table
    ) -> None:
        self._check_usable()
        try:
            name = self._partitions.of(values)
            if isinstance(record, _BATCH_TYPES):
                self._flush()
                self._add_batch(operation, name, record)
                return
            if self._pending.partition_name != name:
                self._flush()
                self._pending.partition_name = name
            self._pending.append(operation, record)
            if len(self._pending) >= self._options.batch_rows:
                self._flush()
        except BaseException as error:
            # A part of a batch may have been written.
            self._failure = error
            raise

    def _add_batch(self, operation: Operation, name: str, batch: pa.RecordBatch | pa.Table) -> None:
        records = self._inspector.of_batch(batch, with_columns=operation is not Operation.DELETE)
        if batch.num_rows:
            self._write_records(name, np.full(batch.num_rows, operation, np.int8), records)

    def _flush(self) -> None:
        """Write the collected single records."""
        if not self._pending:
            return
        try:
            operations, records = self._pending.batch()
            self._write_records(self._pending.partition_name, operations, records)
        except (RecordLayoutError, RecordValueError) as error:
            named = self._pending.blamed(error)
            if named is error:
                raise
            raise named from error
        finally:
            self._pending.clear()

    def _write_records(self, name: str, operations: NDArray[np.int8], records: Records) -> None:
        """Check n records of one partition, find their buckets, and write them group by group."""
        deletes = operations == Operation.DELETE
        row_ids = records.row_ids
        rows = None
        changes = self._checks.of_records(name, operations, records)
        if records.columns is not None and not deletes.all():
            rows = self._inspector.rows(records.columns, deletes)
        buckets = self._checks.buckets(changes, rows)
        for start, stop in _runs(buckets):
            self._groups.write(
                name,
                int(buckets[start]),
                operations[start:stop],
                row_ids.numbers.take(slice(start, stop)),
                None if rows is None else rows.slice(start, stop - start),
            )

    def _write_events(
        self,
        name: str,
        bucket_id: int,
        operations: NDArray[np.int8],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        deletes = operations == Operation.DELETE
        if deletes.all():
            rows = None
        if rows is not None:
            rows = self._inspector.rows(self._inspector.struct_columns(rows), deletes)
        self._groups.write(name, int(bucket_id), operations, row_ids, rows)

    # ---- state

    def _check_usable(self) -> None:
        if self._is_aborted:
            state = "was aborted"
        elif self._is_closed:
            state = "is closed"
        elif self._failure is not None:
            state = f"failed earlier ({self._failure}); abort it"
        else:
            return
        raise TransactionStateError(
            f"table {self._table.full_name}: the coordinator {state}; it accepts no more records"
        )


def _runs(buckets: NDArray[np.integer]) -> list[tuple[int, int]]:
    """Return (start, stop) of each run of equal numbers."""
    starts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist()]
    return list(zip(starts, [*starts[1:], len(buckets)], strict=True))


def _with_compression(options: WriterOptions, table: AcidTable) -> WriterOptions:
    compression = (options.compression or table.compression).lower()
    readable = table.version.compressions
    if compression not in readable:
        raise ConfigurationError(
            f"table {table.full_name}: its Hive cannot read compression {compression!r}; expected one of "
            f"{', '.join(readable)}; set WriterOptions(compression=...)"
        )
    return dataclasses.replace(options, compression=compression)
