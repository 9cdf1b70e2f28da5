"""KafkaTopics: Kafka topics as a log of messages."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mutation_api.cdc.kafka.offsets import ReadingPlan, TopicState, check_same, reading_plan
from mutation_api.cdc.kafka.spool import MessageSpool, spooled_log
from mutation_api.cdc.messages.avro import WriterSchema
from mutation_api.cdc.messages.events import MessageFormat, PositionSource
from mutation_api.cdc.messages.json_lines import LogFile
from mutation_api.cdc.messages.unwrap import OpenedLog
from mutation_api.cdc.source import Position
from mutation_api.cdc.source_url import OwnFolder, located, needs_extra
from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import LocationLike

if TYPE_CHECKING:
    from mutation_api.cdc.kafka.broker import Broker
    from mutation_api.cdc.kafka.registry import Registry

BEGINNING, END = "beginning", "end"
"""Where to start reading for a table without a watermark, if no time is given."""
TIMEOUT_SECONDS_DEFAULT = 60.0
REGISTRY_SETTING = "schema.registry."
"""The prefix of the names of the registry's settings."""

_log = logging.getLogger(__name__)


def check_servers(servers: str) -> None:
    """Raise ConfigurationError if the addresses of brokers contain a user, and perhaps a password."""
    if "@" in servers:
        raise ConfigurationError(
            "servers: expected HOST:PORT,… without a user. Pass user and password in the settings "
            "sasl.username and sasl.password (the servers are not shown: they may contain a password)"
        )


class KafkaTopics:
    """Kafka topics that a source of messages reads instead of files.

    A run reads each partition from the watermark to the end that it had when the run began. The watermark
    has the offsets of all partitions, and is committed with the rows. Needs ``hive-mutation-api[kafka]``.

    Messages about one key must be in one partition, in their order. A key that a run finds in two partitions
    is refused, unless the positions in messages order them (``PositionSource.MESSAGE``). Across runs, the
    order is that in which the brokers return the messages.

    The files of messages remain until the next read, or until :meth:`close`.
    """

    def __init__(
        self,
        servers: str,
        topics: str | Sequence[str],
        *,
        start: str | datetime = BEGINNING,
        settings: Mapping[str, Any] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        spill_directory: LocationLike | None = None,
        schema_registry: str | None = None,
    ) -> None:
        """Define the topics; nothing is connected yet.

        Args:
            servers: brokers to connect to first, ``HOST:PORT,…``.
            topics: one or several topics.
            start: where a table without a watermark begins: BEGINNING, END, or the time of the first message,
                with its time zone. A topic or partition that is added later is read from its beginning.
            settings: further settings of librdkafka, such as ``security.protocol``, ``sasl.username``. Those
                that begin with ``schema.registry.`` are for confluent-kafka's registry client, such as
                ``schema.registry.basic.auth.user.info``, ``schema.registry.ssl.ca.location``.
            timeout_seconds: how long to wait for an answer from the brokers or the registry.
            spill_directory: directory in which messages are buffered until they are applied, on any storage.
                Spark's executors must be able to read it. If None, the system's directory for temporary
                files, which is enough for Spark on one machine.
            schema_registry: address of the registry with the schemas of Avro messages, which has Confluent's
                interface; several addresses are separated by commas. Needs ``hive-mutation-api[avro]``, on
                Spark's executors as well.

        Raises:
            ConfigurationError: If a topic is missing or listed twice, the servers contain a user, the start
                is not valid, or there are settings of a registry but no registry.
        """
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if not names or len(set(names)) < len(names):
            raise ConfigurationError(f"topics={', '.join(names) or '(none)'}: name each topic once")
        is_start = start.tzinfo is not None if isinstance(start, datetime) else start in (BEGINNING, END)
        if not is_start:
            raise ConfigurationError(
                f"start={start!r}: expected {BEGINNING!r}, {END!r}, or a datetime with a time zone"
            )
        check_servers(servers)
        self.servers = servers
        self.topics = tuple(sorted(names))
        self.start = start
        given = dict(settings or {})
        self.settings = {name: given[name] for name in given if not name.startswith(REGISTRY_SETTING)}
        self.registry_settings = {
            name.removeprefix(REGISTRY_SETTING): given[name] for name in given.keys() - self.settings.keys()
        }
        self.schema_registry = schema_registry
        if self.registry_settings and (schema_registry is None or "url" in self.registry_settings):
            raise ConfigurationError(
                f"{min(given.keys() - self.settings.keys())}: pass the address of the registry in its own "
                "argument, schema_registry (--schema-registry)"
            )
        self._timeout_seconds = timeout_seconds
        self._spill_directory = None if spill_directory is None else located(spill_directory)
        self._own_folder = OwnFolder(self._spill_directory)
        self._brokers: dict[str, Broker] = {}

    def close(self) -> None:
        """Remove the files of the last read."""
        self._own_folder.remove()

    def opened(
        self,
        source_id: str,
        tables: Sequence[str],
        after: Mapping[str, Position],
        message_format: MessageFormat,
        positions: PositionSource,
    ) -> OpenedLog:
        """Read the messages after the watermarks, up to the present end of the topics.

        Args:
            source_id: name of the source in messages.
            tables: the source's names of the tables.
            after: the watermarks, by table.
            message_format: the format of the messages.
            positions: what orders operations.

        Raises:
            ConfigurationError: If settings are not valid, or confluent-kafka is not installed.
            ConnectionFailedError: If the brokers or the registry do not answer, or refuse the request.
            SourcePositionError: If a topic does not exist, or messages were deleted while they were read. See
                also :func:`~mutation_api.cdc.kafka.offsets.reading_plan`.
            InputFormatError: If a message is not valid, or the registry does not have its schema.
            InputError: If the files of messages cannot be written.
        """
        broker = self._broker(source_id)
        cluster, states = broker.cluster_id(), broker.topics(self.topics)
        starts = self._first_starts(broker, states) if set(tables) - after.keys() else {}
        plan = reading_plan(source_id, cluster, states, tables, after, starts)
        for each in plan.added:
            _log.warning("%s: %s was added, and is read from its beginning", source_id, each.name)
        files, schemas = (
            ((), {})
            if plan.end is None
            else self._spooled(source_id, broker, plan, keeps_tombstones=message_format.is_flattened)
        )
        check_same(source_id, states, broker.topics(self.topics))
        is_private = self._spill_directory is None
        log = spooled_log(files, plan, message_format, positions, is_private=is_private, schemas=schemas)
        return OpenedLog(log, {}, plan.end, after)

    def _broker(self, source_id: str) -> Broker:
        """Return the connection, which lasts as long as this object."""
        if source_id in self._brokers:
            return self._brokers[source_id]
        if "bootstrap.servers" in self.settings:
            raise ConfigurationError(f"{source_id}: bootstrap.servers: use the argument servers instead")
        with needs_extra(f"{source_id}: topics need", "kafka"):
            from mutation_api.cdc.kafka.broker import Broker  # needs a package that may be missing
        settings = {"bootstrap.servers": self.servers, **self.settings}
        broker = Broker(source_id, settings, self._timeout_seconds)
        self._brokers[source_id] = broker
        return broker

    def _first_starts(self, broker: Broker, states: Sequence[TopicState]) -> Mapping[str, tuple[int, ...]]:
        if isinstance(self.start, datetime):
            return broker.offsets_at(states, round(self.start.timestamp() * 1000))
        return {state.name: state.ends if self.start == END else state.firsts for state in states}

    def _registry(self, source_id: str) -> contextlib.AbstractContextManager[Registry | None]:
        """Return the registry for one read, if there is one."""
        if self.schema_registry is None:
            return contextlib.nullcontext()
        with needs_extra(f"{source_id}: a schema registry needs", "avro"):
            from mutation_api.cdc.kafka.registry import Registry  # needs a package that may be missing
        return Registry(source_id, self.schema_registry, self.registry_settings, self._timeout_seconds)

    def _spooled(
        self, source_id: str, broker: Broker, plan: ReadingPlan, *, keeps_tombstones: bool
    ) -> tuple[tuple[LogFile, ...], dict[int, WriterSchema]]:
        """Read messages into files that replace those of the last read; return files and schemas."""
        folder = self._own_folder.renewed(f"{source_id}: messages")
        with self._registry(source_id) as registry:
            spool = MessageSpool(folder, plan, registry, keeps_tombstones=keeps_tombstones)
            broker.read(plan, spool.add)
        spool.close()
        _log.info("%s: %d messages, %d bytes", source_id, spool.message_count, spool.byte_count)
        return spool.written(), spool.schemas
