"""Messages in Avro are what the same record is in JSON with its schema; what cannot be read is refused."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
from collections.abc import Mapping
from typing import Any

import fastavro
import pytest

from mutation_api.cdc.messages.avro import (
    AvroError,
    AvroMessageParser,
    AvroReader,
    WriterSchema,
    line_part,
    schema_number,
)
from mutation_api.cdc.messages.debezium import DebeziumFormat
from mutation_api.cdc.messages.events import Message, PositionSource
from mutation_api.cdc.messages.json_text import MessageParser, is_rough, parsed, text_of
from tests.support.avro_messages import avro_schema, avro_value, framed, in_avro
from tests.support.json_messages import CHANGES, debezium
from tests.support.recorded_messages import recorded_messages

DECIMAL = "org.apache.kafka.connect.data.Decimal"


class Schemas(dict[int, WriterSchema]):
    """Schemas by their numbers, as a registry gives them."""

    def register(self, text: str) -> int:
        for number, known in self.items():
            if known.text == text:
                return number
        self[len(self) + 1] = WriterSchema(text)
        return len(self)


def read(message: bytes, schemas: Mapping[int, WriterSchema]) -> Any:
    return AvroMessageParser(schemas).parsed(line_part(message).decode())


def of_field(connect: Mapping[str, Any], value: Any) -> tuple[Any, Any]:
    """Schema and value that a field of a record gets, which has them in Kafka Connect."""
    record = {"type": "struct", "name": "a.b.R", "fields": [{**connect, "field": "x"}]}
    schemas = Schemas()
    found = read(in_avro(json.dumps({"schema": record, "payload": {"x": value}}), schemas.register), schemas)
    (field,) = found["schema"]["fields"]
    return field, found["payload"]["x"]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.operation)
def test_a_message_of_debezium_is_the_event_that_it_is_in_json(change: Any) -> None:
    """All but the schema's text, which has more of the schema than the tests' JSON."""
    key, value = debezium(change).split("\t")
    schemas = Schemas()
    parser = AvroMessageParser(schemas)
    in_json = DebeziumFormat().event(Message(parsed(key), parsed(value)), PositionSource.AUTO)
    parts = [line_part(in_avro(_whole(text), schemas.register)).decode() for text in (key, value)]
    event = DebeziumFormat().event(Message(*map(parser.parsed, parts)), PositionSource.AUTO)
    assert event.kind == "row"
    for name in ("table", "op", "log_position", "log", "key_names"):
        assert getattr(event, name) == getattr(in_json, name)
    for ours, theirs in zip(event.rows[0], in_json.rows[0], strict=True):
        assert (ours is None) == (theirs is None)
        assert text_of(ours) == text_of(theirs)
    kinds = [
        {each["field"]: (each["type"], each.get("name"), each.get("parameters")) for each in fields}
        for fields in (json.loads(text or "")["fields"] for text in (event.schema, in_json.schema))
    ]
    assert kinds[0] == kinds[1]


def _whole(text: str) -> str:
    """The message with the whole schema; the tests' JSON leaves out what no reader needs."""
    message = json.loads(text)
    if "op" not in message["payload"]:
        return text
    source = [
        {"type": "string", "optional": value is None, "field": name}
        if isinstance(value, str | None)
        else {"type": "int64", "field": name}
        for name, value in message["payload"]["source"].items()
    ]
    message["schema"]["fields"] += [
        {"type": "struct", "name": "io.debezium.connector.mysql.Source", "fields": source, "field": "source"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
        {"type": "string", "optional": True, "field": "transaction"},
    ]
    return json.dumps(message)


@pytest.mark.parametrize(
    ("connect", "value"),
    [
        ({"type": "boolean"}, True),
        ({"type": "int8"}, -128),
        ({"type": "int16", "optional": True}, None),
        ({"type": "int32", "name": "io.debezium.time.Date", "version": 1}, -719162),
        ({"type": "int64", "optional": True}, 2**63 - 1),
        ({"type": "int64"}, 2**53 + 1),
        ({"type": "string", "optional": True, "default": "no", "version": 1}, None),
        ({"type": "string", "name": "io.debezium.data.Enum", "parameters": {"allowed": "a,b"}}, "b"),
        ({"type": "bytes"}, base64.b64encode(bytes(range(256))).decode()),
        ({"type": "bytes", "optional": True}, ""),
        ({"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": "2"}}, "/w=="),
        (
            {
                "type": "bytes",
                "optional": True,
                "name": DECIMAL,
                "version": 1,
                "parameters": {"scale": "0", "connect.decimal.precision": "38"},
            },
            "AQIDBAUGBwgJCgsMDQ4P",
        ),
        ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1}, 1529507596945),
        ({"type": "array", "items": {"type": "bytes", "optional": True}}, ["AAE=", None]),
        (
            {"type": "map", "keys": {"type": "string"}, "values": {"type": "string", "optional": True}},
            {"a": None, "b": "é"},
        ),
        (
            {"type": "map", "keys": {"type": "int32"}, "values": {"type": "bytes"}, "optional": True},
            [[2, "AA=="], [1, ""]],
        ),
        (
            {
                "type": "struct",
                "name": "io.debezium.data.VariableScaleDecimal",
                "version": 1,
                "optional": True,
                "fields": [
                    {"type": "int32", "field": "scale"},
                    {"type": "bytes", "field": "value"},
                ],
            },
            {"scale": 3, "value": "AeI="},
        ),
    ],
    ids=lambda each: each["type"] if isinstance(each, dict) and "type" in each else "",
)
def test_types_and_values_of_kafka_connect(connect: Mapping[str, Any], value: Any) -> None:
    field, found = of_field(connect, value)
    assert (found, type(found)) == (value, type(value))
    mark = {"has_default": True} if connect.get("default") is not None else {}
    plain = {key: each for key, each in connect.items() if key != "default"}
    assert field == _full(plain | {"field": "x"}) | mark


def _full(connect: Mapping[str, Any]) -> dict[str, Any]:
    """With ``optional`` in all types, as the JSON converter writes it."""
    found = {"optional": False, **connect}
    for name in ("keys", "values", "items"):
        if name in found:
            found[name] = _full(found[name])
    if "fields" in found:
        found["fields"] = [_full(each) for each in found["fields"]]
    return found


def test_floats_have_the_text_that_they_have_in_json() -> None:
    """As Java writes them: the shortest digits, of a single those of a single."""
    rng = random.Random(1)
    doubles = [0.0, -0.0, 0.1, 1e7, 9999999.0, 1e-3, 9.99e-4, 2.0**53, 1e22, 5e-324, 1.7976931348623157e308]
    doubles += [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(500)]
    for double in doubles:
        field, found = of_field({"type": "double"}, double)
        in_json = parsed(json.dumps(double)) if double - double == 0 else text_of(double)
        assert field["type"] == "double"
        if double - double != 0:
            assert found == {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(double)]
            continue
        assert float(found) == double
        assert not is_rough(found)
        assert ("E" in found) == (double != 0 and not 1e-3 <= abs(double) < 1e7)
        assert float(text_of(found) or "") == float(text_of(in_json) or "")
    for single, text in ((0.1, "0.1"), (16777216.0, "1.6777216E7"), (3.4028234663852886e38, "3.4028235E38")):
        _, found = of_field({"type": "float"}, single)
        assert (str(found), text_of(found)) == (text, text)


def test_logical_types_without_names_and_types_that_are_named_elsewhere() -> None:
    """An enum, a fixed, a type of another schema; Connect knows ``date`` and ``decimal`` by themselves."""
    other = {
        "type": "record",
        "name": "Money",
        "namespace": "x.y",
        "fields": [
            {
                "name": "amount",
                "type": {
                    "type": "fixed",
                    "name": "F",
                    "size": 3,
                    "logicalType": "decimal",
                    "precision": 6,
                    "scale": 1,
                },
            },
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    main = {
        "type": "record",
        "name": "R",
        "namespace": "x.y",
        "fields": [
            {"name": "a", "type": ["null", "Money"]},
            {"name": "b", "type": "x.y.Money"},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["P", "Q"]}},
        ],
    }
    named: dict[str, Any] = {}
    fastavro.parse_schema(json.loads(json.dumps(other)), named)
    bare = json.loads(json.dumps(other).replace("logicalType", "was"))
    names: dict[str, Any] = {}
    fastavro.parse_schema(bare, names)
    body = io.BytesIO()
    money = {"amount": b"\xff\xff\x9c", "day": 19000}
    fastavro.schemaless_writer(body, fastavro.parse_schema(main, names), {"a": None, "b": money, "e": "Q"})
    found = AvroReader(WriterSchema(json.dumps(main), (json.dumps(other),))).value(body.getvalue())
    assert found["payload"] == {"a": None, "b": {"amount": "//+c", "day": 19000}, "e": "Q"}
    optional, needed, enum = found["schema"]["fields"]
    assert (optional["optional"], needed["optional"], needed["name"]) == (True, False, "x.y.Money")
    amount, day = needed["fields"]
    assert (amount["name"], amount["parameters"]["scale"]) == (DECIMAL, "1")
    assert day["name"] == "org.apache.kafka.connect.data.Date"
    assert enum["parameters"]["io.confluent.connect.avro.Enum.Q"] == "Q"


R: dict[str, Any] = {"type": "record", "name": "R"}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not an Avro schema"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "nope"}]}', "UnknownType"),
        (
            json.dumps({**R, "fields": [{"name": "x", "type": ["null", "int", "string"]}]}),
            "field x is a union of null, int, string",
        ),
        (json.dumps({**R, "fields": [{"name": "x", "type": ["int"]}]}), "field x is a union of int"),
        (json.dumps({**R, "fields": [{"name": "x", "type": "null"}]}), "field x is of type null"),
        (
            json.dumps({**R, "fields": [{"name": "x", "type": ["null", "R"]}]}),
            r"field x is a record that contains itself \(R\)",
        ),
    ],
)
def test_a_schema_that_is_not_one_of_kafka_connect_is_refused(schema: str, said: str) -> None:
    with pytest.raises(AvroError, match=said):
        AvroReader(WriterSchema(schema))


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (lambda body: body[:-1], "Expected"),
        (lambda body: body + b"\0", "1 bytes are left"),
        (lambda _body: b"", "it is cut off"),
        (lambda body: body[:2] + b"\xff" + body[3:], "utf-8"),
        (lambda body: b"\x04" + body[1:], "list index|of range|cut off"),
    ],
)
def test_a_value_that_was_not_written_with_its_schema_is_refused(damaged: Any, said: str) -> None:
    schema = {**R, "fields": [{"name": "x", "type": ["null", "string"]}]}
    message = framed(7, schema, {"x": "hello"})
    assert schema_number(message) == 7
    assert read(message, {7: WriterSchema(json.dumps(schema))})["payload"] == {"x": "hello"}
    broken = message[:5] + damaged(message[5:])
    with pytest.raises(AvroError, match=f"contains the id of schema 7, but it was not written.*({said})"):
        read(broken, {7: WriterSchema(json.dumps(schema))})


def test_texts_are_parsed_as_ever() -> None:
    """Each with its own schema; a topic may have messages of both kinds."""
    parser = AvroMessageParser({})
    assert parser.parsed('{"a": 1}') == MessageParser().parsed('{"a": 1}')
    with pytest.raises(ValueError, match="Expecting value"):
        parser.parsed("@")


def test_maps_with_two_entries_of_one_key_are_refused() -> None:
    connect = {
        "type": "map",
        "keys": {"type": "string", "optional": True},
        "values": {"type": "int32"},
        "field": "x",
    }
    entry = {"type": "record", "name": "io.confluent.connect.avro.MapEntry"}
    fields = [{"name": "key", "type": ["null", "string"]}, {"name": "value", "type": "int"}]
    schema = {**R, "fields": [{"name": "x", "type": {"type": "array", "items": {**entry, "fields": fields}}}]}
    schemas = {1: WriterSchema(json.dumps(schema))}
    entries = [{"key": "a", "value": 1}, {"key": "b", "value": 2}]
    found = read(framed(1, schema, {"x": entries}), schemas)
    assert found["payload"] == {"x": {"a": 1, "b": 2}}
    assert found["schema"]["fields"] == [_full(connect)]
    with pytest.raises(AvroError, match="duplicate key in map"):
        read(framed(1, schema, {"x": entries * 2}), schemas)


def test_the_tests_writer_gives_what_it_was_given() -> None:
    """The value behind the schema, not one of Avro's logical types."""
    connect = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}
    assert avro_schema(connect)["logicalType"] == "decimal"
    assert avro_value(connect, "AAE=") == b"\0\1"


def test_what_debezium_wrote_in_avro_is_what_it_wrote_in_json() -> None:
    """Keys and values of all messages of a real connector, with their schemas but for defaults."""
    schemas = Schemas()
    avro, in_json = AvroMessageParser(schemas), MessageParser()
    count = 0
    for message in recorded_messages("postgres"):
        for part in (message.key, message.value):
            if part is None:
                continue
            expected = in_json.parsed(part.json)
            found = avro.parsed(line_part(part.in_avro(schemas.register)).decode())
            assert text_of(found["payload"]) == text_of(expected["payload"])
            assert text_of(found["schema"]) == text_of(_without_defaults(expected["schema"]))
            count += 1
    assert count == 81
    assert len(schemas) == 9


def _without_defaults(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_defaults(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    mark = {"has_default": True} if schema.get("default") is not None else {}
    kept = {name: _without_defaults(each) for name, each in schema.items() if name not in ("default", "doc")}
    return kept | mark
