"""Write a change set of which nine tenths go to one bucket, beside one that is spread evenly.

    python -m benchmarks skew                             # 10,000,000 changes in 30 partitions of 8 buckets
    python -m benchmarks skew --quick                     # 1,000,000 changes

Of both tables the rows are loaded, updated and deleted alike. One task writes a bucket, since a bucket is one
file; so of two cores one is idle most of the time, and a ratio of two is what is to be expected. A user who
cannot wait for it gives the table more buckets, or, where Hive has write ids, no CLUSTERED BY at all.
"""

from __future__ import annotations

import argparse

from benchmarks.data.event_data import BUCKETS, Shape
from benchmarks.measuring.arguments import Rounds, settings_from
from benchmarks.writing.write_case import agreed, run_case, save
from benchmarks.writing.write_input import prepare_changes
from benchmarks.writing.write_stage import (
    LAYOUTS,
    Stage,
    add_common_arguments,
    add_partitions_argument,
)
from benchmarks.writing.writers import TableWriter

HELP = "write a skewed change set, in turn with an even one"

ROWS_DEFAULT = 10_000_000
QUICK_ROWS = 1_000_000
HOT_PERCENT = 90
ROUNDS = Rounds(3, warm_up=2)
LAYOUT = LAYOUTS["split"]
UNIFORM, SKEWED = "uniform", "skewed"
AIM = {"wall": 2.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_common_arguments(parser, rows=ROWS_DEFAULT, quick_rows=QUICK_ROWS, rounds=ROUNDS)
    add_partitions_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if everything was written and Hive agrees."""
    rows = QUICK_ROWS if arguments.quick else arguments.rows
    shapes = {
        UNIFORM: Shape(rows, arguments.partitions),
        SKEWED: Shape(rows, arguments.partitions, hot_percent=HOT_PERCENT),
    }
    rounds = ROUNDS.measured_of(arguments)
    with Stage.opened(arguments.work, (LAYOUT,), settings_from(arguments.spark)) as stage:
        is_right = arguments.quick or agreed(stage, (LAYOUT,))
        writers = [
            TableWriter(stage, name, prepare_changes(stage, name, shape, LAYOUT.line), LAYOUT)
            for name, shape in shapes.items()
        ]
        case = run_case(
            stage,
            f"{rows:,} changes, {HOT_PERCENT} % in one bucket",
            f"{arguments.partitions} partitions of {BUCKETS} buckets, layout {LAYOUT.name}",
            writers,
            pairs={(SKEWED, UNIFORM): AIM},
            rounds=rounds,
            warm_up=ROUNDS.warm_up_of(arguments, is_warm=stage.is_warm),
        )
        if arguments.save:
            save(stage, "skew", "Skew", [case])
    return 0 if is_right and case["is_right"] else 1
