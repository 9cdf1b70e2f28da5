"""Change sets of flights: what is expected of a table follows from the changes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as sf
import pytest
from pyspark.sql import SparkSession

from benchmarks.data.event_data import content
from benchmarks.data.flight_data import TYPES, Flights

pytestmark = pytest.mark.slow

COUNT = 50


@pytest.fixture
def flights(tmp_path: Path) -> Flights:
    """Few flights on three days, some without delays, repeated to 400."""
    numbers = {name: list(range(COUNT)) for name, type_ in TYPES.items() if type_ == pa.int32()}
    numbers |= {
        "year": [2013] * COUNT,
        "month": [2] * COUNT,
        "day": [1 + place % 3 for place in range(COUNT)],
    }
    numbers["dep_delay"] = [None if place % 10 == 0 else place for place in range(COUNT)]
    texts = {name: [f"{name}{place}" for place in range(COUNT)] for name in ("carrier", "origin", "dest")}
    texts["tailnum"] = [None if place % 7 == 0 else f"N{place}" for place in range(COUNT)]
    times = {"time_hour": [place * 3_600_000_000 for place in range(COUNT)]}
    arrays = {name: pa.array((numbers | texts | times)[name], type_) for name, type_ in TYPES.items()}
    file = tmp_path / "flights.parquet"
    pq.write_table(pa.table(arrays).append_column("place", pa.array(range(COUNT))), file)
    return Flights(400, file, COUNT)


def test_the_expected_content_follows(spark: SparkSession, flights: Flights) -> None:
    """What is left when the change set is applied by hand."""
    base = flights.base(spark)
    table = {row["id"]: row for row in base.collect()}
    assert len(table) == 400
    loaded = base.select(sf.struct("id").alias("ROW__ID"), "id", "ds")
    counts = dict.fromkeys(("insert", "update", "delete"), 0)
    for row in flights.changes(loaded).collect():
        counts[row["operation"]] += 1
        if row["operation"] != "insert":
            before = table.pop(row["ROW__ID"]["id"])
            assert before["ds"] == row["ds"]
        if row["operation"] == "update":
            assert row["arr_delay"] == before["arr_delay"] + 7
            assert (row["tailnum"], row["dep_delay"] is None) == (
                before["tailnum"],
                before["dep_delay"] is None,
            )
        if row["operation"] != "delete":
            assert row["id"] not in table
            table[row["id"]] = row
    assert counts["insert"] == 160
    assert counts["update"] > counts["delete"] > 10
    left = [tuple(row[name] for name in base.columns) for row in table.values()]
    assert content(spark.createDataFrame(left, base.schema), flights.checksums) == flights.expected(spark)
