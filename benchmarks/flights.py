"""Write a change set of real rows, beside Spark's own ORC writer on the same events.

    python -m benchmarks flights                          # 4,000,000 changes in 365 partitions of 8 buckets
    python -m benchmarks flights --quick                  # 1,000,000 changes

The same as ``write``, with the flights that left New York in 2013 instead of rows from formulas: twenty
columns, a partition for each day. Each flight comes several times, each time with a fresh key.
"""

from __future__ import annotations

import argparse

from benchmarks.data.flight_data import FLIGHT_COUNT, Flights
from benchmarks.measuring.arguments import Rounds, settings_from
from benchmarks.write import compare
from benchmarks.writing.write_case import agreed, save
from benchmarks.writing.write_stage import LAYOUTS, Stage, add_common_arguments

HELP = "write a change set of real flights, in turn with Spark's own ORC writer"

ROWS_DEFAULT = 4_000_000
QUICK_ROWS = 1_000_000
JUDGED_ROWS = 20_000
"""The change set that Hive reads back."""
ROUNDS = Rounds(3, warm_up=1)
MEASURED = tuple(LAYOUTS.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_common_arguments(parser, rows=ROWS_DEFAULT, quick_rows=QUICK_ROWS, rounds=ROUNDS)


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all contestants wrote everything and Hive agrees."""
    rows = QUICK_ROWS if arguments.quick else arguments.rows
    with Stage.opened(arguments.work, MEASURED, settings_from(arguments.spark)) as stage:
        file = stage.folder / "flights.parquet"
        Flights.unpack(file)
        is_right = agreed(stage, MEASURED, Flights(JUDGED_ROWS, file))
        case = compare(
            stage,
            "flights",
            Flights(rows, file),
            MEASURED,
            f"{rows:,} changes of {FLIGHT_COUNT:,} flights",
            aims_of={},
            rounds=ROUNDS.measured_of(arguments),
            warm_up=ROUNDS.warm_up_of(arguments, is_warm=stage.is_warm),
        )
        if arguments.save:
            save(stage, "flights", "Flights", [case])
    return 0 if is_right and case["is_right"] else 1
