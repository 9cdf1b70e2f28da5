"""Common parts of comparisons: contestants in turn, their usage by kind of process, ratios, saved results.

A contestant is a callable that does one task. It works in this process, below it (Spark's JVM and workers) or
in a separate process that stays up. The kernel's counters show what a task used, threads and ended children
included. Linux only.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.memory import OrphanWatch, ProcessEntry, peak_bytes, process_tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame  # most benchmarks do without Spark

_RESET_PEAK = "5"
"""Written to clear_refs it sets a process's peak resident set back to what it holds now; see proc(5)."""


@dataclass(frozen=True)
class Usage:
    """What one task used.

    ``cpu_seconds`` and ``peak_bytes`` go by kind of process: ``driver`` (this process), ``java``, ``python``
    (Spark's workers), or a given name. A kind's peak is that of its largest process. ``written_bytes`` is
    the size of the files that are in the contestant's folder afterwards and were not before.
    ``shuffled_bytes`` is what Spark's tasks wrote for others to read; None if it was not counted.
    """

    wall_seconds: float
    cpu_seconds: Mapping[str, float]
    peak_bytes: Mapping[str, int]
    written_bytes: int
    shuffled_bytes: int | None = None

    @property
    def total_cpu_seconds(self) -> float:
        """Of all kinds together."""
        return sum(self.cpu_seconds.values())


def _nothing(number: int) -> None:
    """The preparation of a contestant that needs none."""


@dataclass(frozen=True)
class Contestant:
    """A contestant, which does the task of a round.

    Attributes:
        name: in the results.
        run: does the task of the round with this number.
        kinds: kinds of processes that work for it; others are not counted.
        folder: where its table lies.
        prepare: makes everything ready for the round with this number; not measured.
    """

    name: str
    run: Callable[[int], object]
    kinds: tuple[str, ...]
    folder: Path
    prepare: Callable[[int], object] = _nothing


@dataclass
class Result:
    """The result of one contestant: usage of each measured round, or the failure."""

    name: str
    usages: list[Usage] = field(default_factory=list)
    failure: str = ""


@dataclass(frozen=True)
class Ratio:
    """Ours divided by theirs, round by round."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


class Watch:
    """Counters of this process and all below it.

    Args:
        names: kinds of processes that their program does not show, by process id; processes below them have
            their kind, too.
        shuffled_bytes: returns how much Spark has shuffled since its start; None if it is not counted.
    """

    def __init__(
        self, names: Mapping[int, str], shuffled_bytes: Callable[[], int | None] = lambda: None
    ) -> None:
        self._names = dict(names)
        self._shuffled_bytes = shuffled_bytes

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds by kind since the processes began, ended and awaited children included."""
        return _seconds_by_kind(self._processes())

    def reset_peaks(self) -> None:
        """Let :meth:`peak_bytes` count from now."""
        for process in self._processes():
            with contextlib.suppress(OSError):
                Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK)

    def peak_bytes(self) -> dict[str, int]:
        """Highest resident set of any one process of a kind."""
        peaks: dict[str, int] = {}
        for process in self._processes():
            peaks[process.kind] = max(peaks.get(process.kind, 0), peak_bytes(process.pid))
        return peaks

    def measured(self, contestant: Contestant, number: int) -> Usage:
        """Let a contestant do the task of a round, prepared before the counting begins."""
        contestant.prepare(number)
        before_files = _file_sizes(contestant.folder)
        shuffled_before = self._shuffled_bytes()
        self.reset_peaks()
        before = self.cpu_seconds()
        started = time.monotonic()
        with OrphanWatch(self._processes) as watch:
            contestant.run(number)
        wall_seconds = time.monotonic() - started
        used = used_between(before, _seconds_by_kind([*self._processes(), *watch.orphans()]))
        peaks = self.peak_bytes()
        written = {p: n for p, n in _file_sizes(contestant.folder).items() if p not in before_files}
        kinds = contestant.kinds
        return Usage(
            wall_seconds,
            {kind: used.get(kind, 0.0) for kind in kinds},
            {kind: peaks.get(kind, 0) for kind in kinds},
            sum(written.values()),
            None if shuffled_before is None else (self._shuffled_bytes() or 0) - shuffled_before,
        )

    def _processes(self) -> list[ProcessEntry]:
        return process_tree(os.getpid(), self._names)


def _seconds_by_kind(processes: Iterable[ProcessEntry]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for process in processes:
        seconds[process.kind] = seconds.get(process.kind, 0.0) + process.cpu_seconds
    return seconds


def used_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Difference of two counters by kind; never less than 0, though a process may vanish unawaited."""
    return {kind: max(0.0, seconds - before.get(kind, 0.0)) for kind, seconds in after.items()}


def alternate(
    contestants: Sequence[Contestant],
    rounds: int,
    watch: Watch,
    *,
    warm_up: int = 1,
    tell: Callable[[str], None] = print,
) -> list[Result]:
    """Let contestants take turns: A B A B. The first rounds warm up and are not kept.

    A contestant that fails takes no further part; the failure is in its result.

    Args:
        contestants: in their order.
        rounds: number of measured rounds.
        watch: counts the usage.
        warm_up: unmeasured rounds before; the first of them has number 0.
        tell: called with a line after each turn.
    """
    results = [Result(contestant.name) for contestant in contestants]
    for number in range(warm_up + rounds):
        for contestant, result in zip(contestants, results, strict=True):
            if result.failure:
                continue
            try:
                usage = watch.measured(contestant, number)
            except Exception as error:  # whatever a peer raises is its result
                result.failure = f"{type(error).__name__}: {error}"
                tell(f"  {contestant.name}: failed: {result.failure[:300]}")
                continue
            if number >= warm_up:
                result.usages.append(usage)
            kinds = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in usage.cpu_seconds.items())
            tell(
                f"  {f'round {number}' if number >= warm_up else 'warm-up'}, {contestant.name}: "
                f"wall {usage.wall_seconds:.2f} s, CPU {usage.total_cpu_seconds:.2f} s ({kinds})"
            )
    return results


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Ratios of the rounds that both have; each round had the same task for both.

    Raises ValueError if there is none.
    """
    ratios = [a / b for a, b in zip(ours, theirs, strict=False)]
    if not ratios:
        raise ValueError("no round to compare")
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def as_figures(result: Result) -> dict[str, Any]:
    """A contestant's result for JSON: medians, and the usage of each round."""
    if not result.usages:
        return {"failure": result.failure}
    usages = result.usages
    return {
        "wall_seconds": _median(u.wall_seconds for u in usages),
        "cpu_seconds": _median(u.total_cpu_seconds for u in usages),
        "cpu_seconds_by_kind": {k: _median(u.cpu_seconds[k] for u in usages) for k in usages[0].cpu_seconds},
        "peak_mib_by_kind": {
            k: round(max(u.peak_bytes[k] for u in usages) / 2**20) for k in usages[0].peak_bytes
        },
        "written_mib": _median(u.written_bytes / 2**20 for u in usages),
        **_shuffled(usages),
        "rounds": [_rounded(asdict(u)) for u in usages],
        **({"failure": result.failure} if result.failure else {}),
    }


def compared(ours: Result, theirs: Result) -> dict[str, dict[str, float]]:
    """Ratios of wall and CPU seconds, for JSON."""
    wall = ratio_of([u.wall_seconds for u in ours.usages], [u.wall_seconds for u in theirs.usages])
    cpu = ratio_of([u.total_cpu_seconds for u in ours.usages], [u.total_cpu_seconds for u in theirs.usages])
    return {"wall": _rounded(asdict(wall)), "cpu": _rounded(asdict(cpu))}


def beside_baseline(
    label: str, text: str, contestants: Sequence[Contestant], rounds: tuple[int, int], watch: Watch
) -> dict[str, Any]:
    """Run contestants in turn; the last one is the baseline of the others.

    Args:
        label: name of the case.
        text: what was done.
        contestants: in their order.
        rounds: number of measured rounds, and of unmeasured ones before.
        watch: counts the usage.

    Returns:
        The case, with ``is_right``: True if no contestant failed.
    """
    repeat, warm_up = rounds
    tell(label)
    results = alternate(contestants, repeat, watch, warm_up=warm_up, tell=tell)
    *ours, baseline = results
    done = [each for each in ours if each.usages and baseline.usages]
    return {
        "case": label,
        "text": text,
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {f"{each.name} / {baseline.name}": compared(each, baseline) for each in done},
        "is_right": not any(result.failure for result in results),
    }


def merged_cases(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Cases of earlier runs and of this one; a case measured again replaces the old one of its ``case``."""
    again = {each["case"] for each in new}
    return [*(each for each in old if each["case"] not in again), *new]


def read_cases(path: Path) -> list[dict[str, Any]]:
    """Cases that were saved; none if there is no file."""
    return list(json.loads(path.read_text())["cases"]) if path.exists() else []


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Text of a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def tell(line: str) -> None:
    """Print a line now."""
    print(line, flush=True)


def machine() -> str:
    """What this machine is, as far as it matters."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}, {memory:.0f} GiB"


def versions(*packages: str) -> tuple[str, ...]:
    """Python and packages, each with its version."""
    numbers = (f"{package} {importlib.metadata.version(package)}" for package in packages)
    return f"Python {platform.python_version()}", *numbers


def consume(rows: DataFrame) -> None:
    """Read everything, keep nothing."""
    rows.write.format("noop").mode("overwrite").save()


def _file_sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def _shuffled(usages: Sequence[Usage]) -> dict[str, float]:
    counts = [u.shuffled_bytes / 2**20 for u in usages if u.shuffled_bytes is not None]
    return {"shuffled_mib": _median(counts)} if counts else {}


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    return {k: _rounded(v) for k, v in value.items()} if isinstance(value, dict) else value
