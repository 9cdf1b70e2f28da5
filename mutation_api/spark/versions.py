"""Differences between Spark 3.5, 4.0 and 4.1 to 4.3, behind one interface.

No other module checks the version or refers to features that a version lacks. These versions lack the
following, and this is used instead:

===========================  =============  ==================================================================
lacking                      comes with     instead
===========================  =============  ==================================================================
``DataFrame.toArrow``        Spark 4.0      the batches that ``toPandas`` collects
Arrow in ``createDataFrame`` Spark 4.0      the stream from which Spark 4 creates it
``DataType.fromDDL``         Spark 4.0      the parser that it calls
``Column.try_cast``          Spark 4.0      SQL's TRY_CAST, on every version
ANSI rules by default        Spark 4.0      set while a merge is planned and run: :func:`ansi_rules`
SQLSTATE in messages         Spark 4.0      looked up by the condition's name: :func:`is_data_exception`
Arrow UDFs                   Spark 4.1      one pass of mapInArrow: :func:`computed`
Java 21                      Spark 4.0      refused: :func:`java_versions`
Python without distutils     Spark 4.0      refused: :func:`check_installed`
a log of each error          Spark 4.0      nothing to do: :func:`unlogged_errors`
Python data sources          Spark 4.0      empty base classes: :func:`class_of`
limits of a stream's batch   Spark 4.2      refused: :func:`has_read_limits`
===========================  =============  ==================================================================

The following is not used at all, since every version has something equally good: shuffles by a partition's
number (Spark 4.1; see :mod:`~mutation_api.spark.tasks`), ``min_by`` of several rows (4.2), variants
(4.0), and the module ``pyspark.core`` (4.0).

Session settings that are in force within a block are restored afterwards. Values are converted to Columns.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyspark
import pyspark.sql.functions as sf
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.pandas import functions as udfs
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.hive_type import primitive_of_arrow, spark_type
from mutation_api.spark.jvm import frame_of_batches, sql_state
from mutation_api.table.row_type import quoted

_guard = threading.Lock()


@dataclass
class _Changed:
    """A setting changed by running blocks: their number, and the user's value, None if not set."""

    blocks: int
    before: str | None


_changed: dict[tuple[SparkSession, str], _Changed] = {}


@contextlib.contextmanager
def in_force(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to everything that begins in the session during the block.

    Blocks may overlap. The first one sets the values, and the last one restores the previous values.
    """
    with _guard:
        for name, value in settings.items():
            _begin(spark, name, value)
    try:
        yield
    finally:
        with _guard:
            for name in settings:
                _end(spark, name)


def users_own(spark: SparkSession, name: str) -> str | None:
    """Return the user's value of a setting, ignoring changes by blocks. None if not set."""
    with _guard:
        known = _changed.get((spark, name))
        return spark.conf.get(name, None) if known is None else known.before


def _begin(spark: SparkSession, name: str, value: str) -> None:
    known = _changed.get((spark, name))
    if known is not None:
        known.blocks += 1
        return
    _changed[spark, name] = _Changed(1, spark.conf.get(name, None))
    spark.conf.set(name, value)


def _end(spark: SparkSession, name: str) -> None:
    known = _changed[spark, name]
    known.blocks -= 1
    if known.blocks:
        return
    del _changed[spark, name]
    if known.before is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, known.before)


SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
"""Spark's version, as (major, minor)."""

_OLDEST, _ARROW_API, _STATES, _ERROR_LOG, _ARROW_UDFS = (3, 5), (4, 0), (4, 0), (4, 0), (4, 1)
_READ_LIMITS = (4, 2)

ANSI = "spark.sql.ansi.enabled"
_ANSI_VARIABLE = "SPARK_ANSI_SQL_MODE"
_DATA_EXCEPTION = re.compile(r"\bSQLSTATE: 22\w{3}\b")
_ERROR_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+)[.\]]")


def check_installed() -> None:
    """Raise ConfigurationError when this module is imported and pyspark cannot work.

    Spark 3.5 imports ``distutils`` when it uses Arrow. Python includes distutils up to version 3.11; later,
    the package setuptools provides it.

    Raises:
        ConfigurationError: If this pyspark is too old, or if a module that it requires is missing.
    """
    if SPARK < _OLDEST:
        raise ConfigurationError(
            f"pyspark {pyspark.__version__} is too old: change sets require Spark {_OLDEST[0]}.{_OLDEST[1]} "
            "or newer"
        )
    try:
        if SPARK < _ARROW_API:
            importlib.import_module("distutils.version")
    except ImportError as error:
        raise ConfigurationError(
            f"pyspark {pyspark.__version__} requires the module distutils, which Python "
            f"{sys.version_info[0]}.{sys.version_info[1]} lacks. Run pip install setuptools on all machines "
            "that run tasks, or use Python 3.11, or Spark 4"
        ) from error


check_installed()


def class_of(module: str, name: str) -> type:
    """Return a class of pyspark, or an empty class of this name if this Spark lacks it."""
    try:
        found: type = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return type(name, (), {})
    return found


def has_read_limits() -> bool:
    """Return True if Spark passes the start and the limit of a batch to a source in Python."""
    return SPARK >= _READ_LIMITS


def is_data_exception(text: str) -> bool:
    """Return True if a failure's message reports a data exception.

    Examples are an overflow, an invalid cast or a division by zero. These are the states of class 22 in the
    SQL standard.
    """
    if SPARK >= _STATES:
        return _DATA_EXCEPTION.search(text) is not None
    return any((sql_state(name) or "").startswith("22") for name in _CONDITION.findall(text))


def java_versions() -> range:
    """Return the Java versions on which this Spark (by its documentation) and the embedded metastore run."""
    return range(17, 21) if SPARK < _ARROW_API else range(17, 26)


def data_type(ddl: str) -> DataType:
    """Return the Spark type of a DDL string. An active session parses it."""
    if SPARK < _ARROW_API:
        return spark_types._parse_datatype_string(ddl)
    return DataType.fromDDL(ddl)


def try_cast(name: str, kind: DataType | str) -> Column:
    """Return the column as another type, by ANSI rules on every version. It is null where the cast fails.

    ``kind`` must not have field names that need quotes.
    """
    ddl = kind if isinstance(kind, str) else kind.simpleString()
    return sf.expr(f"try_cast({quoted(name)} AS {ddl})")


def collected(frame: DataFrame) -> pa.Table:
    """Return all rows, in order, as an Arrow table."""
    if SPARK >= _ARROW_API:
        return frame.toArrow()
    schema = to_arrow_schema(frame.schema)
    collect: Any = frame._collect_as_arrow
    batches: Sequence[pa.RecordBatch] = collect()
    return pa.Table.from_batches(batches, schema if not batches else None).cast(schema)


def frame_of_arrow(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return a DataFrame of an Arrow table's rows. The columns are those of the schema."""
    if SPARK >= _ARROW_API:
        return spark.createDataFrame(rows, schema)
    return frame_of_batches(spark, rows.cast(to_arrow_schema(schema)).to_batches(), schema)


@dataclass(frozen=True)
class ArrowColumn:
    """A column that Python computes: ``function`` takes an Arrow array for each of ``arguments``.

    It returns an array with as many values, of the Spark type ``ddl``. It is sent to the workers and may get
    the rows in batches of any size.
    """

    function: Callable[..., pa.Array]
    ddl: str
    arguments: tuple[Column, ...]


def computed(frame: DataFrame, columns: Mapping[str, Column | ArrowColumn]) -> DataFrame:
    """Return ``frame.select`` with columns by name, some of which Python computes.

    Raises:
        RecordLayoutError: If this Spark version would have to pass a column through Python but cannot.
    """
    if SPARK >= _ARROW_UDFS or not any(isinstance(each, ArrowColumn) for each in columns.values()):
        return frame.select(*[_as_column(each).alias(name) for name, each in columns.items()])
    return _computed_in_one_pass(frame, columns)


def _as_column(given: Column | ArrowColumn) -> Column:
    if isinstance(given, Column):
        return given
    function = given.function

    def compute(*arrays: pa.Array) -> pa.Array:
        return function(*arrays)

    udf = udfs.arrow_udf(compute, given.ddl)  # type: ignore[call-overload]
    column: Column = udf(*given.arguments)
    return column


def _computed_in_one_pass(frame: DataFrame, columns: Mapping[str, Column | ArrowColumn]) -> DataFrame:
    """Pass all columns through Python once. Columns that are not computed are returned unchanged.

    pyspark treats a dot in a column's name as access to a struct's field, so columns get plain names.
    """
    inputs: list[Column] = []
    steps: list[_Step] = []
    for each in columns.values():
        arguments = (each,) if isinstance(each, Column) else each.arguments
        if isinstance(each, Column):
            steps.append(_Step(len(inputs), 1))
        else:
            wanted = to_arrow_type(data_type(each.ddl))
            steps.append(_Step(len(inputs), len(arguments), each.function, wanted))
        inputs += arguments
    given = frame.select(*[column.alias(f"c{number}") for number, column in enumerate(inputs)])
    fields: list[StructField] = []
    for name, step, each in zip(columns, steps, columns.values(), strict=True):
        found = given.schema.fields[step.first].dataType if isinstance(each, Column) else data_type(each.ddl)
        fields.append(StructField(f"r{len(fields)}", _nullable(found)))
        _check_passes(name, found)
    passing = _Pass(tuple(steps))
    return given.mapInArrow(passing.__call__, StructType(fields)).toDF(*columns)


@dataclass(frozen=True)
class _Step:
    """The source of a column: ``function`` of ``count`` inputs from ``first`` on, or an unchanged input."""

    first: int
    count: int
    function: Callable[..., pa.Array] | None = None
    type: pa.DataType = None


@dataclass(frozen=True)
class _Pass:
    """The function that runs in tasks and turns batches of inputs into batches of columns."""

    steps: tuple[_Step, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [f"r{number}" for number in range(len(self.steps))]
        for batch in batches:
            yield pa.record_batch([self._column(step, batch) for step in self.steps], names)

    @staticmethod
    def _column(step: _Step, batch: pa.RecordBatch) -> pa.Array:
        inputs = batch.columns[step.first : step.first + step.count]
        if step.function is None:
            return inputs[0]
        found = step.function(*inputs)
        return found if found.type == step.type else found.cast(step.type)


def _check_passes(name: str, kind: DataType) -> None:
    try:
        to_arrow_type(_without_zone(kind))
    except (PySparkException, TypeError, ValueError) as error:
        raise RecordLayoutError(
            f"column {name!r} is of type {kind.simpleString()}, which Spark {pyspark.__version__} cannot "
            "pass through Python. Cast it in the source, leave it out, or use Spark 4.1 or newer"
        ) from error


def _nullable(kind: DataType) -> DataType:
    """Return the type with all fields nullable, since a null struct has null fields."""
    return _changed_type(kind, lambda each: each)


def _without_zone(kind: DataType) -> DataType:
    """Return the type without time zones, which some versions require for Arrow types."""
    return _changed_type(kind, lambda each: TimestampNTZType() if isinstance(each, TimestampType) else each)


def _changed_type(kind: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """Return the type with its simple parts changed and all of it nullable."""
    match kind:
        case StructType():
            return StructType([StructField(f.name, _changed_type(f.dataType, change)) for f in kind.fields])
        case ArrayType():
            return ArrayType(_changed_type(kind.elementType, change))
        case MapType():
            return MapType(_changed_type(kind.keyType, change), _changed_type(kind.valueType, change))
        case _:
            return change(kind)


@contextlib.contextmanager
def ansi_rules(spark: SparkSession) -> Iterator[None]:
    """Analyse and run expressions within the block by ANSI rules, unless the user chose otherwise.

    By the default rules of Spark 3.5, an invalid cast and a division by zero result in NULL, and a sum that
    is too large is truncated, so a merge would silently write wrong values. Spark 4 refuses all of these.
    Setting ``spark.sql.ansi.enabled`` in the session is such a choice. Other queries that begin in the
    session during the block have the same rules.
    """
    is_chosen = users_own(spark, ANSI) is not None or _ANSI_VARIABLE in os.environ
    with contextlib.nullcontext() if is_chosen else in_force(spark, {ANSI: "true"}):
        yield


def lenient_part(spark: SparkSession, expression: Any) -> str | None:
    """Return the SQL of the first part of a resolved expression that ignores the session's ANSI rules.

    On Spark 3.5, a Column has the rules of the session at the time when it was created. SQL strings are not
    affected.
    """
    if SPARK >= _ARROW_API or spark.conf.get(ANSI) != "true":
        return None
    if any(_is_lenient(expression, rule) for rule in ("evalMode", "failOnError", "ansiEnabled")):
        return str(expression.sql())
    children = expression.children()
    parts = (lenient_part(spark, children.apply(i)) for i in range(children.size()))
    return next((part for part in parts if part is not None), None)


def _is_lenient(expression: Any, rule: str) -> bool:
    try:
        found = getattr(expression, rule)()
    except (Py4JError, TypeError):  # an expression without such a rule
        return False
    return str(found) in ("LEGACY", "False")


@contextlib.contextmanager
def unlogged_errors() -> Iterator[None]:
    """Prevent PySpark from logging the Spark errors that this thread receives within the block.

    From Spark 4.0 on, PySpark prints each error as JSON when it creates the exception, even if it is caught
    and reported in another message. Errors in other threads or after the block are logged as usual.
    """
    if SPARK < _ERROR_LOG:
        yield
        return
    thread = threading.get_ident()

    def is_elsewhere(_record: Any) -> bool:
        return threading.get_ident() != thread

    module = importlib.import_module("pyspark.logger")  # logging.getLogger would make a logger that fails
    logs = [module.PySparkLogger.getLogger(name) for name in _ERROR_LOGGERS]
    for log in logs:
        log.addFilter(is_elsewhere)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(is_elsewhere)


def spark_literal(value: pa.Scalar) -> Column:
    """Return a Column for a scalar whose type is not nested. A timestamp has no time zone."""
    kind = value.type
    hive_type = primitive_of_arrow(kind)
    assert hive_type is not None
    plain = value.as_py()
    if plain is not None and (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
        plain = str(plain)  # Spark treats a datetime as a timestamp with time zone
    return sf.lit(plain).cast(spark_type(hive_type))
