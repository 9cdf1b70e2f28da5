"""Work in parallel: order, errors and bounds."""

from __future__ import annotations

import threading

import pytest

from mutation_api.storage.tree import BACKGROUND_BYTES, Background, side_by_side
from tests.fixtures.fix_clock import WAIT_BOUND_SECONDS as BOUND_SECONDS


class Watched(threading.Condition):
    """A condition that reports that somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.is_awaited.set()
        return super().wait(timeout)


def test_results_come_in_the_order_of_the_items() -> None:
    """In any order of completion."""
    first, second = threading.Event(), threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert second.wait(BOUND_SECONDS)
        else:
            second.set()
        return number * 10

    assert side_by_side(work, [0, 1], 2) == [0, 10]
    assert not first.is_set()


def test_the_first_error_is_raised_when_all_were_tried() -> None:
    """Otherwise files would be left behind half way."""
    tried = []

    def work(number: int) -> None:
        tried.append(number)
        if number in (1, 2):
            raise OSError(number)

    with pytest.raises(OSError, match="1"):
        side_by_side(work, range(5), 2)
    assert sorted(tried) == [0, 1, 2, 3, 4]


def test_finish_waits_for_all() -> None:
    """Finish returns when the last one is closed."""
    closed: list[int] = []
    background = Background()
    for number in range(20):
        background.submit(lambda n=number: closed.append(n), 0, 4)
    background.finish()
    assert sorted(closed) == [*range(20)]


@pytest.mark.parametrize(
    ("byte_count", "threads", "room"),
    [(0, 3, 3), (BACKGROUND_BYTES // 5, 8, 5), (10 * BACKGROUND_BYTES, 8, 4), (BACKGROUND_BYTES // 4, 2, 2)],
)
def test_more_than_a_few_have_to_wait(byte_count: int, threads: int, room: int) -> None:
    """Files that are not closed hold memory, large ones only a part of their size."""
    go_on = threading.Event()
    background, submitted = Background(), []
    background._changed = watched = Watched()

    def submit_all() -> None:
        for number in range(10):
            background.submit(lambda: go_on.wait(BOUND_SECONDS), byte_count, threads)
            submitted.append(number)

    writer = threading.Thread(target=submit_all)
    writer.start()
    assert watched.is_awaited.wait(BOUND_SECONDS)
    assert len(submitted) == room
    go_on.set()
    writer.join(BOUND_SECONDS)
    background.finish()
    assert len(submitted) == 10


def test_a_failed_close_stops_the_writer() -> None:
    """At the next file, or at the end."""

    def fail() -> None:
        raise OSError("no space")

    background = Background()
    background.submit(fail, 0, 1)
    with pytest.raises(OSError, match="no space"):
        background.finish()


def test_stop_waits_for_what_runs() -> None:
    """An abort deletes the files then; stopping twice is fine."""
    go_on, closed = threading.Event(), []
    background = Background()
    background.submit(lambda: go_on.wait(BOUND_SECONDS) and closed.append(1), 0, 2)
    threading.Timer(0.2, go_on.set).start()
    background.stop()
    background.stop()
    assert closed == [1]
