"""What MySQL has and MariaDB has not, at the source of ``ingest mysql``; see ``--mysql-server``."""

from __future__ import annotations

import pytest
from pymysql import _auth

from mutation_api.cdc.mysql.server import MySqlAddress, MySqlServer
from mutation_api.cdc.update.database import connect_database
from mutation_api.errors import ConnectionFailedError
from tests.integration.ingests.followed_tables import FollowedTables

pytestmark = [pytest.mark.slow, pytest.mark.server("MySQL")]

TWO = {"id": "int", "msg": "string"}
T = "CREATE TABLE t (id INT PRIMARY KEY, msg VARCHAR(2000))"


@pytest.fixture
def shop(mysql_tables: FollowedTables) -> FollowedTables:
    """No table yet; Hive has one that may follow t."""
    mysql_tables.create("t", TWO)
    return mysql_tables


@pytest.mark.parametrize(
    ("create", "changes"),
    [
        (
            "CREATE TABLE t (id INT PRIMARY KEY, msg VARCHAR(20), INDEX low ((LOWER(msg))), "
            "INDEX more ((id + 1)))",
            [],
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY, hidden INT INVISIBLE DEFAULT 3, msg VARCHAR(20), "
            "twice INT AS (id * 2) VIRTUAL, thrice INT AS (id * 3) STORED)",
            [],
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY, msg VARCHAR(20), j JSON, tags INT AS (1), "
            "INDEX many ((CAST(j->'$.a' AS UNSIGNED ARRAY))))",
            ["UPDATE t SET j = JSON_OBJECT('a', JSON_ARRAY(1, 2)) WHERE id = 1"],
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY, msg VARCHAR(20))",
            ["ALTER TABLE t ADD INDEX low ((LOWER(msg)))", "UPDATE t SET msg = 'Z' WHERE id = 2"],
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY, msg VARCHAR(40) DEFAULT (UUID()))",
            ["INSERT INTO t (id) VALUES (7)", "INSERT INTO t (id) VALUES (8), (9)"],
        ),
    ],
    ids=["hidden columns of indexes", "invisible and generated", "json", "index later", "default"],
)
def test_columns_that_are_not_followed(shop: FollowedTables, create: str, changes: list[str]) -> None:
    """The log has hidden columns, too, at other places than the catalog."""
    ignored = [
        word
        for name in ("hidden", "twice", "thrice", "j", "tags")
        if f" {name} " in create
        for word in ("--ignore-column", f"t.{name}")
    ]
    shop.run(create, "INSERT INTO t (id, msg) VALUES (1, 'a'), (2, 'B')")
    shop.follow(*ignored)
    shop.run("INSERT INTO t (id, msg) VALUES (3, 'C')", "UPDATE t SET msg = 'd' WHERE id = 1")
    shop.run("DELETE FROM t WHERE id = 3", *changes)
    shop.follow(*ignored)


def test_a_table_with_a_key_that_nobody_gave(shop: FollowedTables) -> None:
    """The server makes an invisible column, which statements without a list of columns do not have."""
    shop.run("SET sql_generate_invisible_primary_key = ON", "CREATE TABLE g (id INT, msg VARCHAR(9))")
    shop.create("g", {**TWO, "my_row_id": "bigint"}, key="my_row_id")
    shop.run("INSERT INTO g VALUES (1, 'a'), (1, 'a'), (2, 'b')")
    shop.follow(tables=["g"])
    shop.run("DELETE FROM g WHERE id = 1 LIMIT 1", "UPDATE g SET msg = 'c'")
    shop.follow(tables=["g"])


def test_a_table_made_with_its_rows(shop: FollowedTables) -> None:
    """One transaction has the statement, which then ends with START TRANSACTION, and the rows."""
    shop.run(T, "INSERT INTO t VALUES (1, 'a')")
    shop.follow()
    shop.run("CREATE TABLE o SELECT * FROM t", "INSERT INTO t VALUES (2, 'b')")
    shop.follow()
    shop.run("DROP TABLE t", "CREATE TABLE t (PRIMARY KEY (id)) SELECT id, msg FROM o")
    answer = shop.stop()
    assert "DROP TABLE" in answer.err
    shop.follow("--recopy", "t")


def test_a_column_at_another_place_at_once(shop: FollowedTables) -> None:
    """An instant ALTER leaves old rows as they are."""
    shop.run(T, "INSERT INTO t VALUES (1, 'a')")
    shop.follow()
    shop.run("ALTER TABLE t ADD COLUMN extra INT NOT NULL DEFAULT 5 FIRST, ALGORITHM=INSTANT")
    shop.run("INSERT INTO t VALUES (6, 2, 'b')", "UPDATE t SET msg = 'c' WHERE id = 1")
    shop.follow("--ignore-column", "t.extra")
    shop.run("ALTER TABLE t DROP COLUMN extra, ALGORITHM=INSTANT", "INSERT INTO t VALUES (3, 'd')")
    shop.follow("--ignore-column", "t.extra")


@pytest.mark.parametrize(
    "setting",
    [
        "binlog_transaction_compression = ON",
        "binlog_row_value_options = 'PARTIAL_JSON'",
        "binlog_row_image = 'NOBLOB'",
    ],
)
def test_rows_in_a_form_that_is_not_read_stop_the_run(shop: FollowedTables, setting: str) -> None:
    """A session may choose them; nothing is left out silently."""
    shop.run(f"{T[:-1]}, j JSON, b BLOB)", "INSERT INTO t VALUES (1, 'a', '{\"a\": 1}', 'x')")
    ignored = ["--ignore-column", "t.j", "--ignore-column", "t.b"]
    shop.follow(*ignored)
    shop.run(
        f"SET SESSION {setting}",
        "UPDATE t SET msg = REPEAT('b', 1000), j = JSON_SET(j, '$.a', 2) WHERE id = 1",
    )
    answer = shop.ingest(*ignored)
    assert answer.code == 1, answer.out
    assert "InputFormatError" in answer.err
    assert setting.partition(" ")[0] in answer.err
    assert [row[1] for row in shop.hive("t")] == ["a"]
    shop.follow("--recopy", "t", *ignored)


def test_statements_beside_rows_are_passed(shop: FollowedTables) -> None:
    """They are logged as comments of the rows."""
    shop.run(T, "INSERT INTO t VALUES (1, 'a')")
    shop.follow()
    shop.run("SET SESSION binlog_rows_query_log_events = ON", "UPDATE t SET msg = 'TRUNCATE t'")
    shop.run("SET @x = 1", "UPDATE t SET msg = CONCAT(msg, @x, RAND(1))")
    shop.follow()


@pytest.mark.parametrize(
    "collation", ["utf8mb4_0900_ai_ci", "utf8mb4_0900_as_cs", "utf8mb4_bin", "ascii_bin"]
)
def test_keys_of_text(shop: FollowedTables, collation: str) -> None:
    """Each collation has its own equal keys; a change of one into an equal one is two changes."""
    shop.create("k", {"id": "string", "v": "int"})
    shop.run(f"CREATE TABLE k (id VARCHAR(9) COLLATE {collation} PRIMARY KEY, v INT)")
    shop.run("INSERT INTO k VALUES ('a', 1), ('b', 2), ('c ', 3)")
    shop.follow(tables=["k"])
    shop.run("UPDATE k SET id = 'A' WHERE id = 'a'", "UPDATE k SET id = 'c', v = 4 WHERE id LIKE 'c%'")
    shop.run(
        "INSERT INTO k VALUES ('d', 5) AS n ON DUPLICATE KEY UPDATE v = n.v", "REPLACE INTO k VALUES ('B', 6)"
    )
    shop.follow(tables=["k"])


@pytest.mark.parametrize(
    "mode", ["ANSI_QUOTES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT,IGNORE_SPACE"]
)
def test_modes_of_sessions(shop: FollowedTables, mode: str) -> None:
    """A logged statement is read in the mode in which it was said."""
    shop.run(T, "INSERT INTO t VALUES (1, 'a')")
    shop.follow()
    shop.run(f"SET SESSION sql_mode = '{mode}'", "CREATE TABLE o (id INT, msg VARCHAR(90))")
    shop.run("ALTER TABLE o COMMENT 'a\\\\'", "INSERT INTO t VALUES (2, 'x\\\\')")
    mark = '"' if "ANSI" in mode else "`"
    shop.follow()
    shop.run(f"TRUNCATE {mark}t{mark}")
    shop.stop()
    shop.follow("--recopy", "t")


@pytest.mark.parametrize("options", [{}, {"ssl_disabled": True}])
def test_an_account_of_the_default_kind_logs_in(shop: FollowedTables, options: dict[str, bool]) -> None:
    """With and without encryption, also when the server does not know its password yet."""
    server = shop.server
    query = "?ssl_disabled=true" if options else ""
    url = f"mysql://{server.user}@127.0.0.1:{server.port}/{shop.database}{query}"
    shop.run(T, "FLUSH PRIVILEGES")
    assert MySqlServer(
        MySqlAddress("127.0.0.1", server.user, server.password, server.port, options)
    ).position()
    shop.run("FLUSH PRIVILEGES")
    assert connect_database(url, server.password).describe("t").primary_key == ("id",)


def test_a_driver_without_rsa_says_what_it_lacks(
    shop: FollowedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an error of ours."""
    server = shop.server
    shop.run("FLUSH PRIVILEGES")
    monkeypatch.setattr(_auth, "_have_cryptography", False)
    address = MySqlAddress("127.0.0.1", server.user, server.password, server.port, {"ssl_disabled": True})
    with pytest.raises(ConnectionFailedError, match="'cryptography' package is required"):
        MySqlServer(address).position()
