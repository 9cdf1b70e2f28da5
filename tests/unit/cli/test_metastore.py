"""``hive-mutate metastore`` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metastore_client.remote.thrift_client import connect

pytestmark = pytest.mark.slow


@pytest.mark.sampled(1)
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_told_to_end(tmp_path: Path, end: signal.Signals) -> None:
    """The address comes on standard output when it is ready; settings reach the server; exit status 0."""
    command = [sys.executable, "-m", "mutation_api.cli.main", "metastore", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--conf", "hive.txn.timeout=77s"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().strip()
        with connect(uri) as client:
            assert client.get_config_value("hive.txn.timeout", "?") == "77s"
        process.send_signal(end)
        assert process.wait(60) == 0
    assert (tmp_path / "metastore.log").is_file()
