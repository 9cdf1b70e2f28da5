"""LogWalk: what it says of each key equals what is read off row by row, however the log is cut."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.cdc.log_walk import CONTRADICTIONS, FINDINGS, LogWalk
from mutation_api.cdc.source import PARTITION

WORDS = ("insert", "update", "delete")
POSITION = pa.struct([("file", pa.int64()), ("row", pa.struct([("part", pa.int32())]))])
WALK = LogWalk(key=(0, 1), operation=2, position=4)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("op", pa.string()),
        ("v", pa.list_(pa.int64())),
        ("at", POSITION),
    ]
)


def random_log(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Operations by key and position; few keys, some positions twice."""
    keys = [(rng.randrange(3), rng.choice(["", "a", "é"])) for _ in range(count)]
    places = [(rng.randrange(count), rng.choice([None, rng.randrange(2)])) for _ in range(count)]
    places.sort(key=lambda at: (at[0], -1 if at[1] is None else at[1]))
    rows = [
        {
            "id": key[0],
            "name": key[1],
            "op": rng.choice(WORDS),
            "v": [n],
            "at": {"file": at[0], "row": {"part": at[1]}},
        }
        for n, (key, at) in enumerate(zip(keys, places, strict=True))
    ]
    return sorted(rows, key=lambda row: (row["id"], row["name"]))


def read_off(log: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same by rows, from the definitions of the findings."""
    found = []
    for _, group in itertools.groupby(log, lambda row: (row["id"], row["name"])):
        rows = list(group)
        wrong = [
            (kind, after["at"])
            for before, after in itertools.pairwise(rows)
            for kind, (operation, befores) in CONTRADICTIONS.items()
            if after["op"] == operation and before["op"] in befores
        ]
        doubled = [b["at"] for a, b in itertools.pairwise(rows) if a["at"] == b["at"]]
        findings = (
            rows[0]["op"],
            rows[0]["at"],
            len(rows),
            *(sum(each == kind for each, _ in wrong) for kind in CONTRADICTIONS),
            *(wrong[0] if wrong else (None, None)),
            doubled[0] if doubled else None,
        )
        data = {name: value for name, value in rows[-1].items() if name != "at"}
        found.append(data | dict(zip(FINDINGS, findings, strict=True)))
    return found


def walked(log: Sequence[dict[str, Any]], cuts: Sequence[int]) -> list[dict[str, Any]]:
    """The walk over batches that end there."""
    whole = pa.RecordBatch.from_pylist(list(log), SCHEMA)
    bounds = [0, *sorted(cuts), whole.num_rows]
    batches = [whole.slice(start, stop - start) for start, stop in itertools.pairwise(bounds)]
    return [row for batch in WALK(iter(batches)) for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(30))
def test_a_walk_equals_reading_row_by_row(seed: int) -> None:
    """Random logs in random batches, empty ones among them."""
    rng = random.Random(seed)
    log = random_log(rng, rng.choice([1, 2, 7, 60]))
    cuts = [rng.randrange(len(log) + 1) for _ in range(rng.choice([0, 1, 5, len(log)]))]
    assert walked(log, cuts) == read_off(log)


@pytest.mark.thorough
def test_a_key_that_fills_many_batches() -> None:
    """One operation a batch, of one key: the counts add up, the first findings stay."""
    log = [
        {"id": 1, "name": "a", "op": word, "v": [n], "at": {"file": n, "row": {"part": 0}}}
        for n, word in enumerate(["delete", "delete", "insert", "insert", "delete", "update"] * 50)
    ]
    (row,) = walked(log, range(len(log)))
    assert row == read_off(log)[0]
    assert [row[kind] for kind in CONTRADICTIONS] == [50, 50, 50]


@pytest.mark.parametrize("is_within", [False, True])
@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([(0, 1), (0, 2), (0, 3)], None),
        ([(0, 1), (1, 2), (1, 3)], 1),
        ([(0, 5), (0, 6), (2, 1)], 2),
        ([(0, 1), (1, 1), (2, 1)], 1),
    ],
)
def test_a_key_in_two_partitions_is_found(
    places: list[tuple[int, int]], found: int | None, is_within: bool
) -> None:
    """However the log is cut, whatever the offsets are; another key may be in another partition."""
    kind = pa.struct([(PARTITION, pa.int64()), ("offset", pa.int64())])
    at: Any = [{PARTITION: partition, "offset": offset} for partition, offset in [*places, (7, 0)]]
    if is_within:
        kind, at = pa.struct([("position", kind)]), [{"position": each} for each in at]
    ids, words = [1] * len(places) + [2], ["insert"] * (len(places) + 1)
    log = pa.record_batch(
        [pa.array(ids), pa.array(words), pa.array(at, kind)], names=["id", "operation", "at"]
    )
    for cut in range(len(ids)):
        batches = [log.slice(0, cut), log.slice(cut)]
        rows = [row for batch in LogWalk((0,), 1, 2)(iter(batches)) for row in batch.to_pylist()]
        assert [row["__doubled_position"] for row in rows] == [None if found is None else at[found], None]


def test_nothing_comes_of_nothing() -> None:
    """No batches, and empty ones."""
    assert walked([], []) == []
    assert list(WALK(iter([]))) == []
