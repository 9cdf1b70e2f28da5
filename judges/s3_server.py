"""An S3 server (moto) for tests. It can simulate faults and expired keys, and ends with this process."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3

from judges.process import JudgeProcess

__all__ = ["BUCKET", "S3Server"]

START_TIMEOUT_SECONDS = 60.0
KEY, SECRET = "tester", "not-so-secret"
BUCKET = "tables"
"""A bucket that exists from the start."""


class S3Server:
    """One running server; a context manager."""

    def __init__(self, work_directory: Path) -> None:
        """Start it, with its log in ``work_directory``. Raises JudgeError if it does not come up."""
        command = [sys.executable, str(Path(__file__).with_name("s3_program.py"))]
        self._process = JudgeProcess("S3 server", command, work_directory / "s3.log")
        try:
            answer = self._process.ask({"do": "address"}, timeout_seconds=START_TIMEOUT_SECONDS)
        except BaseException:
            self.close()
            raise
        self.endpoint = str(answer["endpoint"])
        self.make_bucket(BUCKET)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop it."""
        self._process.close()

    @property
    def description(self) -> str:
        """Say which judge this is, for the summary of a test run."""
        return f"S3 server (moto {importlib.metadata.version('moto')})"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def settings(self) -> dict[str, str]:
        """Hadoop's properties for it."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.access.key": KEY,
            "fs.s3a.secret.key": SECRET,
        }

    def client(self) -> Any:
        """A separate client, to inspect the store without the library."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )

    def make_bucket(self, name: str) -> None:
        """Create a bucket."""
        self.client().create_bucket(Bucket=name)

    def fail(
        self,
        *,
        latency_seconds: float = 0.0,
        busy_every: int = 0,
        lost_answers: Mapping[str, int] | None = None,
        torn_answers: int = 0,
        gone_seconds: float = 0.0,
    ) -> None:
        """Simulate faults from now on; without arguments, stop.

        Args:
            latency_seconds: wait before each request.
            busy_every: answer 503 to every n-th request.
            lost_answers: by operation, the number of requests that are executed, but whose answers are lost.
            torn_answers: number of answers that break off in the middle of an object's bytes.
            gone_seconds: cut every connection for this time.
        """
        request = {
            "do": "faults",
            "latency_seconds": latency_seconds,
            "busy_every": busy_every,
            "lost_answers": dict(lost_answers or {}),
            "torn_answers": torn_answers,
            "gone_seconds": gone_seconds,
        }
        self._process.ask(request, timeout_seconds=START_TIMEOUT_SECONDS)

    def expire(self, requests_left: Mapping[str, int] | None = None) -> None:
        """Let access keys expire after these numbers of requests; others never expire."""
        request = {"do": "expire", "requests_left": dict(requests_left or {})}
        self._process.ask(request, timeout_seconds=START_TIMEOUT_SECONDS)

    def take_counts(self) -> dict[str, int]:
        """Requests by operation since the last call."""
        answer = self._process.ask({"do": "take_counts"}, timeout_seconds=START_TIMEOUT_SECONDS)
        return dict(answer["counts"])
