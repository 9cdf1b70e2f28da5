"""Batches of a streaming query, in several tables, exactly once; judged by Hive's SQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from judges.hive.judge import HiveJudge
from mutation_api import Attempts, LockNotAcquiredError, SourcePositionError, connect
from mutation_api.cdc import BatchReport
from mutation_api.errors import MutationError
from tests.integration.streams.stream_shop import Shop, create_tables

pytestmark = pytest.mark.slow

LINES = pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)


@pytest.fixture
def shop(hive_line: HiveJudge, line_database: str, spark: SparkSession, tmp_path: Path) -> Shop:
    """Three tables, and three files to begin with."""
    create_tables(hive_line, line_database)
    shop = Shop(hive_line, line_database, spark, tmp_path)
    shop.make(1, 2, 3)
    return shop


class Crash(Exception):
    """Ends a query right after a commit."""


def crash(report: BatchReport) -> None:
    """After the second batch."""
    if report.number == 1:
        raise Crash


@LINES
def test_each_batch_is_visible_once(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """A query that ends after a commit, before Spark notes it, runs the batch again; the tables have it.

    What is to be warned of, as a server that does not compact, is said once, not with every batch.
    """
    with pytest.raises(StreamingQueryException):
        shop.run(then=crash)
    seen = shop.run()
    assert [report.number for report in seen] == [1, 2]
    assert [report.txn_id is None for report in seen] == [True, False]
    shop.make(4)
    assert [report.number for report in shop.run()] == [3]
    assert shop.run() == []
    shop.check()
    said = [each.getMessage() for each in caplog.records if each.name.startswith("mutation_api")]
    assert len(said) == len(set(said))
    assert not any("LockFailureListener" in text for text in said)


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_a_batch_that_loses_a_race_is_written_by_the_next_attempt(shop: Shop) -> None:
    """Once. Without further attempts the query ends, and nothing of the batch is visible."""
    shop.run()
    shop.make(4)
    with connect(shop.judge.uri) as hive:
        held = hive.transaction(f"{shop.database}.latest").begin()

        def release() -> float:
            held.abort()
            return 0.0

        with pytest.raises(LockNotAcquiredError):
            shop.run(lock_timeout_seconds=2)
        assert shop.judge.sql(f"SELECT max(number) FROM {shop.database}.events") == [[305]]
        seen = shop.run(lock_timeout_seconds=2, attempts=Attempts(2, jitter=release))
    assert [(report.number, report.txn_id is None) for report in seen] == [(3, False)]
    shop.check()


@pytest.mark.long
@LINES
def test_a_checkpoint_that_does_not_fit_is_refused(shop: Shop) -> None:
    """Older than the tables; deleted; another query's. The tables stay as they are."""
    shop.run()
    older = shop.copy_checkpoint("older")
    shop.make(4, 5)
    shop.run()
    expected = [
        (older, "checkpoint is older than the table"),
        (shop.folder / "new", "If the checkpoint was deleted"),
    ]
    shop.make(6)
    shop.rows = shop.rows[:-6]  # nobody reads the sixth file
    for checkpoint, words in expected:
        with pytest.raises(SourcePositionError, match=words):
            shop.run(checkpoint=checkpoint)
        shop.check()


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["2.3", "4.1"], indirect=True)
def test_a_batch_with_other_input_is_not_taken_for_the_same(shop: Shop) -> None:
    """The checkpoint lost its last batch, which is planned anew with other files."""
    shop.run()
    for kind in ("commits", "offsets"):
        for path in (shop.checkpoint / kind).glob("*2*"):
            path.unlink()
    for path in (shop.checkpoint / "sources" / "0").glob("*2*"):
        path.unlink()
    shop.make(4)
    shop.rows = shop.rows[:-6]
    with pytest.raises(SourcePositionError, match="batch 2 runs again with different input"):
        shop.run()
    shop.check()


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_a_refused_batch_leaves_nothing_in_any_table(shop: Shop) -> None:
    """The last table's rows are wrong; the query ends with our error, and goes on when they are mended."""
    shop.run()
    bad = shop.files / "00004.json"
    bad.write_text('{"number": 400, "id": 1, "item": "pen", "operation": "replace"}\n')
    with pytest.raises(MutationError, match="replace"):
        shop.run()
    shop.check()
