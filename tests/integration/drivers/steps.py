"""Steps with effects, counted; before one of them the process kills itself. For programs of tests."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
START_SECONDS, DRIVER_SECONDS = 120, 60
"""How long drivers may take: all together to start, and each beside that."""
STORAGE_STEPS = (
    "create_directory",
    "publish",
    "publish_directory",
    "abandon",
    "sync_directory",
    "delete_file",
    "delete_directory",
)
OUTPUT_STEPS = ("create", "stage")
"""Methods of a storage that give a file to write; closing it is another step."""


class Steps:
    """Counts the steps from the first one of a name, and dies before number ``last``, if that is not 0.

    Calls whose names begin with one of ``without`` are no steps: as they change nothing, a death before them
    is one before the next step.
    """

    def __init__(self, last: int, first_name: str = "", without: tuple[str, ...] = ()) -> None:
        self.names: list[str] = []
        self.is_counting = not first_name
        self._first_name = first_name
        self._last = last
        self._without = ("heartbeat_txn_range", *without)
        self._guard = threading.Lock()

    def take(self, name: str) -> None:
        with self._guard:
            self.is_counting = self.is_counting or name == self._first_name
            if not self.is_counting or name.startswith(self._without):
                return
            self.names.append(name)
            if len(self.names) == self._last:
                os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def stepped(*arguments: Any, **options: Any) -> Any:
            self.take(name)
            return function(*arguments, **options)

        return stepped

    def wrap_storage(self, kind: type) -> None:
        """Make steps of what changes a kind of storage, of the files it writes, and of requests."""
        for name in STORAGE_STEPS:
            setattr(kind, name, self.wrap(name, getattr(kind, name)))
        for name in OUTPUT_STEPS:
            setattr(kind, name, self.wrap(name, self._with_steps(getattr(kind, name))))
        if "S3" in kind.__name__:
            session = importlib.import_module("botocore.httpsession").URLLib3Session
            session.send = self.wrap("request", session.send)

    def _with_steps(self, opening: Callable[..., Any]) -> Callable[..., Any]:
        def opened(*arguments: Any) -> Any:
            return SteppedOutput(opening(*arguments), self)

        return functools.wraps(opening)(opened)


class SteppedOutput:
    """A file being written, whose end is a step."""

    def __init__(self, file: Any, steps: Steps) -> None:
        self._file = file
        self.close = steps.wrap("close", file.close)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class SteppedMetastore:
    """A metastore client whose calls are steps."""

    def __init__(self, client: Any, steps: Steps) -> None:
        self._client = client
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._steps.wrap(name, found) if callable(found) else found


def run_program(program: str, uri: str, action: str, drivers: Mapping[str, int]) -> str:
    """Run a program of this package, which drives each table up to its step. Return what it prints."""
    words = [action, *(f"{table}={step}" for table, step in drivers.items())]
    ended = subprocess.run(
        [sys.executable, "-m", f"{__package__}.{program}", uri, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=START_SECONDS + len(drivers) * DRIVER_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def run_forked(drivers: Sequence[str], drive: Callable[[str, int], None]) -> int:
    """Run ``TABLE=STEP…`` one after the other; forked, so that the imports are paid for once.

    Returns:
        0 if each ended as it should: killed, or by itself if its step is 0.
    """
    for driver in drivers:
        full_name, _, step = driver.partition("=")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                drive(full_name, int(step))
                status = 0
            finally:
                os._exit(status)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != (0 if step == "0" else -signal.SIGKILL):
            print(f"{driver} ended with {ended}", file=sys.stderr)
            return 1
    return 0
