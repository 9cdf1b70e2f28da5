"""Debezium's MySQL connector through Kafka Connect's JSON converter, keys and schemas included.

Source: Debezium's documentation of the connector ("Data change events", "Data type mappings"), with
``decimal.handling.mode=precise``, ``bigint.unsigned.handling.mode=precise``, ``binary.handling.mode=bytes``
and ``time.precision.mode=adaptive_time_microseconds``. A change of a key is a delete, a tombstone and a
create. Each table has a topic, whose partitions are chosen by the key; a file holds one partition.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

from tests.cdc_writers.history import Digits, Row, RowsEvent, Table, Transaction, Value, digits, present
from tests.cdc_writers.json_text import base64_text, json_text

SERVER = "erp"
"""``topic.prefix``."""

PARTITIONS = 2

_EPOCH = datetime(1970, 1, 1)
_INTEGERS = {
    "TINYINT": "int16",
    "TINYINT UNSIGNED": "int16",
    "BOOLEAN": "int16",
    "SMALLINT": "int16",
    "MEDIUMINT": "int32",
    "MEDIUMINT UNSIGNED ZEROFILL": "int32",
    "INT": "int32",
    "INT UNSIGNED": "int64",
    "BIGINT": "int64",
}
_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "BIT(1)": {"type": "boolean"},
    "YEAR": {"type": "int32", "name": "io.debezium.time.Year"},
    "FLOAT": {"type": "float"},
    "DOUBLE": {"type": "double"},
    "DATE": {"type": "int32", "name": "io.debezium.time.Date"},
    "DATETIME": {"type": "int64", "name": "io.debezium.time.Timestamp"},
    "DATETIME(6)": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
}


def write_topics(folder: Path, number: int, transactions: Sequence[Transaction]) -> None:
    """Write what was added to each partition as a file of ``key<tab>value`` lines.

    Args:
        folder: gets a folder for each topic.
        number: of this call; a part of the files' names.
        transactions: in the order of their commits.
    """
    lines: dict[Path, list[str]] = defaultdict(list)
    for topic, partition, key, message in topic_messages(transactions):
        lines[folder / topic / f"{partition}-{number}.txt"].append(f"{key}\t{message or 'null'}\n")
    for path, text in lines.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(text), encoding="utf-8")


def topic_of(table: Table) -> str:
    """The topic of a table."""
    return f"{SERVER}.{table.full_name}"


def topic_messages(transactions: Sequence[Transaction]) -> Iterator[tuple[str, int, str, str | None]]:
    """Topic, partition, key and message; None for a tombstone."""
    for transaction in transactions:
        for event in transaction.events:
            for key, message in _messages(event, transaction):
                yield topic_of(event.table), zlib.crc32(key.encode()) % PARTITIONS, key, message


def _messages(event: RowsEvent, transaction: Transaction) -> Iterator[tuple[str, str | None]]:
    table = event.table
    for number, (before, after) in enumerate(event.images):
        source = _source(event, number, transaction)
        is_moved = None not in (before, after) and table.key_of(before) != table.key_of(after)  # type: ignore[arg-type]
        halves = [(before, None), (None, after)] if is_moved else [(before, after)]
        for old, new in halves:
            key = _key(table, present(old, new))
            yield key, _envelope(table, old, new, source)
            if new is None:
                yield key, None


def _envelope(table: Table, before: Row | None, after: Row | None, source: Mapping[str, Any]) -> str:
    payload = {
        "before": before and _values(table, before),
        "after": after and _values(table, after),
        "source": source,
        "transaction": None,
        "op": "c" if before is None else "d" if after is None else "u",
        "ts_ms": 1465581029523,
    }
    return json_text({"schema": _envelope_schema(table), "payload": payload})


def _source(event: RowsEvent, row: int, transaction: Transaction) -> Mapping[str, Any]:
    return {
        "version": "3.0.0.Final",
        "connector": "mysql",
        "name": SERVER,
        "ts_ms": _micros(transaction.committed) // 1000,
        "snapshot": "false",
        "db": event.table.database,
        "sequence": None,
        "table": event.table.name,
        "server_id": 1,
        "gtid": None,
        "file": f"binlog.{event.file:06}",
        "pos": event.end,
        "row": row,
        "thread": 7,
        "query": None,
    }


def _key(table: Table, row: Row) -> str:
    fields = [{**_type(table.columns[name]), "optional": False, "field": name} for name in table.key]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": f"{_topic(table)}.Key"}
    payload = {name: _value(row[name], table.columns[name]) for name in table.key}
    return json_text({"schema": schema, "payload": payload})


def _topic(table: Table) -> str:
    return f"{SERVER}.{table.full_name}"


def _envelope_schema(table: Table) -> Mapping[str, Any]:
    fields = [
        {**_type(kind), "optional": name not in table.key, "field": name}
        for name, kind in table.columns.items()
    ]
    row = {"type": "struct", "fields": fields, "optional": True, "name": f"{_topic(table)}.Value"}
    return {
        "type": "struct",
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {"type": "struct", "fields": [], "name": "io.debezium.connector.mysql.Source", "field": "source"},
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
        "optional": False,
        "name": f"{_topic(table)}.Envelope",
    }


def _values(table: Table, row: Row) -> Mapping[str, Any]:
    return {name: _value(row[name], kind) for name, kind in table.columns.items()}


def _type(kind: str) -> Mapping[str, Any]:
    """Kafka's type of a column, with Debezium's semantic type."""
    if kind in _INTEGERS:
        return {"type": _INTEGERS[kind]}
    if kind in _OTHERS:
        return _OTHERS[kind]
    if kind.startswith("TIMESTAMP"):
        return {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}
    if kind.startswith("BIT("):
        return {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": kind[4:-1]}}
    if kind.startswith(("VARBINARY", "BLOB")):
        return {"type": "bytes"}
    scale = _scale(kind)
    if scale is None:
        return {"type": "string"}
    return {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": str(scale)},
    }


def _scale(kind: str) -> int | None:
    """Digits after the point of what is written as Kafka Connect's Decimal."""
    if kind == "BIGINT UNSIGNED":
        return 0
    found = re.fullmatch(r"DECIMAL\(\d+,(\d+)\)", kind)
    return int(found[1]) if found else None


def _value(value: Value, kind: str) -> Any:
    scale = _scale(kind)
    match value:
        case None:
            return None
        case int() | Decimal() if scale is not None:
            return _unscaled(Decimal(value), scale)
        case int() if kind == "BIT(1)":
            return bool(value)
        case int() if kind.startswith("BIT("):
            return base64_text(value.to_bytes((int(kind[4:-1]) + 7) // 8, "little"))
        case float():
            return Digits(digits(value, kind))
        case bytes():
            return base64_text(value)
        case datetime() if kind.startswith("TIMESTAMP"):
            return value.isoformat() + "Z"
        case datetime():
            return _micros(value) if kind == "DATETIME(6)" else _micros(value) // 1000
        case date():
            return (value - _EPOCH.date()).days
    return value


def _unscaled(number: Decimal, scale: int) -> str:
    whole = int(number.scaleb(scale, Context(prec=80)))
    return base64_text(whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True))


def _micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
