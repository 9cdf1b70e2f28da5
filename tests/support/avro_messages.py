"""Messages of Kafka Connect in Avro, made of the same messages in JSON with their schemas.

The tests' own writer: schemas as ``AvroData.fromConnectSchema`` of the converters makes them, values by
fastavro; it shares nothing with the reader.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import fastavro

_PLAIN = {"boolean": "boolean", "int32": "int", "int64": "long", "float": "float", "double": "double"}
_PLAIN |= {"bytes": "bytes", "string": "string"}
_LOGICAL = {"Decimal": "decimal", "Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis"}


def in_avro(text: str, register: Callable[[str], int]) -> bytes:
    """A message of JSON with its schema in Avro; ``register`` gives the number of a schema."""
    message = json.loads(text)
    schema = avro_schema(message["schema"])
    return framed(register(json.dumps(schema)), schema, avro_value(message["schema"], message["payload"]))


def framed(number: int, schema: Any, value: Any) -> bytes:
    """A message: a byte 0, the schema's number, the value."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value, strict=True)
    return b"\0" + number.to_bytes(4) + body.getvalue()


def avro_schema(connect: Mapping[str, Any], seen: set[str] | None = None) -> Any:
    """The schema of Avro of one of Kafka Connect, as its JSON converter writes it."""
    seen = set() if seen is None else seen
    kind = connect["type"]
    found: dict[str, Any] = {}
    if kind in _PLAIN:
        found = {"type": _PLAIN[kind]}
    elif kind in ("int8", "int16"):
        found = {"type": "int", "connect.type": kind}
    elif kind == "array":
        found = {"type": "array", "items": avro_schema(connect["items"], seen)}
    elif kind == "map" and connect["keys"]["type"] == "string":
        found = {"type": "map", "values": avro_schema(connect["values"], seen)}
    elif kind == "map":
        entry = {"type": "record", "name": "MapEntry", "namespace": "io.confluent.connect.avro"}
        fields = [{"name": n, "type": avro_schema(connect[f"{n}s"], seen)} for n in ("key", "value")]
        found = {"type": "array", "items": {**entry, "fields": fields}}
    else:
        namespace, _, name = connect["name"].rpartition(".")
        if connect["name"] in seen:
            return _optional(connect, connect["name"])
        seen.add(connect["name"])
        fields = [_field(each, seen) for each in connect["fields"]]
        found = {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    return _optional(connect, {**found, **_properties(connect)})


def _field(connect: Mapping[str, Any], seen: set[str]) -> dict[str, Any]:
    field = {"name": connect["field"], "type": avro_schema(connect, seen)}
    if connect.get("optional") or "default" in connect:
        field["default"] = connect.get("default")
    return field


def _optional(connect: Mapping[str, Any], found: Any) -> Any:
    if not connect.get("optional"):
        return found
    return [found, "null"] if connect.get("default") is not None else ["null", found]


def _properties(connect: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    if "version" in connect:
        found["connect.version"] = connect["version"]
    if "parameters" in connect:
        found["connect.parameters"] = connect["parameters"]
    if "default" in connect:
        found["connect.default"] = connect["default"]
    if "name" in connect:
        found["connect.name"] = connect["name"]
    logical = _LOGICAL.get(connect.get("name", "").removeprefix("org.apache.kafka.connect.data."))
    if logical is not None:
        found["logicalType"] = logical
    if logical == "decimal":
        parameters = connect["parameters"]
        precision = int(parameters.get("connect.decimal.precision", 64))
        found |= {"scale": int(parameters["scale"]), "precision": precision}
    return found


def avro_value(connect: Mapping[str, Any], value: Any) -> Any:
    """A value of JSON as fastavro takes it; decimals are bytes, as no logical type is asked."""
    if value is None:
        return None
    match connect["type"]:
        case "bytes":
            return base64.b64decode(value)
        case "float" | "double":
            return float(value)
        case "array":
            return [avro_value(connect["items"], each) for each in value]
        case "map" if connect["keys"]["type"] == "string":
            return {name: avro_value(connect["values"], each) for name, each in value.items()}
        case "map":
            return [
                {"key": avro_value(connect["keys"], key), "value": avro_value(connect["values"], each)}
                for key, each in value
            ]
        case "struct":
            return {each["field"]: avro_value(each, value.get(each["field"])) for each in connect["fields"]}
    return value
