"""MergePlan: the rows of a merge by Spark, the clause that acts on each, and the jobs that evaluate them.

Creating the plan runs only the jobs that determine the rows to read. It checks names, types and conditions
against the schemas. The job that fills the cache checks values, before anything is written.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import cached_property

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StringType

from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.merge.clauses import (
    CHANGE_COLUMN,
    SOURCE,
    TARGET,
    Match,
    MergeOptions,
    padded_key_error,
)
from mutation_api.merge.outcome import MergeOutcome, change_schema
from mutation_api.merge.source_rows import ROWS_SHOWN, DuplicatedKey, duplicate_key_error
from mutation_api.merge.spark_acting import acted
from mutation_api.merge.spark_columns import (
    any_of,
    first_holding,
    is_stored_unchanged,
    json_text,
    keep_first,
    key_text,
    order_of,
    value_columns,
    with_inserted_key,
)
from mutation_api.merge.spark_diff import partitions_where
from mutation_api.merge.spark_expressions import CheckedMerge, Sides, SparkMerge, column_of
from mutation_api.merge.spark_matching import ScatteredKeys, SourceKeys, match_rows, source_keys
from mutation_api.merge.task_clauses import CLAUSE, KEY, OUTCOME, ROW_ID
from mutation_api.read.key_groups import in_key_types
from mutation_api.read.table_view import partition_names
from mutation_api.spark.plan import ChangePlan, default_num_partitions, plan_pieces
from mutation_api.spark.snapshot_frame import read_table, read_table_by_bucket
from mutation_api.spark.tasks import CHANGES
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.row_type import quoted
from mutation_api.write.staged_writer import OpenTransaction

_SHOWN_KEY = "__key"


@dataclass(frozen=True)
class MergePlan:
    """The rows on which a clause acts, and the resulting changes.

    ``acting`` has a row for each of them: both sides and the number of the clause. ``acted`` is the result of
    the tasks for these rows, see :func:`~mutation_api.merge.spark_acting.acted`; it is cached. ``samples`` is
    the number of rows of each kind to keep for a preview.
    """

    transaction: OpenTransaction
    table: AcidTable
    options: MergeOptions
    resolved: SparkMerge
    samples: int
    acting: DataFrame
    acted: DataFrame
    caches: tuple[DataFrame, ...]

    @classmethod
    def of(cls, merge: CheckedMerge, *, samples: int = 0) -> MergePlan:
        """Collect the keys, and plan the rest.

        ``samples`` is the number of rows of each kind to keep for a preview.
        """
        transaction, table, sides = merge.transaction, merge.table, merge.sides
        resolved, options = merge.resolved, merge.options
        clauses, spark = resolved.clauses, sides.source.sparkSession
        _refuse_padded_keys(table, sides, resolved)
        collected = source_keys(
            sides,
            resolved.equalities,
            options.collected_keys,
            table=table,
            prune_buckets=options.prune_buckets,
            is_whole_condition=resolved.is_equalities_alone,
        )
        inserts_keys = all(c.takes_all for c in clauses if c.action.adds_row)
        is_unique = bool(
            collected and collected.is_unique and inserts_keys and not _may_alter_keys(table, resolved)
        )
        cached: list[DataFrame] = []
        try:
            reader = _Reader(transaction, table, sides, resolved, options.prune_buckets)
            acting = _acting_rows(reader, options, collected, cached, is_unique=is_unique)
            # A join has the session's number of partitions, mostly 200; Python then processes each of them.
            rows = acted(
                acting.coalesce(default_num_partitions(spark)),
                table,
                resolved,
                options,
                samples=samples,
                identifies_rows=not is_unique and options.first_by is None,
            ).persist()
            cached.append(rows)
        except BaseException:
            _drop(cached)
            raise
        return cls(transaction, table, options, resolved, samples, acting, rows, tuple(cached))

    @cached_property
    def outcome(self) -> MergeOutcome:
        """The counts and samples. This is the first step that evaluates the rows. It fills the cache."""
        parts = self.acted.where(sf.col(OUTCOME).isNotNull()).select(OUTCOME).collect()
        total = MergeOutcome(self.resolved.keys, self.options.count_by, self.samples)
        for (part,) in parts:
            total.add_outcome(pickle.loads(part))
        return total

    def check_duplicates(self) -> None:
        """Raise DuplicateKeyError if several source rows act on one row or insert one key."""
        group = [name for name in (ROW_ID, KEY) if name in self.acted.columns]
        if not group:
            return
        is_in_group = any_of(sf.col(name).isNotNull() for name in group)
        doubled = self.acted.where(is_in_group).groupBy(*group).count().where("count > 1")
        key_count = doubled.count()
        if not key_count:
            return
        shown = doubled.limit(self.options.duplicates_shown).drop("count").collect()
        names = doubled.drop("count").schema
        found = self.acted.sparkSession.createDataFrame(shown, names).alias("d")
        acting = self.acting
        if KEY in group:
            acting = with_inserted_key(acting, self.table, self.resolved, self.options, KEY)
        if ROW_ID in group:
            acting = acting.withColumn(ROW_ID, sf.col(quoted(TARGET, ROW_ID_COLUMN)))
        same = [sf.col(f"a.{name}").eqNullSafe(sf.col(f"d.{name}")) for name in group]
        of_keys = acting.alias("a").join(sf.broadcast(found), same)
        name, source_type = sf.col(f"a.{SOURCE}"), acting.schema[SOURCE].dataType
        row_id, row_id_type = name, source_type
        if ROW_ID in group:
            row_id, row_id_type = sf.col(f"a.{ROW_ID}"), acting.schema[ROW_ID].dataType
        row_texts = sf.sort_array(sf.collect_list(json_text(name, source_type)))
        samples = of_keys.groupBy(*[f"a.{n}" for n in group]).agg(
            sf.first(key_text(self.resolved.keys, name, row_id, source_type, row_id_type)).alias(_SHOWN_KEY),
            sf.count(sf.lit(1)).alias("row_count"),
            sf.slice(row_texts, 1, ROWS_SHOWN).alias("rows"),
        )
        found_keys = [
            DuplicatedKey(row[_SHOWN_KEY], row["row_count"], row["rows"])
            for row in samples.orderBy(_SHOWN_KEY).collect()
        ]
        raise duplicate_key_error(self.table.full_name, key_count, found_keys)

    def check(self) -> None:
        """Check keys and duplicates. This evaluates the rows.

        Raises:
            RecordValueError: If a key to insert would be stored as a different key.
            DuplicateKeyError: See :meth:`check_duplicates`.
        """
        self.outcome.check_keys(self.table)
        self.check_duplicates()

    def changes(self, tasks: int, insert_files: int | None) -> ChangePlan:
        """Return the plan to write the changes with this number of tasks."""
        return plan_pieces(
            self.table,
            self.acted.where(sf.col(CHANGES).isNotNull()).select(CHANGES),
            change_schema(self.table),
            self.transaction.valid_ids(self.table.full_name),
            operation_column=CHANGE_COLUMN,
            num_partitions=tasks,
            insert_files=insert_files,
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


def _may_alter_keys(table: AcidTable, resolved: SparkMerge) -> bool:
    """Return True if a key to insert may be stored as a different key, by the types of its values."""
    columns = {column.name: column for column in table.all_columns}
    return any(
        not is_stored_unchanged(columns[key], kind)
        for key in resolved.keys or ()
        for _, _, kind in value_columns(resolved, key, inserts_only=True)
    )


def _acting_rows(
    reader: _Reader,
    options: MergeOptions,
    keys: SourceKeys | ScatteredKeys | None,
    cached: list[DataFrame],
    *,
    is_unique: bool,
) -> DataFrame:
    """Return the rows on which a clause acts: the columns ``source``, ``target`` and CLAUSE.

    If a rule chooses one of several source rows for one row or key, the others are left out. Rows that insert
    one key are recognised by the key as it is stored.
    """
    table, sides, resolved = reader.table, reader.sides, reader.resolved
    source_rows = sides.source.select(_row_of(sides.source_schema.fieldNames()).alias(SOURCE))
    rows = match_rows(source_rows, reader, column_of(resolved.on), resolved.matches, keys, cached)
    rows = rows.withColumn(CLAUSE, first_holding(resolved.clauses)).where(sf.col(CLAUSE).isNotNull())
    row_id = sf.col(quoted(TARGET, ROW_ID_COLUMN))
    is_pair = sf.col(SOURCE).isNotNull() & sf.col(TARGET).isNotNull()
    if options.first_by and not is_unique:
        order = order_of(options.first_by)
        if any(match.is_pair for match in resolved.matches):
            rows = keep_first(rows, [row_id], order, is_pair)
        if resolved.keys and any(clause.action.adds_row for clause in resolved.clauses):
            keyed = with_inserted_key(rows, table, resolved, options, _SHOWN_KEY)
            is_key = sf.col(_SHOWN_KEY).isNotNull()
            rows = keep_first(keyed, [_SHOWN_KEY], order, is_key).drop(_SHOWN_KEY)
    elif resolved.deletes_all_pairs and table.version.has_row_ids and not is_unique:
        rows = keep_first(rows, [row_id], [sf.xxhash64(sf.to_json(SOURCE))], is_pair)
    return rows


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


def _row_of(names: Iterable[str]) -> Column:
    return sf.struct(*[sf.col(quoted(name)).alias(name) for name in names])
