"""A table in a real relational database, and the table in a metastore that follows it."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from judges.mysql import MySqlJudge
from judges.postgres import Postgres
from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo
from mutation_api import LocalOptions, connect
from mutation_api.cdc.update.disable import DisableReport, disable_update, repair_update
from mutation_api.cdc.update.enable import EnableReport, enable_update
from mutation_api.cdc.update.extract import ExtractReport, extract_update
from mutation_api.upkeep.create_acid_table import create_acid_table

LOCAL = LocalOptions()


class Source(ABC):
    """A database with one account that may do everything.

    ``spark``: the session by which tables of it are extracted; None: without Spark.
    """

    kind: str
    url: str
    password: str | None = None
    spark: SparkSession | None = None

    def access(self) -> dict[str, str | None]:
        """The password, and where it may go."""
        return {"password": self.password, "source": self.url}

    @abstractmethod
    def session(self) -> Any:
        """A new connection of the driver, not in autocommit."""

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        connection = self.session()
        try:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
        finally:
            connection.close()

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        connection = self.session()
        try:
            cursor = connection.cursor()
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            connection.close()

    @abstractmethod
    def objects(self) -> list[str]:
        """Names of tables, triggers and functions whose names begin as ours do."""


class ServerSource(Source):
    """A database of a judge. ``names``: a query of the names of its tables, triggers and functions."""

    names: str

    def __init__(self, server: Postgres | MySqlJudge, database: str) -> None:
        self.server, self.database = server, database
        self.url = f"{self.kind}://{server.user}@127.0.0.1:{server.port}/{database}"
        self.password = server.password

    def session(self) -> Any:
        """See :class:`Source`."""
        return self.server.connect(self.database, autocommit=False)

    def objects(self) -> list[str]:
        """See :class:`Source`."""
        return [name for (name,) in self.rows(f"SELECT name FROM ({self.names}) names WHERE name LIKE 'hm%'")]


class PostgresSource(ServerSource):
    """A database of the PostgreSQL judge."""

    kind = "postgresql"
    names = (
        "SELECT relname AS name FROM pg_class UNION ALL SELECT tgname FROM pg_trigger "
        "UNION ALL SELECT proname FROM pg_proc"
    )


class MySqlShopSource(ServerSource):
    """A database of the MariaDB judge."""

    kind = "mysql"
    names = (
        "SELECT TABLE_NAME AS name FROM information_schema.TABLES "
        "UNION ALL SELECT TRIGGER_NAME FROM information_schema.TRIGGERS"
    )


class SqliteSource(Source):
    """A file."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.sqlite"
        self.url = f"sqlite:///{self.path}"

    def session(self) -> Any:
        """See :class:`Source`."""
        return sqlite3.connect(self.path)

    def objects(self) -> list[str]:
        """See :class:`Source`."""
        return [row[0] for row in self.rows("SELECT name FROM sqlite_master WHERE name LIKE 'hm%'")]


class Shop:
    """A source's table ``orders`` and ``DATABASE.orders``, which follows it."""

    def __init__(
        self,
        source: Source,
        metastore: MetastoreClient,
        database: str,
        columns: Sequence[ColumnInfo],
        *keys: ColumnInfo,
        bucketed_by: str | None = "id",
        name: str = "orders",
    ) -> None:
        self.source, self.metastore = source, metastore
        self.table = f"{database}.{name}"
        buckets = {} if bucketed_by is None else {"clustered_by": [bucketed_by], "num_buckets": 2}
        create_acid_table(metastore, self.table, columns, keys, **buckets)

    def enable(self, **options: Any) -> EnableReport:
        """Enable by the log."""
        given = {"source_table": "orders", "password": self.source.password, **options}
        return enable_update(self.metastore, self.table, self.source.url, **given)

    def extract(self, **options: Any) -> ExtractReport:
        """Extract, by the engine of the source if not asked otherwise."""
        spark = self.source.spark
        engine = {"local": LOCAL} if spark is None else {"local": None, "spark": spark}
        given = {**self.source.access(), **engine, **options}
        return extract_update(self.metastore, self.table, **given)

    def repair(self, **options: Any) -> EnableReport:
        """Make the objects in the source again."""
        return repair_update(self.metastore, self.table, **self.source.access(), **options)

    def disable(self, *, discard: bool = False) -> DisableReport:
        """Disable, extracting without Spark."""
        return disable_update(
            self.metastore, self.table, **self.source.access(), local=LOCAL, discard=discard
        )

    def rows(self) -> list[dict[str, Any]]:
        """The rows that our reader finds, in the order of their texts."""
        with connect(self.metastore) as hive, hive.snapshot(self.table) as view:
            return sorted(view.table(self.table).scan().to_arrow().to_pylist(), key=str)
