"""The fourteen steps of Hive's own mutation API, in order, in a plain Python process without Spark.

    python -m examples.plain_python [METASTORE_URI]

A warehouse keeps its stock in a Hive table. A delivery brings one new article and more of another, and one
article is sold out: an insert, an update and a delete. The update and the delete require the ROW__IDs of
their rows, which the program first reads from the table's snapshot.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from examples.local import PrintLoss, create_table, metastore_address
from mutation_api import (
    ROW_ID_COLUMN,
    AcidTable,
    AcidTableSerializer,
    BucketIdResolver,
    MutatorClient,
    MutatorClientBuilder,
    MutatorCoordinator,
    RecordIdentifier,
    TableScan,
    Transaction,
    open_table,
)

TABLE = "default.stock"
INSERT, UPDATE, DELETE = range(3)

Record = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Load two articles, then run the procedure. Return 0 if the table holds the expected rows."""
    with metastore_address(arguments) as uri:
        create_table(uri, TABLE, "article bigint, name string, pieces int", "hall string", "article", 4)
        load(uri)
        rows = procedure(uri)
    print(f"the table holds {rows}")
    return 0 if rows == [(1, "bolt", 150, "east"), (3, "gear", 7, "west")] else 1


def load(uri: str) -> None:
    """Insert the first articles, one record at a time."""
    with _client(uri) as client, client.new_transaction() as transaction:
        with MutatorCoordinator(transaction.table(TABLE), writer_id="load") as coordinator:
            coordinator.insert(["east"], {"article": 1, "name": "bolt", "pieces": 100})
            coordinator.insert(["west"], {"article": 2, "name": "nut", "pieces": 40})
            manifests = coordinator.close()
        transaction.add_manifests(TABLE, "load", manifests)


def procedure(uri: str) -> list[tuple[Any, ...]]:
    """Run the fourteen steps."""
    # 1. Make a client for the transaction's tables, with a listener for a lost lock.
    client = _client(uri).connect()
    # 2. Open a transaction.
    transaction = client.new_transaction()
    # 3. Get the tables' descriptors; they are not bound to a transaction yet.
    (table,) = client.tables
    print(f"{table.full_name}: {table.num_buckets} buckets, {table.version.value}")
    # 4. Begin: the lock is taken, the heartbeat starts, the snapshot is fixed.
    transaction.begin()
    # 5. Make at least one coordinator per table. The encoded string would take the table to another machine.
    text = AcidTableSerializer.encode(transaction.table(TABLE))
    coordinator = MutatorCoordinator(AcidTableSerializer.decode(text), writer_id="delivery")
    # 6. Compute the changes.
    changes = compute_changes(transaction)
    # 7. Collect the partitions that they touch.
    halls = sorted({change["hall"] for change in changes})
    # 8. Append the bucket ids.
    append_bucket_ids(transaction.table(TABLE), changes)
    # 9. Group by partition and bucket. Within a group, existing rows come first, by ROW__ID, then the
    # inserts.
    changes.sort(key=lambda c: (c["hall"], c["bucket"], c["operation"] == INSERT, c.get(ROW_ID_COLUMN, ())))
    # 10. Issue them.
    for change in changes:
        issue(coordinator, change)
    # 11. Close the coordinators; their files are still hidden.
    transaction.add_manifests(TABLE, "delivery", coordinator.close())
    # 12. Commit (or abort). Missing partitions are created just before their files become visible.
    transaction.commit()
    with client.new_transaction() as reader:
        rows = read(reader)
    partitions = client.metastore.get_partition_names("default", "stock")
    # 13. Close the client.
    client.close()
    # 14. Create the partitions that do not exist. Step 12 has already done this.
    print(f"touched {halls}, partitions now {partitions}")
    return sorted((r["article"], r["name"], r["pieces"], r["hall"]) for r in rows)


def compute_changes(transaction: Transaction) -> list[Record]:
    """Compare the delivery with the snapshot: more bolts, no more nuts, new gears."""
    stock = {record["name"]: record for record in read(transaction)}
    bolt = {**stock["bolt"], "operation": UPDATE, "pieces": stock["bolt"]["pieces"] + 50}
    nut = {**stock["nut"], "operation": DELETE}
    gear = {"operation": INSERT, "article": 3, "name": "gear", "pieces": 7, "hall": "west"}
    return [gear, bolt, nut]


def read(transaction: Transaction) -> list[Record]:
    """Return all rows of the snapshot, each with its ROW__ID and its partition."""
    scan = TableScan(open_table(transaction, TABLE), row_ids=True)
    return [_record(row) for row in scan.to_arrow().to_pylist()]


def _record(row: Record) -> Record:
    writeid, bucketid, rowid, _ = row[ROW_ID_COLUMN].values()
    return {**row, ROW_ID_COLUMN: RecordIdentifier(writeid, bucketid, rowid)}


def append_bucket_ids(table: AcidTable, changes: list[Record]) -> None:
    """Add the bucket to which a row's CLUSTERED BY columns hash, since Hive looks for it there."""
    articles = pa.table({"article": pa.array(list(map(itemgetter("article"), changes)), pa.int64())})
    for change, bucket in zip(changes, BucketIdResolver(table).resolve(articles).to_pylist(), strict=True):
        change["bucket"] = bucket


def issue(coordinator: MutatorCoordinator, change: Record) -> None:
    """Pass one change to the coordinator."""
    record = {name: change[name] for name in ("article", "name", "pieces", ROW_ID_COLUMN) if name in change}
    calls = {INSERT: coordinator.insert, UPDATE: coordinator.update, DELETE: coordinator.delete}
    calls[change["operation"]]([change["hall"]], record)


def _client(uri: str) -> MutatorClient:
    builder = MutatorClientBuilder().metastore(uri).lock_failure_listener(PrintLoss())
    return builder.add_sink_table("default.stock", create_partitions=True).build()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
