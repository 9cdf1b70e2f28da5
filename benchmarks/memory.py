"""Processes below this one: their peak memory and CPU time, as the kernel counts them. Linux only."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["MemoryWatch", "ProcessEntry", "parse_stat", "peak_bytes", "process_tree"]

SAMPLE_SECONDS = 0.2
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessEntry:
    """A process: kind ('driver', 'java', 'python', '' or a name given), and CPU seconds since it began."""

    pid: int
    kind: str
    cpu_seconds: float


class MemoryWatch:
    """While the block runs, note the peak resident set of every process below ours.

    The kernel keeps the peak itself (VmHWM), so a process is measured exactly up to the last time it was seen
    alive.
    """

    def __init__(self, root_pid: int) -> None:
        self._root = root_pid
        self._peaks: dict[tuple[int, str], int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)

    def __enter__(self) -> Self:
        """Start watching."""
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

    def peaks(self, kind: str) -> list[int]:
        """Peaks in bytes of all processes of a kind ('python', 'java', 'driver'), highest first."""
        return sorted((peak for (_, found), peak in self._peaks.items() if found == kind), reverse=True)

    def _watch(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        for process in process_tree(self._root):
            key = process.pid, process.kind
            self._peaks[key] = max(self._peaks.get(key, 0), peak_bytes(process.pid))


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
        found.setdefault(-1 if pid == root else parent, []).append(ProcessEntry(pid, "", seconds))
    tree, todo = [], [(entry, "") for entry in found.get(-1, [])]
    while todo:
        entry, inherited = todo.pop()
        named = (names or {}).get(entry.pid, inherited)
        # A process is what it executes now: a JVM's child is a copy of the JVM until it becomes Python.
        kind = named or ("driver" if entry.pid == root else _program(entry.pid))
        tree.append(ProcessEntry(entry.pid, kind, entry.cpu_seconds))
        todo += [(child, named) for child in found.get(entry.pid, [])]
    return tree


def parse_stat(text: str) -> tuple[int, float]:
    """Parent's id and CPU seconds out of ``/proc/PID/stat``; those of children that were awaited count."""
    # The command's name stands in brackets and may hold blanks.
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / _TICKS_PER_SECOND


def _program(pid: int) -> str:
    """'java', 'python', or '' for anything else and for a process that is gone."""
    try:
        name = Path(f"/proc/{pid}/exe").resolve(strict=True).name
    except OSError:
        return ""
    return next((kind for kind in ("java", "python") if name.startswith(kind)), "")


def peak_bytes(pid: int) -> int:
    """Peak resident set; 0 if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    peak = next((line for line in lines if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(peak.split()[1]) * 1024
