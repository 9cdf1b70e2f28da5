"""Rows sought by ROW__ID, whose position follows from the statistics, compared with a read of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutation_api.errors import CorruptFileError
from mutation_api.format.layout import AcidVersion
from mutation_api.format.merge_events import EventKeys, concatenate_keys
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.orc.read.event_reader import read_events
from mutation_api.orc.read.file_columns import SoughtRows, Wanted
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn
from tests.support.acid_files import Event, inserts, write_events

BUCKET = 1 << 29
COLUMNS = (AcidColumn("id", "bigint"), AcidColumn("msg", "string"))
Row = tuple[int, int, int, int, str]
"""ROW__ID and the columns."""


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each stripe with sought rows, whether their positions followed from the statistics."""
    answers: list[bool] = []
    find = SoughtRows.numbered

    def noted(self: SoughtRows, index: int) -> Any:
        found = find(self, index)
        answers.append(found is not None)
        return found

    monkeypatch.setattr(SoughtRows, "numbered", noted)
    return answers


def rows_in(path: Path, kind: EventFileKind, sought: EventKeys | None) -> list[Row]:
    """Read some rows of a file, or all."""
    file = EventFile(Location.given(path), kind, 0, 1, 99, byte_count=path.stat().st_size)
    wanted = Wanted(COLUMNS, COLUMNS, ReadOptions(), None, None, True, sought=sought)
    found: list[Row] = []
    counts = []
    for stripe in read_events(LocalStorage(), file, wanted, version=AcidVersion.V2_HIVE4):
        counts.append(stripe.row_count)
        if not len(stripe.chunk.keys):
            continue
        chunk = stripe.chunk.complete()
        keys, rows = chunk.keys, chunk.rows
        assert stripe.first <= keys.key(0)
        assert (keys.operation == 0).all()
        ids = zip(keys.original_txn.tolist(), keys.bucket.tolist(), keys.row_id.tolist(), strict=True)
        values = zip(*(rows[c.name].to_pylist() for c in COLUMNS), strict=True)
        found += [(*id_, *value) for id_, value in zip(ids, values, strict=True)]
    if sought is None and len(counts) > 1:
        assert sum(counts) == len(found)
    return found


def keys_of(ids: Sequence[tuple[int, int, int]]) -> EventKeys:
    """ROW__IDs, in order, as keys of deletes."""
    return concatenate_keys(
        [EventKeys.inserted(np.array([row]), txn, bucket, 99, -1) for txn, bucket, row in sorted(ids)]
    )


def texts(first: int, count: int) -> list[tuple[int, str]]:
    """Columns of rows that fill several stripes."""
    return [(n * 7, f"{n:->600}") for n in range(first, first + count)]


def test_positions_follow_from_numbers_without_gaps(tmp_path: Path, numbered: list[bool]) -> None:
    """Of random ROW__IDs, exactly those that the file has are found, with their columns."""
    path = tmp_path / "delta_0000007_0000007_0000" / "bucket_00000"
    write_events(path, inserts(7, BUCKET, 0, texts(0, 1000)))
    rows = {row[:3]: row for row in rows_in(path, EventFileKind.DELTA, None)}
    rng = np.random.default_rng(1)
    for count in (1, 3, 50, 900):
        ids = {(7, BUCKET, int(n)) for n in rng.integers(0, 1200, count)}
        ids |= {(int(txn), BUCKET + 1, 5) for txn in rng.integers(6, 9, 3)}
        found = rows_in(path, EventFileKind.DELTA, keys_of([*ids]))
        assert found == [rows[each] for each in sorted(ids) if each in rows]
    assert len(numbered) > 4
    assert all(numbered)


@pytest.mark.thorough
def test_stripes_of_several_statements_or_with_gaps_are_read_whole(
    tmp_path: Path, numbered: list[bool]
) -> None:
    """A base has rows of several write ids, of two statements of one, and lacks rows that were deleted."""
    events: list[Event] = []
    rng = np.random.default_rng(2)
    for txn in (3, 4, 5):
        for bucket in (BUCKET, BUCKET + 1):
            part = inserts(txn, bucket, 0, texts(txn * 1000, 400))
            gone = set(rng.integers(0, 400, 5).tolist()) if txn == 4 else set()
            events += [each for each in part if each[3] not in gone]
    path = tmp_path / "base_0000005" / "bucket_00000"
    write_events(path, events)
    rows = {row[:3]: row for row in rows_in(path, EventFileKind.BASE, None)}
    assert len(rows) == len(events)
    for _ in range(10):
        txns, buckets, numbers = rng.integers(2, 7, 60), rng.integers(0, 3, 60), rng.integers(0, 420, 60)
        ids = {(int(t), BUCKET + int(b), int(n)) for t, b, n in zip(txns, buckets, numbers, strict=True)}
        found = rows_in(path, EventFileKind.BASE, keys_of([*ids]))
        assert found == [rows[each] for each in sorted(ids) if each in rows]
    assert {*numbered} == {False, True}


def test_numbers_that_only_seem_to_have_no_gaps(tmp_path: Path, numbered: list[bool]) -> None:
    """Two rows with one number, and a gap: the statistics look right. The file is refused."""
    events = inserts(7, BUCKET, 0, texts(0, 1000))
    events[500] = (*events[500][:3], 499, *events[500][4:])
    events[400], events[401] = (
        (*events[400][:3], 401, *events[400][4:]),
        (*events[401][:3], 400, *events[401][4:]),
    )
    path = tmp_path / "delta_0000007_0000007_0000" / "bucket_00000"
    write_events(path, events)
    with pytest.raises(CorruptFileError, match="is not sorted"):
        rows_in(path, EventFileKind.DELTA, keys_of([(7, BUCKET, 400), (7, BUCKET, 500)]))
    assert False in numbered
