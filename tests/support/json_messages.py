"""Messages of Debezium, Maxwell and Canal, in the form of their documentation, for changes of one table.

The tests' own writers: they share nothing with the readers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

from mutation_api.cdc.messages.events import Event, MessageFormat, PositionSource
from mutation_api.cdc.messages.json_lines import line_number, log_files, log_ranges
from mutation_api.cdc.messages.unwrap import MessageLog
from mutation_api.cdc.source import OPERATION, POSITION, LocalOperations
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import AcidColumn, AcidTable

Row = Mapping[str, Any]

ORDERS = AcidTable(
    "sales",
    "orders",
    "/warehouse/orders",
    (
        AcidColumn("id", "bigint"),
        AcidColumn("note", "string"),
        AcidColumn("price", "decimal(38,4)"),
        AcidColumn("placed", "timestamp"),
        AcidColumn("photo", "binary"),
        AcidColumn("weight", "double"),
    ),
    (AcidColumn("day", "date"),),
    0,
    (),
    AcidVersion.V2_HIVE4,
)
"""Follows ``shop.orders``."""

_KAFKA_TYPES: Mapping[str, Mapping[str, Any]] = {
    "id": {"type": "int64"},
    "note": {"type": "string"},
    "price": {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "4", "connect.decimal.precision": "38"},
    },
    "placed": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "photo": {"type": "bytes"},
    "weight": {"type": "double"},
    "day": {"type": "int32", "name": "io.debezium.time.Date"},
}


@dataclass(frozen=True)
class Change:
    """A change of one row; ``file`` and ``place`` are where it stands in the binlog."""

    operation: str
    before: Row | None
    after: Row | None
    file: int
    place: int
    row: int = 0


def small_table(*columns: tuple[str, str]) -> AcidTable:
    """A table of these columns without partitions."""
    found = tuple(AcidColumn(name, kind) for name, kind in columns)
    return AcidTable("sales", "small", "/warehouse/small", found, (), 0, (), AcidVersion.V2_HIVE4)


def _order(
    identifier: int, note: str | None, price: str = "1.5000", photo: bytes | None = b""
) -> dict[str, Any]:
    return {
        "id": identifier,
        "note": note,
        "price": Decimal(price),
        "placed": datetime(2024, 2, 29, 23, 59, 59, 123456),
        "photo": photo,
        "weight": 0.1,
        "day": date(2024, 2, 29),
    }


FIRST = _order(1, 'tab\t"quotes" \\ é 😀')
HUGE = _order(2**63 - 1, None, "-1234567890123456789012345678901234.5678", bytes(range(256)))
MOVED = {**HUGE, "id": 7}
CHANGES = (
    Change("insert", None, FIRST, 9, 4),
    Change("insert", None, HUGE, 9, 4, 1),
    Change("update", HUGE, MOVED, 10, 4),
    Change("update", FIRST, {**FIRST, "note": "new"}, 10, 120),
    Change("delete", MOVED, None, 1_000_000, 4),
)


def write_log(folder: Path, *files: Sequence[str | bytes]) -> Path:
    """Files of these lines, ``log-1.json`` and so on."""
    folder.mkdir(exist_ok=True)
    for number, lines in enumerate(files, start=1):
        data = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
        (folder / f"log-{number}.json").write_bytes(data)
    return folder


def events_of(folder: Path, message_format: MessageFormat, positions: PositionSource) -> dict[int, Event]:
    """The events of the one file in a folder, by the numbers of their lines."""
    files = log_files([folder])
    log = MessageLog(files, log_ranges(files), message_format, positions)
    found = (each for number in range(len(log.ranges)) for some in log.events(number) for each in some)
    return {line_number(files[0].location, each.place.offset): each.event for each in found}


def in_order(given: LocalOperations) -> list[tuple[Any, ...]]:
    """Operation and values, in the order of the positions."""
    rows = [row for batch in given.operations for row in batch.to_pylist()]
    rows.sort(key=lambda row: tuple(row[POSITION].values()))
    return [(row.pop(OPERATION), *list(row.values())[1:]) for row in rows]


def maxwell(change: Change, **others: Any) -> str:
    """One message."""
    image = change.after if change.operation != "delete" else change.before
    assert image is not None
    message = {
        "database": "shop",
        "table": "orders",
        "type": change.operation,
        "ts": 1477053217,
        "xid": 23396,
        "position": f"master.{change.file:06}:{change.place}",
        "xoffset": change.row,
        "primary_key_columns": ["id"],
        "data": {name: _maxwell_value(value) for name, value in image.items()},
    }
    if change.operation == "update":
        assert change.before is not None
        changed = {name: value for name, value in change.before.items() if image.get(name) != value}
        message["old"] = {name: _maxwell_value(value) for name, value in changed.items()}
    return _exact_json({**message, **others})


def canal(change: Change, **others: Any) -> str:
    """One message of one row."""
    image = change.after if change.operation != "delete" else change.before
    assert image is not None
    old = None
    if change.operation == "update":
        assert change.before is not None
        changed = {name: value for name, value in change.before.items() if image.get(name) != value}
        old = [{name: _canal_value(value) for name, value in changed.items()}]
    message = {
        "data": [{name: _canal_value(value) for name, value in image.items()}],
        "database": "shop",
        "es": 1589373560000,
        "gtid": "",
        "id": 9,
        "isDdl": False,
        "mysqlType": {"id": "bigint"},
        "old": old,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": -5},
        "table": "orders",
        "ts": 1589373560798,
        "type": change.operation.upper(),
    }
    return json.dumps({**message, **others})


def debezium(change: Change, **others: Any) -> str:
    """Key and value with their schemas, between them a tab."""
    before, after = change.before, change.after
    image = after or before
    assert image is not None
    payload = {
        "before": before and {name: _debezium_value(name, value) for name, value in before.items()},
        "after": after and {name: _debezium_value(name, value) for name, value in after.items()},
        "source": {
            "version": "3.0.0.Final",
            "connector": "mysql",
            "name": "erp",
            "ts_ms": 1465581029100,
            "snapshot": "false",
            "db": "shop",
            "sequence": None,
            "table": "orders",
            "server_id": 223344,
            "gtid": None,
            "file": f"mysql-bin.{change.file:06}",
            "pos": change.place,
            "row": change.row,
            "thread": 7,
            "query": None,
        },
        "transaction": None,
        "op": change.operation[0] if change.operation != "insert" else "c",
        "ts_ms": 1465581029523,
    }
    key_schema = {
        "type": "struct",
        "fields": [{"type": "int64", "field": "id"}],
        "name": "erp.shop.orders.Key",
    }
    key = json.dumps({"schema": key_schema, "payload": {"id": (before or image)["id"]}})
    return f"{key}\t{json.dumps({'schema': debezium_schema(list(image)), 'payload': {**payload, **others}})}"


def debezium_schema(columns: Sequence[str]) -> dict[str, Any]:
    """Schema of the envelope of a table of these columns."""
    fields = [{**_KAFKA_TYPES[name], "optional": name != "id", "field": name} for name in columns]
    rows = {"type": "struct", "fields": fields, "optional": True, "name": "erp.shop.orders.Value"}
    return {
        "type": "struct",
        "fields": [
            {**rows, "field": "before"},
            {**rows, "field": "after"},
            {"type": "string", "optional": False, "field": "op"},
        ],
        "optional": False,
        "name": "erp.shop.orders.Envelope",
    }


def unscaled(number: Decimal, scale: int) -> str:
    """A number as Kafka Connect's Decimal."""
    whole = int(number.scaleb(scale, Context(prec=80)))
    return base64.b64encode(whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)).decode()


def _maxwell_value(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")
        case date():
            return value.isoformat()
        case _:
            return value


def _canal_value(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bytes():
            return value.decode("latin-1")
        case _:
            return str(_maxwell_value(value))


def _debezium_value(name: str, value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return unscaled(value, int(_KAFKA_TYPES[name]["parameters"]["scale"]))
        case datetime():
            since = value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        case date():
            return (value - date(1970, 1, 1)).days
        case _:
            return value


def _exact_json(value: Any) -> str:
    """JSON in which decimals are numbers, all their digits."""
    match value:
        case Mapping():
            return "{" + ",".join(f"{json.dumps(k)}:{_exact_json(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(_exact_json(v) for v in value) + "]"
        case Decimal():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False)
