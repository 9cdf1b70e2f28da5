"""The timeline of keys: the events of their stored rows and new ones, and the rows that hold all of them.

See :mod:`mutation_api.merge.history` for the form of the rows. All is pure Arrow, for both engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import ContradictionError, DuplicateKeyError
from mutation_api.format.differences import differs
from mutation_api.format.event import DELETE, INSERT, ROW_ID_COLUMN, UPDATE, Mask
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.format.json_values import json_texts
from mutation_api.merge.clauses import CHANGE_COLUMN
from mutation_api.merge.history import Events, HistoryReport, HistoryRules, blank
from mutation_api.merge.key_columns import in_nanoseconds, in_one_unit
from mutation_api.merge.source_rows import dense_ranks, row_codes
from mutation_api.orc.format.stored_values import hollow
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.table.acid_table import AcidTable

Indices = NDArray[np.int64]

ROWS_SHOWN = 3


@dataclass(frozen=True)
class HistoryChanges:
    """The changes of a table that add events to its history.

    Attributes:
        table: the table.
        deleted: ROW__IDs of rows that other rows replace.
        updated: ROW__IDs, and the new rows.
        inserted: the rows to insert.
        change_count: number of events.
        moves: True if an update may move its row to another partition or bucket.
    """

    table: AcidTable
    deleted: pa.Array
    updated: tuple[pa.Array, pa.RecordBatch]
    inserted: pa.RecordBatch
    change_count: int
    moves: bool

    def report(self, *, is_dry_run: bool) -> HistoryReport:
        """Return the numbers of rows."""
        updated, moved = len(self.updated[0]), len(self.updated[0]) if self.moves else 0
        return HistoryReport(
            self.table.full_name,
            self.change_count,
            inserted=self.inserted.num_rows + moved,
            updated=updated - moved,
            deleted=len(self.deleted) + moved,
            is_dry_run=is_dry_run,
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield a change set with the operation in CHANGE_COLUMN."""
        row_ids, rows = self.updated
        if len(self.deleted):
            yield self._batch(DELETE, self.deleted, _nulls_like(self.inserted, len(self.deleted)))
        if len(row_ids) and self.moves:
            yield self._batch(DELETE, row_ids, _nulls_like(rows, len(row_ids)))
            yield self._batch(INSERT, None, rows)
        elif len(row_ids):
            yield self._batch(UPDATE, row_ids, rows)
        if self.inserted.num_rows:
            yield self._batch(INSERT, None, self.inserted)

    def _batch(self, operation: str, row_ids: pa.Array | None, rows: pa.RecordBatch) -> pa.RecordBatch:
        count = rows.num_rows
        ids = pa.nulls(count, full_row_id_type(self.table)) if row_ids is None else row_ids
        columns = [pa.repeat(operation, count), ids, *rows.columns]
        return pa.record_batch(columns, names=[CHANGE_COLUMN, ROW_ID_COLUMN, *rows.schema.names])


def _nulls_like(rows: pa.RecordBatch, count: int) -> pa.RecordBatch:
    return pa.record_batch([hollow(kind, count) for kind in rows.schema.types], names=rows.schema.names)


def joined_rows(table: AcidTable, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return ROW__ID and all columns of rows of a table, in one batch; without rows if there are none."""
    if batches:
        return pa.concat_batches(in_one_unit(table, batches))
    kinds = {c.name: arrow_type(parse_hive_type(c.type), timestamp_unit="us") for c in table.all_columns}
    kinds = {ROW_ID_COLUMN: full_row_id_type(table), **kinds}
    return pa.record_batch({name: pa.nulls(0, kind) for name, kind in kinds.items()})


def history_changes(
    table: AcidTable, rules: HistoryRules, stored: pa.RecordBatch, events: Events
) -> HistoryChanges:
    """Return the changes that add events to a history.

    Args:
        table: the table.
        rules: the options of its history.
        stored: ROW__ID and all columns of the table's rows with the keys of the events. Rows of other keys
            are ignored.
        events: the events, as :func:`events_of` returns them.

    Raises:
        DuplicateKeyError: If a key has two different changes at one point.
        ContradictionError: If the intervals of stored rows overlap.
        RecordValueError: If timestamps have digits below microseconds and years that nanoseconds cannot hold.
    """
    key = list(rules.key)
    codes = row_codes(pa.concat_batches([stored.select(key), events.rows.select(key)]).columns)
    of_stored, of_events = np.split(codes, [stored.num_rows])
    wanted = np.isin(of_stored, of_events)
    codes = np.concatenate([of_stored[wanted], of_events])
    return _Timeline(table, rules, stored.filter(pa.array(wanted)), events, codes).changes()


_STORED, _IMPLIED, _NEW = range(3)


class _Timeline:
    """The events of some keys: those of stored rows, those that stored intervals imply, and new ones.

    ``rows`` are the stored rows, then the new events. ``points`` are their valid_from, then the valid_to of
    the stored rows. ``codes`` has a number for each of ``rows``, the same for rows of one key. An event is a
    position in ``kind``, ``row`` (in ``rows``), ``at`` (in ``points``) and ``is_delete``.
    """

    def __init__(
        self,
        table: AcidTable,
        rules: HistoryRules,
        stored: pa.RecordBatch,
        events: Events,
        codes: Indices,
    ) -> None:
        self._table = table
        self._rules = rules
        self._row_ids = stored.column(ROW_ID_COLUMN)
        self._count = events.rows.num_rows
        names = [column.name for column in table.all_columns]
        parts = in_one_unit(table, [stored.select(names), events.rows.select(names)])
        self._rows = pa.concat_batches(parts)
        first, last = self._rows.column(rules.valid_from), stored.column(rules.valid_to)
        if first.type != last.type:
            first, last = (
                in_nanoseconds(table, name, each)
                for name, each in ((rules.valid_from, first), (rules.valid_to, last))
            )
        self._points = pa.concat_arrays([first, last])
        self._codes = codes
        self._ranks = dense_ranks(self._points, is_descending=False)
        size = stored.num_rows
        if rules.in_log_order:
            self._raise_points(size)
        self._is_empty = self._ranks[:size] == self._ranks[self._rows.num_rows :]
        owners = self._implied_deletes(size)
        fresh = np.arange(size, self._rows.num_rows)
        self._kind = np.repeat([_STORED, _IMPLIED, _NEW], [size, len(owners), len(fresh)])
        self._row = np.concatenate([np.arange(size), owners, fresh])
        self._at = np.concatenate([np.arange(size), self._rows.num_rows + owners, fresh])
        self._is_delete = np.concatenate([self._is_empty, np.ones(len(owners), np.bool_), events.deletes])

    def _raise_points(self, size: int) -> None:
        """Let no new event begin before the event that precedes it in the order of the ties."""
        count = self._rows.num_rows
        is_new = np.arange(count) >= size
        ties = [dense_ranks(self._rows.column(name), is_descending=False) for name in self._rules.ties]
        order = np.lexsort((is_new, *reversed(ties), self._codes))
        groups = np.cumsum(_borders(self._codes[order])) if count else order
        width = int(self._ranks.max(initial=0)) + 1
        latest = np.maximum.accumulate(groups * width + self._ranks[order]) - groups * width
        raised = self._ranks[:count].copy()
        raised[order] = latest
        raised[:size] = self._ranks[:size]
        if (raised == self._ranks[:count]).all():
            return
        point_of = np.zeros(width, np.int64)
        point_of[self._ranks] = np.arange(len(self._ranks))
        places = np.concatenate([point_of[raised], np.arange(count, len(self._ranks))])
        self._points = self._points.take(pa.array(places))
        self._ranks = np.concatenate([raised, self._ranks[count:]])

    def _implied_deletes(self, size: int) -> Indices:
        """Check the intervals of stored rows. Return the rows whose end is the point of a delete."""
        codes, begin, end = self._codes[:size], self._ranks[:size], self._ranks[self._rows.num_rows :]
        order = np.lexsort((begin, codes))
        follows = np.zeros(size, np.bool_)
        next_begin = np.zeros(size, np.int64)
        one, other = order[:-1], order[1:]
        same = codes[one] == codes[other]
        follows[one[same]] = True
        next_begin[one[same]] = begin[other[same]]
        is_wrong = (begin == 0) | ((end > 0) & (end < begin))
        is_wrong |= follows & ((end == 0) | (end > next_begin) | (begin == next_begin))
        if is_wrong.any():
            shown = [*self._rules.key, self._rules.valid_from, self._rules.valid_to]
            raise ContradictionError(
                f"table {self._table.full_name}: versions of a key overlap, or have no beginning: "
                f"{self._texts(np.flatnonzero(is_wrong), shown)}. Nothing was written. Correct these rows "
                "first: an interval ends at or before the next one begins, and only the last one is open"
            )
        is_next = follows & (end == next_begin)
        return np.flatnonzero((end > 0) & ~self._is_empty & ~is_next)

    def _texts(self, rows: Indices, names: Sequence[str]) -> str:
        taken = self._rows.select(list(dict.fromkeys(names))).take(pa.array(rows[:ROWS_SHOWN]))
        more = f", and {len(rows) - ROWS_SHOWN:,} more" if len(rows) > ROWS_SHOWN else ""
        return ", ".join(json_texts(taken.to_struct_array())) + more

    def changes(self) -> HistoryChanges:
        """Compare the rows of all events with the stored rows."""
        events = self._one_per_point()
        codes, is_state = self._codes[self._row[events]], ~self._is_delete[events]
        has_next = np.append(codes[1:] == codes[:-1], False) if len(events) else np.zeros(0, np.bool_)
        after_state = np.append(False, has_next[:-1] & is_state[:-1]) if len(events) else has_next
        has_row = is_state | ~after_state | bool(self._rules.ties)
        ends = np.where(is_state, np.append(self._at[events][1:], -1), self._at[events])
        ends[is_state & ~has_next] = -1
        is_current = is_state & ~has_next
        is_stored = self._kind[events] == _STORED
        kept = np.flatnonzero(has_row & is_stored)
        removed = np.ones(len(self._row_ids), np.bool_)
        removed[self._row[events[kept]]] = False
        changed = kept[self._differ(self._row[events[kept]], ends[kept], is_current[kept])]
        added = np.flatnonzero(has_row & ~is_stored)
        rules = self._rules
        return HistoryChanges(
            self._table,
            self._row_ids.filter(pa.array(removed)),
            (
                self._row_ids.take(pa.array(self._row[events[changed]])),
                self._built(events[changed], ends[changed], is_current[changed]),
            ),
            self._built(events[added], ends[added], is_current[added]),
            self._count,
            moves=not {rules.valid_to, rules.current}.isdisjoint(
                (*self._table.partition_key_names, *(name.lower() for name in self._table.bucket_columns))
            ),
        )

    def _one_per_point(self) -> Indices:
        """Return the event that takes effect at each point of each key, in order.

        Raises:
            DuplicateKeyError: If it cannot be decided.
        """
        codes, ranks = self._codes[self._row], self._ranks[self._at]
        ties = [self._tie_ranks(name) for name in self._rules.ties]
        order: Indices = np.lexsort((self._kind, *reversed(ties), ranks, codes))
        if not len(order):
            return np.zeros(0, np.int64)
        groups = np.cumsum(_borders(codes[order], ranks[order])) - 1
        is_first_of_tie = _borders(codes[order], ranks[order], *(each[order] for each in ties))
        # Equal events stand together, stored ones first: the first of the last ones counts.
        heads = np.flatnonzero(is_first_of_tie)
        last_heads = np.zeros(groups[-1] + 1, np.int64)
        last_heads[groups[heads]] = heads
        head_of = last_heads[groups]
        rest = np.flatnonzero(np.arange(len(order)) > head_of)
        one, other = order[head_of[rest]], order[rest]
        is_other = self._is_delete[one] != self._is_delete[other]
        both = np.flatnonzero(~is_other & ~self._is_delete[one])
        is_other[both] |= self._states_differ(self._row[one[both]], self._row[other[both]])
        # The columns that decide ties are unknown for a delete without a row.
        unknown = np.zeros(groups[-1] + 1, np.bool_)
        if ties:
            unknown[groups[self._kind[order] == _IMPLIED]] = True
            unknown &= np.bincount(groups, ~self._is_delete[order]) > 0
        wrong = np.union1d(groups[rest[is_other]], np.flatnonzero(unknown))
        if len(wrong):
            raise self._ambiguous(wrong, groups, order)
        return np.asarray(order[last_heads], np.int64)

    def _tie_ranks(self, name: str) -> Indices:
        ranks: Indices = dense_ranks(self._rows.column(name), is_descending=False)[self._row]
        ranks[self._kind == _IMPLIED] = 0
        return ranks

    def _states_differ(self, one: Indices, other: Indices) -> Mask:
        found = np.zeros(len(one), np.bool_)
        for name in self._rules.columns:
            column = self._rows.column(name)
            found |= differs(column.take(pa.array(one)), column.take(pa.array(other)))
        return found

    def _ambiguous(self, wrong: Indices, groups: Indices, order: Indices) -> DuplicateKeyError:
        rules = self._rules
        found = order[groups == wrong[0]]
        names = [*rules.key, rules.valid_from, *rules.columns]
        texts = [
            "a delete" if self._is_delete[each] else self._texts(self._row[each : each + 1], names)
            for each in found[:ROWS_SHOWN]
        ]
        where = self._texts(self._row[found[:1]], rules.key)
        more = f", and {len(wrong) - 1:,} more keys or points" if len(wrong) > 1 else ""
        return DuplicateKeyError(
            f"table {self._table.full_name}: key {where} has several changes with the same {rules.point}, so "
            f"their order is unknown: {'; '.join(texts)}{more}. Nothing was written. Pass further columns "
            f"that break the tie: sequence=[{rules.point!r}, …], or keep one change"
        )

    def _differ(self, rows: Indices, ends: Indices, is_current: Mask) -> Mask:
        """Return a mask of the stored rows whose end, or whose mark of the last version, has changed."""
        stored_ends = self._ranks[self._rows.num_rows + rows]
        found: Mask = stored_ends != np.where(ends < 0, 0, self._ranks[ends])
        if self._rules.current is not None:
            stored = self._rows.column(self._rules.current).take(pa.array(rows))
            found |= differs(stored, pa.array(is_current))
        return found

    def _built(self, events: Indices, ends: Indices, is_current: Mask) -> pa.RecordBatch:
        """Return the rows of events."""
        rules = self._rules
        taken = self._rows.take(pa.array(self._row[events]))
        implied = self._kind[events] == _IMPLIED
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        if implied.any():  # the rows are those of the versions that end there
            kept = {*rules.key, *self._table.partition_key_names}
            columns |= {name: blank(each, implied) for name, each in columns.items() if name not in kept}
        columns[rules.valid_from] = self._points.take(pa.array(self._at[events]))
        columns[rules.valid_to] = self._points.take(pa.array(ends, mask=ends < 0))
        if rules.current is not None:
            columns[rules.current] = pa.array(is_current, pa.bool_())
        return pa.record_batch(columns)


def _borders(*sorted_columns: Indices) -> Mask:
    """Return a mask of the rows that differ from the row before them; the first one always does."""
    found = np.zeros(len(sorted_columns[0]), np.bool_)
    found[0] = True
    for column in sorted_columns:
        found[1:] |= column[1:] != column[:-1]
    return found
