"""What a streaming query does with the rows of a batch: append, apply, merge, or reduce a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from mutation_api.change_set.apply_summary import ApplySummary
from mutation_api.changes.merge_report import MergeReport
from mutation_api.changes.spark_merge.merge import MergeInto, merge_into
from mutation_api.client.transaction import Transaction
from mutation_api.errors import ConfigurationError
from mutation_api.inputs.engines.engine import operation_clauses
from mutation_api.inputs.log_walk import DELETE, FIRST_OPERATION, FIRST_POSITION
from mutation_api.inputs.reduce import reduced_log
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.write.job import apply_changes

__all__ = ["AppendRows", "ApplyChanges", "BatchAction", "MergeRows", "ReduceLog"]

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

    ``options`` are those of :func:`mutation_api.spark.write.job.apply_changes`.
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
    :func:`mutation_api.changes.spark_merge.merge.merge_into`, such as ``on_duplicate``.
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
