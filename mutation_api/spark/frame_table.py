"""create_table: an ACID table with the columns of a DataFrame's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo, TableInfo
from mutation_api.errors import RecordLayoutError
from mutation_api.upkeep.create_acid_table import create_acid_table

__all__ = ["create_table", "hive_columns"]

_PLAIN_TYPES: dict[type[DataType], str] = {
    BooleanType: "boolean",
    ByteType: "tinyint",
    ShortType: "smallint",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "binary",
    DateType: "date",
    TimestampType: "timestamp",
    TimestampNTZType: "timestamp",
}


def create_table(
    metastore: MetastoreClient,
    table_name: str,
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

    A TIMESTAMP becomes Hive's timestamp, which is a wall clock: ``apply_changes`` stores what the session
    shows. Nullability is not kept; all columns of the table may be null.

    Args:
        metastore: the metastore in which the table is created; ``metastore_client.connect(...)`` gives one.
        table_name: ``database.table``.
        schema: the rows' schema with the partition columns: ``df.schema``.
        partitioned_by: names of the partition columns, in their order; they are no longer data columns.
        clustered_by: names of the bucket columns, any case; Hive 2 needs at least one.
        num_buckets: required with ``clustered_by``, and only then allowed.
        insert_only: see :func:`mutation_api.upkeep.create_acid_table.create_acid_table`, also for the rest.
        location: None for the server's default.
        properties: further table properties.

    Returns:
        The table as the server describes it.

    Raises:
        RecordLayoutError: the schema lacks a partition column, or has a type that no Hive column has.
        Others: see create_acid_table.
    """
    columns = hive_columns(schema)
    keys = [_named(table_name, columns, name) for name in partitioned_by]
    return create_acid_table(
        metastore,
        table_name,
        [column for column in columns if column not in keys],
        keys,
        clustered_by=clustered_by,
        num_buckets=num_buckets,
        insert_only=insert_only,
        location=location,
        properties=properties,
    )


def hive_columns(schema: StructType) -> tuple[ColumnInfo, ...]:
    """The fields as columns of a Hive table: names in lower case, Hive's types, comments.

    Raises RecordLayoutError, naming the field.
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
        f"table {table_name}: partition column {name!r} is not in the schema; it has "
        f"{', '.join(column.name for column in columns)}"
    )


def _hive_type(spark_type: DataType, path: str) -> str:
    """The text of Hive's type; ``path`` names the field and its nested parts in messages."""
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
    found = _PLAIN_TYPES.get(type(spark_type))
    if found is None:
        raise RecordLayoutError(
            f"column {path}: no Hive column holds Spark's type {spark_type.simpleString()}"
        )
    return found
