"""The binlog collector's raw files: a line for each operation on a table.

Source: the collector's description: operation, md5 of the key, columns; texts in quotes. What it leaves open:
quotes in texts are doubled, NULL is the bare word, bytes are hexadecimal digits, the md5 of several key
columns is that of all in quotes between commas, and an update that changes the key is a DELETE and an INSERT.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from tests.cdc_writers.collector_files import raw_record
from tests.cdc_writers.history import Digits, RowsEvent, Value, digits, single_rows


def append_raw(raw: Path, events: Iterable[RowsEvent]) -> None:
    """Append the operations of one table to a raw file."""
    raw.parent.mkdir(parents=True, exist_ok=True)
    with raw.open("a", encoding="utf-8", newline="") as file:
        for event in events:
            for operation, row in single_rows(event):
                values = {name: _value(row[name], kind) for name, kind in event.table.columns.items()}
                key = [str(values[name]) for name in event.table.key]
                file.write(raw_record(operation.upper(), key, values.values()))


def _value(value: Value, kind: str) -> str | None:
    match value:
        case bytes():
            return value.hex()
        case datetime():
            return value.isoformat(" ")
        case date():
            return value.isoformat()
        case int() | float() | Decimal():
            return Digits(digits(value, kind))
    return value
