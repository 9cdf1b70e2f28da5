"""A MySQL or MariaDB server as a source: its settings, its tables, and the position of its binary log.

This module checks that the log contains all changes, before anything is read from the log. It also converts
the options of a URL to the form that PyMySQL expects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from mutation_api.cdc.mysql.column_types import SourceColumn
from mutation_api.cdc.mysql.log_position import START_OVER, LogPosition, file_number
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.errors import (
    ConfigurationError,
    ConnectionFailedError,
    RecordLayoutError,
    SourcePositionError,
)

PASSWORD_VARIABLE = "HIVE_MUTATE_MYSQL_PASSWORD"
"""The environment variable with the password, for the command line; Python callers pass it themselves."""
PORT_DEFAULT = 3306
CONNECT_TIMEOUT_SECONDS = 30
READ_TIMEOUT_SECONDS = 3600
NET_WRITE_TIMEOUT_SECONDS = 3600
"""The time that the server waits while rows are written; its default of a minute can be too short."""

_GRANTS = (
    "the account needs SELECT on the tables, REPLICATION SLAVE, and REPLICATION CLIENT (MariaDB: BINLOG "
    "MONITOR)"
)
_SETTINGS = {
    "log_bin": ("1", "ON"),
    "binlog_format": ("ROW",),
    "binlog_row_image": ("FULL",),
    "binlog_row_metadata": ("FULL",),
    # These may be missing: each exists on only one of the servers.
    "binlog_row_value_options": ("",),
    "binlog_transaction_compression": ("0", "OFF"),
    "log_bin_compress": ("0", "OFF"),
}
_ABSENT_IS_FINE = ("binlog_row_value_options", "binlog_transaction_compression", "log_bin_compress")
CASCADES = ("CASCADE", "SET NULL", "SET DEFAULT")
"""The foreign key rules by which the server itself changes rows of other tables."""
_WITHOUT_ROWS = ("blackhole", "connect", "federated", "mrg_myisam", "spider")
"""The engines whose tables store no rows of their own: the rows change under other names, or elsewhere."""
_WRONG_LOGIN = (ER.ACCESS_DENIED_ERROR, 1698)  # 1698: MariaDB's, for an account without a password
_MALFORMED_GTIDS = 1772
_NO_PRIVILEGE = (
    ER.DBACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
)
_NOT_REACHED = (CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_UNKNOWN_HOST)
_SQL_ERRORS = (pymysql.err.OperationalError, pymysql.err.ProgrammingError, pymysql.err.InternalError)


@dataclass(frozen=True)
class MySqlAddress:
    """The address of a server, and an account; ``options`` are further PyMySQL options (such as ``ssl``).

    ``password_variable`` is the environment variable that messages name for the password.
    """

    host: str
    user: str
    password: str = field(default="", repr=False)
    port: int = PORT_DEFAULT
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    password_variable: str = field(default=PASSWORD_VARIABLE, repr=False, compare=False)

    def __str__(self) -> str:
        """Return ``user@host:port``; never the password."""
        return f"{self.user}@{self.host}:{self.port}"

    def connection_options(self) -> dict[str, Any]:
        """Return the arguments of PyMySQL's ``connect``."""
        return {
            "connect_timeout": CONNECT_TIMEOUT_SECONDS,
            "read_timeout": READ_TIMEOUT_SECONDS,
            **self.options,
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "charset": "utf8mb4",
        }


@dataclass(frozen=True)
class CatalogTable:
    """A table in the source's catalog: its columns in order, and the columns of each unique key.

    ``keys``: the keys whose columns cannot be NULL, with the primary key first. ``is_transactional``: True if
    the table's engine undoes what is rolled back.
    """

    name: str
    columns: tuple[SourceColumn, ...]
    keys: tuple[tuple[str, ...], ...]
    has_primary_key: bool
    is_transactional: bool


@dataclass(frozen=True)
class Catalog:
    """The tables of a database by name; ``absent``: why others are missing, by name."""

    tables: Mapping[str, CatalogTable]
    absent: Mapping[str, str]


class MySqlServer:
    """A server that is queried over one connection, which is reopened if it was lost between queries."""

    def __init__(self, address: MySqlAddress) -> None:
        self.address = address
        self._asking: pymysql.Connection[Any] | None = None

    def close(self) -> None:
        """Close the connection; the next query opens another."""
        if self._asking is not None and self._asking.open:
            self._asking.close()
        self._asking = None

    @contextmanager
    def connected(self, **options: Any) -> Iterator[pymysql.Connection[Any]]:
        """Yield a new connection, which is closed after the block.

        Raises ConnectionFailedError if the server cannot be reached, or if a statement on the connection
        fails.
        """
        with (
            self._errors(),
            self._connected(**options) as connection,
        ):
            yield connection

    @cached_property
    def is_mariadb(self) -> bool:
        """True if the server is MariaDB, False if it is MySQL."""
        return "mariadb" in str(self.values("SELECT VERSION()")[0][0]).lower()

    def check_settings(self) -> None:
        """Raise ConfigurationError, which names the required settings, if the server's log lacks changes."""
        found = {
            name: str(value) for name, value in self.values("SHOW GLOBAL VARIABLES") if name in _SETTINGS
        }
        wrong = [
            f"{name} is {found.get(name, 'not known to this server')!s}, expected "
            f"{allowed[-1] or 'an empty value'}"
            for name, allowed in _SETTINGS.items()
            if found.get(name, allowed[0] if name in _ABSENT_IS_FINE else None) not in allowed
        ]
        if self._lacks_replicated_rows():
            wrong.append(
                "log_slave_updates is OFF, expected ON because this server applies rows of another server"
            )
        if not wrong:
            # A statement is omitted based on the database in which it runs, so a TRUNCATE may be missing.
            filters = zip(("binlog_do_db", "binlog_ignore_db"), self._master_status()[2:4], strict=True)
            wrong = [f"{name} is {value}, expected an empty value" for name, value in filters if value]
        if wrong:
            raise ConfigurationError(
                f"source {self.address}: {'; '.join(wrong)}. Change this in the server's configuration (SET "
                "GLOBAL … is enough for new connections; log_bin and log_slave_updates need a restart)"
            )

    def _lacks_replicated_rows(self) -> bool:
        """Return True if the log lacks rows of another server that this one applies; assumed for MySQL."""
        logs = self.values("SHOW GLOBAL VARIABLES LIKE 'log_slave_updates'")
        if not logs or str(logs[0][1]) in ("1", "ON"):
            return False
        running = self.values("SHOW GLOBAL STATUS LIKE 'Slaves_running'")  # MariaDB only, where OFF is usual
        return not running or int(running[0][1]) > 0

    def position(self) -> LogPosition:
        """Return the current end of the log; no transaction is open there."""
        status = self._master_status()
        gtid = self._gtid_at(status[0], status[1]) if self.is_mariadb else str(status[4]).replace("\n", "")
        return LogPosition(status[0], int(status[1]), gtid, self._identity())

    def time(self) -> int:
        """Return the server's time, in seconds since 1970."""
        return int(self.values("SELECT UNIX_TIMESTAMP()")[0][0])

    def check_position(self, position: LogPosition) -> None:
        """Raise an error if the log cannot be read from this position.

        Raises:
            SourcePositionError: If the log was purged or reset, or if this is another server.
        """
        identity = self._identity()
        if identity != position.server:
            raise SourcePositionError(
                f"source {self.address}: watermark {position} belongs to server {position.server}, but this "
                f"is server {identity}; its log positions are not comparable. {START_OVER}"
            )
        logs = {row[0]: int(row[1]) for row in self.values("SHOW BINARY LOGS")}
        if position.file not in logs:
            raise SourcePositionError(
                f"source {self.address}: the log from {position} on was purged; the server has "
                f"{min(logs, key=file_number, default='none')} and later. {START_OVER}, and make the server "
                "keep its log longer (binlog_expire_logs_seconds)"
            )
        if position.offset > logs[position.file] or not self._has_gtid(position):
            raise SourcePositionError(
                f"source {self.address}: the server reset its log, or was restored: its {position.file} does "
                f"not contain the watermark {position} (GTID {position.gtid or 'none'}). {START_OVER}"
            )

    @cached_property
    def folds_case(self) -> bool:
        """True if the server ignores the case of table names."""
        return str(self.values("SELECT @@lower_case_table_names")[0][0]) != "0"

    def tables(self, database: str, names: Sequence[str]) -> Catalog:
        """Return the tables with these names.

        Raises:
            RecordLayoutError: If a table has changes that are not logged.
        """
        rows = self.values(
            "SELECT TABLE_NAME, TABLE_TYPE, TRANSACTIONS, ENGINE FROM information_schema.TABLES "
            "LEFT JOIN information_schema.ENGINES USING (ENGINE) WHERE TABLE_SCHEMA = %s",
            database,
        )
        kinds = {row[0]: row[1] for row in rows}
        kinds |= {row[0]: f"table of engine {row[3]}" for row in rows if str(row[3]).lower() in _WITHOUT_ROWS}
        transactional = {row[0] for row in rows if row[2] == "YES"}
        absent = {
            name: f"is a {kinds[name]}" if name in kinds else "does not exist, or may not be read"
            for name in names
            if kinds.get(name) != "BASE TABLE"
        }
        self._check_cascades(database, names)
        columns = self._columns(database)
        keys, with_primary = self._keys(database)
        tables = {
            name: CatalogTable(
                name,
                tuple(columns[name]),
                tuple(keys.get(name, ())),
                has_primary_key=name in with_primary,
                is_transactional=name in transactional,
            )
            for name in names
            if name not in absent and name in columns
        }
        return Catalog(tables, absent)

    def at(self, file: str, offset: int, gtid: str) -> LogPosition:
        """Return the position at the end of a transaction; ``gtid`` identifies those before it (MySQL)."""
        found = self._gtid_at(file, offset) if self.is_mariadb else gtid
        return LogPosition(file, offset, found, self._identity())

    def _check_cascades(self, database: str, names: Sequence[str]) -> None:
        """Raise RecordLayoutError if a foreign key changes rows of these tables, which is not logged.

        Source: MySQL's manual, "InnoDB and MySQL Replication": the engine carries out cascades, and does so
        again on the replica.
        """
        rules = self.values(
            "SELECT TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE FROM "
            "information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s",
            database,
        )
        for table, constraint, on_delete, on_update in rules:
            if table in names and (on_delete in CASCADES or on_update in CASCADES):
                raise RecordLayoutError(
                    f"source table {database}.{table}: foreign key {constraint} changes its rows (ON DELETE "
                    f"{on_delete}, ON UPDATE {on_update}), but the log does not contain these changes. Use "
                    f"RESTRICT, and change the rows in the application. {START_OVER}"
                )

    def _columns(self, database: str) -> dict[str, list[SourceColumn]]:
        rows = self.values(
            "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, "
            "COALESCE(CHARACTER_MAXIMUM_LENGTH, IF(DATA_TYPE = 'bit', NUMERIC_PRECISION, 0)), "
            "COALESCE(NUMERIC_PRECISION, 0), COALESCE(NUMERIC_SCALE, 0), COALESCE(DATETIME_PRECISION, 0), "
            "CHARACTER_SET_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s "
            "ORDER BY TABLE_NAME, ORDINAL_POSITION",
            database,
        )
        columns: dict[str, list[SourceColumn]] = {}
        for table, name, kind, text, *numbers, charset in rows:
            length, precision, scale, fraction = map(int, numbers)
            column = SourceColumn(name, kind.lower(), text, length, precision, scale, fraction, charset)
            columns.setdefault(table, []).append(column)
        return columns

    def _keys(self, database: str) -> tuple[dict[str, list[tuple[str, ...]]], set[str]]:
        """Return the keys by table, and the set of tables with a primary key."""
        rows = self.values(
            "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, NULLABLE FROM information_schema.STATISTICS "
            "WHERE TABLE_SCHEMA = %s AND NON_UNIQUE = 0 "
            "ORDER BY TABLE_NAME, INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX",
            database,
        )
        found: dict[tuple[str, str], list[str]] = {}
        nullable = {
            (table, index) for table, index, name, is_null in rows if is_null == "YES" or name is None
        }
        for table, index, name, _ in rows:
            found.setdefault((table, index), []).append(name)
        keys: dict[str, list[tuple[str, ...]]] = {}
        for (table, index), names in found.items():
            if (table, index) not in nullable:
                keys.setdefault(table, []).append(tuple(names))
        return keys, {table for table, index in found if index == "PRIMARY"}

    def _master_status(self) -> Sequence[Any]:
        try:
            rows = self.values("SHOW MASTER STATUS")
        except ConnectionFailedError as error:
            # MySQL 8.4 dropped the old name.
            if not isinstance(error.__cause__, pymysql.err.ProgrammingError):
                raise
            rows = self.values("SHOW BINARY LOG STATUS")
        if not rows:
            raise ConfigurationError(f"source {self.address}: the server does not write a binary log")
        return rows[0]

    def _gtid_at(self, file: str, offset: int) -> str:
        return str(self.values("SELECT BINLOG_GTID_POS(%s, %s)", file, offset)[0][0] or "")

    def _has_gtid(self, position: LogPosition) -> bool:
        if self.is_mariadb:
            return self._gtid_at(position.file, position.offset) == position.gtid
        try:
            rows = self.values("SELECT GTID_SUBSET(%s, @@global.gtid_executed)", position.gtid)
        except ConnectionFailedError as error:
            if error.__cause__ is None or error.__cause__.args[0] != _MALFORMED_GTIDS:
                raise
            return False
        return bool(rows[0][0])

    def _identity(self) -> str:
        return str(self.values(f"SELECT @@{'server_id' if self.is_mariadb else 'server_uuid'}")[0][0])

    def values(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        """Return the rows of a query; ``values`` replace its placeholders. Raises ConnectionFailedError."""
        with self._errors(), self._connection().cursor() as cursor:
            cursor.execute(statement, values or None)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    def _connection(self) -> pymysql.Connection[Any]:
        if self._asking is not None:
            try:
                self._asking.ping(reconnect=False)
            except pymysql.err.Error:
                self.close()
        if self._asking is None:
            self._asking = self._connected(autocommit=True)
        return self._asking

    def _connected(self, **options: Any) -> pymysql.Connection[Any]:
        """Open a connection.

        Raises ConnectionFailedError if a file named by an option is missing, or the driver lacks a module.
        """
        try:
            return pymysql.connect(**{**self.address.connection_options(), **options})
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise ConnectionFailedError(f"source {self.address}: {error}") from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except _SQL_ERRORS as error:
            raise ConnectionFailedError(_explained(self.address, error)) from error


def begin_snapshot(cursor: Any, sql_mode: str) -> None:
    """Begin a read-only transaction that sees one state of the database, with times in UTC."""
    cursor.execute(f"SET SESSION time_zone = '+00:00', sql_mode = '{sql_mode}'")
    cursor.execute(f"SET SESSION net_write_timeout = {NET_WRITE_TIMEOUT_SECONDS}")
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


def _explained(address: MySqlAddress, error: Exception) -> str:
    """Return the error message with advice for its code."""
    code = error.args[0] if error.args else None
    if code in _WRONG_LOGIN:
        # The password may come from an option file, which PyMySQL reads.
        is_given = bool(address.password) or "using password: YES" in str(error)
        what = "the server refused the account or its password" if is_given else "no password was given"
        place = f"the environment variable {address.password_variable}, in Python password=…"
        return f"source {address}: {what} ({place}): {error}; after login, {_GRANTS}"
    if code in _NO_PRIVILEGE:
        return f"source {address}: {error}; {_GRANTS}"
    if code in _NOT_REACHED:
        return (
            f"source {address}: {error}; is the server running, and does it listen on this host and port? "
            "Check the address, the server's bind_address, and firewalls in between"
        )
    return f"source {address}: {error}"


_TRUE = ("true", "1", "yes", "on")


def driver_options(url: SourceUrl) -> dict[str, Any]:
    """Return the options of a URL, including its encryption; the library sets the character set itself."""
    return {name: _typed(name, text) for name, text in url.options.items() if name != "charset"}


def _typed(name: str, text: str) -> Any:
    """Return the value of an option; the URL has already checked its form."""
    if name.endswith("_timeout"):
        return int(text)
    is_switch = name == "ssl_disabled" or name.startswith(("ssl_check_", "ssl_verify_"))
    return text in _TRUE if is_switch else text
