"""Write a mixed change set into a table on HDFS, beside the same on the local disk.

    python -m benchmarks storage                          # 10,000,000 changes; 30 and 1,000 partitions
    python -m benchmarks storage --quick                  # 1,000,000 changes; 30 and 100 partitions

The change sets are those of ``write``: four tenths inserts, five updates, one deletes, into as many rows, 8
buckets in each partition, in the layout of split update, so that each bucket gets two files. Ours is the job
that a user runs, the commit included. HDFS is a real one, a NameNode and a DataNode in one JVM of this
machine, which they share with the job: the processor time that they take is counted, too. As such servers run
for months, theirs has written other files before anything is measured, until Java has compiled what they use.

Before that Hive reads a small table on HDFS and must find the right content.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from benchmarks.data.event_data import BUCKETS, Shape
from benchmarks.measuring.arguments import Rounds, integers, settings_from
from benchmarks.measuring.measure import tell
from benchmarks.writing.storage_case import HDFS, RemoteWriter, warm
from benchmarks.writing.write_case import JUDGED, hive_content, run_case, save
from benchmarks.writing.write_input import prepare_changes
from benchmarks.writing.write_stage import LAYOUTS, Stage, add_common_arguments
from benchmarks.writing.writers import TableWriter
from judges.storages.hdfs_cluster import MiniHdfs
from mutation_api import HadoopSettings, Location, configure_storage

HELP = "write a mixed change set on HDFS, in turn with the same on the local disk"

ROWS_DEFAULT = 10_000_000
QUICK_ROWS = 1_000_000
PARTITIONS_DEFAULT = (30, 1_000)
QUICK_PARTITIONS = (30, 100)
ROUNDS = Rounds(3, warm_up=1)
LAYOUT = LAYOUTS["split"]
LOCAL = "local"
AIMS = {30: {"wall": 1.25}, 1_000: {"wall": 2.0}}
"""The aim for HDFS by number of partitions, as a multiple of the local disk."""
ROOT = "/bench"
WARMING_FILES = 20_000
QUICK_WARMING_FILES = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_common_arguments(parser, rows=ROWS_DEFAULT, quick_rows=QUICK_ROWS, rounds=ROUNDS)
    parser.add_argument("--partitions", type=integers, help="numbers of partitions, with commas")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if everybody wrote everything and Hive agrees."""
    rows = QUICK_ROWS if arguments.quick else arguments.rows
    rounds = ROUNDS.measured_of(arguments)
    partitions = arguments.partitions or (QUICK_PARTITIONS if arguments.quick else PARTITIONS_DEFAULT)
    with (
        Stage.opened(arguments.work, [LAYOUT], settings_from(arguments.spark)) as stage,
        hdfs_beside(stage, QUICK_WARMING_FILES if arguments.quick else WARMING_FILES) as hdfs,
    ):
        is_right = hive_agrees(stage, hdfs)
        cases = []
        for count in partitions:
            warm_up = ROUNDS.warm_up_of(arguments, is_warm=stage.is_warm)
            cases.append(compare(stage, hdfs, Shape(rows, count), rounds, warm_up))
        if arguments.save:
            save(stage, "storage", "Change sets on HDFS", cases)
    return 0 if is_right and all(case["is_right"] for case in cases) else 1


def compare(stage: Stage, hdfs: MiniHdfs, shape: Shape, rounds: int, warm_up: int) -> dict[str, Any]:
    """Measure HDFS and the local disk in turn; gives the case."""
    prepared = prepare_changes(stage, f"p{shape.partitions}", shape, LAYOUT.line)
    counts = prepared.counts
    text = f"{', '.join(f'{count:,} {operation}s' for operation, count in sorted(counts.items()))}; "
    text += f"{len(prepared.partitions):,} partitions of {BUCKETS} buckets"
    writers = [
        RemoteWriter(stage, HDFS, prepared, LAYOUT, _root(hdfs), stage.folder / HDFS),
        TableWriter(stage, LOCAL, prepared, LAYOUT),
    ]
    return run_case(
        stage,
        f"{shape.rows:,} changes, {shape.partitions:,} partitions",
        text,
        writers,
        pairs={(HDFS, LOCAL): AIMS.get(shape.partitions, {})},
        rounds=rounds,
        warm_up=warm_up,
    )


def hive_agrees(stage: Stage, hdfs: MiniHdfs) -> bool:
    """Write few rows on HDFS, and have Hive read them; whether it finds the right content."""
    prepared = prepare_changes(stage, "judged", JUDGED, LAYOUT.line)
    expected = JUDGED.expected(stage.spark)
    writer = RemoteWriter(stage, HDFS, prepared, LAYOUT, _root(hdfs), stage.folder / HDFS)
    with contextlib.closing(writer):
        writer.contestant.prepare(0)
        writer.contestant.run(0)
    with stage.servers[LAYOUT.line].judge() as judge:
        stage.versions |= {judge.description, hdfs.description}
        is_right = hive_content(judge, writer.table, JUDGED.checksums) == expected
    tell(f"Hive {LAYOUT.line} {'agrees' if is_right else 'DISAGREES'} on {writer.table} on HDFS")
    return is_right


@contextlib.contextmanager
def hdfs_beside(stage: Stage, warming_files: int) -> Iterator[MiniHdfs]:
    """An HDFS that is warm, which this process and Spark's workers find and the stage counts."""
    folder = stage.folder / HDFS
    folder.mkdir()
    with MiniHdfs(folder, is_measured=True) as hdfs:
        hdfs.make_directory(ROOT, mode="777")
        stage.kinds[hdfs.pid] = HDFS
        configure_storage(HadoopSettings(hdfs.settings))
        try:
            warm(_root(hdfs) / "warming", warming_files)
            yield hdfs
        finally:
            configure_storage(None)


def _root(hdfs: MiniHdfs) -> Location:
    return Location.parse(hdfs.location) / ROOT.lstrip("/")
