"""``hive-mutate compact``: make Hive compact the partitions of a table that have enough changes.

If there are fewer changes than the threshold, nothing is done and the command succeeds. The command can be
stopped and repeated; it then waits for the compaction that is already queued. It works for any ACID table.
"""

from __future__ import annotations

import argparse

from mutation_api.cli.parsers import add_flag, add_repeatable, describe, duration_from, seconds_from
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import progress, say_report
from mutation_api.upkeep.compact import (
    DELTA_ROWS_DEFAULT,
    ENGINES,
    KINDS,
    WAIT_SECONDS_DEFAULT,
    CompactionThreshold,
    compact_table,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__, fills_lines=True)
    parser.add_argument("table", metavar="DB.TABLE", help="Hive table to compact")
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="major",
        help="kind of compaction; rebalance requires Hive 4 (default: %(default)s)",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="hive",
        help="hive: let a worker of Hive compact; local: compact on this machine, which requires Hive 4 "
        "(default: %(default)s)",
    )
    add_flag(
        parser,
        "--without-queue",
        "with --engine local: compact on Hive 2.3 or 3.1, which have no queue for other programs, under "
        "the exclusive lock of the partition; see docs/compaction.md",
    )
    add_flag(
        parser,
        "--for-consumers",
        "with --engine local: compact only what all consumers of change feeds have read",
    )
    parser.add_argument(
        "--buckets",
        type=int,
        metavar="N",
        help="with --engine local --kind rebalance: number of files (default: as many as there are)",
    )
    add_repeatable(
        parser,
        "--sort-by",
        "COLUMN",
        "with --engine local --kind rebalance: sort the rows by this column, or in descending order by "
        "'COLUMN desc', so that readers skip more stripes (repeatable; default: the order of ROW__IDs)",
    )
    parser.add_argument(
        "--keep-old",
        type=duration_from,
        metavar="7d",
        help="with --engine local: keep the old files for this time, so that hive-mutate restore can bring "
        "them back (default: they are not kept)",
    )
    parser.add_argument(
        "--watermark-table",
        metavar="DB.TABLE",
        help="table of the consumers' positions (default: mutation_watermarks in the table's database)",
    )
    add_repeatable(
        parser, "--partition", "day=…", "compact only this partition (repeatable; default: all partitions)"
    )
    parser.add_argument(
        "--delta-threshold",
        type=int,
        metavar="ROWS",
        help=f"compact when the deltas hold at least this many rows (default: {DELTA_ROWS_DEFAULT:,}, unless "
        "another limit is given)",
    )
    parser.add_argument(
        "--delta-files",
        type=int,
        metavar="N",
        help="compact when the deltas consist of at least this many files",
    )
    parser.add_argument(
        "--delta-bytes", type=int, metavar="N", help="compact when the deltas have at least this many bytes"
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="number of compactions to run concurrently; with --engine local and one partition, of buckets "
        "(default: %(default)s)",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--wait",
        type=seconds_from,
        default=WAIT_SECONDS_DEFAULT,
        metavar="15m",
        help="maximum time to wait for each compaction, such as 90s, 15m or 2h (default: 15m)",
    )
    add_flag(group, "--no-wait", "request the compactions without waiting for them")
    add_flag(parser, "--json", "print the report as one JSON object")
    add_flag(parser, "--quiet", "do not report each step on standard error")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compact; return 0 if it is done, only requested (--no-wait), or not needed."""
    limits = (arguments.delta_threshold, arguments.delta_files, arguments.delta_bytes)
    threshold = CompactionThreshold() if limits == (None, None, None) else CompactionThreshold(*limits)
    with metastore_from(arguments) as metastore:
        report = compact_table(
            metastore,
            arguments.table,
            kind=arguments.kind,
            partitions=arguments.partition,
            threshold=threshold,
            at_once=arguments.at_once,
            engine=arguments.engine,
            without_queue=arguments.without_queue,
            for_consumers=arguments.for_consumers,
            watermark_table=arguments.watermark_table,
            keep_old=arguments.keep_old,
            num_buckets=arguments.buckets,
            sort_by=arguments.sort_by,
            wait_seconds=None if arguments.no_wait else arguments.wait,
            progress=progress(arguments),
        )
    say_report(report, as_json=arguments.json)
    return 0
