"""The outcome of a matched row, as Spark columns: its clause, new values, kind and partition."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame

from mutation_api.changes.altered_keys import altered_keys_error
from mutation_api.changes.clauses import SOURCE, TARGET, Action, Clause, Match
from mutation_api.changes.merge_options import MergeOptions
from mutation_api.changes.spark_merge.assignment import any_of, differs, is_stored_unchanged, stored
from mutation_api.changes.spark_merge.expressions import Expression, SparkMerge, column_of
from mutation_api.changes.spark_merge.sides import column_type
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.versions import ArrowColumn, computed
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import partition_names

__all__ = [
    "CLAUSE",
    "DELETED",
    "INSERTED",
    "MOVED",
    "NEW",
    "UNCHANGED",
    "UPDATED",
    "altered_key",
    "first_holding",
    "inserted_key",
    "json_text",
    "key_text",
    "kind_of",
    "partition_of",
    "with_new_row",
]

CLAUSE, NEW = "__clause", "__new"
"""Columns that these functions read: the number of the row's clause, and the struct of its new values."""

INSERTED, UPDATED, DELETED, MOVED, UNCHANGED = "inserted", "updated", "deleted", "moved", "unchanged"
"""Outcomes of a row: fields of MergeCounts."""


def first_holding(clauses: Iterable[Clause[Expression]]) -> Column:
    """Number of the first clause that holds for the row; null if none does."""
    has_source, has_target = sf.col(SOURCE).isNotNull(), sf.col(TARGET).isNotNull()
    is_match = {
        Match.MATCHED: has_source & has_target,
        Match.NOT_MATCHED: ~has_target,
        Match.NOT_MATCHED_BY_SOURCE: ~has_source,
    }
    chain = [
        sf.when(
            is_match[c.match] if c.condition is None else is_match[c.match] & column_of(c.condition),
            sf.lit(number),
        )
        for number, c in enumerate(clauses)
    ]
    # coalesce stops at the first: a condition is not evaluated for rows of an earlier clause.
    return sf.coalesce(*chain)


def with_new_row(rows: DataFrame, table: AcidTable, resolved: SparkMerge) -> DataFrame:
    """Add NEW, a struct of the row as it will be stored; all columns of a delete are null."""
    key = key_text(resolved.keys, sf.col(SOURCE), sf.col(TARGET))
    converted: dict[str, ArrowColumn] = {}
    columns = []
    for column in table.all_columns:
        branches = []
        for branch in _branches(table, column, resolved, key):
            if isinstance(branch, ArrowColumn):
                name = f"__converted{len(converted)}"
                converted[name] = branch
                branches.append(sf.col(name))
            else:
                branches.append(branch)
        columns.append(_first_of(column, branches).alias(column.name))
    if converted:
        rows = computed(rows, {**{name: sf.col(quoted(name)) for name in rows.columns}, **converted})
    return rows.withColumn(NEW, sf.struct(*columns)).drop(*converted)


def _first_of(column: AcidColumn, branches: Sequence[Column]) -> Column:
    wanted = column_type(column)
    return sf.coalesce(*[branch.cast(wanted) for branch in branches], sf.lit(None).cast(wanted))


def _branches(
    table: AcidTable, column: AcidColumn, resolved: SparkMerge, key: Column
) -> Iterator[Column | ArrowColumn]:
    """The new values of a column, each null where another clause decides."""
    # An empty text as key is refused where partitions get their names: see partition_of.
    keeps_empty = column.name in (resolved.keys or ())
    shared: list[int] = []  # clauses that take the source's column unchanged: one conversion for all
    for number, (clause, values) in enumerate(zip(resolved.clauses, resolved.values, strict=True)):
        here = sf.col(CLAUSE) == number
        if clause.action is Action.UPDATE and column.name not in values:
            yield sf.when(here, sf.col(quoted(TARGET, column.name)))
        elif column.name in values and clause.takes_all:
            shared.append(number)
        elif column.name in values:
            value, found = values[column.name]
            yield stored(table, column, column_of(value), found, where=here, key=key, keeps_empty=keeps_empty)
    if shared:
        value, found = resolved.values[shared[0]][column.name]
        where = sf.col(CLAUSE).isin(*shared)
        yield stored(table, column, column_of(value), found, where=where, key=key, keeps_empty=keeps_empty)


def kind_of(table: AcidTable, resolved: SparkMerge, options: MergeOptions) -> Column:
    """The outcome of the row: a field of MergeCounts."""
    numbers: dict[Action, list[int]] = {action: [] for action in Action}
    for number, clause in enumerate(resolved.clauses):
        numbers[clause.action].append(number)
    clause_number = sf.col(CLAUSE)
    kind = sf.when(clause_number.isin(*numbers[Action.INSERT]), INSERTED)
    kind = kind.when(clause_number.isin(*numbers[Action.DELETE]), DELETED)
    if not numbers[Action.UPDATE]:
        return kind
    assigned = {name for values in resolved.values for name in values}
    compared = assigned & table.placing_columns if options.write_unchanged else assigned
    changes = {c.name: differs(c, TARGET, NEW) for c in table.all_columns if c.name in compared}
    moved = [changed for name, changed in changes.items() if name in table.placing_columns]
    kind = kind.when(any_of(moved), MOVED)
    if not options.write_unchanged:
        kind = kind.when(~any_of(list(changes.values())), UNCHANGED)
    return kind.otherwise(UPDATED)


def inserted_key(resolved: SparkMerge, options: MergeOptions) -> Column:
    """JSON text of an inserted key as it will be stored; null if a NULL in it makes it equal to no other."""
    nothing = sf.lit(None).cast("string")
    if resolved.keys is None:
        return nothing
    parts = [sf.col(quoted(NEW, key)) for key in resolved.keys]
    inserts = [i for i, c in enumerate(resolved.clauses) if c.action is Action.INSERT]
    counts = sf.col(CLAUSE).isin(*inserts)
    if not options.null_safe:
        counts = reduce(lambda a, p: a & p.isNotNull(), parts, counts)
    return sf.when(
        counts, json_text(sf.struct(*[p.alias(k) for p, k in zip(parts, resolved.keys, strict=True)]))
    )


def altered_key(table: AcidTable, resolved: SparkMerge) -> Column | None:
    """JSON text of an inserted key that is stored as another one (rounded, cut), before and after.

    Such a key was matched unconverted, and its stored form may be the key of an existing row. None: no key of
    the merge can change.
    """
    types = {c.name: c for c in table.all_columns}
    keys = set(resolved.keys or ())
    found = []
    for number, (clause, values) in enumerate(zip(resolved.clauses, resolved.values, strict=True)):
        for name in sorted(keys & values.keys()) if clause.action is Action.INSERT else ():
            value, data_type = values[name]
            if is_stored_unchanged(types[name], data_type):
                continue
            before, after = column_of(value), sf.col(quoted(NEW, name))
            is_other = (sf.col(CLAUSE) == number) & ~before.eqNullSafe(after)
            text = json_text(
                sf.struct(sf.lit(name).alias("column"), before.alias("key"), after.alias("stored"))
            )
            found.append(sf.when(is_other, text))
    return sf.coalesce(*found) if found else None


def partition_of(table: AcidTable, where: Column, keys: Collection[str]) -> Column | ArrowColumn:
    """Name of the partition of a new row; null for other rows. An empty text as key is refused."""
    if not table.partition_keys:
        return sf.when(where, sf.lit(""))
    values = sf.struct(*[sf.col(quoted(NEW, k)).alias(k) for k in table.partition_key_names])
    texts = tuple(key.name for key in table.partition_keys if key.type == "string" and key.name in keys)
    return ArrowColumn(_PartitionNames(table, texts), "string", (sf.when(where, values),))


@dataclass(frozen=True)
class _PartitionNames:
    """The function that runs in tasks: structs of partition values in, names of partitions out."""

    table: AcidTable
    text_keys: tuple[str, ...]

    def __call__(self, rows: pa.Array) -> pa.Array:
        wanted = rows.is_valid()
        present = rows.filter(wanted)
        columns = {f.name: present.field(i) for i, f in enumerate(rows.type)}
        for name in self.text_keys:
            if "" in pc.unique(columns[name]).to_pylist():
                altered = json.dumps({"column": name, "key": "", "stored": None})
                raise altered_keys_error(self.table.full_name, [altered])
        found = partition_names(self.table, columns).cast(pa.string())
        return pc.replace_with_mask(pa.nulls(len(rows), pa.string()), wanted, found)


def key_text(keys: tuple[str, ...] | None, source: Column, target: Column) -> Column:
    """JSON text that names a row in messages: its key columns, or the whole row of the side that exists."""
    if keys is None:
        return sf.coalesce(json_text(source), json_text(target))
    of_source = sf.struct(*[source[k].alias(k) for k in keys])
    return sf.when(source.isNotNull(), json_text(of_source)).otherwise(json_text(target))


def json_text(value: Column) -> Column:
    """JSON text of a struct, including its nulls."""
    return sf.to_json(value, {"ignoreNullFields": "false"})
