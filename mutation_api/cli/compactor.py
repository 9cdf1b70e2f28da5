"""``hive-mutate compactor``: compact tables of Hive 4 in place of a HiveServer2.

It takes minor and major compactions from the metastore's queue and does them on this machine. The new files
are compared with the old ones, row by row, before anything becomes visible. The metastore's cleaner then
removes the old files:

  hive-mutate compactor --follow 60

Several may run at the same time, together with Hive's own workers. With --pool, only compactions that were
requested for that pool are taken (ALTER TABLE … COMPACT 'major' POOL 'name'); without it, those of no pool.
With --follow, a compaction that fails is printed on standard error and shown as failed in the queue, and the
command goes on.
"""

from __future__ import annotations

import argparse

from mutation_api.cli.parsers import add_flag, describe, duration_from
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say_aside, say_report
from mutation_api.errors import CompactionError, ReadError, RecordValueError
from mutation_api.transaction.clock import SystemClock
from mutation_api.upkeep.compactor import THREADS_DEFAULT, compact_next


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__)
    parser.add_argument("--pool", help="take only compactions that were requested for this pool")
    parser.add_argument(
        "--follow",
        type=float,
        metavar="SECONDS",
        help="keep running, and check the queue again at this interval (default: end when it is empty)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=THREADS_DEFAULT,
        metavar="N",
        help="number of buckets to compact at once; each holds a stripe of each of its files in memory "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--keep-old",
        type=duration_from,
        metavar="7d",
        help="keep the old files for this time, so that hive-mutate restore can bring them back (default: "
        "they are not kept)",
    )
    add_flag(parser, "--json", "print each result as a JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compact until the queue is empty, or for ever with --follow."""
    if arguments.follow is not None and arguments.follow <= 0:
        arguments.refuse_usage("--follow requires seconds above 0")
    if arguments.threads < 1:
        arguments.refuse_usage("--threads requires at least 1")
    with metastore_from(arguments) as metastore:
        while True:
            try:
                while (
                    done := compact_next(
                        metastore,
                        pool=arguments.pool,
                        threads=arguments.threads,
                        keep_old=arguments.keep_old,
                    )
                ) is not None:
                    say_report(done, as_json=arguments.json)
            except (CompactionError, ReadError, RecordValueError) as error:
                # The queue shows this compaction as failed, and the next one may be of another table.
                if arguments.follow is None:
                    raise
                say_aside(f"{type(error).__name__}: {error}")
            if arguments.follow is None:
                return 0
            SystemClock().sleep(arguments.follow)
