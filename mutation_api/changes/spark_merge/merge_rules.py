"""MergeRules: a merge described as people type it, by conditions whose columns need no side before them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from mutation_api.change_set.staged_writer import LookingTransaction
from mutation_api.changes.clauses import SOURCE, TARGET
from mutation_api.changes.duplicates import first_by
from mutation_api.changes.spark_merge.merge import MergeInto, merge_into
from mutation_api.changes.spark_merge.short_names import names_side, with_sides
from mutation_api.errors import ConfigurationError

__all__ = ["MergeRules", "merge_by_rules"]

_ORDER = re.compile(
    r"(?P<value>.+?)(?:\s+(?P<order>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.I | re.S
)


@dataclass(frozen=True)
class MergeRules:
    """What happens to rows; conditions are SQL, and None always holds.

    Unless told otherwise matched rows are updated and the source's others inserted. A column without
    ``source.`` or ``target.`` before it is the source's if that has it; in ``delete_missing_when`` it is the
    table's.

    ``delete_when``: matched rows that are deleted; None for none. A row of the source for which it holds is
    never inserted. ``update_when``, ``insert_when``: which rows are; ``updates``, ``inserts``: whether any
    are. ``delete_missing_when``: rows of the table alone that are deleted; ``deletes_missing``: all of them.
    ``first_by``: of several source rows of one key the first in this order counts, ``updated DESC``; none:
    several are an error.
    """

    delete_when: str | None = None
    update_when: str | None = None
    insert_when: str | None = None
    delete_missing_when: str | None = None
    updates: bool = True
    inserts: bool = True
    deletes_missing: bool = False
    first_by: tuple[str, ...] = ()


def merge_by_rules(
    transaction: LookingTransaction,
    table_name: str,
    *,
    source: DataFrame,
    on: Sequence[str],
    rules: MergeRules,
    null_safe: bool = False,
    missing_columns: str = "null",
    write_unchanged: bool = False,
    prune_buckets: bool = True,
) -> MergeInto:
    """Describe a merge by rules; ``merge()`` or ``dry_run()`` of what this returns ends it.

    Args:
        transaction: begun; the table is one of its sinks.
        table_name: ``database.table``.
        source: the rows to merge.
        on: key columns, which both sides have.
        rules: what happens to rows.
        null_safe: see :func:`~mutation_api.changes.spark_merge.merge.merge_into`.
        missing_columns: likewise.
        write_unchanged: likewise.
        prune_buckets: likewise.

    Raises:
        ConfigurationError: a condition or an order is no SQL, rules contradict one another, or an option
            makes no sense.
    """
    table = transaction.table(table_name)
    target = (*table.column_names, *table.partition_key_names)
    names = _Names(source.sparkSession, tuple(source.columns), target)
    orders = [names.order(text) for text in rules.first_by]
    merge = merge_into(
        transaction,
        table.full_name,
        source=source,
        on=on,
        null_safe=null_safe,
        on_duplicate=first_by(*orders) if orders else "error",
        missing_columns=missing_columns,
        write_unchanged=write_unchanged,
        prune_buckets=prune_buckets,
    )
    delete_when = names.of_both(rules.delete_when)
    if delete_when is not None:
        merge.whenMatched(delete_when).delete()
    if rules.updates:
        merge.whenMatched(names.of_both(rules.update_when)).updateAll()
    if rules.inserts:
        merge.whenNotMatched(names.inserted(delete_when, rules.insert_when)).insertAll()
    if rules.deletes_missing or rules.delete_missing_when is not None:
        merge.whenNotMatchedBySource(names.of_target(rules.delete_missing_when)).delete()
    return merge


@dataclass(frozen=True)
class _Names:
    """Puts the side before the names of columns that lack it; what both sides have is the source's."""

    spark: SparkSession
    source: Sequence[str]
    target: Sequence[str]

    def of_both(self, condition: str | None) -> str | None:
        return self._with_sides(condition, {**self._all(TARGET), **self._all(SOURCE)})

    def of_target(self, condition: str | None) -> str | None:
        return self._with_sides(condition, self._all(TARGET))

    def inserted(self, delete_when: str | None, insert_when: str | None) -> str | None:
        """Which unmatched rows are inserted: none that say that their row is gone."""
        wanted = self._with_sides(insert_when, self._all(SOURCE))
        if delete_when is None:
            return wanted
        if names_side(self.spark, delete_when, TARGET):
            if wanted is None:
                raise ConfigurationError(
                    f"delete_when {delete_when!r} reads the table's row, which a row to be inserted "
                    "does not have: say with insert_when which rows are inserted, or give inserts=False"
                )
            return wanted
        stays = f"NOT coalesce(({delete_when}), false)"
        return stays if wanted is None else f"({wanted}) AND {stays}"

    def order(self, text: str) -> Column:
        """``updated DESC NULLS LAST`` as a Column; Spark's parser would take DESC for a name."""
        found = _ORDER.fullmatch(text.strip())
        if found is None:
            raise ConfigurationError(f"first_by {text!r}: expected SQL [ASC|DESC] [NULLS FIRST|LAST]")
        column = sf.expr(with_sides(self.spark, found["value"], self._all(SOURCE)))
        order = (found["order"] or "asc").lower()
        nulls = (found["nulls"] or ("last" if order == "desc" else "first")).lower()
        sort: Callable[[], Column] = getattr(column, f"{order}_nulls_{nulls}")
        return sort()

    def _all(self, side: str) -> dict[str, str]:
        names = self.source if side == SOURCE else self.target
        return {name.lower(): side for name in names}

    def _with_sides(self, condition: str | None, sides: Mapping[str, str]) -> str | None:
        return None if condition is None else with_sides(self.spark, condition, sides)
