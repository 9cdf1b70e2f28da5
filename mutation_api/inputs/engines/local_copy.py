"""A table of the source, copied whole, on its way into a target: streamed, whatever its size.

Rows of one state of the source need no reduction, so memory holds some batches at a time, and what is sorted
goes to temporary files beyond ``LocalOptions.memory_bytes``. Only into a target that has rows already are
they merged, and for that they must fit into memory.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.changes.clauses import Action, Clause, Match
from mutation_api.changes.keyed_rows.row_texts import json_texts
from mutation_api.changes.local_merge.expressions import target_types
from mutation_api.changes.local_merge.merge import LocalMerge, local_merge
from mutation_api.changes.merge_report import MergeReport
from mutation_api.changes.preview import Preview
from mutation_api.client.transaction import Transaction
from mutation_api.errors import RecordValueError
from mutation_api.inputs.contradictions import SAMPLES_SHOWN, Contradictions, LogCounts
from mutation_api.inputs.engines.distinct_keys import DistinctKeys
from mutation_api.inputs.engines.engine import changed_samples, check_operation_columns
from mutation_api.inputs.log_walk import FIRST_OPERATION, INSERT, NO_KEY
from mutation_api.inputs.source import OPERATION, POSITION, SourceTable
from mutation_api.local.apply import apply_arrow
from mutation_api.local.forecast import forecast_arrow
from mutation_api.local.local_options import LocalOptions
from mutation_api.scan.table_scan import TableScan
from mutation_api.scan.table_view import open_table
from mutation_api.table.missing_partitions import check_may_create
from mutation_api.table.partition import partition_names

__all__ = ["CopiedTable", "copied_here"]

_INSERTED = "inserted"


def copied_here(
    table: SourceTable,
    operations: Iterable[pa.RecordBatch],
    local: LocalOptions,
    *,
    is_emptied: bool,
    what: str,
) -> CopiedTable:
    """Check the rows of a copy, and count them.

    Args:
        table: the table, whose key is known.
        operations: the rows, which can be read again and again; see
            :class:`~mutation_api.inputs.source.LocalOperations`.
        local: memory and threads.
        is_emptied: whether rows of the target that the source lacks are deleted.
        what: names the copy in messages.

    Raises:
        DuplicateKeyError: two rows have one key.
        RecordLayoutError: a column is missing, or the values of a key column cannot be compared.
        RecordValueError: a row has no key.
        Others: what the source raises when its rows are read.
    """
    counts: Counter[str] = Counter()
    with DistinctKeys(table, local, what) as keys:
        for batch in operations:
            rows = _named_low(batch)
            check_operation_columns(table, rows.schema.names)
            _check_keys(rows, table.key, what)
            keys.add(rows)
            counts.update(_by_partition(table, rows))
        keys.check()
    return CopiedTable(table, operations, local, is_emptied, dict(counts))


@dataclass(frozen=True)
class CopiedTable:
    """A :class:`~mutation_api.inputs.engines.engine.ReducedTable` of rows that were checked.

    ``partitions``: their number by (escaped) partition name, '' for a table without partitions.
    """

    table: SourceTable
    operations: Iterable[pa.RecordBatch]
    local: LocalOptions
    is_emptied: bool
    partitions: dict[str, int]

    @property
    def counts(self) -> LogCounts:
        """See :class:`~mutation_api.inputs.engines.engine.ReducedTable`."""
        count = sum(self.partitions.values())
        return LogCounts(count, {(INSERT, INSERT): count} if count else {}, Contradictions())

    def merge(self, transaction: Transaction, before_writing: Callable[[MergeReport], None]) -> MergeReport:
        """See :class:`~mutation_api.inputs.engines.engine.ReducedTable`; rows go into an empty target as
        inserts.
        """
        if not self._is_target_empty(transaction):
            return self._merge(transaction).execute(before_writing=before_writing)
        report = self._report(transaction, is_dry_run=False)
        before_writing(report)
        if not self.partitions:
            return report
        written = apply_arrow(
            transaction, self._target, self._rows(OPERATION), operation_column=OPERATION, local=self.local
        )
        return dataclasses.replace(report, written=written)

    def dry_run(self, transaction: Transaction) -> MergeReport:
        """See :class:`~mutation_api.inputs.engines.engine.ReducedTable`."""
        if not self._is_target_empty(transaction):
            return self._merge(transaction).dry_run(samples=0)
        report = self._report(transaction, is_dry_run=True)
        if not self.partitions:
            return report
        forecast = forecast_arrow(
            transaction, self._target, self._rows(OPERATION), operation_column=OPERATION, local=self.local
        )
        return dataclasses.replace(report, preview=Preview(forecast, (), ()))

    def changed(self, transaction: Transaction) -> list[str]:
        """See :class:`~mutation_api.inputs.engines.engine.ReducedTable`."""
        return changed_samples(self._merge(transaction).dry_run(samples=SAMPLES_SHOWN))

    def contradicting(self, transaction: Transaction) -> list[str]:
        """A copy is what the source has; whatever the target has does not contradict it."""
        return []

    @property
    def _target(self) -> str:
        return self.table.target.full_name

    def _is_target_empty(self, transaction: Transaction) -> bool:
        """Asked under the lock of the transaction, so nobody adds rows meanwhile."""
        scan = TableScan(open_table(transaction, self._target), columns=self.table.key[:1], limit=1)
        return not scan.to_arrow().num_rows

    def _report(self, transaction: Transaction, *, is_dry_run: bool) -> MergeReport:
        known = {each.name for each in transaction.partitions(self._target)}
        new = self.partitions.keys() - known - {""}
        check_may_create(self.table.target, new)
        total = sum(self.partitions.values())
        return MergeReport.of(
            self._target,
            [(name, _INSERTED, count) for name, count in self.partitions.items()],
            is_dry_run=is_dry_run,
            new_partitions=new,
            counts_by=[(INSERT, _INSERTED, total)] if total else [],
        )

    def _merge(self, transaction: Transaction) -> LocalMerge:
        merge = local_merge(
            transaction,
            self._target,
            source=self._rows(FIRST_OPERATION),
            on=self.table.key,
            missing_columns="error",
            count_by=FIRST_OPERATION,
            local=self.local,
        )
        merge.clauses += [
            Clause(Match.MATCHED, None, Action.UPDATE),
            Clause(Match.NOT_MATCHED, None, Action.INSERT),
        ]
        if self.is_emptied:
            merge.clauses.append(Clause(Match.NOT_MATCHED_BY_SOURCE, None, Action.DELETE))
        return merge

    def _rows(self, operation_column: str) -> pa.RecordBatchReader:
        """The rows, each an insert; an emptied source has none, and the columns are the target's then."""
        batches = _as_inserts(self.operations, operation_column)
        first = next(batches, None)
        if first is None:
            no_rows = pa.schema([(operation_column, pa.string()), *target_types(self.table.target).items()])
            return pa.RecordBatchReader.from_batches(no_rows, [])
        return pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))


def _as_inserts(operations: Iterable[pa.RecordBatch], operation_column: str) -> Iterator[pa.RecordBatch]:
    for batch in operations:
        rows = _named_low(batch)
        columns = [name for name in rows.schema.names if name not in (OPERATION, POSITION)]
        inserts = pa.repeat(pa.scalar(INSERT), rows.num_rows)
        yield pa.record_batch(
            [inserts, *(rows.column(name) for name in columns)], names=[operation_column, *columns]
        )


def _named_low(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns([name.lower() for name in batch.schema.names])


def _check_keys(rows: pa.RecordBatch, key: Sequence[str], what: str) -> None:
    for name in key:
        if name in rows.schema.names and rows.column(name).null_count:
            row = pc.index(pc.is_null(rows.column(name)), True).as_py()
            named = rows.select([each for each in key if each in rows.schema.names]).slice(row, 1)
            (shown,) = json_texts(named.to_struct_array())
            raise RecordValueError(f"{what}, key {shown}: {NO_KEY}. Nothing was written")


def _by_partition(table: SourceTable, rows: pa.RecordBatch) -> dict[str, int]:
    """Number of rows by name of the partition."""
    target = table.target
    if not target.partition_keys:
        return {"": rows.num_rows} if rows.num_rows else {}
    columns = {name: rows.column(name) for name in target.partition_key_names}
    found = pc.value_counts(partition_names(target, columns).cast(pa.string()))
    return {each["values"]: each["counts"] for each in found.to_pylist()}
