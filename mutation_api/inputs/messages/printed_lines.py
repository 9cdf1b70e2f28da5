"""What a line of a log holds: a message and its key, in the forms in which tools print them. Pure.

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

Parts of an object may be JSON in a string. A key is JSON, or the text of a Struct of one field
(``Struct{id=1}``), as Kafka Connect's converter for strings writes it; the text of several fields may have
several meanings, and is left out. A key of another form is left out in an object, as in topics. In a line it
is refused: it may be a part of the message. What the tools print when they end is no message.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mutation_api.inputs.messages.events import Message
from mutation_api.inputs.messages.json_text import Fields, MessageParser, Number, fields_of

__all__ = ["LineError", "key_of_struct", "message_of"]


class LineError(ValueError):
    """Raised when a line has no message; says what it is, and what to do."""


_JSON_KEYS = ("{", "null\t", "\0")
"""Begin a line that has nothing before its key."""

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
"""Length of the shortest object; a shorter text only begins one."""

_WRAPPER_NAMES = frozenset(
    (
        *("key", "value", "topic", "partition", "offset", "headers", "leaderEpoch", "timestamp"),
        *("timestampType", "ts", "tstype", "broker", "key_size", "value_size"),
        *("serializedKeySize", "serializedValueSize"),
    )
)

_AS_JSON = "=org.apache.kafka.connect.json.JsonConverter"


class _Parts(NamedTuple):
    """Texts of a key, None if there is none, and of a message."""

    key: str | None
    value: str


def message_of(text: str, parser: MessageParser, *, is_row: bool = False) -> Message | None:
    """The message of a line, without wrappers; None if it is what a tool prints when it ends.

    Args:
        text: the line, not blank.
        parser: parses JSON.
        is_row: whether a message is a row itself, whose columns may have the names of a wrapper's fields.

    Raises:
        ValueError: the line is not JSON. LineError: it is, but not a message; or it is known what it is.
    """
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
    """The fields of a key that is the text of a Struct of one field; None for any other text."""
    found = _STRUCT.fullmatch(text)
    if found is None or found[2].startswith(_OBJECTS_OF_JAVA):
        return None
    return {found[1]: Number(found[2]) if _WHOLE_NUMBER.fullmatch(found[2]) else found[2]}


def _parts(text: str) -> _Parts | None:
    if text.startswith("{") and "\t" not in text:
        return _Parts(None, text)  # the most frequent form, without the copies that a split makes
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
        raise ValueError("parts of a line that are not known")
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
            f"what stands before the tab is no key in JSON, but {text[:60]!r}; have the connector write keys "
            f"as JSON (key.converter{_AS_JSON}), or print messages without keys (print.key=false)"
        ) from error


def _value(text: str, parser: MessageParser) -> object:
    if text[:1] == "{" and len(text) > _LEAST_OBJECT:
        return parser.parsed(text)
    if text.startswith("Struct{"):
        raise LineError(
            "the message is the text of a Struct, as Kafka Connect's converter for strings writes it, which "
            f"cannot be read back; have the connector write JSON (value.converter{_AS_JSON})"
        )
    if text.strip(_BLANKS) == "NULL":
        return None
    if text.startswith("["):
        raise LineError(
            "the line begins a JSON array; write each of its messages on a line of its own: jq -c '.[]' FILE"
        )
    if text.strip(_BLANKS) == "{":
        raise LineError("a message is spread over lines, or cut off; write each on one line: jq -c . FILE")
    return _out_of_text(parser.parsed(text), parser)


def _is_wrapper(fields: Fields) -> bool:
    """Whether an object with a value is no row: rows have other columns, or a value that is no message."""
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
    """The JSON in a text; any other value itself."""
    if value.__class__ is not str:
        return value
    assert isinstance(value, str)
    return _value(value, parser)
