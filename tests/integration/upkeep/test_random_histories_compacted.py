"""Random histories with the library's compactor: a third of the steps compact, most of them by the library.

The model knows every ROW__ID, since few steps are SQL. It is compared with the library's snapshot after each
step, with Hive's row reader after each compaction by the library, and with both readers of Hive at the end.
``--histories 250`` tries 2,000 histories on four releases of Hive, on the local disk and on HDFS.
"""

from __future__ import annotations

import pytest

from judges.hive.judge import HiveJudge
from metastore_client import open_client
from metastore_client.model import CompactionType
from tests.integration.transactions.history import History, Step
from tests.integration.transactions.test_random_histories import HistoryOfHive2
from tests.integration.transactions.test_random_histories_lines import HistoryWithWriteIds

pytestmark = [pytest.mark.slow, pytest.mark.long]

STEPS_PER_HISTORY = 9
LINES = ("2.3", "3.1", "4.1")


class Compacted(History):
    """Adds to a history of a release that it compacts often."""

    share_compacted_here = 0.8
    compacted_here = False

    def steps(self) -> list[tuple[Step, int]]:
        return [
            (self.mutate, 10),
            (self.mutate_and_abort, 2),
            (self.die_after_publishing, 2),
            (self.sql_delete, 1),
            (self.compact, 7),
        ]

    def compact_here(self, name: str, kind: CompactionType) -> None:
        super().compact_here(name, kind)
        self.compacted_here = True

    def check_after_step(self) -> None:
        """Compare with the library's snapshot; if the library has compacted, also with Hive's reader."""
        expected = self.model.rows()
        self.agree("our snapshot", self.our_rows(), expected)
        if self.compacted_here:
            self.agree("Hive's row reader", self.hive_rows("row"), expected)
        self.compacted_here = False


class CompactedOfHive2(Compacted, HistoryOfHive2):
    """On Hive 2.3."""


class CompactedWithWriteIds(Compacted, HistoryWithWriteIds):
    """On Hive 3.1 and later."""


def _run(hive: HiveJudge, database: str, seed: int) -> None:
    with open_client(hive.uri) as metastore:
        kind = CompactedOfHive2 if hive.line == "2.3" else CompactedWithWriteIds
        history = kind(hive, database, seed, metastore)
        history.create()
        history.mutate()
        for _ in range(STEPS_PER_HISTORY):
            history.step()
            history.check_after_step()
        history.check()
        history.check_end()


@pytest.mark.parametrize(
    ("hive_line", "seed"), [(line, seed) for line in LINES for seed in range(3)], indirect=["hive_line"]
)
def test_random_histories_compacted(hive_line: HiveJudge, line_database: str, seed: int) -> None:
    """Model, snapshot and Hive's readers agree."""
    _run(hive_line, line_database, seed)


@pytest.mark.parametrize(
    ("storage", "line", "seed"), [("hdfs", line, seed) for line in (*LINES, "4.2") for seed in range(3)]
)
def test_random_histories_compacted_on_hdfs(
    hive_elsewhere: HiveJudge, database_elsewhere: str, seed: int
) -> None:
    """The same with the warehouse on HDFS, where empty directories exist."""
    _run(hive_elsewhere, database_elsewhere, seed)
