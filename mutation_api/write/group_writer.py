"""GroupWriter: write groups of records, one after the other, to staged files.

One group is open at a time, so a thousand partitions need only one encoder. Files of earlier groups are
closed in the background.

Two validators check the order in which records arrive, including the current record itself. Hive's own API
checked neither the first record of a group nor the bucket of the current record. Measured: it accepted a
wrong first record, so that old row versions reappeared, and it rejected a correct order.

Single records wait until they are split into columns and returned as a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import (
    DeltaWriteError,
    GroupRevisitedError,
    MutationError,
    RecordLayoutError,
    RecordSequenceError,
    RecordValueError,
)
from mutation_api.format.event import ROW_ID_COLUMN, Mask, Operation, RecordIdentifier, RowIdArrays, RowIds
from mutation_api.orc.write.encoders import BYTES_PER_GIVING_BACK, give_back
from mutation_api.storage.connect import storage_at
from mutation_api.storage.tree import Background, side_by_side
from mutation_api.table.acid_table import AcidTable, WriterOptions
from mutation_api.transaction.manifest import DeltaManifest
from mutation_api.write.change_rules import Changes, check_operations, check_row_ids
from mutation_api.write.constraint_checks import ConstraintChecks
from mutation_api.write.mutator import FinishedFile, Mutator, MutatorGroup
from mutation_api.write.record_inspector import RecordInspector, RecordLayout, Records, RowIdParts
from mutation_api.write.staged_writer import AttemptStaging, WritePermissions


class GroupingValidator:
    """Rejects a (partition, bucket) that occurs again: its file is closed, and a second file would hide rows.

    It stores each partition's name and one bit for each bucket number up to the partition's highest.
    """

    def __init__(self, table_name: str) -> None:
        self._table_name = table_name
        self._buckets_by_partition: dict[str, int] = {}
        self._last: tuple[str, int] | None = None

    def enter(self, partition_name: str, bucket_id: int) -> bool:
        """Record the group of the next record.

        Returns:
            True if this begins a new group.

        Raises:
            GroupRevisitedError: If the group has already been completed.
        """
        if self._last == (partition_name, bucket_id):
            return False
        seen = self._buckets_by_partition.get(partition_name, 0)
        if seen >> bucket_id & 1:
            raise GroupRevisitedError(
                f"table {self._table_name}, partition {partition_name!r}, bucket {bucket_id}: it occurs "
                f"again after group {self._last}; records must arrive grouped by partition and bucket: "
                "sort them"
            )
        self._buckets_by_partition[partition_name] = seen | 1 << bucket_id
        self._last = (partition_name, bucket_id)
        return True


class SequenceValidator:
    """Rejects updates and deletes of a group that do not ascend strictly by (original_txn, bucket, row_id).

    Readers merge by this order. Out of order, they show old row versions or deleted rows. ROW__IDs of inserts
    are ignored. The first record is also checked.

    Args:
        group: table, partition and bucket, for messages.
        inserts_last: True to reject an update or delete after an insert. In v1 legacy tables all are in one
            file, and inserts have the highest original_txn.
    """

    def __init__(self, group: str, *, inserts_last: bool) -> None:
        self._group = group
        self._inserts_last = inserts_last
        self._insert_seen = False
        self._last: RecordIdentifier | None = None

    def check(self, operations: NDArray[np.int8], row_ids: RowIdArrays) -> None:
        """Check the next n records. An error leaves the validator unchanged.

        Args:
            operations: codes of :class:`Operation`, shape (n,).
            row_ids: ROW__IDs of n records.

        Raises:
            RecordSequenceError: If records are out of order. The message names both.
        """
        existing = operations != Operation.INSERT
        insert_seen = self._insert_seen or not existing.all()
        if self._inserts_last and insert_seen:
            self._check_inserts_last(existing, row_ids)
        kept = row_ids if existing.all() else row_ids.take(existing)
        if len(kept):
            self._check_ascending(kept)
            self._last = kept.at(-1)
        self._insert_seen = insert_seen

    def _check_inserts_last(self, existing: Mask, row_ids: RowIdArrays) -> None:
        after = 0 if self._insert_seen else int(np.argmin(existing))
        late = np.flatnonzero(existing[after:])
        if len(late):
            at = after + int(late[0])
            raise RecordSequenceError(
                f"{self._group}: the update or delete of ROW__ID {tuple(row_ids.at(at))} follows an "
                "insert; in this table's format, inserts come last in their group: sort them after the "
                "others"
            )

    def _check_ascending(self, row_ids: RowIdArrays) -> None:
        if self._last is not None and row_ids.at(0) <= self._last:
            raise self._descends(self._last, row_ids.at(0))
        ascends = row_ids.ascend()
        if not ascends.all():
            at = int(np.argmin(ascends))
            raise self._descends(row_ids.at(at), row_ids.at(at + 1))

    def _descends(self, before: RecordIdentifier, found: RecordIdentifier) -> RecordSequenceError:
        if before == found:
            return RecordSequenceError(
                f"{self._group}: the ROW__ID {tuple(found)} occurs twice; a change set may update or "
                "delete a row only once"
            )
        return RecordSequenceError(
            f"{self._group}: ROW__ID {tuple(found)} comes after {tuple(before)}; updates and deletes of a "
            "group must ascend by (original_txn, bucket, row_id): sort them"
        )


class GroupWriter:
    """Writes checked records of known buckets, and checks the order in which they arrive.

    Args:
        table: a table that is bound to a transaction.
        staging: the directories of the files.
        options: options of the files.
        row_type: row type of a group that begins with deletes. Otherwise the type of the first rows is used.
    """

    def __init__(
        self, table: AcidTable, staging: AttemptStaging, options: WriterOptions, row_type: pa.StructType
    ) -> None:
        self._table = table
        self._staging = staging
        self._options = options
        self._row_type = row_type
        self._grouping = GroupingValidator(table.full_name)
        self._constraints = ConstraintChecks(table)
        self._sequence: SequenceValidator | None = None
        self._mutator: Mutator | None = None
        self._group_count = 0
        self._bytes_till_giving_back = BYTES_PER_GIVING_BACK
        self._finished: list[FinishedFile] = []
        self._background = Background()
        self._permissions = WritePermissions(table.full_name, self._background)

    def write(
        self,
        partition_name: str,
        bucket_id: int,
        operations: NDArray[np.int8],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        """Append n records to their group. The group is opened if they are its first.

        Args:
            partition_name: the escaped name; '' if the table is not partitioned.
            bucket_id: the plain bucket id, which is the number of the file.
            operations: int8, shape (n,), codes of :class:`Operation`.
            row_ids: ROW__IDs of n records. Those of inserts are ignored.
            rows: n rows with the table's types. May be None if all records are deletes.

        Raises:
            GroupRevisitedError: If the group has already been completed.
            RecordSequenceError: If the records are out of order, or one ROW__ID occurs twice.
            RecordValueError: If ORC cannot hold a value.
            ConstraintViolationError: If a new row violates a constraint of the table.
            DeltaWriteError: If a file cannot be written, or this user may not write to the partition.
        """
        if self._grouping.enter(partition_name, bucket_id):
            self._close_group()
            group = self._group(partition_name, bucket_id)
            row_type = self._row_type if rows is None else rows.type
            self._mutator = Mutator(group, row_type, self._options)
            self._sequence = SequenceValidator(
                str(group), inserts_last=not self._table.version.splits_updates
            )
        assert self._mutator is not None
        assert self._sequence is not None
        self._sequence.check(operations, row_ids)
        if rows is not None and self._constraints:
            self._constraints.check(operations != Operation.DELETE, rows, str(self._mutator.group))
        self._mutator.write(operations, row_ids, rows)

    def finish(self) -> tuple[DeltaManifest, ...]:
        """Complete the last group, wait until all files are closed, and return a manifest for each file.

        Raises:
            DeltaWriteError: If a file cannot be completed, or the transaction has ended.
        """
        self._close_group()
        self._background.finish()
        self._staging.check_marks()
        return tuple(file.manifest() for file in self._finished)

    def discard(self) -> None:
        """Delete everything that was written. May be called twice.

        Raises:
            DeltaWriteError: If a file cannot be deleted. It stays hidden in the staging directory.
        """
        mutator, self._mutator = self._mutator, None
        finished, self._finished = self._finished, []
        self._background.stop()
        is_discarded = False
        try:
            if mutator is not None:
                mutator.discard()
            threads = storage_at(self._table.location).threads
            side_by_side(lambda each: each.file.discard(), finished, threads)
            is_discarded = True
        except OSError as error:
            raise DeltaWriteError(
                f"table {self._table.full_name}: files of this attempt could not be deleted: {error}"
            ) from error
        finally:
            self._staging.delete(keeps_marks=not is_discarded)

    def _close_group(self) -> None:
        if self._mutator is None:
            return
        finished = self._mutator.finish()
        self._mutator = None
        self._finished.extend(finished)
        for each in finished:
            threads = storage_at(each.group.directory).threads
            self._background.submit(each.close, each.facts.byte_count, threads)
        self._bytes_till_giving_back -= sum(each.facts.byte_count for each in finished)
        if self._bytes_till_giving_back <= 0:
            # An encoder fills only a part of its buffers, and the next encoder gets other memory.
            self._bytes_till_giving_back = BYTES_PER_GIVING_BACK
            give_back()

    def _group(self, partition_name: str, bucket_id: int) -> MutatorGroup:
        location = self._table.partition_location(partition_name)
        self._permissions.ask(location)
        directory = self._staging.directory(location)
        prefix = str(self._group_count)
        self._group_count += 1
        return MutatorGroup(
            table=self._table,
            partition_name=partition_name,
            bucket_id=bucket_id,
            partition_location=location,
            directory=directory,
            hidden_prefix=prefix,
            writer_id=self._staging.writer_id,
            attempt_id=self._staging.attempt_id,
        )


LONGEST_SHOWN_RECORD = 300
"""The number of characters of a record that a message quotes. The wrong column is named before it."""
_LAYOUTS_KEPT = 64


class PendingRecords:
    """Records in the order of their arrival.

    One flat list holds the values of all records. A tuple for each record would be an object that Python's
    garbage collector visits repeatedly while it waits. Most records have the same names, so layouts are
    cached by names.

    Attributes:
        partition_name: the partition of all records.
    """

    def __init__(self, table: AcidTable, inspector: RecordInspector) -> None:
        self.partition_name = ""
        self._table = table
        self._inspector = inspector
        self._layouts: tuple[dict[tuple[str, ...], RecordLayout], ...] = tuple({} for _ in Operation)
        self._operations = bytearray()
        self._row_ids: list[Any] = []
        self._values: list[Any] = []

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._operations)

    def __iter__(self) -> Iterator[tuple[Operation, list[Any], list[Any]]]:
        """Yield operation, parts of ROW__ID and values in table order (nulls for a delete) of each record."""
        count = len(self) or 1
        parts, width = len(self._row_ids) // count, len(self._values) // count
        for number, code in enumerate(self._operations):
            row_id = self._row_ids[number * parts : (number + 1) * parts]
            yield Operation(code), row_id, self._values[number * width : (number + 1) * width]

    def append(self, operation: Operation, record: Mapping[str, Any]) -> None:
        """Append a record. A record that is rejected is not appended.

        Raises:
            RecordLayoutError: If it is not a mapping, if names are missing, extra or duplicate, or if ROW__ID
                has another type.
            RecordValueError: If an update or delete lacks its ROW__ID or a part of it.
        """
        if type(record) is not dict and not isinstance(record, Mapping):
            raise self._inspector.no_record(record)
        names = tuple(record)
        layout = self._layouts[operation].get(names) or self._new_layout(operation, names)
        row_id, values = layout.row_id(record), layout.values(record)
        # The last part, the partition, is optional.
        if operation is not Operation.INSERT and None in row_id[:-1]:
            self._refuse_row_id(operation, row_id)
        self._operations.append(operation)
        self._row_ids += row_id
        self._values += values

    def batch(self) -> tuple[NDArray[np.int8], Records]:
        """Return all records: codes of :class:`Operation`, ROW__IDs and columns (nulls for deletes).

        Raises:
            RecordLayoutError, RecordValueError: See :func:`array_of`.
        """
        operations = np.frombuffer(bytes(self._operations), np.int8)
        return operations, self._inspector.of_parts(self._row_ids, self._values)

    def blamed(self, error: MutationError) -> MutationError:
        """Return the error with the record that causes it.

        Row numbers of the collected batch have no meaning for the caller.
        """
        for operation, row_id, values in self:
            try:
                records = self._inspector.of_parts(row_id, values)
                if operation is not Operation.DELETE:
                    self._inspector.rows(records.columns or ())
            except (RecordLayoutError, RecordValueError) as found:
                return type(found)(f"{found}; {self._described(operation, row_id, values)}")
        return error

    def clear(self) -> None:
        """Remove all records."""
        self._operations = bytearray()
        self._row_ids = []
        self._values = []

    def _described(self, operation: Operation, row_id: list[Any], values: list[Any]) -> str:
        named = dict(zip(self._table.column_names, values, strict=True))
        shown = str(None if operation is Operation.DELETE else named)[:LONGEST_SHOWN_RECORD]
        identity = "" if row_id[0] is None else f" with {ROW_ID_COLUMN} {tuple(row_id[:-1])}"
        return f"{operation.name.lower()} of record {shown}{identity}"

    def _refuse_row_id(self, operation: Operation, row_id: RowIdParts) -> None:
        """Raise the error immediately, because the wrong record is the current one."""
        parts = (pa.array([part], pa.int64()) for part in row_id[:-1])
        row_ids = RowIds.of_columns(parts, pa.array(row_id[-1:], pa.string()))
        changes = Changes(self._table, np.array([operation]), row_ids, self.partition_name)
        check_operations(changes)
        check_row_ids(changes)

    def _new_layout(self, operation: Operation, names: tuple[str, ...]) -> RecordLayout:
        layouts = self._layouts[operation]
        if len(layouts) >= _LAYOUTS_KEPT:
            layouts.clear()
        layouts[names] = self._inspector.layout(
            names,
            with_columns=operation is not Operation.DELETE,
        )
        return layouts[names]
