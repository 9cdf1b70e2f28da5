"""What may be done to a source's table besides changing its rows, and what an extraction then does."""

from __future__ import annotations

from dataclasses import dataclass

from metastore_client.model import ColumnInfo

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"), ColumnInfo("v", "bigint"))
ORDERS = "CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, item VARCHAR(20), v INTEGER)"
FILL = "INSERT INTO orders VALUES (1, 'tea', 1), (2, 'coffee', 2), (3, 'wine', 3)"
REPAIR = "update repair"
BROUGHT_BACK = "restore the table"


def documented(kind: str) -> list[str]:
    """The rows of the table in docs/incremental-update.md for a kind of source."""
    return [f"| {case.name} | {_outcome(case)} |" for case in CASES[kind]]


def _outcome(case: Case) -> str:
    if not case.refusal:
        return "equal after the next extraction"
    if case.refusal == REPAIR:
        return "refused; `update repair`"
    if case.adds:
        return "refused; add the column in Hive, or ignore it"
    after = ", then `update repair`" if case.refusal == BROUGHT_BACK else ""
    return f"refused; at the source {' '.join(f'`{each}`' for each in case.way_on)}{after}"


@dataclass(frozen=True)
class Case:
    """Statements at the source, and what an extraction does.

    Attributes:
        name: what happens, as the documentation names it.
        statements: DDL and DML; $TRIGGER is the name of the row trigger of the update, $LOG that of its log.
        refusal: part of the message that refuses; '' if the next extraction makes both sides equal.
        way_on: statements that the message asks for; none if it asks for a repair.
        create: the table; by default ORDERS.
        columns: of the table in Hive.
        adds: columns that the message asks for in Hive.
        shown: the first column as an expression of the source; by default its name.
        server: MariaDB if MySQL has no such thing.
    """

    name: str
    statements: tuple[str, ...]
    refusal: str = ""
    way_on: tuple[str, ...] = ()
    create: tuple[str, ...] = (ORDERS, FILL)
    columns: tuple[ColumnInfo, ...] = COLUMNS
    adds: tuple[ColumnInfo, ...] = ()
    shown: str = ""
    server: str = ""


PARTITIONED = (
    "CREATE TABLE orders (id int, item text, v int, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (3)",
    "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (3) TO (9)",
    FILL,
)
TEXT_KEY = (ColumnInfo("item", "string"), ColumnInfo("v", "bigint"))
LOUD = ColumnInfo("s", "int")
POSTGRESQL = [
    Case("trigger dropped", ("DROP TRIGGER $TRIGGER ON orders", "UPDATE orders SET v = 9"), REPAIR),
    Case(
        "DISABLE TRIGGER ALL, ENABLE TRIGGER ALL",
        (
            "ALTER TABLE orders DISABLE TRIGGER ALL",
            "UPDATE orders SET v = 9",
            "ALTER TABLE orders ENABLE TRIGGER ALL",
        ),
        REPAIR,
    ),
    Case(
        "trigger switched off and on as it was",
        (
            "ALTER TABLE orders DISABLE TRIGGER $TRIGGER",
            "UPDATE orders SET v = 9",
            "ALTER TABLE orders ENABLE ALWAYS TRIGGER $TRIGGER",
        ),
    ),
    Case(
        "trigger switched off, on, and renamed",
        (
            "ALTER TABLE orders DISABLE TRIGGER $TRIGGER",
            "UPDATE orders SET v = 9",
            "ALTER TABLE orders ENABLE ALWAYS TRIGGER $TRIGGER",
            "ALTER TRIGGER $TRIGGER ON orders RENAME TO other",
        ),
    ),
    Case(
        "table moved to another schema",
        (
            "CREATE SCHEMA archive",
            "ALTER TABLE orders SET SCHEMA archive",
            "UPDATE archive.orders SET v = 9",
        ),
        BROUGHT_BACK,
        ("ALTER TABLE archive.orders SET SCHEMA public",),
    ),
    Case(
        "view in the place of the table",
        (
            "ALTER TABLE orders RENAME TO old",
            "CREATE VIEW orders AS SELECT id, item, v + 1 AS v FROM old",
            "UPDATE old SET v = 9",
        ),
        BROUGHT_BACK,
        ("DROP VIEW orders", "ALTER TABLE old RENAME TO orders"),
    ),
    Case(
        "trigger function replaced",
        (
            "CREATE OR REPLACE FUNCTION $TRIGGER() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RETURN NULL; END'",
            "UPDATE orders SET v = 9",
        ),
        REPAIR,
    ),
    Case(
        "table swapped by two renames",
        (
            "CREATE TABLE ghost (LIKE orders INCLUDING ALL)",
            "INSERT INTO ghost SELECT id, item, v + 1 FROM orders WHERE id < 3",
            "ALTER TABLE orders RENAME TO old",
            "ALTER TABLE ghost RENAME TO orders",
            "INSERT INTO orders VALUES (7, 'new', 7)",
        ),
        REPAIR,
    ),
    Case("DROP and CREATE", ("DROP TABLE orders", ORDERS, "INSERT INTO orders VALUES (7, 'new', 7)"), REPAIR),
    Case("DROP TABLE", ("DROP TABLE orders",), BROUGHT_BACK, (ORDERS,)),
    Case("log dropped", ("DROP TABLE $LOG", "UPDATE orders SET v = 9"), REPAIR),
    Case("TRUNCATE", ("TRUNCATE orders", "INSERT INTO orders VALUES (7, 'new', 7)")),
    Case("TRUNCATE of one partition", ("TRUNCATE low",), create=PARTITIONED),
    Case("DROP of one partition", ("DROP TABLE low",), create=PARTITIONED),
    Case("DETACH PARTITION", ("ALTER TABLE orders DETACH PARTITION low",), create=PARTITIONED),
    Case(
        "partition detached, changed and attached",
        (
            "ALTER TABLE orders DETACH PARTITION low",
            "UPDATE low SET v = 9",
            "ALTER TABLE orders ATTACH PARTITION low FOR VALUES FROM (0) TO (3)",
        ),
        create=PARTITIONED,
    ),
    Case(
        "triggers of one partition switched off and on",
        (
            "ALTER TABLE low DISABLE TRIGGER ALL",
            "UPDATE low SET v = 9",
            "ALTER TABLE low ENABLE TRIGGER ALL",
        ),
        REPAIR,
        create=PARTITIONED,
    ),
    Case(
        "ADD COLUMN with a default",
        ("ALTER TABLE orders ADD COLUMN s int NOT NULL DEFAULT 5", "UPDATE orders SET v = 9 WHERE id = 1"),
        "Hive lacks s",
        adds=(LOUD,),
    ),
    Case("ALTER COLUMN TYPE … USING", ("ALTER TABLE orders ALTER COLUMN v TYPE bigint USING v * 100",)),
    Case("ALTER COLUMN TYPE of the same type", ("ALTER TABLE orders ALTER COLUMN v TYPE int USING v * 100",)),
    Case(
        "columns renamed into each other",
        (
            "ALTER TABLE orders RENAME COLUMN v TO x",
            "ALTER TABLE orders RENAME COLUMN w TO v",
            "ALTER TABLE orders RENAME COLUMN x TO w",
        ),
        create=(
            "CREATE TABLE orders (id int PRIMARY KEY, v int, w int)",
            "INSERT INTO orders VALUES (1, 1, 2), (2, 3, 4)",
        ),
        columns=(ColumnInfo("id", "bigint"), ColumnInfo("v", "bigint"), ColumnInfo("w", "bigint")),
    ),
    Case(
        "value of an enum renamed",
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",),
        create=(
            "CREATE TYPE mood AS ENUM ('sad', 'ok')",
            "CREATE TABLE orders (id int PRIMARY KEY, item mood, v int)",
            "INSERT INTO orders VALUES (1, 'sad', 1), (2, 'ok', 2)",
        ),
    ),
    Case(
        "child made with INHERITS",
        ("CREATE TABLE heir () INHERITS (orders)", "INSERT INTO heir VALUES (8, 'heir', 8)"),
        "NO INHERIT",
        ("ALTER TABLE heir NO INHERIT orders",),
    ),
    Case("UNLOGGED", ("ALTER TABLE orders SET UNLOGGED",), "SET LOGGED", ("ALTER TABLE orders SET LOGGED",)),
    Case(
        "key altered to bigint",
        (
            "ALTER TABLE orders ALTER COLUMN id TYPE bigint",
            "INSERT INTO orders VALUES (3000000000, 'big', 1)",
        ),
    ),
    Case(
        "key column renamed",
        ("ALTER TABLE orders RENAME COLUMN id TO number", "UPDATE orders SET v = 9 WHERE number = 1"),
        "rename the column back",
        ("ALTER TABLE orders RENAME COLUMN number TO id",),
    ),
    Case(
        "key of char(n)",
        ("DELETE FROM orders WHERE item = 'a'", "UPDATE orders SET item = 'd', v = 9 WHERE item = 'b'"),
        create=(
            "CREATE TABLE orders (item char(5) PRIMARY KEY, v int)",
            "INSERT INTO orders VALUES ('a', 1), ('b', 2), ('c', 3)",
        ),
        columns=TEXT_KEY,
    ),
    Case(
        "key of varchar made longer",
        (
            "ALTER TABLE orders ALTER COLUMN item TYPE varchar(60)",
            "INSERT INTO orders VALUES (repeat('x', 50), 1)",
        ),
        create=(
            "CREATE TABLE orders (item varchar(5) PRIMARY KEY, v int)",
            "INSERT INTO orders VALUES ('a', 1)",
        ),
        columns=TEXT_KEY,
    ),
    Case(
        "numeric key with more digits",
        (
            "ALTER TABLE orders ALTER COLUMN id TYPE numeric(10,4)",
            "INSERT INTO orders VALUES (1.2345, 5)",
            "DELETE FROM orders WHERE id = 2",
        ),
        create=(
            "CREATE TABLE orders (id numeric(5,2) PRIMARY KEY, v int)",
            "INSERT INTO orders VALUES (1, 1), (2, 2)",
        ),
        columns=(ColumnInfo("id", "decimal(12,4)"), ColumnInfo("v", "bigint")),
    ),
    Case(
        "key of a type of an extension",
        (
            "UPDATE orders SET v = 9 WHERE item = 'a.b'",
            "UPDATE orders SET item = 'a.z' WHERE item = 'a.c'",
            "DELETE FROM orders WHERE item = 'a'",
        ),
        create=(
            "CREATE EXTENSION ltree",
            "CREATE TABLE orders (item ltree PRIMARY KEY, v int)",
            "INSERT INTO orders VALUES ('a', 1), ('a.b', 2), ('a.c', 3)",
        ),
        columns=TEXT_KEY,
    ),
    Case(
        "key that is equal in another spelling",
        ("UPDATE orders SET item = 'A' WHERE item = 'a'", "DELETE FROM orders WHERE item = 'B'"),
        create=(
            "CREATE EXTENSION citext",
            "CREATE TABLE orders (item citext PRIMARY KEY, v int)",
            "INSERT INTO orders VALUES ('a', 1), ('b', 2)",
        ),
        columns=TEXT_KEY,
    ),
    Case(
        "key of a time, written by sessions with settings of their own",
        (
            "SET DateStyle = 'German'",
            "SET TimeZone = 'Asia/Tokyo'",
            "UPDATE orders SET v = 9",
            "INSERT INTO orders VALUES ('2024-06-01 00:00+00', 5)",
        ),
        create=(
            "CREATE TABLE orders (item timestamptz PRIMARY KEY, v int)",
            "INSERT INTO orders VALUES ('2024-05-01 12:00+00', 1)",
        ),
        columns=(ColumnInfo("item", "timestamp"), ColumnInfo("v", "bigint")),
        shown="item AT TIME ZONE 'UTC'",
    ),
    Case(
        "rows that replication applies",
        ("SET session_replication_role = replica", "UPDATE orders SET v = 9"),
    ),
]
MYSQL_PARTITIONS = (
    "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(20), v INT) PARTITION BY RANGE (id) "
    "(PARTITION low VALUES LESS THAN (3), PARTITION high VALUES LESS THAN (9))",
    FILL,
)
MYSQL = [
    Case("trigger dropped", ("DROP TRIGGER $TRIGGER_update", "UPDATE orders SET v = 9"), REPAIR),
    Case(
        "trigger replaced",
        (
            "DROP TRIGGER $TRIGGER_update",
            "CREATE TRIGGER $TRIGGER_update AFTER UPDATE ON orders FOR EACH ROW SET @x = 1",
            "UPDATE orders SET v = 9",
        ),
        REPAIR,
    ),
    Case(
        "table swapped by two renames",
        (
            "CREATE TABLE ghost LIKE orders",
            "INSERT INTO ghost SELECT id, item, v + 1 FROM orders WHERE id < 3",
            "RENAME TABLE orders TO old, ghost TO orders",
            "INSERT INTO orders VALUES (7, 'new', 7)",
        ),
        REPAIR,
    ),
    Case("DROP and CREATE", ("DROP TABLE orders", ORDERS, "INSERT INTO orders VALUES (7, 'new', 7)"), REPAIR),
    Case("DROP TABLE", ("DROP TABLE orders",), BROUGHT_BACK, (ORDERS,)),
    Case(
        "log dropped",
        ("DROP TABLE $LOG", "UPDATE orders SET v = 9", "DELETE FROM orders WHERE id = 1"),
        REPAIR,
    ),
    Case("TRUNCATE", ("TRUNCATE orders", "INSERT INTO orders VALUES (7, 'new', 7)")),
    Case(
        "TRUNCATE of one partition", ("ALTER TABLE orders TRUNCATE PARTITION low",), create=MYSQL_PARTITIONS
    ),
    Case("DROP of one partition", ("ALTER TABLE orders DROP PARTITION low",), create=MYSQL_PARTITIONS),
    Case(
        "ADD COLUMN with a default",
        ("ALTER TABLE orders ADD COLUMN s INT NOT NULL DEFAULT 5", "UPDATE orders SET v = 9 WHERE id = 1"),
        "Hive lacks s",
        adds=(LOUD,),
    ),
    Case(
        "column dropped and added again",
        ("ALTER TABLE orders DROP COLUMN v", "ALTER TABLE orders ADD COLUMN v INTEGER DEFAULT 5"),
    ),
    Case("MODIFY of a type", ("ALTER TABLE orders MODIFY v BIGINT",)),
    Case(
        "unique key that removes rows",
        ("INSERT INTO orders VALUES (4, 'four', 3)", "ALTER IGNORE TABLE orders ADD UNIQUE (v)"),
        server="MariaDB",
    ),
    Case(
        "foreign key with CASCADE",
        (
            "CREATE TABLE buyers (id INTEGER NOT NULL PRIMARY KEY)",
            "INSERT INTO buyers VALUES (1), (2), (3)",
            "ALTER TABLE orders ADD CONSTRAINT buyer FOREIGN KEY (v) REFERENCES buyers (id) ON DELETE "
            "CASCADE",
            "DELETE FROM buyers WHERE id = 2",
        ),
        "foreign key buyer changes its rows",
        ("ALTER TABLE orders DROP FOREIGN KEY buyer",),
    ),
    Case(
        "engine without transactions",
        ("ALTER TABLE orders ENGINE = MyISAM", "UPDATE orders SET v = 9"),
        "ENGINE=InnoDB",
        ("ALTER TABLE orders ENGINE = InnoDB",),
        server="MariaDB",  # MySQL with GTIDs refuses the statements
    ),
    Case(
        "key altered to bigint",
        ("ALTER TABLE orders MODIFY id BIGINT", "INSERT INTO orders VALUES (3000000000, 'big', 1)"),
    ),
    Case(
        "key column renamed",
        ("ALTER TABLE orders RENAME COLUMN id TO number", "UPDATE orders SET v = 9 WHERE number = 1"),
        "rename the column back",
        ("ALTER TABLE orders RENAME COLUMN number TO id",),
    ),
    Case(
        "key of varchar made longer",
        ("ALTER TABLE orders MODIFY item VARCHAR(60)", "INSERT INTO orders VALUES (repeat('x', 50), 1)"),
        create=(
            "CREATE TABLE orders (item VARCHAR(5) PRIMARY KEY, v INT)",
            "INSERT INTO orders VALUES ('a', 1)",
        ),
        columns=TEXT_KEY,
    ),
    Case(
        "decimal key with more digits",
        (
            "ALTER TABLE orders MODIFY id DECIMAL(10,4)",
            "INSERT INTO orders VALUES (1.2345, 5)",
            "DELETE FROM orders WHERE id = 2",
        ),
        create=(
            "CREATE TABLE orders (id DECIMAL(5,2) PRIMARY KEY, v INT)",
            "INSERT INTO orders VALUES (1, 1), (2, 2)",
        ),
        columns=(ColumnInfo("id", "decimal(12,4)"), ColumnInfo("v", "bigint")),
    ),
    Case(
        "key of a time, written by sessions with settings of their own",
        (
            "SET time_zone = '+09:00'",
            "UPDATE orders SET v = 9",
            "INSERT INTO orders VALUES ('2024-06-01 00:00', 5)",
            "SET time_zone = '+00:00'",
        ),
        create=(
            "SET time_zone = '+00:00'",
            "CREATE TABLE orders (item TIMESTAMP NOT NULL PRIMARY KEY, v INT)",
            "INSERT INTO orders VALUES ('2024-05-01 12:00', 1), ('2024-05-02 12:00', 2)",
        ),
        columns=(ColumnInfo("item", "timestamp"), ColumnInfo("v", "bigint")),
        shown="CONVERT_TZ(item, @@time_zone, '+00:00')",
    ),
    *(
        Case(
            f"key of {kind}",
            (
                "UPDATE orders SET v = 9 ORDER BY item LIMIT 1",
                "DELETE FROM orders ORDER BY item DESC LIMIT 1",
                f"INSERT INTO orders VALUES ({third}, 7)",
            ),
            create=(
                f"CREATE TABLE orders (item {kind} NOT NULL PRIMARY KEY, v INT)",
                f"INSERT INTO orders VALUES ({first}, 1), ({second}, 2)",
            ),
            columns=(ColumnInfo("item", hive), ColumnInfo("v", "bigint")),
            shown=shown,
        )
        for kind, hive, first, second, third, shown in (
            ("FLOAT", "double", "0.1", "2.5", "16777216.5", "item * 1e0"),
            ("DOUBLE", "double", "-2.2250738585072014e-308", "1e300", "-1.2345678901234567e-10", ""),
            ("BIGINT UNSIGNED", "decimal(20,0)", "0", "18446744073709551615", "9223372036854775808", ""),
            ("TIME(3)", "string", "'-10:00:00.5'", "'800:00:00'", "'00:00:00.001'", "CAST(item AS CHAR)"),
            ("TIME", "string", "'10:00:00'", "'20:00:00'", "'00:00:01'", "CAST(item AS CHAR)"),
            ("DATETIME(6)", "timestamp", "'2024-01-01 00:00:00.000001'", "'2024-01-02'", "'2024-03-01'", ""),
            ("DATE", "date", "'2024-01-01'", "'2024-01-02'", "'2024-03-01'", ""),
            ("BIT(9)", "int", "b'1'", "b'100000001'", "b'11'", "item + 0"),
            ("ENUM('b', 'a', 'c')", "string", "'a'", "'b'", "'c'", ""),
            ("CHAR(5) CHARACTER SET utf16", "string", "'a'", "'ü'", "'zz'", ""),
            ("YEAR", "int", "2001", "2002", "1999", ""),
        )
    ),
]
REBUILD = (
    "CREATE TABLE new_orders (id INTEGER PRIMARY KEY, item TEXT, v INTEGER DEFAULT 0)",
    "INSERT INTO new_orders SELECT id, item, v + 1 FROM orders",
    "DROP TABLE orders",
    "ALTER TABLE new_orders RENAME TO orders",
    "INSERT INTO orders VALUES (7, 'new', 7)",
)
NOCASE = (
    "CREATE TABLE orders (item TEXT COLLATE NOCASE PRIMARY KEY, v INTEGER)",
    "INSERT INTO orders VALUES ('A', 1), ('B', 2)",
)
SQLITE = [
    Case("table rebuilt as SQLite's documentation says", REBUILD, REPAIR),
    Case("trigger dropped", ("DROP TRIGGER $TRIGGER_after_update", "UPDATE orders SET v = 9"), REPAIR),
    Case("DROP and CREATE", ("DROP TABLE orders", ORDERS, "INSERT INTO orders VALUES (7, 'new', 7)"), REPAIR),
    Case("DROP TABLE", ("DROP TABLE orders",), BROUGHT_BACK, (ORDERS,)),
    Case(
        "ADD COLUMN with a default",
        ("ALTER TABLE orders ADD COLUMN s INT NOT NULL DEFAULT 5", "UPDATE orders SET v = 9 WHERE id = 1"),
        "Hive lacks s",
        adds=(LOUD,),
    ),
    Case(
        "column dropped and added again",
        ("ALTER TABLE orders DROP COLUMN v", "ALTER TABLE orders ADD COLUMN v INTEGER DEFAULT 5"),
    ),
    Case(
        "key column renamed",
        ("ALTER TABLE orders RENAME COLUMN id TO number", "UPDATE orders SET v = 9 WHERE number = 1"),
        "rename the column back",
        ("ALTER TABLE orders RENAME COLUMN number TO id",),
    ),
    Case(
        "INSERT OR REPLACE of a key in another case",
        ("INSERT OR REPLACE INTO orders VALUES ('a', 5)",),
        create=NOCASE,
        columns=TEXT_KEY,
    ),
    Case(
        "UPDATE OR REPLACE of a key in another case",
        ("UPDATE OR REPLACE orders SET item = 'a' WHERE item = 'B'",),
        create=NOCASE,
        columns=TEXT_KEY,
    ),
    Case(
        "INSERT OR REPLACE, by a unique index with a collation",
        ("INSERT OR REPLACE INTO orders VALUES (9, 'TEA', 5)",),
        create=(ORDERS, FILL, "CREATE UNIQUE INDEX i ON orders (item COLLATE NOCASE)"),
    ),
    Case(
        "unique index made later",
        ("CREATE UNIQUE INDEX i ON orders (item)", "INSERT OR REPLACE INTO orders VALUES (9, 'tea', 5)"),
        REPAIR,
    ),
    Case(
        "partial unique index made later",
        (
            "CREATE UNIQUE INDEX i ON orders (item) WHERE v < 9",
            "INSERT OR REPLACE INTO orders VALUES (9, 'tea', 5)",
        ),
        "not unique",
        ("DROP INDEX i",),
    ),
]
CASES = {"postgresql": POSTGRESQL, "mysql": MYSQL, "sqlite": SQLITE}
"""By kind of source."""
