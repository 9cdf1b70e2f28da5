"""Work side by side: order, errors and bounds."""

from __future__ import annotations

import threading

import pytest

from mutation_api.storage.side_by_side import Closing, side_by_side


def test_results_come_in_the_order_of_the_items() -> None:
    """Whoever is done first."""
    first, second = threading.Event(), threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert second.wait(10)
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


def test_closing_waits_for_all() -> None:
    """Finish returns when the last one is closed."""
    closed: list[int] = []
    closing = Closing()
    for number in range(20):
        closing.submit(lambda n=number: closed.append(n), 4)
    closing.finish()
    assert sorted(closed) == [*range(20)]


def test_more_than_a_few_have_to_wait() -> None:
    """What waits to be closed holds memory."""
    go_on = threading.Event()
    closing, submitted = Closing(), []

    def submit_all() -> None:
        for number in range(10):
            closing.submit(lambda: go_on.wait(10), 1)
            submitted.append(number)

    writer = threading.Thread(target=submit_all)
    writer.start()
    writer.join(0.3)
    assert writer.is_alive()
    assert len(submitted) == 2
    go_on.set()
    writer.join(10)
    closing.finish()
    assert len(submitted) == 10


def test_a_failed_close_stops_the_writer() -> None:
    """At the next file, or at the end."""

    def fail() -> None:
        raise OSError("no space")

    closing = Closing()
    closing.submit(fail, 1)
    with pytest.raises(OSError, match="no space"):
        closing.finish()


def test_stop_drops_what_has_not_begun() -> None:
    """An abort does not wait for closes that nobody needs; stopping twice is fine."""
    go_on, closed = threading.Event(), []
    closing = Closing()
    closing.submit(lambda: go_on.wait(10) and closed.append(1), 1)
    closing.submit(lambda: closed.append(2), 1)
    threading.Timer(0.2, go_on.set).start()
    closing.stop()
    closing.stop()
    assert closed == [1]
