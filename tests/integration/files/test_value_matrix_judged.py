"""Values of every type of Arrow in a column of every type of Hive: Hive reads what was promised."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from mutation_api import TimestampForm, connect
from mutation_api.format.hive_type import HiveType, parse_hive_type
from tests.integration.files.hive_values import read_back, shown
from tests.support.value_matrix import ROWS, Cell, ClockText, random_cell

pytestmark = pytest.mark.slow

LINES = pytest.mark.parametrize(
    "hive_line",
    [*(pytest.param(line, marks=pytest.mark.long) for line in ("2.3", "3.1")), "4.1"],
    indirect=True,
)
CELLS = 24
"""Columns of a table."""


def _storable(rng: random.Random) -> Cell:
    """A cell that is stored; the others are refused before anything is written (tests/unit/hive)."""
    while True:
        cell = random_cell(rng)
        if cell.promised() is not None:
            return cell


def _leaf(cell: Cell) -> HiveType:
    """The type of the innermost values: those of a list, a map, the field y."""
    kind = parse_hive_type(cell.hive_type)
    return kind.children[kind.kind == "map"] if kind.children else kind


def _sql(cell: Cell, column: str) -> str:
    """Hive's expression of the innermost value of a row; nested values have one in each row."""
    kind = parse_hive_type(cell.hive_type).kind
    inner = {"array": f"{column}[0]", "map": f"{column}[id]", "struct": f"{column}.y"}.get(kind, column)
    return f"lower(hex({inner}))" if _leaf(cell).kind == "binary" else inner


def _innermost(value: Any, cell: Cell) -> Any:
    """The same of a promised value, or of one that a scan read, in the judge's form."""
    match parse_hive_type(cell.hive_type).kind:
        case "array":
            (value,) = value
        case "map":
            ((_, value),) = value
        case "struct":
            value = value["y"]
    is_clock = value is not None and _leaf(cell).kind == "timestamp"
    return shown(ClockText(value) if is_clock else value, _leaf(cell))


@LINES
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 9))])
def test_hive_reads_what_was_promised(hive_line: HiveJudge, line_database: str, seed: int) -> None:
    """A table of random cells, written by an append and rewritten by a merge, read by Hive's SQL."""
    rng = random.Random(seed)
    cells = [_storable(rng) for _ in range(CELLS)]
    name = f"{line_database}.cells"
    columns = ", ".join(f"c{number} {cell.hive_type}" for number, cell in enumerate(cells))
    hive_line.sql(
        f"create table {name} (id bigint, word string, {columns}) clustered by (id) into 2 buckets "
        "stored as orc tblproperties ('transactional'='true')"
    )
    values = {f"c{number}": cell.values for number, cell in enumerate(cells)}
    rows = pa.table({"id": range(ROWS), "word": ["old"] * ROWS, **values})
    with connect(hive_line.uri) as hive:
        with hive.transaction(name) as transaction:
            transaction.table(name).append(rows)
        with hive.transaction(name) as transaction:
            merge = transaction.table(name).merge(pa.table({"id": [0], "word": ["new"]}), on=["id"])
            merge.when_matched_update({"word": pa.compute.field("source", "word")}).execute()
        with hive.snapshot(name) as view:
            read = view.table(name).scan(timestamps=TimestampForm.TEXT).to_arrow().sort_by("id")
    assert read["word"].to_pylist() == ["new", *["old"] * (ROWS - 1)]
    expressions = ", ".join(_sql(cell, f"c{number}") for number, cell in enumerate(cells))
    found = hive_line.sql(f"select id, {expressions} from {name} order by id")
    for number, cell in enumerate(cells):
        wanted = [_innermost(each, cell) for each in cell.promised() or []]
        by_us = [_innermost(each, cell) for each in read[f"c{number}"].to_pylist()]
        by_hive = [read_back(row[number + 1], _leaf(cell)) for row in found]
        assert by_us == wanted, f"seed {seed}, column {number}: {cell}"
        assert by_hive == wanted, f"seed {seed}, column {number}: {cell}"
