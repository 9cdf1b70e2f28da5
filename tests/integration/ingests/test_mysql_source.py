"""What a MySQL source refuses, and what it makes of the log of a real MariaDB; no Hive takes part."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from judges.mysql import MySqlJudge
from mutation_api.cdc.mysql import spill
from mutation_api.cdc.mysql.binary_log import BinaryLog
from mutation_api.cdc.mysql.log_position import LogPosition
from mutation_api.cdc.mysql.log_reading import RowImages, Undone
from mutation_api.cdc.mysql.mysql_source import MySqlSource
from mutation_api.cdc.mysql.server import MySqlAddress, MySqlServer
from mutation_api.cdc.mysql.table_plan import charset_of
from mutation_api.cdc.source import OPERATION, POSITION, LocalOperations, Position, SourceTable, Stop
from mutation_api.errors import (
    ConfigurationError,
    ConnectionFailedError,
    InputFormatError,
    RecordLayoutError,
    RecordValueError,
    SourcePositionError,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import AcidColumn, AcidTable
from tests.fixtures.fix_clock import wait_until

pytestmark = pytest.mark.slow


class Shop:
    """A database of the judge, read through a source; ``run`` changes it."""

    def __init__(self, server: MySqlJudge, database: str) -> None:
        self.server = server
        self.database = database
        plain = {"ssl_disabled": True}
        self.address = MySqlAddress("127.0.0.1", server.user, server.password, server.port, plain)
        self._connection = server.connect(database)
        self.stop: Stop | None = None

    def run(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own unless they say otherwise."""
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def close(self) -> None:
        self._connection.close()

    def read(
        self,
        types: Mapping[str, str],
        after: Position | None = None,
        *,
        key: Sequence[str] = (),
        table: str = "t",
        **options: Any,
    ) -> tuple[list[tuple[Any, ...]], Position | None]:
        """Operations on one table in their order, positions left out; and the position reached."""
        with MySqlSource(self.address, self.database, **options) as source:
            tables = [SourceTable(table, acid_table(types), tuple(key))]
            found = source.read_local(tables, {} if after is None else {table: after})
            self.stop = found.stop
            return [row for each in found.tables for row in rows_of(each)], found.position

    def now(self) -> Position:
        """Where the log ends."""
        server = MySqlServer(self.address)
        try:
            return server.position().to_position()
        finally:
            server.close()


def rows_of(given: LocalOperations) -> list[tuple[Any, ...]]:
    """The operations of a table in their order."""
    rows = [row for batch in given.operations for row in batch.to_pylist()]
    rows.sort(key=lambda row: tuple(row[POSITION].values()))
    return [(row.pop(OPERATION), *list(row.values())[1:]) for row in rows]


def acid_table(types: Mapping[str, str]) -> AcidTable:
    """A table of Hive with these columns."""
    columns = tuple(AcidColumn(name, kind) for name, kind in types.items())
    return AcidTable("h", "t", "/nowhere", columns, (), 1, ("id",), AcidVersion.V1_LEGACY)


@pytest.fixture
def shop(mysql: MySqlJudge, mysql_database: str) -> Iterator[Shop]:
    """An empty database."""
    made = Shop(mysql, mysql_database)
    yield made
    made.close()


@pytest.fixture
def set_global(mysql: MySqlJudge) -> Iterator[Callable[[str, Any], None]]:
    """Sets a global variable of the server for the test."""
    before: dict[str, Any] = {}

    def change(name: str, value: Any) -> None:
        before.setdefault(name, mysql.sql(f"SELECT @@global.{name}")[0][0])
        mysql.sql(f"SET GLOBAL {name} = %s", value)

    yield change
    for name, value in before.items():
        mysql.sql(f"SET GLOBAL {name} = %s", value)


def make_account(shop: Shop, name: str, *grants: str) -> None:
    """A new account with the password x."""
    account = f"{name}@'127.0.0.1'"
    made = [f"DROP USER IF EXISTS {account}", f"CREATE USER {account} IDENTIFIED BY 'x'"]
    shop.run(*made, *(f"{grant} TO {account}" for grant in grants))


TWO = {"id": "int", "msg": "string"}
T = "CREATE TABLE t (id INT PRIMARY KEY, msg VARCHAR(20))"


# -- what the source must be ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binlog_format", "MIXED"),
        ("binlog_format", "STATEMENT"),
        ("binlog_row_image", "MINIMAL"),
        ("binlog_row_metadata", "MINIMAL"),
        pytest.param("log_bin_compress", 1, marks=pytest.mark.server("MariaDB")),
    ],
)
def test_a_server_that_does_not_log_whole_rows_is_refused(
    shop: Shop, set_global: Callable[[str, Any], None], name: str, value: Any
) -> None:
    """The message says which setting is wrong, and what it must be."""
    shop.run(T)
    set_global(name, value)
    with pytest.raises(ConfigurationError, match=f"{name} is .*, expected "):
        shop.read(TWO)


@pytest.mark.parametrize("keys", ["", ", UNIQUE (msg)"])
def test_a_table_without_a_key_is_refused(shop: Shop, keys: str) -> None:
    """A unique key that may be NULL does not distinguish rows."""
    shop.run(f"CREATE TABLE t (id INT, msg VARCHAR(20){keys})")
    with pytest.raises(RecordLayoutError, match=r"no primary key.*ADD PRIMARY KEY"):
        shop.read(TWO)


def test_a_table_with_only_a_unique_key_is_accepted(shop: Shop) -> None:
    """The rows' key is told to whoever applies them."""
    shop.run(
        "CREATE TABLE t (id INT NOT NULL, msg VARCHAR(20), UNIQUE (id))", "INSERT INTO t VALUES (1, 'a')"
    )
    with MySqlSource(shop.address, shop.database) as source:
        found = source.read_local([SourceTable("t", acid_table(TWO))], {})
    assert [each.table.key for each in found.tables] == [("id",)]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("id INT NOT NULL, msg VARCHAR(20), UNIQUE (id)", ("id",)),
        ("id INT, msg VARCHAR(20) NOT NULL, PRIMARY KEY (msg(3))", ("msg",)),
        ("id INT, msg VARCHAR(20), PRIMARY KEY (msg, id)", ("msg", "id")),
        ("id INT NOT NULL, msg VARCHAR(20) NOT NULL, UNIQUE (msg), UNIQUE (id)", ("msg",)),
    ],
)
def test_rows_of_the_log_have_the_key_that_the_table_had(
    shop: Shop, columns: str, key: tuple[str, ...]
) -> None:
    """Whatever kind of key it is."""
    shop.run(f"CREATE TABLE t ({columns})")
    after = shop.now()
    shop.run("INSERT INTO t VALUES (1, 'abcd')", "TRUNCATE t")
    for later in (["DROP TABLE t", "CREATE TABLE t (more INT PRIMARY KEY)"], []):
        with MySqlSource(shop.address, shop.database) as source:
            found = source.read_local([SourceTable("t", acid_table(TWO))], {"t": after})
        assert [each.table.key for each in found.tables] == [key]
        shop.run(*later)


def test_a_table_whose_engine_keeps_no_rows_of_its_own_is_refused(shop: Shop) -> None:
    """Rows may change that the log has under another name."""
    shop.run(f"{T} ENGINE=MRG_MYISAM")
    with pytest.raises(RecordLayoutError, match=r"is a table of engine (?i:MRG_MYISAM)"):
        shop.read(TWO)


def test_a_server_that_leaves_databases_out_of_its_log_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves out each statement that runs in such a database, whatever table that names."""
    shop.run(T)
    end = shop.server.log_end()
    monkeypatch.setattr(MySqlServer, "_master_status", lambda _: [*end, "", "beside"])
    with pytest.raises(ConfigurationError, match="binlog_ignore_db is beside, expected an empty value"):
        shop.read(TWO)


def test_a_key_that_rows_can_share_is_refused(shop: Shop) -> None:
    """The key that was given has to hold one that is unique."""
    shop.run(T)
    with pytest.raises(RecordLayoutError, match=r"equal values in msg.*Unique and never NULL: \(id\)"):
        shop.read(TWO, key=["msg"])


@pytest.mark.parametrize("rule", ["ON DELETE CASCADE", "ON UPDATE CASCADE", "ON DELETE SET NULL"])
def test_a_table_whose_rows_a_foreign_key_changes_is_refused(shop: Shop, rule: str) -> None:
    """The log has no rows of a cascade, so Hive would keep what the source has lost."""
    shop.run(
        "CREATE TABLE parents (id INT PRIMARY KEY)",
        "CREATE TABLE t (id INT PRIMARY KEY, msg INT, CONSTRAINT f FOREIGN KEY (msg) REFERENCES parents (id) "
        f"{rule})",
    )
    with pytest.raises(RecordLayoutError, match="foreign key f changes its rows"):
        shop.read({"id": "int", "msg": "int"})
    shop.run("DROP TABLE t")


@pytest.mark.parametrize("made", ["CREATE VIEW t AS SELECT 1 AS id", ""])
def test_what_is_no_table_is_refused(shop: Shop, made: str) -> None:
    """A view has no rows in the log."""
    shop.run(*[made] if made else [])
    with pytest.raises(RecordLayoutError, match=r"is a VIEW|does not exist"):
        shop.read({"id": "int"})


def test_the_password_is_never_shown(shop: Shop) -> None:
    """Neither in the address nor in an error, which names the place that it comes from before the grants."""
    wrong = replace(shop.address, password="tops3cret")
    assert "tops3cret" not in f"{wrong} {wrong!r}"
    said = "account or its password .*HIVE_MUTATE_MYSQL_PASSWORD.*1045.*REPLICATION SLAVE"
    with pytest.raises(ConnectionFailedError, match=said) as caught:
        MySqlServer(wrong).position()
    assert "tops3cret" not in str(caught.value)
    with pytest.raises(ConnectionFailedError, match=r"no password was given \(.*HIVE_MUTATE_MYSQL_PASSWORD"):
        MySqlServer(replace(wrong, password="")).position()


def test_only_an_account_that_lacks_privileges_is_told_of_them(shop: Shop) -> None:
    """A server that cannot be reached has another cause."""
    make_account(shop, "poor")
    with pytest.raises(ConnectionFailedError, match=r"1227.*the account needs SELECT .*REPLICATION SLAVE"):
        MySqlServer(replace(shop.address, user="poor", password="x")).position()
    with pytest.raises(ConnectionFailedError, match=r"2003.*host and port.*bind_address") as caught:
        MySqlServer(replace(shop.address, port=1)).position()
    assert "REPLICATION" not in str(caught.value)


def test_an_account_with_the_grants_that_are_named_is_enough(shop: Shop) -> None:
    """No more rights are used than the message asks for."""
    shop.run(T, "INSERT INTO t VALUES (1, 'a')")
    client = "BINLOG MONITOR" if shop.server.is_mariadb else "REPLICATION CLIENT"
    make_account(
        shop, "reader", f"GRANT SELECT ON {shop.database}.*", f"GRANT REPLICATION SLAVE, {client} ON *.*"
    )
    shop.address = replace(shop.address, user="reader", password="x")
    rows, position = shop.read(TWO)
    shop.run("INSERT INTO t VALUES (2, 'b')")
    assert rows + shop.read(TWO, position)[0] == [("insert", 1, "a"), ("insert", 2, "b")]


# -- the first run -------------------------------------------------------------------------------------------
def test_changes_between_position_and_select_are_read_twice_and_not_missed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changes in between is read twice, by SELECT and from the log; nothing is missed.

    MyISAM has no snapshots, so the SELECT sees what was written after the place was noted.
    """
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, msg VARCHAR(20)) ENGINE=MyISAM")
    shop.run("INSERT INTO t VALUES (1, 'old'), (2, 'old'), (3, 'old')")
    note = MySqlServer.position
    changes = iter([("UPDATE t SET msg = 'new' WHERE id = 1", "DELETE FROM t WHERE id = 2")])

    def note_then_change(server: MySqlServer) -> LogPosition:
        noted = note(server)
        shop.run(*next(changes, ()))
        return noted

    monkeypatch.setattr(MySqlServer, "position", note_then_change)
    rows, _ = shop.read(TWO)
    assert rows[:2] == [("insert", 1, "new"), ("insert", 3, "old")]
    assert rows[2:] == [("update", 1, "new"), ("delete", 2, "old")]


def test_first_select_shows_all_tables_as_of_one_moment(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the log brings what was committed while it ran, so the batch ends at one place."""
    shop.run(T, "CREATE TABLE u LIKE t", "INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1, 'a')")
    with MySqlSource(shop.address, shop.database) as source:
        tables = [SourceTable("t", acid_table(TWO)), SourceTable("u", acid_table(TWO))]
        first = source.read_local(tables[:1], {})
        assert first.position
        shop.run("INSERT INTO t VALUES (2, 'b')", "INSERT INTO u VALUES (2, 'b')")
        both = source.read_local(tables, {"t": first.position})
        assert {each.table.name: len(rows_of(each)) for each in both.tables} == {"t": 1, "u": 2}


def test_a_source_without_news_has_no_position(shop: Shop) -> None:
    """So nothing is written in Hive."""
    shop.run(T)
    _, position = shop.read(TWO)
    assert position
    assert shop.read(TWO, position) == ([], None)


# -- operations ----------------------------------------------------------------------------------------------
def test_a_key_that_changes_is_a_delete_and_an_insert(shop: Shop) -> None:
    """Also where the server takes both keys for equal (a and A), since Hive does not."""
    shop.run("CREATE TABLE t (id VARCHAR(9) PRIMARY KEY, msg VARCHAR(9))", "INSERT INTO t VALUES ('a', 'x')")
    after = shop.now()
    shop.run("UPDATE t SET msg = 'y'", "UPDATE t SET id = 'A'")
    rows, _ = shop.read({"id": "string", "msg": "string"}, after)
    assert rows == [("update", "a", "y"), ("delete", "a", "y"), ("insert", "A", "y")]


def test_only_what_was_committed_is_read(shop: Shop) -> None:
    """Transactions that are open, rolled back, or rolled back in part leave nothing."""
    shop.run(T)
    after = shop.now()
    shop.run("BEGIN", "INSERT INTO t VALUES (1, 'a')", "ROLLBACK")
    shop.run("BEGIN", "INSERT INTO t VALUES (2, 'b')", "SAVEPOINT s", "INSERT INTO t VALUES (3, 'c')")
    shop.run("ROLLBACK TO s", "COMMIT", "BEGIN", "INSERT INTO t VALUES (4, 'd')")
    rows, position = shop.read(TWO, after)
    assert rows == [("insert", 2, "b")]
    shop.run("COMMIT")
    assert shop.read(TWO, position)[0] == [("insert", 4, "d")]


@pytest.mark.long
@pytest.mark.server("MariaDB")
@pytest.mark.parametrize("batch", [1, 20_000])
def test_what_the_log_rolls_back_is_not_read(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Behind a temporary table the log keeps what is rolled back, whole or to a savepoint, and says so."""
    monkeypatch.setattr(spill, "ROWS_PER_BATCH", batch)
    shop.run(T, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    after = shop.now()
    temporary = "CREATE OR REPLACE TEMPORARY TABLE scratch (id INT)"
    shop.run("BEGIN", "INSERT INTO t VALUES (3, 'c')", temporary, "DELETE FROM t WHERE id = 1", "ROLLBACK")
    shop.run("BEGIN", temporary, "UPDATE t SET id = 5 WHERE id = 2", "SAVEPOINT s", "DELETE FROM t")
    shop.run("INSERT INTO t VALUES (6, 'f')", "ROLLBACK TO s", "INSERT INTO t VALUES (7, 'g')", "SAVEPOINT S")
    shop.run("DELETE FROM t WHERE id = 7", "ROLLBACK TO S", "INSERT INTO t VALUES (8, 'h')", "COMMIT")
    log = shop.server.sql(f"SHOW BINLOG EVENTS IN '{json.loads(shop.now().text)['file']}'")
    assert {"ROLLBACK", "ROLLBACK TO `s`"} <= {event[5] for event in log}, "the log tells nothing undone"
    with MySqlSource(shop.address, shop.database) as source:
        found = source.read(spark, [SourceTable("t", acid_table(TWO))], {"t": after})
        (operations,) = found.tables
        rows = operations.operations.orderBy(POSITION).select(OPERATION, "id", "msg").collect()
    assert [tuple(row) for row in rows] == [
        ("delete", 2, "b"),
        ("insert", 5, "b"),
        ("insert", 7, "g"),
        ("insert", 8, "h"),
    ]
    shop.run("TRUNCATE t")
    with MySqlSource(shop.address, shop.database) as source:
        assert "TRUNCATE t" in str(source.read(spark, [SourceTable("t", acid_table(TWO))], {"t": after}).stop)
    with MySqlSource(shop.address, shop.database, recopy=["t"]) as source:
        found = source.read(spark, [SourceTable("t", acid_table(TWO))], {"t": after})
        (operations,) = found.tables
        assert (operations.is_emptied, operations.operations.collect()) == (True, [])
        assert (found.stop, found.set_back) == (None, {"t"})


@pytest.mark.server("MariaDB")  # MySQL with GTIDs refuses the statement
def test_rows_that_an_engine_does_not_roll_back_stay(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB logs them apart from the transaction; a server that logs them within it stops the reading."""
    shop.run(T, "CREATE TABLE m (id INT PRIMARY KEY, msg VARCHAR(9)) ENGINE=MyISAM")
    shop.run("INSERT INTO t VALUES (1, 'a')", "INSERT INTO m VALUES (1, 'a')")
    after = shop.now()
    shop.run("BEGIN", "UPDATE t JOIN m USING (id) SET t.msg = 'x', m.msg = 'y'", "ROLLBACK")
    assert shop.server.sql(f"SELECT msg FROM {shop.database}.m") == [("y",)]
    assert shop.read(TWO, after)[0] == []
    assert shop.read(TWO, after, table="m")[0] == [("update", 1, "y")]

    def between(log: BinaryLog, *positions: Any) -> Iterator[RowImages | Undone]:
        for images in whole(log, *positions):
            assert isinstance(images, RowImages)
            yield images
            yield Undone(images.position[:2], (images.position[2], images.position[2]), "mysql-bin.000001:7")

    whole = BinaryLog.between
    monkeypatch.setattr(BinaryLog, "between", between)
    where = rf"source table {shop.database}\.m: the log at mysql-bin.000001:7 "
    with pytest.raises(InputFormatError, match=f"{where}.* its engine has no transactions and keeps them"):
        shop.read(TWO, after, table="m")


def test_the_log_is_followed_over_files(shop: Shop) -> None:
    """And positions in later files are later."""
    shop.run(T)
    position: Position | None = shop.now()
    for number in range(3):
        before = position
        shop.run(f"INSERT INTO t VALUES ({number}, 'x')", "FLUSH BINARY LOGS")
        rows, position = shop.read(TWO, before)
        assert rows == [("insert", number, "x")]
        assert position and before and position > before


# -- DDL -----------------------------------------------------------------------------------------------------
def test_a_column_that_hive_has_may_be_added(shop: Shop) -> None:
    """Rows of before have NULL there."""
    shop.run(T)
    after = shop.now()
    shop.run(
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD COLUMN more INT",
        "INSERT INTO t VALUES (2, 'b', 5)",
    )
    rows, _ = shop.read({**TWO, "more": "int"}, after)
    assert rows == [("insert", 1, "a", None), ("insert", 2, "b", 5)]
    said = (
        r"Hive lacks t\.more \(int(\(11\))? at the source\): add it with ALTER TABLE \S+ ADD COLUMNS \(…\), "
        r"or leave it out: --ignore-column t\.more, in Python ignored_columns=\['t\.more'\]"
    )
    with pytest.raises(RecordLayoutError, match=said):
        shop.read(TWO, after)
    rows, _ = shop.read(TWO, after, ignored_columns=["t.more"])
    assert rows == [("insert", 1, "a"), ("insert", 2, "b")]


def test_other_ddl_ends_the_batch_at_the_statement(shop: Shop) -> None:
    """The message names the statement and its position; given as seen to, it no longer stops the run."""
    shop.run(T)
    after = shop.now()
    shop.run(
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t MODIFY msg VARCHAR(40)",
        "INSERT INTO t VALUES (2, 'b')",
    )
    rows, reached = shop.read(TWO, after)
    assert rows == [("insert", 1, "a")]
    assert shop.stop is not None
    assert "'ALTER TABLE t MODIFY msg" in shop.stop.message
    position = shop.stop.message.partition(" at ")[2].split()[0]
    assert f"run with --seen-to {position} " in shop.stop.message
    assert shop.read(TWO, reached, seen_to=[position])[0] == [("insert", 2, "b")]
    assert shop.stop is None


def test_ddl_before_the_place_from_which_a_table_is_read_does_not_stop_it(shop: Shop) -> None:
    """Another table may be behind, and what it misses is read past what the first one has seen already."""
    shop.run(T, T.replace("t (", "u ("))
    behind = shop.now()
    shop.run(
        "INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1, 'a')", "ALTER TABLE t MODIFY msg TEXT"
    )
    ahead = shop.now()
    shop.run("INSERT INTO t VALUES (2, 'b')")
    with MySqlSource(shop.address, shop.database) as source:
        tables = [SourceTable("t", acid_table(TWO)), SourceTable("u", acid_table(TWO))]
        found = source.read_local(tables, {"t": ahead, "u": behind})
        rows = {each.table.name: rows_of(each) for each in found.tables}
    assert rows == {"t": [("insert", 2, "b")], "u": [("insert", 1, "a")]}


STATEMENTS = {
    "view": (["CREATE VIEW o AS SELECT * FROM t"], ["UPDATE o SET v = v + 1"], "is a VIEW"),
    "trigger": (
        ["CREATE TABLE o (id INT)", "CREATE TRIGGER g AFTER INSERT ON o FOR EACH ROW UPDATE t SET v = v + 1"],
        ["INSERT INTO o VALUES (1)"],
        "has the trigger g",
    ),
    "trigger that was dropped": (
        ["CREATE TABLE o (id INT)", "CREATE TRIGGER g AFTER INSERT ON o FOR EACH ROW UPDATE t SET v = v + 1"],
        ["INSERT INTO o VALUES (1)", "DROP TRIGGER g"],
        "a view or a trigger was changed later in the log",
    ),
    "function": (
        [
            "CREATE FUNCTION f () RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN UPDATE t SET v = v + "
            "1; RETURN 1; END",
            "CREATE TABLE o (id INT)",
        ],
        ["INSERT INTO o VALUES (f())"],
        "may call the function f",
    ),
    "selected function": (
        [
            "CREATE FUNCTION f () RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN UPDATE t SET v = v + "
            "1; RETURN 1; END"
        ],
        ["SELECT f()"],
        "may call the function f",
    ),
    "procedure": (["CREATE PROCEDURE p () UPDATE t SET v = v + 1"], ["CALL p()"], "UPDATE t SET v = v + 1"),
    "two tables": (
        ["CREATE TABLE o (id INT)"],
        ["UPDATE o JOIN t USING (id) SET t.v = 0"],
        "without logging",
    ),
    "delete": ([], ["DELETE FROM t WHERE v > 5"], "without logging"),
    "replace": ([], ["REPLACE INTO t SELECT id, 0 FROM t"], "without logging"),
    "load": ([], ["LOAD DATA INFILE '{file}' INTO TABLE t"], "LOAD DATA"),
    "created": (
        [],
        ["CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v INT) SELECT 7 AS id, 7 AS v"],
        "CREATE OR REPLACE",
    ),
}


@pytest.mark.parametrize(
    "kind", [*list(STATEMENTS)[:-1], pytest.param("created", marks=pytest.mark.server("MariaDB"))]
)
def test_statements_in_the_place_of_rows_end_the_batch(shop: Shop, kind: str, tmp_path: Path) -> None:
    """Even if they do not name the table; a session may log them whatever the server's setting is."""
    before, statements, said = STATEMENTS[kind]
    (tmp_path / "rows").write_text("8\t88\n")
    shop.run(T.replace("msg VARCHAR(20)", "v INT"), *before)
    after = shop.now()
    shop.run("INSERT INTO t VALUES (2, 22)", "SET binlog_format = STATEMENT")
    shop.run(*[statement.format(file=tmp_path / "rows") for statement in statements])
    shop.run("SET binlog_format = ROW", "INSERT INTO t VALUES (3, 33)")
    rows, _ = shop.read({"id": "int", "v": "int"}, after)
    assert rows == [("insert", 2, 22)]
    assert shop.stop is not None
    assert said in shop.stop.message
    assert "--recopy t" in shop.stop.message


def test_a_trigger_that_is_dropped_behind_the_place_of_the_stop_counts(shop: Shop) -> None:
    """The catalog has it no more, and the log says that it had it."""
    shop.run(T, "CREATE TABLE o (id INT)")
    shop.run("CREATE TRIGGER g AFTER INSERT ON o FOR EACH ROW DELETE FROM t")
    after = shop.now()
    shop.run("SET binlog_format = STATEMENT", "INSERT INTO o VALUES (1)", "SET binlog_format = ROW")
    shop.run("INSERT INTO t VALUES (1, 'a')", "TRUNCATE t", "DROP TRIGGER g")
    rows, _ = shop.read(TWO, after)
    assert rows == []
    assert shop.stop is not None
    assert "INSERT INTO o VALUES (1)" in shop.stop.message


def test_a_table_of_another_database_is_passed_if_the_account_sees_its_triggers(shop: Shop) -> None:
    """Else the message says which privileges it needs."""
    shop.run(T, "DROP DATABASE IF EXISTS beside", "CREATE DATABASE beside", "CREATE TABLE beside.o (id INT)")
    after = shop.now()
    shop.run("SET binlog_format = STATEMENT", "INSERT INTO beside.o VALUES (1)", "SET binlog_format = ROW")
    shop.run("INSERT INTO t VALUES (1, 'a')")
    client = "BINLOG MONITOR" if shop.server.is_mariadb else "REPLICATION CLIENT"
    make_account(
        shop, "reader", f"GRANT SELECT ON {shop.database}.*", f"GRANT REPLICATION SLAVE, {client} ON *.*"
    )
    shop.address = replace(shop.address, user="reader", password="x")
    for grant in ("SELECT", "TRIGGER"):
        assert shop.read(TWO, after)[0] == []
        assert shop.stop is not None
        assert grant in shop.stop.message.partition(": 'INSERT")[0]
        shop.run(f"GRANT {grant} ON beside.* TO reader@'127.0.0.1'")
    assert shop.read(TWO, after)[0] == [("insert", 1, "a")]
    shop.run("DROP DATABASE beside")


def test_statements_on_the_tables_of_the_server_need_no_proof(shop: Shop) -> None:
    """Services write a heartbeat there, and it can have no triggers."""
    shop.run(T)
    after = shop.now()
    shop.run("SET binlog_format = STATEMENT", "CREATE TABLE mysql.beat (id INT)")
    shop.run("INSERT INTO mysql.beat VALUES (1) ON DUPLICATE KEY UPDATE id = 2", "SET binlog_format = ROW")
    try:
        assert shop.read(TWO, after)[1] is not None
        assert shop.stop is None
    finally:
        shop.run("DROP TABLE mysql.beat")


def test_a_cascade_that_came_and_went_ends_the_batch(shop: Shop) -> None:
    """The catalog shows no foreign key any more, and the log has no rows of it."""
    shop.run("CREATE TABLE p (id INT PRIMARY KEY)", T.replace("msg VARCHAR(20)", "msg INT"))
    shop.run("INSERT INTO p VALUES (5)", "INSERT INTO t VALUES (1, 5)")
    after = shop.now()
    shop.run("ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (msg) REFERENCES p (id) ON DELETE CASCADE")
    shop.run("DELETE FROM p", "ALTER TABLE t DROP FOREIGN KEY f")
    assert shop.read({"id": "int", "msg": "int"}, after)[0] == []
    assert shop.stop is not None
    assert "adds a foreign key that changes its rows without logging them" in shop.stop.message


@pytest.mark.parametrize(
    ("charset", "table", "comment"), [("latin1", "ß", ""), ("utf8mb4", "ß", ""), ("cp1251", "t", "/* да */")]
)
def test_a_statement_is_read_in_the_character_set_of_its_session(
    shop: Shop, charset: str, table: str, comment: str
) -> None:
    """A name has other bytes in each; a statement in a set that is not known may change all tables."""
    shop.run(f"CREATE TABLE `{table}` (id INT PRIMARY KEY)", "CREATE TABLE o (id INT)")
    after = shop.now()
    changed = "o" if comment else table
    with shop.server.connect(shop.database, charset=charset) as connection, connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE `{changed}` {comment}")
    shop.read({"id": "int"}, after, table=table)
    assert shop.stop is not None
    assert ("its character set is unknown" in shop.stop.message) == bool(comment)


def test_the_character_set_of_each_collation_is_known(mysql: MySqlJudge) -> None:
    """The log has numbers of collations, old and new ones."""
    rows = mysql.sql(
        "SELECT ID, CHARACTER_SET_NAME FROM information_schema."
        f"{'COLLATION_CHARACTER_SET_APPLICABILITY' if mysql.is_mariadb else 'COLLATIONS'}"
    )
    assert len(rows) > (1000 if mysql.is_mariadb else 250)
    assert [(number, name, charset_of(number)) for number, name in rows if charset_of(number) != name] == []


def test_rows_without_some_columns_stop_the_reading(shop: Shop) -> None:
    """A session may log parts of rows whatever the server's setting is."""
    shop.run(T, "INSERT INTO t VALUES (1, 'a')")
    after = shop.now()
    shop.run("SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE t SET msg = 'b'")
    with pytest.raises(InputFormatError, match="binlog_row_image=FULL"):
        shop.read(TWO, after)


def test_rows_without_names_of_columns_stop_the_reading(
    shop: Shop, set_global: Callable[[str, Any], None]
) -> None:
    """Which column a value belongs to would be a guess after a change of the table."""
    shop.run(T)
    after = shop.now()
    set_global("binlog_row_metadata", "MINIMAL")
    shop.server.sql(f"INSERT INTO {shop.database}.t VALUES (1, 'a')")
    set_global("binlog_row_metadata", "FULL")
    with pytest.raises(InputFormatError, match="binlog_row_metadata=FULL"):
        shop.read(TWO, after)


@pytest.mark.server("MariaDB")
def test_compressed_events_stop_the_reading(shop: Shop, set_global: Callable[[str, Any], None]) -> None:
    """The library has no class for them, and what it leaves out must not be lost."""
    shop.run(T.replace("20", "2000"))
    after = shop.now()
    set_global("log_bin_compress", 1)
    shop.server.sql(f"INSERT INTO {shop.database}.t VALUES (1, REPEAT('a', 2000))")
    set_global("log_bin_compress", 0)
    with pytest.raises(InputFormatError, match=r"an event of unknown type 1.. at .*log_bin_compress"):
        shop.read({"id": "int", "msg": "string"}, after)


def test_prepared_transactions_stop_the_reading(shop: Shop) -> None:
    """XA PREPARE logs rows that may still be rolled back."""
    shop.run(T)
    after = shop.now()
    shop.run("XA START 'x'", "INSERT INTO t VALUES (1, 'a')", "XA END 'x'", "XA PREPARE 'x'")
    try:
        with pytest.raises(InputFormatError, match="XA PREPARE"):
            shop.read(TWO, after)
    finally:
        shop.run("XA ROLLBACK 'x'")


# -- positions -----------------------------------------------------------------------------------------------
def moved(position: Position, **changes: Any) -> Position:
    """The position with other words."""
    return replace(LogPosition.of(position), **changes).to_position()


def test_a_purged_log_says_how_to_start_over(shop: Shop) -> None:
    """Going on from the oldest file would lose changes."""
    shop.run(T)
    after = shop.now()
    shop.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    newest = LogPosition.of(shop.now()).file

    def is_purged() -> bool:
        """What a connection of an earlier test still reads is kept until the server notices its end."""
        shop.run(f"PURGE BINARY LOGS TO '{newest}'")
        return [name for name, *_ in shop.server.sql("SHOW BINARY LOGS")] == [newest]

    wait_until(is_purged, "the end of the older logs")
    with pytest.raises(SourcePositionError, match=r"was purged.*To start over, run once with --recopy"):
        shop.read(TWO, after)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server": "99"}, "belongs to server 99, but this is server "),
        ({"offset": 1 << 31}, "reset its log"),
        ({"gtid": "0-1-1000000"}, "reset its log.*To start over"),
        ({"gtid": f"{'0' * 7}1{'-0000' * 3}-{'0' * 12}:1-9"}, "reset its log.*To start over"),
        ({"begun": 1}, "created .* the watermark .* is in a file created at 1. To start over"),
    ],
)
def test_another_server_or_another_log_is_refused(shop: Shop, changes: dict[str, Any], message: str) -> None:
    """A replica, a restored server and RESET MASTER have other transactions at the same place."""
    shop.run(T)
    with pytest.raises(SourcePositionError, match=message):
        shop.read(TWO, moved(shop.now(), **changes))


def test_a_watermark_of_another_kind_of_source_is_refused(shop: Shop) -> None:
    """Its numbers would mean something else."""
    shop.run(T)
    with pytest.raises(SourcePositionError, match="is not a position in a binary log"):
        shop.read(TWO, Position((1, 2), '{"seqno": 1}'))


# -- values --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("source", "hive", "message"),
    [
        ("BIGINT UNSIGNED", "boolean", "cannot be stored in a column of type boolean"),
        ("DECIMAL(9,4)", "decimal(20,2)", "4 digits after the decimal point"),
        ("VARCHAR(30)", "varchar(29)", "may have 30 characters"),
        ("TEXT", "varchar(100)", "may have 65535 characters"),
        ("TIME(3)", "timestamp", "expected one of string, char, varchar"),
        ("DOUBLE", "float", "expected one of double"),
        ("BLOB", "string", "expected one of binary"),
        ("DATETIME", "date", "expected one of timestamp"),
        pytest.param("JSON", "string", "type json is not supported", marks=pytest.mark.server("MySQL")),
        pytest.param("VECTOR(3)", "binary", "type vector", marks=pytest.mark.server("MySQL")),
        pytest.param(
            "UUID",
            "string",
            "type uuid is not supported. Leave the column out",
            marks=pytest.mark.server("MariaDB"),
        ),
        pytest.param("INET6", "string", "type inet6 is not supported", marks=pytest.mark.server("MariaDB")),
        pytest.param(
            "TEXT COMPRESSED", "string", "COMPRESSED.* is not supported", marks=pytest.mark.server("MariaDB")
        ),
        ("TEXT CHARACTER SET cp1251", "string", "character set cp1251 is not supported"),
    ],
)
def test_types_that_do_not_fit_are_refused_before_anything_is_read(
    shop: Shop, source: str, hive: str, message: str
) -> None:
    """By name, whatever the values are."""
    shop.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {source})")
    with pytest.raises(RecordLayoutError, match=f"column 'v'.*{message}"):
        shop.read({"id": "int", "v": hive})


@pytest.mark.parametrize(
    ("source", "hive", "value", "message"),
    [
        ("INT", "smallint", "40000", "40000 is not a whole number from -32768 to 32767"),
        ("BOOLEAN", "boolean", "2", "2 is not a boolean: expected 0 or 1"),
        ("BIGINT UNSIGNED", "bigint", "18446744073709551615", "is not a whole number"),
        ("DATE", "date", "'0000-00-00'", "zero month or day"),
        ("DATE", "date", "'2020-00-10'", "zero month or day"),
        ("DATE", "date", "'2023-02-31'", "2023-02-31 is not a date"),
        ("DATETIME(3)", "timestamp", "'0000-00-00 00:00:00'", "zero month or day"),
        ("TIMESTAMP", "timestamp", "'0000-00-00 00:00:00'", "zero month or day"),
    ],
)
def test_values_that_do_not_fit_are_refused_from_select_and_from_the_log(
    shop: Shop, source: str, hive: str, value: str, message: str
) -> None:
    """Alike, naming table, column and value."""
    shop.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {source})", "SET sql_mode = 'ALLOW_INVALID_DATES'")
    after = shop.now()
    shop.run(f"INSERT INTO t VALUES (1, {value})")
    for start in (None, after):
        with pytest.raises(RecordValueError, match=rf"\.t: column 'v'.*{message}"):
            shop.read({"id": "int", "v": hive}, start)


@pytest.mark.parametrize("source", ["DATE", "DATETIME(3)", "TIMESTAMP(6) NULL"])
def test_zero_dates_become_null_where_that_was_chosen(shop: Shop, source: str) -> None:
    """From SELECT and from the log."""
    hive = "date" if source == "DATE" else "timestamp"
    shop.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {source})", "SET sql_mode = ''")
    after = shop.now()
    shop.run("INSERT INTO t VALUES (1, '0000-00-00')")
    for start in (None, after):
        assert shop.read({"id": "int", "v": hive}, start, zero_dates="null")[0] == [("insert", 1, None)]


def test_a_timestamp_is_the_wall_clock_of_the_zone_that_was_chosen(shop: Shop) -> None:
    """Summer time included; a DATETIME stays what it is."""
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v TIMESTAMP NULL, w DATETIME)", "SET time_zone = '+00:00'")
    after = shop.now()
    shop.run("INSERT INTO t VALUES (1, '2024-07-01 12:00:00', '2024-07-01 12:00:00')")
    noon = datetime.datetime(2024, 7, 1, 12)
    types = {"id": "int", "v": "timestamp", "w": "timestamp"}
    for start in (None, after):
        rows, _ = shop.read(types, start, time_zone="Europe/Berlin")
        assert rows == [("insert", 1, noon + datetime.timedelta(hours=2), noon)]


@pytest.mark.parametrize("options", [{"time_zone": "Nowhere/Never"}, {"zero_dates": "today"}])
def test_options_without_sense_are_refused(options: dict[str, str]) -> None:
    """Before anything is connected."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        MySqlSource(MySqlAddress("127.0.0.1", "nobody"), "none", **options)  # type: ignore[arg-type]


def test_a_server_that_does_not_answer_is_named(shop: Shop) -> None:
    """With the account, so that a wrong address shows."""
    source = MySqlSource(replace(shop.address, port=1), shop.database)
    with pytest.raises(ConnectionFailedError, match=r"judge@127\.0\.0\.1:1"):
        source.read_local([], {})


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "hive", "value", "expected"),
    [
        ("TINYINT UNSIGNED", "smallint", "255", 255),
        ("INT UNSIGNED ZEROFILL", "bigint", "7", 7),
        ("BIGINT", "bigint", "-9223372036854775808", -(2**63)),
        ("BIGINT UNSIGNED", "decimal(20,0)", "18446744073709551615", Decimal(2**64 - 1)),
        ("BIGINT UNSIGNED", "string", "18446744073709551615", str(2**64 - 1)),
        ("BIT(64)", "decimal(20,0)", "b'1' | ~0", Decimal(2**64 - 1)),
        ("BIT(9)", "int", "257", 257),
        ("BIT(1)", "boolean", "1", True),
        ("YEAR", "int", "0", 0),
        ("DECIMAL(65,30)", "decimal(38,30)", "-0.000000000000000000000000000001", Decimal("-1E-30")),
        ("DECIMAL(38,10)", "decimal(38,10)", "-1234567890123456789012345678.0123456789", None),
        ("DECIMAL(5,2) UNSIGNED ZEROFILL", "decimal(7,3)", "1.5", Decimal("1.5")),
        ("FLOAT", "float", "16777216", 16777216.0),
        ("FLOAT", "double", "0.1", 0.10000000149011612),
        ("DOUBLE", "double", "-1.7976931348623157e308", -1.7976931348623157e308),
        ("DOUBLE", "double", "5e-324", 5e-324),
        ("CHAR(10)", "char(10)", "'ab  '", "ab"),
        ("VARCHAR(9) CHARACTER SET latin1", "string", "CONCAT('é€', CHAR(129 USING latin1))", "é€\x81"),
        ("VARCHAR(9) CHARACTER SET utf16", "string", "'😀ü'", "😀ü"),
        ("ENUM('a','b''c','d,e','ü')", "string", "'b''c'", "b'c"),
        ("ENUM('back\\\\slash','new\\nline')", "string", "2", "new\nline"),
        ("SET('x','y','ö')", "string", "'ö,x'", "x,ö"),
        ("SET('x')", "string", "''", ""),
        ("BINARY(5)", "binary", "x'0100'", b"\1\0\0\0\0"),
        ("VARBINARY(300)", "binary", "x'00ff00'", b"\0\xff\0"),
        ("POINT", "binary", "ST_GeomFromText('POINT(0 2)')", bytes(4) + b"\1\1" + bytes(18) + b"\x40"),
        ("DATETIME(6)", "timestamp", "'9999-12-31 23:59:59.999999'", datetime.datetime.max),
        ("DATETIME(1)", "timestamp", "'0001-01-01 00:00:00.9'", datetime.datetime(1, 1, 1, 0, 0, 0, 900000)),
        ("TIMESTAMP(6)", "timestamp", "FROM_UNIXTIME(1.000001)", datetime.datetime(1970, 1, 1, 0, 0, 1, 1)),
        ("TIME(1)", "string", "'-00:00:00.1'", "-00:00:00.1"),
        ("TIME(6)", "string", "'-838:59:58.999999'", "-838:59:58.999999"),
        ("INT AS (id * 2) VIRTUAL", "int", "DEFAULT", 2),
    ],
)
def test_values_at_the_edges_are_the_same_from_select_and_from_the_log(
    shop: Shop, source: str, hive: str, value: str, expected: Any
) -> None:
    """Each type's, and NULL where the column may be that."""
    shop.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {source})")
    after = shop.now()
    shop.run(f"INSERT INTO t VALUES (1, {value})")
    types = {"id": "int", "v": hive}
    wanted = Decimal(value) if expected is None else expected
    assert shop.read(types)[0] == shop.read(types, after)[0] == [("insert", 1, wanted)]
