"""A server process that never outlives its parent, even if the parent is killed with ``kill -9``.

The server and a small guardian (this file, run as a program) share a separate process group, so that Ctrl-C
in the terminal reaches only the parent. The guardian reads a pipe whose other end only the parent holds. When
the parent ends, for any reason, the pipe ends and the guardian ends the server. If the guardian is killed,
Linux ends the server immediately.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

STOP_TIMEOUT_SECONDS = 10.0
"""Time for the server to end by itself before it is killed."""
LOG_TAIL_BYTES = 4096

_PR_SET_PDEATHSIG = 1
_GUARDIAN_GRACE_SECONDS = 5.0


class GuardedProcess:
    """A server process with a guardian.

    Args:
        command: program and arguments.
        log_file: file to which standard output and error are appended.
        working_directory: working directory of the process.
        remove_on_exit: directory that the guardian removes after the process has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_file: Path,
        working_directory: Path,
        remove_on_exit: Path | None = None,
    ) -> None:
        self.log_file = log_file
        with log_file.open("ab") as log:
            self._log_start = log.tell()
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(remove_on_exit or ""), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=working_directory,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """True if the process is alive."""
        return self._guardian.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that has ended, or None while it runs."""
        return self._guardian.poll()

    def stop(self) -> None:
        """End the process. It is killed if it has not ended after :data:`STOP_TIMEOUT_SECONDS`.

        May be called more than once.
        """
        if self._guardian.stdin is not None and not self._guardian.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._guardian.stdin.close()
        try:
            self._guardian.wait(STOP_TIMEOUT_SECONDS + _GUARDIAN_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process and its guardian immediately, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._guardian.pid, signal.SIGKILL)
        self._guardian.wait()
        if self._guardian.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guardian.stdin.close()

    def log_tail(self) -> str:
        """Return the last :data:`LOG_TAIL_BYTES` of this process's output."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError as error:
            return f"(no log: {error})"


def _guard(remove_on_exit: str, command: Sequence[str]) -> int:
    """Run the server until it ends by itself, until standard input ends, or until SIGTERM."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_input() -> None:
        while os.read(0, 1024):
            pass
        server.terminate()
        try:
            server.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()

    threading.Thread(target=end_with_input, daemon=True).start()
    code = server.wait()
    if remove_on_exit:
        shutil.rmtree(remove_on_exit, ignore_errors=True)
    return code if code >= 0 else 128 - code


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies. Other systems rely on the pipe alone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(_guard(sys.argv[1], sys.argv[2:]))
