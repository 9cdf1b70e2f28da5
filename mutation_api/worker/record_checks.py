"""RecordChecks: checks the records of a coordinator by the rules of changes, and finds their buckets.

:mod:`.change_rules` defines the rules about operation, ROW__ID, bucket and partition. :mod:`.validators`
checks the order of records, :mod:`.record_inspector` their values.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.acid.bucket_codec import MAX_BUCKETS
from mutation_api.acid.event import Operation
from mutation_api.acid.row_id import RowIdArrays
from mutation_api.bucketing.bucket_resolver import BucketIdResolver
from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.table.acid_table import AcidTable
from mutation_api.worker.change_rules import (
    Changes,
    check_attached_buckets,
    check_bucket_of_group,
    check_buckets_kept,
    check_operations,
    check_partitions_kept,
    check_row_ids,
)
from mutation_api.worker.record_inspector import Records
from mutation_api.worker.row_ids import RowIds

__all__ = ["RecordChecks"]


class RecordChecks:
    """Checks n records of one partition; ``partition_name`` is its escaped name.

    A coordinator has no snapshot, so ROW__IDs of open and aborted transactions are accepted.

    Args:
        table: table of the records.
        insert_bucket_id: bucket of inserts if the table is not bucketed.

    Raises:
        ConfigurationError: ``insert_bucket_id`` is not in 0 to 4095.
        TableNotMutableError: see :class:`BucketIdResolver`.
    """

    def __init__(self, table: AcidTable, insert_bucket_id: int = 0) -> None:
        if not 0 <= insert_bucket_id < MAX_BUCKETS:
            raise ConfigurationError(
                f"insert_bucket_id {insert_bucket_id} is not within 0..{MAX_BUCKETS - 1}"
            )
        self._table = table
        self._insert_bucket_id = insert_bucket_id
        self._resolver = BucketIdResolver(table) if table.is_bucketed else None

    def of_records(self, partition_name: str, operations: NDArray[np.integer], records: Records) -> Changes:
        """The records as changes; ROW__IDs of updates and deletes are checked.

        Raises:
            RecordValueError, BucketIdError, RowIdNotFoundError, TableNotMutableError: see
                :mod:`.change_rules`.
        """
        changes = Changes(
            self._table,
            operations,
            records.row_ids,
            partition_name,
            columns={} if records.columns is None else self._bucket_columns(records.columns),
        )
        check_operations(changes)
        check_row_ids(changes)
        if records.row_ids.partitions is not None:
            check_partitions_kept(changes, pa.repeat(partition_name, len(changes)), changes.existing)
        return changes

    def check_events(
        self,
        partition_name: str,
        bucket_id: int,
        operations: NDArray[np.integer],
        row_ids: RowIdArrays,
        rows: pa.StructArray | None,
    ) -> None:
        """Check records that are all of one bucket.

        Raises:
            RecordLayoutError: the arrays differ in length, or new rows lack their columns.
            Others: see :meth:`of_records`.
        """
        changes = Changes(self._table, operations, RowIds.complete(row_ids), partition_name)
        _check_lengths(changes, row_ids, rows)
        check_operations(changes)
        if rows is None and (operations != Operation.DELETE).any():
            raise RecordLayoutError(
                f"{changes.where}: inserts and updates need the data columns {self._table.column_names}"
            )
        check_row_ids(changes)
        check_bucket_of_group(changes, bucket_id)

    def buckets(self, changes: Changes, rows: pa.StructArray | None) -> NDArray[np.integer]:
        """Plain bucket id of each record, shape (n,).

        A delete has the bucket of its ROW__ID. An insert has the computed bucket, or that of this writer if
        the table is not bucketed. An update has the bucket of its ROW__ID, which must be the computed one
        unless Hive itself misplaces rows.

        Args:
            changes: result of :meth:`of_records`.
            rows: n rows with the table's types; None if all records are deletes.

        Raises:
            BucketIdError: a ROW__ID names another bucket than the computed one.
        """
        if self._resolver is None:
            check_attached_buckets(changes, None)
            return np.where(changes.inserts, self._insert_bucket_id, changes.bucket_ids)
        if rows is None:
            return changes.bucket_ids
        computed = self._resolver.resolve(pa.RecordBatch.from_struct_array(rows)).to_numpy()
        check_attached_buckets(changes, computed)
        check_buckets_kept(changes, computed)
        return np.where(changes.inserts, computed, changes.bucket_ids)

    def _bucket_columns(self, columns: tuple[pa.Array, ...]) -> dict[str, pa.Array]:
        by_name = dict(zip(self._table.column_names, columns, strict=True))
        return {name: by_name[name] for name in map(str.lower, self._table.bucket_columns)}


def _check_lengths(changes: Changes, row_ids: RowIdArrays, rows: pa.StructArray | None) -> None:
    count = len(changes)
    lengths = [
        len(row_ids.original_txns),
        len(row_ids.buckets),
        len(row_ids.row_ids),
        count if rows is None else len(rows),
    ]
    if lengths != [count] * len(lengths):
        raise RecordLayoutError(
            f"{changes.where}: {count} operations with {lengths[0]} original_txns, {lengths[1]} "
            f"buckets, {lengths[2]} row_ids and {lengths[3]} rows; expected the same number of each"
        )
