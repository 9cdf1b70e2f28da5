"""Compactors that are killed at a step of their own choosing; run as a program by test_compactor_kills.

    python -m tests.integration.drivers.dying_compactor URI ACTION TABLE=STEP…

Each is a process of its own and does one of ACTIONS on its TABLE. Everything that changes the metastore or
the storage is a step. Before step number STEP the process kills itself. With STEP 0 it runs to
the end and prints the steps, one a line. The exit status is 0 if every process ended as it should.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from metastore_client.client import MetastoreClient
from metastore_client.remote.thrift_client import open_client
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.upkeep.compact import CompactionThreshold, compact_table
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.restore import restore_table
from tests.integration.drivers.steps import SteppedMetastore, Steps, run_forked

WEEK = timedelta(days=7)
CALLS_WITHOUT_EFFECT = ("get_", "show_", "capabilities", "together", "compaction_job")
MAJOR, MINOR, REBALANCE, KEEP, RESTORE = "major", "minor", "rebalance", "keep", "restore"
TOGETHER = "partitions together"
PAST_QUEUE, KEEP_PAST_QUEUE = "past queue", "keep past queue"
ACTIONS: dict[str, Callable[[MetastoreClient, str], object]] = {
    MAJOR: lambda metastore, table: compact_partition(metastore, table, threads=1),
    MINOR: lambda metastore, table: compact_partition(metastore, table, kind="minor", threads=1),
    REBALANCE: lambda metastore, table: compact_partition(
        metastore, table, kind="rebalance", num_buckets=2, sort_by=["id desc"], threads=1
    ),
    KEEP: lambda metastore, table: compact_partition(metastore, table, keep_old=WEEK, threads=1),
    PAST_QUEUE: lambda metastore, table: compact_partition(metastore, table, without_queue=True, threads=1),
    KEEP_PAST_QUEUE: lambda metastore, table: compact_partition(
        metastore, table, without_queue=True, keep_old=WEEK, threads=1
    ),
    TOGETHER: lambda metastore, table: compact_table(
        metastore, table, threshold=CompactionThreshold(None, file_count=1), engine="local"
    ),
    RESTORE: lambda metastore, table: restore_table(metastore, table),
}


def act(uri: str, action: str, full_name: str, last_step: int) -> None:
    """Do the action, with one thread, so that the steps have one order."""
    with open_client(uri) as client:
        steps = Steps(last_step, without=CALLS_WITHOUT_EFFECT)
        table = client.get_table(*full_name.split("."))
        steps.wrap_storage(type(storage_at(Location.parse(table.location))))
        metastore: Any = SteppedMetastore(client, steps)
        ACTIONS[action](metastore, full_name)
        steps.is_counting = False
        print("\n".join(steps.names), flush=True)


def main(uri: str, action: str, *compactors: str) -> int:
    """Run the compactors."""
    return run_forked(compactors, lambda full_name, step: act(uri, action, full_name, step))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
