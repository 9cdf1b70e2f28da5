"""``hive.run`` against real Hive: writers that lose races against each other lose no change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from judges.hive.judge import HiveJudge
from mutation_api import Attempts, ConnectionFailedError, HiveTransaction, connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

T = TypeVar("T")

WRITERS = 8
KEYS = 12
PARTITIONS = 6


def until_answered(work: Callable[[], T]) -> T:
    """Repeat work during which the server hung up, as Hive 4.1 on Derby does under load."""
    while True:
        try:
            return work()
        except ConnectionFailedError as error:
            assert "broke before the answer arrived" in str(error)


@pytest.mark.parametrize(
    ("hive_line", "write_lock", "layout", "merges"),
    [
        ("4.1", "optimistic", "partitioned", 3),
        pytest.param("4.1", "optimistic", "partitioned", 12, marks=pytest.mark.long),
        pytest.param("4.1", "optimistic", "plain", 12, marks=pytest.mark.long),
        pytest.param("4.1", "optimistic", "partitioned", 100, marks=pytest.mark.long),
        pytest.param("4.1", "exclusive", "plain", 12, marks=pytest.mark.long),
        pytest.param("3.1", "exclusive", "partitioned", 12, marks=pytest.mark.long),
    ],
    indirect=["hive_line"],
)
def test_counters_hold_each_merge_once(
    hive_line: HiveJudge,
    line_database: str,
    write_lock: str,
    layout: str,
    merges: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All merges commit, and the result is that of some order of them.

    Each adds to random counters and returns their values as it saw them. In a serial order no two merges see
    the same value of a counter, so these values are 0, 1, 2 and so on, up to what Hive reads at the end.
    """
    name = f"{line_database}.counters"
    columns = (
        "(k int, n bigint) PARTITIONED BY (p int)" if layout == "partitioned" else "(k int, n bigint, p int)"
    )
    hive_line.sql(
        f"CREATE TABLE {name} {columns} CLUSTERED BY (k) INTO 2 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true')"
    )

    def add(tx: HiveTransaction, keys: list[int]) -> list[tuple[int, int]]:
        table = tx.table(name)
        there = table.scan(["k", "n"], where=pc.field("k").isin(keys)).to_arrow().to_pydict()
        seen = dict.fromkeys(keys, 0) | dict(zip(there["k"], there["n"], strict=True))
        partitions = pa.array([key % PARTITIONS for key in keys], pa.int32())
        rows = {"k": pa.array(keys, pa.int32()), "n": pa.array([1] * len(keys), pa.int64()), "p": partitions}
        merge = table.merge(pa.table(rows), on=["k", "p"])
        merge.when_matched_update({"n": pc.field("target", "n") + pc.field("source", "n")})
        merge.when_not_matched_insert_all().execute()
        return list(seen.items())

    def write(number: int) -> list[tuple[int, int]]:
        choice = random.Random(number)
        found: list[tuple[int, int]] = []
        attempts = Attempts(1000, max_pause_seconds=4.0)
        with connect(hive_line.uri, write_lock=write_lock) as hive:
            for _ in range(merges):
                keys = choice.sample(range(KEYS), choice.randint(1, 3))
                found += until_answered(
                    lambda keys=keys: hive.run(
                        lambda tx: add(tx, keys), name, attempts=attempts, create_partitions=True
                    )
                )
        return found

    with ThreadPoolExecutor(WRITERS) as pool:
        seen = [each for found in pool.map(write, range(WRITERS)) for each in found]
    assert "attempt 1 of 1000 failed" in caplog.text or write_lock == "exclusive"
    counts = Counter(key for key, _ in seen)
    assert hive_line.sql(f"SELECT k, n FROM {name} ORDER BY k") == [[k, n] for k, n in sorted(counts.items())]
    assert sorted(seen) == [(k, n) for k, count in sorted(counts.items()) for n in range(count)]
