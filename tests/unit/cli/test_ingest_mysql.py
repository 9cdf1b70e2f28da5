"""The arguments of ``hive-mutate ingest mysql``."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mutation_api.cli.ingest import mysql as ingest_mysql
from mutation_api.errors import ConfigurationError

SOURCE = ["--source", "mysql://reader@db.example:3307/shop"]


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    ingest_mysql.add_arguments(parser)
    return parser.parse_args(arguments)


def test_tables_follow_those_of_the_same_name() -> None:
    """In the given database, else in that of the source's name; or as --table says."""
    assert ingest_mysql.tables_from(
        parsed(*SOURCE, "--tables", "Orders, customers", "--database", "sales")
    ) == [
        ("Orders", "sales.orders", ()),
        ("customers", "sales.customers", ()),
    ]
    assert ingest_mysql.tables_from(parsed(*SOURCE, "--tables", "a", "--table", "b=x.y:id,day")) == [
        ("a", "shop.a", ()),
        ("b", "x.y", ("id", "day")),
    ]


def test_the_source_is_named_without_user_and_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that another account goes on at the same watermark."""
    monkeypatch.setenv(ingest_mysql.PASSWORD_VARIABLE, "s3cret")
    source = ingest_mysql.source_from(parsed(*SOURCE, "--tables", "a"))
    assert source.source_id == "mysql:db.example:3307/shop"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mysql://joe:s3cret@host/shop", "must not contain a password"),
        ("mysql://host/shop", "expected mysql://USER@HOST"),
        ("mysql://joe@host", "expected mysql://USER@HOST"),
        ("postgres://joe@host/shop", "expected mysql://USER@HOST"),
        ("postgresql://joe@host/shop", "unknown kind of database, expected one of mysql, mariadb"),
        ("mysql://joe/s3cret@host/shop", "must not contain a password"),
        ("mysql://joe@host/shop?passwd=s3cret", "must not contain a password"),
        ("mysql://joe@host/shop?init_command=s3cret", "option 1 after the . is not allowed"),
        ("mysql://joe@host/shop?ssl_verify_cert=maybe", "option 1 after the . is not allowed"),
        ("mysql://joe@host:x/shop", "expected mysql://USER@HOST"),
    ],
)
def test_a_source_that_names_no_database_of_a_server_is_refused(source: str, message: str) -> None:
    """A password in it is refused without being shown."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        ingest_mysql.source_from(parsed("--source", source))
    assert "s3cret" not in str(caught.value)


def test_on_a_cluster_somebody_must_say_where_rows_are_kept() -> None:
    """Before the server is asked: other machines do not see this one's folder for temporary files."""
    cluster: Any = SimpleNamespace(_jsparkSession=object(), sparkContext=SimpleNamespace(master="yarn"))
    source = ingest_mysql.source_from(parsed(*SOURCE, "--tables", "a"))
    with pytest.raises(
        ConfigurationError, match=r"Spark runs on yarn, .* such as hdfs:///tmp, .*\(--spill, "
    ):
        source.read(cluster, [], {})


@pytest.mark.parametrize("option", ["--option-file", "--ssl-ca"])
def test_a_file_that_is_missing_is_refused(option: str, tmp_path: Path) -> None:
    """PyMySQL would go on without it."""
    with pytest.raises(ConfigurationError, match=f"{option}: the file .* does not exist"):
        ingest_mysql.source_from(parsed(*SOURCE, option, str(tmp_path / "none")))


def test_a_wrong_table_is_a_usage_error() -> None:
    """As with any other argument."""
    with pytest.raises(SystemExit):
        parsed(*SOURCE, "--table", "orders")
