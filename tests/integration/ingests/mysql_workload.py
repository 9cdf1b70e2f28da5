"""Two tables in MariaDB, random transactions on them, and their rows as Hive has to show them.

What a value should be is taken from PyMySQL's own conversion of a SELECT, not from the source under test.
"""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pymysql

from judges.mysql import MySqlJudge
from mutation_api.format.hive_type import parse_hive_type
from tests.integration.files.hive_values import shown

DAY = datetime.timedelta(days=1)
EPOCH = datetime.datetime(1970, 1, 1)
LETTERS = "abc ÄßЖ語😀'\"\\\n,"


@dataclass(frozen=True)
class Column:
    """A column on both sides, and a random value for it; ``select`` is how the source is asked."""

    source: str
    hive: str
    value: Callable[[random.Random], Any]
    select: str = "{0}"


def _integer(low: int, high: int) -> Callable[[random.Random], int]:
    return lambda rng: rng.choice((low, high, 0, 1, rng.randint(low, high)))


def _text(longest: int, letters: str = LETTERS) -> Callable[[random.Random], str]:
    return lambda rng: "".join(rng.choices(letters, k=rng.randint(0, longest)))


def _bytes(longest: int) -> Callable[[random.Random], bytes]:
    return lambda rng: rng.randbytes(rng.randint(0, longest))


def _decimal(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    return lambda rng: Decimal(rng.randint(1 - 10**precision, 10**precision - 1)).scaleb(-scale)


def _datetime(digits: int) -> Callable[[random.Random], datetime.datetime]:
    def value(rng: random.Random) -> datetime.datetime:
        micros = rng.randrange(10**digits) * 10 ** (6 - digits)
        return EPOCH + datetime.timedelta(
            seconds=rng.randrange(80_000_000, 2_100_000_000), microseconds=micros
        )

    return value


def _time(digits: int) -> Callable[[random.Random], str]:
    def value(rng: random.Random) -> str:
        seconds, rest = rng.randrange(838 * 3600), rng.randrange(10**digits)
        whole = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return rng.choice(("", "-")) + (f"{whole}.{rest:0{digits}}" if digits else whole)

    return value


ALL_TYPES = {
    "id": Column("INT", "int", _integer(1, 40)),
    "tiny": Column("TINYINT", "tinyint", _integer(-128, 127)),
    "tiny_u": Column("TINYINT UNSIGNED", "smallint", _integer(0, 255)),
    "small": Column("SMALLINT", "smallint", _integer(-(2**15), 2**15 - 1)),
    "medium": Column("MEDIUMINT", "int", _integer(-(2**23), 2**23 - 1)),
    "medium_u": Column("MEDIUMINT UNSIGNED ZEROFILL", "int", _integer(0, 2**24 - 1)),
    "int_u": Column("INT UNSIGNED", "bigint", _integer(0, 2**32 - 1)),
    "big": Column("BIGINT", "bigint", _integer(-(2**63), 2**63 - 1)),
    "big_u": Column(
        "BIGINT UNSIGNED", "decimal(20,0)", lambda rng: rng.getrandbits(64), "CAST({0} AS DECIMAL(20))"
    ),
    "flag": Column("BOOLEAN", "boolean", lambda rng: rng.getrandbits(1), "{0}"),
    "bit1": Column("BIT(1)", "boolean", lambda rng: rng.getrandbits(1), "CAST({0} AS UNSIGNED)"),
    "bit11": Column("BIT(11)", "int", lambda rng: rng.getrandbits(11), "CAST({0} AS UNSIGNED)"),
    "year": Column("YEAR", "int", _integer(1901, 2155)),
    "money": Column("DECIMAL(20,4)", "decimal(20,4)", _decimal(20, 4)),
    "wide": Column("DECIMAL(38,18)", "decimal(38,18)", _decimal(38, 18)),
    "real4": Column("FLOAT", "float", lambda rng: rng.uniform(-1e6, 1e6), "CAST({0} AS DOUBLE)"),
    "real8": Column("DOUBLE", "double", lambda rng: rng.uniform(-1e300, 1e300)),
    "code": Column("CHAR(7)", "char(7)", _text(7)),
    "name": Column("VARCHAR(60)", "varchar(60)", _text(60)),
    "west": Column("VARCHAR(300) CHARACTER SET latin1", "string", _text(300, "aé€ \x81ß")),
    "wide_text": Column("VARCHAR(20) CHARACTER SET utf16", "string", _text(20)),
    "note": Column("MEDIUMTEXT", "string", _text(400)),
    "doc": Column("JSON", "string", lambda rng: json.dumps({"a": rng.random(), "b": _text(9)(rng)})),
    "kind": Column("ENUM('a','b''c','d,e','ü')", "string", lambda rng: rng.choice(("a", "b'c", "d,e", "ü"))),
    "tags": Column(
        "SET('x','y','zz','ö')",
        "string",
        lambda rng: ",".join(tag for tag in ("x", "y", "zz", "ö") if rng.getrandbits(1)),
    ),
    "fixed": Column("BINARY(5)", "binary", _bytes(5)),
    "bytes": Column("VARBINARY(300)", "binary", _bytes(300)),
    "blob": Column("BLOB", "binary", _bytes(40)),
    "place": Column(
        "POINT",
        "binary",
        lambda rng: bytes(4) + b"\1\1\0\0\0" + bytes(15) + bytes([64]),
        "CAST({0} AS BINARY)",
    ),
    "day": Column("DATE", "date", lambda rng: (EPOCH + rng.randrange(60000) * DAY).date()),
    "moment": Column("DATETIME", "timestamp", _datetime(0)),
    "moment6": Column("DATETIME(6)", "timestamp", _datetime(6)),
    "instant": Column("TIMESTAMP NULL", "timestamp", _datetime(0)),
    "instant3": Column("TIMESTAMP(3) NULL", "timestamp", _datetime(3)),
    "span": Column("TIME", "string", _time(0), "CAST({0} AS CHAR)"),
    "span2": Column("TIME(2)", "string", _time(2), "CAST({0} AS CHAR)"),
    "span6": Column("TIME(6)", "string", _time(6), "CAST({0} AS CHAR)"),
}
FEW = {
    "region": Column("VARCHAR(20)", "string", lambda rng: rng.choice(("north", "süd", "O'st", "a,b"))),
    "number": Column("BIGINT UNSIGNED", "decimal(20,0)", _integer(1, 15), "CAST({0} AS DECIMAL(20))"),
    "amount": Column("DECIMAL(9,2)", "decimal(9,2)", _decimal(9, 2)),
    "label": Column("TEXT", "string", _text(30)),
}
TABLES: Mapping[str, Mapping[str, Column]] = {"orders": ALL_TYPES, "customers": FEW}
KEYS = {"orders": ("id",), "customers": ("region", "number")}
NULL_SHARE = 0.15


def create_tables(server: MySqlJudge, database: str) -> None:
    """Make the tables, and one that nobody follows. MariaDB's JSON is a text, MySQL's own type is refused."""
    text_of_json = "JSON" if server.is_mariadb else "LONGTEXT"
    for table, columns in TABLES.items():
        described = [
            f"`{name}` {column.source.replace('JSON', text_of_json)}"
            f"{' NOT NULL' if name in KEYS[table] else ''}"
            for name, column in columns.items()
        ]
        key = ", ".join(KEYS[table])
        server.sql(f"CREATE TABLE {database}.{table} ({', '.join(described)}, PRIMARY KEY ({key}))")
    server.sql(f"CREATE TABLE {database}.noise (id INT AUTO_INCREMENT PRIMARY KEY, orders TEXT)")


def hive_types(table: str) -> dict[str, str]:
    """The columns of the table that follows."""
    return {name: column.hive for name, column in TABLES[table].items()}


def source_rows(server: MySqlJudge, database: str, table: str) -> list[list[Any]]:
    """The rows of a table in MariaDB, in the common form of ``hive_values``, sorted."""
    columns = TABLES[table]
    wanted = ", ".join(column.select.format(f"`{name}`") for name, column in columns.items())
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00'")
        cursor.execute(f"SELECT {wanted} FROM {table}")
        found = cursor.fetchall()
    return in_order(
        [_shown(value, column.hive) for value, column in zip(row, columns.values(), strict=True)]
        for row in found
    )


def _shown(value: Any, hive: str) -> Any:
    if value is not None and hive == "boolean":
        value = bool(value)
    if value is not None and hive == "binary" and isinstance(value, str):
        value = value.encode()
    return shown(value, parse_hive_type(hive))


def in_order(rows: Iterable[list[Any]]) -> list[list[Any]]:
    """Rows sorted by their text."""
    return sorted(rows, key=repr)


class Workload:
    """Random transactions, one after the other, on a connection of its own."""

    def __init__(self, server: MySqlJudge, database: str, rng: random.Random) -> None:
        self.statements = 0
        self._rng = rng
        self._connection = server.connect(database, autocommit=False)
        self._cursor = self._connection.cursor()
        # The wall clock of the session is not that of the reader, nor UTC.
        self._cursor.execute("SET SESSION time_zone = '+02:00'")
        self._index_count = 0

    def __enter__(self) -> Workload:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._connection.close()

    def set_clock(self, seconds: int) -> None:
        """Let the next statements have this time, in seconds since 1970."""
        self._cursor.execute(f"SET SESSION timestamp = {seconds}")

    def run(self, transactions: int) -> None:
        """Make transactions; some are rolled back, whole or in part, and some are no transactions."""
        for _ in range(transactions):
            if self._rng.random() < 0.1:
                self._beside()
            for _ in range(self._rng.randint(1, 8)):
                self._step()
            if self._rng.random() < 0.15:
                self._connection.rollback()
            else:
                self._connection.commit()

    def _step(self) -> None:
        if self._rng.random() < 0.2:
            self._execute("SAVEPOINT here")
            self._change()
            self._change()
            if self._rng.random() < 0.5:
                self._execute("ROLLBACK TO SAVEPOINT here")
        self._change()

    def _beside(self) -> None:
        """What the log holds beside rows of the two tables."""
        self._index_count += 1
        self._execute(
            self._rng.choice(
                (
                    "FLUSH BINARY LOGS",
                    f"CREATE INDEX i{self._index_count} ON orders (big)",
                    "INSERT INTO noise (orders) VALUES ('DROP TABLE orders')",
                    f"CREATE TEMPORARY TABLE scratch{self._index_count} AS SELECT id FROM orders",
                    "ANALYZE TABLE customers",
                )
            )
        )

    def _change(self) -> None:
        rng = self._rng
        table = rng.choice(tuple(TABLES))
        key = KEYS[table]
        change = rng.choice(
            (self._insert, self._insert, self._update, self._update, self._delete, self._move, self._many)
        )
        change(table, key)

    def _insert(self, table: str, _key: tuple[str, ...]) -> None:
        columns = TABLES[table]
        rows = [self._row(table) for _ in range(self._rng.randint(1, 4))]
        verb = self._rng.choice(("INSERT", "REPLACE", "INSERT IGNORE"))
        marks = ", ".join(["%s"] * len(columns))
        names = ", ".join(f"`{name}`" for name in columns)
        end = ""
        if verb == "INSERT" and self._rng.random() < 0.6:
            changed = self._rng.choice(tuple(columns))
            end = f" ON DUPLICATE KEY UPDATE `{changed}` = VALUES(`{changed}`)"
        values = ", ".join([f"({marks})"] * len(rows))
        self._execute(
            f"{verb} INTO {table} ({names}) VALUES {values}{end}", *[v for row in rows for v in row]
        )

    def _update(self, table: str, key: tuple[str, ...]) -> None:
        columns = TABLES[table]
        changed = [name for name in columns if name not in key and self._rng.random() < 0.3]
        if changed:
            sets = ", ".join(f"`{name}` = %s" for name in changed)
            values = [self._value(columns[name]) for name in changed]
            where, keys = self._where(table, key)
            self._execute(f"UPDATE {table} SET {sets} WHERE {where}", *values, *keys)

    def _delete(self, table: str, key: tuple[str, ...]) -> None:
        where, keys = self._where(table, key)
        self._execute(f"DELETE FROM {table} WHERE {where}", *keys)

    def _move(self, table: str, key: tuple[str, ...]) -> None:
        """Change a key, to one that is free or taken."""
        moved = self._rng.choice(key)
        where, keys = self._where(table, key)
        self._execute(
            f"UPDATE IGNORE {table} SET {moved} = %s WHERE {where}",
            TABLES[table][moved].value(self._rng),
            *keys,
        )

    def _many(self, _table: str, _key: tuple[str, ...]) -> None:
        self._execute(
            self._rng.choice(
                (
                    "UPDATE orders SET id = id + 1 ORDER BY id DESC",
                    "UPDATE orders SET id = id - 1 WHERE id > 45 ORDER BY id",
                    "UPDATE customers SET amount = amount / 2, label = CONCAT(label, '!') WHERE number > 5",
                    "UPDATE orders o JOIN customers c ON o.id = c.number "
                    "SET o.name = c.region, c.amount = o.tiny",
                    "INSERT IGNORE INTO customers SELECT 'copied', id, NULL, name FROM orders",
                    "DELETE o, c FROM orders o JOIN customers c ON o.id = c.number WHERE c.region = 'north'",
                )
            )
        )

    def _where(self, table: str, key: tuple[str, ...]) -> tuple[str, list[Any]]:
        values = [TABLES[table][name].value(self._rng) for name in key]
        operators = [self._rng.choice(("=", "=", "<=")) for _ in key]
        return " AND ".join(f"{n} {operator} %s" for n, operator in zip(key, operators, strict=True)), values

    def _row(self, table: str) -> list[Any]:
        return [
            column.value(self._rng) if name in KEYS[table] else self._value(column)
            for name, column in TABLES[table].items()
        ]

    def _value(self, column: Column) -> Any:
        return None if self._rng.random() < NULL_SHARE else column.value(self._rng)

    def _execute(self, statement: str, *values: Any) -> None:
        """A statement that meets a row with the same key, or a value that is too large, changes nothing."""
        self.statements += 1
        try:
            self._cursor.execute(statement, values or None)
        except (pymysql.err.IntegrityError, pymysql.err.DataError):
            return
