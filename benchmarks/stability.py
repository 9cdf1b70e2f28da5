"""How fast a table is read after many small merges, beside the same table before them.

    python -m benchmarks stability             # 10,000,000 rows, merges of 0.1 % of them
    python -m benchmarks stability --quick     # 1,000,000 rows, one round

Four tables have the same rows at first. One stays as it is loaded, the others take 1, 10 and 100 merges of
random keys; half of the rows of a merge are updates, a fifth deletes, the rest inserts. A fifth table takes
100 merges, and this library compacts it. Reading all columns of all rows without Spark counts; the files of
all tables are in the page cache. The metastore is that of Hive 4.1.

Source of the measure: LST-Bench (Camacho-Rodríguez and others, SIGMOD 2024), degradation of reads.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.data.merge_data import COLUMNS, ChangeSets, base_batches
from benchmarks.feed import KINDS, QUICK_ROWS, Stage, merge_file
from benchmarks.measuring.arguments import Rounds, add_case_arguments
from benchmarks.measuring.measure import Contestant, Watch, beside_baseline, tell
from benchmarks.measuring.report import finish
from benchmarks.merging.merge_tables import BUCKETS
from mutation_api.upkeep import compact_table

HELP = "reads after 1, 10 and 100 merges, beside a table without any"

ROWS_DEFAULT = 10_000_000
CHANGED_PART = 1_000
ROUNDS = Rounds(5, warm_up=1)
LOADED, COMPACTED = "loaded", "100 merges, compacted"
MERGES = {"1 merge": 1, "10 merges": 10, "100 merges": 100, COMPACTED: 100, LOADED: 0}
AIMS = {"100 merges": 1.5, COMPACTED: 1.05}
RESULTS = Path(__file__).parent / "results" / "stability.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_case_arguments(parser, ROUNDS, rows=ROWS_DEFAULT, quick=f"{QUICK_ROWS:,} rows, one round")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if each table has the rows that its merges leave."""
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS_DEFAULT)
    rounds = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    with Stage.opened(rows, rounds, data=pa.concat_tables(base_batches(1))) as stage:
        sets = ChangeSets(rows, rows // CHANGED_PART, max(MERGES.values()), stage.folder / "changes")
        sets.write()
        names = {label: _merged(stage, sets, number, count) for number, (label, count) in _numbered()}
        compact_table(stage.hive.metastore, names[COMPACTED], engine="local")
        case = _case(stage, names, rounds)
        found = {label: stage.hive.table(name).scan().count() for label, name in names.items()}
        wanted = {label: sets.expected(range(count))[0] for label, count in MERGES.items()}
    case = {**case, "is_right": case["is_right"] and found == wanted}
    return finish([case], RESULTS if arguments.save else None, title="Stability", packages=("pyarrow",))


def _numbered() -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(MERGES.items()))


def _merged(stage: Stage, sets: ChangeSets, number: int, count: int) -> str:
    """Create a table, and merge some change sets into it."""
    name = f"feed.merged_{number}"
    tell(f"{sets.rows:,} rows, then {count} merges of {sets.changes:,}")
    table = stage.hive.create_table(name, COLUMNS, clustered_by=["id"], num_buckets=BUCKETS)
    table.append(pa.concat_tables(base_batches(sets.rows)))
    for each in range(count):
        merge_file(stage.hive, name, sets.path(each))
    return name


def _case(stage: Stage, names: dict[str, str], rounds: tuple[int, int]) -> dict[str, Any]:
    def reading(name: str) -> Callable[[int], None]:
        def read(_: int) -> None:
            stage.hive.table(name).scan().to_arrow()

        return read

    case = beside_baseline(
        "all columns of all rows",
        f"{stage.rows:,} rows in {BUCKETS} buckets, merges of {stage.rows // CHANGED_PART:,} rows each.",
        [Contestant(label, reading(name), KINDS, stage.folder) for label, name in names.items()],
        rounds,
        Watch(stage.kinds),
    )
    return {**case, "aims": {f"{label} / {LOADED}": {"wall": aim} for label, aim in AIMS.items()}}
