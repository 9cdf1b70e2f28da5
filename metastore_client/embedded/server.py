"""A Hive metastore on this machine: its process, and the command that runs it.

It is the real Hive metastore 2.3 that ships in pyspark's jars, and it is ready in seconds::

    with EmbeddedMetastore() as metastore:
        client = metastore_client.open_client(metastore.uri)

``python -m metastore_client.embedded.server --data-dir DIR --port 9083`` runs it until Ctrl-C.

The server needs Java >= 17 (a runtime is enough) and the jars of the installed pyspark. Neither Spark nor
Hadoop is started. The data is in an embedded Derby database. Hive 2.3 opens its port on all interfaces
without authentication. Use it for tests, demos and tables on this machine, not in an untrusted network.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from metastore_client.embedded.guarded_process import GuardedProcess
from metastore_client.errors import MetastoreError, MetastoreUnavailableError
from metastore_client.hive_site import Address, MetastoreConfig
from metastore_client.java import ADD_OPENS, find_java, hive_class_path
from metastore_client.remote.thrift_client import ThriftMetastoreClient

START_TIMEOUT_SECONDS_DEFAULT = 180.0
"""Time after which a start counts as failed. A start takes about 5 s on an idle machine."""
PORT_TRIES = 3
POLL_SECONDS = 0.05
MEMORY_OPTION = "-Xmx512m"

_MAIN_CLASS = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_MARK = "hive.metastore.embedded.mark"
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""A small server gains nothing from the second compiler and parallel collection: it is ready in 4.2 s instead
of 5.1 s."""


class EmbeddedMetastore:
    """A metastore in a separate process. It is a context manager.

    The process has its own process group. It ends with this process, even if this process is killed. Its log
    is ``metastore.log`` in the data directory. Dead transactions are aborted after their timeout. Compactions
    are neither initiated nor run.

    Args:
        data_directory: directory of the database, the log and (by default) the warehouse. It survives
            restarts. If None, a temporary directory that is removed at the end.
        warehouse: root of the tables. If None, ``warehouse`` in the data directory.
        port: port to listen on, or 0 for a free one.
        configuration: Hive settings that override the defaults, such as ``{"hive.txn.timeout": "5s"}``.
        start_timeout_seconds: maximum time that :meth:`start` waits for an answer.

    Raises:
        JavaNotFoundError: If :meth:`start` finds no Java or no pyspark.
        MetastoreUnavailableError: If the server ends or does not answer during :meth:`start`. The message
            ends with its log.
    """

    def __init__(
        self,
        data_directory: str | Path | None = None,
        warehouse: str | Path | None = None,
        port: int = 0,
        configuration: Mapping[str, str] | None = None,
        *,
        start_timeout_seconds: float = START_TIMEOUT_SECONDS_DEFAULT,
    ) -> None:
        self._is_temporary = data_directory is None
        self.data_directory = Path(
            tempfile.mkdtemp(prefix="metastore-") if data_directory is None else data_directory
        ).absolute()
        self.warehouse = Path(warehouse or self.data_directory / "warehouse").absolute()
        self._wanted_port = port
        self._configuration = dict(configuration or {})
        self._start_timeout_seconds = start_timeout_seconds
        self._process: GuardedProcess | None = None
        self._port = port

    def __enter__(self) -> EmbeddedMetastore:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def uri(self) -> str:
        """The address for clients, ``thrift://127.0.0.1:port``."""
        return f"thrift://127.0.0.1:{self._port}"

    @property
    def log_file(self) -> Path:
        """The path of the server's log file."""
        return self.data_directory / "metastore.log"

    @property
    def is_running(self) -> bool:
        """True if the process is alive."""
        return self._process is not None and self._process.is_running

    def start(self) -> None:
        """Start the server and wait until it answers. Do nothing if it is running."""
        if self.is_running:
            return
        try:
            self._start_on_some_port()
        except BaseException:
            self.stop()
            raise

    def _start_on_some_port(self) -> None:
        self.data_directory.mkdir(parents=True, exist_ok=True)
        self.warehouse.mkdir(parents=True, exist_ok=True)
        for tries_left in reversed(range(PORT_TRIES if self._wanted_port == 0 else 1)):
            self._port = self._port or _free_port()
            try:
                self._start_once()
            except _PortTakenError as taken:
                if tries_left == 0:
                    raise MetastoreUnavailableError(str(taken)) from None
                self._port = 0
            else:
                return

    def stop(self) -> None:
        """Stop the server and remove a temporary data directory. May be called more than once."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._is_temporary:
            shutil.rmtree(self.data_directory, ignore_errors=True)

    def kill(self) -> None:
        """Kill the server immediately, as a crash would.

        :meth:`start` starts it again at the same address.
        """
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _start_once(self) -> None:
        mark = uuid.uuid4().hex
        process = GuardedProcess(
            self._command(mark),
            log_file=self.log_file,
            working_directory=self.data_directory,
            remove_on_exit=self.data_directory if self._is_temporary else None,
        )
        try:
            self._wait_for_answer(process, mark)
        except BaseException:
            process.kill()
            raise
        self._process = process

    def _wait_for_answer(self, process: GuardedProcess, mark: str) -> None:
        deadline = time.monotonic() + self._start_timeout_seconds
        while not self._answers(mark):
            if not process.is_running:
                raise _start_failure(f"ended with exit code {process.exit_code}", process, self._port)
            if time.monotonic() > deadline:
                raise _start_failure(
                    f"did not answer within {self._start_timeout_seconds:g} s", process, self._port
                )
            time.sleep(POLL_SECONDS)

    def _answers(self, mark: str) -> bool:
        """Return True if the server of this object answers, with its tables and its transactions."""
        if not _is_listening(self._port):
            return False
        config = MetastoreConfig(addresses=(Address("127.0.0.1", self._port),), connect_rounds=1)
        client = ThriftMetastoreClient(_as_configured(config, self._configuration))
        with contextlib.closing(client), contextlib.suppress(MetastoreError):
            client.get_all_tables("default")
            client.get_open_txns()
            return client.get_config_value(_MARK, "") == mark
        return False

    def _command(self, mark: str) -> list[str]:
        settings = {**self._settings(), **self._configuration, _MARK: mark}
        return [
            str(find_java()),
            *ADD_OPENS,
            *_QUICK_START,
            MEMORY_OPTION,
            "-Duser.timezone=UTC",
            "-Dhive.root.logger=console",
            "-Dhive.log.level=WARN",
            f"-Dderby.stream.error.file={self.data_directory / 'derby.log'}",
            "-cp",
            hive_class_path(),
            _MAIN_CLASS,
            "-p",
            str(self._port),
            *(word for key, value in settings.items() for word in ("--hiveconf", f"{key}={value}")),
        ]

    def _settings(self) -> dict[str, str]:
        database = self.data_directory / "metastore_db"
        return {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={database};create=true",
            # BoneCP, the default pool, is not among the jars.
            "datanucleus.connectionPoolingType": "HikariCP",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            # Makes the metastore create the tables of its transaction handler, which otherwise a script does.
            "hive.in.test": "true",
            "hive.metastore.warehouse.dir": str(self.warehouse),
            "hive.metastore.server.min.threads": "4",
            "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
            "hive.support.concurrency": "true",
            # The reaper of dead transactions runs only together with the initiator.
            "hive.compactor.initiator.on": "true",
            # The compactions that it finds would not run here. It starts a program for each written
            # partition.
            "hive.compactor.check.interval": "1d",
            "hive.compactor.worker.threads": "0",
            "hive.async.log.enabled": "false",
            "hive.exec.scratchdir": str(self.data_directory / "scratch"),
        }


class _PortTakenError(Exception):
    """Raised when another process took the port after it was chosen and before the server started."""


def _start_failure(what: str, process: GuardedProcess, port: int) -> Exception:
    tail = process.log_tail()
    text = f"the embedded metastore on port {port} {what}; the end of {process.log_file}:\n{tail}"
    if "Address already in use" in tail:
        return _PortTakenError(text)
    return MetastoreUnavailableError(text)


def _as_configured(config: MetastoreConfig, configuration: Mapping[str, str]) -> MetastoreConfig:
    """Return the same address with the protocol and framing that the server is configured for."""
    given = {"hive.metastore.connect.retries": "1", **configuration}
    return MetastoreConfig.from_mapping({**given, "hive.metastore.uris": str(config.addresses[0])})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


WAIT_POLL_SECONDS = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the embedded metastore until Ctrl-C or SIGTERM. Its address is printed."""
    parser = argparse.ArgumentParser(
        prog="python -m metastore_client.embedded.server", description=main.__doc__
    )
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.epilog = (
        "The metastore prints its address to standard output when it is ready. Press Ctrl-C to end it."
    )
    parser.add_argument("--data-dir", metavar="DIR", help="keep the data in DIR (default: discard it)")
    parser.add_argument(
        "--warehouse", metavar="DIR", help="root of the tables (default: in the data directory)"
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="Hive setting (repeatable)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command with parsed arguments and return its exit code."""
    configuration = dict(each.partition("=")[::2] for each in arguments.conf)
    stop = _StopSignal()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        with EmbeddedMetastore(
            arguments.data_dir, arguments.warehouse, arguments.port, configuration
        ) as metastore:
            print(metastore.uri, flush=True)
            print(f"warehouse {metastore.warehouse}; log {metastore.log_file}", file=sys.stderr)
            while metastore.is_running:
                time.sleep(WAIT_POLL_SECONDS)
                if stop.was_sent:
                    return 0
            print(f"the metastore ended by itself; see {metastore.log_file}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0


class _StopSignal:
    """A signal handler that records the first Ctrl-C or SIGTERM. A second one interrupts.

    An interrupt may come at any point, even between acquiring a lock of ``subprocess`` and the block that
    releases it. Code that waits for the server would then wait forever.
    """

    def __init__(self) -> None:
        self.was_sent = False

    def __call__(self, number: int, frame: object) -> None:
        if self.was_sent:
            raise KeyboardInterrupt
        self.was_sent = True


if __name__ == "__main__":
    sys.exit(main())
