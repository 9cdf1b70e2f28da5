"""Maxwell's daemon: a message for each row, in the order of the log.

Source: Maxwell's documentation ("Data Format", "Configuration") and its classes RowMap and ColumnDef, with
``output_binlog_position``, ``output_commit_info``, ``output_xoffset`` and ``output_primary_key_columns``. The
last row of a transaction has ``commit`` and no ``xoffset``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from tests.cdc_writers.history import (
    Digits,
    Row,
    RowsEvent,
    Table,
    Transaction,
    Value,
    digits,
    fraction,
    present,
)
from tests.cdc_writers.json_text import base64_text, json_text


def write_messages(path: Path, transactions: Sequence[Transaction]) -> None:
    """Write the messages to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json_text(message)}\n" for each in transactions for message in _messages(each)]
    path.write_text("".join(lines), encoding="utf-8")


def _messages(transaction: Transaction) -> Iterator[Mapping[str, Any]]:
    images = [(event, *image) for event in transaction.events for image in event.images]
    for offset, (event, before, after) in enumerate(images):
        is_last = offset == len(images) - 1
        yield _message(event, before, after, transaction) | (
            {"commit": True} if is_last else {"xoffset": offset}
        )


def _message(
    event: RowsEvent, before: Row | None, after: Row | None, transaction: Transaction
) -> dict[str, Any]:
    table = event.table
    data = _values(table, present(before, after))
    message = {
        "database": table.database,
        "table": table.name,
        "type": event.operation,
        "ts": int(transaction.committed.timestamp()),
        "xid": transaction.number,
        "position": f"binlog.{event.file:06}:{event.end}",
        "primary_key_columns": list(table.key),
        "data": data,
    }
    if event.operation == "update":
        assert before is not None
        old = _values(table, before)
        message["old"] = {name: value for name, value in old.items() if data[name] != value}
    return message


def _values(table: Table, row: Row) -> Mapping[str, Any]:
    return {name: _value(row[name], kind) for name, kind in table.columns.items()}


def _value(value: Value, kind: str) -> Any:
    match value:
        case bytes():
            return base64_text(value)
        case float():
            return Digits(digits(value, kind))
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}" + fraction(value, kind)
        case date():
            return value.isoformat()
    return value
