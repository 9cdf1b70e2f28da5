"""The copy of a whole source table into a target without Spark, of any size, with each key once.

Rows of one state of the source need no reduction, so memory holds only some batches at a time. Sorted data
goes to temporary files if it exceeds ``LocalOptions.memory_bytes``. The rows are merged only if the target
already has rows; in this case they must fit into memory.

Memory is also bounded when keys are checked for duplicates: keys are sorted by a hash, through files if there
are many, and keys with the same hash are compared. Keys that are different in the source may be equal in
Hive, such as 'a' and 'a ' in a column of type char.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.cdc.engine import ReducedTable, check_key_columns, check_operation_columns
from mutation_api.cdc.ingest_report import Contradictions, LogCounts
from mutation_api.cdc.log_walk import FIRST_OPERATION, NO_KEY
from mutation_api.cdc.source import OPERATION, POSITION, SourceTable
from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.bucket_hash import hash_columns
from mutation_api.format.event import INSERT
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.json_values import json_texts
from mutation_api.format.plain_array import plain_array
from mutation_api.merge.clauses import DUPLICATES_SHOWN_DEFAULT, Action, Clause, Match
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.local_merge import LocalMerge, local_merge
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.preview import Preview
from mutation_api.merge.source_rows import copied_keys_error
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import SORT_MEMORY_BYTES_MAX
from mutation_api.table.partition import check_may_create, partition_names
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.apply import apply_arrow
from mutation_api.write.batch_sorter import BatchSorter, KeyParts
from mutation_api.write.local_plan import LocalOptions, forecast_arrow

SORTING_PART = 4
"""The fraction of the memory for sorting keys is 1/SORTING_PART."""

_HASH = "__hash"
_HASH_VERSION = 2
_COUNT = "__count"


class DistinctKeys:
    """Takes the rows of a copy, in any order; as a context manager, it removes its files.

    Args:
        table: the table and its key.
        local: options whose memory limits the keys that are held.
        what: name of the copy in messages.
    """

    def __init__(self, table: SourceTable, local: LocalOptions, what: str) -> None:
        self._table = table
        self._what = what
        types = {column.name.lower(): column.type for column in table.target.all_columns}
        self._types = [parse_hive_type(types[name]) for name in table.key if name in types]
        memory = min(local.memory_bytes // SORTING_PART, SORT_MEMORY_BYTES_MAX)
        self._sorter = BatchSorter(table.target.full_name, _hash_of, memory)

    def __enter__(self) -> Self:
        """Return the object itself."""
        self._sorter.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Remove the files."""
        self._sorter.__exit__(*exc_info)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows, whose column names are in lower case.

        Raises:
            RecordLayoutError: If a key column is missing, or if its values cannot be compared.
            DeltaWriteError: If keys cannot be written to a temporary file.
        """
        names, key = rows.schema.names, self._table.key
        check_key_columns(key, rows.schema)
        if len(self._types) < len(key):
            raise RecordLayoutError(
                f"the operations lack columns {', '.join(key)}; they have {', '.join(names)}"
            )
        keys = [plain_array(rows.column(name)) for name in key]
        hashes = hash_columns(keys, self._types, _HASH_VERSION)
        self._sorter.add(pa.record_batch([pa.array(hashes), *keys], names=[_HASH, *self._table.key]))

    def check(self) -> None:
        """Raise DuplicateKeyError if two rows have one key, DeltaWriteError if a temporary file is lost."""
        count = 0
        samples: list[str] = []
        for rows in _sharing(self._sorter.in_order()):
            keys = pa.table(rows).select(list(self._table.key))
            counted = keys.group_by(list(self._table.key)).aggregate([([], "count_all")])
            doubled = counted.filter(pc.greater(counted["count_all"], 1)).drop_columns(["count_all"])
            count += doubled.num_rows
            some = doubled.slice(0, DUPLICATES_SHOWN_DEFAULT - len(samples))
            samples += json_texts(some.to_struct_array().combine_chunks()) if some.num_rows else []
        if count:
            raise copied_keys_error(self._what, self._table.target.full_name, count, samples)


def _hash_of(batch: pa.RecordBatch) -> KeyParts:
    return [batch.column(_HASH).to_numpy().astype(np.int64)]


def _sharing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows that share their hash with another row; all rows of a hash are in one batch.

    ``batches`` are sorted by hash; the rows of a hash may continue in the next batch.
    """
    held: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if held is None else pa.concat_batches([held, batch])
        hashes = rows.column(_HASH).to_numpy()
        last = int(np.searchsorted(hashes, hashes[-1], side="left"))
        yield from _doubled(rows.slice(0, last), hashes[:last])
        held = rows.slice(last)
    if held is not None:
        yield from _doubled(held, held.column(_HASH).to_numpy())


def _doubled(rows: pa.RecordBatch, hashes: NDArray[np.int32]) -> Iterator[pa.RecordBatch]:
    is_next = hashes[1:] == hashes[:-1]
    shared: NDArray[np.bool_] = np.zeros(len(hashes), np.bool_)
    shared[1:] |= is_next
    shared[:-1] |= is_next
    if shared.any():
        yield rows.filter(pa.array(shared))


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
        operations: the rows, which can be read repeatedly; see
            :class:`~mutation_api.cdc.source.LocalOperations`.
        local: memory and threads.
        is_emptied: delete rows of the target that are missing from the source.
        what: name of the copy in messages.

    Raises:
        DuplicateKeyError: If two rows have the same key.
        RecordLayoutError: If a column is missing, or if the values of a key column cannot be compared.
        RecordValueError: If a key column of a row is null.
        Others: The errors of the source, raised when its rows are read.
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
class CopiedTable(ReducedTable):
    """A :class:`~mutation_api.cdc.engine.ReducedTable` of rows that were checked.

    ``partitions``: number of rows by (escaped) partition name, '' for a table without partitions.
    """

    table: SourceTable
    operations: Iterable[pa.RecordBatch]
    local: LocalOptions
    is_emptied: bool
    partitions: dict[str, int]

    @property
    def counts(self) -> LogCounts:
        """The counts of the copy: each row is an insert."""
        count = sum(self.partitions.values())
        return LogCounts(count, {(INSERT, INSERT): count} if count else {}, Contradictions())

    def merge(self, transaction: Transaction, before_writing: Callable[[MergeReport], None]) -> MergeReport:
        """Merge the rows, or insert them if the target is empty.

        See :class:`~mutation_api.cdc.engine.ReducedTable`.
        """
        if not self._is_target_empty(transaction):
            return super().merge(transaction, before_writing)
        report = self._report(transaction, is_dry_run=False)
        before_writing(report)
        if not self.partitions:
            return report
        written = apply_arrow(
            transaction, self._target, self._rows(OPERATION), operation_column=OPERATION, local=self.local
        )
        return dataclasses.replace(report, written=written)

    def dry_run(self, transaction: Transaction) -> MergeReport:
        """Report what :meth:`merge` would do."""
        if not self._is_target_empty(transaction):
            return super().dry_run(transaction)
        report = self._report(transaction, is_dry_run=True)
        if not self.partitions:
            return report
        forecast = forecast_arrow(
            transaction, self._target, self._rows(OPERATION), operation_column=OPERATION, local=self.local
        )
        return dataclasses.replace(report, preview=Preview(forecast, (), ()))

    def contradicting(self, transaction: Transaction) -> list[str]:
        """Return an empty list: a copy is the state of the source, so the target cannot contradict it."""
        return []

    @property
    def _target(self) -> str:
        return self.table.target.full_name

    def _is_target_empty(self, transaction: Transaction) -> bool:
        """Return True if the target has no rows. The transaction holds its lock, so it stays empty."""
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
        """Return the rows as inserts. An emptied source has no rows, but the columns of the target."""
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
    """Return the number of rows by partition name."""
    target = table.target
    if not target.partition_keys:
        return {"": rows.num_rows} if rows.num_rows else {}
    columns = {name: rows.column(name) for name in target.partition_key_names}
    found = pc.value_counts(partition_names(target, columns).cast(pa.string()))
    return {each["values"]: each["counts"] for each in found.to_pylist()}
