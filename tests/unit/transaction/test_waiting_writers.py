"""Writers that wait for each other: when they ask again, and the queue of one machine."""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.capabilities import Capabilities
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.hive.connect import connect
from mutation_api.transaction import machine_queue
from mutation_api.transaction.clock import WAIT_LOG, SystemClock
from mutation_api.transaction.lock import (
    MAX_POLL_SECONDS,
    MIN_ASK_SECONDS,
    MIN_LOOK_OF_OTHERS_SECONDS,
    MIN_LOOK_SECONDS,
    Pace,
)
from mutation_api.transaction.machine_queue import (
    AT_ONCE,
    STILL_SECONDS,
    Place,
    few_at_once,
    in_turn,
    queue_up,
)
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_clock import FakeClock, wait_until

NAME = "default.t"
WRITERS = 6
ROWS = 5


def test_the_nearer_a_turn_the_sooner_it_looks() -> None:
    assert Pace(0.0, 0).pause(0.0) == MIN_ASK_SECONDS
    assert Pace(0.0, 1).pause(0.0) == MIN_LOOK_SECONDS
    assert Pace(0.0, 5).pause(0.0) == pytest.approx(5 * MIN_LOOK_OF_OTHERS_SECONDS)
    assert Pace(0.0, 1).pause(60.0) == pytest.approx(6.0)
    assert Pace(0.0, 5).pause(3600.0) == MAX_POLL_SECONDS


def test_a_queue_that_moves_is_looked_at_soon_again() -> None:
    pace = Pace(0.0, 3)
    pace.see(60.0, 3)
    assert pace.pause(60.0) == MAX_POLL_SECONDS
    pace.see(70.0, 1)
    assert pace.pause(70.0) == MIN_LOOK_SECONDS


@pytest.fixture
def queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of this test's queues, which need not be there yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"hive-mutation-api-{os.getuid()}"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No writer goes on to the metastore because a busy machine lets nothing move for a while."""
    monkeypatch.setattr(machine_queue, "STILL_SECONDS", math.inf)


def _waiting(queues: Path) -> int:
    """How many places of this process's writers are taken."""
    return sum(path.parent == queues for path, _ in list(machine_queue._taken))


@pytest.mark.usefixtures("patient")
def test_one_waits_for_the_other_in_turn(queues: Path) -> None:
    metastore, clock = InMemoryMetastore(), SystemClock()
    order: list[int] = []
    first = queue_up(metastore, [NAME], clock, math.inf)

    def wait(number: int) -> None:
        place = queue_up(metastore, [NAME], clock, math.inf)
        order.append(number)
        place.give_back()

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        wait_until(lambda: _waiting(queues) == len(threads) + 1, "the thread waits")
    assert order == []
    first.give_back()
    first.give_back()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2]
    assert list(queues.iterdir()) == [], "the last one removes the file"


def test_other_tables_and_metastores_have_queues_of_their_own(queues: Path) -> None:
    metastore, clock = InMemoryMetastore(), FakeClock()
    wanted = [(metastore, "default.t"), (metastore, "default.u"), (InMemoryMetastore(), "default.t")]
    places = [queue_up(where, [table], clock, clock.now() + 60) for where, table in wanted]
    assert len(list(queues.iterdir())) == len(wanted)
    assert clock.sleeps == []
    for place in places:
        place.give_back()


def _in_another_thread(metastore: InMemoryMetastore, clock: FakeClock, deadline: float) -> Place:
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        return other.submit(queue_up, metastore, [NAME], clock, deadline).result()


@pytest.mark.parametrize(("bound", "waits"), [(60, STILL_SECONDS), (1, 1)])
def test_who_sees_nothing_move_goes_to_the_metastore(queues: Path, bound: float, waits: float) -> None:
    metastore, clock = InMemoryMetastore(), FakeClock()
    started = clock.now()
    first = queue_up(metastore, [NAME], clock, started + bound)
    second = _in_another_thread(metastore, clock, started + bound)
    assert clock.now() - started == pytest.approx(waits, abs=0.01)
    assert second.tickets == []
    first.give_back()


@pytest.mark.usefixtures("patient")
def test_few_ask_a_metastore_for_locks_at_once(queues: Path) -> None:
    """Also for different tables; the others wait for their turn."""
    metastore, clock, mutex, goes_on = InMemoryMetastore(), SystemClock(), threading.Lock(), threading.Event()
    inside: set[int] = set()
    most = 0

    def ask(number: int) -> None:
        nonlocal most
        with few_at_once(metastore, clock):
            with mutex:
                inside.add(number)
                most = max(most, len(inside))
            goes_on.wait()
            with mutex:
                inside.remove(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3 * AT_ONCE)]
    for thread in threads:
        thread.start()
    wait_until(lambda: _waiting(queues) == len(threads), "all threads ask or wait")
    wait_until(lambda: len(inside) == AT_ONCE, "as many as may ask")
    goes_on.set()
    for thread in threads:
        thread.join()
    assert most == AT_ONCE
    assert list(queues.iterdir()) == []


def test_some_writers_need_not_wait(queues: Path) -> None:
    """Those who exclude each other are in another queue."""
    metastore, clock = InMemoryMetastore(), FakeClock()
    places = [queue_up(metastore, [NAME], clock, clock.now() + 60, at_once=at_once) for at_once in (1, 2, 2)]
    assert clock.sleeps == []
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        last = other.submit(queue_up, metastore, [NAME], clock, clock.now() + 1, at_once=2).result()
    assert last.tickets == []
    for place in places:
        place.give_back()


@pytest.mark.parametrize(("capabilities", "waits"), [(HIVE_3_1, 0), (HIVE_4_1, STILL_SECONDS)])
def test_descriptions_with_numbers_of_rows_are_read_in_turn(
    queues: Path, capabilities: Capabilities, waits: float
) -> None:
    metastore, clock = InMemoryMetastore(capabilities=capabilities), FakeClock()
    started = clock.now()
    with in_turn(metastore, ["default.u", NAME], clock):
        with in_turn(metastore, ["default.v"], clock), concurrent.futures.ThreadPoolExecutor(1) as other:
            other.submit(_describe, metastore, clock).result()
        assert clock.now() - started == pytest.approx(waits, abs=0.01)
    assert list(queues.iterdir()) == [] if queues.exists() else True


def _describe(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    with in_turn(metastore, [NAME], clock):
        pass


def test_who_may_not_ask_for_long_asks_all_the_same(queues: Path) -> None:
    metastore, clock = InMemoryMetastore(), FakeClock()
    with contextlib.ExitStack() as others:
        for _ in range(AT_ONCE):
            place = machine_queue.Place([machine_queue._take(f"{metastore.address}\nlocks")])
            others.callback(place.give_back)
        started = clock.now()
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            other.submit(_ask, metastore, clock).result()
        assert clock.now() - started == pytest.approx(STILL_SECONDS, abs=0.1)


def _ask(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    with few_at_once(metastore, clock):
        pass


def test_a_thread_does_not_wait_for_itself(queues: Path) -> None:
    """It would never come to the end of its first transaction; the metastore's error names that one."""
    metastore, clock = InMemoryMetastore(), FakeClock()
    places = [queue_up(metastore, [NAME], clock, clock.now() + 60) for _ in range(2)]
    assert clock.sleeps == []
    for place in places:
        place.give_back()


def test_a_forked_process_has_no_place(queues: Path) -> None:
    """Neither does it keep that of its parent."""
    metastore, clock = InMemoryMetastore(), FakeClock()
    place = queue_up(metastore, [NAME], clock, clock.now() + 60)
    (read, write), (waits, ends) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(write, bytes([len(machine_queue._taken)]))
        os.close(ends)
        os.read(waits, 1)
        os._exit(0)
    assert os.read(read, 1) == bytes([0])
    place.give_back()
    _in_another_thread(metastore, clock, clock.now() + 60).give_back()
    assert clock.sleeps == []
    os.close(ends)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for each in (read, write, waits):
        os.close(each)


DIES = """
import sys, os, types
from mutation_api.transaction.clock import SystemClock
from mutation_api.transaction.machine_queue import queue_up
queue_up(types.SimpleNamespace(address=sys.argv[1]), [sys.argv[2]], SystemClock(), 1e9)
print("has its place", flush=True)
sys.stdin.read()
"""


def test_a_process_that_dies_leaves_the_queue(queues: Path) -> None:
    """Until then a writer of another process waits for it."""
    metastore, clock = InMemoryMetastore(), FakeClock()
    command = [sys.executable, "-c", DIES, metastore.address, NAME]
    environment = {**os.environ, "TMPDIR": str(queues.parent)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has its place\n"
        queue_up(metastore, [NAME], clock, clock.now() + 60).give_back()
        assert sum(clock.sleeps) == pytest.approx(STILL_SECONDS, abs=0.01)
        process.kill()
    clock.sleeps.clear()
    queue_up(metastore, [NAME], clock, clock.now() + 60).give_back()
    assert clock.sleeps == []


@pytest.mark.parametrize("fault", ["link", "open to others", "no directory", "no locks"])
def test_without_a_safe_directory_there_is_no_queue(
    queues: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user could keep our writers waiting, or make us lock a file of ours."""
    if fault == "link":
        (queues.parent / "elsewhere").mkdir(mode=0o700)
        queues.symlink_to("elsewhere")
    elif fault == "open to others":
        queues.mkdir()
        queues.chmod(0o777)
    elif fault == "no directory":
        queues.write_text("")
    else:
        monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    metastore, clock = InMemoryMetastore(), FakeClock()
    place = queue_up(metastore, [NAME], clock, clock.now() + 60)
    assert place.tickets == []
    place.give_back()


def test_a_mutex_that_is_never_free_keeps_nobody(queues: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a process that was stopped while it entered the queue."""
    monkeypatch.setattr(machine_queue, "MUTEX_TRIES", 3)
    metastore, clock = InMemoryMetastore(), FakeClock()
    first = queue_up(metastore, [NAME], clock, clock.now() + 60)
    with open(next(queues.iterdir()), "r+b") as stopped:
        machine_queue._set(stopped.fileno(), fcntl.F_WRLCK, 0)
        assert queue_up(metastore, [NAME], clock, clock.now() + 60).tickets == []
    first.give_back()
    assert _waiting(queues) == 0


class _Moving(FakeClock):
    """Each sleep takes two seconds and lets one of the others leave."""

    def __init__(self, places: list[Place]) -> None:
        super().__init__()
        self._places = places

    def sleep(self, seconds: float) -> None:
        super().sleep(2.0)
        self._places.pop(0).give_back()


def test_a_long_wait_is_told_once(queues: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A queue that moves is not left, however long it takes."""
    caplog.set_level(logging.INFO, WAIT_LOG)
    metastore, clock = InMemoryMetastore(), FakeClock()
    places = [queue_up(metastore, [NAME], clock, clock.now() + 60) for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        mine = other.submit(queue_up, metastore, [NAME], _Moving(places), 1e9).result()
    assert len(mine.tickets) == 1
    mine.give_back()
    assert [each.getMessage() for each in caplog.records] == [
        f"table {NAME}: writers of this machine ahead of this one: 2"
    ]


@pytest.mark.thorough
@pytest.mark.usefixtures("patient")
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
