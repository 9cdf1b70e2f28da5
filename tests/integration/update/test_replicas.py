"""A server that applies the log of another one: its triggers do not fire, and its log may lack the rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from judges.mysql import MySqlJudge
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.mysql.server import MySqlAddress, MySqlServer
from mutation_api.errors import ConfigurationError
from tests.fixtures.fix_clock import wait_until
from tests.fixtures.fix_mysql import StartMySql
from tests.support.shops import MySqlShopSource, Shop

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))


@pytest.fixture
def replica(mysql: MySqlJudge, start_mysql: StartMySql, tmp_path: Path) -> Iterator[MySqlJudge]:
    """A server that follows the judge from now on."""
    file, offset = mysql.log_end()
    secret = mysql.password.replace("'", "''")
    with start_mysql(tmp_path / "replica", 2) as server:
        words = (
            ("CHANGE MASTER TO", "MASTER")
            if server.is_mariadb
            else ("CHANGE REPLICATION SOURCE TO", "SOURCE")
        )
        last = "MASTER_SSL_VERIFY_SERVER_CERT=0" if server.is_mariadb else "GET_SOURCE_PUBLIC_KEY=1"
        server.sql(
            f"{words[0]} {words[1]}_HOST='127.0.0.1', {words[1]}_PORT={mysql.port}, {words[1]}_USER="
            f"'{mysql.user}', {words[1]}_PASSWORD='{secret}', {words[1]}_LOG_FILE='{file}', "
            f"{words[1]}_LOG_POS={offset}, {last}"
        )
        server.sql("START SLAVE" if server.is_mariadb else "START REPLICA")
        yield server


def test_a_replica_is_refused_whose_triggers_do_not_fire(
    mysql: MySqlJudge, replica: MySqlJudge, mysql_database: str, tmp_path: Path
) -> None:
    """By enable, and by each extraction of a table that was enabled before."""
    source = MySqlShopSource(mysql, mysql_database)
    source.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(9))", "INSERT INTO orders VALUES (1, 'tea')"
    )
    found = f"SELECT COUNT(*) FROM {mysql_database}.orders"
    has_table = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = 'orders'"
    wait_until(
        lambda: bool(replica.sql(has_table, mysql_database)) and replica.sql(found) == [(1,)], "the replica"
    )
    here = MySqlShopSource(replica, mysql_database)
    shop = Shop(here, InMemoryMetastore(tmp_path / "w", capabilities=HIVE_4_1), "default", COLUMNS)
    with pytest.raises(ConfigurationError, match=r"is a replica, .* fire no triggers"):
        shop.enable()
    assert here.objects() == []
    replica.sql("STOP SLAVE" if replica.is_mariadb else "STOP REPLICA")
    shop.enable()
    shop.extract()
    assert [row["id"] for row in shop.rows()] == [1]
    replica.sql("START SLAVE" if replica.is_mariadb else "START REPLICA")
    source.run("INSERT INTO orders VALUES (2, 'wine')")
    wait_until(lambda: replica.sql(found) == [(2,)], "the replica")
    with pytest.raises(ConfigurationError, match="is a replica"):
        shop.extract()
    if replica.is_mariadb:
        replica.sql("STOP SLAVE")
        replica.sql("SET GLOBAL slave_run_triggers_for_rbr = 'YES'")
        replica.sql("START SLAVE")
        source.run("INSERT INTO orders VALUES (3, 'rum')")
        wait_until(lambda: replica.sql(found) == [(3,)], "the replica")
        shop.extract()
        assert 3 in [row["id"] for row in shop.rows()]


@pytest.mark.server("MariaDB")  # MySQL logs such rows by default
def test_a_log_without_rows_of_another_server_is_refused(replica: MySqlJudge) -> None:
    """They would be missed."""
    address = MySqlAddress("127.0.0.1", replica.user, replica.password, replica.port)
    wait_until(lambda: replica.sql("SHOW GLOBAL STATUS LIKE 'Slaves_running'")[0][1] == "1", "the replica")
    with pytest.raises(ConfigurationError, match="log_slave_updates is OFF, expected ON because this server"):
        MySqlServer(address).check_settings()
    replica.sql("STOP SLAVE")
    MySqlServer(address).check_settings()
