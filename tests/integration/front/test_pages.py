"""Blocks of pages that need a server beside Hive, or a session: they run, and Hive has the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from judges.kafka import Kafka
from judges.postgres import Postgres
from tests.support.doc_blocks import DOCS, run_blocks
from tests.support.kafka_messages import debezium

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_kafka(sales: Hive23, conf: Path, tmp_path: Path, kafka: Kafka) -> None:
    """docs/kafka.md: two topics become two tables; the program then finds nothing new."""
    for name in ("orders", "people"):
        sales.sql(
            f"CREATE TABLE sales.{name} (id int, note string) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC "
            "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default')"
        )
        topic = f"erp.shop.{name}"
        kafka.create_topic(topic)
        producer = kafka.producer()
        for key, message in debezium("c", 1, name, table=name):
            producer.produce(topic, message, key)
        assert not producer.flush(60)
    run_blocks(DOCS / "kafka.md", tmp_path, HIVE_CONF_DIR=str(conf), KAFKA=kafka.servers)
    for name in ("orders", "people"):
        assert sales.sql(f"SELECT id, note FROM sales.{name}") == [[1, name]]


def test_streams(sales: Hive23, conf: Path, tmp_path: Path) -> None:
    """docs/streams.md: a batch is in both tables."""
    run_blocks(DOCS / "streams.md", tmp_path, HIVE_CONF_DIR=str(conf))
    assert sales.sql("SELECT id, status FROM sales.orders ORDER BY id") == [[1, "paid"], [2, "new"]]
    assert sales.sql("SELECT count(*) FROM sales.order_events") == [[3]]


def test_change_feed(sales: Hive23, conf: Path, tmp_path: Path, kafka: Kafka) -> None:
    """docs/change-feed.md: the programs and the commands."""
    run_blocks(DOCS / "change-feed.md", tmp_path, HIVE_CONF_DIR=str(conf), KAFKA=kafka.servers)
    assert sales.sql("SELECT id, pieces FROM sales.stock") == [[1, 4]]
    assert sales.sql("SELECT id FROM sales.sold_out") == [[1]]


def test_export(sales: Hive23, conf: Path, tmp_path: Path) -> None:
    """docs/export.md: from the first copy to the cutover; another table goes to Iceberg."""
    run_blocks(DOCS / "export.md", tmp_path, HIVE_CONF_DIR=str(conf))
    assert sales.sql("SELECT id, item FROM sales.orders ORDER BY id")[0] == [1, "green tea"]
    moved_to = sales.sql("SHOW TBLPROPERTIES sales.orders('hive.export.moved.to')")
    assert "delta:lake/orders" in str(moved_to)


def test_incremental_update(sales: Hive23, conf: Path, tmp_path: Path, postgres: Postgres) -> None:
    """docs/incremental-update.md: from the first command to the last, on PostgreSQL."""
    postgres.sql("CREATE DATABASE shop")
    try:
        for statement in (
            "CREATE TABLE orders (id bigint PRIMARY KEY, item text)",
            "INSERT INTO orders VALUES (1, 'tea'), (2, 'coffee')",
        ):
            postgres.sql(statement, database="shop")
        run_blocks(
            DOCS / "incremental-update.md",
            tmp_path,
            HIVE_CONF_DIR=str(conf),
            HIVE_MUTATE_SOURCE_PASSWORD=postgres.password,
            PGUSER=postgres.user,
            PGHOST=f"127.0.0.1:{postgres.port}",
        )
        assert sales.sql("SELECT id, item FROM sales.orders ORDER BY id") == [[1, "tea"], [2, "coffee"]]
        assert "sales.orders" in (tmp_path / "orders.html").read_text(encoding="utf-8")
        left = "SELECT relname FROM pg_class WHERE relname LIKE 'hm\\_%%'"
        assert postgres.sql(left, database="shop") == []
    finally:
        postgres.sql("DROP DATABASE shop WITH (FORCE)")


def test_storage(sales: Hive23, conf: Path, tmp_path: Path) -> None:
    """docs/storage.md: what dead transactions left."""
    assert run_blocks(DOCS / "storage.md", tmp_path, HIVE_CONF_DIR=str(conf))
