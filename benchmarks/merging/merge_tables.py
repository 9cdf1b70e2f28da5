"""Hive tables of the benchmark of merges: loaded once, then brought back by links to the same files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyspark.sql.functions as sf
from pyspark.sql import SparkSession

from benchmarks.data.merge_data import COLUMNS
from examples.local import PrintLoss, create_table
from metastore_client import EmbeddedMetastore
from mutation_api import MutatorClient, MutatorClientBuilder, apply_changes

BUCKETS = 8
LAYOUT = "default"
"""Hive 2.3's layout with split update, in which an update is a delete and an insert."""


class HiveTables:
    """Tables bucketed by one column or another, with the same rows.

    Args:
        metastore: where they are created; a fresh one, that has seen no transaction but ours.
        cache: folder that keeps the files of loaded tables from one run to the next.
        base: Parquet files of the rows.
    """

    def __init__(self, metastore: EmbeddedMetastore, cache: Path, base: Path) -> None:
        self._metastore = metastore
        self._cache = cache
        self._base = base
        self.names: list[str] = []

    def create(self, spark: SparkSession, name: str, bucket_column: str, layout: str = LAYOUT) -> Path:
        """Create a table with the first contents; its files are links to those of the cache.

        Args:
            spark: the session, for a table that is not in the cache.
            name: without its database.
            bucket_column: the CLUSTERED BY column.
            layout: ``default`` or ``legacy``; the files of inserts are the same in both.

        Returns:
            The table's folder.
        """
        self.names.append(name)
        create_table(
            self._metastore.uri, f"default.{name}", COLUMNS, "", bucket_column, BUCKETS, layout=layout
        )
        folder = self._metastore.warehouse / name
        kept = self._cache / f"hive-{bucket_column}"
        with self.client(name) as client:
            if kept.exists():
                _let_pass(client, max(map(_txn_id, kept.glob("delta_*"))))
                linked_copy(kept, folder)
            else:
                self._load(client, spark, name)
                linked_copy(folder, kept)
        return folder

    def client(self, name: str) -> MutatorClient:
        """A client, not connected yet, that may write the table."""
        builder = MutatorClientBuilder().metastore(self._metastore.uri).lock_failure_listener(PrintLoss())
        return builder.add_sink_table("default", name).build()

    def _load(self, client: MutatorClient, spark: SparkSession, name: str) -> None:
        rows = spark.read.parquet(str(self._base)).withColumn("operation", sf.lit("insert"))
        with client.new_transaction() as transaction:
            apply_changes(transaction, f"default.{name}", rows)


def linked_copy(source: Path, target: Path) -> None:
    """Copy a folder whose files are never modified; the copy's files are hard links."""
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, copy_function=os.link)
    if target.exists():
        target.rmdir()
    partial.rename(target)


def _let_pass(client: MutatorClient, txn_id: int) -> None:
    """Commit empty transactions until the one that wrote the kept files is among the past ones."""
    while True:
        with client.new_transaction() as transaction:
            last = transaction.txn_id
        if last >= txn_id:
            return


def _txn_id(delta: Path) -> int:
    return int(delta.name.split("_")[2])
