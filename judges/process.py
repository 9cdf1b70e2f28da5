"""What runs beside the tests: judges, and programs that answer a line of JSON for each line of JSON.

Waits are bounded, and logs are kept.
"""

from __future__ import annotations

import abc
import contextlib
import json
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Self

from judges.errors import HiveError, JudgeError

SMALL_JVM = (
    "-Xmx256m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
)
"""Options for a small server that does not live long: of the compilers the one that costs little."""

START_TIMEOUT_SECONDS = 400.0
"""On a machine with much other work a start takes minutes. A test ends after 600 s."""
CLOSE_TIMEOUT_SECONDS = 10.0
DUMP_TIMEOUT_SECONDS = 2.0
LOG_TAIL_CHARACTERS = 4000


class Stoppable(abc.ABC):
    """What runs beside this process until it is closed; a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abc.abstractmethod
    def close(self) -> None:
        """Stop it."""

    @contextlib.contextmanager
    def _stopped_on_failure(self) -> Iterator[None]:
        """The block in which it comes up; if that fails, nothing stays behind."""
        try:
            yield
        except BaseException:
            self.close()
            raise


class Judge(Stoppable):
    """Something real that the tests ask."""

    @property
    @abc.abstractmethod
    def description(self) -> str:
        """Say which judge this is, for the summary of a test run."""


class JudgeProcess(Stoppable):
    """One running judge.

    The program must end when its standard input ends. Then it cannot outlive this process, however that ends.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log_path: Path) -> None:
        """Start the program; its standard error goes to ``log_path``, which lasts after the process."""
        self.name = name
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                bufsize=1,
                start_new_session=True,
                cwd=log_path.parent,  # Tez leaves its local cache in its working directory
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: IO[str] = self._process.stdin
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._ended = False
        self._reader = threading.Thread(
            target=self._read_answers, args=(self._process.stdout,), name=f"{name}-answers", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], *, timeout_seconds: float) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            HiveError: the program answered with an error; the message holds its text.
            JudgeError: it ended, did not answer in time, or wrote something else. Then it is stopped, since
                a late answer would be taken for the answer to the next request.
        """
        with self._lock:
            if self._ended:  # a pipe may still take a line of one whose output has ended
                raise JudgeError(f"{self.name} has ended.\n{self.log_tail()}")
            try:
                self._requests.write(json.dumps(request) + "\n")
                self._requests.flush()
            except (OSError, ValueError) as error:
                raise JudgeError(f"{self.name} has ended.\n{self.log_tail()}") from error
            line = self._next_answer(request, timeout_seconds)
            answer = self._read(line, request)
        if "error" in answer:
            raise HiveError(
                f"{answer['message']} ({answer['error']}) for {_brief(request)}\n{answer['trace']}"
            )
        return answer

    def close(self) -> None:
        """End the program by closing its input; kill it if that does not help."""
        if self._process.poll() is None:
            try:
                self._requests.close()
                self._process.wait(CLOSE_TIMEOUT_SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait(CLOSE_TIMEOUT_SECONDS)
        self._reader.join(CLOSE_TIMEOUT_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):  # of a program that ended before a request came
                    stream.close()

    def log_tail(self) -> str:
        """Give the end of the program's log, with its path."""
        return log_tail(self.log_path)

    def _next_answer(self, request: Mapping[str, Any], timeout_seconds: float) -> str:
        try:
            line = self._answers.get(timeout=timeout_seconds)
        except queue.Empty as error:
            self._dump_threads()
            self._process.kill()
            raise JudgeError(
                f"{self.name} did not answer {_brief(request)} within {timeout_seconds:.0f} s.\n"
                f"{self.log_tail()}"
            ) from error
        if not line:
            self._ended = True
            raise JudgeError(f"{self.name} ended at {_brief(request)}.\n{self.log_tail()}")
        return line

    def _read(self, line: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of a line; all later ones would be those of earlier requests if it is none."""
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError as error:
            self._process.kill()
            self._ended = True
            raise JudgeError(
                f"{self.name} answered {_brief(request)} with {line.strip()!r}, and was stopped"
            ) from error
        return answer

    def _dump_threads(self) -> None:
        """Let a JVM that hangs write its threads to the log."""
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(DUMP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return

    def _read_answers(self, answers: IO[str]) -> None:
        for line in answers:
            self._answers.put(line)
        self._answers.put("")


class ProcessJudge(Judge):
    """A judge in a program of its own."""

    request_seconds: ClassVar[float] = 60.0
    """How long an answer may take."""

    def __init__(self, process: JudgeProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    def close(self) -> None:
        """Stop the program."""
        self._process.close()

    def _ask(self, what: str, *, timeout_seconds: float | None = None, **members: Any) -> dict[str, Any]:
        """See :meth:`JudgeProcess.ask`."""
        seconds = self.request_seconds if timeout_seconds is None else timeout_seconds
        return self._process.ask({"do": what, **members}, timeout_seconds=seconds)


def watched(
    name: str, command: Sequence[str | Path], *, ends_by: str = "KILL", tells_pid: bool = False
) -> list[str]:
    """A command line that runs a server, and ends it when its own input ends.

    So the server cannot outlive this process, which holds the other end of that input.

    Args:
        name: what the shell is called.
        command: the server's command line.
        ends_by: the signal.
        tells_pid: whether the server's process id is the first line of the output.
    """
    tell = 'echo "$server"; ' if tells_pid else ""
    script = f'"$@" </dev/null & server=$!; {tell}read -r _; kill -{ends_by} "$server"; wait "$server"'
    return ["/bin/sh", "-c", script, name, *map(str, command)]


@contextlib.contextmanager
def in_rounds(work: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call a function again and again during the block, after pauses, as a server's own threads do.

    An error that it raises ends the rounds.
    """
    stop = threading.Event()

    def rounds() -> None:
        while not stop.wait(seconds):
            work()

    thread = threading.Thread(target=rounds)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def free_port() -> int:
    """Give a port of this machine at which nobody listens right now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def log_tail(path: Path) -> str:
    """Give the end of a log, with its path; nothing of one that is not there yet."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return f"--- {path}\n{text[-LOG_TAIL_CHARACTERS:]}"


def _brief(request: Mapping[str, Any]) -> str:
    text = json.dumps(request)
    return text if len(text) <= 500 else text[:500] + "…"
