"""The guide's table of what statements at a MySQL source do, row by row: the outcome, then the way on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from judges.mysql import MySqlJudge
from tests.fixtures.fix_clock import wait_until
from tests.integration.ingests.followed_tables import Answer, FollowedTables

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[3] / "docs/guides/ingest.md"
STOPS, REFUSED, GOES_ON = "stops", "is refused", "continues"

Way = Callable[[FollowedTables, Answer], list[str]]
"""Does what the guide says, and gives the words of the next run."""


@dataclass(frozen=True)
class Case:
    """Statements of one row of the table, and the ways on that its last column names.

    ``is_long``: another test that always runs shows the outcome. ``server``: the one that alone has it.
    """

    statements: list[str]
    ways: list[Way] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    is_gone: bool = False
    is_purged: bool = False
    is_long: bool = False
    server: str = ""


def recopy(_shop: FollowedTables, _answer: Answer) -> list[str]:
    """Read the table whole again."""
    return ["--recopy", "t"]


def seen(_shop: FollowedTables, answer: Answer) -> list[str]:
    """The rows in Hive are right already."""
    return ["--seen-to", answer.seen_to]


def emptied(shop: FollowedTables, answer: Answer) -> list[str]:
    """Empty the table in Hive."""
    shop.edit("t", lambda row: None)
    return seen(shop, answer)


def shortened(shop: FollowedTables, answer: Answer) -> list[str]:
    """Remove the rows of the first partition in Hive."""
    shop.edit("t", lambda row: row if row["id"] > 1 else None)
    return seen(shop, answer)


def columns(change: dict[str, str], fill: Callable[[dict[str, object]], dict[str, object]] = dict) -> Way:
    """Give the table in Hive other columns."""

    def way(shop: FollowedTables, answer: Answer) -> list[str]:
        shop.change_columns("t", change, fill)
        return ["--seen-to", answer.seen_to] if "--seen-to" in answer.err else []

    return way


def added(shop: FollowedTables, _answer: Answer) -> list[str]:
    """The run adds the new column; a dry run before it only says so."""
    tried = shop.ingest("--schema", "add", "--dry-run")
    assert tried.code == 0, tried.err
    assert "added s int" in tried.err, tried.err
    shop.added("t", {"s": "int"})
    return ["--schema", "add"]


def left_out(_shop: FollowedTables, _answer: Answer) -> list[str]:
    """Leave the new column out."""
    return ["--ignore-column", "t.s"]


def dropped(shop: FollowedTables, answer: Answer) -> list[str]:
    """Hive keeps the column without values."""
    shop.edit("t", lambda row: {**row, "v": None})
    return [*seen(shop, answer), "--ignore-column", "t.v"]


def restricted(shop: FollowedTables, _answer: Answer) -> list[str]:
    """Let the application change the rows, and read what the cascade did."""
    shop.run("ALTER TABLE t DROP FOREIGN KEY f")
    return recopy(shop, _answer)


TWO = {"id": "int", "v": "int"}
THREE = {**TWO, "s": "int"}
PARTS = (
    "ALTER TABLE t PARTITION BY RANGE (id) "
    "(PARTITION p VALUES LESS THAN (2), PARTITION q VALUES LESS THAN (99))"
)
RESET = "RESET MASTER"
"""MySQL has another name for it from 8.2 on."""
NEW = ["CREATE TABLE n LIKE t", "INSERT INTO n SELECT * FROM t"]

CASES = {
    "`ADD COLUMN`, NULL in all rows": Case(
        ["ALTER TABLE t ADD s INT", "INSERT INTO t VALUES (3, 33, 5)"], [added, columns(THREE), left_out]
    ),
    "`ADD COLUMN` with a default or `NOT NULL`": Case(
        ["ALTER TABLE t ADD s INT NOT NULL DEFAULT 5", "INSERT INTO t VALUES (3, 33, 6)"],
        [columns(THREE, lambda row: {**row, "s": 5})],
    ),
    "`DROP COLUMN`": Case(["ALTER TABLE t DROP v"], [dropped]),
    "`RENAME COLUMN`, `CHANGE`": Case(
        ["ALTER TABLE t CHANGE v w INT"],
        [columns({"id": "int", "w": "int"}, lambda row: {"id": row["id"], "w": row["v"]})],
    ),
    "`MODIFY`, `CONVERT TO CHARACTER SET`": Case(
        ["ALTER TABLE t MODIFY v SMALLINT"], [seen, recopy], is_long=True
    ),
    "a changed primary key": Case(
        ["ALTER TABLE t MODIFY v INT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (v)"],
        [seen, recopy],
        is_long=True,
    ),
    "an index, a constraint, a comment, another default, new partitions": Case(
        ["ALTER TABLE t ADD INDEX i (v), ADD CHECK (id > 0), COMMENT 'x', ALTER v SET DEFAULT 7", PARTS],
        is_long=True,
    ),
    "`ALTER IGNORE`": Case(
        ["ALTER IGNORE TABLE t ADD UNIQUE (v)"], [recopy], ["UPDATE t SET v = 5"], server="MariaDB"
    ),
    "`TRUNCATE`": Case(["TRUNCATE t", "INSERT INTO t VALUES (3, 33)"], [emptied, recopy]),
    "`DROP PARTITION`, `TRUNCATE PARTITION`, `EXCHANGE PARTITION`": Case(
        ["ALTER TABLE t TRUNCATE PARTITION p"],
        [shortened],
        [PARTS],
        is_long=True,
    ),
    "`DROP TABLE`, then `CREATE TABLE`": Case(
        ["DROP TABLE t", "CREATE TABLE t (v INT, id INT PRIMARY KEY)", "INSERT INTO t VALUES (9, 9)"],
        [emptied, recopy],
    ),
    "`DROP TABLE` without a new table": Case(["DROP TABLE t"], is_gone=True, is_long=True),
    "`RENAME TABLE`, as gh-ost and pt-online-schema-change do": Case(
        [*NEW, "RENAME TABLE t TO o, n TO t"], [seen, recopy]
    ),
    "a foreign key with CASCADE": Case(
        [
            "CREATE TABLE p (id INT PRIMARY KEY)",
            "INSERT INTO p SELECT v FROM t",
            "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES p (id) ON DELETE CASCADE",
            "DELETE FROM p WHERE id = 22",
        ],
        [restricted],
    ),
    "a statement logged instead of rows": Case(
        ["SET binlog_format = STATEMENT", "UPDATE o SET v = v + 1", "SET binlog_format = ROW"],
        [recopy],
        ["CREATE VIEW o AS SELECT * FROM t"],
    ),
    "a logged statement that writes a plain table without triggers": Case(
        ["SET binlog_format = STATEMENT", "REPLACE INTO o SELECT COUNT(*) FROM t", "SET binlog_format = ROW"],
        before=["CREATE TABLE o (n INT)"],
        is_long=True,
    ),
    "a statement that only mentions the table (view, procedure, trigger, grant, `LIKE`, foreign key to it, "
    "temporary table)": Case(
        [
            "CREATE VIEW o AS SELECT * FROM t",
            "CREATE PROCEDURE c () TRUNCATE t",
            "DROP PROCEDURE c",
            "CREATE TABLE l LIKE t",
            "CREATE TABLE k (t INT, FOREIGN KEY (t) REFERENCES t (id))",
            "CREATE TEMPORARY TABLE t (id INT)",
            "DROP TEMPORARY TABLE t",
            "DROP TABLE k",
        ],
        is_long=True,
    ),
    "a session with `binlog_row_image=MINIMAL`": Case(
        ["SET binlog_row_image = MINIMAL", "UPDATE t SET v = 7 WHERE id = 1", "SET binlog_row_image = FULL"],
        [recopy],
        is_long=True,
    ),
    "fail-over to another server": Case(
        ["SET @id = @@global.server_id", "SET GLOBAL server_id = 77"], [recopy], server="MariaDB"
    ),
    "`RESET MASTER`, or a server restored from a backup": Case(
        ["DO SLEEP(1.1)", RESET], [recopy], is_long=True
    ),
    "the log was purged": Case(["FLUSH BINARY LOGS"], [recopy], is_purged=True, is_long=True),
}


KEPT = {dropped: ["--ignore-column", "t.v"], left_out: ["--ignore-column", "t.s"]}
"""Words of each later run too."""


@pytest.fixture
def shop(mysql_tables: FollowedTables, mysql: MySqlJudge) -> Iterator[FollowedTables]:
    """A table that Hive does not follow yet; the server's number is set back."""
    mysql_tables.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 11)")
    mysql_tables.create("t", TWO)
    number = mysql.sql("SELECT @@global.server_id")[0][0]
    yield mysql_tables
    mysql.sql("SET GLOBAL server_id = %s", number)


def rows_of_the_guide() -> dict[str, str]:
    """What a run does, by the first cell of each row."""
    text = GUIDE.read_text(encoding="utf-8").partition("| at the source | the run | what to do |\n")[2]
    rows = [re.split(r"\s*\|\s*", line.strip("| ")) for line in text.partition("\n\n")[0].splitlines()[1:]]
    return {row[0]: row[1] for row in rows}


def test_each_row_of_the_guide_is_tried() -> None:
    """And no more than these."""
    assert list(rows_of_the_guide()) == list(CASES)


def marks_of(case: Case, number: int) -> list[Any]:
    """When a case of the guide runs."""
    long = [pytest.mark.long] if number or case.is_long else []
    return [*long, *([pytest.mark.server(case.server)] if case.server else [])]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, marks=marks_of(case, number))
        for name, case in CASES.items()
        for number, way in enumerate(case.ways or [None])
    ],
)
def test_a_row_of_the_guide(shop: FollowedTables, name: str, way: Way | None) -> None:
    """The run does what the guide says, and the way on leads to the source's rows."""
    case, outcome = CASES[name], rows_of_the_guide()[name]
    shop.run(*case.before)
    shop.follow()
    shop.run("INSERT INTO t VALUES (2, 22)")
    reset = RESET if shop.server.is_mariadb else "RESET BINARY LOGS AND GTIDS"
    shop.run(*(reset if statement == RESET else statement for statement in case.statements))
    if case.is_purged:
        purge(shop)
    if outcome.startswith(GOES_ON):
        shop.follow()
        return
    answer = shop.stop() if outcome.startswith(STOPS) else shop.ingest()
    assert answer.code == 1, answer.out
    assert ("StoppedAtStatementError" in answer.err) == outcome.startswith(STOPS), answer.err
    assert len(shop.hive("t")) == (2 if outcome.startswith(STOPS) else 1)
    if case.is_gone:
        shop.edit("t", lambda row: None)
        assert "does not exist" in shop.ingest("--seen-to", answer.seen_to).err
        return
    assert way is not None
    shop.follow(*way(shop, answer))
    shop.run("DELETE FROM t WHERE id = 1")
    shop.follow(*KEPT.get(way, ()))


EXTREMES = {
    "ti": ("TINYINT UNSIGNED", "smallint", "255"),
    "flag": ("TINYINT(1)", "tinyint", "-128"),
    "si": ("SMALLINT UNSIGNED", "int", "65535"),
    "mi": ("MEDIUMINT UNSIGNED", "int", "16777215"),
    "i": ("INT UNSIGNED", "bigint", "4294967295"),
    "bi": ("BIGINT UNSIGNED", "decimal(20,0)", "18446744073709551615"),
    "big": ("BIGINT", "bigint", "-9223372036854775808"),
    "y": ("YEAR", "smallint", "2155"),
    "n": ("DECIMAL(38,10)", "decimal(38,10)", "-9999999999999999999999999999.9999999999"),
    "f": ("FLOAT", "float", "1.5"),
    "d": ("DOUBLE", "double", "0.1"),
    "c": ("CHAR(3)", "string", "'äöü'"),
    "w": ("VARCHAR(300)", "string", "REPEAT('x', 300)"),
    "e": ("ENUM('a', 'b')", "string", "'b'"),
    "b": ("VARBINARY(4)", "binary", "X'00FF00FF'"),
    "day": ("DATE", "date", "'9999-12-31'"),
    "ts": ("DATETIME(6)", "timestamp", "'1000-01-01 00:00:00.000001'"),
}
"""New columns at the source: the type there, the type in Hive, and a value that needs it."""


def test_new_columns_get_types_that_hold_all_values(shop: FollowedTables) -> None:
    """With --schema add, by SELECT and from the log."""
    shop.follow()
    clauses = ", ".join(f"ADD `{name}` {kind}" for name, (kind, *_) in EXTREMES.items())
    names, values = ", ".join(f"`{name}`" for name in EXTREMES), ", ".join(v for *_, v in EXTREMES.values())
    shop.run(f"ALTER TABLE t {clauses}", f"INSERT INTO t (id, v, {names}) VALUES (2, 22, {values})")
    shop.added("t", {name: kind for name, (_, kind, _) in EXTREMES.items()})
    shop.follow("--schema", "add")
    found = {each.name: each.type for each in shop.metastore.get_table("default", "t").columns}
    assert found == shop.columns("t")
    shop.follow("--schema", "add", "--recopy", "t")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE t ADD n DECIMAL(39, 0)", "a decimal of Hive has at most 38 digits"),
        ("ALTER TABLE t ADD u UUID", "type uuid is not supported"),
        ("ALTER TABLE t CHANGE v w INT", "'ALTER TABLE t CHANGE v w INT'"),
    ],
)
def test_columns_that_are_not_added(shop: FollowedTables, statement: str, message: str) -> None:
    """Hive has no such type, or the column may be another one's new name."""
    if "UUID" in statement and not shop.server.is_mariadb:
        statement = statement.replace("UUID", "JSON")
        message = message.replace("uuid", "json")
    shop.follow()
    shop.run(statement)
    answer = shop.ingest("--schema", "add")
    assert answer.code == 1
    assert message in answer.err
    assert [each.name for each in shop.metastore.get_table("default", "t").columns] == ["id", "v"]


def purge(shop: FollowedTables) -> None:
    """Remove all files of the log but the newest."""
    newest = shop.server.log_end()[0]

    def is_purged() -> bool:
        """What an earlier reader had open is kept until the server notices its end."""
        shop.run(f"PURGE BINARY LOGS TO '{newest}'")
        return [name for name, *_ in shop.server.sql("SHOW BINARY LOGS")] == [newest]

    wait_until(is_purged, "the end of the older logs")
