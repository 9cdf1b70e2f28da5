"""Random changes of a source's table and of its rows, and what undoes them where an extraction refuses."""

from __future__ import annotations

import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation_api.cdc.update.settings import ObjectNames
from tests.support.shops import MySqlShopSource, PostgresSource, Source, SqliteSource

KEYS = 12


@dataclass(frozen=True)
class Alteration:
    """Statements that alter a table, and those that take back what an extraction cannot follow."""

    statements: tuple[str, ...]
    undone_by: tuple[str, ...] = ()


class Database(ABC):
    """One kind of source: its table ``orders (id, item, v)``, and what may happen to it.

    Args:
        source: the source.
        place: a directory for backups.
    """

    create: tuple[str, ...] = (
        "CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, item VARCHAR(20), v INTEGER)",
    )
    rename = "ALTER TABLE {} RENAME TO {}"

    def __init__(self, source: Source, place: Path) -> None:
        self.source = source
        self.place = place
        self.has_extra = False
        self.has_backup = False

    def random_rows(self, rng: random.Random) -> list[str]:
        """Statements that change rows."""
        return [self._row_statement(rng) for _ in range(rng.randrange(1, 5))]

    def _row_statement(self, rng: random.Random) -> str:
        key, other, value = rng.randrange(KEYS), rng.randrange(KEYS), rng.randrange(100)
        return rng.choice(
            (
                f"INSERT INTO orders (id, item, v) SELECT {key}, 'x{value}', {value} WHERE NOT EXISTS "
                f"(SELECT 1 FROM orders WHERE id = {key})",
                f"UPDATE orders SET v = {value} WHERE id = {key}",
                f"UPDATE orders SET v = v + 1 WHERE id > {key}",
                f"UPDATE orders SET id = {other + KEYS * (1 + value)} WHERE id = {key}",
                f"DELETE FROM orders WHERE id = {key}",
                f"DELETE FROM orders WHERE id > {KEYS}",
            )
        )

    def random_alteration(self, rng: random.Random, names: ObjectNames) -> Alteration:
        """An alteration that is possible now."""
        return rng.choice([*self.common(names), *self.own(names)])

    def common(self, names: ObjectNames) -> Sequence[Alteration]:
        """What every kind knows."""
        copied = (
            *(text.replace("TABLE orders", "TABLE ghost") for text in self.create),
            *(["ALTER TABLE ghost ADD COLUMN s INTEGER DEFAULT 5"] if self.has_extra else []),
            "INSERT INTO ghost SELECT * FROM orders WHERE id < 6",
        )
        extra = "ALTER TABLE orders ADD COLUMN s INTEGER DEFAULT 5"
        return [
            Alteration(()),
            Alteration(
                (
                    *copied,
                    self.rename.format("orders", "old"),
                    self.rename.format("ghost", "orders"),
                    "DROP TABLE old",
                )
            ),
            Alteration((*copied, "DROP TABLE orders", self.rename.format("ghost", "orders"))),
            Alteration((f"DROP TABLE {names.log}",))
            if not isinstance(self, SqliteDatabase)
            else Alteration(()),
            Alteration(
                ("ALTER TABLE orders RENAME COLUMN id TO number",),
                ("ALTER TABLE orders RENAME COLUMN number TO id",),
            ),
            Alteration(
                ("ALTER TABLE orders RENAME COLUMN v TO w",), ("ALTER TABLE orders RENAME COLUMN w TO v",)
            ),
            Alteration(
                ("ALTER TABLE orders DROP COLUMN v", "ALTER TABLE orders ADD COLUMN v INTEGER DEFAULT 4")
            )
            if not self.has_extra
            else Alteration(("UPDATE orders SET s = 7", "ALTER TABLE orders DROP COLUMN s"), (extra,)),
            Alteration((extra,)) if not self.has_extra else Alteration(("UPDATE orders SET s = id",)),
        ]

    @abstractmethod
    def own(self, names: ObjectNames) -> Sequence[Alteration]:
        """What this kind knows besides."""

    @abstractmethod
    def save(self) -> None:
        """Make a backup of the database."""

    @abstractmethod
    def restore(self) -> None:
        """Bring the backup back."""


class PostgresDatabase(Database):
    """A database of PostgreSQL; a copy of its files is its backup."""

    def own(self, names: ObjectNames) -> Sequence[Alteration]:
        """See :class:`Database`."""
        row = names.capture
        update = "UPDATE orders SET v = 50 WHERE id < 7"
        return [
            Alteration(("TRUNCATE orders",)),
            Alteration((f"DROP TRIGGER {row} ON orders", update)),
            Alteration((f"DROP TRIGGER {row}_truncate ON orders", "TRUNCATE orders")),
            Alteration(
                ("ALTER TABLE orders DISABLE TRIGGER ALL", update, "ALTER TABLE orders ENABLE TRIGGER ALL")
            ),
            Alteration(
                (
                    f"ALTER TABLE orders DISABLE TRIGGER {row}",
                    update,
                    f"ALTER TABLE orders ENABLE ALWAYS TRIGGER {row}",
                )
            ),
            Alteration((f"DROP FUNCTION {row}() CASCADE", update)),
            Alteration(("SET session_replication_role = replica", update)),
            Alteration(("ALTER TABLE orders ALTER COLUMN v TYPE bigint USING v * 2",)),
            Alteration(
                (
                    "ALTER TABLE orders ALTER COLUMN id TYPE bigint",
                    "INSERT INTO orders (id, item, v) VALUES (5000000000, 'big', 1) ON CONFLICT DO NOTHING",
                )
            ),
            Alteration(("ALTER TABLE orders ALTER COLUMN item TYPE text",)),
            Alteration(
                (
                    "CREATE TABLE heir () INHERITS (orders)",
                    "INSERT INTO heir (id, item, v) VALUES (77, 'heir', 1)",
                ),
                ("DROP TABLE heir",),
            ),
        ]

    def save(self) -> None:
        """See :class:`Database`."""
        assert isinstance(self.source, PostgresSource)
        self.source.server.sql(f"DROP DATABASE IF EXISTS {self.source.database}_backup")
        self.source.server.sql(
            f"CREATE DATABASE {self.source.database}_backup TEMPLATE {self.source.database}"
        )

    def restore(self) -> None:
        """See :class:`Database`."""
        assert isinstance(self.source, PostgresSource)
        self.source.server.sql(f"DROP DATABASE {self.source.database}")
        self.source.server.sql(
            f"CREATE DATABASE {self.source.database} TEMPLATE {self.source.database}_backup"
        )


class MySqlDatabase(Database):
    """A database of MariaDB or MySQL; copies of its tables are its backup, as of a dump with triggers."""

    def own(self, names: ObjectNames) -> Sequence[Alteration]:
        """See :class:`Database`."""
        update = "UPDATE orders SET v = 50 WHERE id < 7"
        return [
            Alteration(("TRUNCATE orders",)),
            Alteration((f"DROP TRIGGER {names.capture}_update", update)),
            Alteration(
                (
                    f"DROP TRIGGER {names.capture}_insert",
                    "INSERT INTO orders (id, item, v) VALUES (90, 'x', 1)",
                    "DELETE FROM orders WHERE id = 90",
                )
            ),
            Alteration(
                (
                    f"DROP TRIGGER {names.capture}_update",
                    f"CREATE TRIGGER {names.capture}_update AFTER UPDATE ON orders FOR EACH ROW SET @x = 1",
                    update,
                )
            ),
            Alteration(("ALTER TABLE orders MODIFY v BIGINT",)),
            Alteration(
                (
                    "ALTER TABLE orders MODIFY id BIGINT",
                    "INSERT IGNORE INTO orders (id, item, v) VALUES (5000000000, 'big', 1)",
                )
            ),
            Alteration(("ALTER TABLE orders MODIFY item VARCHAR(60)",)),
            Alteration(("ALTER IGNORE TABLE orders ADD UNIQUE few (v)", "ALTER TABLE orders DROP INDEX few"))
            if self.source.server.is_mariadb
            else Alteration(()),
            Alteration(
                ("ALTER TABLE orders ENGINE = MyISAM", update), ("ALTER TABLE orders ENGINE = InnoDB",)
            ),
            Alteration(("OPTIMIZE TABLE orders",)),
            Alteration(
                ("REPLACE INTO orders (id, item, v) SELECT id, 'replaced', v + 1 FROM orders WHERE id > 3",)
            ),
        ]

    def save(self) -> None:
        """See :class:`Database`."""
        self._saved = {}
        for (name,) in self.source.rows(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
        ):
            ((_, create),) = self.source.rows(f"SHOW CREATE TABLE {name}")
            self._saved[name] = (create, self.source.rows(f"SELECT * FROM {name}"))
        self._triggers = [
            row[2]
            for (name,) in self.source.rows(
                "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
            )
            for row in self.source.rows(f"SHOW CREATE TRIGGER {name}")
        ]

    def restore(self) -> None:
        """See :class:`Database`."""
        connection = self.source.session()
        cursor = connection.cursor()
        for (name,) in self.source.rows(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
        ):
            cursor.execute(f"DROP TABLE {name}")
        for name, (create, rows) in self._saved.items():
            cursor.execute(create)
            for row in rows:
                cursor.execute(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(row))})", row)
        cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
        for trigger in self._triggers:
            cursor.execute(trigger)
        connection.commit()
        connection.close()


class SqliteDatabase(Database):
    """A file, which is copied."""

    create = ("CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, item VARCHAR(20), v INTEGER)",)

    def own(self, names: ObjectNames) -> Sequence[Alteration]:
        """See :class:`Database`."""
        update = "UPDATE orders SET v = 50 WHERE id < 7"
        ((trigger,),) = self.source.rows(
            f"SELECT max(sql) FROM sqlite_master WHERE name = '{names.capture}_after_update'"
        )
        replaced = (f"DROP TRIGGER {names.capture}_after_update", update)
        return [
            Alteration(replaced),
            Alteration((*replaced, trigger) if trigger else ()),
            Alteration(("CREATE TABLE IF NOT EXISTS other (x)",)),
            Alteration(
                (
                    "INSERT OR REPLACE INTO orders (id, item, v) "
                    "SELECT id, 'replaced', v + 1 FROM orders WHERE id > 3",
                )
            ),
            Alteration(
                (
                    "CREATE UNIQUE INDEX i ON orders (id, item)",
                    "INSERT OR REPLACE INTO orders (id, item, v) SELECT id, 'R', 1 FROM orders",
                    "DROP INDEX i",
                )
            ),
        ]

    def save(self) -> None:
        """See :class:`Database`."""
        assert isinstance(self.source, SqliteSource)
        shutil.copy(self.source.path, self.place / "backup.sqlite")

    def restore(self) -> None:
        """See :class:`Database`."""
        assert isinstance(self.source, SqliteSource)
        shutil.copy(self.place / "backup.sqlite", self.source.path)


def database_of(source: Source, place: Path) -> Database:
    """The source as a database that random alterations are made of."""
    kinds = {PostgresSource: PostgresDatabase, MySqlShopSource: MySqlDatabase, SqliteSource: SqliteDatabase}
    return kinds[type(source)](source, place)
