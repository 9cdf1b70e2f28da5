"""R5: a bootstrap dump while transactions of ours are open, and what their clients hear."""

from __future__ import annotations

import threading
import time

import pytest

from mutation_api.errors import LockLostError, TransactionAbortedError
from mutation_api.hive.connect import connect
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_judge import new_database
from tests.integration.replication.replicated import COLUMNS, Replicated, rows

pytestmark = [pytest.mark.slow, pytest.mark.long]
hive_4 = pytest.mark.parametrize("hive_notifying", ["4.1"], indirect=True)

NOT_AT_ALL = {"hive.repl.bootstrap.dump.open.txn.timeout": "0s"}
ONE_LOOK = {"hive.repl.bootstrap.dump.open.txn.timeout": "20s", "hive.in.repl.test": "true"}
"""Between two looks at the open transactions a dump sleeps five minutes, however short the timeout is; with
Hive's own setting for tests half a minute."""
ONE_SLEEP_SECONDS = 30
USUAL_SLEEP_SECONDS = 300


@hive_4
def test_r5_what_is_open_after_the_timeout_is_aborted(pair: Replicated) -> None:
    """It hears so at its next step, and comes again; transactions of other databases live on."""
    source = pair.source
    source.create("flat")
    source.append("flat", 1)
    with new_database(source.judge) as other, connect(source.judge.uri) as hive:
        create_acid_table(source.metastore, f"{other}.t", COLUMNS)
        elsewhere = hive.transaction(f"{other}.t").begin()
        elsewhere.table(f"{other}.t").append(rows(1))
        here = hive.transaction(source.name("flat")).begin()
        here.table(source.name("flat")).append(rows(2))
        pair.dump(NOT_AT_ALL)
        with pytest.raises((TransactionAbortedError, LockLostError)):
            here.commit()
        elsewhere.commit()
    pair.load()
    pair.check()
    assert [row.values[0] for row in pair.target.rows("flat")] == [1]
    source.append("flat", 2)
    pair.cycle()
    pair.check()


@hive_4
def test_r5_a_dump_waits_for_what_is_open(on_one_metastore: Replicated) -> None:
    """It takes what was committed meanwhile; after the timeout it looks no more."""
    source, pair = on_one_metastore.source, on_one_metastore
    source.create("flat")
    here = source.hive.transaction(source.name("flat"), insert_only=True).begin()
    here.table(source.name("flat")).append(rows(1))
    begun = time.monotonic()
    dump = threading.Thread(target=pair.dump, args=(ONE_LOOK,))
    dump.start()
    time.sleep(ONE_SLEEP_SECONDS / 2)  # it has looked by now, and sleeps
    here.commit()
    assert dump.is_alive()
    dump.join()
    assert ONE_SLEEP_SECONDS - 5 < time.monotonic() - begun < USUAL_SLEEP_SECONDS
    pair.load()
    pair.check()
    assert [row.values[0] for row in pair.target.rows("flat")] == [1]
    source.append("flat", 2)
    pair.cycle()
    pair.check()
