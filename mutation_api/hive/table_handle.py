"""TableHandle: one table of a metastore, outside of any transaction or snapshot; its reads and merges."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.client import MetastoreClient
from mutation_api.hive.hive_transaction import HiveSnapshot, HiveTransaction
from mutation_api.merge.clauses import Action, Match, MergeOptionsDict
from mutation_api.merge.history import HistoryOptionsDict, HistoryReport
from mutation_api.merge.local_merge import (
    Condition,
    GivenClause,
    LocalMerge,
    MergeClauses,
    Values,
    with_clauses,
)
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.preview import SAMPLES_DEFAULT
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.read.partition_plan import ScanExplanation
from mutation_api.read.table_scan import TableScan, arrow_schema
from mutation_api.table.acid_table import AcidTable, WriterOptions
from mutation_api.upkeep.alter_acid_table import AlteredTable, SchemaMode, added_columns, check_mode
from mutation_api.upkeep.history import TableHistory, table_history
from mutation_api.upkeep.verify.verify import Progress, VerifyReport, verify_table
from mutation_api.write.arrow_input import arrow_reader
from mutation_api.write.change_set import OverwriteReport

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

_T = TypeVar("_T")


class LazyScan:
    """A scan that opens a snapshot each time that it is read. Created by ``TableHandle.scan``.

    The snapshot is closed when the rows have been read. So two reads may see different states of the table.

    Args:
        snapshot: returns a snapshot of the table.
        describe: describes the read in the open snapshot.
    """

    def __init__(
        self, snapshot: Callable[[], HiveSnapshot], describe: Callable[[HiveSnapshot], TableScan]
    ) -> None:
        self._snapshot = snapshot
        self._describe = describe

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows. Raises like ``TableScan.schema``, and see :meth:`to_arrow`."""
        return self._read(lambda scan: scan.schema)

    def to_arrow(self) -> pa.Table:
        """Return all rows, in memory; see ``TableScan.to_arrow``.

        Raises:
            LockNotAcquiredError, ConnectionFailedError, TransactionError: If the snapshot cannot be opened;
                see Transaction.begin.
            RecordLayoutError, RecordValueError, ReadError, OSError: See ``TableScan.by_partition``.
        """
        return self._read(TableScan.to_arrow)

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, in bounded memory. Raises like :meth:`to_arrow`.

        The snapshot is open until the last batch has been read, or until the reader is deleted.
        """

        def pieces() -> Iterator[pa.Schema | pa.RecordBatch]:
            with self._snapshot() as view:
                reader = self._describe(view).to_arrow_batch_reader()
                yield reader.schema
                yield from reader

        found = pieces()
        return pa.RecordBatchReader.from_batches(next(found), found)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream for users of Arrow's C interface: Polars, DuckDB, pandas, pyarrow."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame with Arrow's types. Raises like :meth:`to_arrow`."""
        return self._read(TableScan.to_pandas)

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame. Raises like :meth:`to_arrow`.

        ``Hive.scan_polars`` returns a lazy frame, which reads only what a query needs.
        """
        return self._read(TableScan.to_polars)

    def to_duckdb(
        self, table_name: str, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Register all rows as a table of DuckDB. Raises like :meth:`to_arrow`."""
        return self._read(lambda scan: scan.to_duckdb(table_name, connection))

    def count(self) -> int:
        """Return the number of rows; see ``TableScan.count``. Raises like :meth:`to_arrow`."""
        return self._read(TableScan.count)

    def explain(self) -> ScanExplanation:
        """Return what the scan reads and what it leaves out. Raises like :meth:`to_arrow`."""
        return self._read(TableScan.explain)

    def _read(self, read: Callable[[TableScan], _T]) -> _T:
        with self._snapshot() as view:
            return read(self._describe(view))


class SeparateMerge(MergeClauses):
    """A merge in a separate transaction. Created by ``TableHandle.merge``.

    Clauses are checked when it is executed.

    Args:
        begin: begins a merge, which is written at the end of the block. True begins one for a dry run.
    """

    def __init__(self, begin: Callable[[bool], AbstractContextManager[LocalMerge]]) -> None:
        self._begin = begin
        self._clauses: list[GivenClause] = []

    def execute(
        self,
        *,
        insert_files: int | None = None,
        options: WriterOptions | None = None,
        before_writing: Callable[[MergeReport], None] | None = None,
    ) -> MergeReport:
        """Write the changes and commit them.

        For arguments and errors see ``LocalMerge.execute`` and ``Hive.transaction``.
        """
        with self._begin(False) as merge:
            return with_clauses(merge, self._clauses).execute(
                insert_files=insert_files, options=options, before_writing=before_writing
            )

    def dry_run(self, *, samples: int = SAMPLES_DEFAULT, insert_files: int | None = None) -> MergeReport:
        """Report what :meth:`execute` would do, without writing; see ``LocalMerge.dry_run``."""
        with self._begin(True) as merge:
            return with_clauses(merge, self._clauses).dry_run(samples=samples, insert_files=insert_files)

    def _then(self, match: Match, when: Condition, action: Action, values: Values | None = None) -> Self:
        self._clauses.append((match, when, action, values))
        return self


class TableHandle:
    """A table of a metastore, as it was described when the handle was made. Created by ``Hive.table``.

    It holds no lock. Each read is a separate snapshot, and each change a separate transaction. For several
    reads of one state use ``Hive.snapshot``, for several changes in one transaction ``Hive.transaction``.

    Args:
        metastore: the metastore's client.
        table: the table's descriptor.
        transaction: begins a transaction of the table; see ``Hive.transaction``.
        snapshot: returns a snapshot of the table; see ``Hive.snapshot``.
        alter: adds columns to the table; see ``Hive.alter_table``.
    """

    def __init__(
        self,
        metastore: MetastoreClient,
        table: AcidTable,
        transaction: Callable[..., HiveTransaction],
        snapshot: Callable[[str], HiveSnapshot],
        alter: Callable[..., AlteredTable],
    ) -> None:
        self._metastore = metastore
        self._table = table
        self._transaction = transaction
        self._snapshot = snapshot
        self._alter = alter

    def __repr__(self) -> str:
        """Return the name and the columns."""
        columns = ", ".join(f"{column.name} {column.type}" for column in self._table.all_columns)
        return f"TableHandle({self.name}: {columns})"

    @property
    def name(self) -> str:
        """The name ``database.table``, in lower case."""
        return self._table.full_name

    @property
    def schema(self) -> pa.Schema:
        """The columns as scans read them: data columns, then partition columns."""
        return arrow_schema(self._table)

    def history(self) -> TableHistory:
        """Return the changes of the table, transaction by transaction; see ``table_history``.

        Raises:
            TableNotFoundError: If the table was dropped.
            ConnectionFailedError, TransactionError: If the server could not be queried.
            OSError: If a directory cannot be listed.
        """
        return table_history(self._metastore, self.name)

    def verify(self, *, threads: int | None = None, progress: Progress | None = None) -> VerifyReport:
        """Examine all files of the table, as a snapshot of this moment reads them; see ``verify_table``.

        Args:
            threads: the number of files to examine at a time. If None, one per processor.
            progress: called periodically, from any thread.

        Raises:
            TableNotFoundError: If the table was dropped.
            LockNotAcquiredError, ConnectionFailedError, TransactionError: See Transaction.begin.
            ReadError, OSError: If a directory cannot be listed, or this machine cannot read a file.
        """
        return verify_table(self._metastore, self.name, threads=threads, progress=progress)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
        *,
        row_ids: bool = False,
        limit: int | None = None,
        timestamps: TimestampForm = TimestampForm.MICROSECONDS,
        truncate_nanoseconds: bool = False,
    ) -> LazyScan:
        """Describe a read in a separate snapshot; for the arguments see ``SnapshotTable.scan``::

        hive.table("sales.orders").scan(["item", "price"], where="day >= date '2024-01-01'").to_pandas()
        """

        def described(view: HiveSnapshot) -> TableScan:
            return view.table(self.name).scan(
                columns,
                where,
                row_ids=row_ids,
                limit=limit,
                timestamps=timestamps,
                truncate_nanoseconds=truncate_nanoseconds,
            )

        return LazyScan(lambda: self._snapshot(self.name), described)

    def append(self, data: object, *, create_partitions: bool = False, schema: SchemaMode = "exact") -> int:
        """Add rows in a separate transaction; see ``HiveTable.append``.

        Args:
            data: the rows.
            create_partitions: True to create missing partitions.
            schema: ``"add"`` to add the columns that the table lacks before the transaction begins, as
                ``Hive.alter_table`` does. They are NULL in older rows. ``"exact"`` refuses them.
        """
        data = self._with_columns(data, schema)
        with self._transaction(self.name, create_partitions=create_partitions) as tx:
            return tx.table(self.name).append(data)

    def delete(self, *, where: pc.Expression | str, dry_run: bool = False) -> MergeReport:
        """Delete rows by a condition in a separate transaction; see ``HiveTable.delete``."""
        with self._transaction(self.name) as tx:
            return tx.table(self.name).delete(where=where, dry_run=dry_run)

    def update(self, *, set: Values, where: Condition = None, dry_run: bool = False) -> MergeReport:
        """Update rows by a condition in a separate transaction; see ``HiveTable.update``."""
        with self._transaction(self.name) as tx:
            return tx.table(self.name).update(set=set, where=where, dry_run=dry_run)

    def upsert(
        self,
        data: object,
        on: Sequence[str] | None = None,
        *,
        create_partitions: bool = False,
        dry_run: bool = False,
        schema: SchemaMode = "exact",
    ) -> MergeReport:
        """Update or insert rows in a separate transaction; see ``HiveTable.upsert`` and :meth:`append`."""
        data = self._with_columns(data, schema, dry_run=dry_run)
        with self._transaction(self.name, create_partitions=create_partitions) as tx:
            return tx.table(self.name).upsert(data, on, dry_run=dry_run)

    def merge(
        self,
        source: object,
        on: Sequence[str],
        *,
        create_partitions: bool = False,
        schema: SchemaMode = "exact",
        **options: Unpack[MergeOptionsDict],
    ) -> SeparateMerge:
        """Begin a merge in a separate transaction; see ``HiveTable.merge`` and :meth:`append`::

        hive.table("sales.orders").merge(rows, on=["id"]).when_matched_update_all().execute()
        """

        @contextlib.contextmanager
        def begin(dry_run: bool) -> Iterator[LocalMerge]:
            data = self._with_columns(source, schema, dry_run=dry_run)
            with self._transaction(self.name, create_partitions=create_partitions) as tx:
                yield tx.table(self.name).merge(data, on, **options)

        return SeparateMerge(begin)

    def overwrite(
        self,
        data: object,
        *,
        partitions: str | Sequence[Mapping[str, object]] | None = None,
        where: Condition = None,
        create_partitions: bool = False,
        dry_run: bool = False,
    ) -> OverwriteReport:
        """Replace rows in a separate transaction; see ``HiveTable.overwrite``."""
        with self._transaction(self.name, create_partitions=create_partitions) as tx:
            return tx.table(self.name).overwrite(data, partitions=partitions, where=where, dry_run=dry_run)

    def track(
        self,
        changes: object,
        key: Sequence[str],
        sequence: str | Sequence[str],
        *,
        create_partitions: bool = False,
        dry_run: bool = False,
        **options: Unpack[HistoryOptionsDict],
    ) -> HistoryReport:
        """Add changes to a history in a separate transaction; see ``HiveTable.track``."""
        with self._transaction(self.name, create_partitions=create_partitions) as tx:
            return tx.table(self.name).track(changes, key, sequence, dry_run=dry_run, **options)

    def truncate(self, *, dry_run: bool = False) -> MergeReport:
        """Delete all rows in a separate transaction; see ``HiveTable.truncate``."""
        with self._transaction(self.name) as tx:
            return tx.table(self.name).truncate(dry_run=dry_run)

    def _with_columns(self, data: object, schema: SchemaMode, *, dry_run: bool = False) -> object:
        """Add columns that the data has and the table lacks. A dry run leaves them out of the data."""
        check_mode(schema, f"table {self.name}")
        if schema == "exact":
            return data
        reader = arrow_reader(data, f"table {self.name}: the rows")
        missing = added_columns(self._table, reader.schema)
        self._alter(self.name, add=missing, missing_only=True, dry_run=dry_run)
        if not (dry_run and missing):
            return reader
        lost = {column.name.lower() for column in missing}
        return reader.read_all().select([each for each in reader.schema.names if each.lower() not in lost])
