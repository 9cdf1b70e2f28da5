"""The matrix of values: every type of Arrow, in every encoding, into every type of Hive, by every way in.

What is stored is what the documentation promises, or the values are refused with an error of ours.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import MutationError
from mutation_api.hive.connect import connect
from mutation_api.hive.hive_table import HiveTable
from mutation_api.merge.clauses import first_by
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.value_matrix import ROWS, Cell, random_cell, text_form

NAME = "default.cells"
CELLS = 40
MANY_CELLS = 2_000
IDS = pa.array(range(ROWS), pa.int64())


def _update(table: HiveTable, rows: pa.Table) -> None:
    found = table.scan(["id"], row_ids=True).to_arrow().sort_by("id")
    table.update(found.append_column("v", rows["v"]))


def _merge(table: HiveTable, rows: pa.Table) -> None:
    table.merge(rows, on=["id"]).when_matched_update_all().when_not_matched_insert_all().execute()


def _apply(table: HiveTable, rows: pa.Table) -> None:
    table.apply(rows.append_column("operation", pa.array(["insert"] * ROWS)))


def _merge_key(table: HiveTable, rows: pa.Table) -> None:
    merge = table.merge(rows, on=["v"], null_safe=True, on_duplicate=first_by("id"))
    merge.when_not_matched_insert_all().execute()


def _condition(table: HiveTable, rows: pa.Table) -> None:
    merge = table.merge(rows, on=["id"])
    merge.when_not_matched_insert_all(pc.field("source", "v") == pc.field("source", "v")).execute()


def _literal(rows: pa.Table) -> pc.Expression:
    try:
        return pc.scalar(rows["v"][0])
    except pa.ArrowException:  # Arrow makes no literal of some nested values
        return pc.scalar(None)


def _assigned(table: HiveTable, rows: pa.Table) -> None:
    merge = table.merge(pa.table({"id": [99]}), on=["id"])
    merge.when_not_matched_by_source_update({"v": _literal(rows)}).execute()


def _filter(table: HiveTable, rows: pa.Table) -> None:
    table.scan(where=pc.field("v") == _literal(rows)).to_arrow()


EXACT: dict[str, Callable[[HiveTable, pa.Table], Any]] = {
    "append": HiveTable.append,
    "apply": _apply,
    "merged rows": _merge,
    "update": _update,
    "merged into rows": _merge,
}
"""Ways in which every row is stored."""
OTHERS = {
    "merge key": _merge_key,
    "condition": _condition,
    "assigned value": _assigned,
    "filter": _filter,
}
"""Ways that have rules of their own; none may fail with an error of another package."""
WITH_ROWS = ("update", "merged into rows", "assigned value", "filter")


def stored(directory: Path, line: Any, cell: Cell, way: str) -> list[Any]:
    """The column after the cell's values went in."""
    directory.mkdir()
    metastore = InMemoryMetastore(directory, capabilities=line)
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("v", cell.hive_type)]
    create_acid_table(metastore, NAME, columns, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as hive:
        if way in WITH_ROWS:
            with hive.transaction(NAME) as transaction:
                transaction.table(NAME).append(pa.table({"id": IDS, "v": pa.nulls(ROWS)}))
        with hive.transaction(NAME) as transaction:
            {**EXACT, **OTHERS}[way](transaction.table(NAME), pa.table({"id": IDS, "v": cell.values}))
        with hive.snapshot(NAME) as view:
            rows = view.table(NAME).scan(timestamps=TimestampForm.TEXT).to_arrow().sort_by("id")
            values: list[Any] = rows["v"].to_pylist()
            return values


def check(directory: Path, seed: int) -> None:
    """One random cell."""
    rng = random.Random(seed)
    cell, line = random_cell(rng), rng.choice([HIVE_2_3, HIVE_4_1])
    way = rng.choice([*EXACT, *OTHERS])
    promised = cell.promised()
    try:
        found = stored(directory / str(seed), line, cell, way)
    except MutationError as error:
        if way in EXACT:
            assert promised is None, f"seed {seed}: {way}: {cell} is refused: {error}"
        return
    except Exception as error:
        raise AssertionError(f"seed {seed}: {way}: {cell}: {error!r}") from error
    if way in EXACT:
        assert text_form(found) == text_form(promised or []), f"seed {seed}: {way}: {cell}"


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(4))
def test_random_cells(tmp_path: Path, part: int) -> None:
    """Others each day would not be repeatable, so the seeds are fixed."""
    for seed in range(part * CELLS, (part + 1) * CELLS):
        check(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_many_random_cells(tmp_path: Path, part: int) -> None:
    """The same of 2,000 others."""
    for seed in range(part * MANY_CELLS // 10, (part + 1) * MANY_CELLS // 10):
        check(tmp_path, 1_000 + seed)
