"""What deltas that nobody compacts cost: merges of one row.

    python -m benchmarks many_deltas                # 200 merges before, beside 10
    python -m benchmarks many_deltas --quick        # the same, five rounds

``many`` and ``few`` merge one row into tables that have seen 200 and 10 such merges. Each merge leaves a
delta and a delete delta, and the next one reads them. From 25 on the report says that compaction is due.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from pathlib import Path

import pyarrow as pa

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
from mutation_api import Hive, MergeReport, connect, create_acid_table

HELP = "merges of one row, by the number of deltas"

MANY, FEW = "many", "few"
MERGES = {MANY: 200, FEW: 10}
ROUNDS = Rounds(20, warm_up=2)
QUICK_ROUNDS = 5
AIM_RATIO = 20
"""What twenty times the deltas may take; twenty is linear."""
RESULTS = Path(__file__).parent / "results" / "many_deltas.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help="ignored: a merge has one row")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if the ratio is within the aim and the reports say that compaction is due."""
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS.measured_of(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        metastore = InMemoryMetastore(warehouse=folder)
        hive = stack.enter_context(connect(metastore))
        said = {name: _make(hive, metastore, name, count) for name, count in MERGES.items()}
        contestants = [
            Contestant(name, lambda _, name=name: _merge(hive, name), ("driver",), folder / "nothing")  # type: ignore[misc]
            for name in MERGES
        ]
        results = alternate(contestants, rounds, Watch({}), warm_up=2, tell=tell)
    ratio = compared(*results)
    times = [statistics.median(usage.wall_seconds for usage in result.usages) for result in results]
    is_said = bool(said[MANY].compactions_due) and not said[FEW].compactions_due
    case = {
        "case": "a merge of one row",
        "text": (
            f"after {MERGES[MANY]} merges {1000 * times[0]:.0f} ms, after {MERGES[FEW]} "
            f"{1000 * times[1]:.0f}: {ratio['wall']['median']:.1f} times, aim {AIM_RATIO}; the report "
            + ("says that compaction is due." if is_said else "does not say when compaction is due.")
        ),
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {f"{MANY} / {FEW}": ratio},
        "meets_aims": is_said and ratio["wall"]["median"] <= AIM_RATIO,
    }
    show_case(case)
    if arguments.save:
        found = ", ".join(versions("pyarrow"))
        save_cases([case], RESULTS, title="Many deltas", versions=found, machine=machine())
    return 0 if case["meets_aims"] else 1


def _make(hive: Hive, metastore: InMemoryMetastore, name: str, count: int) -> MergeReport:
    columns = [ColumnInfo("id", "int"), ColumnInfo("item", "string")]
    create_acid_table(metastore, f"default.{name}", columns, clustered_by=["id"], num_buckets=2)
    return [_merge(hive, name) for _ in range(count)][-1]


def _merge(hive: Hive, name: str) -> MergeReport:
    rows = pa.table({"id": pa.array([1], pa.int32()), "item": ["x" * (1 + _numbers[name] % 7)]})
    _numbers[name] += 1
    with hive.transaction(f"default.{name}") as transaction:
        merge = transaction.table(f"default.{name}").merge(rows, on=["id"])
        return merge.when_matched_update_all().when_not_matched_insert_all().execute()


_numbers = dict.fromkeys(MERGES, 0)
"""How many merges each table has seen; each gives the row another value."""
