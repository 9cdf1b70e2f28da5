"""Topics of a real Kafka as a source: what a run reads, from where to where, and what it refuses."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from judges.kafka import Kafka
from mutation_api.cdc import (
    DebeziumSource,
    FlattenedMessages,
    KafkaTopics,
    LogOptions,
    MaxwellSource,
    Position,
    PositionSource,
)
from mutation_api.cdc.kafka.offsets import KafkaMark
from mutation_api.cdc.kafka.spool import MessageSpool
from mutation_api.cdc.source import SourceTable
from mutation_api.errors import (
    ConfigurationError,
    ConnectionFailedError,
    ContradictionError,
    InputFormatError,
    SourcePositionError,
)
from tests.support.kafka_messages import ORDERS, debezium, maxwell, read, read_rows, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hive41")]
"""Where the others are that need Kafka: it starts once."""

LONG = pytest.mark.long
PATIENT_SECONDS = 120.0
"""No broker of a test is silent for so long."""
TLS_FILES = Path(__file__).parents[2] / "golden" / "tls"
BY_MESSAGE = LogOptions(positions=PositionSource.MESSAGE)


def source_of(kafka: Kafka, topic: str, *others: str, **options: Any) -> DebeziumSource:
    """Debezium's messages in topics."""
    log = options.pop("log", LogOptions())
    return DebeziumSource(
        KafkaTopics(kafka.servers, (topic, *others), **{"timeout_seconds": PATIENT_SECONDS, **options}),
        "erp",
        options=log,
    )


def nexts(position: Position | None, topic: str) -> tuple[int, ...]:
    """The offsets in a position."""
    assert position is not None
    mark = KafkaMark.of(position)
    assert mark is not None
    return mark.topics[topic].nexts


@pytest.mark.long
def test_a_run_reads_what_is_committed_from_the_watermark_to_the_end(kafka: Kafka, topic: str) -> None:
    """Aborted transactions are not read, one that is open holds back what is behind it, and offsets have
    gaps where transactions end. Tombstones and keys that change partitions nothing of the rows.
    """
    kafka.create_topic(topic, 2)
    source = source_of(kafka, topic)
    empty = read(source).position
    assert nexts(empty, topic) == (0, 0)
    kafka.send(topic, [*debezium("c", 1, "a"), *debezium("c", 2, "b"), *debezium("d", 2, "b")])
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions()
    for ends, note in ((producer.abort_transaction, "never"), (producer.commit_transaction, "new")):
        producer.begin_transaction()
        for key, value in [*debezium("u", 1, note), *debezium("c", 3, note)]:
            producer.produce(topic, value, key)
        producer.flush()
        ends()
    kafka.wait_until_decided(topic)
    first = read(source, empty)
    assert rows_of(first) == [("delete", 2, None), ("insert", 3, "new"), ("update", 1, "new")]
    producer.begin_transaction()
    ((key, value),) = debezium("u", 3, "newer")
    producer.produce(topic, value, key)
    producer.flush()
    assert read(source, first.position).position is None
    kafka.send(topic, debezium("u", 1, "newest"))
    producer.commit_transaction()
    kafka.wait_until_decided(topic)
    second = read(source, first.position)
    assert rows_of(second) == [("update", 1, "newest"), ("update", 3, "newer")]
    assert sum(nexts(second.position, topic)) - sum(nexts(first.position, topic)) == 3
    assert read(source, second.position).position is None


def test_each_run_refuses_a_topic_that_lost_messages_or_was_made_anew(kafka: Kafka, topic: str) -> None:
    kafka.create_topic(topic)
    kafka.send(topic, [*debezium("c", 1, "a"), *debezium("c", 2, "b"), *debezium("c", 3, "c")])
    source = source_of(kafka, topic)
    with_two = read(source_of(kafka, topic)).position
    assert with_two is not None
    kafka.send(topic, [*debezium("c", 4, "d"), *debezium("c", 5, "e")])
    admin = kafka.admin()
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    deleted.result()
    with pytest.raises(SourcePositionError, match=r"read up to offset 3, but begins at 4: .*retention"):
        read(source, with_two)
    assert read_rows(source) == [("insert", 5, "e")]
    kafka.delete_topic(topic)
    with pytest.raises(SourcePositionError, match="UNKNOWN_TOPIC_OR_PART"):
        read(source, with_two)
    kafka.create_topic(topic)
    kafka.send(topic, [message for n in range(9) for message in debezium("c", n, "z")])
    with pytest.raises(SourcePositionError, match="it was deleted and created again"):
        read(source, with_two)


@LONG
def test_retention_itself_is_noticed(kafka: Kafka, topic: str) -> None:
    """Segments that the broker deletes because they are old."""
    kafka.create_topic(topic, retention_ms=1000, segment_ms=500, segment_bytes=1 << 20)
    kafka.send(topic, debezium("c", 1, "a"))
    source = source_of(kafka, topic)
    position = read(source).position
    kafka.send(topic, debezium("c", 2, "b"))
    end = time.monotonic() + 180
    with pytest.raises(SourcePositionError, match="begins at"):
        while time.monotonic() < end:
            kafka.send(topic, debezium("c", 3, "c"))
            read(source, position)
            time.sleep(0.5)


def test_added_partitions_are_read_and_a_key_in_two_of_them_is_noticed(
    kafka: Kafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The order of such a key is known by the positions in its messages alone."""
    kafka.create_topic(topic)
    kafka.send(topic, [*debezium("c", 1, "a", at=10), *debezium("c", 2, "b", at=20)])
    source = source_of(kafka, topic)
    position = read(source).position
    kafka.add_partitions(topic, 3)
    kafka.send(topic, debezium("u", 2, "c", at=30), partition=2)
    with caplog.at_level(logging.WARNING):
        found = read(source, position)
    assert rows_of(found) == [("update", 2, "c")]
    assert f"{topic}, partition 2 was added" in caplog.text
    assert nexts(found.position, topic) == (2, 0, 1)
    kafka.send(topic, debezium("u", 2, "later", at=50), partition=0)
    kafka.send(topic, debezium("u", 2, "earlier", at=40), partition=2)
    said = r'two operations on key {"id":2} are in two partitions, the second at .*"__partition":2'
    with pytest.raises(ContradictionError, match=said):
        read_rows(source, found.position)
    ordered = source_of(kafka, topic, log=BY_MESSAGE)
    assert read_rows(ordered, found.position) == [("update", 2, "later")]
    assert read_rows(ordered) == [("insert", 1, "a"), ("update", 2, "later")]


def test_tables_of_several_topics_and_tables_that_come_later(kafka: Kafka, topic: str) -> None:
    """A table that is new begins at the beginning; what the others had is not given to them again."""
    other, third = f"{topic}.b", f"{topic}.c"
    people = SourceTable("shop.people", ORDERS.target)
    for each in (topic, other, third):
        kafka.create_topic(each, 2)
    kafka.send(topic, debezium("c", 1, "a"))
    kafka.send(other, debezium("c", 7, "p", table="people"))
    source = source_of(kafka, topic, other)
    first = read(source)
    assert rows_of(first) == [("insert", 1, "a")]
    kafka.send(topic, debezium("c", 2, "b"))
    kafka.send(third, debezium("c", 8, "q", table="people"))
    wider = source_of(kafka, topic, other, third)
    assert first.position is not None
    both = read(wider, {"shop.orders": first.position}, tables=(ORDERS, people))
    assert rows_of(both) == [("insert", 2, "b")]
    assert rows_of(both, 1) == [("insert", 7, "p"), ("insert", 8, "q")]
    with pytest.raises(SourcePositionError, match=f"but {third} is missing from this run"):
        read(source, both.position)


@LONG
def test_a_first_run_begins_where_it_is_asked_to(kafka: Kafka, topic: str) -> None:
    """And only the first. The messages are old, so the broker must not remove them."""
    kafka.create_topic(topic, retention_ms=-1)
    producer = kafka.producer()
    noon = datetime(2026, 5, 4, 12, tzinfo=UTC)
    for number in range(4):
        ((key, value),) = debezium("c", number, "a")
        moment = noon + timedelta(minutes=number)
        producer.produce(topic, value, key, timestamp=int(moment.timestamp() * 1000))
    producer.flush()
    source = source_of(kafka, topic, start=noon + timedelta(seconds=90))
    timed = read(source)
    assert rows_of(timed) == [("insert", 2, "a"), ("insert", 3, "a")]
    assert nexts(timed.position, topic) == (4,)
    assert read_rows(source_of(kafka, topic, start=noon + timedelta(hours=1))) == []
    at_end = source_of(kafka, topic, start="end")
    position = read(at_end).position
    kafka.send(topic, debezium("c", 9, "b"))
    assert read_rows(at_end, position) == [("insert", 9, "b")]


@LONG
def test_messages_that_are_not_json_are_refused_by_their_place(kafka: Kafka, topic: str) -> None:
    kafka.create_topic(topic)
    kafka.send(topic, debezium("c", 1, "a"))
    source = source_of(kafka, topic)
    position = read(source).position
    producer = kafka.producer()
    producer.produce(topic, b"\0\0\0\0\x05\x02", b"\0\0\0\0\x06\x02")
    producer.flush()
    where = f"topic {topic}, partition 0, offset 1: the message is written with schema 5 of a schema registry"
    with pytest.raises(InputFormatError, match=where):
        read(source, position)
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    kafka.send(topic, [(None, "{x")])
    with pytest.raises(InputFormatError, match=f"topic {topic}, partition 0, offset 0: the line is not one"):
        read(source)


def test_a_truncate_needs_a_topic_of_one_partition(kafka: Kafka, topic: str) -> None:
    """Elsewhere it is not known which rows were written before it."""
    truncate = debezium("c", 1)[0][1]
    assert truncate is not None
    truncate = truncate.replace('"op": "c"', '"op": "t"').replace('{"id": 1, "note": null}', "null")
    wide = f"{topic}.wide"
    options = LogOptions(applies_truncates=True)
    for name, count in ((topic, 1), (wide, 2)):
        kafka.create_topic(name, count)
        kafka.send(name, [*debezium("c", 1, "a"), (None, truncate), *debezium("c", 2, "b")])
    source = source_of(kafka, topic, log=options)
    found = read(source)
    assert found.tables[0].is_emptied
    assert rows_of(found) == [("insert", 2, "b")]
    with pytest.raises(InputFormatError, match=r"truncate of shop.orders: rows of the table may be in other"):
        read(source_of(kafka, wide, log=options))


@LONG
def test_maxwells_messages_of_one_database_in_one_partition(kafka: Kafka, topic: str) -> None:
    """A change of a key is one message: the row's old key and the new one are in its partition."""
    kafka.create_topic(topic, 3)
    sent = [
        maxwell("insert", 1, "a"),
        maxwell("update", 2, "a", old={"id": 1}),
        maxwell("insert", 1, "b"),
    ]
    kafka.send(topic, sent, partition=1)
    source = MaxwellSource(KafkaTopics(kafka.servers, topic), "erp")
    assert read_rows(source) == [("insert", 1, "b"), ("insert", 2, "a")]
    kafka.send(topic, [maxwell("delete", 1, "b")], partition=2)
    with pytest.raises(ContradictionError, match="are in two partitions"):
        read_rows(source)


def test_settings_that_are_not_the_users_and_brokers_that_are_silent(kafka: Kafka, topic: str) -> None:
    kafka.create_topic(topic)
    for settings, said in (
        ({"isolation.level": "read_uncommitted"}, "isolation.level cannot be changed"),
        ({"bootstrap.servers": "x:1"}, "bootstrap.servers: use the argument servers instead"),
        ({"no.such.setting": "1"}, "No such configuration property"),
        ({"security.protocol": "none"}, "Invalid value"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            read(source_of(kafka, topic, settings=settings))
    nobody = DebeziumSource(KafkaTopics("127.0.0.1:1", topic, timeout_seconds=1.5), "erp")
    with pytest.raises(ConnectionFailedError, match="the brokers did not return the id of the cluster"):
        read(nobody)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Kafka]:
    """A broker of the test's own, which it may kill."""
    with Kafka(tmp_path / "kafka") as broker:
        yield broker


def many(count: int, start: int = 0) -> list[tuple[str | None, str | None]]:
    """Messages about rows of their own, 1 KiB each."""
    return [message for n in range(start, start + count) for message in debezium("c", n, "x" * 900)]


@LONG
def test_a_broker_that_is_killed_while_it_is_read_and_comes_back(
    mortal: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is missing, nothing doubled; another of the same data also knows the watermark."""
    mortal.create_topic(topic, 3)
    mortal.send(topic, many(20_000))
    few = {"queued.max.messages.kbytes": 1024, "fetch.message.max.bytes": 100_000}
    source = source_of(mortal, topic, timeout_seconds=PATIENT_SECONDS, settings=few)
    revival = threading.Timer(1.0, mortal.start)
    add = MessageSpool.add

    def add_and_kill(spool: MessageSpool, *message: Any) -> None:
        add(spool, *message)
        if spool.message_count == 5000:
            mortal.kill()
            revival.start()

    monkeypatch.setattr(MessageSpool, "add", add_and_kill)
    found = read(source)
    revival.join()
    rows = rows_of(found)
    assert [row[1] for row in rows] == list(range(20_000))
    assert read(source, found.position).position is None
    mortal.send(topic, debezium("c", 20_000, "new"))
    assert read_rows(source, found.position) == [("insert", 20_000, "new")]
    mortal.kill()
    impatient = source_of(mortal, topic, timeout_seconds=2)
    with pytest.raises(ConnectionFailedError, match="last error"):
        read(impatient, found.position)


@LONG
@pytest.mark.timeout(300)
def test_a_lost_broker_of_three_changes_nothing(mortal: Kafka, topic: str, tmp_path: Path) -> None:
    """Leaders move; the run and the next ones read the same offsets from other brokers."""
    with (
        Kafka(tmp_path / "second", controller=mortal) as second,
        Kafka(tmp_path / "third", controller=mortal) as third,
    ):
        mortal.create_topic(topic, 6, replicas=3, min_insync_replicas=1)
        mortal.send(topic, many(3000))
        source = DebeziumSource(
            KafkaTopics(
                f"{mortal.servers},{second.servers},{third.servers}", topic, timeout_seconds=PATIENT_SECONDS
            ),
            "erp",
        )
        first = read(source)
        assert len(rows_of(first)) == 3000
        mortal.send(topic, many(3000, 3000))
        second.kill()
        behind = read(source, first.position)
        assert [row[1] for row in rows_of(behind)] == list(range(3000, 6000))
        mortal.send(topic, many(10, 6000))
        second.start()
        third.kill()
        assert [row[1] for row in read_rows(source, behind.position)] == list(range(6000, 6010))


@LONG
def test_login_and_encryption(tmp_path: Path, topic: str) -> None:
    """SASL over TLS, by librdkafka's own settings. A wrong password or authority is refused at once, or when
    the broker has been silent for long enough.
    """
    keys = tmp_path / "keys.pem"
    keys.write_text((TLS_FILES / "server.key").read_text() + (TLS_FILES / "server.pem").read_text())
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="secret"'
    port = Kafka.free_listener_port()
    options: Mapping[str, Any] = {
        "listeners": f"LOGIN://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"{login};",
        "listener.name.login.ssl.keystore.type": "PEM",
        "listener.name.login.ssl.keystore.location": keys,
    }
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": "secret",
        "ssl.ca.location": str(TLS_FILES / "ca.pem"),
    }
    with Kafka(tmp_path / "kafka", options=options) as broker:
        broker.create_topic(topic)
        broker.send(topic, debezium("c", 1, "a"))

        def source(changed: Mapping[str, str]) -> DebeziumSource:
            chosen = {**settings, **changed}
            # A refused login ends at once; a broker that cannot be trusted, or hangs up, is tried again.
            seconds = 20.0 if changed.keys() - {"sasl.password"} else PATIENT_SECONDS
            topics = KafkaTopics(f"127.0.0.1:{port}", topic, timeout_seconds=seconds, settings=chosen)
            return DebeziumSource(topics, "erp")

        assert read_rows(source({})) == [("insert", 1, "a")]
        for changed, said in (
            ({"sasl.password": "wrong"}, "Authentication failed|Invalid username or password"),
            ({"ssl.ca.location": str(TLS_FILES / "other_ca.pem")}, "certificate verify failed"),
            ({"security.protocol": "SASL_PLAINTEXT"}, "the brokers did not return the id of the cluster"),
        ):
            with pytest.raises(ConnectionFailedError, match=said):
                read(source(changed))


def test_flattened_messages(kafka: Kafka, topic: str) -> None:
    """A message without value deletes the row of its key, also in a later run."""
    kafka.create_topic(topic)
    rows = [(1, "a"), (2, "b"), (1, "c")]
    key = '{{"id": {}}}'.format
    sent = [(key(number).encode(), f'{{"id": {number}, "note": "{note}"}}'.encode()) for number, note in rows]
    kafka.send(topic, [*sent, (key(2).encode(), None)])
    topics = KafkaTopics(kafka.servers, topic, timeout_seconds=PATIENT_SECONDS)
    source = DebeziumSource(topics, "erp", flattened=FlattenedMessages(table="shop.orders"))
    first = read(source)
    assert rows_of(first) == [("delete", 2, None), ("update", 1, "c")]
    kafka.send(topic, [(key(1).encode(), None)])
    assert rows_of(read(source, first.position)) == [("delete", 1, None)]
