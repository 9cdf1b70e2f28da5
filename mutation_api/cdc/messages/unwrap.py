"""The lines of a log, converted to messages: wrappers are removed, and other lines are reported.

A line has a message and its key, in the forms in which tools print them:

==========================================  ==================================================================
line                                        printed by
==========================================  ==================================================================
``MESSAGE``
``KEY<tab>MESSAGE``                         ``kafka-console-consumer`` with ``print.key=true``; ``kcat -K``
``CreateTime:…<tab>Partition:…<tab>…``      the same with ``print.timestamp``, ``print.partition``,
                                            ``print.offset``, ``print.headers``
``{"key": …, "value": …}``                  ``rpk topic consume`` and others
``{"topic": …, "key": …, "payload": …}``    ``kcat -J``
==========================================  ==================================================================

Parts of an object may be JSON in a string. A key is JSON, or a Struct of one field as a string
(``Struct{id=1}``), as Kafka Connect's string converter writes it. The string of a Struct with several fields
may have several meanings, so such a key is left out. A key of another form is left out if it is in an object
or a topic. In a line it is refused, as it may be a part of the message. The last lines of the tools' output
are not messages.

Blank lines are left out. Messages that are null (tombstones) are also left out, unless they are deletes in a
log of flattened messages. :class:`OpenedLog` is the log at the moment when a run reads it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mutation_api.cdc.messages.avro import AvroError
from mutation_api.cdc.messages.events import (
    Event,
    LoggedEvent,
    LogPart,
    Message,
    MessageFormat,
    Place,
    PositionSource,
    Problem,
)
from mutation_api.cdc.messages.followed_tables import FollowedTables
from mutation_api.cdc.messages.json_lines import LogFile, LogRange, read_lines
from mutation_api.cdc.messages.json_text import Fields, MessageParser, Number, fields_of
from mutation_api.cdc.source import Position
from mutation_api.errors import InputFormatError


class LineError(ValueError):
    """Raised when a line does not contain a message; the error describes the line and explains what to do."""


_JSON_KEYS = ("{", "null\t", "\0")
"""The beginnings of a line that starts with its key."""

_METADATA = re.compile(
    r"(?:(?:CreateTime|LogAppendTime|NoTimestampType):-?\d+|NO_TIMESTAMP|(?:Partition|Offset|Epoch|Delivery):\d+)"
)
_HEADERS = re.compile(r"NO_HEADERS|[^\s{}\[\]\",:]+:[^\t]*", re.DOTALL)
_ENDINGS = re.compile(r"Processed a total of \d+ messages|% Reached end of topic \S+ \[\d+\] at offset \d+.*")
_STRUCT = re.compile(r"Struct\{([^={},]+)=([^{}=]*)\}", re.DOTALL)
_WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d*")
_OBJECTS_OF_JAVA = ("java.", "[B@")
_BLANKS = " \t\r\n"
_LEAST_OBJECT = 2
"""The length of the shortest JSON object; a shorter string cannot be a whole object."""

_WRAPPER_NAMES = frozenset(
    (
        *("key", "value", "topic", "partition", "offset", "headers", "leaderEpoch", "timestamp"),
        *("timestampType", "ts", "tstype", "broker", "key_size", "value_size"),
        *("serializedKeySize", "serializedValueSize"),
    )
)

_AS_JSON = "=org.apache.kafka.connect.json.JsonConverter"


class _Parts(NamedTuple):
    """The strings of a key, which may be None, and of a message."""

    key: str | None
    value: str


def message_of(text: str, parser: MessageParser, *, is_row: bool = False) -> Message | None:
    """Return the message of a line without wrappers; None if a tool prints the line when it ends.

    Args:
        text: the line, not blank.
        parser: parser for JSON.
        is_row: True if a message is a row itself, whose columns may have the names of a wrapper's fields.

    Raises:
        ValueError: If the line is not JSON.
        LineError: If the line is JSON but not a message, or is of another known form.
    """
    if text[0] == "{" and "\t" not in text:  # the most frequent form, without the copies that a split makes
        value = _value(text, parser)
    else:
        parts = _parts(text)
        if parts is None:
            return None
        if parts.key is not None:
            return Message(_parsed_key(parts.key, parser), _value(parts.value, parser))
        value = _value(parts.value, parser)
    fields = fields_of(value)
    if fields is None:
        return Message(None, value)
    if "value" in fields and "op" not in fields and (not is_row or _is_wrapper(fields)):
        return Message(_key(fields.get("key"), parser), _out_of_text(fields["value"], parser), _topic(fields))
    if "payload" in fields and "topic" in fields and (not is_row or "offset" in fields):
        return Message(
            _key(fields.get("key"), parser), _out_of_text(fields["payload"], parser), _topic(fields)
        )
    return Message(None, value)


def key_of_struct(text: str) -> Fields | None:
    """Return the fields of a key that is a Struct of one field as a string; None if it is another string."""
    found = _STRUCT.fullmatch(text)
    if found is None or found[2].startswith(_OBJECTS_OF_JAVA):
        return None
    return {found[1]: Number(found[2]) if _WHOLE_NUMBER.fullmatch(found[2]) else found[2]}


def _parts(text: str) -> _Parts | None:
    before, tab, behind = text.partition("\t")
    if text.startswith(_JSON_KEYS):
        return _Parts(before, behind) if tab else _Parts(None, text)
    if not tab:
        return None if _ENDINGS.fullmatch(text.strip(_BLANKS)) else _Parts(None, text)
    fields = text.split("\t")
    start = 0
    while start < len(fields) - 1 and _METADATA.fullmatch(fields[start]):
        start += 1
    rest = fields[start:]
    if len(rest) > 1 and (start or len(rest) > 2 or rest[0] == "NO_HEADERS") and _are_headers(rest[0]):
        rest = rest[1:]
    if len(rest) > 2:
        raise ValueError("unknown parts of a line")
    return _Parts(None, rest[0]) if len(rest) == 1 else _Parts(rest[0], rest[1])


def _are_headers(text: str) -> bool:
    return _HEADERS.fullmatch(text) is not None and not text.startswith("Struct")


def _parsed_key(text: str, parser: MessageParser) -> object:
    if text[:1] == "{":
        return parser.parsed(text)
    if text.startswith("Struct{"):
        return key_of_struct(text)
    try:
        return _out_of_text(parser.parsed(text), parser)
    except ValueError as error:
        if text.strip(_BLANKS)[:1] in ("{", "[", '"', "\0"):
            raise
        raise LineError(
            f"the text before the tab is not a JSON key, but {text[:60]!r}; have the connector write keys "
            f"as JSON (key.converter{_AS_JSON}), or print messages without keys (print.key=false)"
        ) from error


def _value(text: str, parser: MessageParser) -> object:
    if text[:1] == "{" and len(text) > _LEAST_OBJECT:
        return parser.parsed(text)
    if text.startswith("Struct{"):
        raise LineError(
            "the message is a Struct as a string, as Kafka Connect's string converter writes it, which "
            f"cannot be read back; have the connector write JSON (value.converter{_AS_JSON})"
        )
    if text.strip(_BLANKS) == "NULL":
        return None
    if text.startswith("["):
        raise LineError(
            "the line begins a JSON array; write each of its messages on its own line: jq -c '.[]' FILE"
        )
    if text.strip(_BLANKS) == "{":
        raise LineError(
            "a message is spread over several lines, or cut off; write each on one line: jq -c . FILE"
        )
    return _out_of_text(parser.parsed(text), parser)


def _is_wrapper(fields: Fields) -> bool:
    """Return True if an object with a value is a wrapper: a row has other columns, or another value."""
    value = fields["value"]
    is_message = (
        value is None or isinstance(value, dict) or (isinstance(value, str) and value.startswith("{"))
    )
    return is_message and "key" in fields and fields.keys() <= _WRAPPER_NAMES


def _topic(fields: Fields) -> str | None:
    topic = fields.get("topic")
    return topic if isinstance(topic, str) else None


def _key(value: object, parser: MessageParser) -> object:
    if value.__class__ is not str:
        return value
    assert isinstance(value, str)
    try:
        return key_of_struct(value) if value.startswith("Struct{") else parser.parsed(value)
    except ValueError:
        return None


def _out_of_text(value: object, parser: MessageParser) -> object:
    """Parse the JSON in a string; return any other value unchanged."""
    if value.__class__ is not str:
        return value
    assert isinstance(value, str)
    return _value(value, parser)


_NO_TEXT = Event("damaged", problem=Problem(InputFormatError, None, "the line is not UTF-8"))
_NO_JSON = Event(
    "damaged",
    problem=Problem(
        InputFormatError,
        None,
        "the line is not one whole JSON message; is it cut off or spread over several lines, does it have "
        "two messages, or does an object have two fields with the same name?",
    ),
)


@dataclass(frozen=True)
class MessageLog:
    """The files of a log and their format; pickled for tasks.

    ``files``: the parts in which messages have an order. ``ranges``: the parts of the files that are read,
    see :func:`~mutation_api.cdc.messages.json_lines.log_ranges`. ``positions``: the order of operations.
    ``followed``: maps tables to the names under which they are followed. If None, names are not changed.
    """

    files: tuple[LogPart, ...]
    ranges: tuple[LogRange, ...]
    format: MessageFormat
    positions: PositionSource
    followed: FollowedTables | None = field(default=None, kw_only=True)

    @property
    def read_files(self) -> tuple[LogFile, ...]:
        """The files that are read; the file indices of the ranges refer to them."""
        return tuple(file for file in self.files if isinstance(file, LogFile))

    @property
    def is_partitioned(self) -> bool:
        """True if the order of lines in different parts is not known."""
        return False

    @property
    def is_of_this_machine(self) -> bool:
        """True if other machines cannot read the files."""
        return False

    def events(self, number: int) -> Iterator[Iterator[LoggedEvent]]:
        """Return the events of a range, one by one. Raises InputFormatError if a file cannot be read.

        They are not collected, because thousands of objects at the same time would keep Python's garbage
        collector busy.
        """
        parser = self._parser()
        for lines in self.lines(number):
            yield self._events_of(lines, parser)

    def _events_of(
        self, lines: Iterable[tuple[Place, str | None]], parser: MessageParser
    ) -> Iterator[LoggedEvent]:
        for place, text in lines:
            event = self._event(place, text, parser)
            if event is not None and not self._is_applied(place, event):
                yield LoggedEvent(place, event)

    def lines(self, number: int) -> Iterator[Iterable[tuple[Place, str | None]]]:
        """Read the lines of a range, in batches; a line that is not UTF-8 is None."""
        part = self.ranges[number]
        for lines in read_lines(self.read_files[part.file], part):
            yield ((Place(part.file, offset), text) for offset, text in lines)

    def has_order(self, _place: Place, _parts: Collection[int]) -> bool:
        """Return True if a change of a whole table has a known order among rows in these parts."""
        return not self.is_partitioned

    def _parser(self) -> MessageParser:
        """Return the parser of the messages of a range."""
        return MessageParser()

    def _is_applied(self, _place: Place, _event: Event) -> bool:
        """Return True if the log itself records that an event has been applied to all its tables."""
        return False

    def _topic(self, _place: Place) -> str | None:
        """Return the topic of a message, None if it is not known."""
        return None

    def _event(self, place: Place, text: str | None, parser: MessageParser) -> Event | None:
        """Return the event of a line; None if it has no message."""
        if text is None:
            return _NO_TEXT
        if not text.strip(_BLANKS):
            return None
        is_flattened = self.format.is_flattened
        try:
            message = message_of(text, parser, is_row=is_flattened)
        except (AvroError, LineError) as error:
            return Event("damaged", problem=Problem(InputFormatError, None, str(error)))
        except ValueError:
            return _NO_JSON
        if message is None or (message.value is None and not is_flattened):
            return None
        if is_flattened and message.topic is None:
            message = message._replace(topic=self._topic(place))
        event = self.format.event(message, self.positions)
        return event if self.followed is None else self.followed.named(event)


@dataclass(frozen=True)
class OpenedLog:
    """A log, with the positions that are known about it.

    ``log``: the messages. ``after``: watermarks with which operations must still be compared, by the source's
    table names. ``end``: the position that is reached when all messages are applied. If None, it is the
    position of the last operation. ``marks``: all watermarks, by the source's table names.
    """

    log: MessageLog
    after: Mapping[str, Position]
    end: Position | None = None
    marks: Mapping[str, Position] = field(default_factory=dict)
