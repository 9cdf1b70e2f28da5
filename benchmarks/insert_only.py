"""Insert rows into an ACID table, beside Spark's ORC writer into plain files without ACID columns.

    python -m benchmarks insert_only                      # 10,000,000 rows in 30 partitions of 8 buckets
    python -m benchmarks insert_only --quick              # 1,000,000 rows

The rows lie in Parquet files, in random order. Spark's is ``repartition(ds, bucket)`` and ``write.orc`` by
partition and bucket, the buckets being given. Ours is a transaction, ``apply_changes`` and the commit, on
real metastores. Both compress by zlib. Before that Hive reads few rows in each layout, and must find them
right.
"""

from __future__ import annotations

import argparse

from benchmarks.data.event_data import BUCKETS, Shape
from benchmarks.measuring.arguments import Rounds, settings_from
from benchmarks.writing.write_case import agreed, run_case, save
from benchmarks.writing.write_input import prepare_inserts
from benchmarks.writing.write_stage import (
    LAYOUTS,
    Stage,
    add_common_arguments,
    add_partitions_argument,
)
from benchmarks.writing.writers import SparkWriter, TableWriter, plain_files

HELP = "insert rows, in turn with Spark's own writer of plain ORC files"

ROWS_DEFAULT = 10_000_000
QUICK_ROWS = 1_000_000
ROUNDS = Rounds(3, warm_up=2)
SPARK = "spark"
MEASURED = (LAYOUTS["split"], LAYOUTS["v2"])
"""The legacy layout has the same files of inserts as split."""
AIM = {"wall": 1.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_common_arguments(parser, rows=ROWS_DEFAULT, quick_rows=QUICK_ROWS, rounds=ROUNDS)
    add_partitions_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all contestants wrote everything and Hive agrees."""
    rows = QUICK_ROWS if arguments.quick else arguments.rows
    shape = Shape(rows, arguments.partitions)
    rounds = ROUNDS.measured_of(arguments)
    with Stage.opened(arguments.work, MEASURED, settings_from(arguments.spark)) as stage:
        is_right = arguments.quick or agreed(stage, MEASURED, inserts_only=True)
        prepared = {layout: prepare_inserts(stage, "rows", shape, layout.line) for layout in MEASURED}
        writers = [TableWriter(stage, layout.name, prepared[layout], layout) for layout in MEASURED]
        spark = SparkWriter(stage, SPARK, prepared[MEASURED[0]], plain_files, ("ds", "bucket_id"))
        case = run_case(
            stage,
            f"{rows:,} inserts, {shape.partitions:,} partitions",
            f"{BUCKETS} buckets a partition",
            [*writers, spark],
            pairs={(layout.name, SPARK): AIM for layout in MEASURED},
            rounds=rounds,
            warm_up=ROUNDS.warm_up_of(arguments, is_warm=stage.is_warm),
        )
        if arguments.save:
            save(stage, "insert_only", "Inserts alone", [case])
    return 0 if is_right and case["is_right"] else 1
