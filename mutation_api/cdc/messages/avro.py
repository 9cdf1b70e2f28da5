"""Messages in Avro, and schemas of writers.

Avro schemas of Kafka Connect's records: the same as its JSON converter writes them, and the values. Pure.

Debezium makes a record of Kafka Connect with a schema of its own kind. The converter for Avro writes that
schema as one of Avro, and what Avro has no word for as properties (``connect.name``, ``connect.parameters``);
the converter for JSON puts it in front of each message. Here the first becomes the second, so that nothing
behind it knows of Avro:

=================================  ========================================  ================================
Avro                               JSON, and its schema                      note
=================================  ========================================  ================================
boolean, int, long                 number, ``int8`` to ``int64``             ``connect.type``
float, double                      number, ``"NaN"``, ``"Infinity"``         digits as Java writes them
bytes, fixed                       base64, ``bytes``
string, enum                       string
array; map                         array; object
array of ``MapEntry``              object, or array of pairs                 a map whose keys are no strings
record                             object, ``struct``
union of null and a type           null, or the value; ``optional``
other unions, a type within itself                                           refused
``decimal``, ``date``, …           as ``org.apache.kafka.connect.data.…``    ``logicalType``
=================================  ========================================  ================================

A schema here lacks defaults and documentation. A null stays null, also where a column has a default.

Source: Kafka Connect's ``JsonConverter``; ``AvroData`` of Confluent's and Apicurio's converters.

Messages in Avro whose schemas are in a registry: a byte 0, the schema's number in four bytes, the value.

They become what the same record would be in JSON with its schema, see
:mod:`~mutation_api.cdc.messages.avro`; formats do not know the difference. Needs fastavro, wherever
messages are parsed.
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

from mutation_api.cdc.messages.json_text import MessageParser, RepeatedObject, number_of_java
from mutation_api.errors import ConfigurationError

__all__ = [
    "AVRO_BYTE",
    "AvroError",
    "AvroMessageParser",
    "AvroReader",
    "ConnectType",
    "WriterSchema",
    "connect_type",
    "line_part",
    "schema_number",
]


class AvroError(ValueError):
    """A schema that is not one of Kafka Connect's, or a value that was not written with its schema."""


@dataclass(frozen=True)
class ConnectType:
    """A type: ``schema`` as Kafka Connect's JSON converter writes it; ``convert`` makes a value of JSON of
    one that was read from Avro, or is None if it is one already.
    """

    schema: Mapping[str, Any]
    convert: Callable[[Any], Any] | None

    @property
    def is_record(self) -> bool:
        """Whether it is a record, and never null."""
        return self.schema["type"] == "struct" and not self.schema["optional"]


def connect_type(avro: Any, named: Mapping[str, Any]) -> ConnectType:
    """The type that an Avro schema stands for.

    Args:
        avro: the schema, with full names.
        named: the types that have names, by these.

    Raises:
        AvroError: it is none of Kafka Connect's; the message names the field.
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
    """Makes types of the schemas of one message."""

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
                f"{_shown(path)} is a union of {names}; only unions of null and one other type are read"
            )
        return self.of(others[0], path, optional=True)

    def _of_record(self, avro: Mapping[str, Any], path: _Path) -> tuple[dict[str, Any], Any]:
        name = str(avro["name"])
        if name in self._open or name == _ANYTHING:
            what = "within itself" if name in self._open else "of values without a schema"
            raise AvroError(f"{_shown(path)} is a record {what} ({name}), which cannot be read")
        self._open.append(name)
        types = {each["name"]: self.of(each["type"], (*path, each["name"])) for each in avro["fields"]}
        self._open.pop()
        fields = [{**each.schema, "field": field} for field, each in types.items()]
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
    """Name, version and parameters of a type."""
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
    """A single of Avro is read as a double; its own digits are fewer."""
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
    """A map as its entries, in JSON an object if its keys are strings."""
    of_key, of_value = (each.convert or _same for each in (key, value))

    def convert(entries: Sequence[Mapping[str, Any]]) -> Any:
        pairs = [[of_key(each["key"]), of_value(each["value"])] for each in entries]
        if key.schema["type"] != "string":
            return pairs
        names = ["null" if name is None else name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise AvroError("a map has two entries of one key")
        return dict(zip(names, (each for _, each in pairs), strict=True))

    return convert


def _same(value: Any) -> Any:
    return value


AVRO_BYTE = b"\0"
"""First byte of a message whose schema is in a registry; no text begins so."""

_HEAD_BYTES = 5
_MARK = AVRO_BYTE.decode()
"""Begins a message in a line, which goes on with all of it in base64."""


@dataclass(frozen=True)
class WriterSchema:
    """A schema as the registry has it; pickled for tasks.

    ``text``: its JSON. ``references``: those of the schemas that it names, each behind what it names itself.
    """

    text: str
    references: tuple[str, ...] = ()


def schema_number(message: bytes) -> int | None:
    """Number of the schema of a message of Avro; None if it is cut off before that."""
    return None if len(message) < _HEAD_BYTES else int.from_bytes(message[1:_HEAD_BYTES])


def line_part(message: bytes) -> bytes:
    """A message of Avro as a part of a line, which :class:`AvroMessageParser` reads."""
    return AVRO_BYTE + base64.b64encode(message)


class AvroReader:
    """Reads the values that were written with one schema.

    ``is_record``: whether they are records.
    """

    def __init__(self, schema: WriterSchema) -> None:
        """Raises AvroError: the schema is not one of Kafka Connect's. ConfigurationError: no fastavro."""
        self._fastavro = _fastavro()
        try:
            parts = [json.loads(text) for text in (*schema.references, schema.text)]
            self._bare = self._parsed([_without_logical_types(part) for part in parts])[0]
            whole = connect_type(*self._parsed(parts))
        except AvroError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise AvroError(f"it is not a schema of Avro: {type(error).__name__}: {error}") from error
        self.is_record = whole.is_record
        self._schema = RepeatedObject(whole.schema)
        self._convert = whole.convert

    def value(self, body: bytes) -> dict[str, Any]:
        """The value and its schema, as an object of JSON. Raises AvroError: it was not written with it."""
        stream = io.BytesIO(body)
        try:
            payload = self._fastavro.schemaless_reader(stream, self._bare)
        except (EOFError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise AvroError(f"it was not written with its schema: {str(error) or 'it is cut off'}") from error
        if stream.tell() != len(body):
            raise AvroError(f"it was not written with its schema: {len(body) - stream.tell()} bytes are left")
        if self._convert is not None:
            payload = self._convert(payload)
        return {"schema": self._schema, "payload": payload}

    def _parsed(self, parts: list[Any]) -> tuple[Any, dict[str, Any]]:
        """The last of several schemas, with full names, and all types that have names."""
        named: dict[str, Any] = {}
        found: Any = None
        for part in parts:
            found = self._fastavro.parse_schema(part, named)
        return found, named


class AvroMessageParser(MessageParser):
    """Parses parts of lines, of which some are messages of Avro."""

    def __init__(self, schemas: Mapping[int, WriterSchema]) -> None:
        """``schemas``: those of the messages, by number."""
        super().__init__()
        self._schemas = schemas
        self._readers: dict[int, AvroReader] = {}

    def parsed(self, text: str) -> Any:
        """See :class:`~mutation_api.cdc.messages.json_text.MessageParser`.

        Raises AvroError: a message was not written with its schema.
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
            raise AvroError(f"the message has the number of schema {number}, and {error}") from error


def _fastavro() -> Any:
    try:
        return importlib.import_module("fastavro")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"messages in Avro need the Python module {error.name!r}, on all machines that run tasks: "
            "pip install 'hive-mutation-api[avro]'"
        ) from error


def _without_logical_types(schema: Any) -> Any:
    """A schema by which values are read as they were written: a decimal as bytes, a date as its number."""
    if isinstance(schema, dict):
        kept = {name: each for name, each in schema.items() if name != "logicalType"}
        return {name: _without_logical_types(each) for name, each in kept.items()}
    return [_without_logical_types(each) for each in schema] if isinstance(schema, list) else schema
