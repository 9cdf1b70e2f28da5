"""Canal's flat messages: one for each event of the log, with an array of rows.

Source: FlatMessage and LogEventConvert of alibaba/canal. All values are texts; bytes are characters of
ISO 8859-1; all messages of a batch have its ``id``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.cdc_writers.history import (
    Row,
    RowsEvent,
    Table,
    Transaction,
    Value,
    batches,
    digits,
    fraction,
    present,
)
from tests.cdc_writers.json_text import json_text

TRANSACTIONS_EACH = 3
"""Transactions in a batch."""


def write_messages(path: Path, transactions: Sequence[Transaction]) -> None:
    """Write the messages to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json_text(_message(event, number, transaction)) + "\n"
        for number, batch in enumerate(batches(transactions, TRANSACTIONS_EACH), start=1)
        for transaction in batch
        for event in transaction.events
    ]
    path.write_text("".join(lines), encoding="utf-8")


def _message(event: RowsEvent, batch: int, transaction: Transaction) -> Mapping[str, Any]:
    table = event.table
    seconds = int(transaction.committed.timestamp())
    return {
        "data": [_values(table, present(*image)) for image in event.images],
        "database": table.database,
        "es": seconds * 1000,
        "gtid": "",
        "id": batch,
        "isDdl": False,
        "mysqlType": {name: kind.lower() for name, kind in table.columns.items()},
        "old": [_old(table, *image) for image in event.images] if event.operation == "update" else None,
        "pkNames": list(table.key),
        "sql": "",
        "table": table.name,
        "ts": seconds * 1000 + 250,
        "type": event.operation.upper(),
    }


def _old(table: Table, before: Row | None, after: Row | None) -> Mapping[str, str | None]:
    assert before is not None
    assert after is not None
    new = _values(table, after)
    return {name: value for name, value in _values(table, before).items() if new[name] != value}


def _values(table: Table, row: Row) -> Mapping[str, str | None]:
    return {name: _text(row[name], kind) for name, kind in table.columns.items()}


def _text(value: Value, kind: str) -> str | None:
    match value:
        case bytes():
            return value.decode("latin-1")
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}" + fraction(value, kind)
        case date():
            return value.isoformat()
        case int() | float() | Decimal():
            return digits(value, kind)
    return value
