"""MergePlan: from two sides and clauses to one change a row; nothing runs but when it is asked.

Everything that the schemas tell is checked when the plan is made: names, types, conditions. Values and
duplicates are checked by the job that fills the cache, before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType, StructField, StructType

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.changes.assignment import comparable, stored
from mutation_api.changes.clauses import SOURCE, TARGET, Action, Clause, Expression, Match
from mutation_api.changes.duplicates import ROWS_SHOWN, FirstBy, duplicate_key_error, keep_first, order_of
from mutation_api.changes.expressions import ExpressionAnalyser, column_of, quoted
from mutation_api.changes.matching import match_rows
from mutation_api.changes.report import MergeReport
from mutation_api.errors import RecordLayoutError, TableNotMutableError
from mutation_api.spark.job import OpenTransaction
from mutation_api.spark.plan import wall_clock_type
from mutation_api.spark.read import snapshot
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.hive_types import parse_hive_type, spark_type
from mutation_api.table.partition import parse_partition_name, partition_names, partition_value

__all__ = ["CHANGE_COLUMN", "MergePlan", "PlanOptions"]

CHANGE_COLUMN = "__change"
"""Name of the operation column of the change set; a table may well have a column ``operation`` itself."""

_CLAUSE, _NEW, _KEY, _KIND = "__clause", "__new", "__key", "__kind"
_ROW_ID, _PARTITION, _NEW_PARTITION = "__row_id", "__partition", "__new_partition"
_INSERTED, _UPDATED, _DELETED, _MOVED, _UNCHANGED = "inserted", "updated", "deleted", "moved", "unchanged"
"""What becomes of a row: fields of MergeCounts."""


class PlanOptions(Protocol):
    """What is needed of :class:`mutation_api.changes.merge.MergeOptions`."""

    @property
    def null_safe(self) -> bool:
        """Whether NULL keys are equal."""
        ...

    @property
    def on_duplicate(self) -> FirstBy | None:
        """The order that decides among duplicates; None: they are an error."""
        ...

    @property
    def missing_is_error(self) -> bool:
        """Whether the source must have all columns."""
        ...

    @property
    def write_unchanged(self) -> bool:
        """Whether an update that changes nothing is written."""
        ...

    @property
    def duplicates_shown(self) -> int:
        """Keys that the error names."""
        ...


@dataclass(frozen=True)
class MergePlan:
    """Rows on which a clause acts. ``acting`` has the source's row too; the steps share ``cached``."""

    transaction: OpenTransaction
    table: AcidTable
    options: PlanOptions
    keys: tuple[str, ...] | None
    is_plain_delete: bool
    acting: DataFrame
    cached: DataFrame

    @classmethod
    def of(
        cls,
        transaction: OpenTransaction,
        full_name: str,
        source: DataFrame,
        keys: tuple[str, ...] | None,
        on: Expression | None,
        clauses: tuple[Clause, ...],
        options: PlanOptions,
    ) -> MergePlan:
        """Check everything that can be checked without running a job, and plan the rest."""
        transaction.check()
        table = transaction.table(full_name)
        sides = _Sides.of(table, source)
        resolved = _Resolver(table, sides, keys, on, clauses, options).resolve()
        matched = [c for c in clauses if c.match is Match.MATCHED]
        is_plain_delete = [(c.action, c.condition) for c in matched] == [(Action.DELETE, None)]
        acting = _acting_rows(transaction, table, sides, resolved, options)
        if options.on_duplicate:
            in_group = sf.col(_ROW_ID).isNotNull() | sf.col(_KEY).isNotNull()
            acting = keep_first(acting, [_ROW_ID, _KEY], order_of(options.on_duplicate), in_group)
        elif is_plain_delete and table.version.has_row_ids:
            is_match = sf.col(_ROW_ID).isNotNull() & sf.col(SOURCE).isNotNull()
            acting = keep_first(acting, [_ROW_ID], [sf.xxhash64(sf.to_json(SOURCE))], is_match)
        return cls(transaction, table, options, keys, is_plain_delete, acting, acting.drop(SOURCE).persist())

    def check_duplicates(self) -> None:
        """Raise DuplicateKeyError if several source rows act on one row, or insert one key."""
        if self.options.on_duplicate:
            return
        in_group = sf.col(_ROW_ID).isNotNull() | sf.col(_KEY).isNotNull()
        group = [_ROW_ID, _KEY]
        doubled = self.cached.where(in_group).groupBy(*group).count().where("count > 1")
        key_count = doubled.count()
        if not key_count:
            return
        shown = doubled.limit(self.options.duplicates_shown).drop("count").collect()
        names = doubled.drop("count").schema
        found = self.cached.sparkSession.createDataFrame(shown, names).alias("d")
        same = [sf.col(f"a.{name}").eqNullSafe(sf.col(f"d.{name}")) for name in group]
        of_keys = self.acting.alias("a").join(sf.broadcast(found), same)
        name = sf.col(f"a.{SOURCE}")
        samples = of_keys.groupBy(*[f"a.{n}" for n in group]).agg(
            sf.first(_key_text(self.keys, name, sf.col(f"a.{_ROW_ID}"))).alias("key"),
            sf.count(sf.lit(1)).alias("row_count"),
            sf.slice(sf.sort_array(sf.collect_list(_text(name))), 1, ROWS_SHOWN).alias("rows"),
        )
        raise duplicate_key_error(self.table.full_name, key_count, samples.orderBy("key").collect())

    def report(self, *, is_dry_run: bool) -> MergeReport:
        """Count; the first step that evaluates the rows fills the cache."""
        groups = self.cached.groupBy(_PARTITION, _NEW_PARTITION, _KIND).count().collect()
        known = {p.name for p in self.transaction.partitions(self.table.full_name)}
        new = {row[_NEW_PARTITION] for row in groups} - known - {None, ""}
        return MergeReport.of(
            self.table.full_name,
            [(row[_PARTITION], row[_KIND], row["count"]) for row in groups],
            is_dry_run=is_dry_run,
            new_partitions=new,
        )

    def changes(self) -> DataFrame:
        """The change set for :func:`mutation_api.spark.apply_changes`."""
        kind = sf.col(_KIND)
        operations = (
            sf.when(kind == _MOVED, sf.array(sf.lit("delete"), sf.lit("insert")))
            .when(kind == _INSERTED, sf.array(sf.lit("insert")))
            .when(kind == _DELETED, sf.array(sf.lit("delete")))
            .otherwise(sf.array(sf.lit("update")))
        )
        rows = self.cached if self.options.write_unchanged else self.cached.where(kind != _UNCHANGED)
        names = (*self.table.column_names, *self.table.partition_key_names)
        columns = [sf.col(quoted(_NEW, name)).alias(name) for name in names]
        if self.table.version.has_row_ids:
            columns.insert(0, sf.col(_ROW_ID).alias(ROW_ID_COLUMN))
        return rows.select(sf.explode(operations).alias(CHANGE_COLUMN), *columns)

    def close(self) -> None:
        """Drop the cache."""
        self.cached.unpersist()


@dataclass(frozen=True)
class _Sides:
    """The source with lower-case names and wall clocks, and the schemas of both sides."""

    source: DataFrame
    source_schema: StructType
    target_schema: StructType

    @classmethod
    def of(cls, table: AcidTable, source: DataFrame) -> _Sides:
        names = [f.name.lower() for f in source.schema.fields]
        doubled = sorted({n for n in names if names.count(n) > 1})
        if doubled:
            raise RecordLayoutError(
                f"table {table.full_name}: the source has columns twice (names have no case): "
                f"{', '.join(doubled)}"
            )
        columns = [
            sf.col(quoted(f.name)).cast(wall_clock_type(f.dataType)).alias(f.name.lower())
            if wall_clock_type(f.dataType) != f.dataType
            else sf.col(quoted(f.name)).alias(f.name.lower())
            for f in source.schema.fields
        ]
        plain = source.select(*columns)
        target = [StructField(c.name, _spark_type(c)) for c in _columns(table)]
        return cls(plain, plain.schema, StructType(target))

    def type_of(self, name: str) -> DataType:
        """Type of a column of the source."""
        return self.source_schema[name].dataType


@dataclass(frozen=True)
class _Resolved:
    """Clauses whose names, types and conditions are right.

    ``values`` has, by clause and column, the value and its type.
    """

    keys: tuple[str, ...] | None
    on: Column
    clauses: tuple[Clause, ...]
    values: tuple[Mapping[str, tuple[Expression, DataType]], ...]
    target_columns: tuple[str, ...]

    @property
    def matches(self) -> set[Match]:
        """Kinds of rows that a clause is for."""
        return {c.match for c in self.clauses}


@dataclass(frozen=True)
class _Resolver:
    """Checks what a user said against both schemas; every message names the table."""

    table: AcidTable
    sides: _Sides
    keys: tuple[str, ...] | None
    on: Expression | None
    clauses: tuple[Clause, ...]
    options: PlanOptions

    def resolve(self) -> _Resolved:
        self._check_clauses()
        self._check_keys()
        on = self._key_condition() if self.on is None else self.on
        analyser = ExpressionAnalyser(
            self.sides.source.sparkSession,
            self.table.full_name,
            self.sides.source_schema,
            self.sides.target_schema,
        )
        read = [analyser.condition(on, (SOURCE, TARGET), "the condition of on")]
        for clause in self.clauses:
            if clause.condition is not None:
                read.append(
                    analyser.condition(clause.condition, clause.match.sides, f"the condition of {clause}")
                )
        values = []
        for clause in self.clauses:
            found = {}
            for name, value in self._assignments(clause).items():
                analysis = analyser.analyse(value, clause.match.sides, f"the value of {name} in {clause}")
                found[name] = (value, analysis.data_type)
                if not clause.takes_all:
                    read.append(analysis)
            values.append(found)
        if self.options.on_duplicate:
            sides = (SOURCE,)
            read += [analyser.analyse(c, sides, "first_by") for c in self.options.on_duplicate.columns]
        self._check_extra({name for each in read for name in each.source_columns})
        needed = {name for each in read for name in each.target_columns} | self._carried(values)
        ordered = tuple(c.name for c in _columns(self.table) if c.name in needed)
        return _Resolved(self.keys, column_of(on), self.clauses, tuple(values), ordered)

    def _check_clauses(self) -> None:
        if not self.clauses:
            raise RecordLayoutError(
                f"table {self.table.full_name}: the merge has no clause; add whenMatched() …"
            )
        wrong = [c for c in self.clauses if c.action is not Action.INSERT]
        if wrong and not self.table.version.has_row_ids:
            raise TableNotMutableError(
                f"table {self.table.full_name} is insert-only: {', '.join(map(str, wrong))} cannot be done; "
                "whenNotMatched().insert() and insertAll() can"
            )

    def _check_keys(self) -> None:
        for side, names in ((TARGET, self.sides.target_schema), (SOURCE, self.sides.source_schema)):
            unknown = [key for key in self.keys or () if key not in names.fieldNames()]
            if unknown:
                what = "the table" if side == TARGET else "the source"
                raise RecordLayoutError(
                    f"table {self.table.full_name}: {what} has no key column {', '.join(unknown)}; its "
                    f"columns are {', '.join(names.fieldNames())}"
                )

    def _key_condition(self) -> Column:
        pairs = [(sf.col(quoted(SOURCE, k)), sf.col(quoted(TARGET, k))) for k in self.keys or ()]
        equal = [s.eqNullSafe(t) if self.options.null_safe else s == t for s, t in pairs]
        return reduce(lambda a, b: a & b, equal)

    def _assignments(self, clause: Clause) -> Mapping[str, Expression]:
        names = self.sides.target_schema.fieldNames()
        if clause.action is Action.DELETE:
            return {}
        if clause.assignments is None:
            present = self.sides.source_schema.fieldNames()
            missing = [name for name in names if name not in present]
            if missing and self.options.missing_is_error:
                raise RecordLayoutError(
                    f"table {self.table.full_name}: the source lacks the columns {', '.join(missing)}, which "
                    f"{clause}All needs"
                )
            return {name: sf.col(quoted(SOURCE, name)) for name in names if name in present}
        unknown = [name for name in clause.assignments if name not in names]
        if unknown:
            raise RecordLayoutError(
                f"table {self.table.full_name}: {clause} assigns columns that the table does not have: "
                f"{', '.join(unknown)}; its columns are {', '.join(names)}"
            )
        return clause.assignments

    def _check_extra(self, used: set[str]) -> None:
        """Extra columns are no mistake where conditions or assignments read them."""
        if not any(c.takes_all for c in self.clauses):
            return
        known = {*self.sides.target_schema.fieldNames(), *used}
        extra = [name for name in self.sides.source_schema.fieldNames() if name not in known]
        if extra:
            raise RecordLayoutError(
                f"table {self.table.full_name}: the source has columns that the table does not have and no "
                f"condition reads: {', '.join(extra)}; the table's columns are "
                f"{', '.join(self.sides.target_schema.fieldNames())}"
            )

    def _carried(self, values: Sequence[Mapping[str, object]]) -> set[str]:
        """Columns of old rows that updates keep, are compared with, or may be moved by."""
        carried: set[str] = set()
        placed_by = {*self.table.partition_key_names, *self.table.bucket_columns}
        for clause, assigned in zip(self.clauses, values, strict=True):
            if clause.action is Action.UPDATE:
                names = set(self.sides.target_schema.fieldNames())
                carried |= names - set(assigned) if self.options.write_unchanged else names
                carried |= placed_by
        return carried


def _acting_rows(
    transaction: OpenTransaction, table: AcidTable, sides: _Sides, resolved: _Resolved, options: PlanOptions
) -> DataFrame:
    """Columns ``source``, _ROW_ID, _KEY (JSON text of an inserted key), _KIND, the partitions and _NEW."""
    partitions = _touched_partitions(transaction, table, sides, resolved)
    target = snapshot(
        sides.source.sparkSession,
        transaction,
        table.full_name,
        columns=resolved.target_columns or ([] if table.version.has_row_ids else table.column_names[:1]),
        partitions=partitions,
    )
    source_rows = sides.source.select(_row_of(sides.source_schema.fieldNames()).alias(SOURCE))
    target_rows = target.select(_row_of(target.columns).alias(TARGET))
    rows = match_rows(source_rows, target_rows, resolved.on, resolved.matches)
    rows = rows.withColumn(_CLAUSE, _first_holding(resolved.clauses)).where(sf.col(_CLAUSE).isNotNull())
    rows = rows.withColumn(_NEW, _new_row(table, resolved, sides))
    row_id = sf.col(quoted(TARGET, ROW_ID_COLUMN)) if table.version.has_row_ids else sf.lit(None)
    kind = _kind(table, resolved, sides)
    known = sf.col(quoted(TARGET, ROW_ID_COLUMN, "partition")) if table.partition_keys else sf.lit("")
    placed = rows.select(
        SOURCE,
        row_id.alias(_ROW_ID),
        _inserted_key(resolved, options).alias(_KEY),
        kind.alias(_KIND),
        known.alias("__known"),
        _NEW,
    )
    is_placed = sf.col(_KIND).isin(_INSERTED, _MOVED)
    new_partition = _partition_of(table, is_placed)
    placed = placed.withColumn(_NEW_PARTITION, new_partition)
    partition = sf.coalesce("__known", _NEW_PARTITION) if table.partition_keys else sf.lit("")
    return placed.withColumn(_PARTITION, partition).drop("__known")


def _touched_partitions(
    transaction: OpenTransaction, table: AcidTable, sides: _Sides, resolved: _Resolved
) -> list[str] | None:
    """Names of the partitions that hold a partition value of the source's; None for all.

    Compared by the same SQL as the keys themselves.
    """
    if not table.partition_keys:
        return None
    keys = [k for k in table.partition_keys if k.name in (resolved.keys or ())]
    if not keys or Match.NOT_MATCHED_BY_SOURCE in resolved.matches:
        return None
    names = [p.name for p in transaction.partitions(table.full_name)]
    if not names:
        return None
    positions = [table.partition_key_names.index(k.name) for k in keys]
    rows = [
        (
            name,
            *(
                partition_value(parse_partition_name(name)[at], parse_hive_type(k.type))
                for at, k in zip(positions, keys, strict=True)
            ),
        )
        for name in names
    ]
    schema = StructType([StructField("name", DataType.fromDDL("string"))])
    for key in keys:
        schema = schema.add(key.name, _spark_type(key))
    known = sides.source.sparkSession.createDataFrame(rows, schema).alias(TARGET)
    source = sides.source.select(*[k.name for k in keys]).distinct().alias(SOURCE)
    same = [sf.col(quoted(SOURCE, k.name)).eqNullSafe(sf.col(quoted(TARGET, k.name))) for k in keys]
    return [row[0] for row in known.join(source, same, "left_semi").select("name").collect()]


def _first_holding(clauses: Iterable[Clause]) -> Column:
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
    # coalesce stops at the first: a condition is not evaluated for rows that an earlier clause took.
    return sf.coalesce(*chain)


def _new_row(table: AcidTable, resolved: _Resolved, sides: _Sides) -> Column:
    """Struct of the row as it will be stored; columns of deletes are null."""
    key = _key_text(resolved.keys, sf.col(SOURCE), sf.col(TARGET))
    columns = [_new_value(table, column, resolved, key) for column in _columns(table)]
    return sf.struct(*[v.alias(c.name) for v, c in zip(columns, _columns(table), strict=True)])


def _new_value(table: AcidTable, column: AcidColumn, resolved: _Resolved, key: Column) -> Column:
    branches: list[Column] = []
    shared: list[int] = []  # clauses that take the source's column as it is: one conversion for all
    for number, (clause, values) in enumerate(zip(resolved.clauses, resolved.values, strict=True)):
        here = sf.col(_CLAUSE) == number
        if clause.action is Action.UPDATE and column.name not in values:
            branches.append(sf.when(here, sf.col(quoted(TARGET, column.name))))
        elif column.name in values and clause.takes_all:
            shared.append(number)
        elif column.name in values:
            value, found = values[column.name]
            branches.append(stored(table.full_name, column, column_of(value), found, where=here, key=key))
    if shared:
        value, found = resolved.values[shared[0]][column.name]
        where = sf.col(_CLAUSE).isin(*shared)
        branches.append(stored(table.full_name, column, column_of(value), found, where=where, key=key))
    nothing = sf.lit(None).cast(_spark_type(column))
    return sf.coalesce(*[b.cast(_spark_type(column)) for b in branches], nothing) if branches else nothing


def _kind(table: AcidTable, resolved: _Resolved, sides: _Sides) -> Column:
    """What becomes of the row: a field of MergeCounts."""
    numbers: dict[Action, list[int]] = {action: [] for action in Action}
    for number, clause in enumerate(resolved.clauses):
        numbers[clause.action].append(number)
    clause_number = sf.col(_CLAUSE)
    kind = sf.when(clause_number.isin(*numbers[Action.INSERT]), _INSERTED)
    kind = kind.when(clause_number.isin(*numbers[Action.DELETE]), _DELETED)
    if not numbers[Action.UPDATE]:
        return kind
    placed_by = {*table.partition_key_names, *table.bucket_columns}
    assigned = {name for values in resolved.values for name in values}
    read = set(resolved.target_columns)
    differs = {c.name: _differs(c) for c in _columns(table) if c.name in assigned and c.name in read}
    moved = [d for name, d in differs.items() if name in placed_by]
    changed = list(differs.values())
    kind = kind.when(_any(moved), _MOVED)
    is_compared = assigned <= read
    return (
        kind.when(~_any(changed), _UNCHANGED).otherwise(_UPDATED) if is_compared else kind.otherwise(_UPDATED)
    )


def _differs(column: AcidColumn) -> Column:
    kind = _spark_type(column)
    old, new = (comparable(sf.col(quoted(side, column.name)), kind) for side in (TARGET, _NEW))
    return ~new.eqNullSafe(old)


def _any(conditions: Sequence[Column]) -> Column:
    return reduce(lambda a, b: a | b, conditions, sf.lit(False))


def _inserted_key(resolved: _Resolved, options: PlanOptions) -> Column:
    """JSON text of the key that is inserted, as it will be stored; null if NULL makes it equal to none."""
    nothing = sf.lit(None).cast("string")
    if resolved.keys is None:
        return nothing
    parts = [sf.col(quoted(_NEW, key)) for key in resolved.keys]
    inserts = [i for i, c in enumerate(resolved.clauses) if c.action is Action.INSERT]
    counts = sf.col(_CLAUSE).isin(*inserts)
    if not options.null_safe:
        counts = reduce(lambda a, p: a & p.isNotNull(), parts, counts)
    return sf.when(counts, _text(sf.struct(*[p.alias(k) for p, k in zip(parts, resolved.keys, strict=True)])))


def _partition_of(table: AcidTable, where: Column) -> Column:
    """Name of the partition that a new row goes to; null for other rows."""
    if not table.partition_keys:
        return sf.when(where, sf.lit(""))
    keys = sf.struct(*[sf.col(quoted(_NEW, k)).alias(k) for k in table.partition_key_names])

    def names(rows: pa.Array) -> pa.Array:
        wanted = rows.is_valid()
        present = rows.filter(wanted)
        columns = {f.name: present.field(i) for i, f in enumerate(rows.type)}
        found = partition_names(table, columns).cast(pa.string())
        return pc.replace_with_mask(pa.nulls(len(rows), pa.string()), wanted, found)

    column: Column = arrow_udf(names, "string")(sf.when(where, keys))  # type: ignore[call-overload]
    return column


def _key_text(keys: tuple[str, ...] | None, source: Column, target: Column) -> Column:
    """JSON text that names a row in messages: its key columns, or the whole row of the side that it has."""
    if keys is None:
        return sf.coalesce(_text(source), _text(target))
    of_source = sf.struct(*[source[k].alias(k) for k in keys])
    return sf.when(source.isNotNull(), _text(of_source)).otherwise(_text(target))


def _text(value: Column) -> Column:
    return sf.to_json(value, {"ignoreNullFields": "false"})


def _row_of(names: Iterable[str]) -> Column:
    return sf.struct(*[sf.col(quoted(name)).alias(name) for name in names])


def _columns(table: AcidTable) -> tuple[AcidColumn, ...]:
    return (*table.columns, *table.partition_keys)


def _spark_type(column: AcidColumn) -> DataType:
    return DataType.fromDDL(spark_type(parse_hive_type(column.type)))
