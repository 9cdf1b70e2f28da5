"""``hive-mutate metastore`` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metastore_client.remote.thrift_client import open_client
from tests.fixtures.fix_clock import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("end", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_it_runs_until_it_is_told_to_end(tmp_path: Path, end: signal.Signals) -> None:
    """The address comes on standard output when it is ready; settings reach the server. Told to end, as all
    processes of a terminal are by Ctrl-C, it stops its JVM; exit status 0.
    """
    command = [sys.executable, "-m", "mutation_api.cli.main", "metastore", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--conf", "hive.txn.timeout=77s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        uri = process.stdout.readline().strip()
        assert uri.startswith("thrift://"), process.stderr.read()
        with open_client(uri) as client:
            assert client.get_all_tables("default") == []
            assert client.get_config_value("hive.txn.timeout", "?") == "77s"
        assert mentions(str(tmp_path))
        os.killpg(process.pid, end)
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()
    wait_until(lambda: not mentions(str(tmp_path)), "the end of the metastore's JVM")
    assert (tmp_path / "metastore.log").is_file()


def mentions(text: str) -> list[str]:
    """Command lines of running processes that contain the text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        if text in command:
            found.append(command)
    return found
