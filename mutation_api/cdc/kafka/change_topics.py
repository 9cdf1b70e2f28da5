"""ChangeTopics: topics to which the changes of tables are sent, each exactly once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mutation_api.cdc.kafka.feed_messages import DebeziumMessages, FeedFormat, FeedTopics, JsonMessages
from mutation_api.cdc.kafka.topics import TIMEOUT_SECONDS_DEFAULT, check_servers
from mutation_api.cdc.source_url import needs_extra
from mutation_api.errors import ConfigurationError, listed
from mutation_api.hive.change_feed import ChangeFeed
from mutation_api.hive.connection import Hive
from mutation_api.hive.feed_rules import FeedKeys, Images, keys_by_table
from mutation_api.transaction.catalog import normal_full_name
from mutation_api.transaction.feed_position import Since
from mutation_api.transaction.hold import HoldTime
from mutation_api.transaction.snapshot import ClosedAtEnd

if TYPE_CHECKING:
    from mutation_api.cdc.kafka.feed_producer import FeedProducer

DEBEZIUM, JSON = FORMATS = ("debezium", "json")

MESSAGES_AT_ONCE = 10_000
"""A Kafka transaction ends when it has this many messages and the current Hive transaction is complete."""


@dataclass(frozen=True)
class SentChanges:
    """The result of a call of :meth:`ChangeTopics.send`.

    Attributes:
        transaction_count: transactions with changes of the tables; a snapshot counts as one.
        message_count: messages, including tombstones and those about transactions.
        position: the position after them, which is stored in Kafka.
    """

    transaction_count: int
    message_count: int
    position: str


class ChangeTopics(ClosedAtEnd):
    """Topics of Kafka to which the changes of tables are sent, each exactly once; a context manager::

        with connect() as hive, ChangeTopics("broker:9092", topic_prefix="hive") as topics:
            topics.send(hive, "sales.orders", since="beginning", on=["id"])

    The messages and the position after them are sent in one transaction of Kafka. Whenever a run ends, the
    next one continues after the last message that consumers of committed messages
    (``isolation.level=read_committed``) see. The brokers refuse a run when another one with the same name
    begins.

    Topics that do not exist are created with the brokers' defaults. The position is in the compacted topic
    ``PREFIX.position``. Needs ``hive-mutation-api[kafka]``.
    """

    def __init__(
        self,
        servers: str,
        *,
        topic_prefix: str | None = None,
        topic: str | None = None,
        format: str = DEBEZIUM,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
    ) -> None:
        """Define the topics; nothing is connected yet.

        Args:
            servers: brokers to connect to first, ``HOST:PORT,…``.
            topic_prefix: the topic of a table is ``PREFIX.database.table``.
            topic: the topic of all tables. Pass this or ``topic_prefix``.
            format: ``debezium`` for the envelopes of Debezium with their schemas, with ``PREFIX.transaction``
                as the topic of transactions, or ``json`` for the lines of ``hive-mutate changes``.
            name: the name of the feed. Only one run with this name sends at a time. If None, the prefix or
                topic.
            settings: further settings of librdkafka, such as ``security.protocol``, ``sasl.username``.
            timeout_seconds: how long to wait for an answer from the brokers.

        Raises:
            ConfigurationError: If an argument is invalid.
        """
        if (topic_prefix is None) == (topic is None):
            raise ConfigurationError("pass either topic_prefix or topic")
        if format not in FORMATS:
            raise ConfigurationError(f"format={format!r}: expected one of {', '.join(FORMATS)}")
        check_servers(servers)
        self._names = FeedTopics(topic_prefix or topic or "", topic)
        self.name = name or self._names.prefix
        self._format = format
        given = dict(settings or {})
        if "bootstrap.servers" in given:
            raise ConfigurationError("bootstrap.servers: use the argument servers instead")
        self._settings = {"bootstrap.servers": servers, **given}
        self._timeout_seconds = timeout_seconds
        self._producer: FeedProducer | None = None
        self._position: str | None = None
        self._known: set[str] = set()

    def send(
        self,
        hive: Hive,
        *tables: str,
        since: Since | None = None,
        on: FeedKeys = (),
        columns: Sequence[str] | None = None,
        images: Images = "all",
        hold: HoldTime | None = None,
    ) -> SentChanges:
        """Send what changed since the position in Kafka, transaction by transaction, up to now.

        Args:
            hive: the connection.
            tables: ``database.table``, at least one.
            since: where the first run begins, see ``Hive.changes``. Later runs ignore it.
            on: key columns of the tables, or by table: the keys of messages. Required by ``debezium``.
            columns: names of data and partition columns. If None, all.
            images: ``"keys"`` for a ``before`` that has only the keys; see ``Hive.changes``.
            hold: how long the cleaner is prevented from removing files before the next call; see
                ``Hive.changes``.

        Raises:
            ConfigurationError: If an argument is invalid, confluent-kafka is not installed, there is no
                position and no ``since``, or a message is larger than the brokers allow.
            LockLostError: If another run with the same name has started.
            ConnectionFailedError: If the brokers do not answer, or refuse the request.
            Other errors: See ``Hive.changes``. Only whole transactions are visible then; the next run
                continues after them.
        """
        keys = keys_by_table(on, tables, "send: on")
        messages = self._messages(keys, tables)
        try:
            producer = self._opened(messages, tables)
            begin = self._begin(since)
            with hive.changes(
                *tables, since=begin, on=keys, columns=columns, images=images, hold=hold
            ) as feed:
                return self._sent(producer, messages, feed)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Abort what was not committed, and disconnect. May be called twice."""
        producer, self._producer = self._producer, None
        self._position = None
        if producer is not None:
            producer.close()

    def _begin(self, since: Since | None) -> Since:
        found = self._position or since
        if found is None:
            raise ConfigurationError(
                f"feed {self.name} has no position in Kafka yet, so since is required: "
                '"beginning", "now", a position, or a time'
            )
        return found

    def _sent(self, producer: FeedProducer, messages: FeedFormat, feed: ChangeFeed) -> SentChanges:
        transactions = total = waiting = 0
        for transaction in feed:
            for message in messages.messages(transaction):
                producer.send(message)
                waiting += 1
            transactions += 1
            if waiting >= MESSAGES_AT_ONCE:
                self._commit(producer, transaction.position)
                total, waiting = total + waiting, 0
        if waiting or feed.position != self._position:
            self._commit(producer, feed.position)
        return SentChanges(transactions, total + waiting, feed.position)

    def _commit(self, producer: FeedProducer, position: str) -> None:
        producer.commit(position)
        self._position = position

    def _messages(self, on: Mapping[str, tuple[str, ...]], tables: Sequence[str]) -> FeedFormat:
        if self._format == JSON:
            return JsonMessages(self._names, on)
        if missing := sorted({normal_full_name(each) for each in tables} - on.keys()):
            raise ConfigurationError(
                "debezium requires on: the key columns of the tables, which become the keys of the messages. "
                f"Missing for {listed(missing)}"
            )
        return DebeziumMessages(self._names, on, self._names.prefix, lambda: time.time_ns() // 1_000_000)

    def _opened(self, messages: FeedFormat, tables: Sequence[str]) -> FeedProducer:
        """Return the producer, which lasts until an error, other topics, or :meth:`close`."""
        names = set(messages.topics(tables))
        if self._producer is not None and names <= self._known:
            return self._producer
        self.close()
        with needs_extra("change topics need", "kafka"):
            from mutation_api.cdc.kafka.feed_producer import FeedProducer  # its package may be missing
        topic = f"{self._names.prefix}.position"
        producer = FeedProducer(self.name, self._settings, topic, self._timeout_seconds)
        self._producer = producer
        producer.create_topics(sorted(names))
        self._position, self._known = producer.begin(), names
        return producer
