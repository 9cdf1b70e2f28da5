"""RecordChecks: what must hold of records before any of them is written."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.acid.bucket_codec import MAX_BUCKETS, bucket_ids, unreadable_properties
from mutation_api.acid.event import Operation
from mutation_api.acid.row_id import RecordIdentifier, RowIdArrays
from mutation_api.bucketing.bucket_resolver import BucketIdResolver
from mutation_api.errors import (
    BucketIdError,
    ConfigurationError,
    RecordLayoutError,
    RecordValueError,
    TableNotMutableError,
)
from mutation_api.table.acid_table import AcidTable
from mutation_api.worker.record_inspector import Records

__all__ = ["RecordChecks"]


class RecordChecks:
    """Checks of n records of one partition, called after what they look at; ``name`` is the partition's.

    The order of records is the validators' affair, their values are the inspector's.

    Args:
        table: whose records.
        insert_bucket_id: where inserts go if the table is not bucketed.

    Raises:
        ConfigurationError: ``insert_bucket_id`` is no bucket id.
        TableNotMutableError: see :class:`BucketIdResolver`.
    """

    def __init__(self, table: AcidTable, insert_bucket_id: int = 0) -> None:
        if not 0 <= insert_bucket_id < MAX_BUCKETS:
            raise ConfigurationError(
                f"insert_bucket_id {insert_bucket_id} is not within 0..{MAX_BUCKETS - 1}"
            )
        self._table = table
        self._txn_id = table.required_txn_id()
        self._write_id = table.required_write_id()
        self._insert_bucket_id = insert_bucket_id
        self._resolver = BucketIdResolver(table) if table.is_bucketed else None

    def where(self, name: str) -> str:
        """Table and partition, for messages."""
        partition = f", partition {name!r}" if self._table.partition_keys else ""
        return f"table {self._table.full_name}{partition}"

    def operations(self, name: str, operations: np.ndarray) -> None:
        """Codes that exist, and that the table's format knows.

        Raises:
            RecordLayoutError: there is no such operation.
            TableNotMutableError: the table takes inserts only.
        """
        if not len(operations):
            return
        if not Operation.INSERT <= operations.min() <= operations.max() <= Operation.DELETE:
            raise RecordLayoutError(
                f"{self.where(name)}: operation codes from {operations.min()} to {operations.max()}; "
                "there are 0 (insert), 1 (update) and 2 (delete)"
            )
        if not self._table.version.has_row_ids and operations.max() > Operation.INSERT:
            found = Operation(operations[np.argmax(operations > Operation.INSERT)]).name.lower()
            raise TableNotMutableError(
                f"{self.where(name)}: the {found} of a row cannot be written, because rows of an insert-only "
                "table have no ROW__ID; insert only, or make it a full ACID table "
                "(transactional_properties=default)"
            )

    def lengths(
        self,
        name: str,
        operations: np.ndarray,
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        """As many of each. Raises RecordLayoutError."""
        count = len(operations)
        lengths = [
            len(row_ids.original_txns),
            len(row_ids.buckets),
            len(row_ids.row_ids),
            count if rows is None else len(rows),
        ]
        if lengths != [count] * len(lengths):
            raise RecordLayoutError(
                f"{self.where(name)}: {count} operations with {lengths[0]} original_txns, {lengths[1]} "
                f"buckets, {lengths[2]} row_ids and {lengths[3]} rows; there must be as many of each"
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
        self.identities(name, ids.numbers.take(existing))
        if ids.partitions is not None:
            self._check_partitions(name, ids.partitions.filter(pa.array(existing)))

    def bucket_range(self, name: str, buckets: np.ndarray) -> None:
        """The table has these buckets (plain ids). Raises BucketIdError."""
        wrong = (buckets < 0) | (buckets >= self._table.bucket_limit)
        if wrong.any():
            raise BucketIdError(
                f"{self.where(name)}: there is no bucket {int(buckets[np.argmax(wrong)])}; the table has "
                f"{self._table.bucket_limit}, numbered from 0. No reader would open its file"
            )

    def identities(self, name: str, row_ids: RowIdArrays, bucket_id: int | None = None) -> None:
        """Rows that existed before this transaction, in buckets of the table.

        Args:
            name: the partition.
            row_ids: of updates and deletes, at least one.
            bucket_id: the only bucket (plain id) that they may name, if given.

        Raises:
            BucketIdError: another bucket, or one that the table cannot have.
            RecordValueError: any other number that no row has.
        """
        ids = self.plain_bucket_ids(name, row_ids.buckets)
        if bucket_id is None:
            self.bucket_range(name, ids)
        elif (ids != bucket_id).any():
            found = row_ids.at(int(np.argmax(ids != bucket_id)))
            raise BucketIdError(
                f"{self.where(name)}: ROW__ID {tuple(found)} is not of bucket {bucket_id}; readers ignore a "
                "delete in another bucket's file: group changes by the bucket that their ROW__IDs name"
            )
        txns, numbers = row_ids.original_txns, row_ids.row_ids
        wrong = (txns < 0) | (numbers < 0) | (txns >= self._write_id)
        if wrong.any():
            raise RecordValueError(
                f"{self.where(name)}: ROW__ID {tuple(row_ids.at(int(np.argmax(wrong))))} names no row that "
                f"existed before {self._own_id()}; take ROW__IDs from a snapshot of this transaction"
            )

    def plain_bucket_ids(self, name: str, buckets: np.ndarray) -> np.ndarray:
        """Plain ids of what ROW__IDs call their bucket. Raises BucketIdError for what cannot be read."""
        if not self._table.version.encodes_buckets:
            return buckets
        unreadable = unreadable_properties(buckets)
        if unreadable.any():
            raise BucketIdError(
                f"{self.where(name)}: {int(buckets[np.argmax(unreadable)])} is no bucket property that Hive "
                "could have written (536870912 is that of bucket 0, statement 0); take ROW__IDs from a "
                "snapshot and leave them as they are"
            )
        return bucket_ids(buckets)

    def buckets(
        self, name: str, operations: np.ndarray, records: Records, rows: pa.StructArray | None
    ) -> npt.NDArray[np.integer]:
        """Plain bucket id of each record.

        Of deletes the ROW__ID's. Of inserts the computed one, or that of this writer if the table is not
        bucketed. Of updates the ROW__ID's, which must be the computed one unless Hive itself misplaces rows.

        Raises:
            BucketIdError: a ROW__ID names another bucket than the computed one.
        """
        row_ids = records.row_ids
        found = self.plain_bucket_ids(name, np.where(row_ids.is_null, 0, row_ids.numbers.buckets))
        inserts = operations == Operation.INSERT
        if self._resolver is None:
            return np.where(inserts, self._insert_bucket_id, found)
        if rows is None:
            return found
        computed = np.asarray(self._resolver.resolve(pa.RecordBatch.from_struct_array(rows)))
        judged = inserts if self._table.version.keeps_misplaced_rows else operations != Operation.DELETE
        wrong = judged & ~row_ids.is_null & (found != computed)
        if wrong.any():
            at = int(np.argmax(wrong))
            identity = row_ids.numbers.at(at)
            raise self._wrong_bucket(
                name, Operation(operations[at]), identity, int(found[at]), int(computed[at])
            )
        return np.where(judged, computed, found)

    def _own_id(self) -> str:
        transaction = f"transaction {self._txn_id}"
        return (
            f"write id {self._write_id} of {transaction}" if self._write_id != self._txn_id else transaction
        )

    def _check_partitions(self, name: str, partitions: pa.StringArray) -> None:
        others = pc.not_equal(pc.fill_null(partitions, name), name)
        if pc.any(others).as_py():
            found = partitions[pc.index(others, True).as_py()].as_py()
            raise RecordValueError(
                f"{self.where(name)}: a ROW__ID belongs to partition {found!r}; a row cannot be updated or "
                "deleted from another partition: to move it, delete it there and insert it here"
            )

    def _wrong_bucket(
        self, name: str, operation: Operation, identity: RecordIdentifier, found: int, computed: int
    ) -> BucketIdError:
        advice = (
            "leave ROW__ID null for inserts, or attach the bucket that BucketIdResolver computes"
            if operation is Operation.INSERT
            else "an update cannot move a row to another bucket: delete it and insert it again"
        )
        return BucketIdError(
            f"{self.where(name)}: the {operation.name.lower()} of a record whose columns "
            f"{list(self._table.bucket_columns)} belong to bucket {computed} carries bucket {found} "
            f"(ROW__ID {tuple(identity)}); {advice}"
        )
