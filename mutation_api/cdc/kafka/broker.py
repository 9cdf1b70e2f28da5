"""Requests to Kafka's brokers with confluent-kafka: the state of topics, and their messages.

Messages of transactions that were aborted, or are still open, are not read (``read_committed``). Nothing is
committed to Kafka and no group is joined: only the watermark in Hive records what was read.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from mutation_api.cdc.kafka.offsets import KafkaPartition, ReadingPlan, TopicState
from mutation_api.errors import ConfigurationError, ConnectionFailedError, SourcePositionError

MESSAGES_AT_ONCE = 10_000
POLL_SECONDS = 0.5
WAIT_SECONDS = 0.1
ATTEMPT_SECONDS = 5.0
"""The time that a request may take before the leaders of partitions are requested again. The client keeps the
old leaders in memory, and sends requests to a broker that is gone until the request ends."""
RETRY_SECONDS = 0.5

_OURS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
}
_GROUP = "hive-mutate"
_QUIET = {"log_level": 2}
"""The client recovers from most of what it would log; the last error is part of this package's messages."""

_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
_FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
)
_NOTHING_WRITTEN = "Nothing was written; the next run continues from the watermark"

K = TypeVar("K")
T = TypeVar("T")
Sink = Callable[[int, int, bytes | None, bytes | None], None]
"""A function that takes a message: number of its partition, offset, key, value."""


class Broker:
    """A connection to a cluster."""

    def __init__(self, source_id: str, settings: Mapping[str, Any], timeout_seconds: float) -> None:
        """Prepare; requests are sent later.

        Args:
            source_id: name of the source in messages.
            settings: settings of librdkafka, including ``bootstrap.servers``.
            timeout_seconds: how long to wait for an answer from the brokers.

        Raises:
            ConfigurationError: If a setting is unknown, has an invalid value, or must have another value for
                reading.
        """
        self._source_id = source_id
        self._timeout_seconds = timeout_seconds
        self._attempt_seconds = min(timeout_seconds, ATTEMPT_SECONDS)
        self._last_error: KafkaError | None = None
        taken = sorted(_OURS.keys() & settings.keys())
        if taken:
            raise ConfigurationError(
                f"{source_id}: the setting {taken[0]} cannot be changed: it is always "
                f"{taken[0]}={_OURS[taken[0]]}, since the watermark records what was read"
            )
        self._settings = {**_QUIET, "error_cb": self._note, **settings}
        try:
            self._admin = AdminClient(dict(self._settings))
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigurationError(f"{source_id}: invalid Kafka settings: {_said(error)}") from error

    def cluster_id(self) -> str:
        """Return the cluster's id. Raises ConnectionFailedError."""

        def asked() -> str:
            future = self._admin.describe_cluster(request_timeout=self._attempt_seconds)
            (found,) = self._results({"": future}).values()
            return str(found.cluster_id)

        return self._asked("the id of the cluster", asked)

    def topics(self, names: Sequence[str]) -> tuple[TopicState, ...]:
        """Return the states of topics.

        Raises:
            ConnectionFailedError: If the brokers do not answer, or refuse the request.
            SourcePositionError: If a topic does not exist.
        """
        described = self._asked("the topics", lambda: self._described(names))
        counts = {name: len(each.partitions) for name, each in described.items()}
        firsts = self.offsets(counts, OffsetSpec.earliest())
        ends = self.offsets(counts, OffsetSpec.latest())
        return tuple(
            TopicState(
                name,
                _id(described[name]),
                firsts[name],
                tuple(map(max, firsts[name], ends[name])),
            )
            for name in names
        )

    def offsets_at(self, topics: Sequence[TopicState], milliseconds: int) -> dict[str, tuple[int, ...]]:
        """Return, by topic, the first offset of each partition whose message has this time or a later one."""
        counts = {topic.name: len(topic.ends) for topic in topics}
        found = self.offsets(counts, OffsetSpec.for_timestamp(milliseconds))
        return {
            topic.name: tuple(
                end if offset < 0 else min(offset, end)
                for offset, end in zip(found[topic.name], topic.ends, strict=True)
            )
            for topic in topics
        }

    def missing_topics(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the topics that do not exist. Raises ConnectionFailedError."""

        def asked() -> set[str]:
            return set(self._admin.list_topics(timeout=self._attempt_seconds).topics)

        known = self._asked("the names of the topics", asked)
        return tuple(name for name in names if name not in known)

    def create_topics(self, wanted: Sequence[NewTopic]) -> None:
        """Create topics. It is not an error if another process has created a topic in the meantime.

        Raises:
            ConnectionFailedError: If the brokers do not answer, or refuse the request.
        """
        if not wanted:
            return

        def asked() -> None:
            futures = self._admin.create_topics(list(wanted), request_timeout=self._attempt_seconds)
            for future in futures.values():
                try:
                    self._results({"": future})
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise

        self._asked(f"the new topics {', '.join(each.topic for each in wanted)}", asked)

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Return a setting of a topic. Raises: See :meth:`topics`."""

        def asked() -> dict[str, Any]:
            futures = self._admin.describe_configs(
                [ConfigResource(ResourceType.TOPIC, topic)], request_timeout=self._attempt_seconds
            )
            (found,) = self._results(futures).values()
            return dict(found)

        found = self._asked(f"the settings of topic {topic}", asked).get(name)
        return None if found is None else found.value

    def offsets(
        self,
        counts: Mapping[str, int],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[str, tuple[int, ...]]:
        """Return one offset of each partition, by topic. Raises: See :meth:`topics`."""
        wanted = {
            TopicPartition(name, partition): spec
            for name, count in counts.items()
            for partition in range(count)
        }

        def asked() -> dict[tuple[str, int], int]:
            futures = self._admin.list_offsets(
                wanted,
                isolation_level=isolation,
                request_timeout=self._attempt_seconds,
            )
            found = self._results(futures)
            # If the leader of a partition did not answer, it has neither an error nor an offset.
            if any(each.offset == OFFSET_INVALID for each in found.values()):
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return {(at.topic, at.partition): each.offset for at, each in found.items()}

        found = self._asked("the offsets of the topics", asked)
        return {
            name: tuple(found[name, partition] for partition in range(count))
            for name, count in counts.items()
        }

    def read(self, plan: ReadingPlan, sink: Sink) -> None:
        """Read the planned messages and call ``sink`` with them, in order within each partition.

        Raises:
            ConnectionFailedError: If no message arrives within the timeout, or the brokers refuse.
            SourcePositionError: If messages were deleted before they were read.
        """
        left = {
            (each.topic, each.partition): each
            for each in plan.partitions
            if plan.firsts[each.number] < plan.ends[each.number]
        }
        if not left:
            return
        consumer = Consumer({"group.id": _GROUP, **self._settings, **_OURS})
        try:
            consumer.assign(
                [TopicPartition(*place, plan.firsts[each.number]) for place, each in left.items()]
            )
            self._read(consumer, plan, left, sink)
        except KafkaException as error:
            raise self._failed("the messages", error) from error
        finally:
            consumer.close()

    def _read(
        self,
        consumer: Consumer,
        plan: ReadingPlan,
        left: dict[tuple[str, int], KafkaPartition],
        sink: Sink,
    ) -> None:
        """Read until all partitions are read to their ends."""
        last = time.monotonic()
        while left:
            for message in consumer.consume(MESSAGES_AT_ONCE, POLL_SECONDS):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._check(error, message)
                    continue
                last = time.monotonic()
                place = message.topic(), message.partition()
                partition = left.get(place)
                if partition is None:
                    continue
                offset = message.offset()
                if offset < plan.ends[partition.number] and error is None:
                    sink(partition.number, offset, message.key(), message.value())
                if offset + (error is None) >= plan.ends[partition.number]:
                    del left[place]
                    consumer.pause([TopicPartition(*place)])
            self._check_login()
            if time.monotonic() - last > self._timeout_seconds:
                raise self._silent(f"{len(left)} partitions have not been read to their ends")

    def _check(self, error: KafkaError, message: Message) -> None:
        """Raise an error of a partition, unless reading again may solve it."""
        where = f"{self._source_id}, topic {message.topic()}, partition {message.partition()}"
        if error.code() in _LOST:
            raise SourcePositionError(
                f"{where}: messages were deleted while they were read: {error.str()}. {_NOTHING_WRITTEN}"
            )
        if error.code() in (*_GONE, *_FORBIDDEN) or error.fatal():
            raise self._failed("the messages", KafkaException(error))
        self._note(error)

    def _described(self, names: Sequence[str]) -> dict[str, Any]:
        futures = self._admin.describe_topics(
            TopicCollection(list(names)), request_timeout=self._attempt_seconds
        )
        return self._results(futures)

    def _results(self, futures: Mapping[K, concurrent.futures.Future[Any]]) -> dict[K, Any]:
        """Return the answers. Raise KafkaException without waiting if a broker refuses the login."""
        while concurrent.futures.wait(futures.values(), WAIT_SECONDS).not_done:
            self._admin.poll(0)
            self._check_login()
        return {name: future.result() for name, future in futures.items()}

    def _check_login(self) -> None:
        if self._last_error is not None and self._last_error.code() in _FORBIDDEN:
            raise KafkaException(self._last_error)

    def _asked(self, what: str, ask: Callable[[], T]) -> T:
        """Return the answer to a request. The request is repeated while brokers start or leaders change."""
        end = time.monotonic() + self._timeout_seconds
        self._last_error = None
        while True:
            try:
                return ask()
            except KafkaException as error:
                found = error.args[0]
                if not _may_pass(found) or time.monotonic() > end:
                    raise self._failed(what, error) from error
            time.sleep(RETRY_SECONDS)
            with contextlib.suppress(KafkaException):
                self._admin.list_topics(timeout=self._attempt_seconds)

    def _failed(self, what: str, error: KafkaException) -> ConnectionFailedError | SourcePositionError:
        found: KafkaError = error.args[0]
        self._admin.poll(0)
        text = f"{self._source_id}: the brokers did not return {what}: {found.name()}: {found.str()}"
        if found.code() in _GONE:
            return SourcePositionError(f"{text}. Is the name right, or was the topic deleted?")
        return ConnectionFailedError(text + self._last())

    def _silent(self, state: str) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"{self._source_id}: no messages arrived from the brokers for {self._timeout_seconds:g} s; "
            f"{state}{self._last()}. {_NOTHING_WRITTEN}"
        )

    def _last(self) -> str:
        return "" if self._last_error is None else f" (last error: {self._last_error.str()})"

    def _note(self, error: KafkaError) -> None:
        """Keep an error for a later message; librdkafka may recover from it."""
        self._last_error = error


def _id(description: Any) -> str:
    found = description.topic_id
    return "" if not (found.get_most_significant_bits() or found.get_least_significant_bits()) else str(found)


def _may_pass(error: KafkaError) -> bool:
    return error.code() not in (*_GONE, *_FORBIDDEN) and (error.retriable() or error.code() in _PASSING)


_PASSING = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._WAIT_COORD,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,  # soon after a topic was created
    KafkaError.FENCED_LEADER_EPOCH,
)


def _said(error: Exception) -> str:
    found = error.args[0] if error.args else error
    return found.str() if isinstance(found, KafkaError) else str(found)
