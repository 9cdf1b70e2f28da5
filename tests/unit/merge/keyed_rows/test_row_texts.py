"""JSON texts of rows."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pyspark.sql.functions as sf
import pytest
from pyspark.sql import SparkSession

from mutation_api.format.json_values import json_texts
from mutation_api.merge.spark_columns import json_text

ROWS = pa.table(
    {
        "i": pa.array([1, None], pa.int32()),
        "é": pa.array(['a "b"\n', ""], pa.string()),
        "d": pa.array([Decimal("-0.10"), Decimal(0)], pa.decimal128(6, 2)),
        "f": pa.array([float("nan"), -0.0], pa.float64()),
        "at": pa.array([datetime.datetime(987, 2, 3, 4, 5, 6, 500_000), None], pa.timestamp("us")),
        "day": pa.array([datetime.date(987, 2, 3), None], pa.date32()),
        "b": pa.array([b"\x00\xff", None], pa.binary()),
        "s": pa.array(
            [{"x": None, "y": [Decimal("1.50")]}, None],
            pa.struct([("x", pa.int8()), ("y", pa.list_(pa.decimal128(6, 2)))]),
        ),
        "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
    }
)


def texts(rows: pa.Table) -> list[str]:
    """The texts of a table's rows."""
    return json_texts(rows.to_struct_array().combine_chunks())


def test_each_kind_of_value() -> None:
    """With all digits, and nulls within; a day that Python lacks is a text, too."""
    assert texts(ROWS) == [
        '{"i":1,"é":"a \\"b\\"\\n","d":"-0.1","f":"NaN","at":"0987-02-03T04:05:06.5","day":"0987-02-03",'
        '"b":"AP8=","s":{"x":null,"y":["1.5"]},"m":{"k":1}}',
        '{"i":null,"é":"","d":"0","f":-0.0,"at":null,"day":null,"b":null,"s":null,"m":{}}',
    ]
    far = pa.array([4_000_000, 0], pa.int32()).cast(pa.date32())
    assert texts(pa.table({"day": far})) == ['{"day":"12921-08-18"}', '{"day":"1970-01-01"}']
    assert json_texts(pa.array([{"a": 1}, None], pa.struct([("a", pa.int8())]))) == ['{"a":1}', "null"]
    assert json_texts(pa.array([{}, {}], pa.struct([]))) == ["{}", "{}"]


@pytest.mark.slow
def test_spark_writes_the_same(spark: SparkSession) -> None:
    """Messages name a row alike, whichever engine found it."""
    frame = spark.createDataFrame(ROWS)
    found = frame.select(json_text(sf.struct(*frame.columns), frame.schema))
    assert [row[0] for row in found.collect()] == texts(ROWS)
