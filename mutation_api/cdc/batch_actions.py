"""Actions on a batch of a streaming query (append, apply, merge, reduce a log), and the mark that it leaves.

The mark shows whether a batch is written, skipped or refused. It is a watermark
(:mod:`mutation_api.cdc.watermark`) of the source ``stream:<name>``, one for each table. Its position is the
batch's number.

Spark numbers the batches of a query from 0. Before a batch runs, Spark writes what it will read into the
checkpoint; afterwards it records that the batch has ended. After a crash, Spark runs the last batch once
more, with the same input. So a batch with the mark's number and input is the same batch. Any other number
except the next one shows that checkpoint and table do not belong together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from mutation_api.cdc.engine import operation_clauses
from mutation_api.cdc.log_walk import FIRST_OPERATION, FIRST_POSITION
from mutation_api.cdc.reduce import open_log_reduction
from mutation_api.cdc.source import Position
from mutation_api.cdc.watermark import Watermark
from mutation_api.errors import ConfigurationError, SourcePositionError
from mutation_api.format.event import ADDED_OPERATION, DELETE
from mutation_api.merge.clauses import MergeOptionsDict
from mutation_api.merge.history import HistoryOptionsDict, HistoryReport
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.spark_history import track
from mutation_api.merge.spark_merge import MergeInto, merge_into
from mutation_api.merge.spark_rules import overwrite
from mutation_api.spark.job import apply_changes
from mutation_api.table.row_type import quoted
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.change_set import OverwriteReport
from mutation_api.write.forecast import ApplySummary

ORDER = "__order_{}"
"""The names of copies of the columns that order a log. A reduced log no longer has the columns themselves."""

Rows = Callable[[DataFrame], DataFrame]
"""A function that returns the rows for a table, given those of a batch."""


def _all_rows(batch: DataFrame) -> DataFrame:
    return batch


BatchSummary = ApplySummary | MergeReport | HistoryReport | OverwriteReport
"""The report of an action."""


class BatchAction(Protocol):
    """The action that a batch performs on one table."""

    @property
    def table(self) -> str:
        """The table, ``database.table``."""

    @property
    def first_batch(self) -> int:
        """The number of the table's first batch, which is more than 0 if the table joined a running query."""

    @property
    def inserts_only(self) -> bool:
        """True if rows are only inserted, so that other inserting transactions need not wait."""

    def write(self, transaction: Transaction, batch: DataFrame) -> BatchSummary:
        """Write the rows of a batch. They become visible when the transaction commits."""


@dataclass(frozen=True)
class AppendRows:
    """An action that inserts every row of a batch.

    ``rows``: a function that returns this table's rows for the batch. They have all columns of the table,
    including partition columns.
    """

    table: str
    _: KW_ONLY
    rows: Rows = _all_rows
    first_batch: int = 0

    inserts_only = True

    def write(self, transaction: Transaction, batch: DataFrame) -> ApplySummary:
        """Insert the rows of a batch. See :class:`BatchAction`."""
        rows = self.rows(batch).withColumn(ADDED_OPERATION, sf.lit("insert"))
        return apply_changes(transaction, self.table, rows, operation_column=ADDED_OPERATION)


@dataclass(frozen=True)
class ApplyChanges:
    """An action that applies changes like ``apply_changes``: an operation and, except for inserts, a ROW__ID.

    ``options`` are those of :func:`mutation_api.spark.job.apply_changes`.
    """

    table: str
    _: KW_ONLY
    rows: Rows = _all_rows
    options: Mapping[str, Any] = field(default_factory=dict)
    first_batch: int = 0

    inserts_only = False

    def write(self, transaction: Transaction, batch: DataFrame) -> ApplySummary:
        """Apply the changes of a batch. See :class:`BatchAction`."""
        return apply_changes(transaction, self.table, self.rows(batch), **self.options)


@dataclass(frozen=True)
class MergeRows:
    """An action that merges the rows of a batch by key, like ``merge_into``.

    on: the key columns.
    clauses: a function that adds clauses to the merge, in order. By default matching rows are updated and the
        other rows are inserted.
    options: options of the merge, such as ``on_duplicate``; see
        :class:`~mutation_api.merge.clauses.MergeOptionsDict`.
    """

    table: str
    _: KW_ONLY
    on: Sequence[str]
    clauses: Callable[[MergeInto], MergeInto] = lambda merge: (
        merge.whenMatched().updateAll().whenNotMatched().insertAll()
    )
    rows: Rows = _all_rows
    options: MergeOptionsDict = field(default_factory=MergeOptionsDict)
    first_batch: int = 0

    inserts_only = False

    def write(self, transaction: Transaction, batch: DataFrame) -> MergeReport:
        """Merge the rows of a batch. See :class:`BatchAction`."""
        merge = merge_into(transaction, self.table, source=self.rows(batch), on=self.on, **self.options)
        return self.clauses(merge).execute()


@dataclass(frozen=True)
class ReduceLog:
    """An action that reduces a log of operations to the last operation of each key, and merges it.

    rows: a function that returns operations ``insert``, ``update`` or ``delete`` in ``operation_column``,
        with the columns of the table. A delete requires values only in the key columns.
    key: columns that identify a row.
    order_by: columns that order the operations on a key. They need not be columns of the table (such as a
        Kafka offset). An operation in a later batch is later.
    strict: True to refuse operations in a batch that cannot follow each other.
    """

    table: str
    _: KW_ONLY
    key: Sequence[str]
    order_by: Sequence[str]
    operation_column: str = "operation"
    rows: Rows = _all_rows
    strict: bool = False
    first_batch: int = 0

    inserts_only = False

    def __post_init__(self) -> None:
        if not self.key or not self.order_by:
            raise ConfigurationError(f"table {self.table}: a log requires key columns and order_by columns")

    def write(self, transaction: Transaction, batch: DataFrame) -> MergeReport:
        """Reduce and merge the operations of a batch. See :class:`BatchAction`."""
        rows = self.rows(batch)
        order_by = {ORDER.format(number): name for number, name in enumerate(self.order_by)}
        for copy, name in order_by.items():
            rows = rows.withColumn(copy, sf.col(quoted(name)))
        of_table = {column.name for column in transaction.table(self.table).all_columns}
        log = open_log_reduction(
            rows.drop(*(name for name in self.order_by if name.lower() not in of_table)),
            self.key,
            tuple(order_by),
            operation_column=self.operation_column,
            strict=self.strict,
            what=f"table {self.table}: the log",
        )
        with log as reduced:
            merge = merge_into(
                transaction,
                self.table,
                source=reduced.rows.drop(FIRST_OPERATION, FIRST_POSITION),
                on=tuple(self.key),
                missing_columns="error",
            )
            is_delete = f"{quoted('source', self.operation_column)} = '{DELETE}'"
            merge.clauses += operation_clauses(is_delete, f"NOT ({is_delete})", is_emptied=False)
            return merge.execute()


@dataclass(frozen=True)
class HistoryRows:
    """An action that adds the changes of a batch to the history of keys, like :func:`mutation_api.track`.

    key: the columns that identify a key.
    sequence: the column that orders the changes of a key; further columns decide ties.
    options: see :class:`~mutation_api.merge.history.HistoryOptionsDict`.
    """

    table: str
    _: KW_ONLY
    key: Sequence[str]
    sequence: str | Sequence[str]
    rows: Rows = _all_rows
    options: HistoryOptionsDict = field(default_factory=HistoryOptionsDict)
    first_batch: int = 0

    inserts_only = False

    def write(self, transaction: Transaction, batch: DataFrame) -> HistoryReport:
        """Add the changes of a batch. See :class:`BatchAction`."""
        return track(transaction, self.table, self.rows(batch), self.key, self.sequence, **self.options)


@dataclass(frozen=True)
class OverwriteRows:
    """An action that replaces rows of a table by those of a batch, like :func:`mutation_api.overwrite`.

    partitions: the partitions to replace: ``"dynamic"`` (the default) for those of the new rows. If None, the
        whole table is replaced.
    where: the rows to replace, as SQL, in place of ``partitions``.
    """

    table: str
    _: KW_ONLY
    partitions: str | Sequence[Mapping[str, object]] | None = "dynamic"
    where: str | None = None
    rows: Rows = _all_rows
    first_batch: int = 0

    inserts_only = False

    def write(self, transaction: Transaction, batch: DataFrame) -> OverwriteReport:
        """Replace rows. See :class:`BatchAction`."""
        partitions = None if self.where is not None else self.partitions
        return overwrite(transaction, self.table, self.rows(batch), partitions=partitions, where=self.where)


SOURCE_TABLE = "batch"
"""The value that marks of streaming queries have in place of a source's table."""


@dataclass(frozen=True)
class RunningBatch:
    """A batch of a query, as recorded in its checkpoint.

    ``query_id``: the identifier in the checkpoint, the same after each restart. ``plan``: the input of the
    batch, as recorded in the checkpoint's offset log.
    """

    query_id: str
    number: int
    plan: str

    @property
    def digest(self) -> str:
        """A hash that distinguishes plans."""
        return hashlib.sha256(self.plan.encode()).hexdigest()[:32]

    @property
    def position(self) -> Position:
        """The position of the mark."""
        text = {"batch": self.number, "query": self.query_id, "input": self.digest}
        return Position((self.number,), json.dumps(text))


def source_id_of(name: str) -> str:
    """Return the source id under which a query of this name is recorded in the watermarks."""
    return f"stream:{name}"


@dataclass(frozen=True)
class Written:
    """A table that a query writes to. ``first`` is the number of its first batch."""

    query_name: str
    target: str
    watermark_table: str
    first: int = 0

    def __str__(self) -> str:
        return f"streaming query {self.query_name!r}, table {self.target}"

    @property
    def forgetting(self) -> str:
        """The SQL statement that removes the mark."""
        return (
            f"DELETE FROM {self.watermark_table} WHERE source_id = '{source_id_of(self.query_name)}' "
            f"AND target_table = '{self.target}'"
        )


def is_new(batch: RunningBatch, mark: Watermark | None, written: Written) -> bool:
    """Return True if a batch must be written to a table, or False if the table already has it.

    Args:
        batch: the batch that runs.
        mark: the table's mark. None if it has no mark of this query.
        written: the table and the query that writes to it.

    Raises:
        SourcePositionError: If table and checkpoint do not belong together. The message says how to recover.
    """
    if mark is None:
        if batch.number <= written.first:
            return batch.number == written.first
        raise SourcePositionError(
            f"{written}: batch {batch.number} would be its first, but it lacks the batches {written.first} "
            f"to {batch.number - 1}. Nothing was written. If the table joins a running query, pass "
            f"first_batch={batch.number} for it. Otherwise begin with a new checkpoint"
        )
    query_id, digest = _said(mark, written)
    if query_id != batch.query_id:
        raise SourcePositionError(
            f"{written}: batch {batch.number} belongs to the query with the identifier {batch.query_id}, "
            f"but the table has batches up to {mark.order[0]} of {query_id} under the same name. Nothing "
            "was written. If this is another query, give it another name. If the checkpoint was deleted, "
            "the new one begins at its source's start: set the start to the first data that the table "
            f"lacks (startingOffsets, for Kafka), and remove the old mark: {written.forgetting}"
        )
    if batch.number == mark.order[0] + 1:
        return True
    if batch.number == mark.order[0] and digest == batch.digest:
        return False
    if batch.number > mark.order[0]:
        raise SourcePositionError(
            f"{written}: batch {batch.number} follows batch {mark.order[0]}, the last one in the table, so "
            "the batches between them are missing. Nothing was written. Was the table restored from an "
            "older copy? Restore the newest table, or begin a new checkpoint that starts at the first data "
            f"that the table lacks, after {written.forgetting}"
        )
    raise SourcePositionError(
        f"{written}: batch {batch.number} runs again with different input: the table has batches up to "
        f"{mark.order[0]} (transaction {mark.txn_id}). The checkpoint is older than the table. Nothing was "
        "written. Restore the newest checkpoint, or begin a new one that starts at the first data that the "
        f"table lacks, after {written.forgetting}"
    )


def _said(mark: Watermark, written: Written) -> tuple[str, str]:
    try:
        text = json.loads(mark.text)
        return str(text["query"]), str(text["input"])
    except (ValueError, TypeError, KeyError) as error:
        raise SourcePositionError(
            f"{written}: the watermark {mark.text!r} was not written by a streaming query. Give the query "
            "another name"
        ) from error
