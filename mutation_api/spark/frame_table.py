"""Columns of DataFrames as columns of tables: types, new tables, and the size of Arrow batches.

Spark types are converted to Arrow types only if Arrow receives their values unchanged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo, TableInfo
from mutation_api.errors import RecordLayoutError
from mutation_api.format.hive_type import primitive_of_spark
from mutation_api.spark.versions import in_force, users_own
from mutation_api.upkeep.create_acid_table import create_acid_table


def create_table(
    metastore: MetastoreClient,
    table: str,
    schema: StructType,
    *,
    partitioned_by: Sequence[str] = (),
    clustered_by: Sequence[str] = (),
    num_buckets: int | None = None,
    insert_only: bool = False,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> TableInfo:
    """Create an ACID table for rows of this schema.

    A TIMESTAMP becomes Hive's timestamp, which has no time zone: ``apply_changes`` stores the local time that
    the session shows. Nullability is not preserved, so all columns of the table may be null.

    Args:
        metastore: the metastore in which the table is created, as returned by
            ``metastore_client.open_client(...)``.
        table: ``database.table``.
        schema: the rows' schema including the partition columns: ``df.schema``.
        partitioned_by: names of the partition columns, in order. They are no longer data columns.
        clustered_by: names of the bucket columns, in any case. Hive 2 requires at least one.
        num_buckets: number of buckets. Required with ``clustered_by``, and only allowed then.
        insert_only: True to create an insert-only table, see
            :func:`mutation_api.upkeep.create_acid_table.create_acid_table`, which also explains the rest.
        location: the table's directory. If None, the server's default.
        properties: further table properties.

    Returns:
        The table as the server describes it.

    Raises:
        RecordLayoutError: If the schema lacks a partition column, or has a type that Hive does not have.
        Other errors: See create_acid_table.
    """
    columns = hive_columns(schema)
    keys = [_named(table, columns, name) for name in partitioned_by]
    return create_acid_table(
        metastore,
        table,
        [column for column in columns if column not in keys],
        keys,
        clustered_by=clustered_by,
        num_buckets=num_buckets,
        insert_only=insert_only,
        location=location,
        properties=properties,
    )


def hive_columns(schema: StructType) -> tuple[ColumnInfo, ...]:
    """Return the fields as columns of a Hive table: names in lower case, Hive types, comments.

    Raises:
        RecordLayoutError: If a field's type has no Hive equivalent. The message names the field.
    """
    return tuple(
        ColumnInfo(
            field.name.lower(), _hive_type(field.dataType, field.name), str(field.metadata.get("comment", ""))
        )
        for field in schema.fields
    )


def _named(table_name: str, columns: Sequence[ColumnInfo], name: str) -> ColumnInfo:
    for column in columns:
        if column.name == name.lower():
            return column
    raise RecordLayoutError(
        f"table {table_name}: partition column {name!r} is not in the schema. The columns are "
        f"{', '.join(column.name for column in columns)}"
    )


def _hive_type(spark_type: DataType, path: str) -> str:
    """Return the Hive type as a string. ``path`` names the field and its nested parts in messages."""
    match spark_type:
        case CharType():
            return f"char({spark_type.length})"
        case VarcharType():
            return f"varchar({spark_type.length})"
        case DecimalType():
            return f"decimal({spark_type.precision},{spark_type.scale})"
        case ArrayType():
            return f"array<{_hive_type(spark_type.elementType, f'{path}.element')}>"
        case MapType():
            key = _hive_type(spark_type.keyType, f"{path}.key")
            return f"map<{key},{_hive_type(spark_type.valueType, f'{path}.value')}>"
        case StructType():
            fields = [
                f"{f.name.lower()}:{_hive_type(f.dataType, f'{path}.{f.name}')}" for f in spark_type.fields
            ]
            return f"struct<{','.join(fields)}>"
        case StringType():  # also one with a collation
            return "string"
    found = primitive_of_spark(spark_type.simpleString())
    if found is None:
        raise RecordLayoutError(
            f"column {path}: Spark type {spark_type.simpleString()} has no Hive equivalent"
        )
    return found


_PLAIN = (
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    NullType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)


def arrow_type_of(spark_type: DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type.

    Values of a user-defined type arrive in their storage form, and a VARIANT arrives as the bytes of its
    encoding. So any type that is not listed here is refused.

    Raises:
        TypeError: If the type is or contains a type that is refused, or if Spark has no Arrow type for it.
    """
    for each in _parts(spark_type):
        if not isinstance(each, _PLAIN):
            raise TypeError(
                f"Spark type {each.simpleString()} has no Hive equivalent: cast it first, for example to "
                "strings or numbers"
            )
    try:
        return to_arrow_type(spark_type)
    except (PySparkException, ValueError) as error:
        raise TypeError(str(error)) from error


def _parts(spark_type: DataType) -> Iterator[DataType]:
    """Yield the types within it that are not nested."""
    if isinstance(spark_type, ArrayType):
        yield from _parts(spark_type.elementType)
    elif isinstance(spark_type, MapType):
        yield from _parts(spark_type.keyType)
        yield from _parts(spark_type.valueType)
    elif isinstance(spark_type, StructType):
        for field in spark_type.fields:
            yield from _parts(field.dataType)
    else:
        yield spark_type


BATCH_ROWS_MAX = 4096
"""The maximum number of rows in a batch whose bytes are not counted. At 16 KiB per row, it has 64 MiB."""

_MAX_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = str(2**31 - 1)


@contextlib.contextmanager
def counted_by_rows(spark: SparkSession) -> Iterator[None]:
    """Limit the batches of jobs that begin in the block by rows only, to at most BATCH_ROWS_MAX.

    Spark adds up the bytes of a batch again for each row, which takes longer than writing the row (measured:
    more than half of the time to Python). If the user has set a byte limit, this does nothing. A lower row
    limit that the user has set stays in force. Other queries that begin in the session during the block get
    the same batches. Spark versions that do not count bytes ignore the byte setting.

    Args:
        spark: the session of the jobs.
    """
    if users_own(spark, _MAX_BYTES) is not None:
        yield
        return
    rows = int(str(spark.conf.get(_MAX_ROWS)))
    limit = min(rows, BATCH_ROWS_MAX) if rows > 0 else BATCH_ROWS_MAX
    with in_force(spark, {_MAX_ROWS: str(limit), _MAX_BYTES: _NO_LIMIT}):
        yield
