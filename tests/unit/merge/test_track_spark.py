"""track() by Spark: the rows are those of the local engine and of the log in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from metastore_client.testing import HIVE_2_3, HIVE_4_1, InMemoryMetastore
from mutation_api import track
from mutation_api.errors import DuplicateKeyError, RecordValueError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.merge import spark_history
from mutation_api.merge.history import HistoryReport
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.unit.hive.test_track import COLUMNS, NAME, Event, changes, history, random_log, read

pytestmark = pytest.mark.slow


@pytest.fixture(params=[HIVE_2_3, HIVE_4_1], ids=["2.3", "4.1"])
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hive]:
    """An empty table."""
    metastore = InMemoryMetastore(tmp_path, capabilities=request.param)
    create_acid_table(metastore, NAME, COLUMNS, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as connected:
        yield connected


def run(
    hive: Hive, spark: SparkSession, *events: Event, sequence: object = "at", **options: object
) -> HistoryReport:
    """Add events in a transaction."""
    rows = changes(*events)
    frame = spark.createDataFrame(
        rows.to_pylist(), "ID bigint, at int, item string, lsn int, operation string"
    )
    builder = MutatorClientBuilder().metastore(hive.metastore).add_sink_table(NAME)
    with builder.build() as client, client.new_transaction() as transaction:
        given = {"key": ["id"], "sequence": sequence, "current": "is_last", **options}
        return track(transaction, NAME, frame, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [3, 8])
def test_random_logs(hive: Hive, spark: SparkSession, seed: int) -> None:
    """Any order of arrival and any cut into runs ends in the table that the log in order gives."""
    log, runs, has_ties = random_log(seed)
    for events in filter(None, runs):
        sequence = ["at", "lsn"] if has_ties else "at"
        tried = run(hive, spark, *events, sequence=sequence, dry_run=True)
        done = run(hive, spark, *events, sequence=sequence)
        assert {**tried.to_dict(), "dry_run": False} == done.to_dict()
    assert read(hive) == history(log, has_ties=has_ties)


@pytest.mark.long
def test_what_is_refused(hive: Hive, spark: SparkSession) -> None:
    """Errors of tasks are those of the local engine."""
    with pytest.raises(DuplicateKeyError, match="order is unknown"):
        run(hive, spark, (1, 10, "a", 1), (1, 10, "b", 2))
    with pytest.raises(RecordValueError, match=r"1099511627776"):
        run(hive, spark, (1 << 40, 10, "a", 1))
    assert read(hive) == []


def test_batches_end_at_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a key stay together, also if they fill several batches."""
    monkeypatch.setattr(spark_history, "HISTORY_ROWS", 4)
    keys = [1, 1, 2, 2, 2, 2, 2, 2, 3, None, None, 4, 5, 6, 7]
    batches = [pa.record_batch({"k": keys[at : at + 3]}) for at in range(0, len(keys), 3)]
    found = [batch.column(0).to_pylist() for batch in spark_history._whole_keys(iter(batches), 1)]
    assert [*itertools.chain(*found)] == keys
    for one, other in itertools.pairwise(found):
        assert one[-1] != other[0] and len(one) < 10
