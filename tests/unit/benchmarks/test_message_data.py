"""The benchmark's logs of messages say the same in each format, and orjson reads them without loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.data.message_data import DEBEZIUM, FORMATS, TABLE, MessageLogs
from benchmarks.data.message_reading import TARGET, source_of
from mutation_api.cdc.messages.json_text import QuickParser
from mutation_api.cdc.source import OPERATION, POSITION, SourceTable

OPERATIONS = 400


def operations(logs: MessageLogs, kind: str) -> list[dict[str, Any]]:
    """What is read, in the order of the lines, but for the positions, which each format has its own of."""
    (found,) = source_of(kind, logs.write(kind)).read_local([SourceTable(TABLE, TARGET, ("id",))], {}).tables
    rows = [row for batch in found.operations for row in batch.to_pylist()]
    return [{name: value for name, value in row.items() if name != POSITION} for row in rows]


def test_all_formats_say_the_same(tmp_path: Path) -> None:
    """Row by row; deletes are of rows that are there, and inserts are not."""
    logs = MessageLogs(OPERATIONS, 120, 3, tmp_path)
    first, *others = [operations(logs, kind) for kind in FORMATS]
    assert len(first) == OPERATIONS
    assert all(each == first for each in others)
    there: set[int] = set()
    for row in first:
        assert (row[OPERATION] == "insert") == (row["id"] not in there)
        (there.discard if row[OPERATION] == "delete" else there.add)(row["id"])
    assert 0 < len(there) < 120
    assert len({row["total"] for row in first}) > 300


def test_messages_are_written_as_tools_write_them(tmp_path: Path) -> None:
    """Compactly: all of them are read quickly."""
    pytest.importorskip("orjson")
    folder = MessageLogs(OPERATIONS, 120, 3, tmp_path).write(DEBEZIUM)
    lines = [line for file in folder.iterdir() for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == OPERATIONS
    assert all(QuickParser().parsed(line) is not None for line in lines)
