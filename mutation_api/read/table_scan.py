"""TableScan: the rows and columns of a table to read, and their form. It reads them as Arrow batches.

It reads in this process, without Spark or a JVM, several splits at a time
(:mod:`mutation_api.read.read_ahead`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.plain_array import has_union
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm, column_type
from mutation_api.read.partition_plan import ScanExplanation, SnapshotSplit
from mutation_api.read.read_ahead import WAITING_BYTES_DEFAULT, read_in_turn
from mutation_api.read.row_filter import RowFilter
from mutation_api.read.snapshot_reader import full_row_id_type, split_rows, stripes_read
from mutation_api.read.table_view import (
    PartitionCondition,
    PlannedFiles,
    TableView,
    matching_partitions,
    optional_package,
)
from mutation_api.storage.connect import storage_at
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.expression_parts import expression_text
from mutation_api.table.partition import partition_type
from mutation_api.table.row_type import named_columns

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from mutation_api.read.scan_dataset import ScanDataset

_ALONE_BYTES = 1024 * 1024
"""If there is less data than this number of bytes, the caller's own thread reads it."""

PartitionRows = tuple[str | None, pa.RecordBatch]
"""The (escaped) name of a partition, None in an unpartitioned table, and some of its rows."""


@dataclass(frozen=True)
class TableScan:
    """The description of a read of a table. It can be read any number of times.

    Rows are ordered by partition name, bucket and ROW__ID, with any number of threads.

    Attributes:
        view: the table and its snapshot.
        columns: names of data and partition columns, in any case, in the requested order. If None, all
            columns, data columns first.
        where: the rows to read: an Arrow expression over the table's columns (in lower case, as in the
            table), or the name of a boolean column. It may read columns that are not returned. Rows for which
            it is null are left out. Partitions whose rows cannot meet it are not read.
        where_partition: (partition column, value) pairs that must all hold in addition. See
            :func:`~mutation_api.read.table_view.matching_partitions`.
        row_ids: True to return ROW__ID before the columns: struct<writeid:bigint, bucketid:int, rowid:bigint>
            (version 1: ``transactionid``). In partitioned tables it has a fourth field ``partition``, because
            an update or delete needs the partition of its row.
        limit: the maximum number of rows to read. If None, all.
        timestamps: the form of timestamps in data columns. Those of partition columns have microseconds.
        truncate_nanoseconds: True to cut digits below microseconds. Otherwise a value that has them is an
            error.
        threads: the number of splits (buckets of partitions) that are decoded at a time. If None, one per
            processor.
        waiting_bytes: the limit of the rows that are read ahead, in addition to a stripe of each file being
            read. It does not apply to :meth:`to_arrow` and the forms made from it, because they keep all
            rows.
        files: the files to read, as returned by :meth:`planned`. If None, the directories are listed.
    """

    view: TableView
    _: KW_ONLY
    columns: Sequence[str] | None = None
    where: pc.Expression | str | None = None
    where_partition: Sequence[PartitionCondition] = ()
    row_ids: bool = False
    limit: int | None = None
    timestamps: TimestampForm = TimestampForm.MICROSECONDS
    truncate_nanoseconds: bool = False
    threads: int | None = None
    waiting_bytes: int = WAITING_BYTES_DEFAULT
    files: PlannedFiles | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise ConfigurationError if ``timestamps`` is not a TimestampForm."""
        if not isinstance(self.timestamps, TimestampForm):
            forms = ", ".join(form.name for form in TimestampForm)
            raise ConfigurationError(
                f"table {self.view.table.full_name}: timestamps={self.timestamps!r}: expected one of "
                f"TimestampForm: {forms}"
            )

    def __repr__(self) -> str:
        """Return the table and the settings of the scan, without the table's columns and partitions."""
        wanted = {
            "columns": self.columns,
            "where": None if self.where is None else _filter_text(self.where),
            "where_partition": self.where_partition or None,
            "row_ids": self.row_ids or None,
            "limit": self.limit,
        }
        given = [f"{name}={value!r}" for name, value in wanted.items() if value is not None]
        return f"TableScan({', '.join([self.view.table.full_name, *given])})"

    @property
    def selected(self) -> tuple[AcidColumn, ...]:
        """The columns, in the requested order.

        Raises:
            RecordLayoutError: If a column does not exist or is given twice, or if neither columns nor ROW__ID
                are requested.
        """
        table = self.view.table
        columns = named_columns(table, self.columns)
        if not columns and not self.row_ids:
            raise RecordLayoutError(f"table {table.full_name}: nothing to read: neither columns nor ROW__ID")
        return columns

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches: ROW__ID if requested, then the columns. Raises like :attr:`selected`."""
        return pa.schema([*self._row_id_fields(), *map(self._field, self.selected)])

    def planned(self) -> PlannedFiles:
        """Return the files that the scan reads, as they are listed now. Raises like :meth:`by_partition`."""
        return PlannedFiles(tuple(self._planned(self._filter())), self.view.valid_ids)

    def explain(self) -> ScanExplanation:
        """Return what the scan reads and what it leaves out. Only the tails of files are read.

        Raises like :meth:`by_partition`.
        """
        self._check()
        where, table = self._filter(), self.view.table
        splits = self._planned(where)
        threads = max((storage_at(split.location).threads for split in splits), default=1)
        stripes = side_by_side(lambda split: stripes_read(table, split, where), splits, threads)
        needed = () if where is None else where.columns
        data = [column.name for column in self.selected if column.name in table.column_names]
        early = [column.name for column in table.columns if column.name in needed]
        return ScanExplanation(
            table.full_name,
            None if self.where is None else _filter_text(self.where),
            len(self.view.locations),
            len({split.partition_name for split in splits}),
            sum(len(split.files) for split in splits),
            sum(split.byte_count for split in splits),
            sum(count for count, _ in stripes),
            sum(count for _, count in stripes),
            tuple(early or data),
            tuple(name for name in data if name not in early) if early else (),
        )

    def by_partition(self) -> Generator[PartitionRows, None, None]:
        """Return the rows, ordered by partition name, bucket and ROW__ID.

        This call lists the directories once. Files are read as the batches are consumed. To end the threads
        that read ahead, close the iterator (``close()``) or read it to its end.

        Returns:
            Non-empty batches of :attr:`schema`, each with the name of its partition.

        Raises:
            RecordLayoutError: If ROW__IDs of an insert-only table are requested, or if the filter cannot be
                resolved over the table's columns or is not boolean. See also :attr:`selected`.
            ConfigurationError: If ``limit`` is negative or ``threads`` below 1. See also ``where_partition``.
            RecordValueError: If a partition's string cannot be parsed as its column's type, a timestamp does
                not fit, or the filter cannot be computed for a row.
            DirectoryStateError, CorruptFileError: See :mod:`mutation_api.orc.read`.
            TransactionStateError, LockLostError, TransactionAbortedError: If the snapshot or transaction is
                no longer open, or is lost.
            OSError: If the storage cannot be read.
        """
        return self._by_partition(self.waiting_bytes)

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches of :attr:`schema`. Raises like :meth:`by_partition`."""
        return self._reader(self.waiting_bytes)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream for users of Arrow's C interface: Polars, DuckDB, pandas, pyarrow."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return all rows, in memory. Raises like :meth:`by_partition`."""
        return self._reader(None).read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame whose columns keep Arrow's types (``pandas.ArrowDtype``).

        So every value is exact, and a row can be passed to an update as it is: NULL does not turn integers
        into doubles, and dates, timestamps and decimals have their full range. Unions are Python objects.
        ``scan.to_arrow().to_pandas()`` returns numpy's types instead, which are not exact.

        Raises:
            ConfigurationError: If pandas is not installed.

        Errors of :meth:`by_partition` are passed on.
        """
        package = optional_package("pandas", "to_pandas()")
        rows = self.to_arrow()
        unions = [field.name for field in rows.schema if pa.types.is_union(field.type)]
        frame: pd.DataFrame = rows.drop_columns(unions).to_pandas(types_mapper=package.ArrowDtype)
        for name in unions:  # pandas does not have unions, so these are objects
            frame.insert(
                rows.column_names.index(name), name, package.Series(rows[name].to_pylist(), dtype=object)
            )
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame.

        Raises:
            ConfigurationError: If Polars is not installed.
            RecordLayoutError: If a column has unions, which Polars does not support.

        Errors of :meth:`by_partition` are passed on.
        """
        package = optional_package("polars", "to_polars()")
        self._check_unions("Polars")
        rows: pl.DataFrame = package.from_arrow(self.to_arrow())
        return rows

    def to_duckdb(
        self, table_name: str, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Register all rows as a table that SQL in DuckDB can query.

        Args:
            table_name: the name of the table in DuckDB, which reads the rows in place, without a copy.
            connection: the connection in which to register it. If None, a new database in memory.

        Returns:
            The connection.

        Raises:
            ConfigurationError: If DuckDB is not installed.
            RecordLayoutError: If a column has unions, which DuckDB cannot read.

        Errors of :meth:`by_partition` are passed on.
        """
        package = optional_package("duckdb", "to_duckdb()")
        self._check_unions("DuckDB")
        given: duckdb.DuckDBPyConnection = package.connect(":memory:") if connection is None else connection
        given.register(table_name, self.to_arrow())
        return given

    def to_dataset(self) -> ScanDataset:
        """Return the scan as a dataset of pyarrow, to which DuckDB and Polars push columns and filters::

            visits = view.table("web.visits").scan().to_dataset()
            duckdb.sql("SELECT user, count(*) FROM visits WHERE day = '2024-05-01' GROUP BY user")

        Only stripes that may have such rows are read, each time that it is queried, and while the snapshot is
        open. ``Hive.scan_polars`` does this for Polars, by Polars' rules for NaN and NULL.

        Raises:
            ConfigurationError: If the scan has a limit.
        """
        from mutation_api.read.scan_dataset import ScanDataset  # pyarrow.dataset imports pandas

        return ScanDataset(self)

    def count(self) -> int:
        """Return the number of rows, reading only what determines them. Raises like :meth:`by_partition`.

        Without a condition, the tails of files show the rows of buckets without deletes.
        """
        table = self.view.table
        named_columns(table, self.columns)  # refuses names that do not exist
        has_row_ids = table.version.has_row_ids
        columns = () if has_row_ids else (*table.partition_key_names, *table.column_names)[:1]
        rest = dataclasses.replace(self, columns=columns, row_ids=has_row_ids)
        rest._check()
        if self.where is not None:
            return sum(rows.num_rows for _, rows in rest.by_partition())
        count, files = self.planned().counted(table.version)
        rest = dataclasses.replace(rest, files=files)
        count += sum(rows.num_rows for _, rows in rest.by_partition())
        return int(count if self.limit is None else min(count, self.limit))

    def _check_unions(self, package: str) -> None:
        unions = [field.name for field in self.schema if has_union(field.type)]
        if unions:
            raise RecordLayoutError(
                f"table {self.view.table.full_name}: {package} does not support Arrow unions, as in "
                f"{unions}: leave them out (columns=…), or use to_arrow() or to_pandas()"
            )

    def _field(self, column: AcidColumn) -> pa.Field:
        return _field_of(self.view.table, column, self.timestamps)

    def _row_id_fields(self) -> list[pa.Field]:
        return [pa.field(ROW_ID_COLUMN, full_row_id_type(self.view.table))] if self.row_ids else []

    def _reader(self, waiting_bytes: int | None) -> pa.RecordBatchReader:
        batches = (rows for _, rows in self._by_partition(waiting_bytes))
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def _check(self) -> None:
        """Raise if an argument is invalid, or the snapshot cannot be read."""
        is_whole = isinstance(self.limit, Integral) and not isinstance(self.limit, bool)
        if self.limit is not None and not (is_whole and self.limit >= 0):
            raise ConfigurationError(f"limit {self.limit!r}: it must be a whole number of at least 0")
        if self.row_ids and not self.view.table.version.has_row_ids:
            raise RecordLayoutError(
                f"table {self.view.table.full_name} is insert-only: its rows have no {ROW_ID_COLUMN}; "
                "leave it out (row_ids=False)"
            )
        if self.threads is not None and self.threads < 1:
            raise ConfigurationError(f"threads {self.threads}: it must be at least 1")
        self.view.check()

    def _by_partition(self, waiting_bytes: int | None) -> Generator[PartitionRows, None, None]:
        self._check()
        where = self._filter()
        reader = _SplitReader(
            self.view,
            self.schema,
            self.selected,
            where,
            ReadOptions(self.timestamps, truncate_nanoseconds=self.truncate_nanoseconds),
        )
        return _first_rows(self._read(self._planned(where), reader, waiting_bytes), self.limit)

    def _filter(self) -> RowFilter | None:
        if self.where is None:
            return None
        table = self.view.table
        return RowFilter.of(self.where, table, pa.schema(map(self._field, table.all_columns)))

    def _planned(self, where: RowFilter | None) -> list[SnapshotSplit]:
        if self.files is not None:
            return [*self.files.splits]
        view = self.view
        names = matching_partitions(view.table, sorted(view.locations), self.where_partition)
        names = names if where is None else where.partitions(names)
        return view.plan(names)

    def _read(
        self, splits: Sequence[SnapshotSplit], reader: _SplitReader, waiting_bytes: int | None
    ) -> Iterator[PartitionRows]:
        is_small = sum(split.byte_count for split in splits) < _ALONE_BYTES
        threads = 1 if is_small else min(self.threads or os.cpu_count() or 1, len(splits))
        read = read_in_turn(splits, reader.rows, threads=threads, waiting_bytes=waiting_bytes)
        with contextlib.closing(read):
            for split, rows in read:
                yield split.partition_name if self.view.table.partition_keys else None, rows


@dataclass(frozen=True)
class _SplitReader:
    """Reads the rows of a split in the form of a scan. Several threads use it.

    ``schema`` and ``selected`` are those of the scan.
    """

    view: TableView
    schema: pa.Schema
    selected: tuple[AcidColumn, ...]
    where: RowFilter | None
    options: ReadOptions

    def rows(self, split: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        """Yield non-empty batches of ``schema``."""
        row_ids = ROW_ID_COLUMN in self.schema.names
        names = self.schema.names
        for rows in split_rows(
            self.view.table,
            split,
            self.view.valid_ids,
            self.selected,
            self.options,
            where=self.where,
            row_ids=row_ids,
        ):
            if rows.num_rows:
                yield pa.RecordBatch.from_arrays([rows.column(name) for name in names], schema=self.schema)


def arrow_schema(table: AcidTable) -> pa.Schema:
    """Return the columns of a table as a scan reads them: data columns, then partition columns."""
    form = TimestampForm.MICROSECONDS
    return pa.schema([_field_of(table, column, form) for column in table.all_columns])


def _field_of(table: AcidTable, column: AcidColumn, timestamps: TimestampForm) -> pa.Field:
    if column in table.partition_keys:
        return pa.field(column.name, partition_type(column))
    return pa.field(column.name, column_type(parse_hive_type(column.type), timestamps))


def _filter_text(given: pc.Expression | str) -> str:
    return given if isinstance(given, str) else expression_text(given)


def _first_rows(batches: Iterator[PartitionRows], limit: int | None) -> Generator[PartitionRows, None, None]:
    if limit is None:
        yield from batches
        return
    left = limit
    while left > 0:
        found = next(batches, None)
        if found is None:
            return
        name, rows = found
        rows = rows.slice(0, left)
        left -= rows.num_rows
        yield name, rows
