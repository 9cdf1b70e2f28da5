"""StoreServer: an object store for tests, which can be slow, busy, deaf or gone; ends with this process."""

from __future__ import annotations

import abc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from judges.process import JudgeProcess, ProcessJudge

_ROOT = Path(__file__).resolve().parents[2]


class StoreServer(ProcessJudge):
    """One running server behind a proxy (:mod:`judges.storages.store_proxy`), with a bucket."""

    kind: ClassVar[str]
    program: ClassVar[Sequence[str]]
    """Module that serves, and its arguments."""
    start_seconds: ClassVar[float] = 60.0

    def __init__(self, work_directory: Path) -> None:
        """Start it; its log lies in ``work_directory``. Raises JudgeError if it does not come up."""
        command = ["env", f"PYTHONPATH={_ROOT}", sys.executable, "-m", *self.program]
        log_path = work_directory / f"{self.kind}.log"
        super().__init__(JudgeProcess(f"server of {self.kind}", command, log_path))
        with self._stopped_on_failure():
            answer = self._ask("address", timeout_seconds=self.start_seconds)
            self.endpoint = str(answer["endpoint"])
            self.make_bucket()

    @property
    @abc.abstractmethod
    def root(self) -> str:
        """The location of all that it holds."""

    @property
    @abc.abstractmethod
    def settings(self) -> dict[str, str]:
        """Hadoop's properties for it."""

    @abc.abstractmethod
    def client(self) -> Any:
        """A client of its own, for looks behind the library's back."""

    @abc.abstractmethod
    def make_bucket(self) -> None:
        """Create what holds the tables."""

    def fail(
        self,
        *,
        latency_seconds: float = 0.0,
        busy_every: int = 0,
        lost_answers: Mapping[str, int] | None = None,
        torn_answers: int = 0,
        gone_seconds: float = 0.0,
    ) -> None:
        """From now on: wait before each request, answer 503 to every n-th, carry requests of an operation out
        and lose this many answers, break this many off in the middle of an object's bytes, be gone for a
        while. Without arguments: do well again.
        """
        self._ask(
            "faults",
            latency_seconds=latency_seconds,
            busy_every=busy_every,
            lost_answers=dict(lost_answers or {}),
            torn_answers=torn_answers,
            gone_seconds=gone_seconds,
        )

    def take_counts(self) -> dict[str, int]:
        """Requests by operation since the last call."""
        return dict(self._ask("take_counts")["counts"])
