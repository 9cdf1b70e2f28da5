"""Columns that are read only of rows in which no other column differs. Pure, but for the given reader.

An update that changes nothing is not written, so every column that it assigns is compared with the row's old
value. Most updates change a number, and texts cost most of the time to read. So numbers are compared first,
and the other columns are read in a second pass, of the rows that are still undecided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.changes.clauses import Action, Match
from mutation_api.changes.keyed_rows.differences import differs
from mutation_api.changes.keyed_rows.pairs import SourceKeys
from mutation_api.changes.local_merge.acting import UNCHANGED, UPDATED, Acting, AnyMerge
from mutation_api.changes.local_merge.expressions import target_types
from mutation_api.errors import DirectoryStateError
from mutation_api.table.acid_table import AcidTable

__all__ = ["late_columns", "settled"]

Indices = NDArray[np.int64]


def late_columns(table: AcidTable, plan: AnyMerge) -> frozenset[str]:
    """Names of the columns that can wait.

    None if no other column may tell that a row changes, or rows without a source row are updated, too.
    """
    if any((c.match, c.action) == (Match.NOT_MATCHED_BY_SOURCE, Action.UPDATE) for c in plan.clauses):
        return frozenset()
    types = target_types(table)
    late = frozenset(name for name in plan.compared_alone if not pa.types.is_primitive(types[name]))
    return late if plan.compared_alone - late else frozenset()


def settled(
    table_name: str,
    found: Sequence[Acting],
    late: frozenset[str],
    keys: Sequence[str],
    read: Callable[[pa.Table], pa.RecordBatch],
) -> list[Acting]:
    """Compare the late columns of the updates that seem to change nothing.

    Args:
        table_name: ``database.table``, for messages.
        found: rows on which clauses act; those of updates were compared without ``late``.
        late: as :func:`late_columns` gives them.
        keys: names of the key columns.
        read: returns ROW__ID and the late columns of all rows that have one of some distinct keys.

    Raises:
        DirectoryStateError: a row that was read is not found again.
    """
    undecided = [np.flatnonzero(each.kinds == UNCHANGED) if late else np.zeros(0, np.int64) for each in found]
    parts = [each.take(rows) for each, rows in zip(found, undecided, strict=True) if len(rows)]
    if not parts:
        return list(found)
    wanted = pa.concat_arrays([part.row_ids for part in parts])
    stored = read(_distinct_keys(parts, keys))
    positions = _positions(table_name, wanted, stored.column(ROW_ID_COLUMN))
    settled_parts = []
    for each, rows in zip(found, undecided, strict=True):
        old = stored.take(pa.array(positions[: len(rows)]))
        positions = positions[len(rows) :]
        settled_parts.append(_compared(each, rows, old, late) if len(rows) else each)
    return settled_parts


def _distinct_keys(parts: Sequence[Acting], keys: Sequence[str]) -> pa.Table:
    columns = {key: pa.concat_arrays([(part.rows.target or {})[key] for part in parts]) for key in keys}
    return pa.table(columns).group_by(list(keys)).aggregate([])


def _positions(table_name: str, wanted: pa.StructArray, stored: pa.StructArray) -> Indices:
    """Where each wanted ROW__ID is among the stored ones."""
    names = [field.name for field in wanted.type]
    rows = pa.RecordBatch.from_arrays(wanted.flatten(), names)
    ids = SourceKeys(rows, np.zeros(len(wanted), np.bool_), null_safe=True)
    pairs = ids.pairs(stored.flatten())
    found = len(np.unique(pairs.source))
    if found != len(wanted):
        raise DirectoryStateError(
            f"table {table_name}: of {len(wanted):,} rows that were read, {found:,} are found again: "
            "files of the table were removed or replaced meanwhile; merge again"
        )
    positions = np.zeros(len(wanted), np.int64)
    positions[pairs.source] = pairs.target
    return positions


def _compared(each: Acting, rows: Indices, old: pa.RecordBatch, late: frozenset[str]) -> Acting:
    taken = pa.array(rows)
    changed = np.zeros(len(rows), np.bool_)
    for name in late:
        if name in each.new:
            changed |= differs(old.column(name), each.new[name].take(taken))
    kinds = each.kinds.copy()
    kinds[rows[changed]] = UPDATED
    return dataclasses.replace(each, kinds=kinds)
