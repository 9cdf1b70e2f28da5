"""Pairs of source and target rows.

If the source has few keys, the driver collects them and the table is read by them: the reader returns only
rows that may match, and Spark joins these few rows with the source. Many keys are shuffled to the buckets to
which they hash, if they determine the bucket, and searched there. Otherwise Spark joins the whole table. The
result is always the same, since keys only exclude rows that match nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StructType,
)

from mutation_api.merge.clauses import SOURCE, TARGET, Match
from mutation_api.merge.resolve import Equality
from mutation_api.merge.spark_expressions import Sides
from mutation_api.spark.jvm import estimated_bytes, is_surely_empty
from mutation_api.spark.versions import collected, try_cast
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.bucket_resolver import tells_bucket
from mutation_api.table.row_type import quoted

BROADCAST_BYTES = 64 << 20
"""The maximum size, in Spark's memory, of table rows that are sent to every task."""

SMALL_SOURCE_BYTES = 64 << 20
"""The maximum estimated size of a source whose keys are collected without a limit. A limit costs a stage."""

_JOINS = {
    frozenset({Match.MATCHED}): "inner",
    frozenset({Match.NOT_MATCHED}): "left_anti",
    frozenset({Match.NOT_MATCHED_BY_SOURCE}): "right",
    frozenset({Match.MATCHED, Match.NOT_MATCHED}): "left",
    frozenset({Match.MATCHED, Match.NOT_MATCHED_BY_SOURCE}): "right",
    frozenset({Match.NOT_MATCHED, Match.NOT_MATCHED_BY_SOURCE}): "full",
    frozenset(Match): "full",
}


@dataclass(frozen=True)
class SourceKeys:
    """The keys of the source's rows, which are used to read the table.

    ``table`` has distinct rows, in the table's column names and types. If ``null_safe``, NULL is a key like
    any other. If ``is_exact``, all table rows with one of these keys match; otherwise only some may. If
    ``is_unique``, no two rows of the source share a key.
    """

    table: pa.Table
    null_safe: bool
    is_exact: bool
    is_unique: bool


@dataclass(frozen=True)
class ScatteredKeys:
    """The keys of a source that is too large to collect. Unlike in :class:`SourceKeys`, they may repeat."""

    rows: DataFrame
    null_safe: bool

    is_exact = False
    is_unique = False


class TargetReader(Protocol):
    """A reader of table rows, as one struct column ``target``."""

    def __call__(
        self,
        matches: Set[Match],
        keys: SourceKeys | ScatteredKeys | None = None,
        *,
        without_keys: bool = False,
    ) -> DataFrame:
        """Return rows that may belong to one of ``matches``.

        With ``keys``, these are only rows that have one of them; with ScatteredKeys, there may be others.
        With ``without_keys``, these are only rows that have none of the keys.
        """
        ...


def source_keys(
    sides: Sides,
    equalities: Collection[Equality],
    limit: int,
    *,
    table: AcidTable,
    prune_buckets: bool,
    is_whole_condition: bool,
) -> SourceKeys | ScatteredKeys | None:
    """Return the source's keys if the table can be read by them.

    The keys are collected. If the source has more rows than ``limit``, the keys stay in Spark, provided that
    they determine a row's bucket. Otherwise only the values of partition columns are collected, provided that
    at most ``limit`` are distinct.

    Args:
        sides: the source, and the types of both sides.
        equalities: columns that are equal in matching rows.
        limit: maximum number of keys to collect.
        table: the table to read.
        prune_buckets: True if rows can be assumed to lie in the bucket of their hash.
        is_whole_condition: True if the equalities are the whole condition, so that equal rows match.
    """
    keys = _KeyColumns.of(sides, equalities)
    if keys is None:
        return None
    if collected := keys.collected(limit, is_whole_condition=is_whole_condition):
        return collected
    if prune_buckets and tells_bucket(table, keys.found.keys()):
        return ScatteredKeys(keys.selected, keys.null_safe)
    of_partitions = _KeyColumns.of(sides, [e for e in equalities if e.target in table.partition_key_names])
    return None if of_partitions is None else of_partitions.collected(limit, is_distinct=True)


@dataclass(frozen=True)
class _KeyColumns:
    """The source columns by which the table can be read.

    ``found`` maps a column of the table to its equality and the source's value in the table's type. ``count``
    is the number of equalities, including those that cannot be used.
    """

    sides: Sides
    found: Mapping[str, tuple[Equality, Column]]
    count: int

    @classmethod
    def of(cls, sides: Sides, equalities: Collection[Equality]) -> _KeyColumns | None:
        """Return the usable columns, or None if there are none."""
        found: dict[str, tuple[Equality, Column]] = {}
        for each in equalities:
            column = _in_type_of(
                each.source,
                sides.source_schema[each.source].dataType,
                sides.target_schema[each.target].dataType,
            )
            if column is not None and each.target not in found:
                found[each.target] = (each, column)
        return cls(sides, found, len(equalities)) if found else None

    @property
    def null_safe(self) -> bool:
        """True if NULL is a key for at least one column.

        The reader treats all columns alike, and NULL as a key excludes fewer rows.
        """
        return any(each.null_safe for each, _ in self.found.values())

    @property
    def selected(self) -> DataFrame:
        """The keys, in the table's column names and types."""
        columns = [column.alias(name) for name, (_, column) in self.found.items()]
        return self.sides.source.select(*columns)

    def collected(
        self, limit: int, *, is_distinct: bool = False, is_whole_condition: bool = False
    ) -> SourceKeys | None:
        """Collect the keys on the driver.

        Return None if there are more rows than ``limit``. If ``is_distinct`` is true, distinct keys are
        counted instead of rows.
        """
        selected, null_safe = self.selected, self.null_safe
        if is_distinct or estimated_bytes(self.sides.source) > SMALL_SOURCE_BYTES:
            selected = (selected.distinct() if is_distinct else selected).limit(limit + 1)
        rows = collected(selected)
        if rows.num_rows > limit:
            return None
        keys = rows if null_safe else rows.drop_null()  # NULL equals nothing
        distinct = keys.group_by(keys.column_names).aggregate([])
        source_schema, target_schema = self.sides.source_schema, self.sides.target_schema
        is_same = all(
            source_schema[e.source].dataType == target_schema[e.target].dataType and e.null_safe == null_safe
            for e, _ in self.found.values()
        )
        is_exact = is_whole_condition and is_same and len(self.found) == self.count
        is_unique = is_exact and distinct.num_rows == keys.num_rows
        return SourceKeys(distinct, null_safe, is_exact, is_unique)


def match_rows(
    source: DataFrame,
    read: TargetReader,
    condition: Column,
    wanted: Set[Match],
    keys: SourceKeys | ScatteredKeys | None,
    cached: list[DataFrame],
) -> DataFrame:
    """Pair each target row with the source rows for which ``condition`` is true.

    Args:
        source: one struct column ``source``, never null.
        read: reader of the table.
        condition: boolean condition over both sides.
        wanted: the kinds of rows needed. Others may be missing.
        keys: the source's keys. None if the table cannot be read by them.
        cached: list to which DataFrames that are cached by this function are added. The caller drops them.

    Returns:
        The columns ``source`` and ``target``, with a row for each pair. A side that does not exist is null.
    """
    of_source = {match for match in wanted if match.has_source}
    rest = wanted - of_source
    if keys is None or (rest and not keys.is_exact):
        return _joined(source, read(wanted, None if rest else keys), condition, wanted)
    parts = []
    if of_source:
        parts.append(_read_and_joined(source, read(of_source, keys), condition, of_source, cached))
    if rest:
        left = read(rest, keys, without_keys=True)
        nothing = sf.lit(None).cast(source.schema[SOURCE].dataType)
        parts.append(left.select(nothing.alias(SOURCE), TARGET))
    return parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])


def _read_and_joined(
    source: DataFrame, target: DataFrame, condition: Column, wanted: Set[Match], cached: list[DataFrame]
) -> DataFrame:
    """Join with rows read by key. A table, or partitions, without rows need no search."""
    if is_surely_empty(target):
        return _joined(source, target, condition, wanted)
    cached.append(target.persist())
    return _joined(source, _broadcast_if_small(cached[-1]), condition, wanted)


def _joined(source: DataFrame, target: DataFrame, condition: Column, wanted: Set[Match]) -> DataFrame:
    joined = source.join(target, condition, _JOINS[frozenset(wanted)])
    if TARGET not in joined.columns:
        joined = joined.withColumn(TARGET, sf.lit(None).cast(target.schema[TARGET].dataType))
    return joined.select(SOURCE, TARGET)


def _broadcast_if_small(cached: DataFrame) -> DataFrame:
    """Read the rows now, and broadcast them if they are few, which is cheaper than a shuffle.

    Spark does not know how many rows Python returns, so it would never broadcast them itself.
    """
    cached.count()
    return sf.broadcast(cached) if estimated_bytes(cached) <= BROADCAST_BYTES else cached


def _in_type_of(name: str, found: DataType, wanted: DataType) -> Column | None:
    """Return the source column in the table's type, or None if equal values might then be missed.

    Spark compares both sides in a type that holds both. If the column's type can hold the value, the cast
    keeps it. If not, no row equals the value, and any result of the cast only causes needless reads.
    """
    if isinstance(wanted, StructType | ArrayType | MapType):
        return None
    if found == wanted:
        return sf.col(quoted(name))
    is_exact = all(isinstance(t, IntegralType | DecimalType) for t in (found, wanted))
    is_float = all(isinstance(t, FractionalType) and not isinstance(t, DecimalType) for t in (found, wanted))
    return try_cast(name, wanted) if is_exact or is_float else None
