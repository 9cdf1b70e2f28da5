"""The matrix of values in frames: pandas (Arrow's types and numpy's), Polars and results of DuckDB.

The values are those of the Arrow matrix, as the library took them over. What is stored is what was promised
for them, or they are refused with an error of ours.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import MutationError
from mutation_api.hive.connect import connect
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.value_matrix import ROWS, random_cell, text_form

NAME = "default.frames"
CELLS = 30
MANY_CELLS = 1_000


def of_duckdb(rows: pa.Table) -> Any:
    return duckdb.from_arrow(rows)


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "pandas, Arrow": lambda rows: rows.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, numpy": lambda rows: rows.to_pandas(),
    "Polars": pl.from_arrow,
    "DuckDB": of_duckdb,
}

LOST = {
    "pandas, Arrow": ("run_end",),
    "pandas, numpy": ("extension<", "run_end", "_view", "tz=", "halffloat"),
    "Polars": ("extension<", "run_end", "_view", "decimal32", "decimal64"),
    "DuckDB": ("arrow.opaque",),
}
"""Types that the library itself takes for others, or aborts the process at."""


def stored(directory: Path, hive_type: str, frame: Any, way: str) -> list[Any]:
    """The column after the frame was appended, or merged."""
    directory.mkdir()
    metastore = InMemoryMetastore(directory, capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("v", hive_type)]
    create_acid_table(metastore, NAME, columns, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as hive:
        with hive.transaction(NAME) as transaction:
            table = transaction.table(NAME)
            if way == "append":
                table.append(frame)
            else:
                table.merge(frame, on=["id"]).when_not_matched_insert_all().execute()
        with hive.snapshot(NAME) as view:
            rows = view.table(NAME).scan(timestamps=TimestampForm.TEXT).to_arrow().sort_by("id")
            values: list[Any] = rows["v"].to_pylist()
            return values


def check(directory: Path, seed: int, library: str) -> None:
    """One random cell."""
    rng = random.Random(f"{library} {seed}")
    cell, way = random_cell(rng), rng.choice(("append", "merge"))
    if any(word in str(cell.values.type) for word in LOST.get(library, ())):
        return
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "v": cell.values})
    try:
        frame = FRAMES[library](rows)
        taken = pa.RecordBatchReader.from_stream(frame).read_all()
        taken["v"].to_pylist()  # fails if the library has lost the place of a slice
        is_same = str(taken["v"].type).removeprefix("large_") == str(rows["v"].type).removeprefix("large_")
        cell = dataclasses.replace(cell, values=taken["v"])
    except MutationError:
        raise
    except BaseException:  # the library has no such type, or no such value
        return
    promised = cell.promised() if is_same else None
    what = f"{library}, seed {seed}: {way} of {cell}"
    try:
        found = stored(directory / f"{library}{seed}", cell.hive_type, frame, way)
    except MutationError as error:
        assert promised is None, f"{what} is refused: {error}"
        return
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    if is_same:
        assert promised is not None, f"{what} is stored as {found}"
        assert text_form(found) == text_form(promised), what


@pytest.mark.thorough
@pytest.mark.parametrize("library", FRAMES)
def test_random_frames(tmp_path: Path, library: str) -> None:
    """Some."""
    for seed in range(CELLS):
        check(tmp_path, seed, library)


@pytest.mark.long
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("library", FRAMES)
def test_many_random_frames(tmp_path: Path, library: str, part: int) -> None:
    """The same of others."""
    for seed in range(part * MANY_CELLS // 2, (part + 1) * MANY_CELLS // 2):
        check(tmp_path, 1_000 + seed, library)
