"""Merges the events of several ACID files into the rows of a snapshot, with vectorised rules on keys. Pure.

An event's key is its ROW__ID (originalTransaction, bucket, rowId). Files are sorted by it, so a merge can
work on slices: the events of all files up to a key decide the rows up to that key, regardless of later
events.

Source: Hive's OrcRawRecordMerger (v1 legacy), VectorizedOrcAcidRowBatchReader (v1 split, v2).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.format.event import Operation, RecordIdentifier, statement_ids

_PACKED_BITS = 63
_MAX_GROUPS = 64
"""Maximum number of pairs (originalTransaction, bucket) of deletes. If there are more, deletes are searched
for by packed keys."""


@dataclass(frozen=True)
class EventKeys:
    """n events without their rows: six integer arrays of shape (n,).

    ``operation`` contains the codes of :class:`Operation`. ``precedence`` breaks ties between events of one
    row and one transaction: it is the statement id (-1 for none), and the higher one wins.
    """

    original_txn: NDArray[np.int64]
    bucket: NDArray[np.int32]
    row_id: NDArray[np.int64]
    current_txn: NDArray[np.int64]
    operation: NDArray[np.int8]
    precedence: NDArray[np.int32]

    @classmethod
    def inserted(
        cls, row_ids: NDArray[np.int64], original_txn: int, bucket: int, current_txn: int, precedence: int
    ) -> EventKeys:
        """Return the inserts of rows that differ in their row id only."""
        count = len(row_ids)
        return cls(
            original_txn=np.full(count, original_txn, np.int64),
            bucket=np.full(count, bucket, np.int32),
            row_id=row_ids,
            current_txn=np.full(count, current_txn, np.int64),
            operation=np.full(count, Operation.INSERT, np.int8),
            precedence=np.full(count, precedence, np.int32),
        )

    def __len__(self) -> int:
        return len(self.original_txn)

    def key(self, index: int) -> RecordIdentifier:
        """Return the ROW__ID of one event."""
        return RecordIdentifier(
            int(self.original_txn[index]), int(self.bucket[index]), int(self.row_id[index])
        )

    def slice(self, start: int, stop: int) -> EventKeys:
        """Return the events start..stop-1, without a copy."""
        return EventKeys(*(array[start:stop] for array in self._arrays()))

    def take(self, indices: NDArray[np.int64]) -> EventKeys:
        """Return the events at these positions."""
        return EventKeys(*(array[indices] for array in self._arrays()))

    def filter(self, mask: pa.BooleanArray) -> EventKeys:
        """Return the events where the mask (length n) is true.

        Arrow copies runs; numpy would copy single values.
        """
        return EventKeys(*(pa.array(array).filter(mask).to_numpy() for array in self._arrays()))

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        """Return the six arrays, each with its own type."""
        return (
            self.original_txn,
            self.bucket,
            self.row_id,
            self.current_txn,
            self.operation,
            self.precedence,
        )


def concatenate_keys(pieces: Sequence[EventKeys]) -> EventKeys:
    """Return the events of all pieces, one piece after the other."""
    if len(pieces) == 1:
        return pieces[0]
    columns = zip(*(piece._arrays() for piece in pieces), strict=True)
    return EventKeys(*(np.concatenate(column) for column in columns))


def count_up_to(keys: EventKeys, limit: RecordIdentifier) -> int:
    """Return the number of the sorted events that have a key <= limit."""
    return _search(keys, limit, "right")


def count_below(keys: EventKeys, limit: RecordIdentifier) -> int:
    """Return the number of the sorted events that have a key < limit."""
    return _search(keys, limit, "left")


def find_disorder(keys: EventKeys) -> int | None:
    """Return the index of the first event that violates the order of ACID files, or None if there is none.

    The order is key ascending and, for equal keys, currentTransaction descending.
    """
    if len(keys) < 2 or _is_plainly_in_order(keys):
        return None
    later = _steps(keys.original_txn)
    disorder = later < 0
    tie = later == 0
    for array in (keys.bucket, keys.row_id):
        step = _steps(array)
        disorder |= tie & (step < 0)
        tie &= step == 0
    disorder |= tie & (_steps(keys.current_txn) > 0)
    return int(disorder.argmax()) + 1 if disorder.any() else None


def events_in_order(keys: EventKeys, valid: ValidIdList) -> NDArray[np.int64]:
    """Return the indices of the events that the snapshot sees, in the order of ACID files.

    The order is by key, then by newest transaction, then by highest statement.

    Args:
        keys: events: sorted pieces one after the other, in any order.
        valid: the ids that the snapshot sees.
    """
    return _in_order_with_starts(keys, valid)[0]


def merge_legacy(keys: EventKeys, valid: ValidIdList) -> NDArray[np.int64]:
    """Return the rows that remain after all their events, in v1 legacy.

    The newest visible event of a row determines the result.

    Args:
        keys: all events of every row that they mention: sorted pieces one after the other, in any order.
        valid: the transactions that the snapshot sees.

    Returns:
        Indices of the events whose ``row`` the snapshot shows, in the order of their keys.
    """
    order, is_first = _in_order_with_starts(keys, valid)
    winners = order[is_first]
    rows: NDArray[np.int64] = winners[keys.operation[winners] != Operation.DELETE]
    return rows


def _in_order_with_starts(keys: EventKeys, valid: ValidIdList) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the visible events in order, and a mask of those that are the first of their key."""
    packed = _pack(keys)
    order = _visible_in_order(keys, packed, valid)
    is_first = _starts(packed[order])
    if not is_first.all():
        order = _newest_first(keys, packed, order, is_first)
    return order, is_first


def visible_deletes(pieces: Sequence[EventKeys], valid: ValidIdList) -> EventKeys | None:
    """Return the delete events that the snapshot sees, by key, or None if there are none.

    Args:
        pieces: delete events; each piece is sorted.
        valid: the ids that the snapshot sees.
    """
    visible = [(piece, is_visible(piece.current_txn, valid)) for piece in pieces]
    found = [p if mask.all() else p.filter(pa.array(mask)) for p, mask in visible if mask.any()]
    if not found:
        return None
    joined = concatenate_keys(found)
    return joined if len(found) == 1 else joined.take(order_of(joined))


def is_remaining(rows: EventKeys, deletes: EventKeys | None, valid: ValidIdList) -> NDArray[np.bool_]:
    """Return a mask of the rows that remain, in v1 split and v2: visible rows whose key has no delete.

    Hive ignores the operation of events in a ``delta``, and two rows with the same key (Hive 2.3 itself
    writes some) are two rows. A merge by newest event would lose one of them.

    Args:
        rows: n events of ``delta`` or base files, sorted.
        deletes: the result of :func:`visible_deletes` for all files with deletes of these rows.
        valid: the ids that the snapshot sees.

    Returns:
        Shape (n,), bool.
    """
    remains = is_visible(rows.current_txn, valid)
    if deletes is None or not len(rows):
        return remains
    starts = _group_starts(deletes)
    if len(starts) > _MAX_GROUPS:
        packed = _pack(concatenate_keys([rows, deletes]))
        _clear_found(remains, packed[: len(rows)], packed[len(rows) :])
        return remains
    for start, stop in itertools.pairwise([*starts.tolist(), len(deletes)]):
        low, high = _equal_range(rows.original_txn, int(deletes.original_txn[start]), 0, len(rows))
        low, high = _equal_range(rows.bucket, int(deletes.bucket[start]), low, high)
        _clear_found(remains[low:high], rows.row_id[low:high], deletes.row_id[start:stop])
    return remains


def in_order(pieces: Sequence[EventKeys]) -> list[int] | None:
    """Return an order in which the sorted, non-empty pieces form a sorted whole, or None if there is none."""
    order = sorted(range(len(pieces)), key=lambda n: pieces[n].key(0))
    ends = [(pieces[n].key(0), pieces[n].key(len(pieces[n]) - 1)) for n in order]
    is_sorted = all(before[1] <= after[0] for before, after in itertools.pairwise(ends))
    return order if is_sorted else None


def order_of(keys: EventKeys) -> NDArray[np.int64]:
    """Return the indices of all events by key. Events with the same key keep their order."""
    # Stable: on sorted runs, numpy's stable sort is a merge, which is nearly linear.
    return np.argsort(_pack(keys), kind="stable")


def find_early_delete(keys: EventKeys, valid: ValidIdList, statement_id: int | None) -> int | None:
    """Return the index of the first visible delete that does not come after its row, or None.

    Args:
        keys: n delete events of one v2 file.
        valid: the write ids that the snapshot sees.
        statement_id: statement id of the file's directory. If None, rows of the delete's own write id do not
            count. Otherwise such a row comes before its delete if its bucket property has a lower statement
            id.
    """
    is_early = keys.current_txn < keys.original_txn
    if statement_id is not None:
        is_same = keys.current_txn == keys.original_txn
        is_early |= is_same & (statement_ids(keys.bucket) >= statement_id)
    if not is_early.any():
        return None
    is_early &= is_visible(keys.current_txn, valid)
    return int(is_early.argmax()) if is_early.any() else None


def _search(keys: EventKeys, limit: RecordIdentifier, side: Literal["left", "right"]) -> int:
    """Return the position of a key. The range is narrowed field by field."""
    start, stop = _equal_range(keys.original_txn, limit.original_txn, 0, len(keys))
    start, stop = _equal_range(keys.bucket, limit.bucket, start, stop)
    row_ids = keys.row_id[start:stop]
    return start + int(row_ids.searchsorted(row_ids.dtype.type(limit.row_id), side))


def _equal_range(array: NDArray[np.integer], value: int, start: int, stop: int) -> tuple[int, int]:
    """Return the bounds of the elements start..stop-1 that equal the value. The range may be empty."""
    within = array[start:stop]
    # A scalar of the array's own type: for any other type, numpy first copies the array.
    scalar = within.dtype.type(value)
    left = int(within.searchsorted(scalar, "left"))
    right = int(within.searchsorted(scalar, "right"))
    return start + left, start + right


def _is_plainly_in_order(keys: EventKeys) -> bool:
    """Return True if keys ascend strictly within one bucket property.

    This is the case in most files and is cheap to check.
    """
    txns, row_ids = keys.original_txn, keys.row_id
    if not (txns[1:] >= txns[:-1]).all() or not (keys.bucket == keys.bucket[0]).all():
        return False
    return bool(((row_ids[1:] > row_ids[:-1]) | (txns[1:] > txns[:-1])).all())


def _group_starts(keys: EventKeys) -> NDArray[np.int64]:
    """Return the index of the first event of each run with the same originalTransaction and bucket.

    The events are sorted.
    """
    if keys.original_txn[0] == keys.original_txn[-1] and keys.bucket[0] == keys.bucket[-1]:
        return np.zeros(1, np.int64)
    return np.flatnonzero(_starts(keys.original_txn) | _starts(keys.bucket))


def _clear_found(
    flags: NDArray[np.bool_], sorted_values: NDArray[np.int64], wanted: NDArray[np.int64]
) -> None:
    """Clear the flags of the values that are in ``wanted``. There are as many flags as values."""
    left = np.searchsorted(sorted_values, wanted, side="left")
    right = np.searchsorted(sorted_values, wanted, side="right")
    if len(left) and int((right - left).max()) > 1:
        flags &= ~np.isin(sorted_values, wanted)
    else:
        flags[left[right > left]] = False


def _steps(array: NDArray[np.integer]) -> NDArray[np.int8]:
    """Return the sign of each step to the next element, without a difference, which could overflow."""
    return (array[1:] > array[:-1]).astype(np.int8) - (array[1:] < array[:-1])


def _pack(keys: EventKeys) -> NDArray[np.int64]:
    """Return one integer per event that sorts and compares like the key."""
    fields = [array.astype(np.int64) for array in (keys.original_txn, keys.bucket, keys.row_id)]
    lows = [int(f.min()) if len(f) else 0 for f in fields]
    widths = [(int(f.max()) - low).bit_length() if len(f) else 0 for f, low in zip(fields, lows, strict=True)]
    if sum(widths) > _PACKED_BITS:
        return _rank(fields)
    packed = np.zeros(len(keys), dtype=np.int64)
    for array, low, width in zip(fields, lows, widths, strict=True):
        packed = (packed << width) | (array - low)
    return packed


def _rank(fields: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    order = np.lexsort(fields[::-1])
    is_new = np.zeros(len(order), dtype=np.bool_)
    for array in fields:
        is_new |= _starts(array[order])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.cumsum(is_new)
    return rank


def _starts(ordered: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return a mask of the elements that differ from their predecessor."""
    is_first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first


def _visible_in_order(keys: EventKeys, packed: NDArray[np.int64], valid: ValidIdList) -> NDArray[np.int64]:
    """Return the indices of the events that the snapshot sees, by key."""
    seen = is_visible(keys.current_txn, valid)
    if len(packed) < 2 or bool((packed[1:] >= packed[:-1]).all()):
        return np.flatnonzero(seen)
    # Stable: on sorted runs, numpy's stable sort is a merge, which is nearly linear.
    order = np.argsort(packed, kind="stable")
    return order if seen.all() else order[seen[order]]


def is_visible(current_txn: NDArray[np.int64], valid: ValidIdList) -> NDArray[np.bool_]:
    """Return a mask of the ids, in any order, that the snapshot sees."""
    found: NDArray[np.bool_] = current_txn <= valid.high_watermark
    if valid.exceptions and len(current_txn):
        low, high = int(current_txn.min()), int(current_txn.max())
        exceptions = [e for e in valid.exceptions if low <= e <= high]
        if exceptions:
            found &= ~np.isin(current_txn, np.asarray(exceptions, dtype=np.int64))
    return found


def _newest_first(
    keys: EventKeys, packed: NDArray[np.int64], order: NDArray[np.int64], is_first: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Sort events with the same key by newest transaction, then by highest statement.

    Others are not sorted.
    """
    in_group = ~is_first
    in_group[:-1] |= ~is_first[1:]
    members = order[in_group]
    by_age = np.lexsort((-keys.precedence[members], -keys.current_txn[members], packed[members]))
    result = order.copy()
    result[in_group] = members[by_age]
    return result
