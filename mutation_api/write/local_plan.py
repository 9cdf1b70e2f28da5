"""The plan of the engine without Spark: a change set matched with the table, its options, files and forecast.

In unbucketed tables, the bucket ids of new rows number the files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.event import (
    ADDED_OPERATION,
    DELETE,
    INSERT,
    PARTITION_FIELD,
    ROW_ID_COLUMN,
    UPDATE,
    Operation,
)
from mutation_api.format.plain_array import plain_array
from mutation_api.orc.format.stored_values import hollow, nulled
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.address import (
    ADDRESS_COLUMNS,
    BUCKET,
    ChangeAddresser,
    ChangeFields,
    numbers_of_partitions,
)
from mutation_api.write.arrow_input import BATCH_PART, changes_reader, sized
from mutation_api.write.classify import ADDRESS_TYPE, ChangeClassifier
from mutation_api.write.forecast import CountedChanges, Forecast, forecast
from mutation_api.write.layout import (
    OPERATION_COLUMN_DEFAULT,
    ROW_ID_FIELDS,
    ChangeLayout,
    DefaultColumns,
    GivenColumn,
    match_columns,
    writer_count,
)
from mutation_api.write.record_inspector import RecordInspector
from mutation_api.write.staged_writer import OpenTransaction, check_sink


@dataclass(frozen=True)
class LocalPlan:
    """Turns batches of a change set into addressed changes. Threads may share it.

    Attributes:
        table: a bound descriptor.
        layout: the roles of the change set's columns.
        addresser: finds the addresses from the columns that they depend on.
        inspector: converts rows to the table's types.
        row_type: the type of converted rows. If None, the change set lacks columns and can only delete.
        defaults: values of the columns that the change set lacks and that have a default.
        operation: the operation of all rows. If None, a column holds it.
        is_bare: True if the columns are the fields of ROW__ID.
    """

    table: AcidTable
    layout: ChangeLayout
    addresser: ChangeAddresser
    inspector: RecordInspector
    row_type: pa.StructType | None
    defaults: Mapping[str, pa.Scalar]
    operation: str | None = None
    is_bare: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of :meth:`addressed`."""
        address = [
            pa.field(name, each.type) for name, each in zip(ADDRESS_COLUMNS, ADDRESS_TYPE, strict=True)
        ]
        return pa.schema([*address, *(self.row_type or ())])

    def addressed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the addresses and rows of a batch: ADDRESS_COLUMNS, and data columns of the table's types.

        Wrong addresses are found first, then values that do not fit. The values of deletes are ignored and
        become null. Inserts into unbucketed tables have bucket 0.

        Raises:
            RecordLayoutError, RecordValueError, BucketIdError, RowIdNotFoundError, TableNotMutableError: If a
                value does not fit, or see :meth:`mutation_api.write.classify.ChangeClassifier.classify`.
        """
        count = batch.num_rows
        columns = {name: plain_array(batch.column(given)) for name, given in self.layout.columns.items()}
        columns |= {name: pa.repeat(value, count) for name, value in self.defaults.items()}
        operations, given_deletes = self._operations(batch)
        fields = self.addresser.fields
        parts = [
            operations,
            *self._row_id_parts(batch),
            *(columns[name] for name in fields.partition_columns),
            *([pa.repeat(pa.scalar(0, pa.int32()), count)] if fields.has_writers else []),
            # A message shows these columns, but those of deletes were not read.
            *(_hidden(columns[name], given_deletes) for name in fields.columns),
        ]
        names = [str(number) for number in range(len(parts))]
        addressed = self.addresser.addressed(pa.RecordBatch.from_arrays(parts, names=names))
        address = addressed.columns[: len(ADDRESS_COLUMNS)]
        if self.row_type is None:
            return pa.record_batch(address, names=list(ADDRESS_COLUMNS))
        deletes = addressed.column(ADDED_OPERATION).to_numpy() == Operation.DELETE
        rows = self._rows([columns[name] for name in self.table.column_names], deletes)
        return pa.record_batch([*address, *rows], names=[*ADDRESS_COLUMNS, *self.table.column_names])

    def _operations(self, batch: pa.RecordBatch) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Return the operations of the rows, and a mask of the deletes."""
        delete = Operation.DELETE.name.lower()
        if self.layout.operation is None:
            codes = pa.array(np.zeros(batch.num_rows, np.int8))
            operations = pa.DictionaryArray.from_arrays(codes, pa.array([self.operation], pa.string()))
            return operations, np.full(batch.num_rows, self.operation == delete)
        operations = plain_array(batch.column(self.layout.operation)).cast(pa.string())
        return operations, _mask(pc.equal(pc.utf8_lower(operations), delete))

    def _row_id_parts(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the parts of ROW__ID, in the order of ``row_id_fields``; all null if it is null."""
        if self.layout.row_id is None:
            return []
        row_ids = plain_array(batch.to_struct_array() if self.is_bare else batch.column(self.layout.row_id))
        return [plain_array(pc.struct_field(row_ids, name)) for name in self.layout.row_id_fields.values()]

    def _rows(self, columns: list[pa.Array], deletes: NDArray[np.bool_]) -> list[pa.Array]:
        assert self.row_type is not None
        if deletes.all():
            return [hollow(field.type, len(deletes)) for field in self.row_type]
        # flatten() is not used: no row is null, and pyarrow may abort when it adds validity to unions.
        rows = self.inspector.rows(columns, deletes)
        return [rows.field(number) for number in range(rows.type.num_fields)]


def plan_changes(
    table: AcidTable,
    schema: pa.Schema,
    valid_ids: ValidIdList,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
    operation: str | None = None,
) -> LocalPlan:
    """Match the columns of a change set with the table's.

    Args:
        table: a bound descriptor.
        schema: columns as described by :func:`mutation_api.write.apply.apply_arrow`.
        valid_ids: the snapshot from which ROW__IDs may come; see ChangeClassifier.
        operation_column: name of the operation column.
        operation: the operation of all rows, INSERT, UPDATE or DELETE. If None, the operation column holds
            it. Inserts ignore ROW__ID; deletes ignore all other columns, and their columns may be the fields
            of ROW__ID.

    Raises:
        RecordLayoutError: If columns are missing, extra or duplicate, or have incompatible types.
    """
    is_bare = operation == DELETE and _is_bare(schema)
    fields = [pa.field(ROW_ID_COLUMN, pa.struct(list(schema)))] if is_bare else list(schema)
    if operation is not None:
        fields = _used(table, operation, fields)
    given = [GivenColumn.of_field(field) for field in fields]
    layout = match_columns(table, given, operation_column if operation is None else None)
    missing = layout.missing(table)
    keys_missing = [name for name in table.partition_key_names if name not in layout.columns]
    if operation == UPDATE and (lacking := (*missing, *layout.defaulted(table), *keys_missing)):
        raise RecordLayoutError(
            f"table {table.full_name}: an update needs the whole new row; it lacks {', '.join(lacking)}"
        )
    partition_columns = tuple(name for name in table.partition_key_names if name in layout.columns)
    defaults = DefaultColumns.of(table, layout.columns)
    types = {name: schema.field(given).type for name, given in layout.columns.items()}
    types |= {name: value.type for name, value in defaults.values.items()}
    bucket_columns = [name.lower() for name in table.bucket_columns]
    addressing = ChangeFields(
        tuple(layout.row_id_fields),
        partition_columns,
        has_writers=not table.is_bucketed,
        columns=tuple(c for c in table.column_names if c in bucket_columns and c in types),
    )
    inspector = RecordInspector(table)
    row_type = None
    if not missing and not defaults.unknown:
        row_type = inspector.rows([plain_array(pa.nulls(0, types[name])) for name in table.column_names]).type
    addresser = ChangeAddresser(ChangeClassifier.of(table, valid_ids, layout, defaults), addressing)
    return LocalPlan(table, layout, addresser, inspector, row_type, defaults.values, operation, is_bare)


def _is_bare(given: pa.Schema) -> bool:
    """Return True if the columns are the fields of ROW__ID, as in a struct array that is not a column."""
    names = {name.lower() for name in given.names}
    fields = {*ROW_ID_FIELDS, PARTITION_FIELD}
    return ROW_ID_COLUMN.lower() not in names and {"bucketid", "rowid"} <= names <= fields


def _used(table: AcidTable, operation: str, fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Return the columns that rows of this operation need, and unknown ones.

    Raises:
        RecordLayoutError: If there is no ROW__ID, and the operation needs it.
    """
    row_id = ROW_ID_COLUMN.lower()
    if operation == INSERT:
        return [field for field in fields if field.name.lower() != row_id]
    if row_id not in {field.name.lower() for field in fields}:
        raise RecordLayoutError(
            f"table {table.full_name}: {operation}s need {ROW_ID_COLUMN}, which scan(row_ids=True) "
            f"reads; got the columns {', '.join(field.name for field in fields)}"
        )
    if operation == UPDATE:
        return list(fields)
    return [field for field in fields if field.name.lower() in {row_id, *table.partition_key_names}]


def _hidden(array: pa.Array, mask: NDArray[np.bool_]) -> pa.Array:
    if not mask.any():
        return array
    return hollow(array.type, len(array)) if mask.all() else nulled(array, mask)


def _mask(values: pa.BooleanArray) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask


MEMORY_BYTES_DEFAULT = 1 << 30
MEMORY_BYTES_MIN = 1 << 20
"""With less memory, each batch would become a separate run."""


@dataclass(frozen=True)
class LocalOptions:
    """Settings of the local engine.

    Attributes:
        memory_bytes: limit of the memory that the engine uses for one change set or merge, at least
            MEMORY_BYTES_MIN. Beyond it, data to sort goes to files in the system's directory for temporary
            files (``TMPDIR``), and data that must be in memory is refused with advice. Files that are being
            written need more: about a stripe per thread
            (:class:`~mutation_api.table.acid_table.WriterOptions`).
        threads: number of threads that work at the same time. If None, ``os.cpu_count()``. Small change sets
            are written by the caller's own thread.
    """

    memory_bytes: int = MEMORY_BYTES_DEFAULT
    threads: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a setting is out of range."""
        for name in ("memory_bytes", "threads"):
            value = getattr(self, name)
            is_whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not (is_whole or (name == "threads" and value is None)):
                raise ConfigurationError(f"{name}={value!r}: it must be a whole number, such as 4 or 1 << 30")
        if self.memory_bytes < MEMORY_BYTES_MIN:
            raise ConfigurationError(f"memory_bytes ({self.memory_bytes}) must be {MEMORY_BYTES_MIN} or more")
        if self.threads is not None and self.threads < 1:
            raise ConfigurationError(f"threads ({self.threads}) must be 1 or more")

    @property
    def thread_count(self) -> int:
        """The number of threads."""
        return self.threads or os.cpu_count() or 1


ROWS_PER_INSERT_FILE = 100_000
"""Number of new rows of a partition per file, unless the user sets the number of files.

With fewer rows, the cost of a file exceeds the time that another thread saves.
"""


class InsertFiles:
    """Spreads the inserts of each partition over several files. Threads may share it.

    Spark's engine spreads them by a hash of their content, because it may evaluate rows again. This engine
    sees each row once, so it can count them.

    Args:
        files: number of files for the inserts of a partition; 0 for a bucketed table.
        rows_per_file: number of inserts of a partition that go to one file before the next one is used. After
            the last file, the first one is used again.
    """

    def __init__(self, files: int, rows_per_file: int) -> None:
        self._files = files
        self._rows_per_file = rows_per_file
        self._mutex = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)

    @classmethod
    def of_table(cls, table: AcidTable, insert_files: int | None, threads: int) -> InsertFiles:
        """Create it with the user's number of files, or one per ROWS_PER_INSERT_FILE inserts and per thread.

        Raises:
            ConfigurationError: See :func:`mutation_api.write.layout.writer_count`.
        """
        files = writer_count(table, threads, insert_files)
        return cls(files, 1 if insert_files else ROWS_PER_INSERT_FILE)

    def spread(self, addressed: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same addressed changes, with the number of its file in each insert."""
        if self._files <= 1:
            return addressed
        inserts = addressed.column(ADDED_OPERATION).to_numpy() == Operation.INSERT
        if not inserts.any():
            return addressed
        with self._mutex:
            partitions = numbers_of_partitions(addressed, self._number)[inserts]
            positions = self._positions(partitions)
        buckets = addressed.column(BUCKET).to_numpy().copy()
        buckets[inserts] = positions // self._rows_per_file % self._files
        at = addressed.schema.get_field_index(BUCKET)
        return addressed.set_column(at, addressed.schema.field(at), pa.array(buckets, pa.int32()))

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _positions(self, partitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the running number of each insert within its partition, from 0."""
        self._counts = np.pad(self._counts, (0, len(self._numbers) - len(self._counts)))
        order = np.argsort(partitions, kind="stable")
        counts = np.bincount(partitions, minlength=len(self._counts))
        firsts = np.cumsum(counts) - counts
        positions = np.empty(len(partitions), np.int64)
        positions[order] = np.arange(len(partitions)) - np.repeat(firsts - self._counts, counts)
        self._counts = self._counts + counts
        return positions


def forecast_arrow(
    transaction: OpenTransaction,
    table_name: str,
    changes: object,
    *,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
    insert_files: int | None = None,
    local: LocalOptions | None = None,
) -> Forecast:
    """Count the changes that :func:`mutation_api.write.apply.apply_arrow` would write with these arguments.

    The changes are read once and checked in the same way. Only temporary files are written.

    Raises:
        MutationError: See :func:`mutation_api.write.apply.apply_arrow`. Errors that are found only while
            files are written, such as a row that is changed twice, are not raised.
    """
    table = transaction.table(table_name)
    check_sink(table)
    transaction.check()
    local = local or LocalOptions()
    reader = changes_reader(changes, table, operation_column)
    plan = plan_changes(table, reader.schema, transaction.valid_ids(table.full_name), operation_column)
    files = InsertFiles.of_table(table, insert_files, local.thread_count)
    counts = CountedChanges()
    for batch in sized(reader, local.memory_bytes // BATCH_PART):
        transaction.check()
        counts.add(files.spread(plan.addressed(batch)))
    return forecast(table, counts.groups, counts.trials(table))
