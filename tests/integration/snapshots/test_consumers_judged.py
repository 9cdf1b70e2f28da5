"""A consumer that dies between any two steps has written each change exactly once, as real Hive reads it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api import Hive, connect
from tests.integration.ingests.mortal import Died, Mortal, bury

pytestmark = pytest.mark.slow

USER = "mortal"
DEATHS = 12
"""In the long run; the default run has every third of them."""


class Log:
    """A table that Hive changes, and a table of its changes that a consumer writes."""

    def __init__(self, judge: HiveJudge, database: str) -> None:
        self.judge = judge
        self.orders, self.log = f"{database}.orders", f"{database}.log"
        properties = (
            "STORED AS ORC TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default')"
        )
        for name, columns in ((self.orders, "id bigint, item string"), (self.log, "id bigint, what string")):
            judge.sql(f"CREATE TABLE {name} ({columns}) CLUSTERED BY (id) INTO 1 BUCKETS {properties}")
        self._number = 0

    def change(self) -> None:
        """Three transactions of Hive."""
        self._number += 1
        self.judge.sql(f"INSERT INTO {self.orders} VALUES ({self._number}, 'a'), ({-self._number}, 'b')")
        self.judge.sql(f"UPDATE {self.orders} SET item = concat(item, 'u') WHERE id = {self._number}")
        self.judge.sql(f"DELETE FROM {self.orders} WHERE id = {-self._number}")

    def consume(self, hive: Hive) -> None:
        """Write all changes to the log, transaction by transaction."""
        with hive.changes(self.orders, consumer="log", since="now") as feed:
            for transaction in feed:
                with hive.transaction(self.log, feed.watermark_table) as tx:
                    tx.table(self.log).append(_logged(transaction.tables[self.orders].to_arrow()))
                    feed.commit(tx)

    def written(self) -> list[list[Any]]:
        """What Hive reads from the log."""
        return sorted(self.judge.sql(f"SELECT id, what FROM {self.log}"))

    def expected(self) -> list[list[Any]]:
        """The changes so far."""
        found: list[list[Any]] = []
        for number in range(1, self._number + 1):
            found += [[number, "insert a"], [-number, "insert b"], [number, "delete a"]]
            found += [[number, "insert au"], [-number, "delete b"]]
        return sorted(found)


def _logged(changes: pa.Table) -> pa.Table:
    rows = changes.to_pylist()
    what = [f"{row['_change']} {row['item']}" for row in rows]
    return pa.table({"id": pa.array([row["id"] for row in rows], pa.int64()), "what": what})


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_a_consumer_that_dies_writes_each_change_once(
    hive_line: HiveJudge, line_database: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two calls to the metastore or changes of files; the next run goes on."""
    log = Log(hive_line, line_database)
    with open_client(hive_line.uri) as metastore:
        with connect(metastore, user=USER) as hive:
            log.consume(hive)
        log.change()
        mortal = Mortal(metastore)
        with mortal.at_files(monkeypatch), connect(mortal, user=USER) as hive:  # type: ignore[arg-type]
            log.consume(hive)
        assert log.written() == log.expected()
        count = len(mortal.steps)
        for last in range(2 + part, count, max(1, 3 * count // DEATHS)):
            log.change()
            mortal = Mortal(metastore, last)
            with mortal.at_files(monkeypatch), pytest.raises(Died):
                log.consume(connect(mortal, user=USER))  # type: ignore[arg-type]
            bury(metastore, USER)
            with connect(metastore, user=USER) as hive:
                log.consume(hive)
            assert log.written() == log.expected(), f"died before step {last} of {count}"
