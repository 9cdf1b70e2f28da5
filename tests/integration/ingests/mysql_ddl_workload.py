"""Random DDL and DML on two tables in MariaDB, and a user who does what the command's errors say.

Hive must equal the source after each round, or the command must have refused and said why. What it asks for
is done mechanically, until it succeeds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pymysql

from tests.integration.ingests.followed_tables import Answer, FollowedTables, Row

TABLES = ("a", "b")
COLUMNS = {"id": "int", "v": "bigint"}
TYPES = {
    "INT": "bigint",
    "VARCHAR(20)": "string",
    "BIGINT": "bigint",
    "VARCHAR(20) CHARACTER SET latin1": "string",
}
ANSWERS_MAX = 40
FORMATS = ("ROW", "ROW", "MIXED", "STATEMENT")


class DdlWorkload:
    """The application: random statements on the tables, each of which it may make."""

    def __init__(self, shop: FollowedTables, rng: random.Random) -> None:
        self.statements: list[str] = []
        self._shop = shop
        self._rng = rng
        self._number = 0
        for table in TABLES:
            shop.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, v BIGINT)")
        shop.run("CREATE TABLE other (id INT, a INT)", "CREATE TABLE cs (n BIGINT)")
        shop.run("CREATE VIEW seen AS SELECT * FROM a", "CREATE TABLE fires (id INT)")
        shop.run("CREATE TRIGGER g AFTER INSERT ON fires FOR EACH ROW UPDATE b SET v = v + 1")

    def round(self) -> None:
        """Some statements of each kind."""
        rng = self._rng
        self._run(f"SET binlog_format = '{rng.choice(FORMATS)}'")
        for _ in range(rng.randint(1, 8)):
            step = rng.choices(
                (
                    self._change,
                    self._transaction,
                    self._alter,
                    self._empty,
                    self._mention,
                    self._swap,
                    self._restore,
                ),
                (10, 3, 4, 1, 3, 0.7, 0.25),
            )[0]
            step(rng.choice(TABLES))
        self._run("SET binlog_format = 'ROW'")
        for table in TABLES:
            self._run(f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY, v BIGINT)")
            if not self._key(table):
                self._run(f"DELETE FROM {table}", f"ALTER TABLE {table} ADD PRIMARY KEY (id)")

    def _run(self, *statements: str) -> None:
        """Run statements; those that make no sense at the moment fail, as they would without a reader of the
        log.
        """
        for statement in statements:
            self.statements.append(statement)
            try:
                self._shop.run(statement)
            except (
                pymysql.err.OperationalError,
                pymysql.err.IntegrityError,
                pymysql.err.ProgrammingError,
                pymysql.err.DataError,
            ):
                self.statements[-1] += "  -- failed"

    def _columns(self, table: str) -> dict[str, str]:
        found = self._shop.server.sql(
            "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s "
            "AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            self._shop.database,
            table,
        )
        return dict(found)

    def _key(self, table: str) -> list[str]:
        found = self._shop.server.sql(
            "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME "
            "= %s "
            "AND INDEX_NAME = 'PRIMARY'",
            self._shop.database,
            table,
        )
        return [name for (name,) in found]

    def _value(self, kind: str) -> str:
        number = self._rng.randint(1, 30)
        return f"'é{number}'" if kind == "varchar" else str(number)

    def _change(self, table: str) -> None:
        rng = self._rng
        columns = self._columns(table)
        if not columns:
            return
        name, kind = rng.choice(list(columns.items()))
        values = [self._value(each) for each in columns.values()]
        where = f"{rng.choice(list(columns))} > {rng.randint(1, 30)}"
        self._run(
            rng.choice(
                (
                    f"REPLACE INTO {table} ({', '.join(columns)}) VALUES ({', '.join(values)})",
                    f"INSERT IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join(values)})",
                    f"UPDATE IGNORE {table} SET {name} = {self._value(kind)} WHERE {where}",
                    f"DELETE FROM {table} WHERE {where} LIMIT 3",
                )
            )
        )

    def _transaction(self, table: str) -> None:
        self._run("BEGIN")
        for _ in range(3):
            self._change(self._rng.choice(TABLES))
        self._run("SAVEPOINT s")
        self._change(table)
        self._run(
            self._rng.choice(("ROLLBACK TO s", "DO 1")), self._rng.choice(("COMMIT", "COMMIT", "ROLLBACK"))
        )

    def _alter(self, table: str) -> None:
        rng = self._rng
        self._number += 1
        columns = self._columns(table)
        more = [name for name in columns if name != "id"]
        name = rng.choice(more) if more else "v"
        kind = rng.choice(list(TYPES))
        new = f"c{self._number}"
        self._run(
            rng.choice(
                (
                    f"ALTER TABLE {table} ADD COLUMN {new} {kind}",
                    f"ALTER TABLE {table} ADD COLUMN {new} {kind} NOT NULL DEFAULT "
                    f"{self._value(kind[:7].lower())}",
                    f"ALTER TABLE {table} DROP COLUMN {name}",
                    f"ALTER TABLE {table} RENAME COLUMN {name} TO {new}",
                    f"ALTER TABLE {table} CHANGE {name} {new} VARCHAR(20)",
                    f"ALTER TABLE {table} MODIFY {name} VARCHAR(30) CHARACTER SET utf16 FIRST",
                    f"ALTER TABLE {table} MODIFY {name} BIGINT",
                    f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4",
                    f"ALTER TABLE {table} ADD INDEX i{self._number} (id), ALGORITHM=INPLACE",
                    f"ALTER IGNORE TABLE {table} ADD UNIQUE u{self._number} ({name})",
                    f"ALTER TABLE {table} PARTITION BY HASH (id) PARTITIONS {rng.randint(2, 4)}",
                    f"ALTER TABLE {table} TRUNCATE PARTITION p0",
                    f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY (id, {name})",
                    f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
                    f"ALTER TABLE {table} FORCE, COMMENT 'DROP COLUMN id'",
                )
            )
        )

    def _empty(self, table: str) -> None:
        self._run(
            *self._rng.choice(
                (
                    [f"TRUNCATE {table}"],
                    [f"DROP TABLE {table}", f"CREATE TABLE {table} (id INT PRIMARY KEY, v BIGINT)"],
                    [
                        f"CREATE OR REPLACE TABLE {table} (id INT PRIMARY KEY, v BIGINT) SELECT 5 AS id, 6 "
                        "AS v"
                    ],
                    [f"CREATE OR REPLACE TABLE {table} LIKE {table}_not_there"],
                )
            )
        )

    def _mention(self, table: str) -> None:
        self._number += 1
        self._run(
            *self._rng.choice(
                (
                    [f"REPLACE INTO cs SELECT COUNT(*) FROM {table}"],
                    [f"INSERT INTO other SELECT id, 1 FROM {table}", "DELETE FROM other"],
                    [f"CREATE TABLE l{self._number} LIKE {table}", f"DROP TABLE l{self._number}"],
                    [
                        f"CREATE TEMPORARY TABLE {table} (id INT)",
                        f"INSERT INTO {table} VALUES (1)",
                        f"TRUNCATE {table}",
                        f"DROP TEMPORARY TABLE {table}",
                    ],
                    ["UPDATE IGNORE seen SET id = id + 1 ORDER BY id DESC"],
                    ["INSERT INTO fires VALUES (1)"],
                    ["FLUSH BINARY LOGS", f"ANALYZE TABLE {table}"],
                )
            )
        )

    def _swap(self, table: str) -> None:
        """As gh-ost and pt-online-schema-change do, or the tables by each other."""
        self._run(
            *self._rng.choice(
                (
                    ["RENAME TABLE a TO tmp, b TO a, tmp TO b"],
                    [
                        f"CREATE TABLE {table}_new LIKE {table}",
                        f"INSERT INTO {table}_new SELECT * FROM {table}",
                        f"RENAME TABLE {table} TO {table}_old, {table}_new TO {table}",
                        f"DROP TABLE {table}_old",
                    ],
                    [f"ALTER TABLE {table} RENAME TO gone", f"ALTER TABLE gone RENAME {table}"],
                )
            )
        )

    def _restore(self, table: str) -> None:
        """A server that was set back has other rows, and a log that begins again, in another second."""
        self._run(f"DELETE FROM {table} WHERE id % 2 = 0", "DO SLEEP(1.1)", "RESET MASTER")


class User:
    """Runs the command, and does what its errors say."""

    def __init__(self, shop: FollowedTables, rng: random.Random) -> None:
        self.asked: list[str] = []
        self._shop = shop
        self._rng = rng
        self._ignored: set[str] = set()
        for table in TABLES:
            shop.create(table, COLUMNS)

    def catch_up(self) -> None:
        """Run until the command succeeds; then both sides are equal."""
        extra: list[str] = []
        for _ in range(ANSWERS_MAX):
            ignored = [word for name in sorted(self._ignored) for word in ("--ignore-column", name)]
            answer = self._shop.ingest(*ignored, *extra)
            if answer.code == 0:
                break
            extra = self._next_words(answer, extra)
        assert answer.code == 0, answer.err
        for table in TABLES:
            assert self._shop.hive(table) == self._shop.source(table)

    def _next_words(self, answer: Answer, extra: list[str]) -> list[str]:
        error = answer.err.splitlines()[-1]
        self.asked.append(error)
        if "StoppedAtStatementError" in error:
            by_hand = self._by_hand(error)
            if by_hand is not None and self._rng.random() < 0.7:
                by_hand()
                return ["--seen-to", answer.seen_to]
            return self._recopied(error)
        if "differ:" in error:
            self._agree_on_columns(error)
            return extra
        if found := re.search(
            r"\.(\w)\b[^,]*, column '(\w+)' .* cannot be stored in a column of type bigint", error
        ):
            self._as_string(*found.groups())
            return extra
        if found := re.search(r"of each of its keys \((.*)\)\. Add .*ALTER TABLE default\.(\w)", error):
            self._add_key(found[2], re.findall(r"\w+", found[1].partition(" or ")[0]))
            return ["--recopy", found[2]]
        if "run once with --recopy" in error:
            return ["--recopy", ",".join(TABLES)]
        raise AssertionError(error)

    def _recopied(self, error: str) -> list[str]:
        found = re.search(r"run with --recopy (\S+) \(", error)
        assert found, error
        return ["--recopy", found[1]]

    def _by_hand(self, error: str) -> Callable[[], None] | None:
        """What the statement did to the rows, done in Hive; None if that is not simple."""
        if "--seen-to" not in error:
            return None
        shop = self._shop
        if found := re.search(r"'TRUNCATE (\w)'", error):
            table = found[1]
            return lambda: shop.edit(table, lambda row: None)
        if found := re.search(r"\bDROP TABLE `(\w)`", error):
            table = found[1]
            return lambda: shop.edit(table, lambda row: None)
        if found := re.search(r"ALTER TABLE (\w) ADD COLUMN (\w+) (.*) NOT NULL DEFAULT '?([^'\"]+)", error):
            table, name, kind, text = found.groups()
            hive_type = TYPES[kind]
            value = text.strip("\\") if hive_type == "string" else int(text)
            return lambda: self._add_column(table, name, hive_type, value)
        if found := re.search(r"ALTER TABLE (\w) RENAME COLUMN (\w+) TO (\w+)'", error):
            table, old, new = found.groups()
            if old not in shop.columns(table):
                return None
            return lambda: self._rename_column(table, old, new)
        return None

    def _add_column(self, table: str, name: str, hive_type: str, value: object) -> None:
        columns = {**self._shop.columns(table), name: hive_type}
        self._shop.change_columns(table, columns, lambda row: {**row, name: value})

    def _rename_column(self, table: str, old: str, new: str) -> None:
        columns = {new if name == old else name: kind for name, kind in self._shop.columns(table).items()}

        def renamed(row: Row) -> Row:
            return {new if name == old else name: value for name, value in row.items()}

        self._shop.change_columns(table, columns, renamed)

    def _agree_on_columns(self, error: str) -> None:
        """Add what Hive lacks or leave it out; empty what the source lacks."""
        for table, name in re.findall(r"--ignore-column (\w)\.(\w+)", error):
            columns = self._shop.columns(table)
            if name in columns:
                self._shop.edit(table, lambda row, name=name: {**row, name: None})  # type: ignore[misc]
                self._ignored.add(f"{table}.{name}")
            elif self._rng.random() < 0.3:
                self._ignored.add(f"{table}.{name}")
            else:
                is_number = re.search(rf"\b{table}\.{name} \(\w*int\b", error)
                self._shop.change_columns(table, {**columns, name: "bigint" if is_number else "string"})

    def _add_key(self, table: str, names: list[str]) -> None:
        """Add the columns of a key, which are no longer left out."""
        columns = self._shop.columns(table)
        self._ignored -= {f"{table}.{name}" for name in names}
        self._shop.change_columns(table, {**columns, **{n: "string" for n in names if n not in columns}})

    def _as_string(self, table: str, name: str) -> None:
        """Give a column of Hive another type."""

        def converted(row: Row) -> Row:
            return {**row, name: None if row[name] is None else str(row[name])}

        self._shop.change_columns(table, {**self._shop.columns(table), name: "string"}, converted)
