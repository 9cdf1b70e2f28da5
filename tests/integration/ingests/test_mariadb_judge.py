"""The MariaDB judge logs what the tests need, and ends with its process."""

from __future__ import annotations

import pytest

from judges.mariadb import MariaDb

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("variable", "value"),
    [("log_bin", 1), ("binlog_format", "ROW"), ("binlog_row_image", "FULL"), ("binlog_row_metadata", "FULL")],
)
def test_the_server_logs_rows_whole_and_with_names(mariadb: MariaDb, variable: str, value: object) -> None:
    """A judge that logged less would let a source pass that reads less."""
    assert mariadb.sql(f"SELECT @@global.{variable}") == [(value,)]


def test_each_transaction_has_a_gtid(mariadb: MariaDb, mariadb_database: str) -> None:
    """The position in the log has a text that other servers understand too."""
    before = mariadb.sql("SELECT @@gtid_binlog_pos")
    mariadb.sql(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    assert mariadb.sql("SELECT @@gtid_binlog_pos") != before
