"""Processes below this one: their peak memory and CPU time, as the kernel counts them. Linux only."""

from __future__ import annotations

import os
import signal
import statistics
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

SAMPLE_SECONDS = 0.2
ORPHAN_SAMPLE_SECONDS = 1.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessEntry:
    """A process: kind ('driver', 'java', 'python', '' or a name given), and CPU seconds since it began."""

    pid: int
    parent: int
    kind: str
    cpu_seconds: float


class _Sampler:
    """Calls :meth:`_sample` when the block begins, all ``seconds`` while it runs, and when it ends."""

    def __init__(self, seconds: float, name: str) -> None:
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def __enter__(self) -> Self:
        """Start watching."""
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Look a last time."""
        self._stopped.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._stopped.wait(self._seconds):
            self._sample()

    def _sample(self) -> None:
        raise NotImplementedError


class MemoryWatch(_Sampler):
    """While the block runs, note the peak resident set of every process below ours.

    The kernel keeps the peak itself (VmHWM), so a process is measured exactly up to the last time it was seen
    alive.
    """

    def __init__(self, root_pid: int) -> None:
        super().__init__(SAMPLE_SECONDS, "memory-watch")
        self._root = root_pid
        self._peaks: dict[tuple[int, str], int] = {}

    def peaks(self, kind: str) -> list[int]:
        """Peaks in bytes of all processes of a kind ('python', 'java', 'driver'), highest first."""
        return sorted((peak for (_, found), peak in self._peaks.items() if found == kind), reverse=True)

    def _sample(self) -> None:
        for process in process_tree(self._root):
            key = process.pid, process.kind
            self._peaks[key] = max(self._peaks.get(key, 0), peak_bytes(process.pid))


class MemoryCourse(_Sampler):
    """While the block runs, note what all processes of a kind hold together, again and again.

    Args:
        root_pid: a process; it and all below it count.
        names: kinds of processes by id, as :func:`process_tree` takes them.
        seconds: between two looks.
    """

    def __init__(self, root_pid: int, names: Mapping[int, str], seconds: float) -> None:
        super().__init__(seconds, "memory-course")
        self._root, self._names = root_pid, names
        self.looks: list[dict[str, int]] = []
        """Bytes by kind, a look each."""

    def _sample(self) -> None:
        look: dict[str, int] = {}
        for process in process_tree(self._root, self._names):
            look[process.kind] = look.get(process.kind, 0) + resident_bytes(process.pid)
        self.looks.append(look)


def quarters(looks: Sequence[Mapping[str, int]], kind: str) -> tuple[float, float]:
    """What a kind of process holds in the second quarter of a course and in the last, in MiB."""
    quarter = max(1, len(looks) // 4)
    second, last = looks[quarter : 2 * quarter], looks[-quarter:]
    of_both = (statistics.fmean(look.get(kind, 0) for look in part) / 2**20 for part in (second, last))
    return next(of_both), next(of_both)


def growth(looks: Sequence[Mapping[str, int]], kinds: Iterable[str]) -> dict[str, float]:
    """By kind: what it holds in the last quarter, as a share of the second."""
    found = {kind: quarters(looks, kind) for kind in kinds}
    return {kind: last / second if second else 0.0 for kind, (second, last) in found.items()}


class OrphanWatch(_Sampler):
    """While the block runs, record the usage of processes that is not added to their parent's.

    Other processes' CPU seconds go to the parent, which awaits them. Spark's Python workers are ended after a
    minute without work, and their parent ignores that; or it is ended itself, and no process awaits them.

    Args:
        processes: lists the current processes.
    """

    def __init__(self, processes: Callable[[], Sequence[ProcessEntry]]) -> None:
        super().__init__(ORPHAN_SAMPLE_SECONDS, "orphan-watch")
        self._processes = processes
        self._seen: dict[int, ProcessEntry] = {}

    def orphans(self) -> list[ProcessEntry]:
        """Processes that have ended and were not awaited, as they were last seen."""
        alive = {process.pid for process in self._processes()}
        awaiting = {pid for pid in alive if not _ignores_ends(pid)}
        return [e for e in self._seen.values() if e.pid not in alive and e.parent not in awaiting]

    def _sample(self) -> None:
        self._seen |= {process.pid: process for process in self._processes()}


def process_tree(root: int, names: Mapping[int, str] | None = None) -> list[ProcessEntry]:
    """``root`` and every process below it.

    Args:
        root: a process id; its kind is ``driver``.
        names: kinds of processes by id, which everything below them has too.
    """
    found: dict[int, list[ProcessEntry]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parent, seconds = parse_stat(text)
        found.setdefault(-1 if pid == root else parent, []).append(ProcessEntry(pid, parent, "", seconds))
    tree, todo = [], [(entry, "") for entry in found.get(-1, [])]
    while todo:
        entry, inherited = todo.pop()
        named = (names or {}).get(entry.pid, inherited)
        # A process is what it executes now: a JVM's child is a copy of the JVM until it becomes Python.
        kind = named or ("driver" if entry.pid == root else _program(entry.pid))
        tree.append(replace(entry, kind=kind))
        todo += [(child, named) for child in found.get(entry.pid, [])]
    return tree


def parse_stat(text: str) -> tuple[int, float]:
    """Parent's id and CPU seconds out of ``/proc/PID/stat``; those of children that were awaited count."""
    # The command's name stands in brackets and may hold blanks.
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / _TICKS_PER_SECOND


def _ignores_ends(pid: int) -> bool:
    """Whether a process ignores that its children end; then the kernel forgets what they used."""
    return bool(int(_status(pid, "SigIgn") or "0", 16) >> (signal.SIGCHLD - 1) & 1)


def _program(pid: int) -> str:
    """'java', 'python', or '' for anything else and for a process that is gone."""
    try:
        name = Path(f"/proc/{pid}/exe").resolve(strict=True).name
    except OSError:
        return ""
    return next((kind for kind in ("java", "python") if name.startswith(kind)), "")


def peak_bytes(pid: int) -> int:
    """Peak resident set; 0 if the process is gone."""
    return int(_status(pid, "VmHWM") or "0") * 1024


def resident_bytes(pid: int) -> int:
    """Resident set now; 0 if the process is gone."""
    return int(_status(pid, "VmRSS") or "0") * 1024


def _status(pid: int, name: str) -> str:
    """First word of a line of ``/proc/PID/status``; '' if there is no such line, or the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[1] for line in lines if line.startswith(f"{name}:")), "")
