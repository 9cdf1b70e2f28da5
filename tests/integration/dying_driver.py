"""Drivers that are killed at a step of their own choosing; run as a program by test_commit_faults.

    python -m tests.integration.dying_driver URI TABLE=STEP…

Each driver is a process of its own and commits one transaction into its TABLE (partitioned by ds): one row
into ds='old', one into the new ds='new'. Every call to the metastore and every change of a directory is a
step; before step number STEP the driver kills itself. With STEP 0 it runs to the end and prints the steps,
one a line. The exit status is 0 if every driver ended as it should.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from metastore_client.thrift_client import connect
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.transaction import Transaction
from mutation_api.storage.local import LocalStorage
from mutation_api.worker.coordinator import MutatorCoordinator

STORAGE_STEPS = ("create_directory", "create", "stage", "publish", "sync_directory", "delete_directory")


class Steps:
    """Counts the steps after the transaction was opened, and dies before one of them."""

    def __init__(self, last: int) -> None:
        self.names: list[str] = []
        self.is_counting = False
        self._last = last

    def take(self, name: str) -> None:
        self.is_counting = self.is_counting or name == "lock"
        if not self.is_counting or name == "heartbeat_txn_range":
            return
        self.names.append(name)
        if len(self.names) == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def stepped(*arguments: Any, **options: Any) -> Any:
            self.take(name)
            return function(*arguments, **options)

        return stepped


class SteppedMetastore:
    """A metastore client whose calls are steps."""

    def __init__(self, client: Any, steps: Steps) -> None:
        self._client = client
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        return self._steps.wrap(name, getattr(self._client, name))


def drive(uri: str, full_name: str, last_step: int) -> None:
    steps = Steps(last_step)
    for name in STORAGE_STEPS:
        setattr(LocalStorage, name, steps.wrap(name, getattr(LocalStorage, name)))
    metastore: Any = SteppedMetastore(connect(uri), steps)
    database, table = full_name.split(".")
    client = (
        MutatorClientBuilder()
        .metastore(metastore)
        .add_sink_table(database, table, create_partitions=True)
        .build()
    )
    with client, client.new_transaction() as transaction:
        insert(transaction, full_name)
    steps.is_counting = False
    print("\n".join(steps.names), flush=True)


def insert(transaction: Transaction, full_name: str) -> None:
    with MutatorCoordinator(transaction.table(full_name)) as coordinator:
        for id, partition in ((1, "old"), (2, "new")):
            coordinator.insert([partition], {"id": id, "msg": "new row"})
    transaction.add_manifests(full_name, coordinator.writer_id, coordinator.close())


def main(uri: str, *drivers: str) -> int:
    """Run the drivers one after the other; forked, so that the imports are paid for once."""
    for driver in drivers:
        full_name, _, step = driver.partition("=")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                drive(uri, full_name, int(step))
                status = 0
            finally:
                os._exit(status)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != (0 if step == "0" else -signal.SIGKILL):
            print(f"{driver} ended with {ended}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
