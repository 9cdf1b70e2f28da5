"""Values of columns as Kafka Connect's JSON converter writes them, with schemas of Kafka Connect. Pure.

=================  ==================================================================================
column             Kafka Connect: type, semantic type
=================  ==================================================================================
boolean            ``boolean``
tinyint … bigint   ``int16`` … ``int64``
float, double      ``float``, ``double``; ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
decimal            ``bytes``, ``org.apache.kafka.connect.data.Decimal``
string types       ``string``
binary             ``bytes``
date               ``int32``, ``io.debezium.time.Date``
timestamp          ``int64``, ``io.debezium.time.NanoTimestamp``, or ``MicroTimestamp`` if the rows were read
                   with microseconds
array, map, …      ``string``, ``io.debezium.data.Json``: JSON, as in files of changes
=================  ==================================================================================

Source: Kafka Connect's JsonConverter, and Debezium's documentation of its connectors, 3.x.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mutation_api.format.json_values import json_texts, to_json

Field = Mapping[str, Any]
"""A schema of Kafka Connect, as its JSON converter writes it."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_INTEGERS = {pa.int8(): "int16", pa.int16(): "int16", pa.int32(): "int32", pa.int64(): "int64"}
_OTHERS: Mapping[pa.DataType, Field] = {
    pa.bool_(): {"type": "boolean"},
    pa.float32(): {"type": "float"},
    pa.float64(): {"type": "double"},
    pa.string(): {"type": "string"},
    pa.binary(): {"type": "bytes"},
    pa.date32(): {"type": "int32", "name": "io.debezium.time.Date", "version": 1},
}
_JSON: Field = {"type": "string", "name": "io.debezium.data.Json", "version": 1}
_DECIMAL_BYTES = 16


def json_text(value: object) -> str:
    """Return a value as JSON, without spaces."""
    return _ENCODER.encode(value)


def struct_of(fields: Sequence[Field], name: str, *, optional: bool = False, **more: object) -> Field:
    """Return the schema of a struct."""
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": name, **more}


def connect_type(kind: pa.DataType) -> Field:
    """Return the schema of the values of a column."""
    if kind in _INTEGERS:
        return {"type": _INTEGERS[kind]}
    if kind in _OTHERS:
        return _OTHERS[kind]
    if pa.types.is_decimal128(kind):
        return {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)},
        }
    if pa.types.is_timestamp(kind):
        unit = "NanoTimestamp" if kind.unit == "ns" else "MicroTimestamp"
        return {"type": "int64", "name": f"io.debezium.time.{unit}", "version": 1}
    return _JSON


def connect_values(array: pa.Array) -> list[Any]:
    """Return the values of a column as ``json.dumps`` accepts them. Null is None."""
    kind = array.type
    values: list[Any]
    if pa.types.is_decimal128(kind):
        return _unscaled(array)
    if pa.types.is_date32(kind):
        values = array.cast(pa.int32()).to_pylist()
        return values
    if pa.types.is_timestamp(kind):
        values = array.cast(pa.int64()).to_pylist()
        return values
    if kind in _INTEGERS or kind in _OTHERS:
        return to_json(array)
    is_valid = array.is_valid().to_pylist()
    return [text if valid else None for text, valid in zip(json_texts(array), is_valid, strict=True)]


def _unscaled(array: pa.Array) -> list[str | None]:
    """Return decimals as base64 of the unscaled number, in two's complement, high byte first."""
    buffer = array.buffers()[1]
    data = b"" if buffer is None else buffer.to_pybytes()
    first = array.offset
    found: list[str | None] = []
    for row, is_valid in enumerate(array.is_valid().to_pylist(), first):
        if not is_valid:
            found.append(None)
            continue
        start = row * _DECIMAL_BYTES
        number = int.from_bytes(data[start : start + _DECIMAL_BYTES], "little", signed=True)
        size = number.bit_length() // 8 + 1
        found.append(base64.b64encode(number.to_bytes(size, "big", signed=True)).decode("ascii"))
    return found
