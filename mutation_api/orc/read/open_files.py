"""How many files of a process stay open: a merge reads as many files side by side as a table has deltas."""

from __future__ import annotations

import resource
import threading
from typing import Any

from mutation_api.orc.read.ranged_input import RangedInput

__all__ = ["OPEN_FILES", "OpenFile", "OpenFiles"]

_SHARE = 4
"""One in so many of the files that a process may open are ORC files that wait for their next stripe."""
_LEAST, _MOST = 8, 256


class OpenFiles:
    """Counts open files. One that is opened above the limit is closed after each read.

    Args:
        limit: number of files that may stay open.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._count = 0
        self._mutex = threading.Lock()

    def add(self) -> bool:
        """Count a file that was opened; returns whether it may stay open."""
        with self._mutex:
            self._count += 1
            return self._count <= self.limit

    def remove(self) -> None:
        """Count a file that was closed."""
        with self._mutex:
            self._count -= 1


def _limit_of_process() -> int:
    """A share of what the process may open (``ulimit -n``)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, soft // _SHARE))


OPEN_FILES = OpenFiles(_limit_of_process())
"""Those of this process."""


class OpenFile:
    """An open file.

    Args:
        file: reads stripes.
        stream: the file's bytes.
        ranged: fetches ranges of them beforehand, if the storage needs it.

    Attributes:
        may_stay: whether it may stay open between two reads.
    """

    def __init__(self, file: Any, stream: Any, ranged: RangedInput | None) -> None:
        self.file, self.stream, self.ranged = file, stream, ranged
        self.may_stay = OPEN_FILES.add()
        self._is_closed = False

    def last_bytes(self, count: int) -> bytes:
        """The bytes at the end of the file. Raises OSError."""
        self.stream.seek(self.stream.size() - count)
        data: bytes = self.stream.read(count)
        return data

    def close(self) -> None:
        """Close it. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            OPEN_FILES.remove()
            self.stream.close()

    def __del__(self) -> None:
        """A reader that stops early leaves its files to the garbage collector."""
        self.close()
