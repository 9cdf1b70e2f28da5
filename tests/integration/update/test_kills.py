"""Extraction in a loop, killed again and again, while several writers change the source; real Hive reads the
result.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.errors import NoSuchTxnError, TxnAbortedError
from metastore_client.model import TxnState
from metastore_client.remote.thrift_client import open_client
from mutation_api.format.hive_type import parse_hive_type
from tests.fixtures.fix_clock import wait_until
from tests.fixtures.fix_judge import LINES, new_database
from tests.integration.files.hive_values import read_back, shown
from tests.integration.update.conftest import KINDS
from tests.integration.update.extracting_process import Mortals
from tests.integration.update.order_table import COLUMNS, CREATE, DAY, in_order, source_rows, statement
from tests.integration.upkeep.soundness import check_sound
from tests.support.shops import Shop, Source

pytestmark = pytest.mark.slow

KILLS = 3
MANY_KILLS = {"2.3": 50, "3.1": 25, "4.1": 50, "4.2": 25}
"""By release, of each kind of source: 200 and more without 4.2."""
WRITERS = 3
LONGEST_LIFE_SECONDS = 0.8
LONG_TIMEOUT_SECONDS = 3600

_numbers = itertools.count(1)


@pytest.mark.parametrize(
    ("source", "hive_line"), [("postgresql", "4.1"), ("mysql", "2.3")], indirect=["source", "hive_line"]
)
def test_g4_killed_anywhere_and_repeated_the_table_is_the_same(source: Source, hive_line: HiveJudge) -> None:
    """PostgreSQL to Hive 4, MariaDB to Hive 2.3."""
    _judge_kills(source, hive_line, KILLS, seed=1)


@pytest.mark.feature("incremental update from a database")
@pytest.mark.long
@pytest.mark.timeout(LONG_TIMEOUT_SECONDS)
@pytest.mark.parametrize("hive_line", LINES, indirect=True)
@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_g4_many_kills(source: Source, hive_line: HiveJudge) -> None:
    """The same, 250 times on 2.3, 3.1 and 4.1, and 50 times on 4.2."""
    _judge_kills(source, hive_line, MANY_KILLS[hive_line.line], seed=2)


def _judge_kills(source: Source, judge: HiveJudge, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    source.run(CREATE[source.kind])
    with ExitStack() as stack:
        database = stack.enter_context(new_database(judge))
        metastore = stack.enter_context(open_client(judge.uri))
        mortals = stack.enter_context(Mortals())
        shop = Shop(source, metastore, database, COLUMNS, DAY)
        source.run(*[statement(rng, source.kind) for _ in range(30)])
        shop.enable()
        with _writers(source, seed) as written:
            for _ in range(kills):
                _kill_one(mortals, shop, judge, rng)
            wait_until(lambda: next(written) > kills, "as many transactions as kills")
        shop.extract()
        assert shop.extract().ingested.position is None
        expected = source_rows(source)
        assert in_order([tuple(row.values()) for row in shop.rows()]) == expected
        assert expected
        assert _hive_rows(judge, shop) == sorted((_as_shown(row) for row in expected), key=str)
        assert check_sound(metastore, shop.table).row_count == len(expected)


def _kill_one(mortals: Mortals, shop: Shop, judge: HiveJudge, rng: random.Random) -> None:
    """Let a process extract again and again, kill it at any moment, and do at once what the server does
    later.
    """
    user = f"mortal{next(_numbers)}"
    process = mortals.begin(judge.uri, shop.table, shop.source.password, shop.source.url, user)
    time.sleep(rng.uniform(0.02, LONGEST_LIFE_SECONDS))
    mortals.kill(process)
    for txn in shop.metastore.get_open_txns().txns:
        if txn.user == user and txn.state is TxnState.OPEN:
            try:
                shop.metastore.abort_txn(txn.id)
            except (NoSuchTxnError, TxnAbortedError):
                continue  # its last words reached the server after all


@contextmanager
def _writers(source: Source, seed: int) -> Iterator[Iterator[int]]:
    """Threads with transactions of several statements, some of which wait, fail or are rolled back."""
    stop = threading.Event()
    counts = [0] * WRITERS

    def write(number: int) -> None:
        rng = random.Random(seed * 100 + number)
        while not stop.is_set():
            session = source.session()
            try:
                cursor = session.cursor()
                for _ in range(rng.randrange(1, 5)):
                    cursor.execute(statement(rng, source.kind))
                    stop.wait(rng.choice((0.0, 0.0, 0.02, 0.3)))
                if rng.random() < 0.2:
                    session.rollback()
                else:
                    session.commit()
                    counts[number] += 1
            except Exception as error:  # deadlocks and duplicate keys are the databases' business
                assert _is_of_driver(error), error
            finally:
                session.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield (sum(counts) for _ in itertools.count())
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _is_of_driver(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] in ("psycopg", "pymysql", "sqlite3")


def _hive_rows(judge: HiveJudge, shop: Shop) -> list[list[Any]]:
    kinds = [parse_hive_type(column.type) for column in (*COLUMNS, DAY)]
    found = judge.table_rows(shop.table, row_ids=False, reader="row")
    rows = [[*row.values, row.partition.partition("=")[2]] for row in found]
    return sorted(
        ([read_back(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in rows), key=str
    )


def _as_shown(row: tuple[Any, ...]) -> list[Any]:
    kinds = [parse_hive_type(column.type) for column in (*COLUMNS, DAY)]
    return [shown(value, kind) for value, kind in zip(row, kinds, strict=True)]
