"""Canal's flat messages: their events, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mutation_api.cdc.messages.canal import CanalFormat, CanalSource
from mutation_api.cdc.messages.events import LogOptions, PositionSource
from mutation_api.cdc.source import SourceTable
from mutation_api.errors import InputFormatError
from tests.support.json_messages import events_of, in_order, small_table, write_log

SMALL = small_table(("id", "bigint"), ("note", "string"))


def message(kind: str | None, *rows: Any, old: Any = None, **others: Any) -> str:
    fields: dict[str, Any] = {
        "data": rows or None,
        "database": "shop",
        "es": 1589373560000,
        "id": 9,
        "isDdl": not rows,
    }
    fields |= {"old": old, "pkNames": ["id"], "sql": "", "table": "orders", "ts": 1, "type": kind}
    return json.dumps({**fields, **others})


ROW = {"id": "1", "note": "a"}

EVENTS: list[tuple[str, tuple[Any, ...]]] = [
    (message("INSERT", ROW), ("row", "shop.orders", "insert", (9, 0, 0))),
    (message("UPDATE", ROW, old=[{}], _tidb={"commitTs": 4}), ("row", "shop.orders", "update", (4, 0, 0))),
    (message("DELETE", ROW), ("row", "shop.orders", "delete", (9, 0, 0))),
    (message("CREATE", sql="create table"), ("other", "shop.orders", "create", (9, 0, 0))),
    (message("CINDEX"), ("other", "shop.orders", "cindex", (9, 0, 0))),
    (message("TIDB_WATERMARK", table=""), ("other", "shop.*", "tidb_watermark", (9, 0, 0))),
    (message("ALTER"), ("schema change", "shop.orders", "alter", (9, 0, 0))),
    (message("ERASE"), ("schema change", "shop.orders", "erase", (9, 0, 0))),
    (message("RENAME", table="other"), ("schema change", "shop.*", "rename", (9, 0, 0))),
    (message("QUERY", table=""), ("schema change", "shop.*", "query", (9, 0, 0))),
    (message("TRUNCATE"), ("truncate", "shop.orders", "truncate", (9, 0, 0))),
]

DAMAGED = [
    (message("UPSERT", ROW), "type", "unknown operation UPSERT"),
    (message(None, ROW), "type", "this one does not"),
    (message("INSERT", ROW, database=None), "database", "this one does not"),
    (message("INSERT"), "data", "not have an array of rows"),
    (message("INSERT", ROW, None), "data", "not have an array of rows"),
    (message("INSERT", ROW, data=ROW), "data", "not have an array of rows"),
    (message("UPDATE", ROW), "old", "changed values of each row"),
    (message("UPDATE", ROW, ROW, old=[{}]), "old", "changed values of each row"),
]


def test_what_messages_are(tmp_path: Path) -> None:
    """Rows and their positions, statements, messages that change no row, and incomplete messages."""
    lines = [line for line, _ in EVENTS] + [line for line, *_ in DAMAGED]
    found = events_of(write_log(tmp_path, lines), CanalFormat(), PositionSource.MESSAGE)
    for number, (line, expected) in enumerate(EVENTS, start=1):
        event = found[number]
        assert (event.kind, event.table, event.op, event.log_position) == expected, line
        assert event.problem is None, line
    for number, (line, field, text) in enumerate(DAMAGED, start=len(EVENTS) + 1):
        problem = found[number].problem
        assert problem is not None
        assert (problem.error, problem.field) == (InputFormatError, field), line
        assert text in problem.text


def test_rows_of_a_message_count_in_their_order(tmp_path: Path) -> None:
    """Several messages have one id: lines, then rows, order their operations; ids order files."""
    first = [message("INSERT", ROW, {"id": "2", "note": "b"})]
    first += [
        message("UPDATE", {"id": "2", "note": "a"}, {"id": "1", "note": "b"}, old=[{"id": "1"}, {"id": "2"}])
    ]
    log = CanalSource(
        write_log(tmp_path, [message("DELETE", ROW, id=10)], first),
        "test",
        options=LogOptions(positions=PositionSource.MESSAGE),
    )
    (table,) = log.read_local([SourceTable("shop.orders", SMALL)], {}).tables
    assert in_order(table) == [
        ("insert", 1, "a"),
        ("insert", 2, "b"),
        ("delete", 1, None),
        ("insert", 2, "a"),
        ("delete", 2, None),
        ("insert", 1, "b"),
        ("delete", 1, None),
    ]
