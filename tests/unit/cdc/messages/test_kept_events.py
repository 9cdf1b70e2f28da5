"""The rows that the first look keeps, so that one process parses a log once."""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mutation_api.cdc.messages import first_look, unwrap
from mutation_api.cdc.messages.debezium import DebeziumSource
from mutation_api.cdc.messages.json_lines import LogFile, LogRange
from mutation_api.cdc.messages.maxwell import MaxwellSource
from mutation_api.cdc.messages.message_source import MessageSource
from mutation_api.cdc.messages.reading import MessageParts
from mutation_api.cdc.source import POSITION, LocalBatch, Position, SourceTable
from mutation_api.errors import InputError
from tests.support.json_messages import Change, debezium, maxwell, small_table, write_log

SEED = 20261201
TARGET = small_table(("id", "bigint"), ("price", "decimal(38,4)"), ("weight", "double"))
TABLES = [SourceTable(f"shop.{name}", TARGET, ("id",)) for name in ("orders", "items", "parts")]
CHANGES = 1000
FORMATS = {"debezium": (DebeziumSource, debezium), "maxwell": (MaxwellSource, maxwell)}
PRICES = [Decimal("1.5"), Decimal("123456789012345678901234.25"), Decimal("-0.10")]


def source_of(name: str, folder: Path) -> MessageSource:
    """A log of random operations on three tables, in two files; some values are no doubles or integers."""
    kind, writer = FORMATS[name]
    rng = random.Random(SEED)
    lines = []
    for number in range(CHANGES):
        row = {
            "id": rng.randrange(50),
            "price": rng.choice(PRICES),
            "weight": rng.choice([1.0, 0.5, 84.459, None]),
        }
        operation = rng.choice(["insert", "update", "delete"])
        before = None if operation == "insert" else {**row, "id": row["id"] + rng.choice([0, 0, 1])}
        after = None if operation == "delete" else row
        text = writer(Change(operation, before, after, 1, 4 + number))
        table = rng.choice(TABLES).name.partition(".")[2]
        lines.append(re.sub('"table": ?"orders"', f'"table": "{table}"', text))
    return kind(write_log(folder, lines[: CHANGES // 3], lines[CHANGES // 3 :]), "test")


def rows_of(parts: MessageParts) -> list[dict[str, Any]]:
    """All operations of a table, with their positions."""
    return [row for batch in parts for row in batch.to_pylist()]


def parts_of(batch: LocalBatch) -> dict[str, MessageParts]:
    """The operations of each table."""
    found = {each.table.name: each.operations for each in batch.tables}
    assert all(isinstance(each, MessageParts) for each in found.values())
    return found  # type: ignore[return-value]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file is read."""
    found = Counter[str]()
    lines = unwrap.read_lines

    def counted(file: LogFile, part: LogRange) -> Iterator[Any]:
        found[file.name] += 1
        return lines(file, part)

    monkeypatch.setattr(unwrap, "read_lines", counted)
    return found


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("bytes_in_memory", [first_look.KEPT_IN_MEMORY, 1])
def test_a_log_is_parsed_once_for_all_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: Counter[str], name: str, bytes_in_memory: int
) -> None:
    """The operations are those that a second parse of the log gives, with the same positions."""
    monkeypatch.setattr(first_look, "KEPT_IN_MEMORY", bytes_in_memory)
    found = parts_of(source_of(name, tmp_path / "log").read_local(TABLES, {}))
    kept = {table: rows_of(parts) for table, parts in found.items()}
    assert set(parsed.values()) == {1}
    assert len(parsed) == 2
    again = {table: rows_of(replace(parts, kept=None)) for table, parts in found.items()}
    assert set(parsed.values()) == {1 + len(TABLES)}
    assert kept == again
    assert set(kept) == {table.name for table in TABLES}
    assert sum(map(len, kept.values())) > CHANGES  # an update of a key is a delete and an insert


def test_rows_that_are_applied_are_not_kept(tmp_path: Path) -> None:
    """A long log of which little is new takes little space."""
    source = source_of("maxwell", tmp_path / "log")
    first = source.read_local(TABLES, {})
    assert first.position is not None
    whole = {table: rows_of(parts) for table, parts in parts_of(first).items()}
    middle = sorted(tuple(row[POSITION].values()) for row in whole["shop.items"])[-20]
    after = {"shop.items": Position(middle, first.position.text)}
    found = parts_of(source.read_local(TABLES[1:2], after))["shop.items"]
    assert found.kept is not None
    kept = [each for number in range(2) for some in found.kept.events("shop.items", number) for each in some]
    rows = rows_of(found)
    assert 0 < len(kept) <= len(rows) < 20
    assert rows == [row for row in whole["shop.items"] if tuple(row[POSITION].values()) > middle]


def test_a_full_temporary_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is applied in part, and the message says where space is needed."""
    monkeypatch.setattr(first_look, "KEPT_IN_MEMORY", 1)
    gone = tmp_path / "gone"
    monkeypatch.setattr(tempfile, "tempdir", str(gone))
    with pytest.raises(
        InputError, match=rf"^table shop\.\w+: the rows of the log cannot be kept in {gone}: "
    ):
        source_of("debezium", tmp_path / "log").read_local(TABLES, {})
