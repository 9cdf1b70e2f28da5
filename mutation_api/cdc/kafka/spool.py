"""Write the messages of topics to a file as they arrive, and read them from there as a log.

A line is the number of the partition, the message's offset, its key and the message, separated by tabs. Since
each line has the place and order of its message, one file holds all partitions, and Spark's tasks read ranges
of it.

A key that is neither a JSON object nor the string of a Struct with one field is left out: it does not order
messages, and the rows contain their keys. A message that is not UTF-8 is refused immediately. An Avro message
is kept unchanged, in base64; the log has the schemas, each of which is requested here once.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mutation_api.cdc.kafka.offsets import KafkaPartition, ReadingPlan
from mutation_api.cdc.messages.avro import (
    AVRO_BYTE,
    AvroError,
    AvroMessageParser,
    AvroReader,
    WriterSchema,
    line_part,
    schema_number,
)
from mutation_api.cdc.messages.events import Event, MessageFormat, Place, PositionSource
from mutation_api.cdc.messages.json_lines import LogFile, log_ranges, read_lines
from mutation_api.cdc.messages.json_text import MessageParser
from mutation_api.cdc.messages.unwrap import MessageLog, key_of_struct
from mutation_api.cdc.source_url import input_errors
from mutation_api.errors import InputFormatError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import OutputFile

if TYPE_CHECKING:
    from mutation_api.cdc.kafka.registry import Registry

WRITE_BYTES = 4 * 1024 * 1024
KEYS_REMEMBERED = 1000
"""The number of keys remembered for each partition, to find the delete before a tombstone."""

_NO_KEY = _NOTHING = b"null"

_log = logging.getLogger(__name__)


class MessageSpool:
    """The file of a run's messages."""

    def __init__(
        self,
        folder: Location,
        plan: ReadingPlan,
        registry: Registry | None = None,
        *,
        keeps_tombstones: bool = False,
    ) -> None:
        """Prepare without creating the file.

        Args:
            folder: directory for the file.
            plan: the plan of what to read.
            registry: the registry of the messages' schemas. If None, all messages must be strings.
            keeps_tombstones: keep messages without a value, which are deletes in flattened logs.
        """
        self.message_count = 0
        self.byte_count = 0
        self.location = folder / "messages"
        self._plan = plan
        self._keys = [_LastKeys() for _ in plan.partitions]
        self._buffer = bytearray()
        self._file: OutputFile | None = None
        self._warned: set[str] = set()
        self._registry = registry
        self._keeps_tombstones = keeps_tombstones
        self._readers: dict[int, AvroReader] = {}
        self.schemas: dict[int, WriterSchema] = {}

    def add(self, number: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Add a message of a partition.

        Raises:
            InputFormatError: If the message is not UTF-8, its schema is missing or cannot be read, or the
                delete before a tombstone is missing.
            ConnectionFailedError: If the registry does not answer, or refuses the request.
            InputError: If the message cannot be written.
        """
        if value is None and not self._keeps_tombstones:
            self._check_tombstone(number, offset, key)
            return
        partition = self._plan.partitions[number]
        text = _NOTHING if value is None else self._value(partition, offset, value)
        self._keys[number].add(key)
        self._buffer += b"%d\t%d\t%b\t%b\n" % (number, offset, self._key(partition, offset, key), text)
        self.message_count += 1
        if len(self._buffer) >= WRITE_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the remaining messages. Raises InputError."""
        self._flush()
        if self._file is not None:
            with self._writing():
                self._file.close()

    def written(self) -> tuple[LogFile, ...]:
        """Return the file, if there is one. Call this after :meth:`close`."""
        return () if self._file is None else (LogFile(self.location, 0, self.byte_count),)

    def _flush(self) -> None:
        if not self._buffer:
            return
        with self._writing():
            if self._file is None:
                self._file = storage_at(self.location).create(self.location)
            self._file.write(bytes(self._buffer))
        self.byte_count += len(self._buffer)
        self._buffer.clear()

    def _value(self, partition: KafkaPartition, offset: int, value: bytes) -> bytes:
        if not value.startswith(AVRO_BYTE):
            _check_text(partition, offset, value)
            return _one_line(value)
        if not self._reader(partition, offset, value).is_record:
            raise InputFormatError(
                f"{partition.shown(offset)}: schema {schema_number(value)}, with which the message is "
                "written, is not a record schema; is this a topic of change messages?"
            )
        return line_part(value)

    def _key(self, partition: KafkaPartition, offset: int, key: bytes | None) -> bytes:
        if key is None:
            return _NO_KEY
        if self._registry is not None and key.startswith(AVRO_BYTE):
            if self._reader(partition, offset, key).is_record:
                return line_part(key)
        elif _is_object(key):
            return key.translate(_SPACES)
        elif (fields := key_of_struct(key.decode(errors="replace"))) is not None:
            return json.dumps(fields, ensure_ascii=False).encode()
        if partition.topic not in self._warned:
            self._warned.add(partition.topic)
            _log.warning("topic %s: message keys that are not JSON objects are left out", partition.topic)
        return _NO_KEY

    def _reader(self, partition: KafkaPartition, offset: int, message: bytes) -> AvroReader:
        """Return the reader of an Avro message or key."""
        number = schema_number(message)
        if number in self._readers:
            return self._readers[number]
        where = partition.shown(offset)
        if number is None:
            raise InputFormatError(f"{where}: the message is cut off: it has {len(message)} bytes")
        if self._registry is None:
            raise InputFormatError(
                f"{where}: the message is written with schema {number} of a schema registry. If it is in "
                "Avro, name the registry (--schema-registry, schema_registry=…); or have the connector write "
                "JSON (value.converter=org.apache.kafka.connect.json.JsonConverter)"
            )
        schema = self._registry.schema(number, where)
        try:
            reader = AvroReader(schema)
        except AvroError as error:
            raise InputFormatError(
                f"{where}: schema {number} of the registry, with which the message is written, cannot be "
                f"read: {error}"
            ) from error
        self._readers[number], self.schemas[number] = reader, schema
        return reader

    def _check_tombstone(self, number: int, offset: int, key: bytes | None) -> None:
        """Check that a tombstone follows the delete of its key; before a run's first message it need not."""
        keys, partition = self._keys[number], self._plan.partitions[number]
        if self._plan.is_continued[number] and key not in keys and offset > self._plan.firsts[number]:
            raise InputFormatError(
                f"{partition.shown(offset)}: a tombstone of key {key!r} without the delete before it. The "
                "topic was compacted before it was read, so deletes may be lost. Nothing was written. Keep "
                "deletes longer (delete.retention.ms, min.compaction.lag.ms), and copy the table again "
                "under another source name"
            )

    def _writing(self) -> AbstractContextManager[None]:
        return input_errors(
            f"{self.location.shown}: the messages that are buffered there until they are applied cannot be "
            "written"
        )


class _LastKeys:
    """The keys of the last messages of a partition."""

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes | None, None] = OrderedDict()

    def __contains__(self, key: bytes | None) -> bool:
        return key in self._keys

    def add(self, key: bytes | None) -> None:
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > KEYS_REMEMBERED:
            self._keys.popitem(last=False)


@dataclass(frozen=True)
class SpooledLog(MessageLog):
    """A log of messages in a spool; ``files`` are the partitions.

    ``spool``: the files. ``starts``: by table, the offset of each partition's first message that was not
    applied. ``is_private``: True if the files are in this machine's temporary directory. ``schemas``: the
    schemas of Avro messages, by number.
    """

    files: tuple[KafkaPartition, ...]
    spool: tuple[LogFile, ...]
    starts: Mapping[str, tuple[int, ...]]
    is_private: bool
    schemas: Mapping[int, WriterSchema] = field(default_factory=dict)

    @property
    def read_files(self) -> tuple[LogFile, ...]:
        """The files of the spool."""
        return self.spool

    @property
    def is_partitioned(self) -> bool:
        """Always True: offsets order only the messages of one partition."""
        return True

    @property
    def is_of_this_machine(self) -> bool:
        """True if the files are in this machine's temporary directory."""
        return self.is_private

    def lines(self, number: int) -> Iterator[Iterable[tuple[Place, str | None]]]:
        """Read the lines of a part. See :class:`~mutation_api.cdc.messages.unwrap.MessageLog`."""
        part = self.ranges[number]
        for lines in read_lines(self.spool[part.file], part):
            yield (_of_line(text) for _, text in lines)

    def has_order(self, place: Place, parts: Collection[int]) -> bool:
        """Return True if the topic has one partition and the messages are only in that partition."""
        return self.files[place.file].count == 1 and set(parts) <= {place.file}

    def _parser(self) -> MessageParser:
        return AvroMessageParser(self.schemas) if self.schemas else MessageParser()

    def _topic(self, place: Place) -> str | None:
        return self.files[place.file].topic

    def _is_applied(self, place: Place, event: Event) -> bool:
        starts = self.starts.get(event.table or "")
        return starts is not None and place.offset < starts[place.file]


def spooled_log(
    spool: Sequence[LogFile],
    plan: ReadingPlan,
    message_format: MessageFormat,
    positions: PositionSource,
    *,
    is_private: bool,
    schemas: Mapping[int, WriterSchema] | None = None,
) -> SpooledLog:
    """Return the log of a plan whose messages were written; ``schemas`` are those of its Avro messages.

    By default the order is that of the partitions. It is never wrong for a key that stays in its partition,
    while the positions in messages start again with another server.
    """
    return SpooledLog(
        files=plan.partitions,
        ranges=log_ranges(spool),
        format=message_format,
        positions=PositionSource.LINE if positions is PositionSource.AUTO else positions,
        spool=tuple(spool),
        starts=plan.starts,
        is_private=is_private,
        schemas=schemas or {},
    )


_SPACES = bytes.maketrans(b"\t\n\r", b"   ")
_ENDS = bytes.maketrans(b"\n", b" ")
_DAMAGED_ENDS = bytes.maketrans(b"\n", b"\1")


def _of_line(text: str | None) -> tuple[Place, str | None]:
    """Split a line into the place, and the key and message with a tab between them."""
    assert text is not None  # checked when the line was written
    number, offset, message = text.split("\t", 2)
    return Place(int(number), int(offset)), message


def _one_line(value: bytes) -> bytes:
    """Replace line ends, which JSON has only between values; a damaged message stays damaged."""
    if b"\n" not in value:
        return value
    try:
        json.loads(value)
    except ValueError:
        return value.translate(_DAMAGED_ENDS)
    return value.translate(_ENDS)


def _is_object(key: bytes) -> bool:
    try:
        return isinstance(json.loads(key.decode()), dict)
    except ValueError:
        return False


def _check_text(partition: KafkaPartition, offset: int, value: bytes) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise InputFormatError(
            f"{partition.shown(offset)}: the message is not JSON in UTF-8: {error}"
        ) from error
