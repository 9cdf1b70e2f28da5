"""How often a small transaction calls the metastore, and how often it waits for an answer."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.measuring.counted_metastore import CountedMetastore
from judges.hive.judge import HiveJudge
from metastore_client.model import ColumnInfo
from mutation_api.hive.connect import connect
from mutation_api.transaction import catalog, heartbeat
from mutation_api.upkeep.create_acid_table import create_acid_table

MOST = {"2.3": 9, "3.1": 14, "4.1": 14, "4.2": 14}
"""Hive 3 has write ids and constraints, Hive 4 numbers of rows, too."""

MOST_WAITS = 11
"""With answers that are 100 ms late a commit takes a second longer, as one of them is then used again."""

pytestmark = [pytest.mark.slow, pytest.mark.tasks]


def _commits(metastore: _Waits, name: str) -> Iterator[None]:
    """Commit a row into a new table, twice; the caller looks at the calls of each."""
    create_acid_table(metastore, name, [ColumnInfo("id", "bigint")], clustered_by=["id"], num_buckets=1)
    with connect(metastore) as hive:
        for number in range(2):
            metastore.restart()
            with hive.transaction(name) as transaction:
                transaction.table(name).append(pa.table({"id": [number]}))
            yield


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_one_row(hive_line: HiveJudge, line_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that makes the calls of a transaction soon after each other, however long they take."""
    monkeypatch.setattr(catalog, "FRESH_SECONDS", 60.0)
    monkeypatch.setattr(heartbeat, "FRESH_SECONDS", 60.0)
    name = f"{line_database}.calls"
    with _Waits(hive_line.uri) as metastore:
        for _ in _commits(metastore, name):
            called = Counter(call.name for call in metastore.calls)
            assert called.total() <= MOST[hive_line.line], called
            assert called["get_table_req"] <= 2
    assert hive_line.sql(f"select count(*), sum(id) from {name}") == [[2, 1]]


class _Waits(CountedMetastore):
    """Counts the answers that a thread awaits one after the other; calls made together count as the longest.

    No time is measured, so a machine on which threads start late gives the same counts.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._of_thread = threading.local()

    def restart(self) -> None:
        """Forget the calls made so far, and the waits of this thread."""
        self.calls.clear()
        self._of_thread.count = 0

    @property
    def count(self) -> int:
        """The answers that this thread has awaited."""
        return getattr(self._of_thread, "count", 0)

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        """Make the calls as usual; each begins where the caller is."""
        begin, ends = self.count, [self.count]

        def counted(call: Callable[[], Any]) -> Any:
            before, self._of_thread.count = self.count, begin
            try:
                return call()
            finally:
                ends.append(self.count)
                self._of_thread.count = before

        results = super().together(*(functools.partial(counted, call) for call in calls))
        self._of_thread.count = max(ends)
        return results

    def _exchange_once(self, *request: Any) -> Any:
        self._of_thread.count = self.count + 1
        return super()._exchange_once(*request)


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_calls_that_do_not_need_each_other_wait_at_the_same_time(
    hive_line: HiveJudge, line_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if every answer is so late that none may be used a second time."""
    name = f"{line_database}.late"
    monkeypatch.setattr(catalog, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(heartbeat, "FRESH_SECONDS", 0.0)
    with _Waits(hive_line.uri) as metastore:
        for _ in _commits(metastore, name):
            assert 1 < metastore.count <= MOST_WAITS, metastore.calls
            assert metastore.count < len(metastore.calls), "none were made together"
    assert hive_line.sql(f"select count(*), sum(id) from {name}") == [[2, 1]]
