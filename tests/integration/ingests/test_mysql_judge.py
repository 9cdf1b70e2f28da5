"""The judge of MySQL's kind logs what the tests need, and ends with its process."""

from __future__ import annotations

import pytest

from judges.mysql import MySqlJudge

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("variable", "value"),
    [("log_bin", 1), ("binlog_format", "ROW"), ("binlog_row_image", "FULL"), ("binlog_row_metadata", "FULL")],
)
def test_the_server_logs_rows_whole_and_with_names(mysql: MySqlJudge, variable: str, value: object) -> None:
    """A judge that logged less would let a source pass that reads less."""
    assert mysql.sql(f"SELECT @@global.{variable}") == [(value,)]


def test_each_transaction_has_a_gtid(mysql: MySqlJudge, mysql_database: str) -> None:
    """The position in the log has a text that other servers understand too."""
    executed = "SELECT @@gtid_binlog_pos" if mysql.is_mariadb else "SELECT @@global.gtid_executed"
    before = mysql.sql(executed)
    mysql.sql(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY)")
    assert mysql.sql(executed) != before
