"""A process that never outlives its owner; the servers here are small Python programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from metastore_client.embedded.guarded_process import GuardedProcess

pytestmark = pytest.mark.slow

SERVER = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
OWNER = """
import sys
from pathlib import Path
from metastore_client.embedded.guarded_process import GuardedProcess
folder = Path(sys.argv[1])
process = GuardedProcess(sys.argv[2:], log_file=folder / "log", working_directory=folder)
sys.stdin.read()
"""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not happen within 60 s"


def server_pid(log: Path) -> int:
    """The server's own id, which it writes as the first thing it does."""
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"))
    return int(log.read_text().split()[-1])


def is_alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between opening and reading
        return False


def start(folder: Path, program: str = SERVER, **more: Path) -> GuardedProcess:
    return GuardedProcess(
        [sys.executable, "-c", program], log_file=folder / "log", working_directory=folder, **more
    )


def test_stop_ends_it_and_removes_what_it_should(tmp_path: Path) -> None:
    """Stopping twice does no harm."""
    rubbish = tmp_path / "rubbish"
    rubbish.mkdir()
    process = start(tmp_path, remove_on_exit=rubbish)
    pid = server_pid(tmp_path / "log")
    assert process.is_running
    process.stop()
    process.stop()
    assert not process.is_running
    assert not is_alive(pid)
    assert not rubbish.exists()


def test_kill_ends_it_at_once(tmp_path: Path) -> None:
    """The server goes with its guardian."""
    process = start(tmp_path)
    pid = server_pid(tmp_path / "log")
    process.kill()
    wait_until(lambda: not is_alive(pid))
    assert not process.is_running


def test_a_server_that_ends_by_itself_leaves_code_and_log(tmp_path: Path) -> None:
    """The tail holds what this run wrote, not what an earlier one did."""
    (tmp_path / "log").write_text("earlier run\n")
    process = start(tmp_path, "print('why it failed'); raise SystemExit(3)")
    wait_until(lambda: not process.is_running)
    assert process.exit_code == 3
    assert process.log_tail() == "why it failed\n"
    assert (tmp_path / "log").read_text() == "earlier run\nwhy it failed\n"
    process.stop()


def test_it_dies_with_an_owner_that_was_killed(tmp_path: Path) -> None:
    """An owner that gets kill -9 has no chance to clean up."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), sys.executable, "-c", SERVER], stdin=subprocess.PIPE
    )
    with owner:
        pid = server_pid(tmp_path / "log")
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))


def test_it_dies_with_a_guardian_that_was_killed(tmp_path: Path) -> None:
    """Otherwise the server would have no guardian to end it."""
    process = start(tmp_path)
    pid = server_pid(tmp_path / "log")
    guardian = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(guardian, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    process.stop()


def test_it_has_a_process_group_of_its_own(tmp_path: Path) -> None:
    """Ctrl-C in the terminal reaches the owner only."""
    process = start(tmp_path)
    pid = server_pid(tmp_path / "log")
    assert os.getpgid(pid) != os.getpgid(0)
    process.stop()
