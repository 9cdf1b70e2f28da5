"""The benchmark of many partitions: what a commit does beside its calls."""

from __future__ import annotations

import contextlib

from benchmarks.many_partitions import Ours, case_of, partition_values
from benchmarks.measuring.counted_metastore import Call
from benchmarks.measuring.measure import Result, Usage


def test_partitions_come_in_the_order_of_their_names() -> None:
    """A coordinator is given one after the other, and no name twice."""
    values = partition_values(10_000)
    assert len(set(values)) == 10_000
    assert sorted(values) == values


def test_own_share_is_of_the_measured_rounds() -> None:
    """What is not spent in calls, by what is; the round that warmed up does not count."""
    with contextlib.ExitStack() as stack:
        ours = Ours("thrift://127.0.0.1:1", 5, stack)
        ours.calls = [[Call("lock", 50.0)], [Call("lock", 1.0), Call("commit_txn", 1.0)]]
        results = [
            Result(name, [Usage(wall, {"driver": 1.0}, {"driver": 1}, 0)])
            for name, wall in (("ours", 2.1), ("bare", 2.0))
        ]
        case = case_of(5, results, ours, is_equal=True)
    assert round(case["own_share"], 6) == 0.05
    assert "takes 5.0% of their time" in case["text"]
    assert case["ratios"]["ours / bare"]["wall"]["median"] == 1.05
    assert case["is_equal"]
