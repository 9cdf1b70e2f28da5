"""The Arrow types of Spark's values, of those types alone whose values Arrow receives as what they are."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

__all__ = ["arrow_type_of"]

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
    """The Arrow type of a Spark type.

    A type of a user comes as what it is stored as, and a VARIANT as the bytes of its encoding. So any type
    that is not listed here is refused.

    Raises:
        TypeError: it is, or contains, a type that is refused, or Spark has no Arrow type for it.
    """
    for each in _parts(spark_type):
        if not isinstance(each, _PLAIN):
            raise TypeError(
                f"values of Spark's type {each.simpleString()} have no type of Hive: cast them first, for "
                "example to strings or numbers"
            )
    try:
        return to_arrow_type(spark_type)
    except (PySparkException, ValueError) as error:
        raise TypeError(str(error)) from error


def _parts(spark_type: DataType) -> Iterator[DataType]:
    """The types in it that are not nested."""
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
