"""One workload of a real MariaDB as the logs of five tools, each followed by tables of real Hive.

The long run has Debezium's messages in topics of a real Kafka, too.

The row events come from the server's binary log, as an independent library decodes them; the tests' own
writers make the five logs of them. In the end all five have the same rows, and these are what SELECT gives.

Not all of a row reaches a log. Tungsten's staging files lose line ends in texts and all but milliseconds of a
time, as its documentation says; its tables are compared with what SELECT gives without these. Columns that
the tools write each in its own way, or not whole, are left out, as each of them can leave out columns:

* ENUM and SET: Canal writes their numbers, Maxwell a SET as an array;
* TIME: Tungsten and Maxwell take it for a time of a day, without sign;
* POINT: Debezium and Maxwell write a structure or a text;
* BINARY(n): its last zeros are not in MariaDB's log, and not all tools add them;
* texts that are not in UTF-8: Canal decodes all texts of a server alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from judges.hive.judge import HiveJudge
from judges.kafka import Kafka
from judges.mysql import MySqlJudge
from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api import LocalOptions
from mutation_api.cdc import (
    CanalSource,
    ChangeSource,
    CollectorSource,
    DebeziumSource,
    KafkaTopics,
    MaxwellSource,
    TableMapping,
    TungstenSource,
    ingest,
)
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.text_values import BinaryEncoding
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.cdc_writers import canal, collector, debezium, maxwell, tungsten
from tests.cdc_writers.history import Table, Transaction, events_of
from tests.cdc_writers.mysql_log import LogFollower
from tests.integration.files.hive_values import read_back
from tests.integration.ingests.mysql_workload import (
    KEYS,
    TABLES,
    Workload,
    create_tables,
    in_order,
    source_rows,
)

pytestmark = pytest.mark.slow

TOOLS = ("tungsten", "collector", "debezium", "maxwell", "canal")
LEFT_OUT = frozenset({"kind", "tags", "span", "span2", "span6", "place", "fixed", "west", "wide_text"})
ONE_OF_EACH = frozenset(
    {"id", "tiny_u", "medium", "big_u", "bit1", "bit11", "year", "money", "real4", "code", "note", "bytes"}
    | {"day", "moment6", "instant3"}
)
"""Columns of the larger table that do for a short run: one of each kind."""

SERVICE = "alpha"
RAW_FILES_EACH = 2
LONG_TIMEOUT_SECONDS = 1800.0
"""Slices whose operations are in one of the collector's files."""


class Logs:
    """The logs of all five tools below one folder, and in topics if there is a Kafka."""

    def __init__(self, folder: Path, tables: Sequence[Table], kafka: Kafka | None = None) -> None:
        self.folder = folder
        self.tables = tables
        self.kafka = kafka
        if kafka is not None:
            for table in tables:
                kafka.create_topic(debezium.topic_of(table), debezium.PARTITIONS)
        self._slices = 0
        tungsten.write_metadata(folder / "metadata.json", tables)

    def add(self, transactions: Sequence[Transaction]) -> None:
        """Write what was committed since the last time."""
        number = self._slices
        self._slices += 1
        tungsten.write_staging(self.folder / "staging", SERVICE, transactions)
        for table in self.tables:
            raw = self.folder / "raw" / table.name / f"raw-{number // RAW_FILES_EACH}"
            collector.append_raw(raw, events_of(transactions, table))
        debezium.write_topics(self.folder / "debezium", number, transactions)
        if self.kafka is not None:
            self._send(self.kafka, transactions)
        maxwell.write_messages(self.folder / "maxwell" / f"{number}.json", transactions)
        canal.write_messages(self.folder / "canal" / f"{number}.json", transactions)

    def sources(self, tool: str) -> list[tuple[ChangeSource, Sequence[Table]]]:
        """The sources that read the tool's log, with their tables."""
        match tool:
            case "tungsten":
                return [(self._tungsten(), self.tables)]
            case "collector":
                return [(self._collector(table), [table]) for table in self.tables]
            case "kafka":
                assert self.kafka is not None
                topics = KafkaTopics(self.kafka.servers, list(map(debezium.topic_of, self.tables)))
                return [(DebeziumSource(topics, "topics"), self.tables)]
        kind = {"debezium": DebeziumSource, "maxwell": MaxwellSource, "canal": CanalSource}[tool]
        return [(kind(self.folder / tool, "erp"), self.tables)]

    def _send(self, kafka: Kafka, transactions: Sequence[Transaction]) -> None:
        producer = kafka.producer()
        for topic, partition, key, message in debezium.topic_messages(transactions):
            producer.produce(topic, message, key, partition=partition)
            producer.poll(0)
        assert not producer.flush(60)

    def _tungsten(self) -> TungstenSource:
        staging, metadata = self.folder / "staging", self.folder / "metadata.json"
        return TungstenSource(staging, SERVICE, metadata=metadata, binary=BinaryEncoding.HEX)

    def _collector(self, table: Table) -> CollectorSource:
        return CollectorSource(
            self.folder / "raw" / table.name,
            table.name,
            columns=list(table.columns),
            binary=BinaryEncoding.HEX,
        )


class Followers:
    """Two tables in Hive for each tool, and the source that they follow.

    ``tools``: TOOLS, and ``kafka`` in a long run.
    """

    def __init__(
        self, judge: HiveJudge, metastore: MetastoreClient, database: str, mysql: MySqlJudge, source: str
    ) -> None:
        self.judge = judge
        self.metastore = metastore
        self.database = database
        self.mysql = mysql
        self.source = source
        self.tables: list[Table] = []
        self.tools = TOOLS

    def create(self, *, all_columns: bool) -> None:
        """Make the tables, empty."""
        create_tables(self.mysql, self.source)
        left_out = LEFT_OUT if all_columns else LEFT_OUT | (set(TABLES["orders"]) - ONE_OF_EACH)
        for name, columns in TABLES.items():
            kept = {column: of.source for column, of in columns.items() if column not in left_out}
            self.tables.append(Table(self.source, name, kept, KEYS[name]))
        for tool in self.tools:
            for table in self.tables:
                self._create(tool, table)

    def ingest(self, engine: Mapping[str, Any], logs: Logs, tool: str) -> int:
        """Bring the tool's tables up to the end of its log; tells how many operations that were.

        ``engine``: the argument that asks for one.
        """
        count = 0
        for source, tables in logs.sources(tool):
            mappings = [self._mapping(tool, table) for table in tables]
            report = ingest(self.metastore, mappings, source, **engine)
            assert report.engine in engine
            count += sum(each.operation_count for each in report.tables)
        return count

    def check(self) -> int:
        """Compare all tables with SELECT; tells how many rows that has."""
        count = 0
        for table in self.tables:
            rows = self._source_rows(table)
            count += len(rows)
            for tool in self.tools:
                expected = in_order(map(self._as_staged(table), rows)) if tool == "tungsten" else rows
                assert self._hive_rows(tool, table) == expected, f"{tool}, {table.name}"
        return count

    def _create(self, tool: str, table: Table) -> None:
        create_acid_table(
            self.metastore,
            self._hive_name(tool, table),
            [ColumnInfo(name, kind) for name, kind in self._hive_types(table).items()],
            clustered_by=list(table.key[:1]),
            num_buckets=2,
        )

    def _hive_name(self, tool: str, table: Table) -> str:
        return f"{self.database}.{tool}_{table.name}"

    def _hive_types(self, table: Table) -> Mapping[str, str]:
        return {name: TABLES[table.name][name].hive for name in table.columns}

    def _mapping(self, tool: str, table: Table) -> TableMapping:
        """The collector's files have no key in them; all others do."""
        source_name, key = (table.name, table.key) if tool == "collector" else (table.full_name, ())
        return TableMapping(source_name, self._hive_name(tool, table), key)

    def _source_rows(self, table: Table) -> list[list[Any]]:
        kept = [number for number, name in enumerate(TABLES[table.name]) if name in table.columns]
        rows = source_rows(self.mysql, table.database, table.name)
        return in_order([row[number] for number in kept] for row in rows)

    def _as_staged(self, table: Table) -> Any:
        kinds = [parse_hive_type(kind) for kind in self._hive_types(table).values()]

        def staged(row: Sequence[Any]) -> list[Any]:
            return [_as_staged(value, kind) for value, kind in zip(row, kinds, strict=True)]

        return staged

    def _hive_rows(self, tool: str, table: Table) -> list[list[Any]]:
        kinds = [parse_hive_type(kind) for kind in self._hive_types(table).values()]
        found = self.judge.table_rows(self._hive_name(tool, table), row_ids=False, reader="row")
        return in_order(
            [read_back(v, kind) for v, kind in zip(row.values, kinds, strict=True)] for row in found
        )


def _as_staged(value: Any, hive_type: Any) -> Any:
    """What Tungsten leaves of a value, in the common form of ``hive_values``."""
    if value is None:
        return None
    match hive_type.kind:
        case "char":
            return tungsten.without_line_ends(value).rstrip(" ")
        case "string" | "varchar":
            return tungsten.without_line_ends(value)
        case "timestamp" if "." in value:
            return value[: len("2017-06-07 09:22:28.000")].rstrip("0").removesuffix(".")
    return value


@pytest.fixture
def followers(
    hive_line: HiveJudge, line_database: str, mysql: MySqlJudge, mysql_database: str
) -> Iterator[Followers]:
    """No tables yet."""
    with open_client(hive_line.uri) as metastore:
        yield Followers(hive_line, metastore, line_database, mysql, mysql_database)


@pytest.mark.long  # each kind of log has random workloads of its own, which run always
@pytest.mark.parametrize("hive_line", ["2.3"], indirect=True)
def test_five_logs_of_one_workload_give_one_table(
    followers: Followers, spark: SparkSession, tmp_path: Path
) -> None:
    """A slice for each engine, written and then ingested from all five logs; the long run goes on."""
    followers.create(all_columns=False)
    follow(followers, spark, tmp_path, random.Random(5), slices=2, transactions=20)


@pytest.mark.long
@pytest.mark.timeout(LONG_TIMEOUT_SECONDS)
@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_five_logs_of_a_long_workload(
    followers: Followers, spark: SparkSession, tmp_path: Path, kafka: Kafka
) -> None:
    """The same on all lines of Hive, for all columns, more and longer slices, and through Kafka."""
    followers.tools = (*TOOLS, "kafka")
    followers.create(all_columns=True)
    follow(followers, spark, tmp_path, random.Random(0), slices=5, transactions=100, kafka=kafka)


def follow(
    followers: Followers,
    spark: SparkSession,
    folder: Path,
    rng: random.Random,
    *,
    slices: int,
    transactions: int,
    kafka: Kafka | None = None,
) -> None:
    """Change the source, write the logs and ingest them, by Spark and here in turn; compare in the end."""
    engines: list[Mapping[str, Any]] = [{"spark": spark}, {"local": LocalOptions()}]
    log = LogFollower(followers.mysql, followers.tables)
    logs = Logs(folder, followers.tables, kafka)
    with Workload(followers.mysql, followers.tables[0].database, rng) as workload:
        for number in range(slices):
            workload.run(transactions)
            logs.add(log.transactions())
            for tool in followers.tools:
                assert followers.ingest(engines[number % 2], logs, tool)
    assert followers.check()
