"""A standalone Spark cluster on this machine: a master and two workers under two names of the same host.

Spark runs the twin of a slow task on another host only, and distinguishes hosts by their names. Each worker
has folders of its own for everything: where it runs, its executors' files, temporary files, shuffles. None of
them is told where storage lies: that is the driver's to say.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from judges.hive.judge import SPEED_OPTIONS
from metastore_client.embedded.guarded_process import GuardedProcess
from metastore_client.java import quiet_java_home, spark_jars
from tests.fixtures.fix_clock import wait_until

HOSTS = ("127.0.0.1", "localhost")
START_TIMEOUT_SECONDS = 120.0
NOT_INHERITED = ("HADOOP_CONF_DIR", "HIVE_CONF_DIR", "PYTHONPATH", "SPARK_CONF_DIR")
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


@contextlib.contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Start it; gives the master's address. Logs and the workers' files go below the folder."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAVA_HOME", str(quiet_java_home()))
        patched.setenv("SPARK_HOME", str(spark_jars().parent))
        patched.setenv("SPARK_DAEMON_MEMORY", "256m")
        patched.setenv("SPARK_DAEMON_JAVA_OPTS", " ".join(SPEED_OPTIONS))
        for name in NOT_INHERITED:
            patched.delenv(name, raising=False)
        master = _start(
            stack, folder, "master.Master", "--host", HOSTS[0], "--port", "0", "--webui-port", "0"
        )
        wait_until(lambda: _address(master) is not None, "Spark's master", START_TIMEOUT_SECONDS)
        address = _address(master)
        assert address is not None
        for host in HOSTS:
            limits = ("--cores", "1", "--memory", "600m", "--webui-port", "0")
            own = folder / host
            for name, place in (("SPARK_LOCAL_DIRS", "local"), ("TMPDIR", "tmp")):
                (own / place).mkdir(parents=True)
                patched.setenv(name, str(own / place))
            work = ("--work-dir", str(own / "work"))
            worker = _start(stack, own, "worker.Worker", "--host", host, *limits, *work, address)
            wait_until(lambda w=worker: _is_registered(w), f"the worker {host}", START_TIMEOUT_SECONDS)
        yield address


def _start(stack: contextlib.ExitStack, folder: Path, name: str, *arguments: str) -> GuardedProcess:
    program = spark_jars().parent / "bin" / "spark-class"
    command = [str(program), f"org.apache.spark.deploy.{name}", *arguments]
    log = folder / f"{name}-{len(list(folder.glob('*.log')))}.log"
    process = GuardedProcess(command, log_file=log, working_directory=folder)
    stack.callback(process.stop)
    return process


def _address(master: GuardedProcess) -> str | None:
    found = _MASTER.search(_log(master))
    return found and found[1]


def _is_registered(worker: GuardedProcess) -> bool:
    return "Successfully registered with master" in _log(worker)


def _log(process: GuardedProcess) -> str:
    text = process.log_file.read_text(encoding="utf-8", errors="replace")
    assert process.is_running, text[-3000:]
    return text
