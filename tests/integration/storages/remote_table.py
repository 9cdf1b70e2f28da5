"""A table that does not lie on the local disk, written and read without Spark, and judged by Hive."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from judges.hive.judge import HiveJudge
from metastore_client.client import MetastoreClient
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.manifest import STAGING_PREFIX
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.sweep import sweep
from mutation_api.write.coordinator import MutatorCoordinator


def create(hive: HiveJudge, name: str) -> None:
    hive.sql(
        f"CREATE TABLE {name} (id int, msg string) PARTITIONED BY (ds string) CLUSTERED BY (id) "
        "INTO 2 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true')"
    )


def client_of(hive: HiveJudge, name: str) -> MutatorClient:
    return builder_of(hive.uri, name).build()


def builder_of(metastore: Any, name: str) -> MutatorClientBuilder:
    """A builder with the table as a sink."""
    database, table = name.split(".")
    return MutatorClientBuilder().metastore(metastore).add_sink_table(database, table, create_partitions=True)


def insert(transaction: Transaction, name: str, rows: dict[str, list[int]]) -> None:
    resolver = BucketIdResolver(transaction.table(name))
    with MutatorCoordinator(transaction.table(name)) as coordinator:
        for partition, ids in rows.items():
            batch = pa.table({"id": pa.array(ids, pa.int32()), "msg": [f"m{number}" for number in ids]})
            buckets = resolver.resolve(batch.to_batches()[0])
            coordinator.insert([partition], batch.take(pc.sort_indices(buckets)))
    transaction.add_manifests(name, coordinator.writer_id, coordinator.close())


def rows_with_ids(transaction: Transaction, name: str) -> list[tuple[str, dict[str, Any]]]:
    """What the transaction sees: partition and row."""
    table, valid = transaction.table(name), transaction.valid_ids(name)
    return [
        (partition.name, row)
        for partition in transaction.partitions(name)
        for split in plan_splits(
            table, partition.name, table.partition_location(partition.name), valid, transaction.valid_txn_list
        )
        for batch in read_split(table, split, valid)
        for row in batch.to_pylist()
    ]


def change(transaction: Transaction, name: str) -> None:
    """Delete odd ids and give the others another text."""
    found = rows_with_ids(transaction, name)
    with MutatorCoordinator(transaction.table(name)) as coordinator:
        for partition, row in found:
            value = [partition.partition("=")[2]]
            if row["id"] % 2:
                coordinator.delete(value, row)
            else:
                coordinator.update(value, {**row, "msg": f"new{row['id']}"})
    transaction.add_manifests(name, coordinator.writer_id, coordinator.close())


def seen(hive: HiveJudge, name: str) -> list[tuple[str, ...]]:
    """Both readers' answer: id, text and partition."""
    rows = hive.table_rows(name)
    return sorted((row.values[0], row.values[1], row.partition) for row in rows)  # type: ignore[misc]


def text_for_judge(place: Location) -> str:
    """A place as the judge takes it, with its scheme only if it lies elsewhere."""
    return place.path if place.scheme == "file" else str(place)


def check_nothing_is_left(metastore: MetastoreClient, database: str) -> None:
    """Nothing of ours lies hidden in any table once what the dead left was swept."""
    for table in sweep(metastore, database):
        assert table.removed == table.found, table
        if table.reason is None:
            info = metastore.get_table(*table.table.split("."))
            assert hidden(Location.parse(info.location)) == []


def hidden(location: Location) -> list[str]:
    """What of ours lies hidden below a place, unfinished uploads included."""
    return _hidden_files(location) + [
        str(each.location) for each in storage_at(location).unfinished(location)
    ]


def _hidden_files(location: Location) -> list[str]:
    found = []
    for entry in files_in(location):
        if entry.name.startswith(STAGING_PREFIX):
            found.append(str(entry.location))
        elif entry.is_directory:
            found += _hidden_files(entry.location)
    return found


def files_in(directory: Location) -> list[FileEntry]:
    """What a directory holds; nothing if it is not there, as an empty one of an object store."""
    try:
        return storage_at(directory).list(directory)
    except FileNotFoundError:
        return []


def check_turns(hive: HiveJudge, name: str) -> Location:
    """Our rows, SQL's changes over them, ours over SQL's, compactions: Hive reads all of it right."""
    create(hive, name)
    with client_of(hive, name) as client:
        with client.new_transaction() as transaction:
            insert(transaction, name, {"a": [1, 2, 3, 4], "b": [5, 6]})
        everything = [(n, f"m{n}", "ds=a" if n < 5 else "ds=b") for n in range(1, 7)]
        assert seen(hive, name) == everything
        hive.sql(f"UPDATE {name} SET msg = 'sql' WHERE id = 2")
        hive.sql(f"DELETE FROM {name} WHERE id = 4")
        hive.sql(f"INSERT INTO {name} PARTITION (ds='b') VALUES (8, 'm8')")
        with client.new_transaction() as transaction:
            found = sorted((row["id"], row["msg"]) for _, row in rows_with_ids(transaction, name))
            assert found == [(1, "m1"), (2, "sql"), (3, "m3"), (5, "m5"), (6, "m6"), (8, "m8")]
            change(transaction, name)
        after = [(2, "new2", "ds=a"), (6, "new6", "ds=b"), (8, "new8", "ds=b")]
        assert seen(hive, name) == after
        for kind in ("minor", "major"):
            for partition in ("a", "b"):
                hive.compact(name, kind, partition=f"ds='{partition}'")
            assert seen(hive, name) == after
        with client.new_transaction() as transaction:
            insert(transaction, name, {"c": [10]})
        assert seen(hive, name) == sorted([*after, (10, "m10", "ds=c")])
        location = client.tables[0].location
        assert hidden(location) == []
    return location
