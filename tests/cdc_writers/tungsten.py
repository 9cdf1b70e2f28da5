"""Tungsten Replicator's staging files for Hadoop, with CSV type "hive".

Source: Tungsten Replicator's manual ("Hadoop Replication Operation", "Supported CSV Formats"): records of
operation, sequence number, row id, commit timestamp, key and columns; ``staging/service/database/table/
table-<first sequence number>.csv``; an update is a delete and an insert; line ends in values are left out.
How values become texts is that of its class DefaultCsvDataFormat: milliseconds, bytes in hexadecimal digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from tests.cdc_writers.history import Row, RowsEvent, Table, Transaction, Value, batches, digits, present

TRANSACTIONS_EACH = 7
"""Transactions in a batch of files."""

_LINE_ENDS = str.maketrans("", "", "\r\n")


def write_staging(staging: Path, service: str, transactions: Sequence[Transaction]) -> None:
    """Write files with the changes, batch by batch, one for each table that a batch changes."""
    for batch in batches(transactions, TRANSACTIONS_EACH):
        for table in {event.table.name: event.table for each in batch for event in each.events}.values():
            changed = [each for each in batch if any(e.table == table for e in each.events)]
            folder = staging / service / table.database / table.name
            folder.mkdir(parents=True, exist_ok=True)
            records = [
                staging_record(
                    [
                        operation,
                        str(each.number),
                        str(row_id),
                        f"{each.committed:%Y-%m-%d %H:%M:%S}.000",
                        *rest,
                    ]
                )
                for row_id, (each, operation, rest) in enumerate(_records(table, changed), start=1)
            ]
            (folder / f"{table.name}-{changed[0].number}.csv").write_text("".join(records), encoding="utf-8")


def staging_record(
    fields: Sequence[str | None],
    *,
    separator: str = "\x01",
    end: str = "\n",
    null: str = r"\N",
    escape: str = "\\",
    quote: str = "",
) -> str:
    """A record as Tungsten writes it, its end included; by default with CSV type "hive".

    Values lose their newlines and carriage returns; with quotes every value is in quotes.
    """
    special = {escape, quote or separator}

    def written(value: str | None) -> str:
        if value is None:
            return null
        kept = "".join(f"{escape}{c}" if c in special else c for c in without_line_ends(value))
        return f"{quote}{kept}{quote}"

    return separator.join(map(written, fields)) + end


def write_metadata(path: Path, tables: Sequence[Table]) -> None:
    """Write what the Hadoop tools know of tables: columns and keys."""
    described = [
        {
            "schema": table.database,
            "name": table.name,
            "keys": list(table.key),
            "columns": [{"name": name, "type": kind} for name, kind in table.columns.items()],
        }
        for table in tables
    ]
    path.write_text(json.dumps({"tables": described}), encoding="utf-8")


def without_line_ends(text: str) -> str:
    """A text as a staging file has it."""
    return text.translate(_LINE_ENDS)


def _records(
    table: Table, transactions: Sequence[Transaction]
) -> Iterator[tuple[Transaction, str, list[str | None]]]:
    for transaction in transactions:
        for event in transaction.events:
            if event.table == table:
                for operation, row in _halves(event):
                    yield transaction, operation, _fields(table, operation, row)


def _halves(event: RowsEvent) -> Iterator[tuple[str, Row]]:
    for before, after in event.images:
        if before is not None:
            yield "D", before
        if after is not None:
            yield "I", present(before, after)


def _fields(table: Table, operation: str, row: Row) -> list[str | None]:
    """Key and columns; of a delete only those of the key have values."""
    key = [_text(row[name], table.columns[name]) for name in table.key]
    kept = table.columns if operation == "I" else table.key
    return key + [_text(row[name] if name in kept else None, kind) for name, kind in table.columns.items()]


def _text(value: Value, kind: str) -> str | None:
    match value:
        case bytes():
            return value.hex()
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}"
        case date():
            return value.isoformat()
        case int() | float() | Decimal():
            return digits(value, kind)
    return value
