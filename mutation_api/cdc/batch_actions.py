"""Actions on a batch of a streaming query, and the mark that it leaves.

What a streaming query does with the rows of a batch: append, apply, merge, or reduce a log.

Whether a batch of a streaming query is written, skipped or refused, by the mark that the table has of it.

Spark numbers the batches of a query from 0, writes what a batch will read into the checkpoint before it runs
it, and writes afterwards that it has ended. After a crash it runs the last batch once more, with the same
input. So a batch with the number of the mark, and its input, is the same batch; any other number but the next
one says that checkpoint and table do not belong together.

The mark is a watermark (:mod:`mutation_api.cdc.watermark`) of the source ``stream:<name>``, one for each
table, whose position is the batch's number.
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
from mutation_api.cdc.log_walk import DELETE, FIRST_OPERATION, FIRST_POSITION
from mutation_api.cdc.reduce import reduced_log
from mutation_api.cdc.source import Position
from mutation_api.cdc.watermark import Watermark
from mutation_api.errors import ConfigurationError, SourcePositionError
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.spark_merge import MergeInto, merge_into
from mutation_api.spark.job import apply_changes
from mutation_api.table.row_type import quoted
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.forecast import ApplySummary

__all__ = [
    "SOURCE_TABLE",
    "AppendRows",
    "ApplyChanges",
    "BatchAction",
    "MergeRows",
    "ReduceLog",
    "RunningBatch",
    "Written",
    "is_new",
    "source_id_of",
]


INSERTING = "__operation"
"""Column of the operation where all rows are inserted; a name that hardly any table has."""

ORDER = "__order_{}"
"""Names of copies of the columns that order a log, which a reduced log no longer has."""

Rows = Callable[[DataFrame], DataFrame]


def _all_rows(batch: DataFrame) -> DataFrame:
    return batch


class BatchAction(Protocol):
    """What is done with a batch in one table."""

    @property
    def table(self) -> str:
        """``database.table``."""

    @property
    def first_batch(self) -> int:
        """Number of the batch that the table begins with; more than 0 if it joined a query that ran."""

    @property
    def inserts_only(self) -> bool:
        """Whether rows are only inserted, so that other inserters need not wait."""

    def write(self, transaction: Transaction, batch: DataFrame) -> ApplySummary | MergeReport:
        """Write the rows of a batch; the commit makes them visible."""


@dataclass(frozen=True)
class AppendRows:
    """Insert every row of a batch.

    ``rows``: makes this table's rows of the batch. They have the table's columns, partition columns included.
    """

    table: str
    _: KW_ONLY
    rows: Rows = _all_rows
    first_batch: int = 0

    inserts_only = True

    def write(self, transaction: Transaction, batch: DataFrame) -> ApplySummary:
        """See :class:`BatchAction`."""
        rows = self.rows(batch).withColumn(INSERTING, sf.lit("insert"))
        return apply_changes(transaction, self.table, rows, operation_column=INSERTING)


@dataclass(frozen=True)
class ApplyChanges:
    """Apply changes that have an operation and, but for inserts, a ROW__ID; as ``apply_changes``.

    ``options`` are those of :func:`mutation_api.spark.job.apply_changes`.
    """

    table: str
    _: KW_ONLY
    rows: Rows = _all_rows
    options: Mapping[str, Any] = field(default_factory=dict)
    first_batch: int = 0

    inserts_only = False

    def write(self, transaction: Transaction, batch: DataFrame) -> ApplySummary:
        """See :class:`BatchAction`."""
        return apply_changes(transaction, self.table, self.rows(batch), **self.options)


@dataclass(frozen=True)
class MergeRows:
    """Merge the rows of a batch by key; as ``merge_into``.

    ``on``: the key columns. ``clauses``: adds clauses to the merge, in their order; by default rows that
    match are updated, and the others are inserted. ``options`` are those of
    :func:`mutation_api.merge.spark_merge.merge_into`, such as ``on_duplicate``.
    """

    table: str
    _: KW_ONLY
    on: Sequence[str]
    clauses: Callable[[MergeInto], MergeInto] = lambda merge: (
        merge.whenMatched().updateAll().whenNotMatched().insertAll()
    )
    rows: Rows = _all_rows
    options: Mapping[str, Any] = field(default_factory=dict)
    first_batch: int = 0

    inserts_only = False

    def write(self, transaction: Transaction, batch: DataFrame) -> MergeReport:
        """See :class:`BatchAction`."""
        merge = merge_into(transaction, self.table, source=self.rows(batch), on=self.on, **self.options)
        return self.clauses(merge).merge()


@dataclass(frozen=True)
class ReduceLog:
    """Reduce a log of operations to the last of each key, and merge it.

    ``rows`` gives operations ``insert``, ``update`` or ``delete`` in ``operation_column``, with the columns
    of the table. ``key``: columns that identify a row. ``order_by``: columns that order the operations of a
    key, of the table or not (an offset of Kafka's); an operation in a later batch is later. A delete needs
    values only in the key columns. ``strict``: refuse operations of one batch that cannot follow one another.
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
            raise ConfigurationError(f"table {self.table}: a log needs key columns and columns that order it")

    def write(self, transaction: Transaction, batch: DataFrame) -> MergeReport:
        """See :class:`BatchAction`."""
        rows = self.rows(batch)
        order_by = {ORDER.format(number): name for number, name in enumerate(self.order_by)}
        for copy, name in order_by.items():
            rows = rows.withColumn(copy, sf.col(quoted(name)))
        of_table = {column.name for column in transaction.table(self.table).all_columns}
        log = reduced_log(
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
            return merge.merge()


SOURCE_TABLE = "batch"
"""What marks of streaming queries have instead of a source's table."""


@dataclass(frozen=True)
class RunningBatch:
    """A batch of a query, as its checkpoint knows it.

    ``query_id``: the identifier in the checkpoint, the same after each restart. ``plan``: what the batch
    reads, in the words of the checkpoint's log of offsets.
    """

    query_id: str
    number: int
    plan: str

    @property
    def digest(self) -> str:
        """Tells two plans apart."""
        return hashlib.sha256(self.plan.encode()).hexdigest()[:32]

    @property
    def position(self) -> Position:
        """The mark's position."""
        text = {"batch": self.number, "query": self.query_id, "input": self.digest}
        return Position((self.number,), json.dumps(text))


def source_id_of(name: str) -> str:
    """The source in the watermarks that a query of this name is."""
    return f"stream:{name}"


@dataclass(frozen=True)
class Written:
    """A table that a query writes: ``first`` is the number of the batch that it begins with."""

    query_name: str
    target: str
    watermark_table: str
    first: int = 0

    def __str__(self) -> str:
        return f"streaming query {self.query_name!r}, table {self.target}"

    @property
    def forgetting(self) -> str:
        """The statement that removes the mark."""
        return (
            f"DELETE FROM {self.watermark_table} WHERE source_id = '{source_id_of(self.query_name)}' "
            f"AND target_table = '{self.target}'"
        )


def is_new(batch: RunningBatch, mark: Watermark | None, written: Written) -> bool:
    """Whether a batch is to be written into a table; False: the table has it.

    Args:
        batch: the batch that runs.
        mark: the table's mark; None if it has none of this query.
        written: the table, and by which query.

    Raises:
        SourcePositionError: table and checkpoint do not belong together; says how to go on.
    """
    if mark is None:
        if batch.number <= written.first:
            return batch.number == written.first
        raise SourcePositionError(
            f"{written}: batch {batch.number} would be its first, and batches {written.first} to "
            f"{batch.number - 1} are not in it. Nothing was written. If the table joins a query that runs, "
            f"say first_batch={batch.number} for it; otherwise begin with a new checkpoint"
        )
    query_id, digest = _said(mark, written)
    if query_id != batch.query_id:
        raise SourcePositionError(
            f"{written}: batch {batch.number} is of the query with the identifier {batch.query_id}, and "
            f"the table has batches up to {mark.order[0]} of {query_id} under the same name. Nothing was "
            "written. If this is another query, give it another name. If the checkpoint was deleted, the new "
            "one begins at its source's start: set the start to what the table lacks (startingOffsets, for "
            f"Kafka), and forget the old one: {written.forgetting}"
        )
    if batch.number == mark.order[0] + 1:
        return True
    if batch.number == mark.order[0] and digest == batch.digest:
        return False
    if batch.number > mark.order[0]:
        raise SourcePositionError(
            f"{written}: batch {batch.number} follows batch {mark.order[0]}, the last that the table has, "
            "and those between are missing. Nothing was written. Was the table set back? Restore the newest "
            "table, or begin with a new checkpoint, whose start is set to what the table lacks, after "
            f"{written.forgetting}"
        )
    raise SourcePositionError(
        f"{written}: batch {batch.number} comes again, and the table has batches up to {mark.order[0]} "
        f"(transaction {mark.txn_id}), whose input was another. The checkpoint is older than the table. "
        "Nothing was written. Restore the newest checkpoint; or begin with a new one, whose start is set to "
        f"what the table lacks, after {written.forgetting}"
    )


def _said(mark: Watermark, written: Written) -> tuple[str, str]:
    try:
        text = json.loads(mark.text)
        return str(text["query"]), str(text["input"])
    except (ValueError, TypeError, KeyError) as error:
        raise SourcePositionError(
            f"{written}: the watermark {mark.text!r} is not that of a streaming query: give the query "
            "another name"
        ) from error
