"""How values of Debezium's messages are to be read: by schemas, or as the user says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mutation_api.cdc.messages.debezium_values import DebeziumValues
from mutation_api.cdc.messages.json_values import Reader
from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.hive_type import parse_hive_type


def reader(
    hive_type: str,
    values: DebeziumValues | None = None,
    semantic: str | None = None,
    kafka: str | None = None,
) -> Reader:
    field = {"field": "c", "type": kafka, "name": semantic, "parameters": {"scale": "3"}}
    schema = None if kafka is None else json.dumps({"type": "struct", "fields": [field]})
    types = {"c": parse_hive_type(hive_type)}
    return (values or DebeziumValues()).readers("s.t", types, schema)["c"]


@pytest.mark.parametrize(
    ("kafka", "semantic", "hive_type", "expected"),
    [
        ("int32", "io.debezium.time.Date", "date", Reader("days")),
        ("int64", "io.debezium.time.Timestamp", "timestamp", Reader("millis")),
        ("int64", "io.debezium.time.MicroTimestamp", "timestamp", Reader("micros")),
        ("int64", "io.debezium.time.NanoTimestamp", "timestamp", Reader("nanos")),
        ("int64", "org.apache.kafka.connect.data.Timestamp", "timestamp", Reader("millis")),
        ("string", "io.debezium.time.ZonedTimestamp", "timestamp", Reader("utc")),
        ("int64", "io.debezium.time.MicroTime", "string", Reader("time-micros")),
        ("int32", "io.debezium.time.Year", "int", Reader("flag")),
        ("bytes", "org.apache.kafka.connect.data.Decimal", "decimal(10,3)", Reader("decimal-bytes", 3)),
        ("struct", "io.debezium.data.VariableScaleDecimal", "decimal(10,3)", Reader("decimal-struct")),
        ("bytes", "io.debezium.data.Bits", "bigint", Reader("bits")),
        ("string", "io.debezium.data.Json", "string", Reader("text")),
        ("bytes", None, "binary", Reader("base64")),
        ("boolean", None, "tinyint", Reader("flag")),
        ("string", None, "decimal(10,3)", Reader("text")),
        ("struct", "io.debezium.data.geometry.Geometry", "string", Reader("text")),
    ],
)
def test_schemas_tell_how_values_are_written(
    kafka: str, semantic: str | None, hive_type: str, expected: Reader
) -> None:
    """Semantic types before Kafka's own."""
    assert reader(hive_type, None, semantic, kafka) == expected


@pytest.mark.parametrize(
    ("values", "hive_type", "expected"),
    [
        (DebeziumValues(), "bigint", Reader("number")),
        (DebeziumValues(), "boolean", Reader("flag")),
        (DebeziumValues(), "date", Reader("days")),
        (DebeziumValues(times="isostring"), "date", Reader("utc")),
        (DebeziumValues(), "timestamp", Reader("utc")),
        (DebeziumValues(times="connect"), "timestamp", Reader("millis")),
        (DebeziumValues(times="microseconds"), "timestamp", Reader("micros")),
        (DebeziumValues(decimals="string"), "decimal(10,3)", Reader("text")),
        (DebeziumValues(binary="bytes"), "binary", Reader("base64")),
        (DebeziumValues(binary="hex"), "binary", Reader("hex")),
        (
            DebeziumValues(column_types={"s.t.c": "org.apache.kafka.connect.data.Decimal(2)"}),
            "decimal(10,3)",
            Reader("decimal-bytes", 2),
        ),
        (DebeziumValues(column_types={"s.t.c": "io.debezium.time.Timestamp"}), "timestamp", Reader("millis")),
        (DebeziumValues(column_types={"s.t.c": "text"}), "decimal(10,3)", Reader("text")),
        (DebeziumValues(decimals="numeric"), "decimal(10,3)", Reader("decimal-number", 3)),
    ],
)
def test_the_user_tells_how_values_are_written(
    values: DebeziumValues, hive_type: str, expected: Reader
) -> None:
    """Without schemas: by the column's type, the connector's modes, and column by column."""
    assert reader(hive_type, values) == expected


@pytest.mark.parametrize(
    ("values", "hive_type", "kafka", "text"),
    [
        (DebeziumValues(), "decimal(10,3)", None, "choose one of precise, string, double, numeric"),
        (DebeziumValues(decimals="precise"), "decimal(10,3)", None, r"Decimal\(SCALE\)"),
        (DebeziumValues(), "binary", None, "choose one of bytes, base64"),
        (DebeziumValues(), "binary", "string", "choose one of bytes, base64"),
        (DebeziumValues(), "decimal(10,3)", "double", "not exact"),
        (DebeziumValues(), "int", "struct", "can only be stored in a string column"),
    ],
)
def test_what_nobody_tells_is_not_guessed(
    values: DebeziumValues, hive_type: str, kafka: str | None, text: str
) -> None:
    """Base64 may look like a number, and hex like base64."""
    with pytest.raises(RecordLayoutError, match=f"table s.t, column c .*{text}"):
        reader(hive_type, values, None, kafka)


@pytest.mark.parametrize(
    "options",
    [{"decimals": "exact"}, {"binary": "raw"}, {"times": "adaptive"}, {"column_types": {"a.b.c": "Odd"}}],
)
def test_options_that_are_none(options: dict[str, Any]) -> None:
    """A wrong word is told at once."""
    with pytest.raises(ConfigurationError):
        DebeziumValues(**options)
