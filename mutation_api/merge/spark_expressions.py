"""Columns and expressions of a merge by Spark, whose types are determined before anything runs.

:class:`Sides` are the source as a merge reads it, and the schemas of source and table. In conditions that
users type, column names get a missing ``source.`` or ``target.`` prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DataType, StructField, StructType

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.hive_type import parse_hive_type, spark_type
from mutation_api.format.plain_array import repeated
from mutation_api.merge.clauses import SOURCE, TARGET, Clause, MergeOptions, text_of
from mutation_api.merge.resolve import Analysis, Conjunct, Equality, ResolvedMerge, resolve
from mutation_api.spark.jvm import analyzed_plan, jvm_of, spark_context, sql_parser
from mutation_api.spark.plan import wall_clock_type
from mutation_api.spark.versions import ANSI, data_type, lenient_part, spark_literal, unlogged_errors
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.row_type import quoted
from mutation_api.write.staged_writer import LookingTransaction

Expression = Column | str
"""A Column or an SQL string. Both name columns as ``source.x`` and ``target.x``."""

SparkMerge = ResolvedMerge[Expression, DataType]


@dataclass(frozen=True)
class ExpressionAnalyser:
    """A resolver of expressions over empty frames with the schemas of the two sides. It runs no job.

    ``table_name`` is for messages.
    """

    spark: SparkSession
    table_name: str
    source_schema: StructType
    target_schema: StructType

    @property
    def source(self) -> Mapping[str, DataType]:
        """The types of the source columns by name."""
        return {field.name: field.dataType for field in self.source_schema.fields}

    @property
    def target(self) -> Mapping[str, DataType]:
        """The types of the table's columns by name."""
        return {field.name: field.dataType for field in self.target_schema.fields}

    def source_column(self, name: str) -> Expression:
        """Return the Column for a source column."""
        return sf.col(quoted(SOURCE, name))

    def literal(self, value: pa.Scalar) -> Expression:
        """Return the Column for a constant."""
        return spark_literal(value)

    def key_condition(self, keys: Sequence[str], *, null_safe: bool) -> Expression:
        """Return the condition that the key columns of both sides are equal."""
        pairs = [(sf.col(quoted(SOURCE, key)), sf.col(quoted(TARGET, key))) for key in keys]
        return reduce(lambda a, b: a & b, (s.eqNullSafe(t) if null_safe else s == t for s, t in pairs))

    @cached_property
    def _empty(self) -> dict[str, DataFrame]:
        schemas = {SOURCE: self.source_schema, TARGET: self.target_schema}
        return {side: self.spark.createDataFrame([], schemas[side]).alias(side) for side in schemas}

    def analyse(self, expression: Expression, sides: Sequence[str], what: str) -> Analysis[DataType]:
        """Resolve ``expression`` over the columns of ``sides``. ``what`` names it in messages.

        Raises:
            RecordLayoutError: If it cannot be resolved or is not deterministic. A repeated task would then
                write different rows.
        """
        resolved = self._resolved(expression, sides, what)
        data_type = resolved.schema.fields[0].dataType
        plan = analyzed_plan(resolved)
        if not plan.deterministic():
            raise RecordLayoutError(
                f"table {self.table_name}: {what} {text_of(expression)!r} is not deterministic, so a "
                "repeated task would write different rows. Make it a column of the source, and materialise "
                "the source"
            )
        self._refuse_lenient(plan, expression, what)
        read = _referenced_columns(plan.references())
        return Analysis(data_type, *(frozenset(n for s, n in read if s == side) for side in (SOURCE, TARGET)))

    def _refuse_lenient(self, plan: Any, expression: Expression, what: str) -> None:
        """Raise ConfigurationError for a Column that is NULL where other Spark versions raise an error."""
        part = lenient_part(self.spark, plan.projectList().apply(0))
        if part is not None:
            raise ConfigurationError(
                f"table {self.table_name}: {what} {text_of(expression)!r}: {part} was made while Spark's "
                "ANSI rules were off, so it returns NULL or a wrong number where ANSI rules raise an error. "
                f"Pass the expression as an SQL string, or set {ANSI} in the session before making the "
                "Column: true for ANSI rules, false if NULL is intended"
            )

    def condition(self, expression: Expression, sides: Sequence[str], what: str) -> Analysis[DataType]:
        """Resolve a boolean expression. See :meth:`analyse`."""
        found = self.analyse(expression, sides, what)
        if not isinstance(found.data_type, BooleanType):
            raise RecordLayoutError(
                f"table {self.table_name}: {what} {text_of(expression)!r} must be boolean, got "
                f"{found.data_type.simpleString()}"
            )
        return found

    def sql_of(self, expression: Expression, sides: Sequence[str], what: str) -> str:
        """Return the expression as SQL, in which Spark has named the side of each column."""
        if isinstance(expression, str):
            return expression
        child = analyzed_plan(self._resolved(expression, sides, what)).projectList().apply(0)
        return str((child.child() if _kind(child) == "Alias" else child).sql())

    def sort_orders(self, columns: Sequence[Expression]) -> list[tuple[str, bool, bool]] | None:
        """Return SQL for the value of each column of an order of source rows, and how it is ordered.

        The flags are True if the order descends, and if NULLs come first. The result is None if Spark would
        not read the SQL as the same value.
        """
        orders = self._orders([column_of(column) for column in columns])
        texts = [str(each.child().sql()) for each in orders]
        try:
            with unlogged_errors():
                again = self._orders([sf.expr(text) for text in texts])
        except (AnalysisException, ParseException):
            return None
        if not all(one.child().semanticEquals(two.child()) for one, two in zip(orders, again, strict=True)):
            return None
        return [
            (text, str(each.direction().sql()) == "DESC", str(each.nullOrdering().sql()) == "NULLS FIRST")
            for text, each in zip(texts, orders, strict=True)
        ]

    def _orders(self, columns: Sequence[Column]) -> list[Any]:
        orders = analyzed_plan(self._structs.sort(*columns)).order()
        return [orders.apply(i) for i in range(orders.size())]

    def conjuncts(self, condition: Expression, sides: Sequence[str], what: str) -> list[Conjunct[Expression]]:
        """Split a condition into the parts that AND joins, as Spark resolves them."""
        plan = analyzed_plan(self._resolved(condition, sides, what))
        child = plan.projectList().apply(0)
        jvm = jvm_of(spark_context(self.spark))
        by_user = jvm.org.apache.spark.sql.catalyst.expressions.Cast.USER_SPECIFIED_CAST()
        parts = _parts(child.child() if _kind(child) == "Alias" else child)
        return [_conjunct(part, by_user) for part in parts]

    def _resolved(self, expression: Expression, sides: Sequence[str], what: str) -> DataFrame:
        try:
            with unlogged_errors():
                # In brackets, no alias can follow the expression, so a typing error is not taken for one.
                column = sf.expr(f"({expression}\n)") if isinstance(expression, str) else expression
                resolved = self._frame(sides).select(column)
                resolved.schema  # noqa: B018  (reading the type resolves the Column)
        except (AnalysisException, ParseException) as error:
            raise RecordLayoutError(
                f"table {self.table_name}: {what} {text_of(expression)!r} cannot be resolved over "
                f"{' and '.join(map(self._described, sides))}: {str(error).strip().splitlines()[0]}"
            ) from error
        self._check_sides(column, sides, f"{what} {text_of(expression)!r}")
        return resolved

    def _check_sides(self, column: Column, sides: Sequence[str], what: str) -> None:
        """Check that columns name their side: when they are evaluated, the sides are structs."""
        try:
            with unlogged_errors():
                self._structs.select(column).schema  # noqa: B018  (reading the type resolves the Column)
        except AnalysisException as error:
            either = " or ".join(f"{side}.x" for side in sides)
            raise RecordLayoutError(
                f"table {self.table_name}: {what}: name each column with its side, {either}: "
                f"{str(error).strip().splitlines()[0]}"
            ) from error

    @cached_property
    def _structs(self) -> DataFrame:
        schemas = {SOURCE: self.source_schema, TARGET: self.target_schema}
        schema = StructType([StructField(side, schemas[side]) for side in schemas])
        return self.spark.createDataFrame([], schema)

    def _frame(self, sides: Sequence[str]) -> DataFrame:
        frames = [self._empty[side] for side in sides]
        return frames[0] if len(frames) == 1 else frames[0].crossJoin(frames[1])

    def _described(self, side: str) -> str:
        return f"{side} ({', '.join(self.source if side == SOURCE else self.target)})"


def column_of(expression: Expression) -> Column:
    """Return the expression as a Column."""
    return sf.expr(expression) if isinstance(expression, str) else expression


_NULL_SAFE = {"EqualTo": False, "EqualNullSafe": True}


def _parts(expression: Any) -> Iterator[Any]:
    if _kind(expression) == "And":
        yield from _parts(expression.left())
        yield from _parts(expression.right())
    else:
        yield expression


def _conjunct(expression: Any, by_user: Any) -> Conjunct[Expression]:
    read = _referenced_columns(expression.references())
    columns = {side: frozenset(n for s, n in read if s == side) for side in (SOURCE, TARGET)}
    equality = None
    if _kind(expression) in _NULL_SAFE:
        compared = dict(
            filter(None, (_compared(e, by_user) for e in (expression.left(), expression.right())))
        )
        if compared.keys() == {SOURCE, TARGET}:
            equality = Equality(compared[SOURCE], compared[TARGET], _NULL_SAFE[_kind(expression)])
    return Conjunct(str(expression.sql()), columns[SOURCE], columns[TARGET], equality)


def _compared(expression: Any, by_user: Any) -> tuple[str, str] | None:
    """Return (side, column) of a column, even if Spark has added a cast around it for a comparison."""
    while _kind(expression) == "Cast" and expression.getTagValue(by_user).isEmpty():
        expression = expression.child()
    if _kind(expression) != "AttributeReference":
        return None
    return str(expression.qualifier().last()), str(expression.name()).lower()


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _referenced_columns(references: Any) -> list[tuple[str, str]]:
    """Return (side, column) for each attribute of Spark's AttributeSet."""
    found = []
    attributes = references.toSeq()
    for i in range(attributes.size()):
        attribute = attributes.apply(i)
        found.append((str(attribute.qualifier().last()), str(attribute.name()).lower()))
    return found


def with_sides(spark: SparkSession, condition: str, sides: Mapping[str, str]) -> str:
    """Return the condition with ``source.`` or ``target.`` before the columns that have neither.

    ``op = 'D'`` becomes ``source.op = 'D'``. Literals, functions and the bodies of lambdas stay unchanged,
    because Spark's own parser finds the columns.

    Args:
        spark: the session.
        condition: the SQL condition.
        sides: the side of each column, by its name in lower case.

    Raises:
        ConfigurationError: If the condition is not an SQL expression.
    """
    positions = {at: sides[name] for name, at in _names(spark, condition) if name in sides}
    for at, side in sorted(positions.items(), reverse=True):
        if not condition[at:].lower().startswith((f"{SOURCE}.", f"{TARGET}.")):
            condition = f"{condition[:at]}{side}.{condition[at:]}"
    return condition


def sides_of(columns: Mapping[str, frozenset[str]], sides: Sequence[str]) -> dict[str, str]:
    """Return the side of each column that only one of ``sides`` has. ``columns`` are those of each side."""
    return {
        name: side
        for side in sides
        for name in columns[side].difference(*(columns[other] for other in sides if other != side))
    }


def names_side(spark: SparkSession, condition: str, side: str) -> bool:
    """Return True if the condition names a column with ``side``.

    Raises:
        ConfigurationError: See :func:`with_sides`.
    """
    return any(name == side for name, _ in _names(spark, condition))


def _names(spark: SparkSession, condition: str) -> list[tuple[str, int]]:
    """Return the first part, in lower case, and the position of each column name in the condition."""
    try:
        return list(_unresolved_names(sql_parser(spark).parseExpression(condition)))
    except ParseException as error:
        reason = " ".join(str(error).split("\n\n")[0].split())
        raise ConfigurationError(f"{condition!r} is not an SQL condition: {reason}") from error


def _unresolved_names(expression: Any) -> Iterator[tuple[str, int]]:
    if expression.getClass().getSimpleName() == "UnresolvedAttribute":
        yield str(expression.nameParts().head()).lower(), int(expression.origin().startIndex().get())
    children = expression.children()
    for i in range(children.size()):
        yield from _unresolved_names(children.apply(i))


@dataclass(frozen=True)
class Sides:
    """The source with lower-case names and local timestamps, and the schemas of both sides."""

    source: DataFrame
    source_schema: StructType
    target_schema: StructType

    @classmethod
    def of(cls, table: AcidTable, source: DataFrame) -> Sides:
        """Describe both sides.

        Raises:
            RecordLayoutError: If two columns of the source have the same name, ignoring case.
        """
        names = [f.name.lower() for f in source.schema.fields]
        doubled = repeated(names)
        if doubled:
            raise RecordLayoutError(
                f"table {table.full_name}: the source has duplicate columns (ignoring case): "
                f"{', '.join(doubled)}"
            )
        columns = [
            sf.col(quoted(f.name)).cast(wall_clock_type(f.dataType)).alias(f.name.lower())
            if wall_clock_type(f.dataType) != f.dataType
            else sf.col(quoted(f.name)).alias(f.name.lower())
            for f in source.schema.fields
        ]
        plain = source.select(*columns)
        target = [StructField(c.name, column_type(c)) for c in table.all_columns]
        return cls(plain, plain.schema, StructType(target))


@dataclass(frozen=True)
class CheckedMerge:
    """A merge that was checked against the schemas of both sides. No job was run.

    ``keys`` is None if the merge has another condition.
    """

    transaction: LookingTransaction
    table: AcidTable
    sides: Sides
    analyser: ExpressionAnalyser
    resolved: SparkMerge
    keys: tuple[str, ...] | None
    options: MergeOptions

    @classmethod
    def of(
        cls,
        transaction: LookingTransaction,
        table_name: str,
        source: DataFrame,
        keys: tuple[str, ...] | None,
        on: Expression | None,
        clauses: tuple[Clause[Expression], ...],
        options: MergeOptions,
    ) -> CheckedMerge:
        """Check a merge.

        Raises:
            RecordLayoutError, TableNotMutableError: See :func:`mutation_api.merge.resolve.resolve`.
        """
        transaction.check()
        table = transaction.table(table_name)
        sides = Sides.of(table, source)
        analyser = ExpressionAnalyser(
            source.sparkSession, table.full_name, sides.source_schema, sides.target_schema
        )
        resolved = resolve(table, analyser, keys, on, clauses, options)
        return cls(transaction, table, sides, analyser, resolved, keys, options)


def column_type(column: AcidColumn) -> DataType:
    """Return the Spark type of a table column."""
    return _type_of(column.type)


@lru_cache(maxsize=1024)
def _type_of(hive_type: str) -> DataType:
    # Cached: Spark's parser takes 5 ms, and a table may have a thousand columns.
    return data_type(spark_type(parse_hive_type(hive_type)))
