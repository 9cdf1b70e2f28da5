"""Messages in Avro, converted to the JSON form of the same records.

A message consists of a byte 0, the number of its schema in four bytes, and the value. The schemas are in a
registry. All machines that parse messages need fastavro.

Debezium creates Kafka Connect records, whose schemas are of Kafka Connect's own kind. The Avro converter
writes such a schema as an Avro schema, with what Avro lacks as properties (``connect.name``,
``connect.parameters``). The JSON converter puts the schema in front of each message. This module converts the
first form to the second, so that formats and all later code do not handle Avro:

=================================  ========================================  ================================
Avro                               JSON, and its schema                      note
=================================  ========================================  ================================
boolean, int, long                 number, ``int8`` to ``int64``             ``connect.type``
float, double                      number, ``"NaN"``, ``"Infinity"``         digits as Java writes them
bytes, fixed                       base64, ``bytes``
string, enum                       string
array, map                         array, object
array of ``MapEntry``              object, or array of pairs                 a map whose keys are not strings
record                             object, ``struct``
union of null and a type           null or the value, ``optional``
other unions, recursive types                                                refused
``decimal``, ``date``, …           as ``org.apache.kafka.connect.data.…``    ``logicalType``
=================================  ========================================  ================================

A converted schema has no defaults and no documentation, only a mark (HAS_DEFAULT) of fields that have one. A
null stays null, even if the column has a default.

Source: Kafka Connect's ``JsonConverter``; ``AvroData`` of Confluent's and Apicurio's converters.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from mutation_api.cdc.messages.json_text import HAS_DEFAULT, MessageParser, RepeatedObject, number_of_java
from mutation_api.cdc.source_url import needs_extra


class AvroError(ValueError):
    """Raised for a schema that Kafka Connect does not write, or a value written with another schema."""


@dataclass(frozen=True)
class ConnectType:
    """A type of Kafka Connect.

    ``schema``: the schema as the JSON converter writes it. ``convert``: converts a value read from Avro to a
    JSON value; None if it is one already.
    """

    schema: Mapping[str, Any]
    convert: Callable[[Any], Any] | None

    @property
    def is_record(self) -> bool:
        """True if it is a record, and never null."""
        return self.schema["type"] == "struct" and not self.schema["optional"]


def connect_type(avro: Any, named: Mapping[str, Any]) -> ConnectType:
    """Return the type that an Avro schema represents.

    Args:
        avro: the schema, with full names.
        named: the named types, by name.

    Raises:
        AvroError: If it is not a type of Kafka Connect. The message names the field.
    """
    return _Types(named).of(avro, ())


_PLAIN = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "string",
    "enum": "string",
}
_SMALL = ("int8", "int16")
_DATA = "org.apache.kafka.connect.data."
_DECIMAL = _DATA + "Decimal"
_LOGICAL = {
    ("bytes", "decimal"): "Decimal",
    ("fixed", "decimal"): "Decimal",
    ("int", "date"): "Date",
    ("int", "time-millis"): "Time",
    ("long", "timestamp-millis"): "Timestamp",
}
_CONFLUENT = "io.confluent.connect.avro."
_NO_NAME = _CONFLUENT + "ConnectDefault"
_ANYTHING = _CONFLUENT + "Anything"
_MAP_ENTRY = "MapEntry"
_DEFAULT_PRECISION = 64

_Path = tuple[str, ...]


class _Types:
    """Converts the schemas of one message to types."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []

    def of(self, avro: Any, path: _Path, *, optional: bool = False) -> ConnectType:
        if isinstance(avro, str):
            avro = self._named.get(avro, {"type": avro})
        if isinstance(avro, list):
            return self._of_union(avro, path)
        kind = avro["type"]
        if not isinstance(kind, str):
            return self.of(kind, path, optional=optional)
        if kind in _PLAIN:
            found, convert = _plain(avro), _CONVERTED.get(kind)
        elif kind == "record":
            found, convert = self._of_record(avro, path)
        elif kind == "array":
            found, convert = self._of_array(avro, path)
        elif kind == "map":
            values = self.of(avro["values"], (*path, "(values)"))
            keys = {"type": "string", "optional": False}
            found = {"type": "map", "keys": keys, "values": values.schema}
            convert = None if values.convert is None else _of_map(values.convert)
        else:
            raise AvroError(f"{_shown(path)} is of type {kind}, which Kafka Connect does not have")
        schema = {**found, "optional": optional, **_described(avro)}
        return ConnectType(schema, convert if convert is None or not optional else _of_optional(convert))

    def _of_union(self, members: Sequence[Any], path: _Path) -> ConnectType:
        others = [each for each in members if each not in ("null", {"type": "null"})]
        if len(others) != 1 or len(members) != 2:
            names = ", ".join(each if isinstance(each, str) else str(_name(each)) for each in members)
            raise AvroError(
                f"{_shown(path)} is a union of {names}; only unions of null and one other type are supported"
            )
        return self.of(others[0], path, optional=True)

    def _of_record(self, avro: Mapping[str, Any], path: _Path) -> tuple[dict[str, Any], Any]:
        name = str(avro["name"])
        if name in self._open or name == _ANYTHING:
            what = "that contains itself" if name in self._open else "of values without a schema"
            raise AvroError(f"{_shown(path)} is a record {what} ({name}), which cannot be read")
        self._open.append(name)
        types = {each["name"]: self.of(each["type"], (*path, each["name"])) for each in avro["fields"]}
        self._open.pop()
        marked = {each["name"] for each in avro["fields"] if each.get("default") is not None}
        fields = [
            {**each.schema, "field": field, **({HAS_DEFAULT: True} if field in marked else {})}
            for field, each in types.items()
        ]
        converted = [(field, each.convert) for field, each in types.items() if each.convert is not None]
        return {"type": "struct", "fields": fields}, _of_record(converted) if converted else None

    def _of_array(self, avro: Mapping[str, Any], path: _Path) -> tuple[dict[str, Any], Any]:
        items = avro["items"]
        record = self._named.get(items) if isinstance(items, str) else items
        if _is_map_entry(record):
            key, value = (self.of(each["type"], (*path, f"({each['name']})")) for each in record["fields"])
            found = {"type": "map", "keys": key.schema, "values": value.schema}
            return found, _of_entries(key, value)
        each = self.of(items, (*path, "(items)"))
        convert = None if each.convert is None else _of_list(each.convert)
        return {"type": "array", "items": each.schema}, convert


def _plain(avro: Mapping[str, Any]) -> dict[str, Any]:
    small = avro.get("connect.type")
    return {"type": small if avro["type"] == "int" and small in _SMALL else _PLAIN[avro["type"]]}


def _described(avro: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, version and parameters of a type."""
    logical = _LOGICAL.get((avro["type"], str(avro.get("logicalType")).lower()))
    version = avro.get("connect.version", 1 if logical else None)
    name = avro.get("connect.name", _DATA + logical if logical else _name(avro))
    parameters = {**(_scale(avro) if name == _DECIMAL else {}), **avro.get("connect.parameters", {})}
    if avro["type"] == "enum":
        enum = _CONFLUENT + "Enum"
        parameters = {
            enum: avro["name"],
            **{f"{enum}.{symbol}": symbol for symbol in avro["symbols"]},
            **parameters,
        }
    found = {"name": None if name == _NO_NAME else name, "version": version, "parameters": parameters or None}
    return {key: value for key, value in found.items() if value is not None}


def _name(avro: Mapping[str, Any]) -> str | None:
    return avro["name"] if avro["type"] in ("record", "enum") else None


def _scale(avro: Mapping[str, Any]) -> dict[str, str]:
    precision = avro.get("precision", _DEFAULT_PRECISION)
    scale = {"scale": str(avro.get("scale", 0))}
    if precision != _DEFAULT_PRECISION:
        scale["connect.decimal.precision"] = str(precision)
    return scale


def _is_map_entry(record: Any) -> TypeGuard[Mapping[str, Any]]:
    if not isinstance(record, Mapping) or record.get("type") != "record":
        return False
    is_named = record["name"] == _CONFLUENT + _MAP_ENTRY or record.get("connect.internal.type") == _MAP_ENTRY
    return is_named and [each["name"] for each in record["fields"]] == ["key", "value"]


def _shown(path: _Path) -> str:
    return f"field {'.'.join(path)}" if path else "the schema"


def _base64(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def _of_float(value: float) -> str:
    """Convert an Avro single, which is read as a double but has fewer digits of its own."""
    return number_of_java(str(np.float32(value)))


def _of_double(value: float) -> str:
    return number_of_java(repr(value))


_CONVERTED: Mapping[str, Callable[[Any], Any]] = {
    "bytes": _base64,
    "fixed": _base64,
    "float": _of_float,
    "double": _of_double,
}


def _of_optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _of_list(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: [convert(each) for each in values]


def _of_map(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: {name: convert(each) for name, each in values.items()}


def _of_record(converted: Sequence[tuple[str, Callable[[Any], Any]]]) -> Callable[[Any], Any]:
    def convert(record: dict[str, Any]) -> dict[str, Any]:
        for name, each in converted:
            record[name] = each(record[name])
        return record

    return convert


def _of_entries(key: ConnectType, value: ConnectType) -> Callable[[Any], Any]:
    """Return a converter of entries to a map, which is a JSON object if the keys are strings."""
    of_key, of_value = (each.convert or _same for each in (key, value))

    def convert(entries: Sequence[Mapping[str, Any]]) -> Any:
        pairs = [[of_key(each["key"]), of_value(each["value"])] for each in entries]
        if key.schema["type"] != "string":
            return pairs
        names = ["null" if name is None else name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise AvroError("duplicate key in map")
        return dict(zip(names, (each for _, each in pairs), strict=True))

    return convert


def _same(value: Any) -> Any:
    return value


AVRO_BYTE = b"\0"
"""The first byte of a message whose schema is in a registry; no string in JSON begins with it."""

_HEAD_BYTES = 5
_MARK = AVRO_BYTE.decode()
"""The first character of an Avro message in a line; the rest is the whole message in base64."""


@dataclass(frozen=True)
class WriterSchema:
    """A schema from the registry; pickled for tasks.

    ``text``: its JSON. ``references``: the JSON of the schemas that it refers to; each comes after those that
    it refers to itself.
    """

    text: str
    references: tuple[str, ...] = ()


def schema_number(message: bytes) -> int | None:
    """Return the number of the schema of an Avro message; None if the message is cut off before it."""
    return None if len(message) < _HEAD_BYTES else int.from_bytes(message[1:_HEAD_BYTES])


def line_part(message: bytes) -> bytes:
    """Return an Avro message as a part of a line that :class:`AvroMessageParser` can read."""
    return AVRO_BYTE + base64.b64encode(message)


class AvroReader:
    """Reads values that were written with one schema.

    ``is_record``: True if they are records.
    """

    def __init__(self, schema: WriterSchema) -> None:
        """Raise AvroError if it is not a Kafka Connect schema, ConfigurationError without fastavro."""
        self._fastavro = _fastavro()
        try:
            parts = [json.loads(text) for text in (*schema.references, schema.text)]
            self._bare = self._parsed([_without_logical_types(part) for part in parts])[0]
            whole = connect_type(*self._parsed(parts))
        except AvroError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise AvroError(f"it is not an Avro schema: {type(error).__name__}: {error}") from error
        self.is_record = whole.is_record
        self._schema = RepeatedObject(whole.schema)
        self._convert = whole.convert

    def value(self, body: bytes) -> dict[str, Any]:
        """Return value and schema as a JSON object. Raises AvroError if another schema was used."""
        stream = io.BytesIO(body)
        try:
            payload = self._fastavro.schemaless_reader(stream, self._bare)
        except (EOFError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise AvroError(
                f"it was not written with this schema: {str(error) or 'it is cut off'}"
            ) from error
        if stream.tell() != len(body):
            raise AvroError(
                f"it was not written with this schema: {len(body) - stream.tell()} bytes are left over"
            )
        if self._convert is not None:
            payload = self._convert(payload)
        return {"schema": self._schema, "payload": payload}

    def _parsed(self, parts: list[Any]) -> tuple[Any, dict[str, Any]]:
        """Parse several schemas; return the last one with full names, and all named types."""
        named: dict[str, Any] = {}
        found: Any = None
        for part in parts:
            found = self._fastavro.parse_schema(part, named)
        return found, named


class AvroMessageParser(MessageParser):
    """Parses parts of lines, some of which are Avro messages."""

    def __init__(self, schemas: Mapping[int, WriterSchema]) -> None:
        """``schemas``: the schemas of the messages, by number."""
        super().__init__()
        self._schemas = schemas
        self._readers: dict[int, AvroReader] = {}

    def parsed(self, text: str) -> Any:
        """Parse a message. See :class:`~mutation_api.cdc.messages.json_text.MessageParser`.

        Raises AvroError if a message was not written with its schema.
        """
        if not text.startswith(_MARK):
            return super().parsed(text)
        message = base64.b64decode(text[1:])
        number = int.from_bytes(message[1:_HEAD_BYTES])
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = AvroReader(self._schemas[number])
        try:
            return reader.value(message[_HEAD_BYTES:])
        except AvroError as error:
            raise AvroError(f"the message contains the id of schema {number}, but {error}") from error


def _fastavro() -> Any:
    with needs_extra("Avro messages require", "avro", ", on all machines that run tasks"):
        return importlib.import_module("fastavro")


def _without_logical_types(schema: Any) -> Any:
    """Return a schema that reads values as they were written: a decimal as bytes, a date as its number."""
    if isinstance(schema, dict):
        kept = {name: each for name, each in schema.items() if name != "logicalType"}
        return {name: _without_logical_types(each) for name, each in kept.items()}
    return [_without_logical_types(each) for each in schema] if isinstance(schema, list) else schema
