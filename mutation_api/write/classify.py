"""ChangeClassifier: finds and checks the address of each change.

An address consists of partition, bucket, operation and ROW__ID. The module uses Arrow and numpy only. It runs
in Spark's Python workers before the shuffle, so every wrong address is found before anything is written. The
rules are those of :mod:`mutation_api.write.change_rules`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import RecordLayoutError
from mutation_api.format.event import PARTITION_FIELD, ROW_ID_COLUMN, Operation, RowIds
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.table.partition import partition_names
from mutation_api.write.change_rules import (
    OPERATION_NAMES,
    Changes,
    check_buckets_kept,
    check_operations,
    check_partitions_kept,
    check_row_ids,
)
from mutation_api.write.layout import ChangeLayout, DefaultColumns

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
"""Type of a change's address; the bucket field of the row's ROW__ID is kept verbatim.

An insert has the transaction's own id (write id; transaction id in v1), so it sorts after every existing row.
"""


@dataclass(frozen=True)
class ChangeClassifier:
    """Computes the address of every change of a batch, or refuses the batch.

    ``missing_columns`` are columns of the table that the change set lacks; only deletes are possible without
    them. ``defaulted_columns`` are missing columns with a default; only updates need them.
    ``unknown_defaults`` are the reasons why only Hive can compute some of these defaults; inserts need such
    columns too. If ``has_partition_columns`` is False, the partition is taken from the field ``partition`` of
    ROW__ID. ``valid_ids`` are those of the transaction's snapshot: write ids of the table, or transaction ids
    in v1.
    """

    table: AcidTable
    valid_ids: ValidIdList
    missing_columns: tuple[str, ...] = ()
    defaulted_columns: tuple[str, ...] = ()
    unknown_defaults: tuple[str, ...] = ()
    has_partition_columns: bool = True

    @classmethod
    def of(
        cls, table: AcidTable, valid_ids: ValidIdList, layout: ChangeLayout, defaults: DefaultColumns
    ) -> ChangeClassifier:
        """Return the classifier for a change set with this layout."""
        return cls(
            table,
            valid_ids,
            missing_columns=layout.missing(table),
            defaulted_columns=layout.defaulted(table),
            unknown_defaults=tuple(defaults.unknown.values()),
            has_partition_columns=all(name in layout.columns for name in table.partition_key_names),
        )

    def classify(
        self,
        operations: pa.Array,
        row_ids: pa.StructArray | None,
        columns: pa.StructArray | None,
        writers: pa.Array | None = None,
    ) -> pa.StructArray:
        """Address every change.

        Args:
            operations: n strings, 'insert', 'update' or 'delete' in any case; may be a dictionary of them.
            row_ids: n ROW__IDs with fields txn, bucket, row_id and, if known, partition. If None, the change
                set has no such column. Those of inserts are ignored.
            columns: n rows of the partition and bucket columns, with field names in lower case. If None, the
                table has no such columns.
            writers: n bucket ids for inserts into an unbucketed table. If None, the table is bucketed.

        Returns:
            n addresses of ADDRESS_TYPE.

        Raises:
            RecordLayoutError: If a change set that lacks columns has an insert or update.
            RecordValueError, BucketIdError, RowIdNotFoundError, TableNotMutableError: See
                :mod:`mutation_api.write.change_rules`.
        """
        changes = Changes(
            self.table,
            _codes(operations),
            _row_ids(row_ids, len(operations)),
            given_operations=operations,
            columns=_columns(columns),
        )
        check_operations(changes)
        self._check_columns(changes)
        check_row_ids(changes, self.valid_ids)
        numbers, inserts, own_id = changes.row_ids.numbers, changes.inserts, self.table.required_write_id()
        partitions, buckets = self._partitions(changes), self._buckets(changes, writers)
        return pa.StructArray.from_arrays(
            [
                partitions,
                pa.array(buckets, pa.int32()),
                pa.array(changes.operations, pa.int8()),
                pa.array(np.where(inserts, own_id, numbers.original_txns), pa.int64()),
                pa.array(np.where(inserts, 0, numbers.buckets), pa.int32()),
                pa.array(np.where(inserts, 0, numbers.row_ids), pa.int64()),
            ],
            fields=list(ADDRESS_TYPE),
        )

    def _check_columns(self, changes: Changes) -> None:
        if self.missing_columns:
            changes.refuse(
                changes.operations != Operation.DELETE,
                RecordLayoutError,
                f"the change set lacks the columns {', '.join(self.missing_columns)}; "
                "only a change set of deletes may lack columns",
            )
        if self.defaulted_columns:
            changes.refuse(
                changes.operations == Operation.UPDATE,
                RecordLayoutError,
                f"the change set lacks the columns {', '.join(self.defaulted_columns)}; their defaults "
                "apply to new rows only, so an update needs the whole row",
            )

        if self.unknown_defaults:
            changes.refuse(changes.inserts, RecordLayoutError, "; ".join(self.unknown_defaults))

    def _partitions(self, changes: Changes) -> pa.Array:
        if not self.table.partition_keys:
            return pa.repeat(pa.scalar("", pa.string()), len(changes))
        if self.has_partition_columns and changes.inserts.all():
            return self._computed_partitions(changes)
        known = changes.row_ids.partitions
        if known is None:
            known = pa.nulls(len(changes), pa.string())
        if not self.has_partition_columns:
            changes.refuse(
                changes.inserts | pc.is_null(known).to_numpy(zero_copy_only=False),
                RecordLayoutError,
                f"the change set lacks the partition columns {', '.join(self.table.partition_key_names)} "
                f"and {ROW_ID_COLUMN} has no field partition",
            )
            return known
        deletes = changes.operations == Operation.DELETE
        is_known_delete = pc.and_(pa.array(deletes), pc.is_valid(known))
        computed = self._computed_partitions(changes, pc.invert(is_known_delete), known)
        check_partitions_kept(changes, computed, changes.operations == Operation.UPDATE)
        return pc.if_else(is_known_delete, known, computed)

    def _computed_partitions(
        self, changes: Changes, wanted: pa.BooleanArray | None = None, known: pa.Array | None = None
    ) -> pa.Array:
        """Return the partition names computed from the columns; null where ``wanted`` is False."""
        columns = {name: changes.columns[name] for name in self.table.partition_key_names}
        if wanted is None:
            return partition_names(self.table, columns).cast(pa.string())
        wanted_columns = {name: values.filter(wanted) for name, values in columns.items()}
        known = None if known is None else known.filter(wanted)
        names = partition_names(self.table, wanted_columns, known).cast(pa.string())
        return pc.replace_with_mask(pa.nulls(len(changes), pa.string()), wanted, names)

    def _buckets(self, changes: Changes, writers: pa.Array | None) -> NDArray[np.int32]:
        """Return the bucket of each row: by hash for a new row, from ROW__ID for an existing row."""
        buckets = changes.bucket_ids.astype(np.int32)
        if not self.table.is_bucketed:
            if changes.inserts.any():
                assert writers is not None
                np.copyto(buckets, writers.to_numpy(zero_copy_only=False), where=changes.inserts)
            return buckets
        stays_put = self.table.keeps_misplaced_rows
        hashed = changes.inserts if stays_put else changes.operations != Operation.DELETE
        if hashed.any():
            rows = pa.record_batch(dict(changes.columns)).filter(pa.array(hashed))
            buckets[hashed] = BucketIdResolver(self.table).resolve(rows).to_numpy()
            check_buckets_kept(changes, buckets)
        return buckets


def _codes(operations: pa.Array) -> NDArray[np.int8]:
    """Return the codes of operation names in any case; each distinct name is parsed once."""
    encoded = operations
    if not pa.types.is_dictionary(operations.type):
        encoded = operations.cast(pa.string()).dictionary_encode()
    distinct = [_CODES.get(name.lower(), _UNKNOWN) for name in encoded.dictionary.to_pylist()]
    indices = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
    codes: NDArray[np.int8] = np.array([*distinct, _UNKNOWN], np.int8)[indices]
    return codes


def _row_ids(row_ids: pa.StructArray | None, count: int) -> RowIds:
    if row_ids is None:
        return RowIds.none(count)
    # Unlike StructArray.field, struct_field gives null if the whole struct is null.
    parts = [pc.struct_field(row_ids, name) for name in ("txn", "bucket", "row_id")]
    knows_partition = row_ids.type.get_field_index(PARTITION_FIELD) >= 0
    return RowIds.of_columns(parts, pc.struct_field(row_ids, PARTITION_FIELD) if knows_partition else None)


def _columns(columns: pa.StructArray | None) -> dict[str, pa.Array]:
    if columns is None:
        return {}
    return dict(zip((each.name for each in columns.type), columns.flatten(), strict=True))
