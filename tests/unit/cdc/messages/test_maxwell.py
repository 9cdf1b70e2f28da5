"""Messages of Maxwell's daemon: their events, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mutation_api.cdc.messages.events import PositionSource
from mutation_api.cdc.messages.maxwell import MaxwellFormat
from mutation_api.errors import InputFormatError
from tests.support.json_messages import events_of, write_log

LAST = 2**62


def message(kind: str | None, **others: Any) -> str:
    fields = {"database": "shop", "table": "orders", "type": kind, "position": "master.000006:800911"}
    return json.dumps({**fields, "data": {"id": 1}, **others})


EVENTS: list[tuple[str, tuple[Any, ...]]] = [
    (message("insert"), ("row", "shop.orders", "insert", (6, 800911, 0))),
    (message("insert", xoffset=3), ("row", "shop.orders", "insert", (6, 800911, 3))),
    (message("delete", commit=True), ("row", "shop.orders", "delete", (6, 800911, LAST))),
    (message("update", old={"id": 2}), ("row", "shop.orders", "update", (6, 800911, 0))),
    (message("insert", position="master.000006:0", xoffset=3), ("row", "shop.orders", "insert", None)),
    (message("bootstrap-insert", position=None), ("row", "shop.orders", "insert", None)),
    (message("bootstrap-start", data={}), ("other", "shop.orders", None, (6, 800911, 0))),
    (message("bootstrap-complete", data={}), ("other", "shop.orders", None, (6, 800911, 0))),
    (message("table-create"), ("other", "shop.orders", None, (6, 800911, 0))),
    (message("table-alter"), ("schema change", "shop.orders", None, (6, 800911, 0))),
    (message("database-drop", table=None), ("schema change", "shop.*", None, (6, 800911, 0))),
]

DAMAGED = [
    (message("upsert"), "type", "unknown operation upsert"),
    (message(None), "type", "this one does not"),
    (message("insert", database=None), "database", "this one does not"),
    (message("insert", data=None), "data", "no row"),
    (message("insert", data=[1]), "data", "no row"),
    (message("update"), "old", "the values that the update changed"),
    (message("insert", position="master:x"), "position", "master:x is not a position"),
]


def test_what_messages_are(tmp_path: Path) -> None:
    """Rows and their positions, messages that change no row, and messages that lack what they need."""
    lines = [line for line, _ in EVENTS] + [line for line, *_ in DAMAGED]
    found = events_of(write_log(tmp_path, lines), MaxwellFormat(), PositionSource.AUTO)
    for number, (line, expected) in enumerate(EVENTS, start=1):
        event = found[number]
        assert (event.kind, event.table, event.op, event.log_position) == expected, line
        assert event.problem is None, line
    for number, (line, field, text) in enumerate(DAMAGED, start=len(EVENTS) + 1):
        problem = found[number].problem
        assert problem is not None
        assert (problem.error, problem.field) == (InputFormatError, field), line
        assert text in problem.text
