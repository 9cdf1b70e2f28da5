"""TableScan: which rows and columns of a table are read, and in which form; reads them as Arrow batches.

It reads in this process, without Spark or JVM, several splits at a time
(:mod:`mutation_api.read.read_ahead`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
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
from mutation_api.read.partition_plan import SnapshotSplit, plan_partitions
from mutation_api.read.read_ahead import WAITING_BYTES_DEFAULT, read_in_turn
from mutation_api.read.row_filter import RowFilter
from mutation_api.read.snapshot_reader import full_row_id_type, split_rows
from mutation_api.read.table_view import (
    PartitionCondition,
    PlannedFiles,
    TableView,
    matching_partitions,
    optional_package,
)
from mutation_api.table.acid_table import AcidColumn
from mutation_api.table.expression_parts import expression_text
from mutation_api.table.partition import partition_type
from mutation_api.table.row_type import named_columns

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

__all__ = ["PartitionRows", "TableScan"]

_ALONE_BYTES = 1024 * 1024
"""Less than this is read by the caller's own thread."""

PartitionRows = tuple[str | None, pa.RecordBatch]
"""The (escaped) name of a partition, None in an unpartitioned table, and some of its rows."""


@dataclass(frozen=True)
class TableScan:
    """The description of a read of a table; it can be read any number of times.

    Rows come ordered by partition name, bucket and ROW__ID, however many threads read them.

    Attributes:
        view: the table and its snapshot.
        columns: names of data and partition columns, in any case, in the order wanted. None: all, data
            columns first.
        filter: which rows: an Arrow expression over the table's columns (in lower case, as in the table), or
            the name of a boolean column. It may read columns that are not wanted. Rows for which it is null
            are left out. Partitions whose rows cannot meet it are not read.
        where_partition: (partition column, value) pairs that must all hold, too; see
            :func:`~mutation_api.read.table_view.matching_partitions`.
        row_ids: put ROW__ID before the columns: struct<writeid:bigint, bucketid:int, rowid:bigint> (version
            1: ``transactionid``). In partitioned tables it has a fourth field ``partition``, because an
            update or delete needs the partition of its row.
        limit: number of rows after which reading ends.
        timestamps: form of timestamps in data columns. Those of partition columns have microseconds.
        truncate_nanoseconds: cut digits below microseconds; otherwise a value that has them is an error.
        threads: how many splits (buckets of partitions) are decoded at a time; None: one for each processor.
        waiting_bytes: bound of the rows that are read ahead, beside a stripe of each file being read.
            :meth:`to_arrow` and the forms made from it need no bound, since they keep all rows.
        files: the files to read, as :meth:`planned` gave them; None: the directories are listed.
    """

    view: TableView
    _: KW_ONLY
    columns: Sequence[str] | None = None
    filter: pc.Expression | str | None = None
    where_partition: Sequence[PartitionCondition] = ()
    row_ids: bool = False
    limit: int | None = None
    timestamps: TimestampForm = TimestampForm.MICROSECONDS
    truncate_nanoseconds: bool = False
    threads: int | None = None
    waiting_bytes: int = WAITING_BYTES_DEFAULT
    files: PlannedFiles | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise ConfigurationError if ``timestamps`` is not a form."""
        if not isinstance(self.timestamps, TimestampForm):
            forms = ", ".join(form.name for form in TimestampForm)
            raise ConfigurationError(
                f"table {self.view.table.full_name}: timestamps={self.timestamps!r}: "
                f"give one of TimestampForm: {forms}"
            )

    def __repr__(self) -> str:
        """The table and what is wanted of it, not all of its columns and partitions."""
        wanted = {
            "columns": self.columns,
            "filter": None if self.filter is None else _filter_text(self.filter),
            "where_partition": self.where_partition or None,
            "row_ids": self.row_ids or None,
            "limit": self.limit,
        }
        given = [f"{name}={value!r}" for name, value in wanted.items() if value is not None]
        return f"TableScan({', '.join([self.view.table.full_name, *given])})"

    @property
    def selected(self) -> tuple[AcidColumn, ...]:
        """The columns, in the order wanted.

        Raises:
            RecordLayoutError: a column does not exist or is named twice, or neither columns nor ROW__ID are
                wanted.
        """
        table = self.view.table
        columns = named_columns(table, self.columns)
        if not columns and not self.row_ids:
            raise RecordLayoutError(f"table {table.full_name}: nothing to read: neither columns nor ROW__ID")
        return columns

    @property
    def schema(self) -> pa.Schema:
        """Schema of all batches: ROW__ID if wanted, then the columns. Raises as :attr:`selected`."""
        return pa.schema([*self._row_id_fields(), *map(self._field, self.selected)])

    def planned(self) -> PlannedFiles:
        """The files that it reads, as they are listed now. Raises as :meth:`by_partition`."""
        return PlannedFiles(tuple(self._planned(self._filter())), self.view.valid_ids)

    def by_partition(self) -> Generator[PartitionRows, None, None]:
        """The rows, ordered by partition name, bucket and ROW__ID.

        This call lists the directories once. Files are read as the batches are consumed; end the iterator
        (``close()``), or read it to its end, to end the threads that read ahead.

        Returns:
            Non-empty batches of :attr:`schema`, each with the name of its partition.

        Raises:
            RecordLayoutError: see :attr:`selected`; ROW__IDs of an insert-only table; or the filter cannot be
                resolved over the table's columns, or is not boolean.
            ConfigurationError: ``limit`` is negative or ``threads`` below 1, or see ``where_partition``.
            RecordValueError: a partition's text cannot be parsed as its column's type, a timestamp does not
                fit, or the filter has no value for a row.
            DirectoryStateError, CorruptFileError: see :mod:`mutation_api.orc.read`.
            TransactionStateError, LockLostError, TransactionAbortedError: the snapshot or transaction is not
                open any more, or lost.
            OSError: the storage cannot be read.
        """
        return self._by_partition(self.waiting_bytes)

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of batches of :attr:`schema`. Raises as :meth:`by_partition`."""
        return self._reader(self.waiting_bytes)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as a stream, for whatever speaks Arrow's C interface: Polars, DuckDB, pandas, pyarrow."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows, in memory. Raises as :meth:`by_partition`."""
        return self._reader(None).read_all()

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a DataFrame of pandas, whose columns keep the types of Arrow (``pandas.ArrowDtype``).

        So every value is exact, and a row may be given to an update as it is: NULL does not make doubles of
        whole numbers, and dates, timestamps and decimals have their whole range. Unions are Python objects.
        For numpy's types, which are not exact: ``scan.to_arrow().to_pandas()``.

        Raises: as :meth:`by_partition`; ConfigurationError: pandas is not installed.
        """
        package = optional_package("pandas", "to_pandas()")
        rows = self.to_arrow()
        unions = [field.name for field in rows.schema if pa.types.is_union(field.type)]
        frame: pd.DataFrame = rows.drop_columns(unions).to_pandas(types_mapper=package.ArrowDtype)
        for name in unions:  # pandas has no union, so these are objects
            frame.insert(
                rows.column_names.index(name), name, package.Series(rows[name].to_pylist(), dtype=object)
            )
        return frame

    def to_polars(self) -> pl.DataFrame:
        """All rows as a DataFrame of Polars.

        Raises:
            ConfigurationError: Polars is not installed.
            RecordLayoutError: a column has unions, which Polars lacks.
            Others: as :meth:`by_partition`.
        """
        package = optional_package("polars", "to_polars()")
        self._check_unions("Polars")
        rows: pl.DataFrame = package.from_arrow(self.to_arrow())
        return rows

    def to_duckdb(
        self, table_name: str, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyConnection:
        """All rows as a table that SQL in DuckDB can query.

        Args:
            table_name: its name there. DuckDB reads the rows where they are, without a copy.
            connection: where to register it; None: a new database in memory.

        Returns:
            The connection.

        Raises:
            ConfigurationError: DuckDB is not installed.
            RecordLayoutError: a column has unions, which DuckDB does not read.
            Others: as :meth:`by_partition`.
        """
        package = optional_package("duckdb", "to_duckdb()")
        self._check_unions("DuckDB")
        given: duckdb.DuckDBPyConnection = package.connect(":memory:") if connection is None else connection
        given.register(table_name, self.to_arrow())
        return given

    def count(self) -> int:
        """The number of rows; only what says which rows there are is read. Raises as :meth:`by_partition`."""
        keys = self.view.table.partition_key_names
        has_row_ids = self.view.table.version.has_row_ids
        columns = () if has_row_ids else (*keys, *self.view.table.column_names)[:1]
        counted = dataclasses.replace(self, columns=columns, row_ids=has_row_ids)
        return sum(rows.num_rows for _, rows in counted.by_partition())

    def _check_unions(self, package: str) -> None:
        unions = [field.name for field in self.schema if has_union(field.type)]
        if unions:
            raise RecordLayoutError(
                f"table {self.view.table.full_name}: {package} reads no unions of Arrow, as in {unions}: "
                "leave them out (columns=…), or use to_arrow() or to_pandas()"
            )

    def _field(self, column: AcidColumn) -> pa.Field:
        if column in self.view.table.partition_keys:
            return pa.field(column.name, partition_type(column))
        return pa.field(column.name, column_type(parse_hive_type(column.type), self.timestamps))

    def _row_id_fields(self) -> list[pa.Field]:
        return [pa.field(ROW_ID_COLUMN, full_row_id_type(self.view.table))] if self.row_ids else []

    def _reader(self, waiting_bytes: int | None) -> pa.RecordBatchReader:
        batches = (rows for _, rows in self._by_partition(waiting_bytes))
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def _by_partition(self, waiting_bytes: int | None) -> Generator[PartitionRows, None, None]:
        is_whole = isinstance(self.limit, Integral) and not isinstance(self.limit, bool)
        if self.limit is not None and not (is_whole and self.limit >= 0):
            raise ConfigurationError(f"limit {self.limit!r}: it must be a whole number of at least 0")
        if self.row_ids and not self.view.table.version.has_row_ids:
            raise RecordLayoutError(
                f"table {self.view.table.full_name} is insert-only: its rows have no {ROW_ID_COLUMN}: leave "
                "it out (row_ids=False)"
            )
        if self.threads is not None and self.threads < 1:
            raise ConfigurationError(f"threads {self.threads}: it cannot be below 1")
        self.view.check()
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
        if self.filter is None:
            return None
        table = self.view.table
        return RowFilter.of(self.filter, table, pa.schema(map(self._field, table.all_columns)))

    def _planned(self, where: RowFilter | None) -> list[SnapshotSplit]:
        if self.files is not None:
            return [*self.files.splits]
        view = self.view
        names = matching_partitions(view.table, sorted(view.locations), self.where_partition)
        names = names if where is None else where.partitions(names)
        return plan_partitions(
            view.table,
            {name: view.locations[name] for name in names},
            view.valid_ids,
            view.valid_txns,
            is_whole_table=len(names) == len(view.locations),
        )

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
    """Reads the rows of a split in the form of a scan; used by several threads.

    ``schema`` and ``selected`` are those of the scan.
    """

    view: TableView
    schema: pa.Schema
    selected: tuple[AcidColumn, ...]
    where: RowFilter | None
    options: ReadOptions

    def rows(self, split: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        """Non-empty batches of ``schema``."""
        row_ids = ROW_ID_COLUMN in self.schema.names
        names = self.schema.names
        for rows in split_rows(
            self.view.table, split, self.view.valid_ids, self._columns, self.options, row_ids=row_ids
        ):
            met = rows if self.where is None else self.where.rows(rows)
            if met.num_rows:
                yield pa.RecordBatch.from_arrays([met.column(name) for name in names], schema=self.schema)

    @functools.cached_property
    def _columns(self) -> tuple[AcidColumn, ...]:
        """The columns that are wanted, and those that the filter needs."""
        needed = () if self.where is None else self.where.columns
        others = [c for c in self.view.table.all_columns if c.name in needed and c not in self.selected]
        return (*self.selected, *others)


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
