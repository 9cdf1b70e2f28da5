"""From a Spark schema to a Hive table, in the metastore's memory and in a real one."""

from __future__ import annotations

import dataclasses

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo
from mutation_api.errors import ConfigurationError, RecordLayoutError, TableNotMutableError
from mutation_api.format.hive_type import parse_hive_type, spark_type
from mutation_api.spark.frame_table import create_table, hive_columns

NESTED = StructType([StructField("A", ArrayType(TimestampType())), StructField("b", DecimalType(5, 2))])
TYPES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "smallint": ShortType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "char(7)": CharType(7),
    "varchar(9)": VarcharType(9),
    "decimal(38,18)": DecimalType(38, 18),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampNTZType(),
    "map<string,struct<a:array<timestamp>,b:decimal(5,2)>>": MapType(StringType(), NESTED),
}


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize("hive", TYPES)
def test_each_type_has_its_hive_type(hive: str) -> None:
    """The text is Hive's own, and what a snapshot of the column gives back is the same Spark type."""
    (column,) = hive_columns(schema(C=TYPES[hive]))
    assert column == ColumnInfo("c", hive)
    assert parse_hive_type(column.type).text == hive
    back = spark_type(parse_hive_type(hive))
    expected = {"char(7)": "string", "varchar(9)": "string"}.get(hive, TYPES[hive].simpleString())
    assert back.replace("`", "") == expected.replace("A:array<timestamp>", "a:array<timestamp_ntz>")


def test_a_timestamp_becomes_a_wall_clock_and_comments_stay() -> None:
    """Hive has one timestamp type; a field's comment becomes the column's."""
    (column,) = hive_columns(StructType([StructField("At", TimestampType(), True, {"comment": "when"})]))
    assert column == ColumnInfo("at", "timestamp", "when")


@pytest.mark.parametrize("kind", [NullType(), DayTimeIntervalType(), VariantType()])
def test_types_without_a_place_in_hive_are_refused(kind: DataType) -> None:
    """The message names the path of the field."""
    nested = schema(a=MapType(StringType(), schema(B=kind)))
    with pytest.raises(RecordLayoutError, match=r"column a\.value\.B: Spark type .* has no Hive equivalent"):
        hive_columns(nested)


ROWS = schema(Id=LongType(), Msg=VarcharType(5), Day=DateType(), Hr=IntegerType())


def test_partition_columns_leave_the_data(metastore: MetastoreClient, database: str) -> None:
    """In the given order; bucketed, as every server accepts it; the server has what is returned."""
    created = create_table(
        metastore,
        f"{database}.Orders",
        ROWS,
        partitioned_by=("HR", "day"),
        clustered_by=("ID",),
        num_buckets=3,
        properties={"orc.compress": "SNAPPY"},
    )
    assert created.full_name == f"{database}.orders"
    assert created.columns == (ColumnInfo("id", "bigint"), ColumnInfo("msg", "varchar(5)"))
    assert created.partition_keys == (ColumnInfo("hr", "int"), ColumnInfo("day", "date"))
    assert (created.num_buckets, created.bucket_columns) == (3, ("id",))
    assert created.parameters["transactional"] == "true"
    assert created.parameters["orc.compress"] == "SNAPPY"
    assert dataclasses.replace(metastore.get_table(database, "orders"), parameters={}) == dataclasses.replace(
        created, parameters={}
    )


def test_what_cannot_be_is_refused(metastore: MetastoreClient, database: str) -> None:
    """An unknown partition column, buckets without columns, a table that exists, a server without such
    tables: nothing is created.
    """
    name = f"{database}.orders"
    with pytest.raises(
        RecordLayoutError, match=rf"table {name}: partition column 'year' is not in the schema"
    ):
        create_table(metastore, name, ROWS, partitioned_by=("year",))
    with pytest.raises(ConfigurationError, match="go together"):
        create_table(metastore, name, ROWS, num_buckets=3)
    if not metastore.capabilities().has_write_ids:
        with pytest.raises(TableNotMutableError, match=name):
            create_table(metastore, name, ROWS)
        with pytest.raises(TableNotMutableError, match=name):
            create_table(metastore, name, ROWS, insert_only=True, clustered_by=("id",), num_buckets=2)
    assert metastore.get_all_tables(database) == []
    create_table(metastore, name, ROWS, clustered_by=("id",), num_buckets=2)
    with pytest.raises(ConfigurationError, match=f"table {name} could not be created"):
        create_table(metastore, name, ROWS, clustered_by=("id",), num_buckets=2)
