"""GroupWriter: writes groups of records, one after the other, to staged files.

One group is open at a time, so a thousand partitions cost one encoder. Files of earlier groups are closed in
the background.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.acid.event import Operation
from mutation_api.acid.row_id import RowIdArrays
from mutation_api.commit.manifest import DeltaManifest
from mutation_api.errors import DeltaWriteError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.side_by_side import Background, side_by_side
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.writer_options import WriterOptions
from mutation_api.worker.attempt_staging import AttemptStaging
from mutation_api.worker.constraint_checks import ConstraintChecks
from mutation_api.worker.idle_memory import give_back
from mutation_api.worker.mutator import FinishedFile, Mutator, MutatorGroup
from mutation_api.worker.validators import GroupingValidator, SequenceValidator
from mutation_api.worker.write_permissions import WritePermissions

__all__ = ["GroupWriter"]

BYTES_PER_GIVING_BACK = 4 * 1024 * 1024
"""Bytes written between two calls of :func:`give_back`. One takes 1 to 4 ms, 1 % of the writing time."""


class GroupWriter:
    """Writes checked records of known buckets, and checks the order in which they arrive.

    Args:
        table: bound to a transaction.
        staging: directories of the files.
        options: options of the files.
        row_type: row type of a group that begins with deletes; otherwise the type of the first rows is used.
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
        """Append n records to their group, which is opened if they are its first.

        Args:
            partition_name: escaped; '' if the table is not partitioned.
            bucket_id: plain bucket id, the number of the file.
            operations: int8, shape (n,), codes of :class:`Operation`.
            row_ids: ROW__IDs of n records; those of inserts are ignored.
            rows: n rows with the table's types; may be None if all records are deletes.

        Raises:
            GroupRevisitedError: the group is complete already.
            RecordSequenceError: the records are out of order, or one ROW__ID occurs twice.
            RecordValueError: ORC cannot hold a value.
            ConstraintViolationError: a new row breaks a constraint of the table.
            DeltaWriteError: a file could not be written, or this user may not write to the partition.
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
            DeltaWriteError: a file could not be completed, or the transaction has ended.
        """
        self._close_group()
        self._background.finish()
        self._staging.check_marks()
        return tuple(file.manifest() for file in self._finished)

    def discard(self) -> None:
        """Delete everything that was written. May be called twice.

        Raises:
            DeltaWriteError: a file could not be deleted; it stays hidden in the staging directory.
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
