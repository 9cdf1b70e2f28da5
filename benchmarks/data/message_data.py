"""Logs of Debezium, Maxwell and Canal for benchmarks: the same operations in each format.

The operations are on ``shop.orders``. The messages are compact, as Kafka's converter, Maxwell and Canal
write them, with the fields that these have by default, and in UTF-8.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

TABLE = "shop.orders"
COLUMNS = (
    ("id", "bigint"),
    ("customer", "string"),
    ("total", "decimal(9,2)"),
    ("quantity", "int"),
    ("weight", "double"),
    ("placed", "timestamp"),
    ("note", "string"),
    ("day", "date"),
)
"""Of the table that follows."""

DEBEZIUM, DEBEZIUM_SCHEMA, MAXWELL, CANAL = "debezium", "debezium with schema", "maxwell", "canal"

_SEED = 20_261_125
_PLACED = datetime(2024, 2, 29, 6, 30)
_DAY = date(2024, 2, 29)
_EPOCH = datetime(1970, 1, 1)
_NOTES = (
    None,
    "",
    "an ordinary note of some length, without anything special",
    'says "now"',
    "für später – 😀",
)
_DELETES_IN_TEN = 1


@dataclass(frozen=True)
class Operation:
    """An operation on a row: ``c``, ``u`` or ``d``, its number in the log, and the row before and after."""

    code: str
    number: int
    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Row:
    """A row: its key, and a version from which all values follow."""

    id: int
    version: int

    @property
    def customer(self) -> str:
        return f"customer {self.id % 5000:05}"

    @property
    def cents(self) -> int:
        return (self.id * 7919 + self.version * 104_729) % 900_000_000

    @property
    def quantity(self) -> int:
        return self.version % 100

    @property
    def weight(self) -> float:
        return (self.cents % 100_000) / 1000

    @property
    def placed(self) -> datetime:
        return _PLACED + timedelta(seconds=self.version)

    @property
    def note(self) -> str | None:
        return _NOTES[(self.id + self.version) % len(_NOTES)]

    @property
    def day(self) -> date:
        return _DAY + timedelta(days=self.id % 30)


@dataclass(frozen=True)
class MessageLogs:
    """Logs of ``operations`` operations on about ``keys`` keys in ``files`` files each, below ``folder``."""

    operations: int
    keys: int
    files: int
    folder: Path

    def write(self, kind: str) -> Path:
        """Write the log of a format, one of FORMATS; returns its folder."""
        folder = self.folder / kind.replace(" ", "-")
        folder.mkdir(parents=True)
        write = FORMATS[kind]
        each = -(-self.operations // self.files)
        operations = self._operations()
        for number in range(self.files):
            with (folder / f"log-{number + 1}.json").open("w", encoding="utf-8") as file:
                file.writelines(
                    write(next(operations)) + "\n" for _ in range(min(each, self._left(number, each)))
                )
        return folder

    def _left(self, number: int, each: int) -> int:
        return self.operations - number * each

    def _operations(self) -> Iterator[Operation]:
        """Inserts of new keys, updates of those that are there, and deletes of some of these."""
        rng = np.random.default_rng([_SEED, self.operations, self.keys])
        picked = rng.integers(0, self.keys, self.operations).tolist()
        deletes = (rng.integers(0, 10, self.operations) < _DELETES_IN_TEN).tolist()
        there: dict[int, Row] = {}
        for number, (key, is_delete) in enumerate(zip(picked, deletes, strict=True)):
            before = there.pop(key, None)
            after = None if is_delete and before is not None else Row(key, number)
            if after is not None:
                there[key] = after
            code = "c" if before is None else "u" if after is not None else "d"
            yield Operation(code, number, before, after)


def _debezium(operation: Operation) -> str:
    before, after = (
        None if row is None else _debezium_row(row) for row in (operation.before, operation.after)
    )
    source = {
        "version": "3.0.0.Final",
        "connector": "mysql",
        "name": "erp",
        "ts_ms": 1_709_187_000_000 + operation.number,
        "snapshot": "false",
        "db": "shop",
        "sequence": None,
        "ts_us": 1_709_187_000_000_000 + operation.number,
        "ts_ns": 1_709_187_000_000_000_000 + operation.number,
        "table": "orders",
        "server_id": 223344,
        "gtid": None,
        "file": "mysql-bin.000003",
        "pos": 1000 + 4 * operation.number,
        "row": 0,
        "thread": 7,
        "query": None,
    }
    payload = {
        "before": before,
        "after": after,
        "source": source,
        "transaction": None,
        "op": operation.code,
        "ts_ms": 1_709_187_000_523 + operation.number,
        "ts_us": 1_709_187_000_523_000 + operation.number,
        "ts_ns": 1_709_187_000_523_000_000 + operation.number,
    }
    return _compact(payload)


def _debezium_row(row: Row) -> dict[str, Any]:
    unscaled = row.cents.to_bytes(row.cents.bit_length() // 8 + 1, "big", signed=True)
    return {
        "id": row.id,
        "customer": row.customer,
        "total": base64.b64encode(unscaled).decode(),
        "quantity": row.quantity,
        "weight": row.weight,
        "placed": (row.placed - _EPOCH) // timedelta(microseconds=1),
        "note": row.note,
        "day": (row.day - _EPOCH.date()).days,
    }


def _debezium_with_schema(operation: Operation) -> str:
    """Key and value with their schemas, between them a tab."""
    row = operation.after or operation.before
    assert row is not None
    key = f'{{"schema":{_KEY_SCHEMA},"payload":{{"id":{row.id}}}}}'
    return f'{key}\t{{"schema":{_SCHEMA},"payload":{_debezium(operation)}}}'


def _maxwell(operation: Operation) -> str:
    row = operation.after or operation.before
    assert row is not None
    message: dict[str, Any] = {
        "database": "shop",
        "table": "orders",
        "type": {"c": "insert", "u": "update", "d": "delete"}[operation.code],
        "ts": 1_709_187_000,
        "xid": 23_396 + operation.number,
        "commit": True,
        "position": f"mysql-bin.000003:{1000 + 4 * operation.number}",
        "primary_key_columns": ["id"],
        "data": _text_row(row, as_texts=False),
    }
    if operation.code == "u" and operation.before is not None:
        old, new = _text_row(operation.before, as_texts=False), message["data"]
        message["old"] = {name: value for name, value in old.items() if new[name] != value}
    return _compact(message)


def _canal(operation: Operation) -> str:
    row = operation.after or operation.before
    assert row is not None
    new, old = _text_row(row, as_texts=True), None
    if operation.code == "u" and operation.before is not None:
        before = _text_row(operation.before, as_texts=True)
        old = [{name: value for name, value in before.items() if new[name] != value}]
    message = {
        "data": [new],
        "database": "shop",
        "es": 1_709_187_000_000 + operation.number,
        "gtid": "",
        "id": operation.number // 10,
        "isDdl": False,
        "mysqlType": {"id": "bigint", "customer": "varchar(40)", "total": "decimal(9,2)", "day": "date"},
        "old": old,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": -5, "customer": 12, "total": 3, "day": 91},
        "table": "orders",
        "ts": 1_709_187_000_798 + operation.number,
        "type": {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[operation.code],
    }
    return _compact(message)


def _text_row(row: Row, *, as_texts: bool) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": row.id,
        "customer": row.customer,
        "total": row.cents / 100,
        "quantity": row.quantity,
        "weight": row.weight,
        "placed": str(row.placed),
        "note": row.note,
        "day": str(row.day),
    }
    if as_texts:
        return {name: None if value is None else str(value) for name, value in values.items()}
    return values


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _field(name: str, kind: str, semantic: str | None = None, **more: Any) -> dict[str, Any]:
    given = {"type": kind, "optional": name != "id"}
    if semantic is not None:
        given |= {"name": semantic, "version": 1}
    return {**given, **more, "field": name}


_ROW_FIELDS = [
    _field("id", "int64"),
    _field("customer", "string"),
    _field(
        "total",
        "bytes",
        "org.apache.kafka.connect.data.Decimal",
        parameters={"scale": "2", "connect.decimal.precision": "9"},
    ),
    _field("quantity", "int32"),
    _field("weight", "double"),
    _field("placed", "int64", "io.debezium.time.MicroTimestamp"),
    _field("note", "string"),
    _field("day", "int32", "io.debezium.time.Date"),
]
_SOURCE_FIELDS = [
    _field(name, kind)
    for name, kind in (
        *((name, "string") for name in ("version", "connector", "name", "snapshot", "db", "sequence")),
        *((name, "int64") for name in ("ts_ms", "ts_us", "ts_ns", "server_id", "pos", "thread")),
        *((name, "string") for name in ("table", "gtid", "file", "query")),
        ("row", "int32"),
    )
]


def _struct(name: str, field: str | None, fields: list[dict[str, Any]]) -> dict[str, Any]:
    found = {"type": "struct", "fields": fields, "optional": True, "name": f"erp.{name}"}
    return found if field is None else {**found, "field": field}


_SCHEMA = _compact(
    _struct(
        "shop.orders.Envelope",
        None,
        [
            _struct("shop.orders.Value", "before", _ROW_FIELDS),
            _struct("shop.orders.Value", "after", _ROW_FIELDS),
            _struct("Source", "source", _SOURCE_FIELDS),
            _struct("Block", "transaction", [_field("total_order", "int64")]),
            *(_field(name, "int64") for name in ("ts_ms", "ts_us", "ts_ns")),
            _field("op", "string"),
        ],
    )
)
_KEY_SCHEMA = _compact(_struct("shop.orders.Key", None, [_field("id", "int64")]))

FORMATS: dict[str, Callable[[Operation], str]] = {
    DEBEZIUM: _debezium,
    DEBEZIUM_SCHEMA: _debezium_with_schema,
    MAXWELL: _maxwell,
    CANAL: _canal,
}
