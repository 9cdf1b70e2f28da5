"""The engine that reads, reduces and merges in this process, without Spark.

What it holds is bounded by ``LocalOptions.memory_bytes``: half of it is for the operations of all tables. The
copy of a whole table is not held, but streamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.changes.clauses import SOURCE
from mutation_api.changes.keyed_rows.row_texts import json_texts
from mutation_api.changes.local_merge.merge import LocalMerge, local_merge
from mutation_api.changes.merge_report import MergeReport
from mutation_api.client.transaction import Transaction
from mutation_api.errors import ConfigurationError
from mutation_api.inputs.contradictions import SAMPLES_SHOWN, LogCounts
from mutation_api.inputs.engines.engine import (
    AnySource,
    Reading,
    ReducedTable,
    TargetBytes,
    changed_samples,
    operation_clauses,
)
from mutation_api.inputs.engines.local_copy import copied_here
from mutation_api.inputs.engines.local_reduce import HeldOperations, LocalLog, reduce_here
from mutation_api.inputs.log_walk import DELETE, FIRST_OPERATION, FIRST_POSITION, INSERT
from mutation_api.inputs.source import (
    OPERATION,
    LocalBatch,
    LocalChangeSource,
    Position,
    SourceTable,
)
from mutation_api.local.local_options import LocalOptions
from mutation_api.types.plain_array import plain_array

__all__ = ["LocalEngine"]

NAME = "local"
OPERATIONS_PART = 2
"""One part in OPERATIONS_PART of the memory is for operations."""
KEYS_AT_ONCE = 10_000
"""Keys that are looked up at once, until enough are found for a message."""

_NUMBER = "__number"


@dataclass(frozen=True)
class LocalEngine:
    """Reads sources in this process; ``local``: memory and threads."""

    local: LocalOptions

    def check(self, source: AnySource) -> None:
        """See :class:`~mutation_api.inputs.engines.engine.Engine`."""
        if not isinstance(source, LocalChangeSource):
            raise ConfigurationError(
                f"source {source.source_id} can be read by Spark only (it has no method read_local)"
            )

    def read(
        self,
        source: AnySource,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        _target_bytes: TargetBytes,
    ) -> Reading:
        """See :class:`~mutation_api.inputs.engines.engine.Engine`."""
        assert isinstance(source, LocalChangeSource)
        return self.reading(source.read_local(tables, after))

    def reading(self, batch: LocalBatch) -> Reading:
        """What goes on with a batch that was read."""
        held = HeldOperations(self.local.memory_bytes // OPERATIONS_PART)
        logs = tuple(
            _LocalTableLog(each.table, each.is_emptied, each.operations, held, self.local, each.is_copy)
            for each in batch.tables
        )
        return Reading(NAME, logs, batch.position, batch.stop, batch.set_back, batch.warnings)


@dataclass(frozen=True)
class _LocalTableLog:
    """A :class:`~mutation_api.inputs.engines.engine.TableLog`."""

    table: SourceTable
    is_emptied: bool
    operations: Iterable[pa.RecordBatch]
    held: HeldOperations
    local: LocalOptions
    is_copy: bool

    @contextmanager
    def reduced(self, *, what: str, strict: bool) -> Iterator[ReducedTable]:
        if self.is_copy:
            yield copied_here(self.table, self.operations, self.local, is_emptied=self.is_emptied, what=what)
            return
        log = reduce_here(self.table, self.operations, self.held, strict=strict, what=what)
        yield _LocalReduced(self.table, log, self.is_emptied, self.local)


@dataclass(frozen=True)
class _LocalReduced:
    """A :class:`~mutation_api.inputs.engines.engine.ReducedTable`."""

    table: SourceTable
    log: LocalLog
    is_emptied: bool
    local: LocalOptions

    @property
    def counts(self) -> LogCounts:
        return self.log.counts

    def merge(self, transaction: Transaction, before_writing: Callable[[MergeReport], None]) -> MergeReport:
        return self._merge(transaction).execute(before_writing=before_writing)

    def dry_run(self, transaction: Transaction) -> MergeReport:
        return self._merge(transaction).dry_run(samples=0)

    def changed(self, transaction: Transaction) -> list[str]:
        return changed_samples(self._merge(transaction).dry_run(samples=SAMPLES_SHOWN))

    def contradicting(self, transaction: Transaction) -> list[str]:
        """In the order of their texts, as Spark's engine gives them."""
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
        """Whether the target has a row of each key; counted by the report of a merge that writes nothing."""
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
