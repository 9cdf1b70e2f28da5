"""A real Kafka broker: where tests write change messages that tables follow.

Its jars come from Maven Central. One JVM is controller and broker (KRaft); further brokers may join it. It
can be killed and started again on the same data.
"""

from __future__ import annotations

import base64
import itertools
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from judges.errors import JudgeError
from judges.jars import fetch_all, read_pins
from judges.process import SMALL_JVM, START_TIMEOUT_SECONDS, Judge, free_port, log_tail, watched
from metastore_client.java import find_java

JARS = read_pins(Path(__file__).with_name("kafka_jars.txt"))
_SPARK_JARS = read_pins(Path(__file__).with_name("spark_kafka_jars.txt"))

ANSWER_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.1
STOP_TIMEOUT_SECONDS = 10.0

_MAIN = "kafka.Kafka"
_OPTIONS = {
    "num.network.threads": 2,
    "num.io.threads": 2,
    "background.threads": 2,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.check.interval.ms": 300,
    "log.segment.delete.delay.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 2000,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}

_numbers = itertools.count(1)


class Kafka(Judge):
    """One broker on free ports of this machine, with a data folder of its own."""

    version = next(jar.version for jar in JARS if jar.name == "kafka-clients")

    def __init__(
        self,
        work_directory: Path,
        *,
        options: Mapping[str, Any] | None = None,
        controller: Kafka | None = None,
    ) -> None:
        """Make the data folder and start the broker.

        Args:
            work_directory: folder for data and log.
            options: further settings of the broker; ``listeners`` are those beside the tests' own.
            controller: the one that this broker joins; by default it is its own.

        Raises:
            JudgeError: it is not available here, or does not start; the message shows the end of its log.
        """
        self.folder = work_directory.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_path = self.folder / "kafka.log"
        self.port = free_port()
        self.node: int = 1 if controller is None else controller.node + next(_numbers)
        self.cluster_id: str = _new_id() if controller is None else controller.cluster_id
        self.controller_port: int = free_port() if controller is None else controller.controller_port
        self._jars = fetch_all(JARS)
        self._format(dict(options or {}), is_controller=controller is None)
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def description(self) -> str:
        """Name and version, for the summary of a test run."""
        return f"Kafka {self.version}"

    @property
    def servers(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @staticmethod
    def free_listener_port() -> int:
        """A port for a listener among the options."""
        return free_port()

    def start(self) -> None:
        """Start it on its data, and wait until it answers."""
        command = [str(find_java()), *SMALL_JVM, f"-Dorg.slf4j.simpleLogger.logFile={self.log_path}"]
        command += [
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            os.pathsep.join(map(str, self._jars)),
        ]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                watched("kafka", [*command, _MAIN, str(self._settings_file)], tells_pid=True),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                start_new_session=True,
            )
        with self._stopped_on_failure():
            assert self._process.stdout is not None
            self.pid = int(self._process.stdout.readline())
            self._wait_until_up()

    def kill(self) -> None:
        """End it at once, as the machine could; its data stay as they are."""
        self.close()

    def close(self) -> None:
        """Kill the broker."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            _closed(stream)
        process.wait(STOP_TIMEOUT_SECONDS)

    def admin(self) -> AdminClient:
        """A client for topics."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, *, replicas: int = 1, **config: Any) -> None:
        """Create a topic; settings are given with ``_`` for ``.``."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, partitions, replicas, config=settings)
        self._done(lambda admin: admin.create_topics([topic]))

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._done(lambda admin: admin.delete_topics([name]))

    def add_partitions(self, name: str, total: int) -> None:
        """Let a topic have this number of partitions, and wait until the broker names them to clients."""
        self._done(lambda admin: admin.create_partitions([NewPartitions(name, total)]))
        end, admin = time.monotonic() + ANSWER_TIMEOUT_SECONDS, self.admin()
        while len(admin.list_topics(name, ANSWER_TIMEOUT_SECONDS).topics[name].partitions) < total:
            if time.monotonic() > end:
                raise JudgeError(f"topic {name} has not got {total} partitions")
            time.sleep(POLL_SECONDS)

    def producer(self, **config: Any) -> Producer:
        """A producer that waits for all replicas; settings are given with ``_`` for ``.``."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        base = {"bootstrap.servers": self.servers, "acks": "all", "log_level": 0, "linger.ms": 0}
        return Producer({**base, **settings})

    def send(
        self, topic: str, messages: Sequence[tuple[str | None, str | None]], *, partition: int | None = None
    ) -> None:
        """Write messages (key, value), and wait until they are there; keys choose partitions by default."""
        producer = self.producer()
        place = {} if partition is None else {"partition": partition}
        refused: list[str] = []

        def look(error: object, _message: object) -> None:
            if error is not None:
                refused.append(str(error))

        for key, value in messages:
            producer.produce(topic, value, key, on_delivery=look, **place)
            producer.poll(0)
        if producer.flush(ANSWER_TIMEOUT_SECONDS) or refused:
            raise JudgeError(f"Kafka did not take all messages: {refused}\n{log_tail(self.log_path)}")

    def wait_until_decided(self, *topics: str) -> None:
        """Wait until consumers see how the transactions in topics ended, which is later than producers do."""
        end = time.monotonic() + ANSWER_TIMEOUT_SECONDS
        while self._ends(topics, "read_committed") != self._ends(topics, "read_uncommitted"):
            if time.monotonic() > end:
                raise JudgeError(f"a transaction in {', '.join(topics)} is still open")
            time.sleep(POLL_SECONDS)

    def ends(self, *topics: str) -> tuple[int, ...]:
        """The offset behind the last message that may be read, of each partition of topics in their order."""
        return self._ends(topics, "read_committed")

    def _ends(self, topics: Sequence[str], isolation_level: str) -> tuple[int, ...]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "judge",
                "isolation.level": isolation_level,
                "log_level": 0,
            }
        )
        try:
            known = consumer.list_topics(timeout=ANSWER_TIMEOUT_SECONDS).topics
            places = [TopicPartition(name, number) for name in topics for number in known[name].partitions]
            return tuple(consumer.get_watermark_offsets(each, ANSWER_TIMEOUT_SECONDS)[1] for each in places)
        finally:
            consumer.close()

    @property
    def _settings_file(self) -> Path:
        return self.folder / "server.properties"

    def _format(self, options: dict[str, Any], *, is_controller: bool) -> None:
        """Write the settings, and what ``kafka-storage format`` writes into a data folder."""
        data = self.folder / "data"
        data.mkdir()
        further = [each for each in str(options.pop("listeners", "")).split(",") if each]
        own = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        controllers = [f"CONTROLLER://127.0.0.1:{self.controller_port}"] if is_controller else []
        settings = {
            **_OPTIONS,
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": self.node,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*own, *further, *controllers]),
            "advertised.listeners": ",".join([*own, *further]),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": data,
            **options,
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._settings_file.write_text(text, encoding="utf-8")
        meta = {"version": 1, "cluster.id": self.cluster_id, "node.id": self.node, "directory.id": _new_id()}
        lines = "".join(f"{name}={value}\n" for name, value in meta.items())
        (data / "meta.properties").write_text(lines, encoding="utf-8")

    def _wait_until_up(self) -> None:
        end = time.monotonic() + START_TIMEOUT_SECONDS
        assert self._process is not None
        while True:
            try:
                found = self.admin().list_topics(timeout=1.0)
                if self.node in found.brokers:
                    return
                error: Exception | None = None
            except KafkaException as failed:
                error = failed
            if time.monotonic() > end or self._process.poll() is not None:
                raise JudgeError(f"Kafka does not answer: {error}\n{log_tail(self.log_path)}")
            time.sleep(POLL_SECONDS)

    def _done(self, ask: Callable[[AdminClient], Mapping[str, Any]]) -> None:
        admin = self.admin()
        for future in ask(admin).values():
            future.result(ANSWER_TIMEOUT_SECONDS)


def spark_jars() -> str:
    """What ``spark.jars`` has to be for Spark's source of Kafka; fetched on first use."""
    clients = [jar for jar in JARS if jar.name == "kafka-clients"]
    return ",".join(map(str, fetch_all([*_SPARK_JARS, *clients])))


def _new_id() -> str:
    """An id as Kafka writes it: 22 characters, of which the first must not be a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _closed(stream: IO[str]) -> None:
    if not stream.closed:
        stream.close()
