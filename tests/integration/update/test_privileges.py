"""Accounts that have exactly the documented privileges."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from judges.mysql import MySqlJudge
from judges.postgres import Postgres
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import ConfigurationError, ConnectionFailedError, RecordLayoutError
from tests.support.shops import MySqlShopSource, PostgresSource, ServerSource, Shop

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
PASSWORD = "reader's secret"
LOG_GRANTS = ("GRANT SELECT, INSERT, DELETE, CREATE, DROP, TRIGGER ON {0}.*", "GRANT PROCESS ON *.*")


def _as_account(source: ServerSource, account: str) -> ServerSource:
    source.url = f"{source.kind}://{account}@127.0.0.1:{source.server.port}/{source.database}"
    source.password = PASSWORD
    return source


def _shop(source: ServerSource, place: Path) -> Shop:
    return Shop(source, InMemoryMetastore(place, capabilities=HIVE_4_1), "default", COLUMNS)


def _follow(shop: Shop, table: str, **options: object) -> None:
    """Enable, extract twice, disable."""
    source = shop.source
    shop.enable(source_table=table, **options)
    shop.extract()
    source.run(f"UPDATE {table} SET item = 'changed' WHERE id = 1", f"INSERT INTO {table} VALUES (2, 'new')")
    shop.extract()
    assert [(row["id"], row["item"]) for row in shop.rows()] == [(1, "changed"), (2, "new")]
    shop.disable()
    assert source.objects() == []


@contextmanager
def _roles(server: Postgres, *names: str) -> Iterator[list[str]]:
    """New roles, dropped with what they own in the judge's own database."""
    made = [f"{name}_{secrets.token_hex(3)}" for name in names]
    for role in made:
        server.sql(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
    yield made


def test_postgresql(postgres: Postgres, postgres_database: str, tmp_path: Path) -> None:
    """The rights of the table's owner and CREATE on the schema; for xmin SELECT. Less is refused in time."""
    source = PostgresSource(postgres, postgres_database)
    with _roles(postgres, "keeper", "reader") as (keeper, reader):
        source.run(
            "CREATE SCHEMA sales",
            "CREATE TABLE sales.orders (id int PRIMARY KEY, item text)",
            f"ALTER TABLE sales.orders OWNER TO {keeper}",
            "INSERT INTO sales.orders VALUES (1, 'tea')",
            f"GRANT USAGE ON SCHEMA sales TO {reader}",
            f"GRANT SELECT, TRIGGER ON sales.orders TO {reader}",
        )
        shop = _shop(_as_account(source, reader), tmp_path / "w")
        wanted = rf"GRANT {keeper} TO {reader}; GRANT USAGE, CREATE ON SCHEMA \"sales\" TO {reader}\. Or"
        with pytest.raises(ConfigurationError, match=wanted) as refused:
            shop.enable(source_table="sales.orders")
        assert source.objects() == []
        read_only = _shop(source, tmp_path / "xmin")
        read_only.enable(source_table="sales.orders", method="row-version", version_column="xmin")
        read_only.extract()
        assert [row["item"] for row in read_only.rows()] == ["tea"]
        read_only.disable()
        source.run(f"REVOKE SELECT, TRIGGER ON sales.orders FROM {reader}")
        source.run(*str(refused.value).partition("statements: ")[2].partition(". Or")[0].split("; "))
        _follow(shop, "sales.orders")


def _mysql_account(server: MySqlJudge, *grants: str) -> str:
    account = f"reader_{secrets.token_hex(3)}"
    server.sql(f"CREATE USER {account}@'127.0.0.1' IDENTIFIED BY %s", PASSWORD)
    for grant in grants:
        server.sql(f"{grant} TO {account}@'127.0.0.1'")
    return account


def test_mysql(mysql: MySqlJudge, mysql_database: str, tmp_path: Path) -> None:
    """With a binary log, the server has to trust accounts that make triggers."""
    source = MySqlShopSource(mysql, mysql_database)
    source.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(9))", "INSERT INTO orders VALUES (1, 'tea')"
    )
    account = _mysql_account(mysql, *(grant.format(mysql_database) for grant in LOG_GRANTS))
    shop = _shop(_as_account(source, account), tmp_path / "w")
    before = mysql.sql("SELECT @@GLOBAL.log_bin_trust_function_creators")[0][0]
    mysql.sql("SET GLOBAL log_bin_trust_function_creators = 1")
    try:
        _follow(shop, "orders")
    finally:
        mysql.sql(f"SET GLOBAL log_bin_trust_function_creators = {before}")


@pytest.mark.long
@pytest.mark.parametrize("lacking", ["INSERT", "DELETE"])
def test_mysql_makes_no_trigger_that_would_fail(
    mysql: MySqlJudge, mysql_database: str, lacking: str, tmp_path: Path
) -> None:
    """Triggers run with the rights of the account that made them, so the application's writes would fail."""
    source = MySqlShopSource(mysql, mysql_database)
    source.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(9))", "INSERT INTO orders VALUES (1, 'tea')"
    )
    grants = [grant.format(mysql_database).replace(f"{lacking}, ", "") for grant in LOG_GRANTS]
    account = _mysql_account(mysql, *grants, "GRANT SUPER ON *.*")
    shop = _shop(_as_account(source, account), tmp_path / "w")
    with pytest.raises(ConnectionFailedError, match=f"{lacking} command denied"):
        shop.enable()
    source.run("UPDATE orders SET item = 'changed'")
    mysql.sql(f"GRANT {lacking} ON {mysql_database}.* TO {account}@'127.0.0.1'")
    shop.enable()
    shop.extract()
    source.run("UPDATE orders SET item = 'more'")
    shop.extract()
    assert [row["item"] for row in shop.rows()] == ["more"]
    shop.disable()


def test_mysql_shows_foreign_keys_to_an_account_that_may_only_read(
    mysql: MySqlJudge, mysql_database: str, tmp_path: Path
) -> None:
    """A cascade changes rows without giving them a version; the catalog would not show it to the account."""
    source = MySqlShopSource(mysql, mysql_database)
    source.run(
        "CREATE TABLE customers (id INT PRIMARY KEY)",
        "CREATE TABLE orders (id INT PRIMARY KEY, item INT, CONSTRAINT `it's ON` FOREIGN KEY (item) "
        "REFERENCES customers (id) ON DELETE SET NULL)",
    )
    account = _mysql_account(mysql, f"GRANT SELECT ON {mysql_database}.orders", "GRANT PROCESS ON *.*")
    shop = _shop(_as_account(source, account), tmp_path / "w")
    options = {"method": "row-version", "version_column": "id", "overlap": "5"}
    with pytest.raises(
        RecordLayoutError, match=r"foreign key it's ON changes its rows \(ON DELETE SET NULL\)"
    ):
        shop.enable(**options)
    source.run(
        "ALTER TABLE orders DROP FOREIGN KEY `it's ON`",
        "ALTER TABLE orders MODIFY item VARCHAR(9)",
        "INSERT INTO orders VALUES (1, 'tea')",
    )
    _follow(shop, "orders", **options)
