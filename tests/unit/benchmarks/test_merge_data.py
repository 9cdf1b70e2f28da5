"""Rows and change sets of the benchmark of merges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.data.merge_data import ChangeSets, base_batches, scrambled, write_base


def test_keys_are_distinct_and_in_no_order() -> None:
    """No two rows have one key, keys are below 2 ** 36, and neighbours are far apart."""
    keys = scrambled(np.arange(200_000, dtype=np.int64))
    assert len(np.unique(keys)) == 200_000
    assert 0 <= keys.min() < keys.max() < 1 << 36
    assert np.median(np.abs(np.diff(keys))) > 1 << 32


def test_texts_are_about_twenty_characters() -> None:
    """And nearly all differ."""
    (rows,) = base_batches(10_000)
    names = rows["name"].to_pylist()
    assert 16 < np.mean([len(name) for name in names]) < 22
    assert len(set(names)) > 9_990


@pytest.mark.thorough
def test_change_sets_touch_each_row_once(tmp_path: Path) -> None:
    """Shares of operations are right, keys of a round are no other's, and the expected content follows."""
    changes = ChangeSets(10_000, 1_000, 3, tmp_path)
    changes.write()
    assert changes.counts == (500, 200, 300)
    write_base(10_000, tmp_path / "base")
    rows = {row["id"]: row for row in pq.read_table(tmp_path / "base").to_pylist()}
    seen: set[int] = set()
    for number in range(3):
        found = pq.read_table(changes.path(number))
        for row in found.to_pylist():
            operation, key = row.pop("op"), row["id"]
            assert (key in rows) == (operation != "I")
            assert key not in seen
            seen.add(key)
            if operation == "D":
                del rows[key]
                continue
            assert operation == "I" or rows[key]["acct"] == row["acct"]
            rows[key] = row
    assert changes.expected(range(3)) == (len(rows), sum(rows)) == (10_300, sum(rows))
    with_deleted = changes.expected((0,), deletes=False)
    inserted = pq.read_table(changes.path(0)).filter(pa.compute.field("op") == "I")["id"]
    assert with_deleted[0] == 10_300
    assert with_deleted[1] == int(scrambled(np.arange(10_000)).sum()) + sum(inserted.to_pylist())


def test_too_many_changes_are_refused(tmp_path: Path) -> None:
    """Rounds do not touch a row twice."""
    with pytest.raises(ValueError, match="2 rounds of 560 updates and deletes need more than 1,000 rows"):
        ChangeSets(1_000, 800, 2, tmp_path).write()
