"""Method binlog: each thing that stops an extraction has a way on in the command, which is followed here."""

from __future__ import annotations

from typing import Any

import pytest

from judges.mysql import MySqlJudge
from mutation_api import LocalOptions
from mutation_api.cdc import IngestReport, disable_update, extract_update
from mutation_api.errors import StoppedAtStatementError
from tests.integration.ingests.followed_tables import Answer, FollowedTables

pytestmark = pytest.mark.slow

TABLE = "default.t"


@pytest.fixture
def shop(mysql_tables: FollowedTables, mysql: MySqlJudge, mysql_database: str) -> FollowedTables:
    """A table with a row, which Hive follows by the binary log."""
    mysql_tables.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, day DATE)", "INSERT INTO t VALUES (1, 11, NULL)"
    )
    mysql_tables.create("t", {"id": "int", "v": "int", "day": "date"})
    source = f"mysql://{mysql.user}@127.0.0.1:{mysql.port}/{mysql_database}"
    answer = mysql_tables.update("enable", "--source", source, "--table", TABLE, "--method", "binlog")
    assert answer.code == 0, answer.err
    follow(mysql_tables)
    return mysql_tables


def extract(shop: FollowedTables, *words: str) -> Answer:
    """Extract."""
    return shop.update("extract", "--table", TABLE, *words)


def follow(shop: FollowedTables, *words: str) -> None:
    """Extract, which must succeed and leave the source's rows."""
    answer = extract(shop, *words)
    assert answer.code == 0, answer.err
    assert shop.hive("t") == shop.source("t")


def test_a_statement_is_seen_to(shop: FollowedTables) -> None:
    """As with ``ingest mysql``."""
    shop.run("INSERT INTO t VALUES (2, 22, NULL)", "TRUNCATE t", "INSERT INTO t VALUES (3, 33, NULL)")
    answer = extract(shop)
    assert "StoppedAtStatementError" in answer.err
    assert "update extract --seen-to " in answer.err
    assert shop.hive("t") == [(1, 11, None), (2, 22, None)]
    shop.edit("t", lambda row: None)
    follow(shop, "--seen-to", answer.seen_to)


def test_a_table_is_read_whole_again(shop: FollowedTables) -> None:
    """Also where the log is another one."""
    shop.run(
        "INSERT INTO t VALUES (2, 22, NULL)", "CREATE TABLE u LIKE t", "INSERT INTO u VALUES (5, 55, NULL)"
    )
    shop.run("RENAME TABLE t TO old, u TO t")
    answer = extract(shop)
    assert "update extract --recopy" in answer.err
    follow(shop, "--recopy")
    shop.run("INSERT INTO t VALUES (6, 66, NULL)")
    follow(shop)


def test_python_goes_on_by_the_same_arguments(shop: FollowedTables) -> None:
    """The error names them, and has the report of what was applied."""
    given: dict[str, Any] = {"password": shop.server.password, "local": LocalOptions()}
    shop.run("INSERT INTO t VALUES (2, 22, NULL)", "TRUNCATE t", "INSERT INTO t VALUES (3, 33, NULL)")
    said = r"in Python seen_to=\['\S+'\].*in Python recopy=True"
    with pytest.raises(StoppedAtStatementError, match=said) as caught:
        extract_update(shop.metastore, TABLE, **given)
    assert isinstance(caught.value.report, IngestReport)
    assert caught.value.report.operation_count == 1
    shop.edit("t", lambda row: None)
    position = str(caught.value).partition("seen_to=['")[2].partition("'")[0]
    extract_update(shop.metastore, TABLE, seen_to=[position], **given)
    assert shop.hive("t") == shop.source("t")
    shop.run("TRUNCATE t")
    with pytest.raises(StoppedAtStatementError):
        disable_update(shop.metastore, TABLE, **given)
    disable_update(shop.metastore, TABLE, discard=True, **given)


def test_a_column_is_left_out(shop: FollowedTables) -> None:
    """The option is that of the command, without the table's name."""
    shop.run("ALTER TABLE t ADD COLUMN more INT", "INSERT INTO t VALUES (2, 22, NULL, 5)")
    answer = extract(shop)
    assert "leave it out: --ignore-column more, in Python ignored_columns=['more']" in answer.err
    follow(shop, "--ignore-column", "more")


def test_zero_dates_become_null(shop: FollowedTables) -> None:
    """By the option that the error names."""
    shop.run("SET sql_mode = ''", "INSERT INTO t VALUES (2, 22, '0000-00-00')")
    answer = extract(shop)
    assert "--zero-dates null" in answer.err
    assert extract(shop, "--zero-dates", "null").code == 0
    assert shop.hive("t") == [(1, 11, None), (2, 22, None)]


def test_options_of_the_log_are_refused_for_other_methods(shop: FollowedTables) -> None:
    """They would do nothing."""
    shop.create("u", {"id": "int", "v": "int"})
    shop.run("CREATE TABLE u (id INT PRIMARY KEY, v INT)")
    source = f"mysql://{shop.server.user}@127.0.0.1:{shop.server.port}/{shop.database}"
    assert shop.update("enable", "--source", source, "--table", "default.u").code == 0
    answer = shop.update("extract", "--table", "default.u", "--recopy")
    assert answer.code == 1
    assert "are options of method binlog" in answer.err
