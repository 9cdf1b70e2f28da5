"""Rows of a change feed: their labels, updates made of a delete and an insert, and net changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.format.event import DELETE, INSERT, ROW_ID_COLUMN
from mutation_api.merge.source_rows import row_codes
from mutation_api.read.changes import UPDATE_AFTER, UPDATE_BEFORE, RowChanges

__all__ = [
    "CHANGE_COLUMN",
    "UPDATE_AFTER",
    "UPDATE_BEFORE",
    "WRITE_ID_COLUMN",
    "feed_schema",
    "labelled",
    "net_changes",
    "paired",
]

CHANGE_COLUMN, WRITE_ID_COLUMN = "_change", "_write_id"
_OLD = (DELETE, UPDATE_BEFORE)
_HIGHEST = np.iinfo(np.int64).max


def feed_schema(rows: pa.Schema) -> pa.Schema:
    """Return the schema of a feed's batches, given that of ROW__ID and the columns."""
    return pa.schema([(CHANGE_COLUMN, pa.string()), (WRITE_ID_COLUMN, pa.int64()), *rows])


def labelled(kind: str, id: int | None, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with their change and their id. If ``id`` is None, it is that of ROW__ID."""
    count = rows.num_rows
    if id is None and ROW_ID_COLUMN in rows.schema.names:
        ids = rows.column(ROW_ID_COLUMN).field(0)
    else:
        ids = pa.nulls(count, pa.int64()) if id is None else pa.repeat(pa.scalar(id, pa.int64()), count)
    return pa.RecordBatch.from_arrays(
        [pa.repeat(kind, count), ids, *rows.columns], schema=feed_schema(rows.schema)
    )


def net_changes(changes: Iterator[RowChanges]) -> list[RowChanges]:
    """Return the difference between the first and the last state of each row.

    A row that came and went is left out. A row that was updated in place several times (legacy layout) has
    its first image before, and its last image after.
    """
    found = list(changes)
    if not found or ROW_ID_COLUMN not in found[0].rows.schema.names:
        return found
    row_ids = pa.concat_arrays([each.rows.column(ROW_ID_COLUMN) for each in found])
    codes = row_codes([row_ids.field(at) for at in range(3)])
    count = int(codes.max(initial=-1)) + 1
    ends = np.cumsum([each.rows.num_rows for each in found])
    parts = [(each, codes[end - each.rows.num_rows : end]) for each, end in zip(found, ends, strict=True)]
    was, stays = np.ones(count, np.bool_), np.ones(count, np.bool_)
    first, last = np.full(count, _HIGHEST), np.full(count, -1)
    for each, rows in parts:
        if each.kind == INSERT:
            was[rows] = False
        elif each.kind == DELETE:
            stays[rows] = False
        if each.kind in _OLD:
            first[rows] = np.minimum(first[rows], each.id)
        else:
            last[rows] = np.maximum(last[rows], each.id)
    result = []
    for each, rows in parts:
        if each.kind in _OLD:
            shown, other, kinds = was[rows] & (first[rows] == each.id), stays[rows], (DELETE, UPDATE_BEFORE)
        else:
            shown, other, kinds = stays[rows] & (last[rows] == each.id), was[rows], (INSERT, UPDATE_AFTER)
        for kind, mask in zip(kinds, (shown & ~other, shown & other), strict=True):
            if mask.any():
                result.append(RowChanges(each.id, kind, each.rows.filter(pa.array(mask))))
    return result


def paired(batches: Sequence[pa.RecordBatch], keys: Sequence[str]) -> list[pa.RecordBatch]:
    """Make a delete and an insert of one key an update, if the key has one of each."""
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
