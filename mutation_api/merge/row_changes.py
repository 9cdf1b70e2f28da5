"""Rows of a change feed: their labels, and updates combined from a delete and an insert."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.format.event import DELETE, INSERT, ROW_ID_COLUMN
from mutation_api.merge.source_rows import row_codes
from mutation_api.read.changes import UPDATE_AFTER, UPDATE_BEFORE

CHANGE_COLUMN, WRITE_ID_COLUMN = "_change", "_write_id"
_OLD = (DELETE, UPDATE_BEFORE)


def feed_schema(rows: pa.Schema) -> pa.Schema:
    """Return the schema of a feed's batches, given that of ROW__ID and the columns."""
    return pa.schema([(CHANGE_COLUMN, pa.string()), (WRITE_ID_COLUMN, pa.int64()), *rows])


def labelled(kind: str, ids: int | NDArray[np.int64] | None, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with their change and their ids. If ``ids`` is None, they are those of ROW__ID."""
    count = rows.num_rows
    if ids is None and ROW_ID_COLUMN in rows.schema.names:
        found = rows.column(ROW_ID_COLUMN).field(0)
    elif ids is None:
        found = pa.nulls(count, pa.int64())
    else:
        found = pa.repeat(pa.scalar(ids, pa.int64()), count) if isinstance(ids, int) else pa.array(ids)
    return pa.RecordBatch.from_arrays(
        [pa.repeat(kind, count), found, *rows.columns], schema=feed_schema(rows.schema)
    )


def paired(batches: Sequence[pa.RecordBatch], keys: Sequence[str]) -> list[pa.RecordBatch]:
    """Combine a delete and an insert of one key into an update, if the key has one of each."""
    rows = pa.Table.from_batches(batches).combine_chunks()
    columns = [_one_chunk(rows, name) for name in keys]
    codes = row_codes(columns)
    kinds = _one_chunk(rows, CHANGE_COLUMN)
    is_old = pc.is_in(kinds, pa.array(_OLD)).to_numpy(zero_copy_only=False)
    is_plain = pc.is_in(kinds, pa.array([INSERT, DELETE])).to_numpy(zero_copy_only=False)
    count = codes.max(initial=-1) + 1
    deletes = np.bincount(codes[is_plain & is_old], minlength=count)
    inserts = np.bincount(codes[is_plain & ~is_old], minlength=count)
    is_null = np.zeros(len(codes), np.bool_)
    for column in columns:
        is_null |= column.is_null().to_numpy(zero_copy_only=False)
    is_update = ~is_plain | (((deletes == 1) & (inserts == 1))[codes] & ~is_null)
    names = pa.array([INSERT, DELETE, UPDATE_AFTER, UPDATE_BEFORE])
    shown = names.take(pa.array(2 * is_update + is_old))
    order = np.lexsort((~is_old, codes))
    at = rows.schema.get_field_index(CHANGE_COLUMN)
    with_pairs = rows.set_column(at, CHANGE_COLUMN, shown)
    ordered: list[pa.RecordBatch] = with_pairs.take(pa.array(order)).combine_chunks().to_batches()
    return ordered


def _one_chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
