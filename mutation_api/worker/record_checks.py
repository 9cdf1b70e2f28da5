"""RecordChecks: what must hold of records before any of them is written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.acid.bucket_resolver import BucketIdResolver
from mutation_api.acid.event import Operation
from mutation_api.acid.row_id import RecordIdentifier
from mutation_api.errors import BucketIdError, RecordLayoutError, RecordValueError
from mutation_api.table.acid_table import AcidTable
from mutation_api.worker.record_inspector import Records

__all__ = ["RecordChecks"]


class RecordChecks:
    """Checks of n records of one partition, called after what they look at; ``name`` is the partition's.

    The order of records is the validators' affair, their values are the inspector's.
    """

    def __init__(self, table: AcidTable) -> None:
        self._table = table
        self._txn_id = table.required_txn_id()
        self._resolver = BucketIdResolver(table)

    def where(self, name: str) -> str:
        """Table and partition, for messages."""
        partition = f", partition {name!r}" if self._table.partition_keys else ""
        return f"table {self._table.full_name}{partition}"

    def lengths(
        self,
        name: str,
        operations: np.ndarray,
        original_txns: np.ndarray,
        row_ids: np.ndarray,
        rows: pa.StructArray | None,
    ) -> None:
        """As many of each, and operation codes that exist. Raises RecordLayoutError."""
        count = len(operations)
        lengths = [len(original_txns), len(row_ids), count if rows is None else len(rows)]
        if lengths != [count] * 3:
            raise RecordLayoutError(
                f"{self.where(name)}: {count} operations with {lengths[0]} original_txns, {lengths[1]} "
                f"row_ids and {lengths[2]} rows; there must be as many of each"
            )
        if count and not Operation.INSERT <= operations.min() <= operations.max() <= Operation.DELETE:
            raise RecordLayoutError(
                f"{self.where(name)}: operation codes from {operations.min()} to {operations.max()}; "
                "there are 0 (insert), 1 (update) and 2 (delete)"
            )

    def row_ids(self, name: str, operations: np.ndarray, records: Records) -> None:
        """ROW__IDs of updates and deletes. Raises RecordValueError, BucketIdError."""
        ids = records.row_ids
        existing = operations != Operation.INSERT
        if not existing.any():
            return
        if ids.is_null[existing].any():
            raise RecordValueError(
                f"{self.where(name)}: ROW__ID of an update or delete is null, or has no bucket"
            )
        self.bucket_range(name, ids.buckets[existing])
        self.identities(name, ids.original_txns[existing], ids.row_ids[existing])
        if ids.partitions is not None:
            self._check_partitions(name, ids.partitions.filter(pa.array(existing)))

    def bucket_range(self, name: str, buckets: np.ndarray) -> None:
        """The table has these buckets. Raises BucketIdError."""
        wrong = (buckets < 0) | (buckets >= self._table.num_buckets)
        if wrong.any():
            raise BucketIdError(
                f"{self.where(name)}: there is no bucket {int(buckets[np.argmax(wrong)])}; the table has "
                f"{self._table.num_buckets}, numbered from 0. No reader would open its file"
            )

    def identities(self, name: str, txns: np.ndarray, row_ids: np.ndarray) -> None:
        """Rows that existed before this transaction. Raises RecordValueError."""
        wrong = (txns < 0) | (row_ids < 0) | (txns >= self._txn_id)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise RecordValueError(
                f"{self.where(name)}: ROW__ID with (original_txn, row_id) {int(txns[at]), int(row_ids[at])} "
                f"names no row that existed before transaction {self._txn_id}; "
                "take ROW__IDs from a snapshot of this transaction"
            )

    def _check_partitions(self, name: str, partitions: pa.StringArray) -> None:
        others = pc.not_equal(pc.fill_null(partitions, name), name)
        if pc.any(others).as_py():
            found = partitions[pc.index(others, True).as_py()].as_py()
            raise RecordValueError(
                f"{self.where(name)}: a ROW__ID belongs to partition {found!r}; a row cannot be updated or "
                "deleted from another partition: to move it, delete it there and insert it here"
            )

    def buckets(
        self, name: str, operations: np.ndarray, records: Records, rows: pa.StructArray
    ) -> np.ndarray:
        """Bucket of each record: of deletes the ROW__ID's; else the computed one, which must agree.

        Raises:
            BucketIdError: it does not.
        """
        ids = records.row_ids
        computed = np.asarray(self._resolver.resolve(pa.RecordBatch.from_struct_array(rows)))
        deletes = operations == Operation.DELETE
        buckets = np.where(deletes, ids.buckets, computed)
        wrong = ~deletes & ~ids.is_null & (ids.buckets != computed)
        if wrong.any():
            at = int(np.argmax(wrong))
            identity = RecordIdentifier(
                int(ids.original_txns[at]), int(ids.buckets[at]), int(ids.row_ids[at])
            )
            raise self._wrong_bucket(name, Operation(operations[at]), identity, int(computed[at]))
        return buckets

    def _wrong_bucket(
        self, name: str, operation: Operation, found: RecordIdentifier, computed: int
    ) -> BucketIdError:
        advice = (
            "leave ROW__ID null for inserts, or attach the bucket that BucketIdResolver computes"
            if operation is Operation.INSERT
            else "an update cannot move a row to another bucket: delete it and insert it again"
        )
        return BucketIdError(
            f"{self.where(name)}: the {operation.name.lower()} of a record whose columns "
            f"{list(self._table.bucket_columns)} belong to bucket {computed} carries bucket {found.bucket} "
            f"(ROW__ID {tuple(found)}); {advice}"
        )
