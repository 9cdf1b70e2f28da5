"""How often a small transaction calls the metastore, and how often it waits for an answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.measuring.counted_metastore import Call, CountedMetastore
from judges.hive.judge import HiveJudge
from metastore_client.model import ColumnInfo
from mutation_api.hive.connection import connect
from mutation_api.upkeep.create_acid_table import create_acid_table

MOST = {"2.3": 9, "3.1": 14, "4.1": 14, "4.2": 14}
"""Hive 3 has write ids and constraints, Hive 4 numbers of rows, too."""

MOST_WAITS = 10
"""With answers that are 100 ms late a commit takes a second longer at most."""
LATE_SECONDS = 0.2

pytestmark = [pytest.mark.slow, pytest.mark.tasks]


def _commits(metastore: CountedMetastore, name: str) -> Iterator[None]:
    """Commit a row into a new table, twice; the caller looks at the calls of each."""
    create_acid_table(metastore, name, [ColumnInfo("id", "bigint")], clustered_by=["id"], num_buckets=1)
    with connect(metastore) as hive:
        for number in range(2):
            metastore.calls.clear()
            with hive.transaction(name) as transaction:
                transaction.table(name).append(pa.table({"id": [number]}))
            yield


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_one_row(hive_line: HiveJudge, line_database: str) -> None:
    name = f"{line_database}.calls"
    with CountedMetastore(hive_line.uri) as metastore:
        for _ in _commits(metastore, name):
            called = Counter(call.name for call in metastore.calls)
            assert called.total() <= MOST[hive_line.line], called
            assert called["get_table_req"] <= 2
    assert hive_line.sql(f"select count(*), sum(id) from {name}") == [[2, 1]]


class _LateMetastore(CountedMetastore):
    """Its answers are late."""

    def _exchange_once(self, *request: Any) -> Any:
        time.sleep(LATE_SECONDS)
        return super()._exchange_once(*request)


def _waits(calls: list[Call]) -> int:
    """How many calls are made one after the other."""
    count, free_at = 0, 0.0
    for call in sorted(calls, key=lambda each: each.started + each.seconds):
        if call.started >= free_at:
            count, free_at = count + 1, call.started + call.seconds
    return count


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_late_answers(hive_line: HiveJudge, line_database: str) -> None:
    """Calls that do not need each other wait at the same time."""
    name = f"{line_database}.late"
    with _LateMetastore(hive_line.uri) as metastore:
        for _ in _commits(metastore, name):
            assert _waits(metastore.calls) <= MOST_WAITS, metastore.calls
    assert hive_line.sql(f"select count(*), sum(id) from {name}") == [[2, 1]]
