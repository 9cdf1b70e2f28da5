"""Sides: the source as a merge sees it, and the schemas of source and table."""

from __future__ import annotations

from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from mutation_api.errors import RecordLayoutError
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.versions import data_type
from mutation_api.spark.write.plan import wall_clock_type
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.types.hive_type import parse_hive_type, spark_type
from mutation_api.types.repeated import repeated

__all__ = ["Sides", "column_type"]


@dataclass(frozen=True)
class Sides:
    """The source with lower-case names and wall-clock timestamps, and the schemas of both sides."""

    source: DataFrame
    source_schema: StructType
    target_schema: StructType

    @classmethod
    def of(cls, table: AcidTable, source: DataFrame) -> Sides:
        """Describe both sides. Raises RecordLayoutError: two columns of the source differ at most in case."""
        names = [f.name.lower() for f in source.schema.fields]
        doubled = repeated(names)
        if doubled:
            raise RecordLayoutError(
                f"table {table.full_name}: the source has columns twice (case does not count): "
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


def column_type(column: AcidColumn) -> DataType:
    """Spark's type of a column of the table."""
    return data_type(spark_type(parse_hive_type(column.type)))
