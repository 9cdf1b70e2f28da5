"""What a table's number of columns costs: filters and merges of a few rows.

    python -m benchmarks wide_tables                # 2,000 columns beside 200
    python -m benchmarks wide_tables --quick        # the same, two rounds

Three rows; so nearly all time goes by the number of columns. ``wide`` and ``narrow`` do the same task, and
time that is linear in the columns gives a ratio of ten. The metastore is in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.measure import (
    Contestant,
    Watch,
    alternate,
    as_figures,
    compared,
    machine,
    tell,
    versions,
)
from benchmarks.measuring.report import save_cases, show_case
from metastore_client import ColumnInfo
from metastore_client.testing import InMemoryMetastore
from mutation_api import Hive, HiveTable, connect, create_acid_table

HELP = "filters and merges of a few rows, by the number of columns"

WIDE, NARROW = "wide", "narrow"
COLUMNS = {WIDE: 2_000, NARROW: 200}
ROUNDS = Rounds(5, warm_up=1)
QUICK_ROUNDS = 2
AIM_RATIO = 12
"""What ten times the columns may take; ten is linear."""
AIM_SECONDS = 1
"""What 2,000 columns may take."""
RESULTS = Path(__file__).parent / "results" / "wide_tables.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help="ignored: a table has three rows")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if time is linear in the columns and within the aim."""
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS.measured_of(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        metastore = InMemoryMetastore(warehouse=folder)
        hive = stack.enter_context(connect(metastore))
        for name, count in COLUMNS.items():
            _make(hive, metastore, name, count)
        cases = [_case(hive, task, folder, rounds) for task in TASKS]
    if arguments.save:
        save_cases(
            cases, RESULTS, title="Wide tables", versions=", ".join(versions("pyarrow")), machine=machine()
        )
    return 0 if all(case["meets_aims"] for case in cases) else 1


def _case(hive: Hive, task: str, folder: Path, rounds: int) -> dict[str, Any]:
    contestants = [
        Contestant(name, lambda _, name=name: _do(hive, name, TASKS[task]), ("driver",), folder / "nothing")  # type: ignore[misc]
        for name in COLUMNS
    ]
    results = alternate(contestants, rounds, Watch({}), warm_up=1, tell=tell)
    ratio = compared(*results)
    seconds = statistics.median(usage.wall_seconds for usage in results[0].usages)
    case = {
        "case": task,
        "text": (
            f"{COLUMNS[WIDE]:,} columns: {seconds:.2f} s, aim {AIM_SECONDS} s; "
            f"{ratio['wall']['median']:.1f} times as long as {COLUMNS[NARROW]}, aim {AIM_RATIO}."
        ),
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {f"{WIDE} / {NARROW}": ratio},
        "meets_aims": seconds <= AIM_SECONDS and ratio["wall"]["median"] <= AIM_RATIO,
    }
    show_case(case)
    return case


def _do(hive: Hive, name: str, task: Callable[[HiveTable, int], object]) -> None:
    """In a transaction that is aborted, so that each round finds the same rows."""
    transaction = hive.transaction(f"default.{name}").begin()
    try:
        task(transaction.table(f"default.{name}"), COLUMNS[name])
    finally:
        transaction.abort()


def _make(hive: Hive, metastore: InMemoryMetastore, name: str, count: int) -> None:
    columns = [ColumnInfo("id", "int"), *(ColumnInfo(f"c{at}", "int") for at in range(count))]
    create_acid_table(metastore, f"default.{name}", columns, clustered_by=["id"], num_buckets=2)
    with hive.transaction(f"default.{name}") as transaction:
        transaction.table(f"default.{name}").append(_rows(count))


def _rows(count: int) -> pa.Table:
    values = pa.array([1, 2, 3], pa.int32())
    return pa.table({"id": values, **{f"c{at}": values for at in range(count)}})


def _filter(table: HiveTable, count: int) -> object:
    return table.scan(["id"], where=pc.field(f"c{count - 1}") == 1).to_arrow()


def _filter_of_all(table: HiveTable, count: int) -> object:
    conditions = [pc.field(f"c{at}") == 1 for at in range(count)]
    return table.scan(["id"], where=reduce(lambda a, b: a & b, conditions)).to_arrow()


def _merge(table: HiveTable, count: int) -> object:
    merge = table.merge(_rows(count), on=["id"])
    newer = pc.field("source", "c0") >= pc.field("target", "c0")
    return merge.when_matched_update_all(newer).when_not_matched_insert_all().execute()


def _merge_of_values(table: HiveTable, count: int) -> object:
    values = {f"c{at}": pc.field("source", f"c{at}") + 1 for at in range(count)}
    return table.merge(_rows(count), on=["id"]).when_matched_update(values).execute()


TASKS: Mapping[str, Callable[[HiveTable, int], object]] = {
    "a filter on one column": _filter,
    "a filter on all columns": _filter_of_all,
    "a merge of all columns": _merge,
    "a merge with a value for each column": _merge_of_values,
}
"""By the name of the case: what is done with a table of this number of columns."""
