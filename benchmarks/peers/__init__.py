"""The same merge by others, a module each, in separate processes that stay up; see ``PeerProcess``.

A module's dependencies are installed for the benchmarks only, so its process imports it by name.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["PeerProcess"]


class PeerProcess:
    """A process that runs one function of a module after another; a context manager.

    Args:
        module: its name below this package.
        python: the interpreter; None for this process's own.
    """

    def __init__(self, module: str, python: Path | None = None) -> None:
        self._module = f"{__name__}.{module}"
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context)
        try:
            context.set_executable(str(python or sys.executable))  # for all processes that begin from now on
            self.pid = self._pool.submit(os.getpid).result()
        finally:
            context.set_executable(sys.executable)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def call(self, function: str, *arguments: object) -> Any:
        """Run a function of the module there, and wait; raises what it raises."""
        return self._pool.submit(_call, self._module, function, arguments).result()


def _call(module: str, function: str, arguments: tuple[object, ...]) -> Any:
    return getattr(importlib.import_module(module), function)(*arguments)
