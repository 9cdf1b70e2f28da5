"""Rules for the order in which records arrive; both check the current record itself.

Hive's own API checked neither the first record of a group nor the bucket of the current record. Measured: a
wrong first record was accepted and old row versions came back, and a right order was refused.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mutation_api.acid.event import Operation
from mutation_api.acid.row_id import RecordIdentifier, RowIdArrays
from mutation_api.errors import GroupRevisitedError, RecordSequenceError
from mutation_api.worker.row_ids import Mask

__all__ = ["GroupingValidator", "SequenceValidator"]


class GroupingValidator:
    """Refuses a (partition, bucket) that occurs again: its file is closed, and a second file would hide rows.

    It stores each partition's name and one bit for each bucket number up to the partition's highest.
    """

    def __init__(self, table_name: str) -> None:
        self._table_name = table_name
        self._buckets_by_partition: dict[str, int] = {}
        self._last: tuple[str, int] | None = None

    def enter(self, partition_name: str, bucket_id: int) -> bool:
        """Record the group of the next record.

        Returns:
            Whether this begins a new group.

        Raises:
            GroupRevisitedError: the group is complete already.
        """
        if self._last == (partition_name, bucket_id):
            return False
        seen = self._buckets_by_partition.get(partition_name, 0)
        if seen >> bucket_id & 1:
            raise GroupRevisitedError(
                f"table {self._table_name}, partition {partition_name!r}, bucket {bucket_id}: it comes back "
                f"after group {self._last}; records must arrive grouped by partition and bucket: sort them"
            )
        self._buckets_by_partition[partition_name] = seen | 1 << bucket_id
        self._last = (partition_name, bucket_id)
        return True


class SequenceValidator:
    """Refuses updates and deletes of one group that do not ascend strictly by (original_txn, bucket, row_id).

    Readers merge by this order. Out of order, they show old row versions or deleted rows. ROW__IDs of inserts
    are ignored. The first record is checked too.

    Args:
        group: table, partition and bucket, for messages.
        inserts_last: refuse an update or delete after an insert (v1 legacy: all are in one file, and inserts
            have the highest original_txn).
    """

    def __init__(self, group: str, *, inserts_last: bool) -> None:
        self._group = group
        self._inserts_last = inserts_last
        self._insert_seen = False
        self._last: RecordIdentifier | None = None

    def check(self, operations: NDArray[np.int8], row_ids: RowIdArrays) -> None:
        """Check the next n records; an error leaves the validator unchanged.

        Args:
            operations: codes of :class:`Operation`, shape (n,).
            row_ids: ROW__IDs of n records.

        Raises:
            RecordSequenceError: records are out of order; the message names both.
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
                f"{self._group}: the update or delete of ROW__ID {tuple(row_ids.at(at))} follows an insert; "
                "in this table's format inserts come last in their group: sort them after the others"
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
                f"{self._group}: the ROW__ID {tuple(found)} occurs twice; "
                "a change set may update or delete a row only once"
            )
        return RecordSequenceError(
            f"{self._group}: ROW__ID {tuple(found)} comes after {tuple(before)}; updates and deletes of a "
            "group must ascend by (original_txn, bucket, row_id): sort them"
        )
