"""TableSide: what a merge reads of the table, in as few passes as its clauses allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from mutation_api.change_set.staged_writer import LookingTransaction
from mutation_api.changes.clauses import Match
from mutation_api.changes.keyed_rows.exact_timestamps import in_one_unit
from mutation_api.changes.keyed_rows.limits import check_memory
from mutation_api.changes.keyed_rows.pairs import SourceKeys
from mutation_api.changes.keyed_rows.target_rows import KeyedSplits, TargetRows
from mutation_api.changes.local_merge.acting import Acting, AnyMerge
from mutation_api.changes.local_merge.evaluator import Evaluator
from mutation_api.changes.local_merge.late_columns import late_columns
from mutation_api.changes.merge_options import MergeOptions
from mutation_api.changes.resolve import Alternatives
from mutation_api.local.local_options import LocalOptions
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.table.acid_table import AcidTable

__all__ = ["TableSide"]

_SMALL_SPLIT_BYTES = 1 << 18
_BYTES_PER_SOUGHT_ROW = 1 << 16
"""With a row to find in so many bytes, :meth:`~mutation_api.orc.read.orc_input.OrcInput.read_rows` seeks."""


@dataclass(frozen=True)
class TableSide:
    """Rows with a key of the source, and rows without.

    Attributes:
        transaction: begun; the table is one of its sinks.
        table: its descriptor.
        source_bytes: size of the source's rows, which are in memory, too.
        keys: the source's keys.
        plan: the checked clauses.
        evaluator: evaluates their conditions on partitions.
        options: of the merge.
        local: memory and threads.
        shows_rows: whether old values of all compared columns are wanted.
        act: gives the acting ones among rows of the table that the source lacks.
    """

    transaction: LookingTransaction
    table: AcidTable
    source_bytes: int
    keys: SourceKeys
    plan: AnyMerge
    evaluator: Evaluator
    options: MergeOptions
    local: LocalOptions
    shows_rows: bool
    act: Callable[[pa.RecordBatch], list[Acting]]

    @property
    def bytes_to_read(self) -> int:
        """Size of the table's files that are read, in part."""
        passes = (self._matching, self._rest) if self._whole is None else (self._whole,)
        return sum(keyed.byte_count for keyed in passes if keyed is not None)

    @cached_property
    def late(self) -> frozenset[str]:
        """Names of the columns that :meth:`matching` lacks; see :mod:`.late_columns`."""
        keyed = self._matching if self._whole is None else self._whole
        if self.shows_rows or keyed is None or self._is_read_once(keyed):
            return frozenset()
        return late_columns(self.table, self.plan)

    def _is_read_once(self, keyed: KeyedSplits) -> bool:
        """Whether looking for the keys a second time takes longer than all columns of their rows.

        So it is if the keys are so few that their rows are sought, and with many small files.
        """
        are_sought = keyed is self._matching and (
            self.keys.distinct.num_rows * _BYTES_PER_SOUGHT_ROW <= keyed.byte_count
        )
        return are_sought or keyed.byte_count <= len(keyed.splits) * _SMALL_SPLIT_BYTES

    def matching(self) -> pa.RecordBatch | None:
        """The rows that have a key of the source; None if there are none.

        Raises:
            ConfigurationError: they need more memory than allowed.
            Others: see :func:`mutation_api.reader.split_rows.split_rows`.
        """
        if self._whole is not None:
            return self._both.matching
        return None if self._matching is None else self._held(self._early_reader, self._matching)

    def late_rows(self, keys: pa.Table) -> pa.RecordBatch:
        """ROW__ID and the late columns of the rows that have one of the keys.

        Raises: as :meth:`matching`.
        """
        reader = replace(self._reader, columns=(*keys.column_names, *self.late))
        keyed = self._keyed(reader, keys, self.plan.matched_where, excludes=False)
        rows = None if keyed is None else self._held(reader, keyed)
        assert rows is not None  # they were read before
        return rows

    def others(self) -> Iterator[Acting]:
        """The acting ones of the rows that have no key of the source.

        Raises: as :meth:`matching`.
        """
        if self._whole is not None:
            yield from self._both.others
        elif self._rest is not None:
            byte_count = self.source_bytes
            for batch in self._reader.read(self._rest):
                acting = self.act(batch)
                byte_count += _held_bytes(acting)
                self._check_memory("the rows of the table that the source lacks", byte_count)
                yield from acting

    # ---- passes

    @cached_property
    def _whole(self) -> KeyedSplits | None:
        """All splits, if clauses act on both kinds of rows of the same partitions."""
        matches = self.plan.matches
        if Match.NOT_MATCHED_BY_SOURCE not in matches or len(matches) == 1 or not self.keys.distinct.num_rows:
            return None
        partitions = self._partitions(self.plan.by_source_where)
        if not partitions or set(partitions) != set(self._partitions(self.plan.matched_where)):
            return None
        return self._reader.all_rows(partitions)

    @cached_property
    def _matching(self) -> KeyedSplits | None:
        """Splits that may hold rows with a key of the source."""
        if self.plan.matches == {Match.NOT_MATCHED_BY_SOURCE} or not self.keys.distinct.num_rows:
            return None
        return self._keyed(self._reader, self.keys.distinct, self.plan.matched_where, excludes=False)

    @cached_property
    def _rest(self) -> KeyedSplits | None:
        """Splits that may hold other rows, if a clause acts on them."""
        if Match.NOT_MATCHED_BY_SOURCE not in self.plan.matches:
            return None
        return self._keyed(self._reader, self.keys.distinct, self.plan.by_source_where, excludes=True)

    @cached_property
    def _both(self) -> _Both:
        """Both kinds of rows, in one pass."""
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
        """All rows of some splits, in memory; None if there are none."""
        batches, byte_count = [], self.source_bytes
        for batch in reader.read(keyed):
            byte_count += batch.nbytes
            self._check_memory("the source and the rows of the table that it matches", byte_count)
            batches.append(batch)
        return self._joined(batches)

    def _joined(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch | None:
        return pa.concat_batches(in_one_unit(self.table, batches)) if batches else None

    def _check_memory(self, what: str, byte_count: int) -> None:
        check_memory(self.table.full_name, what, byte_count, self.local)

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
        """Of all columns."""
        return TargetRows(
            self.transaction,
            self.table,
            self.plan.target_columns,
            self.options.prune_buckets,
            self.local.thread_count,
        )

    @property
    def _early_reader(self) -> TargetRows:
        columns = tuple(name for name in self.plan.target_columns if name not in self.late)
        return replace(self._reader, columns=columns)

    def _partitions(self, alternatives: Alternatives[Any]) -> list[str]:
        """Names of the partitions whose rows may count; '' for an unpartitioned table."""
        table = self.table
        if not table.partition_keys:
            return [""]
        if not alternatives:
            return []
        names = [partition.name for partition in self.transaction.partitions(table.full_name)]
        return self.evaluator.partitions(names, alternatives)


@dataclass(frozen=True)
class _Both:
    """Rows of the table with a key of the source (None: none), and the acting ones of those without."""

    matching: pa.RecordBatch | None
    others: list[Acting]


def _held_bytes(acting: list[Acting]) -> int:
    return sum(column.nbytes for each in acting for column in (*each.new.values(), each.row_ids))
