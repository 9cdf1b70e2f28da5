"""Small messages of a table ``shop.orders`` for topics, and the operations that a source makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mutation_api.cdc.local_reduce import HeldOperations, collected, reduce_here
from mutation_api.cdc.messages.message_source import MessageSource
from mutation_api.cdc.source import OPERATION, LocalBatch, Position, SourceTable
from tests.support.json_messages import small_table

ORDERS = SourceTable("shop.orders", small_table(("id", "int"), ("note", "string")))

Sent = tuple[str | None, str | None]
"""Key and value of a message."""


def debezium(
    op: str, identifier: int, note: str | None = None, *, at: int = 4, table: str = "orders"
) -> list[Sent]:
    """A change of a row as Debezium sends it; a delete has a tombstone behind it.

    ``at``: its position in the binlog.
    """
    row = {"id": identifier, "note": note}
    before, after = (row, None) if op == "d" else (None, row)
    source = {"db": "shop", "table": table, "file": "bin.000001", "pos": at, "row": 0}
    value = json.dumps({"before": before, "after": after, "source": source, "op": op})
    key = json.dumps({"id": identifier})
    return [(key, value), *([(key, None)] if op == "d" else [])]


def maxwell(kind: str, identifier: int, note: str | None = None, **others: Any) -> Sent:
    """A change of a row as Maxwell sends it."""
    key = json.dumps({"database": "shop", "table": "orders", "pk.id": identifier})
    message = {
        "database": "shop",
        "table": "orders",
        "type": kind,
        "primary_key_columns": ["id"],
        "data": {"id": identifier, "note": note},
        **({"old": {"note": "other"}} if kind == "update" else {}),
        **others,
    }
    return key, json.dumps(message)


def read(
    source: MessageSource,
    after: Mapping[str, Position] | Position | None = None,
    *,
    tables: Sequence[SourceTable] = (ORDERS,),
) -> LocalBatch:
    """What a source has after the watermarks; one for all tables may be given."""
    marks = {each.name: after for each in tables} if isinstance(after, Position) else after or {}
    return source.read_local(tables, marks)


def read_rows(
    source: MessageSource, after: Mapping[str, Position] | Position | None = None
) -> list[tuple[Any, ...]]:
    """The last operation of each key of the table, after the watermarks."""
    return rows_of(read(source, after))


def rows_of(batch: LocalBatch, number: int = 0) -> list[tuple[Any, ...]]:
    """The last operation of each key of a table: operation, then the values."""
    if not batch.tables:
        return []
    given = batch.tables[number]
    operations = collected(given.table, given.operations, HeldOperations(1 << 30), "the log")
    found = reduce_here(given.table, operations, strict=False, what="the log")
    rows = found.rows.to_pylist()
    names = given.table.target.column_names
    return sorted((row[OPERATION], *(row[name] for name in names)) for row in rows)
