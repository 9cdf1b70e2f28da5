"""The writers in the benchmarks of writing: ours into a table, and Spark's own writer into files.

Ours gets a new table in each round, whose first rows are links to the same files, so that every round does
the same work on the same table.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pyspark.sql.functions as sf
from pyarrow import orc
from pyspark.sql import DataFrame

from benchmarks.measuring.local_metastore import METASTORE
from benchmarks.measuring.measure import Contestant
from benchmarks.merging.merge_tables import linked_copy
from benchmarks.writing.write_input import Prepared, client_of, new_table
from benchmarks.writing.write_stage import DATABASE, Layout, Stage
from metastore_client import open_client
from mutation_api import ROW_ID_COLUMN, ApplySummary, MutatorClient, Operation, WriterOptions, apply_changes

OURS_KINDS = ("driver", "java", "python", METASTORE)
SPARK_KINDS = ("driver", "java")
OWN_ID = 1_000_000
"""Transaction of events that Spark writes; above those of all rows."""


class TableWriter:
    """Ours: applies a prepared change set to a new table each round, and commits.

    Args:
        stage: where.
        name: of the contestant.
        prepared: what to apply.
        layout: of the table.
        options: of the files; None for the defaults.
    """

    kinds: ClassVar[tuple[str, ...]] = OURS_KINDS

    def __init__(
        self,
        stage: Stage,
        name: str,
        prepared: Prepared,
        layout: Layout,
        options: WriterOptions | None = None,
    ) -> None:
        self._stage = stage
        self._prepared = prepared
        self._layout = layout
        self._options = options
        self._client: MutatorClient | None = None
        self._summary: ApplySummary | None = None
        self.table = ""
        self.contestant = Contestant(name, self._write, self.kinds, self._folder(), self._prepare)

    def is_complete(self) -> bool:
        """Whether the last round wrote all changes."""
        return self.written() == tuple(
            self._prepared.counts.get(operation, 0) for operation in ("insert", "update", "delete")
        )

    def written(self) -> tuple[int, int, int] | None:
        """The inserts, updates and deletes of the last round; None before the first one."""
        found = self._summary
        return None if found is None else (found.inserted, found.updated, found.deleted)

    def close(self) -> None:
        """Leave the table as it is, with what the last round wrote."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _prepare(self, number: int) -> None:
        self._drop()
        server = self._prepared.server
        self.table = f"{self._prepared.name}_{self.contestant.name}_{number}"
        new_table(server, self.table, self._prepared.columns, self._layout, self._location())
        self._client = client_of(server, self.table)
        self._client.connect()
        if self._prepared.base is not None:
            self._bring(self._prepared.base)
            with open_client(server.uri) as metastore:
                days = [(day,) for day in self._prepared.partitions]
                metastore.add_partitions(DATABASE, self.table, days)
            with self._client.new_transaction():
                """Takes the write id that the base's files are named by."""

    def _folder(self) -> Path:
        """Where its files lie on this machine."""
        return self._prepared.server.warehouse

    def _location(self) -> str:
        """The new table's location; '' for the metastore's default."""
        return ""

    def _bring(self, base: Path) -> None:
        """Put the table's first rows into its directory."""
        linked_copy(base, self._prepared.server.warehouse / self.table)

    def _write(self, number: int) -> None:
        assert self._client is not None
        changes = self._stage.spark.read.parquet(str(self._prepared.changes)).drop("bucket_id")
        with self._client.new_transaction() as transaction:
            self._summary = apply_changes(
                transaction, f"{DATABASE}.{self.table}", changes, options=self._options
            )

    def _drop(self) -> None:
        self.close()
        if self.table:
            with open_client(self._prepared.server.uri) as metastore:
                metastore.drop_table(DATABASE, self.table, delete_data=True)


class SparkWriter:
    """Spark's own writer: writes what ``plan`` makes of the prepared rows to a new folder each round.

    Args:
        stage: where.
        name: of the contestant.
        prepared: whose rows.
        plan: rows to what is written.
        partition_by: columns that become folders.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        prepared: Prepared,
        plan: Callable[[DataFrame], DataFrame],
        partition_by: Sequence[str],
    ) -> None:
        self._stage = stage
        self._prepared = prepared
        self._plan = plan
        self._partition_by = tuple(partition_by)
        self.folder = stage.folder / f"{prepared.name}-{name}"
        self.folder.mkdir()
        self.contestant = Contestant(name, self._write, SPARK_KINDS, self.folder, self._prepare)

    def is_complete(self) -> bool:
        """Whether the last round wrote all rows."""
        # Spark takes files of events for a Hive table's, and then cannot count them.
        written = sum(orc.ORCFile(path).nrows for path in Path(self._written).rglob("*.orc"))
        return bool(written == sum(self._prepared.counts.values()))

    def close(self) -> None:
        """Leave the files as they are."""

    @property
    def _written(self) -> str:
        return str(self.folder / "written")

    def _prepare(self, number: int) -> None:
        shutil.rmtree(self._written, ignore_errors=True)

    def _write(self, number: int) -> None:
        rows = self._plan(self._stage.spark.read.parquet(str(self._prepared.changes)))
        writer = rows.write.partitionBy(*self._partition_by).option("compression", "zlib")
        writer.orc(self._written)


def sorted_events(changes: DataFrame) -> DataFrame:
    """A change set as ACID events in writing order, as far as Spark alone can make them.

    New rows are not numbered, and the bucket is taken as given.
    """
    row_id, is_insert = sf.col(ROW_ID_COLUMN), sf.col("operation") == "insert"
    code = sf.array_position(
        sf.array(*(sf.lit(each.name.lower()) for each in Operation)), sf.col("operation")
    )
    own_id = sf.lit(OWN_ID).cast("bigint")
    row = sf.when(sf.col("operation") != "delete", sf.struct(*_data_columns(changes)))
    events = changes.select(
        "ds",
        "bucket_id",
        (code - 1).cast("int").alias("operation"),
        sf.when(is_insert, own_id).otherwise(row_id["transactionid"]).alias("originalTransaction"),
        sf.col("bucket_id").alias("bucket"),
        sf.when(is_insert, 0).otherwise(row_id["rowid"]).cast("bigint").alias("rowId"),
        own_id.alias("currentTransaction"),
        row.alias("row"),
    )
    return events.repartition("ds", "bucket_id").sortWithinPartitions(
        "ds", "bucket_id", "originalTransaction", "rowId"
    )


def plain_files(rows: DataFrame) -> DataFrame:
    """Rows grouped as a plain bucketed table has them, without any ACID column."""
    return rows.select("ds", "bucket_id", *_data_columns(rows)).repartition("ds", "bucket_id")


def _data_columns(changes: DataFrame) -> list[str]:
    special = {"operation", ROW_ID_COLUMN, "ds", "bucket_id"}
    return [name for name in changes.columns if name not in special]
