"""read_table(where=…): tasks leave out what cannot match, and return what Spark's own filter returns."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import MutatorClientBuilder, connect, read_table
from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.hive.connection import Hive
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.transaction.snapshot import Snapshot

pytestmark = pytest.mark.slow

NAME = "default.visits"
ROWS = 30_000


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    """Rows in order of their id, in three partitions; each has several stripes, and rows are deleted."""
    with connect(InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)) as hive:
        buckets = {"clustered_by": ["id"], "num_buckets": 2}
        schema = "id bigint, n int, page string, day int"
        hive.create_table(NAME, schema, partitioned_by=["day"], **buckets)  # type: ignore[arg-type]
        rng = random.Random(1)
        rows = {
            "id": pa.array(range(ROWS), pa.int64()),
            "n": pa.array([rng.choice([None, *range(10)]) for _ in range(ROWS)], pa.int32()),
            "page": [f"{n:>400}" for n in range(ROWS)],
            "day": pa.array([n * 3 // ROWS for n in range(ROWS)], pa.int32()),
        }
        hive.table(NAME).append(pa.table(rows), create_partitions=True)
        hive.table(NAME).delete(where="id % 7 = 3 OR n = 0")
        yield hive


@pytest.fixture
def view(hive: Hive) -> Iterator[Snapshot]:
    """A snapshot of the table."""
    client = MutatorClientBuilder().metastore(hive.metastore).add_source_table(*NAME.split(".")).build()
    with client, client.open_snapshot(NAME) as view:
        yield view


CONDITIONS = [
    (pc.field("id") == 20_000, "id = 20000"),
    ((pc.field("id") < 500) | (pc.field("day") == 2), "id < 500 OR day = 2"),
    (pc.field("day") == 1, "day = 1"),
    (pc.field("n").is_null() & (pc.field("id") > 29_000), "n IS NULL AND id > 29000"),
    (pc.divide(pc.scalar(100), pc.field("n")) > 30, "100 div n > 30"),
    (pc.field("day") == 9, "day = 9"),
]


@pytest.mark.parametrize("columns", [["page"], ["day", "id"], []])
def test_rows_are_those_of_sparks_filter(view: Snapshot, spark: SparkSession, columns: list[str]) -> None:
    """The columns of the condition need not be among those that are returned. In a deleted row, the condition
    may have no value: no visible row has n = 0.
    """
    names = ["ROW__ID", *columns]
    for condition, text in CONDITIONS:
        found = read_table(view, NAME, columns=columns, where=condition)
        expected = read_table(view, NAME).where(text).select(*names)
        assert found.columns == names
        assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect())), text


def test_stripes_without_such_rows_are_not_read(
    view: Snapshot, spark: SparkSession, hive: Hive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only files of a partition without such rows are damaged, and nobody notices."""
    location = view.table(NAME).location.local_path or ""
    for file in Path(location).glob("day=[12]/delta_*/bucket_*"):
        file.write_bytes(b"no ORC file")
    assert read_table(view, NAME, where=pc.field("id").isin([5, 6]) & (pc.field("day") == 0)).count() == 2


def test_conditions_that_do_not_fit(view: Snapshot, spark: SparkSession) -> None:
    """Refused before a job, or by the row that has no value."""
    with pytest.raises(RecordLayoutError, match="missing"):
        read_table(view, NAME, where=pc.field("missing") == 1)
    with pytest.raises(RecordLayoutError, match="true or false"):
        read_table(view, NAME, where=pc.field("n") + 1)
    zero = pc.divide(pc.scalar(1), pc.field("id") - pc.scalar(1)) > 0
    with pytest.raises(RecordValueError, match="has no value"), translated_worker_errors("read"):
        read_table(view, NAME, where=zero).collect()
