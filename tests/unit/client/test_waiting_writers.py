"""Writers that wait for each other: when they ask again, and the queue of one process."""

from __future__ import annotations

import functools
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.client import local_queue
from mutation_api.client.clock import SystemClock
from mutation_api.client.local_queue import MAX_WAIT_SECONDS, Place, queue_up
from mutation_api.client.lock import MAX_POLL_SECONDS, MIN_LOOK_SECONDS, MIN_POLL_SECONDS, Pace
from mutation_api.hive.connection import connect
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_clock import FakeClock, wait_until

NAME = "default.t"
WRITERS = 6
ROWS = 5


def test_the_nearer_a_turn_the_sooner_it_asks() -> None:
    assert Pace(0.0, 1).pause(0.0) == MIN_POLL_SECONDS
    assert Pace(0.0, 5).pause(0.0) == pytest.approx(5 * MIN_LOOK_SECONDS)
    assert Pace(0.0, 1).pause(60.0) == pytest.approx(6.0)
    assert Pace(0.0, 5).pause(3600.0) == MAX_POLL_SECONDS


def test_a_queue_that_moves_is_asked_soon_again() -> None:
    pace = Pace(0.0, 3)
    pace.see(60.0, 3)
    assert pace.pause(60.0) == MAX_POLL_SECONDS
    pace.see(70.0, 1)
    assert pace.pause(70.0) == MIN_POLL_SECONDS


def test_one_waits_for_the_other_in_turn() -> None:
    metastore, clock = InMemoryMetastore(), SystemClock()
    order: list[int] = []
    first = queue_up(metastore, [NAME], clock, clock.now() + 60)

    def wait(number: int) -> None:
        place = queue_up(metastore, [NAME], clock, clock.now() + 60)
        order.append(number)
        place.give_back()

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        wait_until(functools.partial(_has_waiting, metastore, number + 2), "the thread waits")
    assert order == []
    first.give_back()
    first.give_back()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2]
    assert _waiting(metastore) == []


def _has_waiting(metastore: InMemoryMetastore, count: int) -> bool:
    return len(_waiting(metastore)) == count


def _waiting(metastore: InMemoryMetastore) -> list[object]:
    with local_queue._mutex:
        return list(local_queue._queues.get((id(metastore), NAME), ()))


@pytest.mark.parametrize(("deadline", "waits"), [(60, MAX_WAIT_SECONDS), (1, 1)])
def test_the_wait_is_bounded(deadline: float, waits: float) -> None:
    metastore, clock = InMemoryMetastore(), FakeClock()
    first = queue_up(metastore, [NAME], clock, clock.now() + deadline)
    second: list[Place] = []
    thread = threading.Thread(
        target=lambda: second.append(queue_up(metastore, [NAME], clock, clock.now() + deadline))
    )
    thread.start()
    clock.wait_for_waiters(1)
    clock.advance(waits * 0.9)
    assert second == []
    clock.advance(waits * 0.2)
    thread.join()
    assert second[0].tables == []
    first.give_back()


def test_a_thread_does_not_wait_for_itself() -> None:
    """It would never come to the end of its first transaction; the metastore's error names that one."""
    metastore, clock = InMemoryMetastore(), FakeClock()
    places = [queue_up(metastore, [NAME], clock, clock.now() + 60) for _ in range(2)]
    assert clock.now() == FakeClock().now()
    for place in places:
        place.give_back()


def test_a_forked_process_begins_anew() -> None:
    metastore, clock = InMemoryMetastore(), SystemClock()
    place = queue_up(metastore, [NAME], clock, clock.now() + 60)
    child = os.fork()
    if not child:
        os._exit(len(_waiting(metastore)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    place.give_back()


def test_threads_of_one_connection_need_no_second_transaction(tmp_path: Path) -> None:
    """Their commits follow one another as those of one writer do, and all rows are there."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    create_acid_table(metastore, NAME, [ColumnInfo("id", "bigint")], clustered_by=["id"], num_buckets=1)
    errors: list[BaseException] = []
    roll_overs: list[int] = []
    with connect(metastore) as hive:

        def work(writer: int) -> None:
            try:
                for number in range(ROWS):
                    with hive.transaction(NAME) as transaction:
                        transaction.table(NAME).append(pa.table({"id": [writer * ROWS + number]}))
                    roll_overs.append(transaction.summary.roll_overs)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert roll_overs == [0] * (WRITERS * ROWS)
        with hive.snapshot(NAME) as snapshot:
            found = snapshot.table(NAME).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(WRITERS * ROWS))
    assert metastore.show_locks() == []
