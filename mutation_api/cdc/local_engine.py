"""The engine that reads, reduces and merges a change source in this process, without Spark.

``LocalOptions.memory_bytes`` limits its memory; half of it is for the operations of all tables. The copy of a
whole table is streamed instead of being held in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.cdc.engine import (
    AnySource,
    Reading,
    ReducedTable,
    TargetBytes,
    operation_clauses,
)
from mutation_api.cdc.ingest_report import (
    SAMPLES_SHOWN,
    LogCounts,
)
from mutation_api.cdc.kept_changes import KeptChanges
from mutation_api.cdc.local_copy import copied_here
from mutation_api.cdc.local_reduce import HeldOperations, LocalLog, collected, reduce_here
from mutation_api.cdc.log_walk import (
    FIRST_OPERATION,
    FIRST_POSITION,
)
from mutation_api.cdc.source import (
    OPERATION,
    LocalBatch,
    LocalChangeSource,
    Position,
    SourceTable,
)
from mutation_api.errors import ConfigurationError
from mutation_api.format.event import DELETE, INSERT
from mutation_api.format.json_values import json_texts
from mutation_api.format.plain_array import plain_array
from mutation_api.merge.clauses import CHANGE_COLUMN, SOURCE
from mutation_api.merge.history import HistoryReport, HistoryRules
from mutation_api.merge.local_merge import LocalMerge, local_merge
from mutation_api.merge.local_rules import local_history
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.source_rows import plain_batch, source_rows
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.apply import apply_arrow
from mutation_api.write.local_plan import LocalOptions

NAME = "local"
OPERATIONS_PART = 2
"""The fraction of the memory for operations is 1/OPERATIONS_PART."""
KEYS_AT_ONCE = 10_000
"""The number of keys that are looked up at once, until enough are found for a message."""

_NUMBER = "__number"


@dataclass(frozen=True)
class LocalEngine:
    """Reads sources in this process; ``local``: memory and threads."""

    local: LocalOptions

    def check(self, source: AnySource) -> None:
        """Raise ConfigurationError if the source can only be read by Spark."""
        if not isinstance(source, LocalChangeSource):
            raise ConfigurationError(
                f"source {source.source_id} can only be read by Spark (it does not have a method read_local)"
            )

    def read(
        self,
        source: AnySource,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        _target_bytes: TargetBytes,
    ) -> Reading:
        """Read the source. See :class:`~mutation_api.cdc.engine.Engine`."""
        assert isinstance(source, LocalChangeSource)
        return self.reading(source.read_local(tables, after))

    def reading(self, batch: LocalBatch) -> Reading:
        """Return the reading of a batch that was read in this process."""
        held = HeldOperations(self.local.memory_bytes // OPERATIONS_PART)
        logs = tuple(
            _LocalTableLog(each.table, each.is_emptied, each.operations, held, self.local, each.is_copy)
            for each in batch.tables
        )
        return Reading(NAME, logs, batch.position, batch.stop, batch.set_back, batch.warnings)


@dataclass(frozen=True)
class _LocalTableLog:
    """A :class:`~mutation_api.cdc.engine.TableLog`."""

    table: SourceTable
    is_emptied: bool
    operations: Iterable[pa.RecordBatch]
    held: HeldOperations
    local: LocalOptions
    is_copy: bool

    _found: list[pa.Table] = field(default_factory=list, init=False)
    """The operations, while they are reduced and added to other targets."""

    @property
    def column_names(self) -> Sequence[str]:
        names: list[str] = self._found[0].column_names
        return names

    @contextmanager
    def reduced(self, *, what: str, strict: bool, is_kept: bool = False) -> Iterator[ReducedTable]:
        if self.is_copy and not is_kept:
            yield copied_here(self.table, self.operations, self.local, is_emptied=self.is_emptied, what=what)
            return
        found = collected(self.table, self.operations, self.held, what)
        log = reduce_here(self.table, found, strict=strict, what=what)
        if is_kept:
            self._found.append(found)
        try:
            yield _LocalReduced(self.table, log, self.is_emptied, self.local)
        finally:
            self._found.clear()

    def add_history(
        self, transaction: Transaction, kept: KeptChanges, rules: HistoryRules, *, dry_run: bool
    ) -> HistoryReport:
        found = local_history(transaction, rules, kept.target, self._rows(kept), self.local)
        batches = [] if dry_run else [*found.batches()]
        if batches:
            apply_arrow(
                transaction,
                kept.target,
                pa.RecordBatchReader.from_batches(batches[0].schema, batches),
                operation_column=CHANGE_COLUMN,
                read_now=True,
                local=self.local,
            )
        return found.report(is_dry_run=dry_run)

    def add_changes(self, transaction: Transaction, kept: KeptChanges, *, dry_run: bool) -> MergeReport:
        rows, on = self._rows(kept), (*self.table.key, kept.position)
        merge = local_merge(transaction, kept.target, source=rows, on=on, local=self.local)
        merge.when_not_matched_insert_all()
        return merge.dry_run(samples=0) if dry_run else merge.execute()

    def _rows(self, kept: KeptChanges) -> pa.Table:
        (found,) = self._found
        batches = [kept.rows(plain_batch(found.slice(0, 0))), *map(kept.rows, found.to_batches())]
        return source_rows(kept.target, pa.Table.from_batches(batches), self.local)


@dataclass(frozen=True)
class _LocalReduced(ReducedTable):
    """A :class:`~mutation_api.cdc.engine.ReducedTable`."""

    table: SourceTable
    log: LocalLog
    is_emptied: bool
    local: LocalOptions

    @property
    def counts(self) -> LogCounts:
        return self.log.counts

    def contradicting(self, transaction: Transaction) -> list[str]:
        """Return keys in the order of their JSON, as Spark's engine does."""
        rows = self.log.rows
        orders = pa.array(json_texts(plain_array(rows[FIRST_POSITION])), pa.string())
        keys = pa.array(json_texts(_keys(rows, self.table.key).to_struct_array()), pa.string())
        texts = pa.table({"order": orders, "key": keys})
        in_order = pc.sort_indices(texts, sort_keys=[("order", "ascending"), ("key", "ascending")])
        found: list[str] = []
        for start in range(0, len(in_order), KEYS_AT_ONCE):
            some = in_order.slice(start, KEYS_AT_ONCE)
            operations = rows[FIRST_OPERATION].take(some)
            is_insert = pc.equal(operations, INSERT).to_numpy()
            wrong = np.flatnonzero(is_insert == self._are_present(transaction, rows.take(some)))
            for row in wrong[: SAMPLES_SHOWN - len(found)].tolist():
                at = some[row].as_py()
                found.append(f"{operations[row]} of key {keys[at]} at {orders[at]}")
            if len(found) == SAMPLES_SHOWN:
                break
        return found

    def _are_present(self, transaction: Transaction, rows: pa.Table) -> NDArray[np.bool_]:
        """Return True for each key that the target has, from the report of a merge that writes nothing."""
        present: NDArray[np.bool_] = np.zeros(rows.num_rows, np.bool_)
        if self.is_emptied:
            return present
        numbered = _keys(rows, self.table.key).append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
        looking = local_merge(
            transaction,
            self.table.target.full_name,
            source=numbered,
            on=self.table.key,
            count_by=_NUMBER,
            local=self.local,
        )
        found = looking.when_matched_delete().dry_run(samples=0).counts_by
        present[[number for number in found if isinstance(number, int)]] = True
        return present

    def _merge(self, transaction: Transaction) -> LocalMerge:
        merge = local_merge(
            transaction,
            self.table.target.full_name,
            source=self.log.rows.drop_columns([FIRST_POSITION]),
            on=self.table.key,
            missing_columns="error",
            count_by=FIRST_OPERATION,
            local=self.local,
        )
        is_delete = pc.field(SOURCE, OPERATION) == DELETE
        merge.clauses += operation_clauses(is_delete, ~is_delete, is_emptied=self.is_emptied)
        return merge


def _keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    return rows.select(list(key))
