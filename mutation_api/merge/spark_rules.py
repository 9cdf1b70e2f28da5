"""merge_by_rules: a merge described by rules, whose conditions Spark parses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from mutation_api.merge.clauses import (
    SOURCE,
    TARGET,
    MergeOptionsDict,
    MergeRules,
    first_by,
    parsed_order,
    rule_clauses,
)
from mutation_api.merge.spark_expressions import Expression, names_side, with_sides
from mutation_api.merge.spark_merge import MergeInto, merge_into
from mutation_api.write.staged_writer import LookingTransaction

__all__ = ["merge_by_rules"]


def merge_by_rules(
    transaction: LookingTransaction,
    table: str,
    *,
    source: DataFrame,
    on: Sequence[str],
    rules: MergeRules,
    **options: Unpack[MergeOptionsDict],
) -> MergeInto:
    """Describe a merge by rules. Call ``execute()`` or ``dry_run()`` on the result.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table: ``database.table``.
        source: the rows to merge.
        on: key columns that both sides have.
        rules: the rules for what happens to rows.
        **options: see :class:`~mutation_api.merge.clauses.MergeOptionsDict`. The order of ``rules`` replaces
            ``on_duplicate``.

    Raises:
        ConfigurationError: If a condition or an order is not SQL, if rules contradict each other, or if an
            option is invalid.
    """
    acid_table = transaction.table(table)
    target = (*acid_table.column_names, *acid_table.partition_key_names)
    conditions = _SqlConditions(source.sparkSession, tuple(source.columns), target)
    orders = [conditions.order(text) for text in rules.first_by]
    options["on_duplicate"] = first_by(*orders) if orders else "error"
    merge = merge_into(transaction, acid_table.full_name, source=source, on=on, **options)
    merge.clauses += rule_clauses(rules, conditions)
    return merge


@dataclass(frozen=True)
class _SqlConditions:
    """Conditions as SQL with the side before each column. Columns of both sides are taken from the source.

    A :class:`~mutation_api.merge.clauses.RuleConditions`.
    """

    spark: SparkSession
    source: Sequence[str]
    target: Sequence[str]

    def of_both(self, text: str) -> Expression:
        return with_sides(self.spark, text, {**self._all(TARGET), **self._all(SOURCE)})

    def of_source(self, text: str) -> Expression:
        return with_sides(self.spark, text, self._all(SOURCE))

    def of_target(self, text: str) -> Expression:
        return with_sides(self.spark, text, self._all(TARGET))

    def reads_target(self, text: str) -> bool:
        sides = {**self._all(TARGET), **self._all(SOURCE)}
        return names_side(self.spark, with_sides(self.spark, text, sides), TARGET)

    def unless(self, gone: Expression, wanted: Expression | None) -> Expression:
        stays = f"NOT coalesce(({gone}), false)"
        return stays if wanted is None else f"({wanted}) AND {stays}"

    def order(self, text: str) -> Column:
        """Return an order such as ``updated DESC NULLS LAST`` as a Column.

        Spark's parser would take DESC for a name.
        """
        found = parsed_order(text)
        column = sf.expr(with_sides(self.spark, found.value, self._all(SOURCE)))
        order, nulls = "desc" if found.is_descending else "asc", "last" if found.nulls_last else "first"
        sort: Callable[[], Column] = getattr(column, f"{order}_nulls_{nulls}")
        return sort()

    def _all(self, side: str) -> Mapping[str, str]:
        names = self.source if side == SOURCE else self.target
        return {name.lower(): side for name in names}
