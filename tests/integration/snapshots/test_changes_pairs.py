"""The change feed between more than 2,000 pairs of positions of random histories, which Hive reads.

Each case is a history of its own. So a run may be split, and one that ended early goes on with the rest.
"""

from __future__ import annotations

import contextlib
import random

import pytest

from judges.hive.judge import HiveJudge
from mutation_api import Hive, connect
from mutation_api.hive.hive_transaction import HiveTransaction
from tests.integration.snapshots.test_changes_judged import Shop, State, applied, run_cleaner
from tests.unit.hive.test_changes import rows

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

POSITIONS = 13
"""Positions of a history; 78 pairs of them."""
SEEDS = range(100, 107)
"""With four layouts, 2,184 pairs."""


class History:
    """Random changes by Hive and by this library, with transactions that abort or commit much later."""

    def __init__(self, judge: HiveJudge, hive: Hive, database: str, seed: int, *, is_legacy: bool) -> None:
        self.judge, self.hive, self.rng = judge, hive, random.Random(seed)
        self.shop = Shop(judge, hive, database, self.rng, is_legacy=is_legacy)
        self.seen: list[tuple[str, State]] = []
        self.pairs = 0
        self._stack = contextlib.ExitStack()
        self._open: HiveTransaction | None = None

    def step(self) -> None:
        """One or two changes, or a compaction."""
        match self.rng.randrange(8):
            case 0:
                self._end_open()
                self.shop.compact("minor")
                if self.rng.random() < 0.5:
                    run_cleaner(self.judge)
            case 1 if self._open is None:
                tx = self.hive.transaction(*self.shop.names, create_partitions=True, insert_only=True)
                self._open = self._stack.enter_context(tx)
                for name in self.shop.names:
                    self._open.table(name).append(rows((self.rng.randrange(1000), "late", 2)))
            case 2:
                self._end_open()
            case 3:
                with self.hive.transaction(*self.shop.names, create_partitions=True) as tx:
                    tx.table(self.rng.choice(self.shop.names)).append(rows((-1, "aborted", 1)))
                    tx.abort()
        self.shop.step()

    def _end_open(self) -> None:
        self._stack.close()
        self._open = None

    def look(self) -> None:
        """Compare with the state at each earlier position, in one of the forms of a feed."""
        end = self.shop.state()
        for position, before in self.seen:
            options = self.rng.choice([{}, {"on": ["id"]}, {"net": True}])
            with self.hive.changes(*self.shop.names, since=position, **options) as feed:
                assert applied(before, list(feed)) == end, (position, options)
            self.pairs += 1
        self.seen.append((self.shop.position(), end))


@pytest.mark.parametrize(
    ("hive_line", "is_legacy"),
    [("2.3", False), ("2.3", True), ("3.1", False), ("4.1", False)],
    indirect=["hive_line"],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_of_positions(hive_line: HiveJudge, line_database: str, seed: int, is_legacy: bool) -> None:
    """State and feed equal the later state, whatever lies between."""
    with connect(hive_line.uri) as hive:
        history = History(hive_line, hive, line_database, seed, is_legacy=is_legacy)
        with history._stack:
            for _ in range(POSITIONS):
                history.step()
                history.look()
        assert history.pairs == POSITIONS * (POSITIONS - 1) // 2
