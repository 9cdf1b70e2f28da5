"""The rows of a split with partition columns, and with the partition in ROW__ID."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from metastore_client.valid_ids import ValidIdList
from mutation_api.acid.row_id import PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.reader.key_groups import KeyGroups
from mutation_api.reader.snapshot_reader import read_split, row_id_type
from mutation_api.reader.snapshot_split import SnapshotSplit
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition_columns import partition_scalars

__all__ = ["full_row_id_type", "split_rows"]


def full_row_id_type(table: AcidTable) -> pa.StructType:
    """Arrow type of ROW__ID in the table's rows: in a partitioned table with the field ``partition``."""
    partition = [pa.field(PARTITION_FIELD, pa.string())] if table.partition_keys else []
    return pa.struct([*row_id_type(table.version), *partition])


def split_rows(
    table: AcidTable,
    split: SnapshotSplit,
    valid_ids: ValidIdList,
    columns: Sequence[AcidColumn],
    options: ReadOptions,
    groups: KeyGroups | None = None,
    *,
    row_ids: bool = True,
    checks_placement: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The visible rows of a split.

    Args:
        table: the table the split was planned for.
        split: the split to read.
        valid_ids: the list with which it was planned.
        columns: data and partition columns, in the wanted order.
        options: form of timestamps and size of batches.
        groups: return only the rows that these keys select; its partition passes ``has_partition``.
        row_ids: whether ROW__ID is returned; an insert-only table has none.
        checks_placement: see :func:`~mutation_api.reader.snapshot_reader.read_split`.

    Yields:
        Batches, none empty: ROW__ID if wanted, then the columns. In a partitioned table ROW__ID has the field
        ``partition``.

    Raises:
        RecordValueError: a partition's text cannot be parsed as its column's type. Others as ``read_split``.
    """
    data = [c.name for c in columns if c.name not in table.partition_key_names]
    has_row_ids = table.version.has_row_ids and (row_ids or not data)
    # Without ROW__ID and requested columns, one column is read to count the rows.
    read = data or ([] if has_row_ids else [table.column_names[0]])
    values = partition_scalars(table, split.partition_name, columns)
    only = None if groups is None else groups.filter_for(split.partition_name)
    for batch in read_split(
        table,
        split,
        valid_ids,
        read,
        has_row_ids,
        options,
        only,
        checks_placement=checks_placement,
    ):
        arrays = {name: batch.column(name) for name in data}
        arrays |= {name: pa.repeat(value, batch.num_rows) for name, value in values.items()}
        found = {c.name: arrays[c.name] for c in columns}
        if has_row_ids and row_ids:
            found = {ROW_ID_COLUMN: _row_ids(table, split, batch), **found}
        yield pa.RecordBatch.from_pydict(found)


def _row_ids(table: AcidTable, split: SnapshotSplit, batch: pa.RecordBatch) -> pa.StructArray:
    row_ids = batch.column(ROW_ID_COLUMN)
    if not table.partition_keys:
        return row_ids
    partition = pa.repeat(pa.scalar(split.partition_name, pa.string()), len(row_ids))
    return pa.StructArray.from_arrays([*row_ids.flatten(), partition], fields=list(full_row_id_type(table)))
