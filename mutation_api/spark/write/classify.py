"""Where each change goes: partition, bucket, operation and ROW__ID of a batch, checked. Pure Arrow and numpy.

Runs in Spark's Python workers, before the shuffle: everything that can be wrong with the address of a change
is found here, while nothing has been written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.valid_ids import ValidIdList
from mutation_api.acid.bucket_codec import bucket_ids, unreadable_properties
from mutation_api.acid.event import Operation
from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.bucketing.bucket_resolver import BucketIdResolver
from mutation_api.errors import (
    BucketIdError,
    RecordLayoutError,
    RecordValueError,
    RowIdNotFoundError,
    TableNotMutableError,
)
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import partition_names

__all__ = ["ADDRESS_TYPE", "OPERATION_NAMES", "ChangeClassifier"]

OPERATION_NAMES = ("insert", "update", "delete")
"""Texts of the operation column, at the place of their :class:`~mutation_api.acid.event.Operation` code."""

_CODES = {name: code for code, name in enumerate(OPERATION_NAMES)}
_UNKNOWN = -1

ADDRESS_TYPE = pa.struct(
    [
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("operation", pa.int8()),
        ("txn", pa.int64()),
        ("bucket_property", pa.int32()),
        ("row_id", pa.int64()),
    ]
)
"""Address of a change: where it goes, what it is, and the ROW__ID of its row, the bucket field verbatim.

An insert carries the own id (write id, in v1 transaction id) and so sorts behind every existing row.
"""

SAMPLE_ROWS = 3
SHOWN_CHARACTERS = 60
"""Of one value, in a message; a long text would bury the rule."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ChangeClassifier:
    """Gives every change of a batch its address, or refuses the batch.

    ``missing_columns`` are columns of the table that the change set leaves out; only deletes may do without.
    ``has_partition_columns`` false: the partition is taken from ROW__ID's own field ``partition``.
    ``valid_ids`` are those of the transaction's snapshot: write ids of the table, in v1 transaction ids.
    """

    table: AcidTable
    valid_ids: ValidIdList
    missing_columns: tuple[str, ...] = ()
    has_partition_columns: bool = True

    def classify(
        self,
        operations: pa.Array,
        row_ids: pa.StructArray | None,
        columns: pa.StructArray | None,
        writers: pa.Array | None = None,
    ) -> pa.StructArray:
        """Address every change.

        Args:
            operations: n texts, 'insert', 'update' or 'delete' in any case.
            row_ids: n ROW__IDs with fields txn, bucket, row_id and, if known, partition; None if the change
                set has no such column.
            columns: n rows of the partition and bucket columns, fields in lower case; None if there are none.
            writers: n bucket ids for inserts into a table that is not bucketed; None for other tables.

        Returns:
            n addresses of ADDRESS_TYPE.

        Raises:
            RecordValueError: unknown or null operation, missing ROW__ID, or an update that leaves its
                partition.
            RecordLayoutError: an insert or update in a change set that lacks columns.
            BucketIdError: a ROW__ID of a bucket the table does not have, or an update that leaves its bucket.
            RowIdNotFoundError: a ROW__ID of a transaction that the snapshot does not see.
            TableNotMutableError: an update or delete in a table whose rows have no ROW__ID.
        """
        batch = _Batch(self.table, operations, row_ids, columns)
        batch.codes = self._operation_codes(batch)
        self._check_row_ids(batch)
        partitions, buckets = self._partitions(batch), self._buckets(batch, writers)
        return pa.StructArray.from_arrays(
            [
                partitions,
                pa.array(buckets, pa.int32()),
                pa.array(batch.codes, pa.int8()),
                pa.array(np.where(batch.inserts, self.table.required_write_id(), batch.txns), pa.int64()),
                pa.array(np.where(batch.inserts, 0, batch.buckets), pa.int32()),
                pa.array(np.where(batch.inserts, 0, batch.row_numbers), pa.int64()),
            ],
            fields=list(ADDRESS_TYPE),
        )

    def _operation_codes(self, batch: _Batch) -> npt.NDArray[np.int8]:
        encoded = batch.operations.cast(pa.string()).dictionary_encode()
        distinct = [_CODES.get(name.lower(), _UNKNOWN) for name in encoded.dictionary.to_pylist()]
        places = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
        codes: npt.NDArray[np.int8] = np.array([*distinct, _UNKNOWN], np.int8)[places]
        batch.refuse(
            codes < 0,
            RecordValueError,
            f"the operation must be one of {', '.join(map(repr, OPERATION_NAMES))}",
        )
        if self.missing_columns:
            batch.refuse(
                codes != Operation.DELETE,
                RecordLayoutError,
                f"the change set lacks the columns {', '.join(self.missing_columns)}; "
                "only a change set of deletes may leave columns out",
            )
        return codes

    def _check_row_ids(self, batch: _Batch) -> None:
        existing = ~batch.inserts
        if not self.table.version.has_row_ids:
            batch.refuse(
                existing,
                TableNotMutableError,
                "it is insert-only: its rows have no ROW__ID, so they can be neither updated nor deleted",
            )
        batch.refuse(
            existing & ~batch.has_row_id,
            RecordValueError,
            f"an update or a delete needs the {ROW_ID_COLUMN} of its row; read it with snapshot()",
        )
        self._check_buckets(batch, existing)
        own = self.table.required_write_id()
        kind = "write id" if self.table.version.uses_write_ids else "transaction"
        batch.refuse(
            existing & (~self._is_visible(batch.txns, existing) | (batch.row_numbers < 0)),
            RowIdNotFoundError,
            f"{ROW_ID_COLUMN} names a row that the snapshot of transaction {self.table.required_txn_id()} "
            f"cannot hold, or that {kind} {own} cannot change: its {kind} is negative, not below {own}, open "
            "or aborted, or its row is negative. Read the table again in this transaction",
        )

    def _check_buckets(self, batch: _Batch, existing: Mask) -> None:
        if self.table.version.encodes_buckets:
            batch.refuse(
                existing & unreadable_properties(batch.buckets),
                BucketIdError,
                f"{ROW_ID_COLUMN} has a bucket field that no Hive writes; it is not a bucket's number but "
                "holds it, so pass it on as it was read",
            )
        limit = self.table.bucket_limit
        batch.refuse(
            existing & ((batch.bucket_ids < 0) | (batch.bucket_ids >= limit)),
            BucketIdError,
            f"{ROW_ID_COLUMN} names a bucket that the table does not have: expected 0 <= bucket < {limit}",
            {"bucket": pa.array(batch.bucket_ids)},
        )

    def _is_visible(self, txns: npt.NDArray[np.int64], where: Mask) -> Mask:
        """Whether the snapshot may hold such rows; looked up once for each distinct id.

        A row with a higher write id than ours can be visible, since write ids are not given in the order of
        transactions. It is refused as well: of Hive's two readers only one would see our delete of it.
        """
        distinct, positions = np.unique(np.where(where, txns, 0), return_inverse=True)
        own = self.table.required_write_id()
        visible = [t == 0 or (0 < t < own and self.valid_ids.is_valid(t)) for t in distinct.tolist()]
        return np.asarray(visible, dtype=np.bool_)[positions]

    def _partitions(self, batch: _Batch) -> pa.Array:
        if not self.table.partition_keys:
            return pa.array([""] * len(batch), pa.string())
        if self.has_partition_columns and batch.inserts.all():
            columns = {name: batch.column(name) for name in self.table.partition_key_names}
            return partition_names(self.table, columns).cast(pa.string())
        known = batch.known_partitions()
        if not self.has_partition_columns:
            batch.refuse(
                batch.inserts | pc.is_null(known).to_numpy(zero_copy_only=False),
                RecordLayoutError,
                f"the change set lacks the partition columns {', '.join(self.table.partition_key_names)} and "
                f"{ROW_ID_COLUMN} does not tell the partition either",
            )
            return known
        is_known_delete = pc.and_(pa.array(batch.codes == Operation.DELETE), pc.is_valid(known))
        computed = self._computed_partitions(batch, pc.invert(is_known_delete))
        moved = pc.fill_null(pc.not_equal(known, computed), False).to_numpy(zero_copy_only=False)
        batch.refuse(
            moved & (batch.codes == Operation.UPDATE),
            RecordValueError,
            "an update may not move its row to another partition; delete the old row and insert the new one",
            {"partition now": known, "partition then": computed},
        )
        return pc.if_else(is_known_delete, known, computed)

    def _computed_partitions(self, batch: _Batch, wanted: pa.Array) -> pa.Array:
        """Partition names by the columns' values where wanted, null elsewhere."""
        columns = {k: batch.column(k).filter(wanted) for k in self.table.partition_key_names}
        return pc.replace_with_mask(
            pa.nulls(len(batch), pa.string()), wanted, partition_names(self.table, columns).cast(pa.string())
        )

    def _buckets(self, batch: _Batch, writers: pa.Array | None) -> npt.NDArray[np.int32]:
        """The bucket that a new row belongs to; of an existing row, the bucket of its ROW__ID."""
        buckets = batch.bucket_ids.astype(np.int32)
        if not self.table.is_bucketed:
            if batch.inserts.any():
                assert writers is not None
                np.copyto(buckets, writers.to_numpy(zero_copy_only=False), where=batch.inserts)
            return buckets
        stays_put = self.table.version.keeps_misplaced_rows
        hashed = batch.inserts if stays_put else batch.codes != Operation.DELETE
        if not hashed.any():
            return buckets
        assert batch.columns is not None
        rows = pa.RecordBatch.from_struct_array(batch.columns.filter(pa.array(hashed)))
        buckets[hashed] = BucketIdResolver(self.table).resolve(rows).to_numpy()
        batch.refuse(
            (batch.codes == Operation.UPDATE) & (buckets != batch.bucket_ids),
            BucketIdError,
            "an update may not move its row to another bucket (it changes a CLUSTERED BY column); "
            "delete the old row and insert the new one",
            {"computed bucket": pa.array(buckets)},
        )
        return buckets


class _Batch:
    """Columns of one batch as numpy arrays; values of absent ROW__IDs are -1."""

    def __init__(
        self,
        table: AcidTable,
        operations: pa.Array,
        row_ids: pa.StructArray | None,
        columns: pa.StructArray | None,
    ) -> None:
        self.table = table
        self.operations = operations
        self.row_ids = row_ids
        self.columns = columns
        self.txns = self._identifier_part("txn")
        self.buckets = self._identifier_part("bucket")
        """The field as it stands: a bucket's id in v1, its property in v2."""
        self.bucket_ids = bucket_ids(self.buckets) if table.version.encodes_buckets else self.buckets
        self.row_numbers = self._identifier_part("row_id")
        self.has_row_id = self._has_row_id()
        self.codes: npt.NDArray[np.int8] = np.full(len(operations), -1, np.int8)

    def __len__(self) -> int:
        return len(self.operations)

    @property
    def inserts(self) -> Mask:
        """Which changes are inserts; their ROW__IDs, if any, are ignored."""
        is_insert: Mask = self.codes == Operation.INSERT
        return is_insert

    def column(self, name: str) -> pa.Array:
        """One of the table's columns."""
        assert self.columns is not None
        return pc.struct_field(self.columns, name)

    def known_partitions(self) -> pa.Array:
        """Partition names that the ROW__IDs carry, null where unknown."""
        if self.row_ids is None or self.row_ids.type.get_field_index("partition") < 0:
            return pa.nulls(len(self), pa.string())
        return pc.struct_field(self.row_ids, "partition").cast(pa.string())

    def refuse(
        self, wrong: Mask, error: type[Exception], rule: str, details: dict[str, pa.Array] | None = None
    ) -> None:
        """Raise ``error`` if any row is wrong; the message names the first of them."""
        if not wrong.any():
            return
        rows = np.flatnonzero(wrong)
        samples = "; ".join(self._describe(int(i), details or {}) for i in rows[:SAMPLE_ROWS])
        raise error(
            f"table {self.table.full_name}: {rule}. {len(rows)} such rows in one batch, first: {samples}"
        )

    def _describe(self, row: int, details: dict[str, pa.Array]) -> str:
        parts = {"operation": self.operations[row].as_py()}
        if self.row_ids is not None:
            identifier = self.row_ids[row].as_py()
            parts[ROW_ID_COLUMN] = None if identifier is None else tuple(identifier.values())
        if self.columns is not None:
            parts.update(self.columns[row].as_py() or {})
        parts.update({name: array[row].as_py() for name, array in details.items()})
        return "(" + ", ".join(f"{name}={_shown(value)}" for name, value in parts.items()) + ")"

    def _identifier_part(self, field: str) -> npt.NDArray[np.int64]:
        if self.row_ids is None:
            return np.full(len(self), -1, np.int64)
        # struct_field, unlike StructArray.field, gives null where the whole struct is null.
        values = pc.struct_field(self.row_ids, field).cast(pa.int64())
        filled: npt.NDArray[np.int64] = values.fill_null(-1).to_numpy(zero_copy_only=False)
        return filled

    def _has_row_id(self) -> Mask:
        if self.row_ids is None:
            return np.zeros(len(self), np.bool_)
        parts = [pc.struct_field(self.row_ids, field) for field in ("txn", "bucket", "row_id")]
        present: Mask = np.logical_and.reduce([np.asarray(pc.is_valid(part)) for part in parts])
        return present


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
