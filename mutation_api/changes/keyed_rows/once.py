"""Several source rows for one row or key: reduced to the first by a rule, or refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.changes.duplicates import ROWS_SHOWN, DuplicatedKey
from mutation_api.changes.keyed_rows.row_texts import json_texts
from mutation_api.errors import ConfigurationError
from mutation_api.worker.row_ids import Mask

__all__ = ["dense_ranks", "duplicated", "first_of_each", "order_of_rows", "sort_keys"]

Indices = NDArray[np.int64]

_ORDERS = ("ascending", "descending")


def sort_keys(
    table_name: str, source: pa.Schema, columns: Sequence[str | tuple[str, str]]
) -> tuple[tuple[str, bool], ...]:
    """Columns of the source to order by, in lower case, and whether each descends.

    Args:
        table_name: for messages.
        source: types of the source's columns.
        columns: names, or pairs of a name and ``"ascending"`` or ``"descending"``.

    Raises:
        ConfigurationError: a column is missing or cannot be sorted, or an order is unknown.
    """
    pairs = []
    for given in columns:
        match (given, "ascending") if isinstance(given, str) else given:
            case (str(name), str(order)) if name.lower() in source.names and order in _ORDERS:
                pairs.append((name.lower(), order))
                continue
        raise ConfigurationError(
            f"table {table_name}: first_by {given!r}: expected a column of the source "
            f"({', '.join(source.names)}) or a pair of a column and 'ascending' or 'descending'"
        )
    for name, _ in pairs:
        try:
            dense_ranks(pa.nulls(0, source.field(name).type), is_descending=False)
        except pa.ArrowNotImplementedError as error:
            raise ConfigurationError(
                f"table {table_name}: first_by {name!r}: a {source.field(name).type} has no order"
            ) from error
    return tuple((name, order == "descending") for name, order in pairs)


def order_of_rows(source: pa.RecordBatch, keys: Sequence[tuple[str, bool]]) -> Indices:
    """The rank of each source row; ties by the row's content, so that every run decides alike.

    Args:
        source: n rows.
        keys: see :func:`sort_keys`. As in Spark's SQL NULLs come first in ascending and last in descending
            order.
    """
    texts = pa.array(json_texts(source.to_struct_array()), pa.string())
    parts: list[Indices] = [dense_ranks(texts, is_descending=False)]
    parts += [
        dense_ranks(source.column(name), is_descending=is_descending)
        for name, is_descending in reversed(keys)
    ]
    ranks = np.empty(len(texts), np.int64)
    ranks[np.lexsort(parts)] = np.arange(len(texts))
    return ranks


def dense_ranks(values: pa.Array, *, is_descending: bool) -> Indices:
    """Dense ranks of n values: NULL is the least, NaN the greatest."""
    ranks = np.zeros(len(values), np.int64)
    if pa.types.is_null(values.type):
        return ranks
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    ranks[valid] = pc.rank(values.drop_null(), sort_keys="ascending", tiebreaker="dense").to_numpy()
    return -ranks if is_descending else ranks


def first_of_each(groups: Indices, order: Indices, judged: Mask) -> Indices:
    """Indices of the rows to keep, ascending: of each group of judged rows the first, and all others.

    Args:
        groups: number of the group of n rows.
        order: rank of each row.
        judged: which rows are in a group.
    """
    rows = np.flatnonzero(judged)
    sorted_rows = rows[np.lexsort([order[rows], groups[rows]])]
    in_order = groups[sorted_rows]
    is_first = np.ones(len(sorted_rows), np.bool_)
    is_first[1:] = in_order[1:] != in_order[:-1]
    kept = ~judged
    kept[sorted_rows[is_first]] = True
    return np.flatnonzero(kept)


def duplicated(
    groups: Indices,
    judged: Mask,
    source: pa.RecordBatch,
    source_rows: Indices,
    keys: Sequence[str],
    shown: int,
) -> tuple[int, list[DuplicatedKey]]:
    """The number of groups with several rows, and some of them by key.

    Args:
        groups: number of the group of n rows, from 0.
        judged: which rows are in a group.
        source: the source's rows.
        source_rows: the source row of each.
        keys: names of the key columns.
        shown: number of keys to describe.
    """
    if not judged.any():
        return 0, []
    counts = np.bincount(groups[judged])
    several = np.flatnonzero(counts > 1)
    samples = []
    for group in several[:shown].tolist():
        rows = pa.array(source_rows[judged & (groups == group)])
        found = source.take(rows)
        texts = sorted(json_texts(found.to_struct_array()))
        (key,) = json_texts(found.slice(0, 1).select(list(keys)).to_struct_array())
        samples.append(DuplicatedKey(key, len(rows), texts[:ROWS_SHOWN]))
    return len(several), samples
