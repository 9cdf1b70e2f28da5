"""The transactions of Kafka in which a change feed and its position are sent, with confluent-kafka.

The producer has a stable transactional id, so only one exists at a time: a new producer ends the transaction
of the previous one, and the brokers refuse all later messages of the previous one. The position is a message
in the same transaction, in a compacted topic. Readers of committed messages therefore see both or neither,
and the next producer continues after what they see.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic, OffsetSpec

from mutation_api.cdc.kafka.broker import Broker
from mutation_api.cdc.kafka.feed_messages import FeedMessage
from mutation_api.cdc.kafka.offsets import KafkaPartition, ReadingPlan
from mutation_api.errors import ConfigurationError, ConnectionFailedError, LockLostError, SourcePositionError

TRANSACTION_SECONDS_DEFAULT = 900
"""The maximum duration of a transaction. Brokers with default settings refuse a longer one."""
ABORT_SECONDS = 5.0
POLL_SECONDS = 0.1
FIRST_WINDOW = 64
"""The number of offsets at the end of the position topic that are read first, including those of transaction
markers."""

_OURS: Mapping[str, Any] = {"enable.idempotence": True, "acks": "all"}
_DEFAULTS = {
    "log_level": 2,
    "transaction.timeout.ms": TRANSACTION_SECONDS_DEFAULT * 1000,
    "partitioner": "murmur2_random",
    "linger.ms": 5,
}
"""Settings that the user may change. The partitioner is that of Java's producers."""

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


class FeedProducer:
    """A producer of the messages of one feed."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], position_topic: str, timeout_seconds: float
    ) -> None:
        """Prepare; requests are sent later.

        Args:
            name: the name of the feed, of which there is one producer at a time.
            settings: settings of librdkafka, including ``bootstrap.servers``.
            position_topic: the compacted topic of positions.
            timeout_seconds: how long to wait for an answer from the brokers.

        Raises:
            ConfigurationError: If a setting is unknown, has an invalid value, or cannot be changed.
        """
        self._name = name
        self._topic = position_topic
        self._timeout_seconds = timeout_seconds
        self._is_open = False
        self._last_error: KafkaError | None = None
        self._refused: KafkaError | None = None
        ours = {**_OURS, "transactional.id": f"hive-mutate.{name}"}
        taken = sorted(ours.keys() & settings.keys())
        if taken:
            raise ConfigurationError(f"the setting {taken[0]} cannot be changed: it is {ours[taken[0]]}")
        self._broker = Broker(f"feed {name}", settings, timeout_seconds)
        try:
            self._producer = Producer({**_DEFAULTS, "error_cb": self._note, **settings, **ours})
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigurationError(f"feed {name}: invalid Kafka settings: {error}") from error

    def create_topics(self, names: Sequence[str]) -> None:
        """Create the topics that do not exist, with the brokers' defaults, and that of the positions.

        Raises:
            ConfigurationError: If the topic of positions is not compacted.
            ConnectionFailedError: If the brokers do not answer, or refuse the request.
        """
        missing = self._broker.missing_topics([*names, self._topic])
        compacted = {"cleanup.policy": "compact"}
        new = [NewTopic(each, -1, -1) for each in missing if each != self._topic]
        if self._topic in missing:
            new.append(NewTopic(self._topic, 1, -1, config=compacted))
        self._broker.create_topics(new)
        self._wait_for(missing)
        policy = self._broker.topic_setting(self._topic, "cleanup.policy")
        if policy != "compact":
            raise ConfigurationError(
                f"topic {self._topic} has cleanup.policy={policy}, so the brokers would delete the position. "
                "Set cleanup.policy=compact, or name another topic"
            )

    def _wait_for(self, topics: Sequence[str]) -> None:
        """Wait until the brokers know new topics."""
        end = time.monotonic() + self._timeout_seconds
        while topics and not self._knows(topics):
            if time.monotonic() > end:
                raise ConnectionFailedError(
                    f"feed {self._name}: the brokers do not know the new topics {', '.join(topics)}"
                )
            time.sleep(POLL_SECONDS)

    def _knows(self, topics: Sequence[str]) -> bool:
        try:
            self._broker.topics(topics)
        except SourcePositionError:
            return False
        return True

    def begin(self) -> str | None:
        """Fence the previous producer, end its transaction, and return the last position that was committed.

        Raises:
            ConnectionFailedError: If the brokers do not answer, or refuse the request.
        """
        self._repeated("accept a producer", self._producer.init_transactions)
        return self._last_position()

    def send(self, message: FeedMessage) -> None:
        """Send a message in the open transaction, or in a new one. Raises: See :meth:`commit`."""
        if not self._is_open:
            self._begin_transaction()
        while not self._is_queued(message):
            self._poll(POLL_SECONDS)
        self._poll(0)
        if self._refused is not None:
            raise self._failed("accept a message", self._refused)

    def commit(self, position: str) -> None:
        """Send the position, and commit it with the messages.

        Raises:
            LockLostError: If another producer of this feed has begun.
            ConnectionFailedError: If the brokers do not answer, or refuse the request.
            ConfigurationError: If a message is too large.
        """
        self.send(FeedMessage(self._topic, self._name.encode(), position.encode()))
        self._commit_transaction()
        self._is_open = False

    def close(self) -> None:
        """Abort an open transaction. A failure is not reported: the next producer ends the transaction."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(min(self._timeout_seconds, ABORT_SECONDS))

    def _is_queued(self, message: FeedMessage) -> bool:
        """Put a message into the queue; return False if the queue is full."""
        try:
            self._producer.produce(message.topic, message.value, message.key, on_delivery=self._look)
        except BufferError:
            return False
        except KafkaException as error:
            raise self._failed("accept a message", error.args[0]) from error
        return True

    def _poll(self, seconds: float) -> None:
        """Process delivery reports. A fatal error that happened in the background is raised here."""
        error = _refusal(self._producer.poll, seconds)
        if error is not None:
            raise self._failed("accept a message", error.args[0]) from error

    def _begin_transaction(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._failed("begin a transaction", error.args[0]) from error
        self._is_open = True

    def _commit_transaction(self) -> None:
        self._repeated("commit a transaction", self._producer.commit_transaction)

    def _repeated(self, what: str, ask: Callable[[float], None]) -> None:
        """Make a request, and repeat it while the brokers do not answer."""
        end = time.monotonic() + self._timeout_seconds
        while (error := _refusal(ask, max(POLL_SECONDS, end - time.monotonic()))) is not None:
            found: KafkaError = error.args[0]
            if not found.retriable() or time.monotonic() > end:
                raise self._failed(what, self._refused or found) from error

    def _last_position(self) -> str | None:
        """Read the topic of positions backwards, in windows, until the position of this feed is found.

        Transactions of other feeds may be open, and the last transaction of this feed may follow them. So the
        topic is read up to its present end.
        """
        end = self._end()
        (first,) = self._broker.topics([self._topic])[0].firsts
        window = FIRST_WINDOW
        while True:
            start = max(first, end - window)
            if (found := self._position_between(start, end)) is not None or start == first:
                return found
            window *= 4

    def _end(self) -> int:
        """Return the end of the position topic, once all transactions before it have ended."""
        counts = {self._topic: 1}
        latest = OffsetSpec.latest()
        found = self._broker.offsets(counts, latest, IsolationLevel.READ_UNCOMMITTED)
        (end,) = found[self._topic]
        limit = time.monotonic() + self._timeout_seconds
        while self._broker.offsets(counts, latest)[self._topic][0] < end:
            if time.monotonic() > limit:
                raise ConnectionFailedError(
                    f"feed {self._name}: a transaction in topic {self._topic} is still open after "
                    f"{self._timeout_seconds:g} s, so the last position is not known"
                )
            time.sleep(POLL_SECONDS)
        return end

    def _position_between(self, first: int, end: int) -> str | None:
        found: list[bytes | None] = []

        def keep(_partition: int, _offset: int, key: bytes | None, value: bytes | None) -> None:
            if key == self._name.encode():
                found.append(value)

        partition = KafkaPartition(self._topic, 0, 0, 1)
        plan = ReadingPlan((partition,), {}, (first,), (end,), (False,), None, ())
        self._broker.read(plan, keep)
        return found[-1].decode() if found and found[-1] is not None else None

    def _look(self, error: KafkaError | None, _message: object) -> None:
        if error is not None and self._refused is None:
            self._refused = error

    def _note(self, error: KafkaError) -> None:
        self._last_error = error

    def _failed(self, what: str, error: KafkaError) -> Exception:
        error = self._cause(error)
        text = f"feed {self._name}: the brokers did not {what}: {error.name()}: {error.str()}"
        if self._is_fenced(error):
            return LockLostError(
                f"feed {self._name}: another run with the same name has started, so the brokers refuse this "
                f"one ({error.name()}). Messages that it had not committed are not visible. Run one at a "
                "time, or give the runs different names"
            )
        if error.code() in _TOO_LARGE:
            return ConfigurationError(
                f"{text}. Raise the setting message.max.bytes, and max.message.bytes of the topic"
            )
        last = "" if self._last_error is None else f" (last error: {self._last_error.str()})"
        return ConnectionFailedError(
            f"{text}{last}. The next run continues after the last transaction that was committed"
        )

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return the cause of a fatal error. Calls to a failed producer do not report it."""
        if error.code() != KafkaError._FATAL:
            return error
        for ask in (self._producer.poll, self._producer.abort_transaction):
            found = _refusal(ask, POLL_SECONDS)
            if found is not None and found.args[0].code() != KafkaError._FATAL:
                return found.args[0]
        return error

    def _is_fenced(self, error: KafkaError) -> bool:
        found = (error, self._last_error, self._refused)
        return any(each is not None and each.code() in _FENCED for each in found)


def _refusal(ask: Callable[[float], object], seconds: float) -> KafkaException | None:
    try:
        ask(seconds)
    except KafkaException as error:
        return error
    return None
