"""The change feed through a real Kafka into a second table, as real Hive reads both, whatever dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from judges.hive.judge import HiveJudge
from judges.kafka import Kafka
from mutation_api import Hive, LocalOptions, LockLostError, connect
from mutation_api.cdc import ChangeTopics, DebeziumSource, KafkaTopics, TableMapping, ingest
from mutation_api.cdc.kafka import change_topics
from mutation_api.cdc.kafka.feed_messages import DebeziumMessages, FeedMessage, FeedTopics
from mutation_api.cdc.kafka.feed_producer import FeedProducer
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mutation_api.errors import ConfigurationError
from tests.fixtures.fix_clock import WAIT_BOUND_SECONDS

pytestmark = pytest.mark.slow

KILLS = 12
COLUMNS = (
    "id bigint, item string, price decimal(12,3), at timestamp, data binary, tags array<string>, "
    "part struct<a:int,b:string>"
)


class Died(BaseException):
    """The process is gone: whatever it would have done from here on is not done."""


class Shop:
    """Two tables with all kinds of values, changed by Hive's SQL; and two that follow them through Kafka."""

    def __init__(
        self, kafka: Kafka, topic: str, judge: HiveJudge, hive: Hive, database: str, folder: Path
    ) -> None:
        self.kafka, self.judge, self.hive, self.folder = kafka, judge, hive, folder
        self.prefix = topic
        self.database = database
        self.tables = tuple(f"{database}.{name}" for name in ("items", "orders"))
        self.copies = tuple(f"{name}_copy" for name in self.tables)
        for name in (*self.tables, *self.copies):
            judge.sql(
                f"CREATE TABLE {name} ({COLUMNS}) PARTITIONED BY (day date) CLUSTERED BY (id) INTO 2 BUCKETS "
                "STORED AS ORC TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default')"
            )
        self._number = 0

    def step(self, rng: random.Random) -> None:
        """A change of one table by Hive, or of both in one transaction."""
        name = rng.choice(self.tables)
        self._number += 10
        match rng.randrange(4):
            case 0:
                self.judge.sql(
                    f"INSERT INTO {name} PARTITION (day='2024-05-0{rng.randrange(1, 4)}') "
                    f"SELECT {self._number}, 'a\\t\"é', 12.345, '2024-05-01 12:00:00.123456', "
                    f"unhex('00FF{self._number:04}'), array('x', cast(NULL AS string)), "
                    "named_struct('a', 1, 'b', 'y')"
                )
            case 1:
                self.judge.sql(
                    f"UPDATE {name} SET item = concat(item, 'u'), price = -price, at = NULL "
                    f"WHERE id % 3 = {rng.randrange(3)}"
                )
            case 2:
                self.judge.sql(f"DELETE FROM {name} WHERE id % 7 = {rng.randrange(7)}")
            case _:
                row = {"id": self._number, "item": "o", "day": date(2024, 5, rng.randrange(1, 4))}
                with self.hive.transaction(*self.tables, create_partitions=True) as tx:
                    for each in self.tables:
                        table = tx.table(each)
                        table.append(pa.Table.from_pylist([row], table.schema))

    def topics(self) -> ChangeTopics:
        """The topics of the feed."""
        return ChangeTopics(self.kafka.servers, topic_prefix=self.prefix)

    def send(self, topics: ChangeTopics) -> change_topics.SentChanges:
        """Send what is new."""
        return topics.send(self.hive, *self.tables, since="beginning", on=["id"])

    def follow(self) -> None:
        """Apply what is in the topics to the copies."""
        names = [f"{self.prefix}.{table}" for table in self.tables]
        with closing(KafkaTopics(self.kafka.servers, names, spill_directory=self.folder)) as topics:
            mappings = [TableMapping(*names) for names in zip(self.tables, self.copies, strict=True)]
            source = DebeziumSource(topics, "feed")
            ingest(self.hive.metastore, mappings, source, local=LocalOptions(), create_partitions=True)

    def rows(self, name: str) -> list[Any]:
        """The rows of a table, as Hive's SQL reads them."""
        shown = "id, item, cast(price AS string), cast(at AS string), hex(data), tags[0], size(tags), part.a"
        return sorted(map(str, self.judge.sql(f"SELECT {shown}, part.b, cast(day AS string) FROM {name}")))

    def check(self) -> None:
        """The copies equal the tables."""
        self.follow()
        for name, copy in zip(self.tables, self.copies, strict=True):
            assert self.rows(copy) == self.rows(name)

    def expected(self, since: str) -> list[Any]:
        """The changes that the topics must have, from the feed itself."""
        form = DebeziumMessages(
            FeedTopics(self.prefix), dict.fromkeys(self.tables, ("id",)), self.prefix, lambda: 0
        )
        with self.hive.changes(*self.tables, since=since, on=["id"]) as feed:
            return sorted(map(str, (found for each in feed for found in map(seen, form.messages(each)))))

    def committed(self) -> list[Any]:
        """The messages that readers of committed messages find in all topics but that of positions."""
        names = [f"{self.prefix}.{each}" for each in (*self.tables, "transaction")]
        return sorted(map(str, map(seen, committed(self.kafka, *names))))


def seen(message: FeedMessage) -> Any:
    """A message without the time at which it was made."""
    if message.value is None:
        return message.topic, message.key, None
    payload = json.loads(message.value)["payload"]
    payload.pop("ts_ms")
    payload.get("source", {}).pop("ts_ms", None)
    return message.topic, message.key, json.dumps(payload, sort_keys=True)


def committed(kafka: Kafka, *topics: str) -> list[FeedMessage]:
    """All messages of committed transactions."""
    kafka.wait_until_decided(*topics)
    settings = {"bootstrap.servers": kafka.servers, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    found, places = [], [TopicPartition(each, 0, 0) for each in topics]
    try:
        consumer.assign(places)
        left = len(places)
        while left:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                left -= 1
            else:
                found.append(FeedMessage(message.topic(), message.key(), message.value()))
    finally:
        consumer.close()
    return found


@pytest.fixture
def shop(
    kafka: Kafka, topic: str, hive_line: HiveJudge, line_database: str, tmp_path: Path
) -> Iterator[Shop]:
    """Four empty tables on the line that the test names."""
    with connect(hive_line.uri) as hive:
        yield Shop(kafka, topic, hive_line, hive, line_database, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["4.1", "2.3", "3.1"], indirect=True)
def test_tables_follow_a_feed_that_dies_at_every_step(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after each call to the brokers: nothing is lost, and nothing is sent twice."""
    rng = random.Random(1)
    for _ in range(6):
        shop.step(rng)
    with shop.topics() as topics:
        start = shop.send(topics).position
    shop.check()
    begun = shop.committed()
    monkeypatch.setattr(change_topics, "MESSAGES_AT_ONCE", 3)
    deaths = 0
    for last in (1, 2, 3, 4, 6, 8, 9, 11, 14, None):
        shop.step(rng)
        shop.step(rng)
        with ExitStack() as stack:
            mortal = Mortal(stack.enter_context(monkeypatch.context()), last)
            topics = shop.topics()
            try:
                shop.send(topics)
            except Died:
                deaths += 1
            else:
                topics.close()
            assert mortal.is_dead == (last is not None and len(mortal.steps) >= last)
    assert deaths >= 7
    with shop.topics() as topics:
        shop.send(topics)
        assert shop.send(topics).message_count == 0
    assert shop.committed() == sorted([*begun, *shop.expected(start)])
    shop.check()


class Mortal:
    """A producer that dies before step number ``last``: nothing of it gets through from then on."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int | None) -> None:
        self.steps: list[str] = []
        self.is_dead = False
        self._last = last
        for name in ("create_topics", "begin", "_begin_transaction", "send", "_commit_transaction"):
            patch.setattr(FeedProducer, name, self._stepped(name, getattr(FeedProducer, name)))
        close = FeedProducer.close
        patch.setattr(FeedProducer, "close", lambda producer: None if self.is_dead else close(producer))

    def _stepped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any) -> Any:
            self._take(name)
            found = function(*arguments)
            if name == "_commit_transaction":
                self._take("committed")
            return found

        return stepped

    def _take(self, name: str) -> None:
        self.steps.append(name)
        if self._last is not None and len(self.steps) >= self._last:
            self.is_dead = True
            raise Died(name)


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_a_second_run_ends_the_first(shop: Shop) -> None:
    """The brokers refuse the first one, and the error says why; another name is another feed."""
    shop.step(random.Random(3))
    with shop.topics() as first, shop.topics() as second:
        shop.send(first)
        shop.send(second)
        for each in shop.tables:
            shop.judge.sql(f"INSERT INTO {each} PARTITION (day='2024-05-01') (id) VALUES (1)")
        with pytest.raises(LockLostError, match="another run with the same name has started"):
            shop.send(first)
        assert shop.send(second).transaction_count == 2
        assert shop.send(first).transaction_count == 0
    shop.check()
    other = ChangeTopics(shop.kafka.servers, topic_prefix=shop.prefix, name="other")
    with other, pytest.raises(ConfigurationError, match="since is required"):
        other.send(shop.hive, *shop.tables, on=["id"])


def test_an_ended_run_says_so_whatever_it_does_next(kafka: Kafka, topic: str) -> None:
    """The client finds out in the background, so a message, a look or the commit may be the first to fail."""
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                closing(FeedProducer(topic, {"bootstrap.servers": kafka.servers}, f"{topic}.position", 30))
            )
            for _ in range(2)
        )
        first.create_topics([topic])
        first.begin()
        message = FeedMessage(topic, b"key", b"value")
        first.send(message)
        second.begin()
        with pytest.raises(LockLostError, match="another run with the same name has started"):
            for _ in range(6000):
                first.send(message)
                time.sleep(0.01)
        for act in (lambda: first.send(message), lambda: first.commit("position")):
            with pytest.raises(LockLostError, match="another run with the same name has started"):
                act()


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_the_command(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """It sends lines to one topic; only the first run needs --since. A position must not get lost."""
    topic = f"{shop.prefix}.all"
    words = ["changes", *shop.tables, "--kafka", shop.kafka.servers, "--topic", topic, "--format", "json"]
    words += ["--metastore", shop.judge.uri]
    assert main(words) == EXIT_FAILED
    assert "so --since is required" in capsys.readouterr().err
    assert main([*words, "--since", "now"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["messages"] == 0
    shop.judge.sql(f"INSERT INTO {shop.tables[0]} PARTITION (day='2024-05-01') (id) VALUES (1)")
    assert main([*words, "--since", "beginning", "--on", "id"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["messages"] == 1
    (message,) = committed(shop.kafka, topic)
    line = json.loads(message.value or b"")
    assert (message.key, line["table"], line["change"], line["row"]["id"]) == (
        b'{"id":1}',
        shop.tables[0],
        "insert",
        1,
    )
    for wrong in (["--position-file", "x"], ["--net"]):
        with pytest.raises(SystemExit) as caught:
            main([*words, *wrong])
        assert caught.value.code == EXIT_USAGE
    shop.kafka.create_topic(f"{shop.prefix}.lost.position")
    lost = ChangeTopics(shop.kafka.servers, topic_prefix=f"{shop.prefix}.lost")
    with lost, pytest.raises(ConfigurationError, match="would delete the position"):
        shop.send(lost)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_a_command_that_is_killed_at_random_times(shop: Shop, tmp_path: Path) -> None:
    """By SIGKILL, while tables change: half of the runs at any time, the others after they sent."""
    rng = random.Random(5)
    with shop.topics() as topics:
        start = shop.send(topics).position
    words = [sys.executable, "-m", "mutation_api.cli.main", "changes", *shop.tables, "--on", "id"]
    words += ["--kafka", shop.kafka.servers, "--topic-prefix", shop.prefix, "--metastore", shop.judge.uri]
    sent = 0
    for number in range(KILLS):
        path = tmp_path / f"{number}.log"
        with path.open("wb") as log:
            process = subprocess.Popen([*words, "--follow", "0.1"], stdout=log, stderr=log, env=os.environ)
        bound = time.monotonic() + WAIT_BOUND_SECONDS
        while number % 2 and '"messages"' not in path.read_text(encoding="utf-8"):
            assert time.monotonic() < bound, path.read_text(encoding="utf-8")
            shop.step(rng)
        end = time.monotonic() + rng.uniform(0.0, 6.0)
        while time.monotonic() < end:
            shop.step(rng)
        assert process.poll() is None, path.read_text(encoding="utf-8")
        process.send_signal(signal.SIGKILL)
        process.wait()
        sent += path.read_text(encoding="utf-8").count('"messages"')
    assert sent >= KILLS // 2
    with shop.topics() as topics:
        shop.send(topics)
    assert shop.committed() == shop.expected(start)
    shop.check()
