"""Drivers that are killed at a step of their own choosing; run as a program by test_commit_faults.

    python -m tests.integration.drivers.dying_driver URI WRITER TABLE=STEP…

Each driver is a process of its own and commits one transaction into its TABLE (partitioned by ds): one row
into ds='old', one into the new ds='new'. The WRITER is one of WRITERS, or STEPS. Every call to the metastore,
everything that changes the storage in which the table lies, and every request to an object store is a step;
before step number STEP the driver kills itself. With STEP 0 it runs to the end and prints the steps, one a
line. The exit status is 0 if every driver ended as it should.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from metastore_client.remote.thrift_client import open_client
from mutation_api.hive.hive_table import HiveTable
from mutation_api.hive.hive_transaction import HiveTransaction
from mutation_api.merge.local_merge import local_merge
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.coordinator import MutatorCoordinator
from mutation_api.write.local_plan import LocalOptions
from tests.integration.drivers.steps import SteppedMetastore, Steps, run_forked


def drive(uri: str, writer: str, full_name: str, last_step: int) -> None:
    steps = Steps(last_step, "lock")
    metastore: Any = SteppedMetastore(open_client(uri), steps)
    database, table = full_name.split(".")
    steps.wrap_storage(type(storage_at(Location.parse(metastore.get_table(database, table).location))))
    client = (
        MutatorClientBuilder()
        .metastore(metastore)
        .add_sink_table(database, table, create_partitions=True)
        .build()
    )
    if writer == STEPS:
        with HiveTransaction(client, LocalOptions(threads=1), None) as several:
            several_steps(several.table(full_name))
    else:
        with client, client.new_transaction() as transaction:
            WRITERS[writer](transaction, full_name)
    steps.is_counting = False
    print("\n".join(steps.names), flush=True)


def insert(transaction: Transaction, full_name: str) -> None:
    with MutatorCoordinator(transaction.table(full_name)) as coordinator:
        for id, partition in ((1, "old"), (2, "new")):
            coordinator.insert([partition], {"id": id, "msg": "new row"})
    transaction.add_manifests(full_name, coordinator.writer_id, coordinator.close())


def merge(transaction: Transaction, full_name: str) -> None:
    """The same by the local engine; by one thread, so that the steps have one order."""
    rows = pa.table({"id": [1, 2], "msg": ["new row"] * 2, "ds": ["old", "new"]})
    merging = local_merge(transaction, full_name, source=rows, on=["id", "ds"], local=LocalOptions(threads=1))
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def several_steps(table: HiveTable) -> None:
    """The same by six steps, each of which reads what the ones before wrote."""
    rows = pa.table({"id": [1, 2, 9], "msg": ["draft"] * 3, "ds": ["old", "new", "old"]})
    table.append(rows)
    table.update(set={"msg": "'second draft'"}, where="id < 3 AND msg = 'draft'")
    table.delete(where="msg = 'draft'")
    table.upsert(pa.table({"id": [1], "msg": ["new row"], "ds": ["old"]}), on=["id", "ds"])
    table.overwrite(
        pa.table({"id": [2], "msg": ["second draft"], "ds": ["new"]}), where="msg = 'second draft'"
    )
    table.update(set={"msg": "'new row'"}, where="id = 2")


STEPS = "steps"
WRITERS = {"coordinator": insert, "local-merge": merge}


def main(uri: str, writer: str, *drivers: str) -> int:
    """Run the drivers."""
    return run_forked(drivers, lambda full_name, step: drive(uri, writer, full_name, step))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
