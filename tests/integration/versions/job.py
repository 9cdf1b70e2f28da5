"""A program that does with Spark what change sets need, for ``test_spark_versions.py`` to judge.

It is run by another interpreter, with another version of pyspark: ``python -m …job METASTORE DATABASE FOLDER
STEP…``. It prints one line of JSON: what each step found that the judge cannot see.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pyspark.sql.functions as sf
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, VarcharType

import metastore_client
from metastore_client import ColumnInfo
from mutation_api import (
    MergeInto,
    MutationError,
    MutatorClient,
    MutatorClientBuilder,
    Transaction,
    apply_changes,
    changes_position,
    connect,
    create_acid_table,
    create_table,
    diff,
    local_spark_session,
    merge_into,
    read_table,
    table_changes,
)
from mutation_api.cdc import DebeziumSource, TableMapping, ingest
from tests.support.json_messages import CHANGES, ORDERS, debezium, write_log

cloudpickle.register_pickle_by_value(sys.modules[__name__])

FEW_BYTES = "spark.hive.mutation.fewBytes"
ROWS = 60
"""Rows of the tables in the beginning: ids from 0 on, in three partitions and four buckets."""

COLUMNS = {
    "id": "bigint",
    "n": "int",
    "price": "decimal(20,2)",
    "name": "varchar(4)",
    "at": "timestamp",
    "parts": "array<struct<a:int,b:string>>",
    "ds": "string",
}

BIGGEST = 2**31 - 1

Clauses = Callable[[MergeInto], MergeInto]


class Job:
    """The steps. Each makes a table of its own, but what is refused is tried on that of the merge."""

    def __init__(self, spark: SparkSession, metastore: str, database: str, folder: Path) -> None:
        self.spark = spark
        self.uri = metastore
        self.database = database
        self.folder = folder
        self.metastore = metastore_client.open_client(metastore)

    def rows(self, count: int = ROWS) -> DataFrame:
        """Rows of a table, of every kind of type that travels in its own way."""
        return (
            self.spark.range(0, count, 1, 3)
            .selectExpr(
                "id",
                "cast(id % 7 as int) as n",
                "cast(id as decimal(20,0)) / 4 as price",
                "concat('é', id) as name",
                "timestamp_ntz'1600-02-28 23:59:59.000001' + make_dt_interval(cast(id as int)) as at",
                "array(named_struct('a', cast(id as int), 'b', cast(null as string))) as parts",
                "concat('d', id % 3) as ds",
            )
            .withColumn("price", sf.col("price").cast("decimal(20,2)"))
        )

    def table(self, name: str) -> str:
        """A table with these rows, which tasks inserted."""
        full_name = f"{self.database}.{name}"
        rows = self.rows()
        schema = StructType([_shorter(field) for field in rows.schema.fields])
        create_table(
            self.metastore, full_name, schema, partitioned_by=["ds"], clustered_by=["id"], num_buckets=4
        )
        self.change(full_name, rows.withColumn("operation", sf.lit("insert")))
        return full_name

    def client(self, name: str) -> MutatorClient:
        builder = MutatorClientBuilder().metastore(self.uri).add_sink_table(name, create_partitions=True)
        return builder.build()

    def in_transaction(self, name: str, do: Callable[[Transaction], Any]) -> Any:
        with self.client(name) as client, client.new_transaction() as transaction:
            return do(transaction)

    def change(self, name: str, changes: DataFrame) -> None:
        self.in_transaction(name, lambda transaction: apply_changes(transaction, name, changes))

    def refused(self, do: Callable[[], object]) -> list[str]:
        """Class and text of our error."""
        try:
            do()
        except MutationError as error:
            return [type(error).__name__, str(error)]
        return ["nothing was refused", ""]

    # -- steps ---------------------------------------------------------------------------------------------
    def in_brief(self) -> Any:
        """All outcomes of a merge by tasks into rows that this process wrote without Spark."""
        name = f"{self.database}.in_brief"
        *columns, ds = [ColumnInfo(column, kind) for column, kind in COLUMNS.items()]
        create_acid_table(self.metastore, name, columns, [ds], clustered_by=["id"], num_buckets=4)
        with connect(self.uri) as hive, hive.transaction(name, create_partitions=True) as transaction:
            transaction.table(name).append(first_rows())
        return self.merge(name, self.source(), self.clauses)

    def changed_by_tasks(self) -> Any:
        """Updates, deletes and inserts by ROW__ID; an attempt of each task that reads fails once."""
        name = self.table("by_tasks")
        marks = self.folder / "attempts"
        marks.mkdir()

        def change(transaction: Transaction) -> Any:
            rows = read_table(transaction, name)
            kept = rows.mapInArrow(fails_once(marks), rows.schema)
            updates = kept.where("id % 5 = 0").withColumn("operation", sf.lit("update"))
            updates = updates.withColumn("name", sf.concat("name", sf.lit("!")))
            deletes = kept.where("id % 5 = 1").withColumn("operation", sf.lit("delete"))
            inserts = self.rows(ROWS + 5).where(f"id >= {ROWS}").withColumn("operation", sf.lit("insert"))
            changes = updates.unionByName(deletes).unionByName(inserts, allowMissingColumns=True)
            summary = apply_changes(transaction, name, changes, verify_row_ids=True)
            return [summary.inserted, summary.updated, summary.deleted]

        found = self.in_transaction(name, change)
        return [*found, any(marks.iterdir())]

    def changed_by_driver(self) -> Any:
        """The same by the driver itself, since they are few."""
        self.spark.conf.set(FEW_BYTES, str(16 << 20))
        try:
            name = self.table("by_driver")
            few = self.spark.createDataFrame([(100, 1), (101, 2)], "id bigint, n int")
            few = few.selectExpr(
                "'insert' as operation",
                "*",
                "cast(1 as decimal(20,2)) as price",
                "'few' as name",
                "timestamp_ntz'2024-02-29 00:00:00' as at",
                "cast(null as array<struct<a:int,b:string>>) as parts",
                "'d9' as ds",
            )
            self.change(name, few)
            return self.merge(name, few.drop("operation").withColumn("n", sf.lit(7)), self.all_clauses)
        finally:
            self.spark.conf.set(FEW_BYTES, "0")

    def source(self) -> DataFrame:
        """Rows to merge: ids 50 to 69, whose values must be converted, and some of which move."""
        rows = self.rows(ROWS + 10).where("id >= 50")
        return rows.selectExpr(
            "cast(id as int) as id",
            "cast(n + 1 as bigint) as n",
            "cast(price as double) as price",
            "concat(name, '~~') as name",
            "timestamp_ltz'2024-02-29 23:59:59.999999 UTC' as at",
            "parts",
            "case when id % 10 = 2 then 'moved' else ds end as ds",
            "case when id % 10 = 3 then 'D' else 'U' end as op",
        )

    def all_clauses(self, merge: MergeInto) -> MergeInto:
        return merge.whenMatched().updateAll().whenNotMatched().insertAll()

    def clauses(self, merge: MergeInto) -> MergeInto:
        values = {each: f"source.{each}" for each in ("id", "price", "name", "at", "parts", "ds")}
        merge = merge.whenMatched("source.op = 'D'").delete()
        merge = merge.whenMatched().update({**values, "n": "source.n + target.n"})
        return merge.whenNotMatched("source.op <> 'D'").insert({**values, "n": "source.n"})

    def merge(self, name: str, source: DataFrame, clauses: Clauses, **more: Any) -> Any:
        def run(transaction: Transaction) -> Any:
            into = clauses(merge_into(transaction, name, source=source, on=["id"], **more))
            counts = into.execute().total
            return [counts.inserted, counts.updated, counts.deleted, counts.moved, counts.unchanged]

        return self.in_transaction(name, run)

    def merged_by_tasks(self) -> Any:
        """All outcomes of a merge, with conversions; the preview first; then once more, without a change."""
        name, source = self.table("merged"), self.source()

        def preview(transaction: Transaction) -> Any:
            into = self.clauses(merge_into(transaction, name, source=source, on=["id"]))
            found = into.dry_run(samples=2).preview
            assert found is not None
            return [[row.kind, row.partition, row.key] for row in found.samples]

        shown = self.in_transaction(name, preview)
        counts = self.merge(name, source, self.clauses)
        new = self.rows(ROWS + 20).where(f"id >= {ROWS}")
        searched = self.merge(name, new, self.all_clauses, collected_keys=0)
        return [shown, counts, searched]

    def lenient_rules(self) -> Any:
        """What Spark gives NULL for without ANSI rules is an error, and not written."""
        name, source = f"{self.database}.merged", self.source()
        texts = {
            "overflow": f"cast(source.n as int) + {BIGGEST}",
            "cast": "cast(source.name as int)",
            "division": "cast(source.n / (target.n - target.n) as int)",
        }
        found = {
            what: self.refused(
                lambda text=text: self.merge(name, source, lambda m: m.whenMatched().update({"n": text}))
            )[0]
            for what, text in texts.items()
        }
        column = sf.col("source.name").cast("int")
        made = self.refused(lambda: self.merge(name, source, lambda m: m.whenMatched().update({"n": column})))
        return {**found, "column": made[0], "ansi": self.spark.conf.get("spark.sql.ansi.enabled", None)}

    def compared(self) -> Any:
        """The difference to another state, applied."""
        name = self.table("compared")
        new = (
            self.rows(ROWS + 2)
            .where("id > 1")
            .withColumn("n", sf.when(sf.col("id") == 7, sf.lit(None)).otherwise(sf.col("n").cast("bigint")))
        )

        def apply(transaction: Transaction) -> Any:
            table = transaction.table(name)
            changes = diff(table, read_table(transaction, name), new, ["id"])
            summary = apply_changes(transaction, name, changes)
            changes.unpersist()
            return [summary.inserted, summary.updated, summary.deleted]

        return self.in_transaction(name, apply)

    def changes(self) -> Any:
        """The changes that a merge made, with their updates, by kind."""
        name = self.table("changed")
        with self.client(name) as client, client.open_snapshot(name) as view:
            since = changes_position(view, name)
        self.merge(name, self.source(), self.clauses)
        with self.client(name) as client, client.open_snapshot(name) as view:
            found = table_changes(view, name, since, on=["id"]).collect()
        kinds = [row["_change"] for row in found]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}

    def ingested(self) -> Any:
        """A log of Debezium."""
        name = f"{self.database}.orders"
        *columns, day = [ColumnInfo(c.name, c.type) for c in (*ORDERS.columns, *ORDERS.partition_keys)]
        create_acid_table(self.metastore, name, columns, [day], clustered_by=["id"], num_buckets=2)
        log = write_log(self.folder / "log", [debezium(change) for change in CHANGES])
        report = ingest(
            self.metastore,
            [TableMapping("shop.orders", name)],
            DebeziumSource(log, "erp"),
            spark=self.spark,
            create_partitions=True,
        )
        return [[table.operation_count, table.key_count] for table in report.tables]

    def refused_in_worker(self) -> Any:
        """A value that does not fit, found by a task."""
        name = f"{self.database}.merged"
        wrong = self.rows().where("id = 3").withColumn("price", sf.lit("1e30").cast("double"))
        by_merge = self.refused(lambda: self.merge(name, wrong, self.all_clauses))
        ids = "named_struct('{0}', 1L, 'bucketid', 99, 'rowid', 5L, 'partition', 'ds=d0')"
        of_table = self.in_transaction(name, lambda transaction: transaction.table(name))
        row_id = sf.expr(ids.format(of_table.version.transaction_field)).alias("ROW__ID")
        missing = self.spark.range(1).select(sf.lit("delete").alias("operation"), row_id)
        return [by_merge, self.refused(lambda: self.change(name, missing))]


def _shorter(field: StructField) -> StructField:
    """The field in the table: names of four characters."""
    return StructField(field.name, VarcharType(4)) if field.name == "name" else field


def first_rows() -> pa.Table:
    """Those of `Job.rows`, made without Spark."""
    ids = range(ROWS)
    part = pa.struct([("a", pa.int32()), ("b", pa.string())])
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "n": pa.array([n % 7 for n in ids], pa.int32()),
            "price": pa.array([Decimal(n) / 4 for n in ids], pa.decimal128(20, 2)),
            "name": [f"é{n}" for n in ids],
            "at": [datetime(1600, 2, 28, 23, 59, 59, 1) + timedelta(days=n) for n in ids],
            "parts": pa.array([[{"a": n, "b": None}] for n in ids], pa.list_(part)),
            "ds": [f"d{n % 3}" for n in ids],
        }
    )


def fails_once(marks: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for tasks whose first attempt at the first partition fails."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.partitionId() == 0 and context.attemptNumber() == 0:
                (marks / f"{context.taskAttemptId()}").touch()
                raise RuntimeError("the first attempt fails")

    return run


OF_EVERY_HIVE = (Job.changed_by_tasks, Job.changed_by_driver, Job.merged_by_tasks)
"""Steps that depend on the release of Hive: on the layout of its tables and on its metastore."""

IN_BRIEF = (Job.in_brief,)
"""A table is read, joined, converted and written by tasks: what a version can break, in one job."""

OF_SPARK_ALONE = (Job.lenient_rules, Job.compared, Job.changes, Job.ingested, Job.refused_in_worker)
"""Further steps, which one release of Hive judges as well as another."""


def main(metastore: str, database: str, folder: str, *steps: str) -> None:
    """Run the steps with these names."""
    settings = {"spark.sql.session.timeZone": "Asia/Kolkata", "spark.local.dir": f"{folder}/local"}
    settings |= {FEW_BYTES: "0", "spark.python.daemon.module": "tests.support.warm_daemon"}
    with local_spark_session("versions", master="local[2,2]", settings=settings) as spark:
        job = Job(spark, metastore, database, Path(folder))
        found = {}
        for step in steps:
            started = time.monotonic()
            found[step] = getattr(job, step)()
            print(f"{step}: {time.monotonic() - started:.1f} s", file=sys.stderr)
    print(json.dumps({"spark": pyspark.__version__, **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
