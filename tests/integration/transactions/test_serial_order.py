"""Writers that merge random keys by ``hive.run``: all commit, and the result is that of some serial order."""

from __future__ import annotations

import functools
import graphlib
import itertools
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from judges.hive.judge import HiveJudge
from mutation_api import connect
from mutation_api.hive.hive_transaction import HiveTransaction
from tests.fixtures.fix_judge import LINES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

WRITERS = 8
KEYS = 40
KEYS_OF_A_MERGE = 6
ROUND = 10
"""Merges of each writer after which Hive compacts the table, as merges of hundreds of deltas take seconds."""
ATTEMPTS = 100
"""More than one transaction can lose races against seven others."""


class Writer:
    """Merges random keys; every row that it merges gets the merge's number at the end of its log."""

    def __init__(self, uri: str, table: str, number: int, lock: str) -> None:
        self._uri, self._table, self._lock = uri, table, lock
        self._rng = random.Random(number)
        self._number = number

    def run(self, merges: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Merge once for each number, and return the keys of each merge by its mark."""
        done: dict[str, tuple[int, ...]] = {}
        with connect(self._uri, write_lock=self._lock, lock_timeout_seconds=600) as hive:
            for n in merges:
                mark = f"{self._number}.{n}"
                keys = tuple(self._rng.sample(range(KEYS), self._rng.randrange(1, KEYS_OF_A_MERGE)))
                rows = pa.table({"k": pa.array(keys, pa.int32()), "log": [mark] * len(keys)})
                hive.run(functools.partial(self._merge, rows), self._table, attempts=ATTEMPTS)
                done[mark] = keys
        return done

    def _merge(self, rows: pa.Table, tx: HiveTransaction) -> None:
        longer = pc.binary_join_element_wise(pc.field("target", "log"), pc.field("source", "log"), " ")
        merge = tx.table(self._table).merge(rows, on=["k"])
        merge.when_matched_update({"log": longer}).when_not_matched_insert_all().execute()


@pytest.mark.parametrize("merges", [3, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("hive_line", "lock"),
    [*((line, "exclusive") for line in LINES), ("4.1", "optimistic")],
    indirect=["hive_line"],
)
def test_merges_of_eight_writers_have_a_serial_order(
    hive_line: HiveJudge, line_database: str, merges: int, lock: str
) -> None:
    """Hive reads each row's log: each merge of the row once, and all logs agree about the order of merges."""
    name = f"{line_database}.logs"
    with connect(hive_line.uri) as hive:
        hive.create_table(name, "k int, log string", clustered_by=["k"], num_buckets=2)
    writers = [Writer(hive_line.uri, name, number, lock) for number in range(WRITERS)]
    done: dict[str, tuple[int, ...]] = {}
    for first in range(0, merges, ROUND):
        numbers = range(first, min(first + ROUND, merges))
        with ThreadPoolExecutor(WRITERS) as pool:
            for each in pool.map(lambda writer, numbers=numbers: writer.run(numbers), writers):
                done |= each
        if first + ROUND < merges:
            hive_line.compact(name, "major")
    assert len(done) == WRITERS * merges
    logs = {key: log.split(" ") for key, log in hive_line.sql(f"SELECT k, log FROM {name}")}
    assert {mark: sorted(keys) for mark, keys in done.items()} == _keys_by_mark(logs)
    assert all(len(log) == len({*log}) for log in logs.values()), "a merge changed a row twice"
    order = serial_order([*logs.values()])
    assert sorted(order) == sorted(done)
    for number in range(WRITERS):
        assert [mark for mark in order if mark.startswith(f"{number}.")] == [
            f"{number}.{n}" for n in range(merges)
        ]


def _keys_by_mark(logs: dict[int, list[str]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key in sorted(logs):
        for mark in logs[key]:
            found.setdefault(mark, []).append(key)
    return found


def serial_order(logs: Sequence[Sequence[str]]) -> list[str]:
    """Return an order of all marks in which each log and each writer's merges follow each other.

    Raises graphlib.CycleError if there is none.
    """
    marks = sorted({*itertools.chain(*logs)}, key=lambda mark: [int(part) for part in mark.split(".")])
    own = [[mark for mark in marks if mark.split(".")[0] == str(number)] for number in range(WRITERS)]
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for log in (*logs, *own):
        for before, after in itertools.pairwise(log):
            sorter.add(after, before)
    return [*sorter.static_order()]
