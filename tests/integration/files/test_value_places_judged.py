"""Values of partition and bucket columns: Hive reads them, finds rows by them, and places rows as we do."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from mutation_api import connect
from mutation_api.format.hive_type import HiveType, parse_hive_type
from tests.integration.files.hive_values import read_back, shown
from tests.support.value_matrix import ROWS, Cell, ClockText, partition_promise, random_cell

pytestmark = pytest.mark.slow

LINES = pytest.mark.parametrize(
    "hive_line",
    [*(pytest.param(line, marks=pytest.mark.long) for line in ("2.3", "3.1")), "4.1"],
    indirect=True,
)
SEEDS = pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
KEYS = 5
"""Partition columns, or bucket columns, of a table."""
NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
SETTINGS = {"hive.exec.dynamic.partition.mode": "nonstrict", "hive.stats.fetch.column.stats": "false"}


def _cells(rng: random.Random, *, of_partitions: bool = False) -> list[Cell]:
    """Cells whose values are stored there."""
    found: list[Cell] = []
    while len(found) < KEYS:
        cell = random_cell(rng, nests=not of_partitions)
        promised = cell.promised()
        if of_partitions and promised is not None:
            promised = partition_promise(promised, cell.hive_type)
        if promised is not None and "binary" not in cell.hive_type:
            found.append(cell)
    return found


def _shown(value: Any, kind: HiveType) -> Any:
    """A promised value in the judge's form."""
    return shown(ClockText(value) if value is not None and kind.kind == "timestamp" else value, kind)


def _literal(value: Any, kind: HiveType) -> str:
    """A promised value in Hive's SQL."""
    if kind.kind in ("date", "timestamp"):
        return f"{kind.kind} '{str(value).replace('T', ' ')}'"
    if kind.kind in ("string", "varchar", "char"):
        text = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
        return f"'{text}'"
    return str(value).lower() if kind.kind == "boolean" else f"cast('{value}' as {kind.text})"


@LINES
@SEEDS
def test_hive_reads_partition_values(hive_line: HiveJudge, line_database: str, seed: int) -> None:
    """A table with five random partition columns: Hive shows their values and finds rows by each."""
    rng = random.Random(seed)
    cells = _cells(rng, of_partitions=True)
    name = f"{line_database}.places"
    keys = ", ".join(f"p{number} {cell.hive_type}" for number, cell in enumerate(cells))
    hive_line.sql(
        f"create table {name} (id bigint, word string) partitioned by ({keys}) clustered by (id) "
        "into 2 buckets stored as orc tblproperties ('transactional'='true')"
    )
    values = {f"p{number}": cell.values for number, cell in enumerate(cells)}
    with connect(hive_line.uri) as hive, hive.transaction(name, create_partitions=True) as transaction:
        transaction.table(name).append(pa.table({"id": range(ROWS), "word": ["ours"] * ROWS, **values}))
    columns = ", ".join(values)
    found = hive_line.sql(f"select id, {columns} from {name} order by id", settings=SETTINGS)
    for number, cell in enumerate(cells):
        kind = parse_hive_type(cell.hive_type)
        promised = partition_promise(cell.promised() or [], cell.hive_type) or []
        by_hive = [read_back(row[number + 1], kind) for row in found]
        if kind.kind in ("string", "varchar", "char"):  # Hive shows the name that NULL has there
            cut = NULL_NAME[: kind.length or None]
            by_hive = [None if value == cut else value for value in by_hive]
        wanted = [_shown(value, kind) for value in promised]
        if (
            kind.kind == "boolean"
        ):  # every Hive shows NULL as true, and 2.3 false, in partitions of its own, too
            wanted = [each is not False or hive_line.line == "2.3" for each in wanted]
        assert by_hive == wanted, f"seed {seed}, p{number}: {cell}"


@pytest.mark.long
@LINES
@SEEDS
def test_hive_places_rows_alike(hive_line: HiveJudge, line_database: str, seed: int) -> None:
    """A table clustered by five random columns: a copy by Hive's INSERT has each row in the same bucket."""
    rng = random.Random(seed)
    cells = _cells(rng)
    columns = ", ".join(f"c{number} {cell.hive_type}" for number, cell in enumerate(cells))
    names = [f"c{number}" for number in range(KEYS)]
    for name in ("ours", "hives"):
        hive_line.sql(
            f"create table {line_database}.{name} (id bigint, {columns}) clustered by ({', '.join(names)}) "
            "into 61 buckets stored as orc tblproperties ('transactional'='true')"
        )
    rows = pa.table({"id": range(ROWS), **dict(zip(names, (cell.values for cell in cells), strict=True))})
    name = f"{line_database}.ours"
    with connect(hive_line.uri, time_zone="UTC") as hive, hive.transaction(name) as transaction:
        transaction.table(name).append(rows)
    # By rows: vectorized, Hive 3.1 places rows by the older hash, whatever the table's.
    settings = {"hive.vectorized.execution.enabled": "false"}
    hive_line.sql(f"insert into {line_database}.hives select * from {name}", settings=settings)
    places = [
        hive_line.sql(f"select id, ROW__ID.bucketid from {line_database}.{name} order by id")
        for name in ("ours", "hives")
    ]
    assert len(places[0]) == ROWS
    assert places[0] == places[1], f"seed {seed}: {[str(cell) for cell in cells]}"
