"""LocalOptions: user settings of the local engine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from numbers import Integral

from mutation_api.errors import ConfigurationError

__all__ = ["MEMORY_BYTES_DEFAULT", "MEMORY_BYTES_MIN", "LocalOptions"]

MEMORY_BYTES_DEFAULT = 1 << 30
MEMORY_BYTES_MIN = 1 << 20
"""With less, each batch would be a run of its own."""


@dataclass(frozen=True)
class LocalOptions:
    """Settings of the local engine.

    Attributes:
        memory_bytes: bounds what the engine holds of one change set or merge, at least MEMORY_BYTES_MIN.
            Beyond it, what is sorted goes to files in the system's directory for temporary files
            (``TMPDIR``), and what must be in memory is refused with advice. Files that are being written need
            more: about a stripe for each thread (:class:`~mutation_api.table.writer_options.WriterOptions`).
        threads: threads that work at the same time; None: ``os.cpu_count()``. Small change sets are written
            by the caller's own thread.
    """

    memory_bytes: int = MEMORY_BYTES_DEFAULT
    threads: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a setting is out of range."""
        for name in ("memory_bytes", "threads"):
            value = getattr(self, name)
            is_whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not (is_whole or (name == "threads" and value is None)):
                raise ConfigurationError(f"{name}={value!r}: it must be a whole number, as 4 or 1 << 30")
        if self.memory_bytes < MEMORY_BYTES_MIN:
            raise ConfigurationError(f"memory_bytes ({self.memory_bytes}) must be {MEMORY_BYTES_MIN} or more")
        if self.threads is not None and self.threads < 1:
            raise ConfigurationError(f"threads ({self.threads}) must be 1 or more")

    @property
    def thread_count(self) -> int:
        """The number of threads."""
        return self.threads or os.cpu_count() or 1
