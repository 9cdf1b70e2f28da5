"""Peak memory of this process and everything below it, as the kernel counts it. Linux only."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["MemoryWatch"]

SAMPLE_SECONDS = 0.2


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
        for pid in _descendants(self._root):
            # A process is what it executes now: a JVM's child is a copy of the JVM until it becomes Python.
            kind = "driver" if pid == self._root else _program(pid)
            self._peaks[pid, kind] = max(self._peaks.get((pid, kind), 0), _peak_bytes(pid))


def _descendants(root: int) -> list[int]:
    """``root`` and every process below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command's name stands in brackets and may hold blanks.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def _program(pid: int) -> str:
    """'java', 'python', or '' for anything else and for a process that is gone."""
    try:
        name = Path(f"/proc/{pid}/exe").resolve(strict=True).name
    except OSError:
        return ""
    return next((kind for kind in ("java", "python") if name.startswith(kind)), "")


def _peak_bytes(pid: int) -> int:
    """Peak resident set; 0 if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    peak = next((line for line in lines if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(peak.split()[1]) * 1024
