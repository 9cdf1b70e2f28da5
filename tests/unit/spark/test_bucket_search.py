"""Keys ordered by bucket, split into passes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from mutation_api.spark.snapshot_frame import key_passes

Key = tuple[int | None, str | None, int]


def batch_of(rows: Sequence[tuple[int, Key]]) -> pa.RecordBatch:
    columns = [pa.array([bucket for bucket, _ in rows], pa.int32())]
    for index, kind in enumerate((pa.int64(), pa.string(), pa.int32())):
        columns.append(pa.array([key[index] for _, key in rows], kind))
    return pa.record_batch(columns, names=["__bucket", "a", "b", "n"])


def in_order(row: tuple[int, Key]) -> tuple[int, str, str]:
    return row[0], repr(row[1][0]), repr(row[1][1])


@pytest.mark.parametrize("seed", range(30))
def test_passes_hold_every_key_once_and_keep_equal_ones_together(seed: int) -> None:
    """A pass is of one bucket, and longer than the limit only by the batches of one value."""
    rng = random.Random(seed)
    rows: list[tuple[int, Key]] = [
        (rng.randrange(3), (rng.choice([None, 1, 2, 3]), rng.choice([None, "x", "y"]), number))
        for number in range(rng.choice([0, 1, 5, 80]))
    ]
    rows.sort(key=in_order)
    batches, start = [], 0
    while start < len(rows):
        stop = start + rng.randrange(0, 9)
        batches.append(batch_of(rows[start:stop]))
        start = stop
    limit = rng.choice([1, 4, 1000])
    seen: list[tuple[int, Key]] = []
    homes: dict[tuple[int, object, object], int] = {}
    for number, (bucket_id, keys) in enumerate(key_passes(iter(batches), ["a", "b"], limit)):
        assert keys.column_names == ["a", "b", "n"] and keys.num_rows
        for a, b, n in zip(*(column.to_pylist() for column in keys.columns), strict=True):
            seen.append((bucket_id, (a, b, n)))
            assert homes.setdefault((bucket_id, a, b), number) == number
    assert seen == rows
    if limit == 1:
        assert len(set(homes.values())) > len({bucket for bucket, _ in rows}) or len(rows) < 10
