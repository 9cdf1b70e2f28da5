"""The same steps by the engine without Spark and by Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from mutation_api import MutatorClientBuilder, Transaction, apply_changes, connect, merge_into, read_table


@dataclass(frozen=True)
class Engine:
    """Reads and changes tables of a metastore; ``spark`` is None for the engine without Spark."""

    target: str | Mapping[str, str]
    spark: SparkSession | None

    def rows(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        values: Mapping[str, Sequence[Any]] | None = None,
    ) -> pa.Table:
        """Rows in the order of their ids, without ROW__ID; of ``values`` only those that have one of them."""
        wanted = None if columns is None else list(dict.fromkeys(["id", *columns]))
        if self.spark is None:
            condition = None
            for column, found in (values or {}).items():
                each = pc.field(column).isin(found)
                condition = each if condition is None else condition & each
            with connect(self.target) as hive, hive.snapshot(name) as view:
                return view.table(name).scan(wanted, where=condition).to_arrow().sort_by("id")
        builder = MutatorClientBuilder().metastore(self.target)
        with builder.build() as client, client.open_snapshot(name) as view:
            frame = read_table(view, name, spark=self.spark, columns=wanted).drop("ROW__ID")
            for column, found in (values or {}).items():
                frame = frame.where(col(column).isin(list(found)))
            return frame.toArrow().sort_by("id")

    def append(self, name: str, rows: pa.Table) -> None:
        """Append rows; partitions are created."""
        if self.spark is None:
            with connect(self.target) as hive, hive.transaction(name, create_partitions=True) as tx:
                tx.table(name).append(rows)
            return
        inserts = rows.append_column("operation", pa.array(["insert"] * rows.num_rows))
        with self._transaction(name) as transaction:
            apply_changes(transaction, name, self.spark.createDataFrame(inserts))

    def merge(
        self,
        name: str,
        source: pa.Table,
        on: Sequence[str],
        *,
        inserts: bool = False,
        null_safe: bool = False,
    ) -> None:
        """Update the other columns of the source in rows that match, and insert the others if wanted."""
        others = {column: column for column in source.column_names if column not in on}
        if self.spark is None:
            with connect(self.target) as hive, hive.transaction(name, create_partitions=True) as tx:
                local = tx.table(name).merge(source, on=on, null_safe=null_safe).when_matched_update(others)
                if inserts:
                    local = local.when_not_matched_insert_all()
                local.execute()
            return
        with self._transaction(name) as transaction:
            frame = self.spark.createDataFrame(source)
            merge = merge_into(transaction, name, source=frame, on=list(on), null_safe=null_safe)
            merge = merge.whenMatched().update({column: f"source.{column}" for column in others})
            if inserts:
                merge = merge.whenNotMatched().insertAll()
            merge.execute()

    @contextlib.contextmanager
    def _transaction(self, name: str) -> Iterator[Transaction]:
        builder = MutatorClientBuilder().metastore(self.target).add_sink_table(name, create_partitions=True)
        with builder.build() as client, client.new_transaction() as transaction:
            yield transaction
