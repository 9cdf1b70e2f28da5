"""MergePlan: turn two sides and clauses into one change per row.

Making the plan runs only the jobs that find which rows to read. It checks names, types and conditions against
the schemas. The job that fills the cache checks values and duplicates before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StringType, StructType

from mutation_api.format.event import PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.merge.clauses import (
    CHANGE_COLUMN,
    SOURCE,
    TARGET,
    Clause,
    Match,
    MergeOptions,
    altered_keys_error,
    padded_key_error,
)
from mutation_api.merge.merge_report import MergeReport, with_compactions_due
from mutation_api.merge.resolve import resolve
from mutation_api.merge.source_rows import ROWS_SHOWN, DuplicatedKey, duplicate_key_error
from mutation_api.merge.spark_diff import partitions_where
from mutation_api.merge.spark_expressions import Expression, ExpressionAnalyser, Sides, SparkMerge, column_of
from mutation_api.merge.spark_matching import ScatteredKeys, SourceKeys, match_rows, source_keys
from mutation_api.merge.spark_outcome import (
    CLAUSE,
    DELETED,
    INSERTED,
    MOVED,
    NEW,
    UNCHANGED,
    altered_key,
    first_holding,
    inserted_key,
    json_text,
    keep_first,
    key_text,
    kind_of,
    order_of,
    partition_of,
    with_new_row,
)
from mutation_api.read.key_groups import in_key_types
from mutation_api.read.table_view import partition_names
from mutation_api.spark.job import is_read_alone
from mutation_api.spark.plan import default_num_partitions
from mutation_api.spark.snapshot_frame import read_table, read_table_by_bucket
from mutation_api.spark.versions import computed
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import check_may_create
from mutation_api.table.row_type import quoted
from mutation_api.write.staged_writer import OpenTransaction

__all__ = ["MergePlan"]

_KEY, _ALTERED, _KIND = "__key", "__altered", "__kind"
_ROW_ID, _PARTITION, _NEW_PARTITION = "__row_id", "__partition", "__new_partition"
_COUNTED = "__counted"


@dataclass(frozen=True)
class MergePlan:
    """The rows on which a clause acts. ``acting`` includes the source's row; the steps share ``cached``.

    If ``is_first_load``, the table has no rows to search, so rows are only inserted and nothing is cached. If
    ``is_unique``, no two rows can act on one row or insert one key. If ``may_alter_keys``, an inserted key
    may be stored as a different key.
    """

    transaction: OpenTransaction
    table: AcidTable
    options: MergeOptions
    keys: tuple[str, ...] | None
    is_unique: bool
    may_alter_keys: bool
    acting: DataFrame
    caches: tuple[DataFrame, ...]
    is_first_load: bool

    @classmethod
    def of(
        cls,
        transaction: OpenTransaction,
        table_name: str,
        source: DataFrame,
        keys: tuple[str, ...] | None,
        on: Expression | None,
        clauses: tuple[Clause[Expression], ...],
        options: MergeOptions,
        *,
        keeps_old_rows: bool = False,
    ) -> MergePlan:
        """Check everything that can be checked without a job, collect the keys, and plan the rest.

        ``keeps_old_rows`` is required for :meth:`shown_rows` and makes the cache larger.
        """
        transaction.check()
        table = transaction.table(table_name)
        sides = Sides.of(table, source)
        analyser = ExpressionAnalyser(
            source.sparkSession, table.full_name, sides.source_schema, sides.target_schema
        )
        resolved = resolve(table, analyser, keys, on, clauses, options)
        _refuse_padded_keys(table, sides, resolved)
        collected = source_keys(
            sides,
            resolved.equalities,
            options.collected_keys,
            table=table,
            prune_buckets=options.prune_buckets,
            is_whole_condition=resolved.is_equalities_alone,
        )
        altered = altered_key(table, resolved)
        inserts_keys = all(c.takes_all for c in clauses if c.action.adds_row)
        is_unique = bool(collected and collected.is_unique and inserts_keys and altered is None)
        cached: list[DataFrame] = []
        try:
            reader = _Reader(transaction, table, sides, resolved, options.prune_buckets)
            acting = _acting_rows(reader, options, collected, cached, altered, is_unique=is_unique)
            if not is_unique:
                acting = _without_repetition(acting, table, resolved, options)
            kept = acting.drop(SOURCE, *([] if keeps_old_rows else [TARGET]))
            # Table rows are cached. Partition names, which Python computes, are only counted.
            is_first_load = is_unique and not cached and is_read_alone(kept.drop(_PARTITION, _NEW_PARTITION))
            if not is_first_load:
                # A join has the session's number of partitions, mostly 200; Python then processes each of
                # them.
                kept = kept.coalesce(default_num_partitions(source.sparkSession)).persist()
            cached.append(kept)
        except BaseException:
            _drop(cached)
            raise
        may_alter = altered is not None
        caches = tuple(cached)
        return cls(transaction, table, options, keys, is_unique, may_alter, acting, caches, is_first_load)

    @property
    def cached(self) -> DataFrame:
        """The acting rows without the source columns."""
        return self.caches[-1]

    def check_keys(self) -> None:
        """Raise RecordValueError if an inserted key would be stored as a different key."""
        if not self.may_alter_keys:
            return
        altered = self.cached.where(sf.col(_ALTERED).isNotNull())
        found = altered.select(_ALTERED).orderBy(_ALTERED).limit(ROWS_SHOWN).collect()
        if found:
            raise altered_keys_error(self.table.full_name, [row[0] for row in found])

    def check_duplicates(self) -> None:
        """Raise DuplicateKeyError if several source rows act on one row or insert one key."""
        if self.options.first_by or self.is_unique:
            return
        group = [_ROW_ID, _KEY]
        doubled = self.cached.where(_is_in_group()).groupBy(*group).count().where("count > 1")
        key_count = doubled.count()
        if not key_count:
            return
        shown = doubled.limit(self.options.duplicates_shown).drop("count").collect()
        names = doubled.drop("count").schema
        found = self.cached.sparkSession.createDataFrame(shown, names).alias("d")
        same = [sf.col(f"a.{name}").eqNullSafe(sf.col(f"d.{name}")) for name in group]
        of_keys = self.acting.alias("a").join(sf.broadcast(found), same)
        name, source_type = sf.col(f"a.{SOURCE}"), self.acting.schema[SOURCE].dataType
        row_id, row_id_type = name, source_type
        if self.table.version.has_row_ids:
            row_id, row_id_type = sf.col(f"a.{_ROW_ID}"), self.acting.schema[_ROW_ID].dataType
        row_texts = sf.sort_array(sf.collect_list(json_text(name, source_type)))
        samples = of_keys.groupBy(*[f"a.{n}" for n in group]).agg(
            sf.first(key_text(self.keys, name, row_id, source_type, row_id_type)).alias("key"),
            sf.count(sf.lit(1)).alias("row_count"),
            sf.slice(row_texts, 1, ROWS_SHOWN).alias("rows"),
        )
        found_keys = [
            DuplicatedKey(row["key"], row["row_count"], row["rows"])
            for row in samples.orderBy("key").collect()
        ]
        raise duplicate_key_error(self.table.full_name, key_count, found_keys)

    def report(self, *, is_dry_run: bool) -> MergeReport:
        """Count the rows. The first step that evaluates the rows fills the cache.

        Raises:
            PartitionCreationError: If rows belong to missing partitions that must not be created.
        """
        by = [_COUNTED] if self.options.count_by else []
        groups = self.cached.groupBy(_PARTITION, _NEW_PARTITION, _KIND, *by).count().collect()
        known = {*partition_names(self.transaction, self.table.full_name)}
        new = {row[_NEW_PARTITION] for row in groups} - known - {None, ""}
        check_may_create(self.table, new)
        report = MergeReport.of(
            self.table.full_name,
            [(row[_PARTITION], row[_KIND], row["count"]) for row in groups],
            is_dry_run=is_dry_run,
            new_partitions=new,
            counts_by=[(row[_COUNTED], row[_KIND], row["count"]) for row in groups] if by else (),
        )
        return with_compactions_due(report, self.table)

    def changes(self) -> DataFrame:
        """Return the change set for :func:`mutation_api.apply_changes`."""
        names = (*self.table.column_names, *self.table.partition_key_names)
        columns = [sf.col(quoted(NEW, name)).alias(name) for name in names]
        if self.is_first_load:  # with a constant operation, Spark drops its conditions
            return self.cached.select(sf.lit("insert").alias(CHANGE_COLUMN), *columns)
        kind = sf.col(_KIND)
        operations = (
            sf.when(kind == MOVED, sf.array(sf.lit("delete"), sf.lit("insert")))
            .when(kind == INSERTED, sf.array(sf.lit("insert")))
            .when(kind == DELETED, sf.array(sf.lit("delete")))
            .otherwise(sf.array(sf.lit("update")))
        )
        rows = self.cached.where(kind != UNCHANGED)
        if self.table.version.has_row_ids:
            columns.insert(0, sf.col(_ROW_ID).alias(ROW_ID_COLUMN))
        return rows.select(sf.explode(operations).alias(CHANGE_COLUMN), *columns)

    def shown_rows(self) -> DataFrame:
        """Return every row before and after, for
        :func:`mutation_api.merge.spark_evaluator.sample_rows`.

        Requires a plan that keeps old rows. These have only the columns that the merge reads.
        """
        target = self.cached.schema[TARGET].dataType
        assert isinstance(target, StructType)
        read = [name for name in target.fieldNames() if name != ROW_ID_COLUMN]
        before = sf.lit(None).cast("string")
        if read:
            old = sf.struct(*[sf.col(quoted(TARGET, name)).alias(name) for name in read])
            before = sf.when(sf.col(TARGET).isNotNull(), old)
        sides = {key: [TARGET] * (key in read) + [NEW] for key in self.keys or ()}
        parts = [sf.coalesce(*[sf.col(quoted(s, k)) for s in found]).alias(k) for k, found in sides.items()]
        keys = self.cached.select(*parts).schema
        return self.cached.select(
            sf.col(_KIND).alias("kind"),
            sf.col(_PARTITION).alias("partition"),
            (json_text(sf.struct(*parts), keys) if parts else sf.lit(None).cast("string")).alias("key"),
            before.alias("before"),
            sf.when(sf.col(_KIND) != DELETED, sf.col(NEW)).alias("after"),
        )

    def close(self) -> None:
        """Drop the caches."""
        _drop(self.caches)


def _drop(cached: Iterable[DataFrame]) -> None:
    for rows in cached:
        rows.unpersist()


def _refuse_padded_keys(table: AcidTable, sides: Sides, resolved: SparkMerge) -> None:
    """Raise RecordValueError if a key that is compared with a char ends with a blank. May run a job."""
    chars = {column.name for column in table.all_columns if column.type.startswith("char")}
    texts = {field.name for field in sides.source_schema if isinstance(field.dataType, StringType)}
    for each in resolved.equalities:
        if each.target not in chars or each.source not in texts:
            continue
        key = sf.col(quoted(each.source))
        if found := sides.source.where(key.endswith(" ")).select(key).take(1):
            raise padded_key_error(table.full_name, each.target, found[0][0])


def _acting_rows(
    reader: _Reader,
    options: MergeOptions,
    keys: SourceKeys | ScatteredKeys | None,
    cached: list[DataFrame],
    altered: Column | None,
    *,
    is_unique: bool,
) -> DataFrame:
    """Return the rows on which a clause acts.

    Columns: ``source``, ``target``, _ROW_ID, _KEY (JSON string of an inserted key, null if all keys are known
    to be different), _ALTERED, _KIND, NEW, the partitions, and _COUNTED if ``count_by`` is set.
    """
    table, sides, resolved = reader.table, reader.sides, reader.resolved
    source_rows = sides.source.select(_row_of(sides.source_schema.fieldNames()).alias(SOURCE))
    rows = match_rows(source_rows, reader, column_of(resolved.on), resolved.matches, keys, cached)
    rows = rows.withColumn(CLAUSE, first_holding(resolved.clauses)).where(sf.col(CLAUSE).isNotNull())
    nothing = sf.lit(None).cast("string")
    has_row_ids = table.version.has_row_ids
    row_id = sf.col(quoted(TARGET, ROW_ID_COLUMN)) if has_row_ids else nothing
    if options.first_by and not is_unique and any(match.is_pair for match in resolved.matches):
        rows = _first_of_each(rows, row_id, options)
    rows = with_new_row(rows, table, resolved)
    known = sf.lit("")
    if table.partition_keys:
        known = sf.col(quoted(TARGET, ROW_ID_COLUMN, PARTITION_FIELD)) if has_row_ids else nothing
    placed = rows.select(
        SOURCE,
        TARGET,
        row_id.alias(_ROW_ID),
        (nothing if is_unique else inserted_key(rows, resolved, options)).alias(_KEY),
        (nothing if altered is None else altered).alias(_ALTERED),
        kind_of(table, resolved, options).alias(_KIND),
        known.alias("__known"),
        NEW,
        *([sf.col(quoted(SOURCE, options.count_by)).alias(_COUNTED)] if options.count_by else []),
    )
    is_placed = sf.col(_KIND).isin(INSERTED, MOVED)
    names = {name: sf.col(quoted(name)) for name in placed.columns}
    placed = computed(placed, {**names, _NEW_PARTITION: partition_of(table, is_placed, resolved.keys or ())})
    partition = sf.coalesce("__known", _NEW_PARTITION) if table.partition_keys else sf.lit("")
    return placed.withColumn(_PARTITION, partition).drop("__known")


@dataclass(frozen=True)
class _Reader:
    """A :class:`~mutation_api.merge.spark_matching.TargetReader` of the transaction's snapshot."""

    transaction: OpenTransaction
    table: AcidTable
    sides: Sides
    resolved: SparkMerge
    prune_buckets: bool

    def __call__(
        self,
        matches: Set[Match],
        keys: SourceKeys | ScatteredKeys | None = None,
        *,
        without_keys: bool = False,
    ) -> DataFrame:
        columns = self.resolved.target_columns
        if not columns and not self.table.version.has_row_ids:
            columns = self.table.column_names[:1]
        partitions = self._partitions(matches)
        if isinstance(keys, ScatteredKeys):
            rows = read_table_by_bucket(
                self.transaction,
                self.table.full_name,
                keys.rows,
                columns=columns,
                partitions=partitions,
                null_safe_keys=keys.null_safe,
            )
        else:
            rows = read_table(
                self.transaction,
                self.table.full_name,
                columns=columns,
                partitions=partitions,
                keys=None if keys is None else in_key_types(self.table, keys.table),
                null_safe_keys=keys is not None and keys.null_safe,
                without_keys=without_keys,
                prune_buckets=self.prune_buckets,
                spark=self.sides.source.sparkSession,
            )
        return rows.select(_row_of(rows.columns).alias(TARGET))

    def _partitions(self, matches: Set[Match]) -> list[str] | None:
        if not self.table.partition_keys:
            return None
        resolved = self.resolved
        wanted = [*resolved.matched_where] if any(match.has_source for match in matches) else []
        if not all(match.has_source for match in matches):
            wanted += resolved.by_source_where
        names = partition_names(self.transaction, self.table.full_name)
        return partitions_where(self.sides.source.sparkSession, self.table, names, wanted)


def _first_of_each(rows: DataFrame, row_id: Column, options: MergeOptions) -> DataFrame:
    """Keep the first source row for each table row. The values of the others need not fit."""
    assert options.first_by is not None
    is_match = row_id.isNotNull() & sf.col(SOURCE).isNotNull()
    return keep_first(rows, [row_id], order_of(options.first_by), is_match)


def _without_repetition(
    acting: DataFrame, table: AcidTable, resolved: SparkMerge, options: MergeOptions
) -> DataFrame:
    """Keep a single row if a rule chooses one of several source rows for one row or key.

    Rows that insert one key are recognised by the key as it is stored. Matched rows were reduced before.
    """
    if options.first_by:
        if not any(clause.action.adds_row for clause in resolved.clauses):
            return acting
        return keep_first(acting, [_KEY], order_of(options.first_by), sf.col(_KEY).isNotNull())
    if resolved.deletes_all_pairs and table.version.has_row_ids:
        is_match = sf.col(_ROW_ID).isNotNull() & sf.col(SOURCE).isNotNull()
        return keep_first(acting, [_ROW_ID], [sf.xxhash64(sf.to_json(SOURCE))], is_match)
    return acting


def _is_in_group() -> Column:
    return sf.col(_ROW_ID).isNotNull() | sf.col(_KEY).isNotNull()


def _row_of(names: Iterable[str]) -> Column:
    return sf.struct(*[sf.col(quoted(name)).alias(name) for name in names])
