"""Merges described by rules, and changes of a history, in this process.

A merge by rules accepts only parts for which Spark certainly has the same result: conditions of
:mod:`mutation_api.merge.sql_conditions`, orders by a column, and keys whose types are compared as in Spark.
Everything else raises UnsupportedLocallyError before the table is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import UnsupportedLocallyError
from mutation_api.merge.clauses import (
    SOURCE,
    TARGET,
    FirstBy,
    MergeOptionsDict,
    MergeRules,
    first_by,
    parsed_order,
    rule_clauses,
)
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.history import HistoryRules, events_of
from mutation_api.merge.key_columns import are_comparable
from mutation_api.merge.local_merge import LocalMerge, local_merge
from mutation_api.merge.source_rows import check_memory, check_wall_clocks, plain_batch
from mutation_api.merge.sql_conditions import parsed_column, parsed_condition, resolved_condition
from mutation_api.merge.target_rows import TargetRows
from mutation_api.merge.timeline import HistoryChanges, history_changes, joined_rows
from mutation_api.read.table_view import open_table
from mutation_api.write.local_plan import LocalOptions
from mutation_api.write.staged_writer import LookingTransaction


def check_rules(rules: MergeRules) -> None:
    """Check the strings of the rules alone.

    Raises:
        UnsupportedLocallyError: If only Spark can interpret one of them.
    """
    for text in rules.conditions:
        parsed_condition(text)
    for text in rules.first_by:
        _order_column(text)


def local_merge_by_rules(
    transaction: LookingTransaction,
    table_name: str,
    *,
    source: pa.RecordBatchReader,
    on: Sequence[str],
    rules: MergeRules,
    read_bytes_max: int | None = None,
    local: LocalOptions | None = None,
    **options: Unpack[MergeOptionsDict],
) -> LocalMerge:
    """Describe a merge by rules. Call ``execute()`` or ``dry_run()`` on the result.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table_name: ``database.table``.
        source: the rows to merge, which this call reads.
        on: key columns that both sides have.
        rules: the rules of the merge.
        read_bytes_max: maximum size of the table's files to read here. If None, there is no limit.
        local: memory limit and number of threads.
        **options: see :class:`~mutation_api.merge.clauses.MergeOptionsDict`. The order of ``rules`` replaces
            ``on_duplicate``.

    Raises:
        UnsupportedLocallyError: If only Spark can interpret the rules or compare these types, or if the
            source needs more memory than allowed.
        ConfigurationError: If rules contradict each other, or if an option is invalid.
        RecordLayoutError: If the source has duplicate columns, or if a condition names an unknown column.
    """
    table = transaction.table(table_name)
    check_rules(rules)
    types = {field.name.lower(): field.type for field in source.schema}
    target = target_types(table)
    _check_types(table.full_name, types, target, on)
    options["on_duplicate"] = _first_by(types, rules.first_by) or "error"
    merge = local_merge(transaction, table.full_name, source=source, on=on, local=local, **options)
    merge.read_bytes_max = read_bytes_max
    merge.clauses += rule_clauses(rules, _ArrowConditions(table.full_name, types, target))
    return merge


@dataclass(frozen=True)
class _ArrowConditions:
    """Conditions as Arrow expressions; a :class:`~mutation_api.merge.clauses.RuleConditions`."""

    table_name: str
    source: Mapping[str, pa.DataType]
    target: Mapping[str, pa.DataType]

    def of_both(self, text: str) -> pc.Expression:
        return self._resolved(text, SOURCE, TARGET)[0]

    def of_source(self, text: str) -> pc.Expression:
        return self._resolved(text, SOURCE)[0]

    def of_target(self, text: str) -> pc.Expression:
        return self._resolved(text, TARGET)[0]

    def reads_target(self, text: str) -> bool:
        return TARGET in self._resolved(text, SOURCE, TARGET)[1]

    def unless(self, gone: pc.Expression, wanted: pc.Expression | None) -> pc.Expression:
        stays = ~pc.coalesce(gone, pc.scalar(False))
        return stays if wanted is None else wanted & stays

    def _resolved(self, text: str, *sides: str) -> tuple[pc.Expression, frozenset[str]]:
        what = f"table {self.table_name}: the condition"
        return resolved_condition(text, self.source, self.target, sides, what)


def _first_by(types: Mapping[str, pa.DataType], texts: Sequence[str]) -> FirstBy | None:
    orders = []
    for text in texts:
        name, is_descending = _order_column(text)
        if name not in types or not _has_sure_order(types[name]):
            raise UnsupportedLocallyError(
                f"first_by {text!r}: only Spark can order by this. Without Spark, it must be a source column "
                f"(one of {', '.join(types)}) that is not floating-point or nested"
            )
        orders.append((name, "descending" if is_descending else "ascending"))
    return first_by(*orders) if orders else None


def _order_column(text: str) -> tuple[str, bool]:
    """Return the column, and True if it descends."""
    order = parsed_order(text)
    column = parsed_column(order.value)
    if column is None or column[0] == TARGET or order.nulls_last != order.is_descending:
        raise UnsupportedLocallyError(
            f"first_by {text!r}: only Spark can order by this. Without Spark, an order is a source column "
            "with ASC or DESC, in which NULL is the least value"
        )
    return column[1], order.is_descending


def _has_sure_order(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_decimal, pa.types.is_date32)
    return any(is_kind(kind) for is_kind in kinds) or kind == pa.timestamp("us")


def _check_types(
    table_name: str, source: Mapping[str, pa.DataType], target: Mapping[str, pa.DataType], on: Sequence[str]
) -> None:
    """Raise UnsupportedLocallyError if only Spark can compare a key or convert a timestamp to local time."""
    check_wall_clocks(table_name, "the source", source)
    for name in (name.lower() for name in on):
        if name in source and name in target and not are_comparable(source[name], target[name]):
            raise UnsupportedLocallyError(
                f"table {table_name}: only Spark can compare the key column {name!r}, {source[name]} in the "
                f"source and {target[name]} in the table. Cast the source's column"
            )


def local_history(
    transaction: LookingTransaction,
    rules: HistoryRules,
    table_name: str,
    changes: pa.Table,
    local: LocalOptions,
) -> HistoryChanges:
    """Return the change set that adds the changes to the table's history.

    The stored rows of the changes' keys are read for this.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        rules: the options of the history.
        table_name: ``database.table``.
        changes: the changes, as :func:`~mutation_api.merge.source_rows.source_rows` returns them.
        local: memory limit and number of threads. Changes and stored rows of their keys are in memory.

    Raises:
        UnsupportedLocallyError: If the rows need more memory than allowed.
        Other errors: See :func:`~mutation_api.merge.history.events_of`,
            :func:`~mutation_api.merge.timeline.history_changes` and ``LocalMerge.execute``.
    """
    table = transaction.table(table_name)
    events = events_of(table, rules, plain_batch(changes.select(rules.of_source(changes.column_names))))
    transaction.merging(table.full_name, rules.key, inserts=True)
    stored: list[pa.RecordBatch] = []
    keys = pa.Table.from_batches([events.rows.select(list(rules.key))])
    view = open_table(transaction, table.full_name)
    partitions = [*view.locations]
    if keys.num_rows and partitions:
        names = [column.name for column in table.all_columns]
        reader = TargetRows(view, table, names, prune_buckets=True, threads=local.thread_count)
        distinct = keys.group_by(list(rules.key)).aggregate([])
        byte_count = changes.nbytes + events.rows.nbytes
        for batch in reader.read(reader.keyed(distinct, partitions, null_safe=False)):
            byte_count += batch.nbytes
            what = "the changes and the versions of their keys"
            check_memory(table.full_name, what, byte_count, local.memory_bytes)
            stored.append(batch)
    return history_changes(table, rules, joined_rows(table, stored), events)
