"""Values as Columns of Spark."""

from __future__ import annotations

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column

__all__ = ["spark_literal"]

_NAMES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.string(): "string",
}


def spark_literal(value: pa.Scalar) -> Column:
    """A scalar of a type that is not nested as a Column; a timestamp is a wall clock."""
    kind = value.type
    name = f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _NAMES[kind]
    plain = value.as_py()
    if plain is not None and (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
        plain = str(plain)  # Spark takes a datetime for an instant
    return sf.lit(plain).cast(name)
