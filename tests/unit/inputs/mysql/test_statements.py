"""Which statements of a binary log change a table."""

from __future__ import annotations

import pytest

from mutation_api.inputs.mysql.statements import Effect, Statement, effect_on

TABLES = ("orders", "Line Items")


def effect(text: str, database: str = "sales") -> dict[str, Effect]:
    return effect_on(Statement(database, text), "sales", TABLES)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE orders DROP COLUMN note",
        "alter table `orders` modify a bigint",
        "ALTER TABLE sales.orders ADD COLUMN b INT, DROP a",
        "ALTER TABLE orders ADD COLUMN a INT NOT NULL",
        "ALTER TABLE orders ADD COLUMN a INT DEFAULT 5",
        "ALTER TABLE orders ADD a INT AS (id + 1) STORED",
        "ALTER TABLE orders ADD seen TIMESTAMP",
        "ALTER TABLE orders ADD (a INT, b INT)",
        "ALTER TABLE orders ADD PRIMARY KEY (a)",
        "ALTER TABLE orders CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE orders RENAME TO old_orders",
        "ALTER IGNORE TABLE orders DROP PARTITION p1",
        "ALTER TABLE orders TRUNCATE PARTITION p1",
        "TRUNCATE TABLE orders",
        "TRUNCATE orders",
        "DROP TABLE IF EXISTS other, `orders`",
        "RENAME TABLE orders TO gone",
        "CREATE TABLE orders (id INT)",
        "CREATE OR REPLACE TABLE orders (id INT)",
        "INSERT INTO orders VALUES (1)",
        "UPDATE orders SET a = 1",
        "WITH x AS (SELECT 1) DELETE FROM orders",
        "/* TRUNCATE */ DELETE FROM orders",
        "/*!40000 DROP TABLE orders */",
        "/*M!100000 DROP TABLE orders */",
        "SET STATEMENT max_statement_time=1 FOR ALTER TABLE orders DROP a",
        "DROP DATABASE sales",
        "drop schema if exists `sales`",
        "CALL something('x', orders)",
    ],
)
def test_changes_without_row_events(text: str) -> None:
    """Anything that is not known to be harmless is a change."""
    assert set(effect(text).values()) == {Effect.CHANGES}


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE orders ADD COLUMN note TEXT",
        "ALTER TABLE orders ADD note VARCHAR(10) DEFAULT NULL AFTER id",
        "ALTER TABLE orders ADD COLUMN IF NOT EXISTS a INT NULL COMMENT 'not null', ADD INDEX (a)",
        "ALTER TABLE orders ADD seen TIMESTAMP NULL",
        "ALTER TABLE `orders` ADD price DECIMAL(9,2) FIRST, ADD b SET('a,b','c') NULL",
    ],
)
def test_a_column_that_is_null_in_all_rows_is_added(text: str) -> None:
    """No row changes by that."""
    assert effect(text) == {"orders": Effect.ADDS_COLUMN}


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN",
        "SAVEPOINT `orders`",
        "CREATE INDEX i ON orders (a)",
        "CREATE UNIQUE INDEX i ON orders (a)",
        "DROP INDEX i ON orders",
        "ALTER TABLE orders ADD INDEX i (a), ADD FULLTEXT KEY f (b), DROP KEY k",
        "ALTER TABLE orders COMMENT = 'drop column', AUTO_INCREMENT = 7, ENGINE=InnoDB",
        "CREATE OR REPLACE VIEW v AS SELECT * FROM orders",
        "CREATE DEFINER=`root`@`localhost` TRIGGER t BEFORE INSERT ON orders FOR EACH ROW SET @a = 1",
        "CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`%` SQL SECURITY DEFINER VIEW v AS SELECT 1 FROM orders",
        "GRANT SELECT ON orders TO joe",
        "ANALYZE TABLE orders",
        "CREATE TEMPORARY TABLE scratch AS SELECT * FROM orders",
        "INSERT INTO log VALUES ('DROP TABLE orders')",
        "INSERT INTO log VALUES ('it''s \\' orders')",
        "DROP TABLE other -- orders",
        "DROP TABLE other /* orders */",
        "TRUNCATE elsewhere.orders",
        "DROP DATABASE elsewhere",
        "ALTER TABLE orders_2 DROP a",
    ],
)
def test_statements_without_an_effect(text: str) -> None:
    """Other tables, indexes, views, rights and literals do not stop the reading."""
    assert effect(text) == {}


def test_a_name_counts_in_its_database() -> None:
    """An unqualified name means the database in which the statement ran."""
    assert effect("TRUNCATE orders", "elsewhere") == {}
    assert effect("TRUNCATE sales.orders", "elsewhere") == {"orders": Effect.CHANGES}
    assert effect("TRUNCATE `line items`") == {"Line Items": Effect.CHANGES}
