"""Write a mixed change set into an ACID table, beside Spark's own ORC writer on the same events.

    python -m benchmarks write                            # 10,000,000 changes; 1, 30 and 1,000 partitions
    python -m benchmarks write --quick                    # 1,000,000 changes; 1, 30 and 100 partitions
    python -m benchmarks write --partitions 30 --layouts split,legacy --rows 200000

Four tenths of the changes are inserts, five updates, one deletes, in random order; the table has as many rows
as there are changes, 8 buckets in each partition, and Parquet files hold the change set. Ours is the job that
a user runs: a transaction, ``apply_changes``, the commit, on real metastores. Spark's is
``repartition(ds, bucket)``, ``sortWithinPartitions(ds, bucket, transaction, row id)``, ``write.orc`` by
partition and bucket; it is given the buckets, numbers no new rows, writes each update as one event (as the
legacy layout does; in the others it is two), no index by key and no statistics, and has nothing to commit.
Both compress by zlib.

Before that Hive reads a small table in each layout and must find the right content.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.data.event_data import BUCKETS, RowSource, Shape
from benchmarks.measuring.arguments import Rounds, integers, settings_from
from benchmarks.writing.write_case import agreed, layouts_of, run_case, save
from benchmarks.writing.write_input import prepare_changes
from benchmarks.writing.write_stage import LAYOUTS, Layout, Stage, add_common_arguments
from benchmarks.writing.writers import SparkWriter, TableWriter, sorted_events

HELP = "write a mixed change set, in turn with Spark's own ORC writer"

ROWS_DEFAULT = 10_000_000
QUICK_ROWS = 1_000_000
PARTITIONS_DEFAULT = (1, 30, 1_000)
QUICK_PARTITIONS = (1, 30, 100)
"""A hundred have as many rows each as a thousand have in the whole run."""
ROUNDS = Rounds(3, warm_up=1)
SPARK = "spark"
SPARK_LINE = "2.3"
"""Whose ROW__IDs the events have that Spark writes."""

AIMS = {
    ("split", 30): 0.45,
    ("v2", 30): 0.45,
    ("legacy", 30): 0.6,
    ("split", 1_000): 0.2,
    ("v2", 1_000): 0.2,
    ("legacy", 1_000): 0.2,
}
"""Aims for wall and CPU seconds by layout and number of partitions, as a share of Spark's."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_common_arguments(parser, rows=ROWS_DEFAULT, quick_rows=QUICK_ROWS, rounds=ROUNDS)
    parser.add_argument("--partitions", type=integers, help="numbers of partitions, with commas")
    parser.add_argument(
        "--layouts", type=layouts_of, default=tuple(LAYOUTS.values()), help=f"of {', '.join(LAYOUTS)}"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if everybody wrote everything and Hive agrees."""
    layouts: tuple[Layout, ...] = arguments.layouts
    rows = QUICK_ROWS if arguments.quick else arguments.rows
    rounds = ROUNDS.measured_of(arguments)
    partitions = arguments.partitions or (QUICK_PARTITIONS if arguments.quick else PARTITIONS_DEFAULT)
    needed = (*layouts, LAYOUTS["split"])
    with Stage.opened(arguments.work, needed, settings_from(arguments.spark)) as stage:
        is_right = agreed(stage, layouts)
        cases = []
        for count in partitions:
            warm_up = ROUNDS.warm_up_of(arguments, is_warm=stage.is_warm)
            label = f"{rows:,} changes, {count:,} partition{'' if count == 1 else 's'}"
            aims_of = {layout.name: aims(layout, count) for layout in layouts}
            source = Shape(rows, count)
            cases.append(compare(stage, f"p{count}", source, layouts, label, aims_of, rounds, warm_up))
        if arguments.save:
            save(stage, "write", "Mixed change sets", cases)
    return 0 if is_right and all(case["is_right"] for case in cases) else 1


def compare(
    stage: Stage,
    name: str,
    source: RowSource,
    layouts: Sequence[Layout],
    label: str,
    aims_of: Mapping[str, Mapping[str, float]],
    rounds: int,
    warm_up: int,
) -> dict[str, Any]:
    """Measure layouts and Spark in turn on the change set of a source.

    Args:
        stage: where.
        name: no other change set's on this stage.
        source: of the rows.
        layouts: of our tables.
        label: the case's name.
        aims_of: some layouts, by name; as :func:`aims` gives them.
        rounds: measured ones.
        warm_up: unmeasured rounds before.
    """
    lines = sorted({SPARK_LINE, *(layout.line for layout in layouts)})
    prepared = {line: prepare_changes(stage, name, source, line) for line in lines}
    counts = prepared[SPARK_LINE].counts
    writers = [TableWriter(stage, layout.name, prepared[layout.line], layout) for layout in layouts]
    spark = SparkWriter(stage, SPARK, prepared[SPARK_LINE], sorted_events, ("ds", "bucket_id"))
    pairs = {(layout.name, SPARK): aims_of.get(layout.name, {}) for layout in layouts}
    text = f"{', '.join(f'{count:,} {operation}s' for operation, count in sorted(counts.items()))}; "
    partitions = len(prepared[SPARK_LINE].partitions)
    text += f"{partitions:,} partition{'' if partitions == 1 else 's'} of {BUCKETS} buckets"
    return run_case(stage, label, text, [*writers, spark], pairs=pairs, rounds=rounds, warm_up=warm_up)


def aims(layout: Layout, partitions: int) -> dict[str, float]:
    """What a layout should not exceed; nothing where nothing was set."""
    aim = AIMS.get((layout.name, partitions))
    return {} if aim is None else {"wall": aim, "cpu": aim}
