"""The part of the table that a merge reads, in as few passes as its clauses allow.

Several splits are read in parallel.

An update that changes nothing is not written, so every column that it assigns is compared with the row's old
value. Most updates change a number, but most of the time is spent on reading strings. So numbers are compared
first. The other columns are read in a second pass, only for the rows that are still undecided.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import DirectoryStateError, RecordLayoutError
from mutation_api.format.differences import differs
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.plain_array import has_timestamp
from mutation_api.merge.acting import UNCHANGED, UPDATED, Acting, AnyMerge
from mutation_api.merge.clauses import MergeOptions
from mutation_api.merge.differences import SourceKeys
from mutation_api.merge.evaluator import Evaluator, target_types
from mutation_api.merge.key_columns import in_one_unit
from mutation_api.merge.resolve import Alternatives
from mutation_api.merge.source_rows import check_memory
from mutation_api.merge.target_rows import READING_DEFAULT, KeyedSplits, PlannedView, Reading, TargetRows
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.read.row_filter import RowFilter
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.expression_parts import columns_of
from mutation_api.write.local_plan import LocalOptions

Indices = NDArray[np.int64]


def late_columns(table: AcidTable, resolved: AnyMerge) -> frozenset[str]:
    """Return the names of the columns that can be read late.

    The result is empty if no other column can show that a row changes, or if rows without a source row are
    updated too.
    """
    if any(c.action.replaces_row and not c.match.has_source for c in resolved.clauses):
        return frozenset()
    types = target_types(table)
    late = frozenset(name for name in resolved.compared_alone if not pa.types.is_primitive(types[name]))
    return late if resolved.compared_alone - late else frozenset()


def settled(
    table_name: str,
    found: Sequence[Acting],
    late: frozenset[str],
    keys: Sequence[str],
    read: Callable[[pa.Table], pa.RecordBatch],
) -> list[Acting]:
    """Compare the late columns of updates that seem to change nothing.

    Args:
        table_name: ``database.table``, for messages.
        found: rows on which clauses act. Updates were compared without the columns ``late``.
        late: the result of :func:`late_columns`.
        keys: names of the key columns.
        read: a function that returns ROW__ID and the late columns of all rows with one of some distinct keys.

    Raises:
        DirectoryStateError: If a row that was read is not found again.
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
    """Return the position of each ROW__ID to find among the stored ones."""
    names = [field.name for field in wanted.type]
    rows = pa.RecordBatch.from_arrays(wanted.flatten(), names)
    ids = SourceKeys(rows, np.zeros(len(wanted), np.bool_), null_safe=True)
    pairs = ids.pairs(stored.flatten())
    is_found = np.zeros(len(wanted), np.bool_)
    is_found[pairs.source] = True
    found = np.count_nonzero(is_found)
    if found != len(wanted):
        raise DirectoryStateError(
            f"table {table_name}: only {found:,} of {len(wanted):,} rows that were read were found again: "
            "files of the table were removed or replaced in the meantime. Run the merge again"
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


_SMALL_SPLIT_BYTES = 1 << 18
_BYTES_PER_SOUGHT_ROW = 1 << 16
"""If at most one row is to be found per this number of bytes,
:meth:`~mutation_api.orc.read.orc_input.OrcInput.read_rows` seeks."""


@dataclass(frozen=True)
class TableSide:
    """The table rows with a key of the source, and those without one.

    Attributes:
        view: the reader's view of the table.
        table: the table's descriptor.
        source_bytes: size of the source's rows, which are in memory too.
        keys: the source's keys.
        resolved: the checked clauses.
        evaluator: the evaluator of the clauses' conditions on partitions.
        options: options of the merge.
        local: memory limit and number of threads.
        shows_rows: True to read the old values of all compared columns.
        act: a function that returns the acting rows among table rows without a source row.
        reading: the choices of the process.
    """

    view: PlannedView
    table: AcidTable
    source_bytes: int
    keys: SourceKeys
    resolved: AnyMerge
    evaluator: Evaluator
    options: MergeOptions
    local: LocalOptions
    shows_rows: bool
    act: Callable[[pa.RecordBatch], list[Acting]]
    reading: Reading = READING_DEFAULT

    @property
    def bytes_to_read(self) -> int:
        """The size of the table's files to read, which are only read in part."""
        passes = (self._matching, self._rest) if self._whole is None else (self._whole,)
        return sum(keyed.byte_count for keyed in passes if keyed is not None)

    @cached_property
    def late(self) -> frozenset[str]:
        """The names of the columns that :meth:`matching` lacks. See :mod:`.table_side`."""
        keyed = self._matching if self._whole is None else self._whole
        if self.shows_rows or keyed is None or self._is_read_once(keyed):
            return frozenset()
        return late_columns(self.table, self.resolved)

    def _is_read_once(self, keyed: KeyedSplits) -> bool:
        """Return True if reading all columns once is faster than searching for the keys twice.

        This is the case if there are so few keys that their rows are sought, or if there are many small
        files.
        """
        are_sought = keyed is self._matching and (
            self.keys.distinct.num_rows * _BYTES_PER_SOUGHT_ROW <= keyed.byte_count
        )
        return are_sought or keyed.byte_count <= len(keyed.splits) * _SMALL_SPLIT_BYTES

    def matching(self) -> pa.RecordBatch | None:
        """Return the rows that have a key of the source, or None if there are none.

        Raises:
            UnsupportedLocallyError: If they need more memory than allowed.
            Other errors: See :func:`mutation_api.read.snapshot_reader.split_rows`.
        """
        if self._whole is not None:
            return self._both.matching
        return None if self._matching is None else self._held(self._early_reader, self._matching)

    def late_rows(self, keys: pa.Table) -> pa.RecordBatch:
        """Return ROW__ID and the late columns of the rows that have one of the keys.

        Raises:
            Errors: See :meth:`matching`.
        """
        reader = replace(self._reader, columns=(*keys.column_names, *self.late))
        keyed = self._keyed(reader, keys, self.resolved.matched_where, excludes=False)
        rows = None if keyed is None else self._held(reader, keyed)
        assert rows is not None  # the rows were read before
        return rows

    def others(self) -> Iterator[Acting]:
        """Yield the acting rows among those without a key of the source.

        Raises:
            Errors: See :meth:`matching`.
        """
        if self._whole is not None:
            yield from self._both.others
        elif self._rest is not None:
            byte_count = self.source_bytes
            reader = replace(self._reader, checks_rows=self.reading.checks_rest)
            acts_on = self.reading.acts_on
            for rows in reader.read(self._rest):
                batch = rows if acts_on is None else rows.filter(pa.array(acts_on(rows)))
                acting = self.act(batch)
                if self.reading.in_one_pass:
                    byte_count += _held_bytes(acting)
                    self._check_memory("the table rows without a source row", byte_count)
                yield from acting

    # ---- passes

    @cached_property
    def _whole(self) -> KeyedSplits | None:
        """All splits, if clauses act on both kinds of rows in the same partitions."""
        resolved = self.resolved
        is_both = resolved.acts_on_source and resolved.acts_on_rest and self.keys.distinct.num_rows
        if not (is_both and self.reading.in_one_pass):
            return None
        partitions = self._partitions(resolved.by_source_where)
        if not partitions or set(partitions) != set(self._partitions(resolved.matched_where)):
            return None
        return self._reader.all_rows(partitions)

    @cached_property
    def _matching(self) -> KeyedSplits | None:
        """The splits that may hold rows with a key of the source."""
        if not self.resolved.acts_on_source or not self.keys.distinct.num_rows:
            return None
        return self._keyed(self._reader, self.keys.distinct, self.resolved.matched_where, excludes=False)

    @cached_property
    def _rest(self) -> KeyedSplits | None:
        """The splits that may hold other rows, if a clause acts on them."""
        if not self.resolved.acts_on_rest:
            return None
        if not self.keys.distinct.num_rows:  # every row is without a source row
            partitions = self._partitions(self.resolved.by_source_where)
            return self._reader.all_rows(partitions, self._rest_where) if partitions else None
        return self._keyed(self._reader, self.keys.distinct, self.resolved.by_source_where, excludes=True)

    @property
    def _rest_where(self) -> RowFilter | None:
        """The condition without which no clause acts on rows without a source row.

        None if there is none, or if the reader cannot evaluate it. It reads timestamps in one form only.
        """
        conditions = [c.condition for c in self.resolved.clauses if not c.match.has_source]
        if not all(isinstance(each, pc.Expression) for each in conditions):
            return None
        schema = pa.schema(list(target_types(self.table).items()))
        either = reduce(operator.or_, map(columns_of, conditions))
        with contextlib.suppress(RecordLayoutError, pa.ArrowNotImplementedError):
            found = RowFilter.of(either, self.table, schema)
            return None if any(map(has_timestamp, found.schema.types)) else found
        return None

    @cached_property
    def _both(self) -> _Both:
        """Both kinds of rows, read in one pass."""
        assert self._whole is not None
        keys = KeyFilter(self.keys.distinct, self.options.null_safe)
        matching, others, byte_count = [], list[Acting](), self.source_bytes
        for batch in self._early_reader.read(self._whole):
            rows = keys.find([batch.column(name) for name in keys.names])
            byte_count += batch.nbytes * len(rows) // batch.num_rows
            matching.append(batch.take(pa.array(rows)))
            if len(rows) < batch.num_rows:
                rest = np.ones(batch.num_rows, np.bool_)
                rest[rows] = False
                acting = self.act(batch.filter(pa.array(rest)))
                byte_count += _held_bytes(acting)
                others += acting
            self._check_memory("the source and the rows that the merge reads and changes", byte_count)
        return _Both(self._joined(matching), others)

    def _held(self, reader: TargetRows, keyed: KeyedSplits) -> pa.RecordBatch | None:
        """Read all rows of some splits into memory. Return None if there are none."""
        batches, byte_count = [], self.source_bytes
        for batch in reader.read(keyed):
            byte_count += batch.nbytes
            self._check_memory("the source and the table rows that it matches", byte_count)
            batches.append(batch)
        return self._joined(batches)

    def _joined(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch | None:
        return pa.concat_batches(in_one_unit(self.table, batches)) if batches else None

    def _check_memory(self, what: str, byte_count: int) -> None:
        most = self.reading.memory_bytes or self.local.memory_bytes
        check_memory(self.table.full_name, what, byte_count, most)

    # ---- readers

    def _keyed(
        self, reader: TargetRows, keys: pa.Table, where: Alternatives[Any], *, excludes: bool
    ) -> KeyedSplits | None:
        partitions = self._partitions(where)
        if not partitions:
            return None
        return reader.keyed(keys, partitions, null_safe=self.options.null_safe, excludes=excludes)

    @property
    def _reader(self) -> TargetRows:
        """The reader of all columns."""
        return TargetRows(
            self.view,
            self.table,
            self.resolved.target_columns,
            self.options.prune_buckets,
            self.local.thread_count,
            self.reading.exact_timestamps,
        )

    @property
    def _early_reader(self) -> TargetRows:
        columns = tuple(name for name in self.resolved.target_columns if name not in self.late)
        return replace(self._reader, columns=columns)

    def _partitions(self, alternatives: Alternatives[Any]) -> list[str]:
        """Return the names of the partitions to read; '' if the table is not partitioned."""
        table = self.table
        if not table.partition_keys:
            return [""]
        if not alternatives:
            return []
        return self.evaluator.partitions([*self.view.locations], alternatives)


@dataclass(frozen=True)
class _Both:
    """The table rows with a key of the source, or None, and the acting rows among the others."""

    matching: pa.RecordBatch | None
    others: list[Acting]


def _held_bytes(acting: list[Acting]) -> int:
    return sum(column.nbytes for each in acting for column in (*each.new.values(), each.row_ids))
