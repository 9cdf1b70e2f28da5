"""Statements that change a MariaDB's table without logging rows: the command stops at them, and goes on
behind.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from judges.mysql import MySqlJudge
from mutation_api.cdc.mysql.log_position import LogPosition
from mutation_api.cdc.mysql.server import MySqlServer
from tests.integration.ingests.followed_tables import FollowedTables
from tests.integration.ingests.mysql_ddl_workload import DdlWorkload, User

pytestmark = pytest.mark.slow

LONG_TIMEOUT_SECONDS = 1800.0
TWO = {"id": "int", "v": "int"}
T = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"


@pytest.fixture
def shop(mysql_tables: FollowedTables) -> FollowedTables:
    """A table with a row, which Hive follows."""
    mysql_tables.run(T, "INSERT INTO t VALUES (1, 11)")
    mysql_tables.create("t", TWO)
    mysql_tables.follow()
    return mysql_tables


def test_what_is_before_a_truncate_is_applied_before_it(shop: FollowedTables) -> None:
    """The advice of the message leads to the source's rows."""
    shop.run("INSERT INTO t VALUES (2, 22)", "TRUNCATE t", "INSERT INTO t VALUES (3, 33)")
    answer = shop.stop()
    assert shop.hive("t") == [(1, 11), (2, 22)]
    assert "'TRUNCATE t'" in answer.err
    assert "applied in transaction" in answer.out
    again = shop.stop()
    assert (again.seen_to, again.out) == (answer.seen_to, "")
    shop.edit("t", lambda row: None)
    shop.follow("--seen-to", answer.seen_to)
    assert shop.hive("t") == [(3, 33)]


def test_a_column_that_was_added_to_hive_too_early_does_no_harm(shop: FollowedTables) -> None:
    """It is NULL until the statement is done in Hive."""
    shop.run("INSERT INTO t VALUES (2, 22)", "ALTER TABLE t ADD COLUMN s INT NOT NULL DEFAULT 5")
    shop.change_columns("t", {**TWO, "s": "int"})
    answer = shop.stop()
    assert shop.hive("t") == [(1, 11, None), (2, 22, None)]
    shop.edit("t", lambda row: {**row, "s": 5})
    shop.follow("--seen-to", answer.seen_to)


def test_a_type_is_changed_between_two_runs(shop: FollowedTables) -> None:
    """Rows before are decoded by the type, the sign and the character set that they were logged with."""
    shop.run("ALTER TABLE t ADD s VARCHAR(9) CHARACTER SET latin1", "ALTER TABLE t ADD e ENUM('ä','b')")
    shop.change_columns("t", {**TWO, "s": "string", "e": "string"})
    shop.follow()
    shop.run("INSERT INTO t VALUES (2, -22, 'é€', 'ä')")
    shop.run("UPDATE t SET v = -5 WHERE id = 2")
    shop.run("ALTER TABLE t MODIFY s VARCHAR(20) CHARACTER SET utf8mb4, MODIFY e ENUM('b','ö','ä')")
    shop.run("INSERT INTO t VALUES (3, 33, '語', 'ö')")
    answer = shop.stop()
    assert shop.hive("t") == [(1, 11, None, None), (2, -5, "é€", "ä")]
    shop.follow("--seen-to", answer.seen_to)
    assert shop.hive("t")[2] == (3, 33, "語", "ö")


def test_a_column_is_dropped_between_two_runs(shop: FollowedTables) -> None:
    """Hive cannot drop columns of ORC: it keeps the column, without values."""
    shop.run("INSERT INTO t VALUES (2, 22)", "ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (3)")
    answer = shop.stop()
    assert shop.hive("t") == [(1, 11), (2, 22)]
    refused = shop.ingest("--seen-to", answer.seen_to)
    assert "the source lacks v: set it to NULL in Hive" in refused.err
    assert "--ignore-column t.v" in refused.err
    shop.edit("t", lambda row: {**row, "v": None})
    shop.follow("--seen-to", answer.seen_to, "--ignore-column", "t.v")
    assert shop.hive("t") == [(1, None), (2, None), (3, None)]


def test_another_key_begins_at_a_statement(shop: FollowedTables) -> None:
    """Rows before it are identified by the old key, though today's catalog has the new one."""
    shop.run("INSERT INTO t VALUES (2, 11)", "DELETE FROM t WHERE id = 1", "UPDATE t SET v = 12")
    shop.run("ALTER TABLE t MODIFY v INT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (v)")
    shop.run("INSERT INTO t VALUES (2, 13)")
    answer = shop.stop()
    assert shop.hive("t") == [(2, 12)]
    shop.follow("--seen-to", answer.seen_to)
    assert shop.hive("t") == [(2, 12), (2, 13)]


@pytest.mark.long
def test_each_statement_of_several_stops_a_run(shop: FollowedTables) -> None:
    """One after the other."""
    shop.run("INSERT INTO t VALUES (2, 22)", "TRUNCATE t", "INSERT INTO t VALUES (3, 33)", "DROP TABLE t", T)
    shop.run("INSERT INTO t VALUES (4, 44)", "RENAME TABLE t TO old, old TO t", "UPDATE t SET v = 45")
    seen: list[str] = []
    for before in ([(1, 11), (2, 22)], [(3, 33)], [(4, 44)]):
        answer = shop.stop(*[word for each in seen for word in ("--seen-to", each)])
        assert shop.hive("t") == before
        if len(seen) < 2:
            shop.edit("t", lambda row: None)
        seen = [answer.seen_to]
    shop.follow("--seen-to", seen[0])
    assert shop.hive("t") == [(4, 45)]


def test_a_statement_at_the_begin_of_a_log_file_stops_a_run(shop: FollowedTables) -> None:
    """The position before it is that of the file's begin."""
    shop.run(
        "INSERT INTO t VALUES (2, 22)", "FLUSH BINARY LOGS", "TRUNCATE t", "INSERT INTO t VALUES (3, 33)"
    )
    answer = shop.stop()
    assert shop.stop().seen_to == answer.seen_to
    shop.edit("t", lambda row: None)
    shop.follow("--seen-to", answer.seen_to)


@pytest.mark.long
def test_a_position_that_is_seen_to_too_early_is_refused(shop: FollowedTables) -> None:
    """Else rows before the statement would be applied behind it."""
    shop.run("INSERT INTO t VALUES (2, 22)", "TRUNCATE t", "INSERT INTO t VALUES (3, 33)")
    position = shop.ingest("--dry-run").seen_to
    answer = shop.ingest("--seen-to", position)
    assert answer.code == 1
    assert f"Run without --seen-to {position} first" in answer.err
    assert shop.hive("t") == [(1, 11)]
    assert shop.stop().seen_to == position
    shop.edit("t", lambda row: None)
    shop.follow("--seen-to", position)


def test_a_dry_run_stops_too(shop: FollowedTables) -> None:
    """It says what would be applied."""
    shop.run("INSERT INTO t VALUES (2, 22)", "TRUNCATE t")
    answer = shop.stop("--dry-run")
    assert "everything before it would be applied" in answer.err
    assert "would be applied up to" in answer.out
    assert shop.hive("t") == [(1, 11)]


def test_a_run_that_follows_ends_at_a_statement(shop: FollowedTables) -> None:
    """What was committed before stays."""
    shop.run("INSERT INTO t VALUES (2, 22)", "TRUNCATE t")
    shop.stop("--follow", "0.1")
    assert shop.hive("t") == [(1, 11), (2, 22)]


@pytest.mark.long
def test_all_tables_stop_at_a_statement_on_one(shop: FollowedTables) -> None:
    """They show one moment of the source; a table that is ahead keeps its place, and a new one is read."""
    shop.run("CREATE TABLE u LIKE t", "CREATE TABLE w LIKE t", "INSERT INTO u VALUES (1, 1)")
    shop.create("u", TWO)
    shop.follow()
    shop.run(
        "INSERT INTO u VALUES (2, 2)",
        "INSERT INTO t VALUES (2, 22)",
        "TRUNCATE t",
        "INSERT INTO u VALUES (3, 3)",
    )
    shop.follow(tables=["u"])
    shop.run("INSERT INTO t VALUES (3, 33)", "INSERT INTO w VALUES (1, 1)")
    shop.create("w", TWO)
    answer = shop.stop()
    assert (shop.hive("t"), shop.hive("u"), shop.hive("w")) == (
        [(1, 11), (2, 22)],
        [(1, 1), (2, 2), (3, 3)],
        [(1, 1)],
    )
    shop.edit("t", lambda row: None)
    shop.follow("--seen-to", answer.seen_to)
    shop.run("INSERT INTO u VALUES (4, 4)", "TRUNCATE t", "INSERT INTO u VALUES (5, 5)")
    shop.stop()
    assert shop.hive("u")[-1] == (4, 4)
    shop.follow("--recopy", "t")


@pytest.mark.long
def test_a_table_is_read_whole_again_where_that_is_asked_for(shop: FollowedTables) -> None:
    """Its rows in Hive are replaced, and what its log has is passed over; others go on where they were."""
    shop.run("CREATE TABLE u LIKE t")
    shop.create("u", TWO)
    shop.follow()
    shop.run("INSERT INTO t VALUES (2, 22)", "SET binlog_format = STATEMENT", "UPDATE t SET v = v * 2")
    shop.run("SET binlog_format = ROW", "INSERT INTO u VALUES (1, 1)", "DELETE FROM t WHERE id = 1")
    answer = shop.stop()
    assert "changes its rows, columns or key without logging rows: 'UPDATE t SET v = v * 2'" in answer.err
    assert "--recopy t" in answer.err
    shop.follow("--recopy", "t")
    shop.run("INSERT INTO t VALUES (3, 33)")
    shop.follow()
    shop.run("TRUNCATE t")
    shop.follow("--recopy", "t")
    assert shop.hive("t") == []


@pytest.mark.long
def test_a_table_is_read_again_though_another_stops(shop: FollowedTables) -> None:
    """Else two tables, each with a statement before the other's, would never be read again."""
    shop.run("CREATE TABLE u LIKE t", "INSERT INTO u VALUES (1, 1)")
    shop.create("u", TWO)
    shop.follow()
    shop.run("TRUNCATE u", "TRUNCATE t", "TRUNCATE u", "TRUNCATE t")
    answer = shop.stop("--recopy", "u")
    assert "source table " + shop.database + ".t: " in answer.err
    assert (shop.hive("t"), shop.hive("u")) == ([(1, 11)], [])
    shop.follow("--recopy", "t")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--recopy", "x"], "table x cannot be read again, because it is not a table of this run"),
        (["--recopy", "t", "--follow", "1"], "cannot be combined with --follow"),
    ],
)
def test_a_table_to_read_again_must_be_one_of_the_run(
    shop: FollowedTables, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """And it is read again once."""
    try:
        assert said in shop.ingest(*words).err
    except SystemExit:
        assert said in capsys.readouterr().err


def test_a_statement_within_a_transaction_cannot_be_done_by_hand(shop: FollowedTables) -> None:
    """Rows of the same transaction come before it, so the run stops before the whole transaction."""
    shop.run("SET binlog_format = MIXED", "CREATE TABLE o (id INT PRIMARY KEY, v INT)", "BEGIN")
    shop.run(
        "INSERT INTO t SELECT 2, CRC32(UUID()) % 100",
        "UPDATE t SET v = v + 1",
        "COMMIT",
        "SET binlog_format = ROW",
    )
    answer = shop.stop()
    assert "Rows of the same transaction come before it" in answer.err
    assert "--seen-to" not in answer.err
    assert shop.hive("t") == [(1, 11)]
    shop.follow("--recopy", "t")


@pytest.mark.long
def test_several_statements_of_a_transaction_are_seen_to_together(shop: FollowedTables) -> None:
    """The run cannot stop between them, since a position lies between transactions."""
    shop.run(
        "SET binlog_format = STATEMENT", "BEGIN", "UPDATE t SET v = 2 * v", "UPDATE t SET v = v + 1", "COMMIT"
    )
    shop.run("SET binlog_format = ROW", "INSERT INTO t VALUES (2, 22)")
    words = shop.stop().seen_words
    shop.edit("t", lambda row: {**row, "v": 2 * row["v"]})
    answer = shop.stop(*words)
    assert answer.seen_words[: len(words)] == words
    shop.edit("t", lambda row: {**row, "v": row["v"] + 1})
    shop.follow(*answer.seen_words)
    assert shop.hive("t") == [(1, 23), (2, 22)]


def test_statements_that_only_mention_the_table_stop_nothing(shop: FollowedTables) -> None:
    """Whatever the format of the log is."""
    mentions = [
        "CREATE TABLE c (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)",
        "CREATE TABLE l LIKE t",
        "CREATE TABLE cs (n BIGINT)",
        "REPLACE INTO cs SELECT COUNT(*) FROM t",
        "CREATE TABLE q AS SELECT COUNT(*) AS n FROM t",
        "ALTER TABLE c ADD u INT DEFAULT 5, DROP FOREIGN KEY c_ibfk_1, DROP COLUMN t",
        "CREATE TEMPORARY TABLE t (id INT)",
        "INSERT INTO t VALUES (7)",
        "TRUNCATE t",
        "DROP TEMPORARY TABLE t",
        "CREATE VIEW w AS SELECT * FROM t",
        "CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW SET @x = 1",
        "DROP TRIGGER g",
        "CREATE PROCEDURE p () TRUNCATE t",
        "CREATE INDEX i ON t (v)",
        "ALTER TABLE t COMMENT 'DROP COLUMN v', ALTER v SET DEFAULT 3, ADD CHECK (id > 0)",
        "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2",
        "ALTER TABLE t ENGINE=InnoDB REMOVE PARTITIONING",
        "ANALYZE TABLE t",
        "OPTIMIZE TABLE t",
        "DROP INDEX i ON t",
        "DROP TABLE c, l, cs, q",
        "DROP VIEW w",
    ]
    shop.run("SET sql_log_bin = 1")
    for form in ("ROW", "STATEMENT", "MIXED"):
        shop.run(f"SET binlog_format = {form}", *mentions, "DROP PROCEDURE p")
    shop.run("SET binlog_format = ROW", "INSERT INTO t VALUES (2, 22)")
    shop.follow()


def test_a_table_that_is_altered_while_it_is_read_whole_is_read_again(
    shop: FollowedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the SELECT may be from before the statement or from behind it."""
    shop.run("CREATE TABLE u LIKE t", "INSERT INTO u VALUES (1, 1)")
    shop.create("u", TWO)
    note = MySqlServer.position
    changes = iter([(), ("TRUNCATE u", "INSERT INTO u VALUES (2, 2)")])

    def note_then_change(server: MySqlServer) -> LogPosition:
        noted = note(server)
        shop.run(*next(changes, ()))
        return noted

    monkeypatch.setattr(MySqlServer, "position", note_then_change)
    answer = shop.ingest()
    assert answer.code == 1
    assert "while u was being copied" in answer.err
    assert "run again" in answer.err
    assert shop.hive("u") == []
    shop.follow()


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] if seed else []) for seed in range(9)]
)
@pytest.mark.timeout(LONG_TIMEOUT_SECONDS)
def test_random_statements_leave_hive_like_the_source_or_are_refused(
    mysql: MySqlJudge,
    mysql_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seed: int,
) -> None:
    """There is no third outcome, and what is refused goes on by what the error says."""
    shop = FollowedTables(mysql, mysql_database, tmp_path, monkeypatch, capsys, None)
    rng = random.Random(seed)
    workload, user = DdlWorkload(shop, rng), User(shop, rng)
    try:
        for _ in range(25 if seed else 3):
            try:
                workload.round()
                user.catch_up()
            except BaseException:
                with capsys.disabled():
                    print(seed, *workload.statements[-60:], *user.asked[-12:], sep="\n")
                raise
    finally:
        shop.close()
