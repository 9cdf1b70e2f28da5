"""Merges by Spark in which each task owns buckets: the source is shuffled once, and no row of the table is.

Spark evaluates the source, and the expressions over source columns that only Spark can interpret. Everything
else happens in the tasks (:mod:`.bucket_tasks`): they read the rows of their buckets by key, decide, write.

This is exact if the task that gets a source row owns every row that matches it, and every row that the merge
may write for it. If that is not certain, :func:`bucket_plan` returns the reason, and Spark pairs the rows
(:mod:`.spark_plan`). Expressions over source columns are evaluated for all source rows. If one fails for a
row, Spark pairs the rows as well, and evaluates it only where its clause applies.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from mutation_api.format.hive_type import parse_hive_type
from mutation_api.merge.acting import AnyMerge
from mutation_api.merge.bucket_owners import Owners, SourceSplitter, typed_keys
from mutation_api.merge.bucket_tasks import BucketMerge, OrderColumn, TaskResult
from mutation_api.merge.clauses import CHANGE_COLUMN, SOURCE, TARGET, FirstBy, MergeOptions
from mutation_api.merge.evaluator import ArrowMerge
from mutation_api.merge.outcome import MergeOutcome, change_schema
from mutation_api.merge.resolve import Alternatives
from mutation_api.merge.source_rows import DoubledKeys, plain_batch
from mutation_api.merge.spark_acting import check_types
from mutation_api.merge.spark_diff import partitions_where
from mutation_api.merge.spark_evaluator import compares_surely
from mutation_api.merge.spark_expressions import CheckedMerge, Expression
from mutation_api.merge.spark_translation import ArrowTranslation, OnlySparkError
from mutation_api.merge.sql_conditions import parsed_column
from mutation_api.orc.read.event_file import EventFileKind
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.table_view import open_table
from mutation_api.spark.frame_table import arrow_type_of
from mutation_api.spark.jvm import is_surely_empty, raw_bytes, spark_context
from mutation_api.spark.plan import (
    SPLIT_PARTS,
    default_num_partitions,
    piece_addresser,
)
from mutation_api.spark.tasks import CHANGES, SPLIT_DDL, TASK, ChangeWriter, Manifests, to_tasks
from mutation_api.spark.versions import collected
from mutation_api.table.bucket_resolver import tells_bucket
from mutation_api.table.partition import partition_names
from mutation_api.table.row_type import quoted
from mutation_api.write.forecast import Forecast, forecast

PARTITIONS_LISTED = 100
"""If a table has more partitions, those of the source are collected before directories are listed."""


@dataclass(frozen=True)
class Merged:
    """The results of all tasks. ``manifests`` are those of the files that were written."""

    outcome: MergeOutcome
    manifests: Manifests
    forecast: Forecast


@dataclass(frozen=True)
class BucketPlan:
    """A merge whose tasks own buckets.

    Attributes:
        merge: the checked merge.
        task: the function that runs in tasks, without its writer.
        rows: the source's columns, then those that Spark computes. None if the source has no rows.
        has_computed: True if an expression is evaluated for all source rows.
    """

    merge: CheckedMerge
    task: BucketMerge
    rows: DataFrame | None
    has_computed: bool

    def run(self, writer: ChangeWriter, *, is_dry_run: bool) -> Merged:
        """Run the job.

        Raises:
            RecordValueError: If a key to insert would be stored as a different key.
            DuplicateKeyError: If several source rows act on one row or insert one key.
            Other errors: Those of the tasks.
        """
        table, options = self.merge.table, self.merge.options
        task = dataclasses.replace(self.task, writer=writer, is_dry_run=is_dry_run)
        results = self._results(task, writer)
        outcome = MergeOutcome(task.keys, options.count_by, task.samples)
        doubled = DoubledKeys()
        for result in results:
            outcome.add_outcome(result.outcome)
            doubled.add(result.doubled.count, result.doubled.samples)
        outcome.check_keys(table)
        doubled.check(table.full_name, options.duplicates_shown)
        groups = sorted(
            (group for result in results for group in result.groups),
            key=lambda group: (group.partition or "", group.bucket_id),
        )
        trials = [trial for result in results for trial in result.trials]
        manifests = tuple(each for result in results for each in result.manifests)
        return Merged(outcome, manifests, forecast(table, groups, trials))

    def _results(self, task: BucketMerge, writer: ChangeWriter) -> list[TaskResult]:
        context = spark_context(self.merge.sides.source.sparkSession)
        tasks = task.owners.tasks
        found: list[TaskResult] = []
        if self.rows is not None:
            memory_bytes = writer.options.sort_memory_bytes // SPLIT_PARTS
            splitter = SourceSplitter(task.owners, task.keys, tuple(task.source.names), memory_bytes)
            pieces = self.rows.mapInArrow(splitter.__call__, SPLIT_DDL)
            shuffled = raw_bytes(to_tasks(pieces, tasks, sf.col(TASK)).select(CHANGES))
            found = [pickle.loads(each) for each in shuffled.mapPartitions(task.__call__).collect()]
        if task.resolved.acts_on_rest:
            # Spark may leave out the tasks of a shuffle without rows.
            missing = sorted(task.splits.keys() - {result.task for result in found})
            if missing:
                numbers = context.parallelize(missing, len(missing))
                found += [pickle.loads(each) for each in numbers.mapPartitions(task.without_source).collect()]
        return found


def bucket_plan(
    merge: CheckedMerge, *, num_partitions: int | None, insert_files: int | None, samples: int
) -> BucketPlan | str:
    """Return the plan of a merge whose tasks own buckets, or the reason why Spark has to pair the rows.

    Args:
        merge: the checked merge.
        num_partitions: number of tasks. If None, see :func:`~mutation_api.spark.plan.default_num_partitions`.
        insert_files: see :func:`mutation_api.apply_changes`.
        samples: number of rows of each kind to keep as samples.

    Raises:
        RecordLayoutError, ConfigurationError: See :func:`~mutation_api.merge.spark_acting.acted`.
    """
    table = merge.table
    try:
        planner = _Planner(merge)
        source, keys = planner.source(), planner.keys
        check_types(table, merge.resolved, merge.sides.source_schema, merge.options.count_by)
        by_partition, by_bucket = planner.owned_by()
        order, options = planner.order()
        names, resolved = planner.with_partitions(planner.arrow_merge(), by_partition=by_partition)
        view = open_table(merge.transaction, table.full_name)
        splits = view.plan(names)
        planner.check_splits(splits, by_bucket=by_bucket)
    except OnlySparkError as error:
        return str(error)
    spark = merge.sides.source.sparkSession
    tasks = num_partitions or default_num_partitions(spark, table.location)
    if by_bucket and not by_partition:
        tasks = min(tasks, table.num_buckets)
    if not keys:
        tasks = max(1, min(tasks, len(splits)))
    owners = Owners(table, tasks, by_partition, by_bucket)
    of_tasks: dict[int, list[str]] = {}
    for split in splits:
        of_tasks.setdefault(owners.of_group(split.partition_name, split.bucket_id), []).append(
            split.to_json()
        )
    addresser = piece_addresser(
        table,
        change_schema(table),
        view.valid_ids,
        operation_column=CHANGE_COLUMN,
        tasks=1 if by_partition else tasks,
        insert_files=insert_files,
    )
    computed = planner.expressions.computed
    task = BucketMerge(
        owners,
        of_tasks,
        view.valid_ids,
        keys,
        pa.schema([*source, *((name, kind) for name, (_, kind) in computed.items())]),
        len(source),
        resolved,
        options,
        addresser,
        order,
        samples,
    )
    return BucketPlan(merge, task, planner.rows() if keys else None, bool(computed))


@dataclass(frozen=True)
class _Planner:
    """The checks and conversions of :func:`bucket_plan`. Methods raise OnlySparkError with a reason."""

    merge: CheckedMerge
    expressions: ArrowTranslation = field(init=False)

    def __post_init__(self) -> None:
        """Create the translator of expressions."""
        object.__setattr__(self, "expressions", ArrowTranslation(self.merge, self.source()))

    def source(self) -> pa.Schema:
        """Return the Arrow types of the source's columns."""
        try:
            fields = self.merge.sides.source_schema.fields
            return pa.schema([(each.name, arrow_type_of(each.dataType)) for each in fields])
        except TypeError as error:
            raise OnlySparkError(f"a column of the source cannot be passed to Python: {error}") from error

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; none if the source has no rows."""
        if is_surely_empty(self.merge.sides.source):
            return ()
        if self.merge.keys is None:
            raise OnlySparkError("its condition is not just equal key columns")
        return self.merge.keys

    def owned_by(self) -> tuple[bool, bool]:
        """Return True if the partition, and if the bucket, determine the task."""
        merge, table = self.merge, self.merge.table
        if not self.keys:
            if not self._rest_stays():
                raise OnlySparkError("it may move rows")
            return True, True
        if not compares_surely(merge):
            raise OnlySparkError("only Spark can compare the key columns")
        if not merge.options.prune_buckets:
            raise OnlySparkError("prune_buckets=False")
        by_bucket = tells_bucket(table, set(self.keys)) and self._stays(table.bucket_columns)
        partition_keys = table.partition_key_names
        by_partition = (
            bool(partition_keys)
            and {*partition_keys} <= {*self.keys}
            and all(parse_hive_type(each.type).facts.keeps_bucket for each in table.partition_keys)
            and self._stays(partition_keys)
        )
        if not (by_bucket or by_partition):
            raise OnlySparkError("its keys do not determine the bucket or partition of a row")
        return by_partition, by_bucket

    def _stays(self, names: Iterable[str]) -> bool:
        """Return True if each clause that assigns these key columns assigns the source's values."""
        wanted = {name.lower() for name in names}
        for clause, values in zip(self.merge.resolved.clauses, self.merge.resolved.values, strict=True):
            if not clause.action.writes_row or clause.takes_all:
                continue
            assigned = wanted & values.keys()
            if clause.action.adds_row and assigned != wanted:
                return False
            if not all(self._is_source(name, values[name][0]) for name in assigned):
                return False
        return True

    def _rest_stays(self) -> bool:
        """Return True if no clause for rows without a source row may move a row."""
        resolved, placing = self.merge.resolved, self.merge.table.placing_columns
        pairs = zip(resolved.clauses, resolved.values, strict=True)
        return not any(placing & values.keys() for clause, values in pairs if not clause.match.has_source)

    def _is_source(self, name: str, value: Expression) -> bool:
        return parsed_column(self.expressions.sql_of(value, (SOURCE, TARGET))) == (SOURCE, name)

    def order(self) -> tuple[tuple[OrderColumn, ...], MergeOptions]:
        """Return the columns of ``on_duplicate``, and the options without Spark's columns."""
        options = self.merge.options
        if options.first_by is None or not self.keys:
            return (), dataclasses.replace(options, on_duplicate="error")
        return self.expressions.order(options.first_by), dataclasses.replace(
            options, on_duplicate=FirstBy(())
        )

    def check_splits(self, splits: Sequence[SnapshotSplit], *, by_bucket: bool) -> None:
        """Refuse files that may hold rows of any bucket."""
        for split in splits:
            is_plain = any(file.kind is EventFileKind.ORIGINAL for file in split.files)
            if is_plain or split.bucket_id < 0:
                raise OnlySparkError("the table has plain files")
            if by_bucket and self.keys and not split.is_of_bucket(self.merge.table.num_buckets):
                raise OnlySparkError("the table has files of buckets that it no longer has")

    def arrow_merge(self) -> ArrowMerge:
        """Return the merge with Arrow expressions."""
        resolved = self.merge.resolved
        pairs = [
            self.expressions.clause(clause, values)
            for clause, values in zip(resolved.clauses, resolved.values, strict=True)
        ]
        return dataclasses.replace(
            resolved,
            on=pc.scalar(True),
            clauses=tuple(clause for clause, _ in pairs),
            values=tuple(values for _, values in pairs),
        )

    def with_partitions(self, merge: AnyMerge, *, by_partition: bool) -> tuple[list[str], ArrowMerge]:
        """Return the names of the partitions to read, and the merge with these names as conditions.

        With ``by_partition``, the keys determine the partition. If the table has many, those of the source
        are collected, so that the others are not listed.
        """
        checked, table = self.merge, self.merge.table
        view = open_table(checked.transaction, table.full_name)
        names = [*view.locations]
        if not table.partition_keys:
            return names, merge
        spark = checked.sides.source.sparkSession

        def chosen(alternatives: Alternatives[Any]) -> Alternatives[Any]:
            found = partitions_where(spark, table, names, alternatives) if alternatives else []
            return [()] if found is None else [(frozenset(found),)] if alternatives else []

        resolved = checked.resolved
        matched, by_source = chosen(resolved.matched_where), chosen(resolved.by_source_where)
        read = frozenset[str]()
        has_pairs = resolved.acts_on_source and bool(self.keys)
        if has_pairs and by_partition and len(names) > PARTITIONS_LISTED:
            found = self._partitions_of_source()
            matched = [(frozenset(names) & found,)] if not all(matched) else [(matched[0][0] & found,)]
        for acts, where in ((has_pairs, matched), (resolved.acts_on_rest, by_source)):
            if acts and where:
                read |= frozenset(names) if not all(where) else where[0][0]
        wanted = [name for name in names if name in read]
        return wanted, dataclasses.replace(merge, matched_where=matched, by_source_where=by_source)

    def _partitions_of_source(self) -> frozenset[str]:
        """Return the names of the partitions in which rows with the source's keys can lie."""
        keys, table = self.merge.table.partition_key_names, self.merge.table
        rows = collected(self.merge.sides.source.select(*map(quoted, keys)).distinct()).combine_chunks()
        typed = typed_keys(table, keys, plain_batch(rows))
        columns = dict(zip(typed.schema.names, typed.columns, strict=True))
        return frozenset(partition_names(table, columns).cast(pa.string()).to_pylist())

    def rows(self) -> DataFrame:
        """Return the source's columns and the computed ones, under names that Spark can handle."""
        sides, computed = self.merge.sides, self.expressions.computed
        names = sides.source_schema.fieldNames()
        rows, columns = sides.source, [sf.col(quoted(name)) for name in names]
        if computed:
            rows = rows.select(sf.struct(*[sf.col(quoted(name)).alias(name) for name in names]).alias(SOURCE))
            columns = [sf.col(quoted(SOURCE, name)) for name in names]
            columns += [column for column, _ in computed.values()]
        return rows.select(*[column.alias(f"c{number}") for number, column in enumerate(columns)])
