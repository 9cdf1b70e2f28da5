"""Debezium's messages: what they are, and what is none."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mutation_api.cdc.messages.debezium import DebeziumFormat, DebeziumSource
from mutation_api.cdc.messages.debezium_values import DebeziumValues
from mutation_api.cdc.messages.events import Message, PositionSource
from mutation_api.cdc.source import SourceTable
from mutation_api.errors import InputFormatError, RecordValueError
from tests.support.json_messages import (
    Change,
    debezium,
    debezium_schema,
    events_of,
    in_order,
    small_table,
    unscaled,
    write_log,
)

SMALL = small_table(("id", "bigint"), ("note", "string"))
MYSQL = {
    "connector": "mysql",
    "name": "erp",
    "snapshot": "false",
    "db": "shop",
    "table": "orders",
    "file": "bin.000003",
    "pos": 484,
    "row": 0,
}
POSTGRES = {
    "connector": "postgresql",
    "name": "erp",
    "snapshot": "false",
    "sequence": '["24023119","24023128"]',
    "db": "erp",
    "schema": "public",
    "table": "orders",
    "lsn": 24023128,
}
ROW = {"id": 1, "note": "a"}


def envelope(
    op: str | None, before: Any = None, after: Any = None, source: Any = MYSQL, **others: Any
) -> str:
    return json.dumps({"before": before, "after": after, "source": source, "op": op, **others})


def ddl(kind: str, *tables: str, **others: Any) -> str:
    changes = [{"type": kind, "id": f'"shop"."{table}"', "table": {}} for table in tables]
    source = {**MYSQL, **others}
    return json.dumps({"source": source, "databaseName": "shop", "ddl": "alter x", "tableChanges": changes})


EVENTS: list[tuple[str, tuple[Any, ...]]] = [
    (envelope("c", after=ROW), ("row", "shop.orders", "insert", (3, 484, 0))),
    (
        envelope("r", after=ROW, source={**MYSQL, "snapshot": "last"}),
        ("row", "shop.orders", "insert", (3, 484, 0)),
    ),
    (envelope("u", ROW, ROW, POSTGRES), ("row", "public.orders", "update", (24023119, 24023128, 0))),
    (
        envelope("d", ROW, None, {**POSTGRES, "sequence": '[null,"24023128"]'}),
        ("row", "public.orders", "delete", (0, 24023128, 0)),
    ),
    (
        envelope("r", after=ROW, source={**POSTGRES, "snapshot": "incremental"}),
        ("row", "public.orders", "insert", (24023119, 24023128, 0)),
    ),
    (
        envelope("r", after=ROW, source={**POSTGRES, "snapshot": "true"}),
        ("row", "public.orders", "insert", (0, 0, 0)),
    ),
    (
        envelope("c", after=ROW, source={"connector": "db2", "db": "a", "table": "b"}),
        ("row", "a.b", "insert", None),
    ),
    (envelope("c", after=ROW, source={**MYSQL, "pos": 0}), ("row", "shop.orders", "insert", None)),
    (envelope("t"), ("truncate", "shop.orders", None, (3, 484, 0))),
    (
        envelope("m", source=POSTGRES, message={"prefix": "foo", "content": "Ymfy"}),
        ("other", "public.orders", None, None),
    ),
    ('{"status":"BEGIN","id":"571:53195829","ts_ms":1,"event_count":null}', ("other", None, None, None)),
    ('{"schema":{},"payload":{"status":"END","id":"571:5","event_count":2}}', ("other", None, None, None)),
    ('{"ts_ms":1465581029523,"ts_us":1465581029523000}', ("other", None, None, None)),
    ('{"schema":null,"payload":null}', ("other", None, None, None)),
    (ddl("ALTER", "orders"), ("schema change", "shop.orders", None, (3, 484, 0))),
    (ddl("DROP", "orders", "b"), ("schema change", "shop.*", None, (3, 484, 0))),
    (ddl("CREATE", "orders"), ("other", "shop.orders", None, None)),
    (ddl("DROP", "orders", snapshot="true"), ("other", "shop.orders", None, None)),
]

DAMAGED = [
    (envelope("x", ROW, ROW), "op", "unknown operation x"),
    (envelope("c", ROW, None), "after", "has no row"),
    (envelope("u", ROW, "text"), "after", "has no row"),
    (envelope("c", after=ROW, source=None), "source", "does not name database and table"),
    ('{"id":1,"note":"a"}', "op", "fields id, note. If the messages were flattened"),
    ("1", "op", "not a Debezium envelope"),
    ('{"id":"a","specversion":"1.0","type":"io.debezium","data":{}}', "specversion", "this is a CloudEvent"),
]


def test_what_messages_are(tmp_path: Path) -> None:
    """Operations, and messages that change no row; positions, and messages without one; damaged messages."""
    lines = [line for line, _ in EVENTS] + [line for line, *_ in DAMAGED]
    found = events_of(write_log(tmp_path, lines), DebeziumFormat(), PositionSource.AUTO)
    for number, (line, expected) in enumerate(EVENTS, start=1):
        event = found[number]
        log_position = event.log_position if event.kind != "other" else None
        assert (event.kind, event.table, event.op, log_position) == expected, line
        assert event.problem is None, line
    for number, (line, field, text) in enumerate(DAMAGED, start=len(EVENTS) + 1):
        problem = found[number].problem
        assert problem is not None
        assert (problem.error, problem.field) == (InputFormatError, field), line
        assert text in problem.text


def read(folder: Path, *lines: str) -> list[Any]:
    log = DebeziumSource(write_log(folder, lines), "test")
    (table,) = log.read_local([SourceTable("public.orders", SMALL, ("id",))], {}).tables
    return in_order(table)


def test_keys_of_deletes_and_tombstones(tmp_path: Path) -> None:
    """A delete without its row takes the message's key; tombstones and blank lines are nothing."""
    delete = envelope("d", None, None, {**POSTGRES, "lsn": 24023129})
    partial = envelope("d", {"id": 2, "note": None}, None, {**POSTGRES, "lsn": 24023130})
    wrapped = {"topic": "t", "partition": 0, "offset": 3, "key": '{"id":3}', "payload": delete}
    lines = [
        json.dumps({"key": {"id": 1}, "value": json.loads(envelope("c", None, ROW, POSTGRES))}),
        f'{{"id":1}}\t{delete}',
        '{"id":1}\tnull',
        "",
        "null",
        partial,
        json.dumps(wrapped),
    ]
    expected = [("insert", 1, "a"), ("delete", 1, None), ("delete", 3, None), ("delete", 2, None)]
    assert read(tmp_path, *lines) == expected


@pytest.mark.parametrize(
    ("line", "error", "text"),
    [
        (
            envelope("d", None, None, POSTGRES),
            InputFormatError,
            "line 1, field key: the message has neither the row from before the delete nor a key",
        ),
        (
            envelope("u", None, {"id": 1, "note": "__debezium_unavailable_value"}, POSTGRES),
            RecordValueError,
            "line 1, field note: .*REPLICA IDENTITY FULL",
        ),
        (
            envelope("c", None, {"id": "AQ==", "note": None}, POSTGRES),
            RecordValueError,
            'field id: must be a JSON number, to be read as number, got "AQ=="',
        ),
        (
            envelope("t", source=POSTGRES),
            InputFormatError,
            "truncate of public.orders: t; choose to apply truncates",
        ),
    ],
)
def test_refused(tmp_path: Path, line: str, error: type[Exception], text: str) -> None:
    """No key, a value that is not there, text for a number, a truncate: nothing is guessed."""
    with pytest.raises(error, match=text):
        read(tmp_path, line)


def test_schemas_that_change_within_a_log(tmp_path: Path) -> None:
    """Each message's own schema tells how its values are written."""
    table = small_table(
        ("id", "bigint"), ("price", "decimal(10,4)"), ("placed", "timestamp"), ("day", "date")
    )
    row = {"id": 1, "price": Decimal("1.5"), "placed": datetime(2024, 1, 1), "day": date(2024, 1, 1)}
    first = debezium(Change("insert", None, row, 1, 4)).partition("\t")[2]
    schema = debezium_schema(list(row))
    for rows in schema["fields"][:2]:
        rows["fields"][1]["parameters"] = {"scale": "2"}
        rows["fields"][2] |= {"name": "io.debezium.time.ZonedTimestamp", "type": "string"}
    payload = json.loads(first)["payload"]
    payload["source"] |= {"pos": 5}
    payload["after"] |= {"price": unscaled(Decimal("2.25"), 2), "placed": "2024-01-02T03:04:05Z", "id": 2}
    second = json.dumps({"schema": schema, "payload": payload})
    log = DebeziumSource(write_log(tmp_path, [first, second]), "test")
    (found,) = log.read_local([SourceTable("shop.orders", table, ("id",))], {}).tables
    assert in_order(found) == [
        ("insert", *row.values()),
        ("insert", 2, Decimal("2.25"), datetime(2024, 1, 2, 3, 4, 5), date(2024, 1, 1)),
    ]


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


@pytest.mark.parametrize(
    ("hive_type", "has_schema"), [("decimal(38,2)", True), ("decimal(38,2)", False), ("string", True)]
)
def test_decimals_in_numeric_format(tmp_path: Path, hive_type: str, *, has_schema: bool) -> None:
    """decimal.format=NUMERIC: numbers of JSON, all digits; beside others in base64 if there is a schema."""
    numbers = ["12.50", "1E-1", "123456789012345678901234567890.25", "-0.00", "null"]
    exact = ["12.50", "0.10", "123456789012345678901234567890.25", "0.00", None]
    fields = [{"type": "int64", "field": "id"}, {**DECIMAL, "optional": True, "field": "price"}]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
    lines = []
    for number, text in enumerate([*numbers, *([f'"{unscaled(Decimal("7.25"), 2)}"'] if has_schema else [])]):
        row = f'{{"id":{number},"price":{text}}}'
        payload = envelope("c", None, {}, {**POSTGRES, "lsn": number}).replace(
            '"after": {}', f'"after": {row}'
        )
        lines.append(f'{{"schema":{json.dumps(schema)},"payload":{payload}}}' if has_schema else payload)
    is_text = hive_type == "string"
    values = DebeziumValues(decimals="numeric")
    table = small_table(("id", "bigint"), ("price", hive_type))
    log = DebeziumSource(write_log(tmp_path, lines), "test", values=values)
    (found,) = log.read_local([SourceTable("public.orders", table, ("id",))], {}).tables
    expected = [*exact, "7.25"] if has_schema else exact
    assert [row[2] for row in in_order(found)] == [
        each if is_text or each is None else Decimal(each) for each in expected
    ]


@pytest.mark.parametrize(
    ("database", "table"),
    [
        (1, "1.orders"),
        (1.0, "1.orders"),
        (True, "true.orders"),
        ({"a": 1}, '{"a":1}.orders'),
        ("1", "1.orders"),
    ],
)
def test_names_that_are_not_strings_are_named_as_they_are_written(database: object, table: str) -> None:
    """They are followed by no table; equal values of several kinds are distinguished."""
    source = {"connector": "mysql", "name": "erp", "db": database, "table": "orders"}
    message = Message(None, {"op": "c", "after": {"id": 1}, "source": source})
    assert DebeziumFormat().event(message, PositionSource.AUTO).table == table
