"""Which batches of a streaming query are written, skipped or refused."""

from __future__ import annotations

from datetime import datetime

import pytest

from mutation_api.cdc.batch_actions import SOURCE_TABLE, RunningBatch, Written, is_new, source_id_of
from mutation_api.cdc.watermark import Watermark
from mutation_api.errors import SourcePositionError

WRITTEN = Written("orders", "d.t", "d.mutation_watermarks")
BATCH = RunningBatch("id-1", 7, '{"a":{"0":120}}')


def mark_of(batch: RunningBatch) -> Watermark:
    """What a table has after a batch."""
    position = batch.position
    return Watermark(
        source_id_of("orders"), SOURCE_TABLE, "d.t", position.order, position.text, 12, datetime(2026, 11, 25)
    )


def test_the_next_batch_is_new() -> None:
    """Its number is one more, and the query is the same."""
    assert is_new(RunningBatch("id-1", 8, "later"), mark_of(BATCH), WRITTEN)


def test_the_same_batch_is_skipped() -> None:
    """The same query, number and input."""
    assert not is_new(BATCH, mark_of(BATCH), WRITTEN)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (
            RunningBatch("id-1", 7, "other input"),
            ["runs again with different input", "older than the table", "transaction 12"],
        ),
        (RunningBatch("id-1", 6, BATCH.plan), ["batch 6", "up to 7", "older than the table"]),
        (RunningBatch("id-1", 9, "later"), ["batch 9 follows batch 7", "missing"]),
        (RunningBatch("id-2", 0, BATCH.plan), ["id-2", "id-1", "another name", "checkpoint was deleted"]),
        (RunningBatch("id-2", 8, BATCH.plan), ["id-2", "id-1"]),
    ],
)
def test_others_are_refused(batch: RunningBatch, words: list[str]) -> None:
    """The message names query and table, and what to do."""
    with pytest.raises(SourcePositionError) as caught:
        is_new(batch, mark_of(BATCH), WRITTEN)
    text = str(caught.value)
    for word in [*words, "'orders'", "table d.t", "Nothing was written", "DELETE FROM d.mutation_watermarks"]:
        assert word in text


def test_a_table_begins_with_its_first_batch() -> None:
    """Earlier batches are not its own; later ones would leave a gap."""
    joined = Written("orders", "d.t", "d.mutation_watermarks", first=7)
    assert is_new(BATCH, None, joined)
    assert not is_new(RunningBatch("id-1", 6, "earlier"), None, joined)
    assert is_new(RunningBatch("id-1", 0, "first"), None, WRITTEN)
    with pytest.raises(SourcePositionError, match=r"it lacks the batches 0 to 6.*first_batch=7"):
        is_new(BATCH, None, WRITTEN)


def test_the_mark_of_something_else_is_refused() -> None:
    """Its text was not written by a streaming query."""
    other = Watermark(source_id_of("orders"), SOURCE_TABLE, "d.t", (7,), "7", 12, datetime(2026, 11, 25))
    with pytest.raises(SourcePositionError, match="was not written by a streaming query"):
        is_new(BATCH, other, WRITTEN)
