"""Random histories at a source, with a dump and a load after random steps.

After each load the target has what the source has, ROW__IDs included; in the end its files are sound. Aborted
and dead transactions, compactions and what the cleaner removes come in between, as in the histories without
replication. If Hive hides rows after a first load (test_aborted_write_ids.py), one more commit, without rows,
is replicated first.
"""

from __future__ import annotations

import pytest

from mutation_api.upkeep.replication import replication_of
from tests.integration.replication.replicated import Replicated, commit_nothing
from tests.integration.transactions.history import in_order
from tests.integration.transactions.test_random_histories_lines import HistoryWithWriteIds
from tests.integration.upkeep.soundness import check_sound

pytestmark = [pytest.mark.slow, pytest.mark.long]

SEEDS = range(4501, 4521)
STEPS = 10


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("hive_notifying", ["4.1"], indirect=True)
def test_random_histories_reach_the_target(pair: Replicated, seed: int) -> None:
    """The model, the source and the target agree."""
    source, target = pair.source, pair.target
    history = HistoryWithWriteIds(source.judge, source.database, seed, source.metastore)
    history.create()
    is_first = True
    for number in range(STEPS):
        history.step()
        if number < STEPS - 1 and history.random.random() < 0.6:
            continue
        history.log.append("dump and load")
        hides = is_first and replication_of(source.metastore, source.database).tables[0].warning
        pair.cycle()
        if hides:
            history.log.append(f"commit of nothing: {hides}")
            commit_nothing(source, history.table)
            pair.cycle()
        is_first = False
        found = target.judge.table_rows(target.name(history.table))
        at_target = in_order((row.partition, row.row_id, row.values) for row in found)
        history.agree("the target", at_target, history.model.rows())
        assert target.count(history.table) == len(at_target), history.story()
    history.check()
    check_sound(target.metastore, target.name(history.table))
