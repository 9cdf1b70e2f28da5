"""The binlog collector's raw files: a line for each operation on a table.

Source: the collector's description: operation, md5 of the key, columns; texts in quotes. What it leaves open:
quotes in texts are doubled, NULL is the bare word, bytes are hexadecimal digits, the md5 of several key
columns is that of all in quotes between commas, and an update that changes the key is a DELETE and an INSERT.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from tests.cdc_writers.history import Row, RowsEvent, Table, Value, digits, single_rows


def append_raw(raw: Path, events: Iterable[RowsEvent]) -> None:
    """Append the operations of one table to a raw file."""
    raw.parent.mkdir(parents=True, exist_ok=True)
    with raw.open("a", encoding="utf-8", newline="") as file:
        for event in events:
            for operation, row in single_rows(event):
                values = [_text(row[name], kind) for name, kind in event.table.columns.items()]
                file.write(",".join([operation.upper(), _uid(event.table, row), *values]) + "\n")


def _uid(table: Table, row: Row) -> str:
    texts = [_text(row[name], table.columns[name]) for name in table.key]
    bare = [text[1:-1] if text.startswith('"') else text for text in texts]
    key = bare[0] if len(bare) == 1 else ",".join(f'"{text}"' for text in bare)
    return hashlib.md5(key.encode()).hexdigest()


def _text(value: Value, kind: str) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f'"{value.hex()}"'
        case datetime():
            return f'"{value.isoformat(" ")}"'
        case date():
            return f'"{value.isoformat()}"'
        case int() | float() | Decimal():
            return digits(value, kind)
        case str():
            return '"' + value.replace('"', '""') + '"'
