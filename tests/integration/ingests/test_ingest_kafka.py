"""Topics of a real Kafka become tables of real Hive: exactly once, whatever dies on the way."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from judges.hive.judge import HiveJudge
from judges.kafka import Kafka
from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api import LocalOptions
from mutation_api.cdc import DebeziumSource, IngestReport, KafkaTopics, TableMapping, ingest, list_watermarks
from mutation_api.cdc.kafka.offsets import KafkaMark
from mutation_api.cdc.source import Position
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK
from mutation_api.errors import SourcePositionError
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.integration.ingests.mortal import END, Died, Mortal, bury
from tests.support.kafka_messages import debezium

pytestmark = pytest.mark.slow

USER = "mortal"
COLUMNS = (ColumnInfo("id", "int"), ColumnInfo("note", "string"))
PARTS = 6
"""Tests among which the long run shares all steps."""
KILLS = 20
FIRST_REPORT_SECONDS = 100.0
LOCAL: Mapping[str, Any] = {"local": LocalOptions()}


class Shop:
    """Two tables of a source, each in a topic of three partitions, and tables of Hive that follow them."""

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        judge: HiveJudge,
        metastore: MetastoreClient,
        database: str,
        folder: Path,
    ) -> None:
        self.kafka = kafka
        self.folder = folder
        self.judge = judge
        self.metastore = metastore
        self.marks = f"{database}.mutation_watermarks"
        self.topics = {"orders": topic, "people": f"{topic}.people"}
        self.tables = {name: f"{database}.{name}" for name in self.topics}
        self.rows: dict[str, dict[int, str]] = {name: {} for name in self.topics}
        self._producer = kafka.producer(transactional_id=topic)
        for name, table in self.tables.items():
            kafka.create_topic(self.topics[name], 3)
            create_acid_table(metastore, table, COLUMNS, clustered_by=["id"], num_buckets=2)
        self._producer.init_transactions()

    def write(self, rng: random.Random, count: int, *, aborted: bool = False) -> None:
        """One transaction of changes of both tables, which the producer may abort."""
        self._producer.begin_transaction()
        for _ in range(count):
            name = rng.choice(list(self.topics))
            rows = dict(self.rows[name]) if aborted else self.rows[name]
            key, note = rng.randrange(40), f"note {rng.random()}"
            op = "c" if key not in rows else rng.choice("uud")
            for sent_key, value in debezium(op, key, note, table=name):
                self._producer.produce(self.topics[name], value, sent_key)
            if op == "d":
                del rows[key]
            else:
                rows[key] = note
        self._producer.flush()
        if aborted:
            self._producer.abort_transaction()
        else:
            self._producer.commit_transaction()
        self.kafka.wait_until_decided(*self.topics.values())

    def ingest(self, metastore: Any = None, **options: Any) -> IngestReport:
        """The topics are closed by the call: nothing of a dead driver is left to a finalizer."""
        engine = options.pop("engine", LOCAL)
        mappings = [TableMapping(f"shop.{name}", table) for name, table in self.tables.items()]
        names = list(self.topics.values())
        with closing(KafkaTopics(self.kafka.servers, names, spill_directory=self.folder)) as topics:
            source = DebeziumSource(topics, "erp")
            return ingest(metastore or self.metastore, mappings, source, **options, **engine)

    def words(self) -> list[str]:
        """The command that does the same."""
        words = ["ingest", "debezium", "--kafka", self.kafka.servers, "--name", "erp", "--engine", "local"]
        for name, table in self.tables.items():
            words += ["--topic", self.topics[name], "--table", f"shop.{name}={table}"]
        return [*words, "--metastore", self.judge.uri, "--json", "--quiet"]

    def expected(self) -> dict[str, list[list[Any]]]:
        """The rows that both tables have in the end."""
        return {name: sorted([key, note] for key, note in rows.items()) for name, rows in self.rows.items()}

    def found(self) -> dict[str, list[list[Any]]]:
        """What Hive's SQL reads."""
        return {
            name: sorted(self.judge.sql(f"SELECT id, note FROM {table}"))
            for name, table in self.tables.items()
        }

    def offsets(self) -> set[tuple[int, ...]]:
        """The offsets of all partitions in the watermarks of the tables."""
        marks = [
            KafkaMark.of(Position(each.order, each.text))
            for each in list_watermarks(self.metastore, self.marks)
        ]
        return {
            tuple(offset for topic in sorted(mark.topics) for offset in mark.topics[topic].nexts)
            for mark in marks
            if mark is not None
        }

    def ends(self) -> tuple[int, ...]:
        """The ends of all partitions, as a consumer finds them."""
        return self.kafka.ends(*sorted(self.topics.values()))


@pytest.fixture
def shop(
    kafka: Kafka, topic: str, hive_line: HiveJudge, line_database: str, tmp_path: Path
) -> Iterator[Shop]:
    """Two empty tables on the line that the test names."""
    with open_client(hive_line.uri) as metastore:
        yield Shop(kafka, topic, hive_line, metastore, line_database, tmp_path)


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_two_topics_become_two_tables_in_one_transaction(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command and from Python; transactions that the producer aborted are nothing."""
    rng = random.Random(1)
    shop.write(rng, 30)
    shop.write(rng, 20, aborted=True)
    assert main(shop.words()) == EXIT_OK
    report = json.loads(capsys.readouterr().out)
    assert (report["engine"], len(report["tables"])) == ("local", 2)
    assert shop.found() == shop.expected()
    assert shop.offsets() == {shop.ends()}
    shop.write(rng, 30)
    shop.write(rng, 20, aborted=True)
    again = shop.ingest()
    assert again.position is not None
    assert shop.found() == shop.expected()
    assert shop.offsets() == {shop.ends()}
    assert {each.txn_id for each in list_watermarks(shop.metastore, shop.marks)} == {again.txn_id}
    assert shop.ingest().position is None
    shop.kafka.delete_topic(shop.topics["people"])
    shop.kafka.create_topic(shop.topics["people"], 3)
    assert main(shop.words()) == EXIT_FAILED
    assert "it was deleted and created again" in capsys.readouterr().err
    with pytest.raises(SourcePositionError, match="another source name"):
        shop.ingest()
    assert shop.found() == shop.expected()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_a_long_log_by_both_engines(shop: Shop, spark: SparkSession) -> None:
    """In turn, on every line of Hive."""
    rng = random.Random(2)
    for number in range(6):
        for _ in range(10):
            shop.write(rng, 40, aborted=rng.random() < 0.2)
        report = shop.ingest(engine=LOCAL if number % 2 else {"spark": spark})
        assert report.position is not None
        assert shop.found() == shop.expected(), f"run {number}"
        assert shop.offsets() == {shop.ends()}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("hive_line", ["2.3"], indirect=True)
def test_a_driver_that_dies_at_any_step_loses_and_repeats_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """Between any two calls to the metastore or changes of files, those of the messages among them."""
    rng = random.Random(part)
    steps: list[str] = []
    for _ in range(2):
        shop.write(rng, 30)
        mortal = Mortal(shop.metastore)
        with mortal.at_files(monkeypatch):
            shop.ingest(mortal, user=USER)
        steps = mortal.steps
    for last in [*range(1 + part, len(steps) + 1, PARTS), None]:
        before, offsets = shop.expected(), shop.offsets()
        shop.write(rng, 30)
        mortal = Mortal(shop.metastore, last)
        with mortal.at_files(monkeypatch), pytest.raises(Died) as caught:
            shop.ingest(mortal, user=USER)
            raise Died(END)
        bury(shop.metastore, USER)
        is_done = shop.offsets() != offsets
        assert shop.found() == (shop.expected() if is_done else before), f"died before {caught.value}"
        assert is_done or last is not None
        report = shop.ingest(user=USER)
        assert (report.position is None) == is_done
        assert shop.found() == shop.expected(), f"died before {caught.value}"
        assert shop.offsets() == {shop.ends()}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_a_command_that_is_killed_at_random_times(shop: Shop, tmp_path: Path) -> None:
    """By SIGKILL, while it follows topics that are written all the time; the last run reads to the end. Every
    second time the command has committed once before.
    """
    rng = random.Random(3)
    words = [sys.executable, "-m", "mutation_api.cli.main", *shop.words(), "--user", USER]
    for number in range(KILLS):
        path = tmp_path / f"{number}.log"
        with path.open("wb") as log:
            process = subprocess.Popen([*words, "--follow", "0.1"], stdout=log, stderr=log, env=os.environ)
            end = time.monotonic() + (FIRST_REPORT_SECONDS if number % 2 else rng.uniform(1.0, 5.0))
            while time.monotonic() < end:
                shop.write(rng, 5, aborted=rng.random() < 0.2)
                if end - time.monotonic() > 10 and '"txn_id"' in path.read_text(encoding="utf-8"):
                    end = time.monotonic() + rng.uniform(0.0, 2.0)
            assert process.poll() is None, path.read_text(encoding="utf-8")
            process.kill()
            process.wait()
        bury(shop.metastore, USER)
    logs = [log.read_text(encoding="utf-8") for log in tmp_path.glob("*.log")]
    assert sum(log.count('"txn_id"') for log in logs) >= KILLS // 2, "hardly a run came to its end"
    shop.ingest(user=USER)
    assert shop.found() == shop.expected()
    assert shop.offsets() == {shop.ends()}
