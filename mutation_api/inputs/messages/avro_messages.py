"""Messages in Avro whose schemas are in a registry: a byte 0, the schema's number in four bytes, the value.

They become what the same record would be in JSON with its schema, see
:mod:`~mutation_api.inputs.messages.avro_schema`; formats do not know the difference. Needs fastavro, wherever
messages are parsed.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.messages.avro_schema import AvroError, connect_type
from mutation_api.inputs.messages.json_text import MessageParser, RepeatedObject

__all__ = ["AVRO_BYTE", "AvroMessageParser", "AvroReader", "WriterSchema", "line_part", "schema_number"]

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
        """See :class:`~mutation_api.inputs.messages.json_text.MessageParser`.

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
