"""Processes that extract without a pause, and can be killed at any moment; each costs a fork.

``python -m tests.integration.update.extracting_process`` imports everything once. Then it reads a line of
JSON for each process to begin, ``[uri, table, password, source, user]``, and answers with its id; and an id
for each process to wait for, answered when that has ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Self

from metastore_client.remote.thrift_client import open_client
from mutation_api import LocalOptions
from mutation_api.cdc.update import mysql, postgresql  # noqa: F401  (their drivers are loaded, too)
from mutation_api.cdc.update.extract import extract_update


class Mortals:
    """The process that forks, as a context manager."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._parent.communicate()

    def begin(self, uri: str, table: str, password: str | None, source: str, user: str) -> int:
        """Begin a process; its id."""
        return self._ask([uri, table, password, source, user])

    def kill(self, process: int) -> None:
        """Kill one, and wait for its end."""
        os.kill(process, signal.SIGKILL)
        assert self._ask(process) == signal.SIGKILL

    def _ask(self, question: object) -> int:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        print(json.dumps(question), file=self._parent.stdin, flush=True)
        return int(self._parent.stdout.readline())


def extract_repeatedly(uri: str, table: str, password: str | None, source: str, user: str) -> None:
    """Extract without a pause, for ever."""
    with open_client(uri, user=user) as metastore:
        while True:
            extract_update(
                metastore, table, password=password, source=source, user=user, local=LocalOptions()
            )


def main() -> None:
    """Read lines, and answer them."""
    while line := sys.stdin.readline():
        question = json.loads(line)
        if isinstance(question, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(question, 0)[1]) * -1
        else:
            answer = os.fork()
            if not answer:
                extract_repeatedly(*question)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
