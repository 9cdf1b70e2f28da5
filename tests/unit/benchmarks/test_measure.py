"""Arithmetic of the benchmarks: counters, turns, ratios, and figures of earlier runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.measuring.measure import (
    Contestant,
    Ratio,
    Result,
    Usage,
    Watch,
    alternate,
    as_figures,
    compared,
    markdown_table,
    merged_cases,
    ratio_of,
    used_between,
)
from benchmarks.measuring.memory import OrphanWatch, parse_stat, process_tree
from tests.fixtures.fix_clock import WAIT_BOUND_SECONDS, wait_until

BUSY = "import time; end = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"


def usage(wall: float, **cpu: float) -> Usage:
    return Usage(wall, cpu, dict.fromkeys(cpu, 2**20), 3 * 2**20)


def test_stat_with_blanks_in_the_name() -> None:
    """User and system ticks count, and those of children that were awaited."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", "17", *["0"] * 9, *map(str, (ticks, 2 * ticks, 3 * ticks, 4 * ticks)), *["0"] * 30]
    assert parse_stat(f"4711 (a b) c) {' '.join(fields)}") == (17, 10.0)


def test_names_hold_below_a_process_too() -> None:
    """A process that we named gives its kind to its children; what nobody named is told by its program."""
    command = [sys.executable, "-c", "import subprocess as s; s.run(['sleep', '600'])"]
    with subprocess.Popen(command) as process:
        try:
            # the child is a copy of Python until it has become the other program
            wait_until(lambda: kinds_below(process.pid, {}) == ["", "python"], "the child")
            assert kinds_below(process.pid, {process.pid: "peer"}) == ["peer", "peer"]
        finally:
            for each in reversed(process_tree(process.pid)):
                os.kill(each.pid, 9)


def kinds_below(pid: int, names: dict[int, str]) -> list[str]:
    wanted = {process.pid for process in process_tree(pid)}
    return sorted(each.kind for each in process_tree(os.getpid(), names) if each.pid in wanted)


def test_a_child_that_has_ended_counts() -> None:
    """What an awaited child used is its parent's."""
    watch = Watch({})
    before = watch.cpu_seconds()
    subprocess.run([sys.executable, "-c", BUSY.format(seconds=0.3)], check=True)
    assert (
        used_between(before, watch.cpu_seconds())["driver"] >= 0.25
    )  # of 0.3; the system counts in hundredths


@pytest.mark.thorough
def test_a_child_whose_parent_died_first_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process awaits it; it counts up to when it was last seen."""
    is_done, is_seen, sample = threading.Event(), threading.Event(), OrphanWatch._sample

    def sample_and_tell(watch: OrphanWatch) -> None:
        was_done = is_done.is_set()
        sample(watch)
        if was_done:
            is_seen.set()

    monkeypatch.setattr(OrphanWatch, "_sample", sample_and_tell)
    child = f"import time\n{BUSY.format(seconds=0.5)}\nprint('done', flush=True)\ntime.sleep(600)"
    parent = f"import subprocess as s, sys\ns.run([sys.executable, '-c', {child!r}])"

    def run(number: int) -> None:
        with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"done\n"
            is_done.set()
            assert is_seen.wait(WAIT_BOUND_SECONDS)
            family = [each.pid for each in process_tree(process.pid)]
            for pid in family:
                os.kill(pid, 9)

    found = Watch({}).measured(Contestant("a", run, ("python",), tmp_path), 0)
    assert len(found.cpu_seconds) == 1
    assert found.cpu_seconds["python"] >= 0.45


@pytest.mark.thorough
def test_a_child_whose_end_is_ignored_counts(tmp_path: Path) -> None:
    """What it used before does not hide what others use after it."""
    child = f"import sys, time\nsys.stdin.readline()\n{BUSY}print(flush=True)\ntime.sleep(600)"
    parent = "\n".join(
        [
            "import signal, subprocess as s, sys",
            "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
            "for line in sys.stdin:",
            f"    worker = s.Popen([sys.executable, '-c', {child!r}.format(seconds=line)], "
            "stdin=s.PIPE, stdout=s.PIPE)",
            "    worker.stdin.write(b'\\n'), worker.stdin.flush(), worker.stdout.readline()",
            "    print(worker.pid, flush=True)",
        ]
    )
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def work(seconds: float) -> int:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        first = work(1.5)

        def run(number: int) -> None:
            os.kill(first, 9)
            work(0.3)

        try:
            found = Watch({}).measured(Contestant("a", run, ("python",), tmp_path), 0)
        finally:
            for each in reversed(process_tree(process.pid)):
                os.kill(each.pid, 9)
    assert 0.25 <= found.cpu_seconds["python"] <= 1.25


def test_a_task_is_measured(tmp_path: Path) -> None:
    """CPU of the kinds that work for the contestant, and bytes of new files only."""
    (tmp_path / "old").write_bytes(b"x" * 1000)

    def run(number: int) -> None:
        assert number == 3
        (tmp_path / "new").write_bytes(b"x" * 30)
        exec(BUSY.format(seconds=0.2))

    found = Watch({}).measured(Contestant("a", run, ("driver", "peer"), tmp_path), 3)
    assert found.written_bytes == 30
    assert found.wall_seconds >= 0.2
    assert found.cpu_seconds["driver"] >= 0.18  # counted in hundredths
    assert found.cpu_seconds["peer"] == 0  # no process has this name; a judge's Java may work at any time
    assert found.peak_bytes["driver"] > 2**20


def test_preparations_do_not_count(tmp_path: Path) -> None:
    """What a round needs is made before its counting begins; what Spark shuffled is the difference."""
    shuffled = iter([1000, 1700])
    rounds: list[int] = []

    def prepare(number: int) -> None:
        rounds.append(number)
        (tmp_path / "base").write_bytes(b"x" * 1000)

    contestant = Contestant(
        "a", lambda number: (tmp_path / "new").write_bytes(b"x" * 30), ("driver",), tmp_path, prepare
    )
    found = Watch({}, lambda: next(shuffled)).measured(contestant, 2)
    assert rounds == [2]
    assert found.written_bytes == 30
    assert found.shuffled_bytes == 700
    assert as_figures(Result("a", [found]))["shuffled_mib"] == round(700 / 2**20, 3)


def test_a_lost_process_counts_nothing() -> None:
    """A counter that went down gives 0; a kind that is new gives all it has."""
    assert used_between({"java": 5.0, "python": 2.0}, {"java": 7.5, "python": 1.0, "peer": 1.0}) == {
        "java": 2.5,
        "python": 0.0,
        "peer": 1.0,
    }


def test_turns_alternate_and_the_first_round_is_not_kept(tmp_path: Path) -> None:
    """A B A B; who fails takes no further part, and its failure is told."""
    turns: list[tuple[str, int]] = []

    def contestant(name: str, last: int) -> Contestant:
        def run(number: int) -> None:
            turns.append((name, number))
            if number == last:
                raise ValueError("no more")

        return Contestant(name, run, ("driver",), tmp_path)

    a, b = alternate([contestant("a", 9), contestant("b", 1)], 2, Watch({}), tell=lambda line: None)
    assert turns == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    assert (len(a.usages), a.failure) == (2, "")
    assert (len(b.usages), b.failure) == (0, "ValueError: no more")


def test_ratios_go_round_by_round() -> None:
    """Median, least and greatest of the ratios of rounds, not the ratio of medians."""
    assert ratio_of([1.0, 6.0, 2.0], [2.0, 3.0, 2.0]) == Ratio(1.0, 0.5, 2.0)
    assert str(Ratio(1.0, 0.5, 2.0)) == "1.00 (0.50 to 2.00)"
    with pytest.raises(ValueError, match="no round to compare"):
        ratio_of([], [1.0])


def test_figures_are_medians_and_ratios_of_all_kinds_together() -> None:
    """CPU is compared as the sum of all kinds."""
    ours = Result(
        "ours", [usage(1, java=2, python=1), usage(3, java=4, python=2), usage(2, java=3, python=0)]
    )
    theirs = Result("theirs", [usage(2, peer=3), usage(2, peer=3), usage(2, peer=6)])
    figures = as_figures(ours)
    assert figures["wall_seconds"] == 2
    assert figures["cpu_seconds"] == 3
    assert figures["cpu_seconds_by_kind"] == {"java": 3, "python": 1}
    assert figures["peak_mib_by_kind"] == {"java": 1, "python": 1}
    assert figures["written_mib"] == 3
    assert compared(ours, theirs) == {
        "wall": {"median": 1.0, "low": 0.5, "high": 1.5},
        "cpu": {"median": 1.0, "low": 0.5, "high": 2.0},
    }
    assert as_figures(Result("late", [], "ValueError: no")) == {"failure": "ValueError: no"}


def test_a_case_measured_again_replaces_the_old_one() -> None:
    """Cases of earlier runs stay."""
    old = [{"case": "a", "n": 1}, {"case": "b", "n": 1}]
    assert merged_cases(old, [{"case": "a", "n": 2}]) == [{"case": "b", "n": 1}, {"case": "a", "n": 2}]


def test_markdown() -> None:
    """A line for each row."""
    assert markdown_table(("a", "b"), [("x", 1)]) == "| a | b |\n| --- | --- |\n| x | 1 |\n"
