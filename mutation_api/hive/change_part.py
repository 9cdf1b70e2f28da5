"""Parts of a change set: the changes of single calls on a table, kept until they are joined.

Parts may have any types and different columns. If their types are the same, they are joined without a
conversion. If types differ, the values are converted to the table's own type.

Batches wait in memory up to a limit, and beyond it in a temporary file.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import DeltaWriteError, RecordLayoutError, RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.event import ADDED_OPERATION, DELETE, INSERT, PARTITION_FIELD, ROW_ID_COLUMN, UPDATE
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.format.plain_array import plain_array
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.layout import ROW_ID_FIELDS, ChangeLayout, DefaultColumns, GivenColumn, match_columns

__all__ = [
    "ChangePart",
    "MemoryShare",
    "PartLayout",
    "SpooledBatches",
    "joined",
]


@dataclass(frozen=True)
class PartLayout:
    """The roles of the columns of a part; created by :meth:`of`.

    ``operation`` is the operation of all rows; if None, a column holds it. ``is_bare`` is True if the columns
    are the fields of ROW__ID.
    """

    table: AcidTable
    layout: ChangeLayout
    operation: str | None
    is_bare: bool

    @classmethod
    def of(
        cls,
        table: AcidTable,
        given: pa.Schema,
        operation: str | None,
        operation_column: str = ADDED_OPERATION,
    ) -> PartLayout:
        """Find the table's columns among the given ones, in any case and order.

        Args:
            table: a bound descriptor.
            given: the columns. Inserts need all columns of the table; ROW__ID is ignored. Updates need
                ROW__ID too. Deletes need only ROW__ID, as a column or as its separate fields; other columns
                are ignored.
            operation: INSERT, UPDATE or DELETE for all rows. If None, ``operation_column`` holds it.
            operation_column: the column with each row's operation, if ``operation`` is None.

        Raises:
            RecordLayoutError: If columns are missing, extra or duplicate, or have incompatible types.
        """
        is_bare = operation == DELETE and _is_bare(given)
        fields = [pa.field(ROW_ID_COLUMN, pa.struct(list(given)))] if is_bare else list(given)
        if operation is not None:
            ignored = _ignored(table, operation, fields)
            fields = [f for f in fields if f.name.lower() not in ignored]
            fields.insert(0, pa.field(operation_column, pa.string()))
        if operation in (UPDATE, DELETE) and ROW_ID_COLUMN.lower() not in {f.name.lower() for f in fields}:
            raise RecordLayoutError(
                f"table {table.full_name}: {operation}s need {ROW_ID_COLUMN}, which scan(row_ids=True) "
                f"reads; got the columns {', '.join(given.names)}"
            )
        layout = match_columns(table, [GivenColumn.of_field(f) for f in fields], operation_column)
        found = cls(table, layout, operation, is_bare)
        if operation == UPDATE and (lacking := (*found.missing, *layout.defaulted(table))):
            raise RecordLayoutError(
                f"table {table.full_name}: an update needs the whole new row; it lacks {', '.join(lacking)}"
            )
        return found

    @property
    def missing(self) -> tuple[str, ...]:
        """The table's columns that the part lacks and that have no default; if any, it may only delete."""
        return tuple(
            c.name for c in self.table.all_columns if c.name not in self.layout.columns and not c.default
        )

    @functools.cached_property
    def _defaults(self) -> DefaultColumns:
        """The values of the columns that new rows lack and that have a default."""
        if self.operation == DELETE:
            return DefaultColumns({}, {})
        return DefaultColumns.of(self.table, self.layout.columns)

    def plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with fixed names: ADDED_OPERATION unless constant, ROW__ID if present, and columns.

        Raises:
            RecordLayoutError: If a part that lacks columns has an insert or update.
            RecordValueError: If a field of ROW__ID is too large.
        """
        arrays: dict[str, pa.Array] = {}
        if self.operation is None:
            arrays[ADDED_OPERATION] = plain_array(batch.column(self.layout.operation)).cast(pa.string())
            self._check_complete(arrays[ADDED_OPERATION])
        elif self._defaults.unknown and batch.num_rows:
            raise self._unknown_defaults()
        if self.layout.row_id is not None:
            given = batch.to_struct_array() if self.is_bare else batch.column(self.layout.row_id)
            arrays[ROW_ID_COLUMN] = self._row_ids(plain_array(given))
        for name, given_name in self.layout.columns.items():
            arrays[name] = plain_array(batch.column(given_name))
        arrays |= {name: pa.repeat(value, batch.num_rows) for name, value in self._defaults.values.items()}
        return pa.RecordBatch.from_pydict(arrays)

    def plain_schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of :meth:`plain` for batches of this schema."""
        return self.plain(_empty(given)).schema

    def _check_complete(self, operations: pa.Array) -> None:
        defaulted = self.layout.defaulted(self.table)
        if not (defaulted or self.missing):
            return
        operations = pc.utf8_lower(operations)
        if defaulted and pc.any(pc.equal(operations, UPDATE), min_count=0).as_py():
            raise RecordLayoutError(
                f"table {self.table.full_name}: an update needs the whole new row; the change set lacks "
                f"{', '.join(defaulted)}; their defaults apply to new rows only"
            )
        if not (self.missing or self._defaults.unknown):
            return
        if not pc.all(pc.equal(operations, DELETE), skip_nulls=False, min_count=0).as_py():
            if not self.missing:
                raise self._unknown_defaults()
            raise RecordLayoutError(
                f"table {self.table.full_name}: the change set lacks the columns {', '.join(self.missing)}; "
                "only a change set of deletes may lack columns"
            )

    def _unknown_defaults(self) -> RecordLayoutError:
        reasons = "; ".join(self._defaults.unknown.values())
        return RecordLayoutError(f"table {self.table.full_name}: {reasons}")

    def _row_ids(self, given: pa.StructArray) -> pa.StructArray:
        fields = list(full_row_id_type(self.table))
        parts = []
        for role, field in zip(("txn", "bucket", "row_id", PARTITION_FIELD), fields, strict=False):
            name = self.layout.row_id_fields.get(role)
            values = pa.nulls(len(given), field.type)
            if name is not None:
                try:
                    values = plain_array(pc.struct_field(given, name)).cast(field.type)
                except pa.ArrowInvalid as error:
                    raise RecordValueError(
                        f"table {self.table.full_name}: {ROW_ID_COLUMN}.{name}: {error}"
                    ) from error
            parts.append(values)
        mask = given.is_null() if given.null_count else None
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)


@dataclass(frozen=True)
class ChangePart:
    """The changes of one call.

    Attributes:
        operation: the operation of all rows. If None, the batches have the column ADDED_OPERATION.
        schema: the schema of the batches: ADDED_OPERATION, ROW__ID and the columns, if present.
        fine: names of the columns whose timestamps have digits below microseconds.
        batches: the batches; they are read once, when the change set is written.
    """

    operation: str | None
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    fine: frozenset[str]


def joined(table: AcidTable, parts: Sequence[ChangePart]) -> pa.RecordBatchReader:
    """Return one change set of all parts, in their order, with its operations in the column ADDED_OPERATION.

    Raises:
        RecordValueError: If a value does not fit its column (raised while the change set is read).
    """
    fields = [pa.field(ADDED_OPERATION, pa.string())]
    if any(ROW_ID_COLUMN in part.schema.names for part in parts):
        fields.append(pa.field(ROW_ID_COLUMN, full_row_id_type(table)))
    for column in table.all_columns:
        types = {p.schema.field(column.name).type for p in parts if column.name in p.schema.names}
        if types:
            unit = "ns" if any(column.name in part.fine for part in parts) else "us"
            common = arrow_type(parse_hive_type(column.type), timestamp_unit=unit)
            fields.append(pa.field(column.name, types.pop() if len(types) == 1 else common))
    schema = pa.schema(fields)
    batches = (_fitted(table, part, batch, schema) for part in parts for batch in part.batches)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _fitted(table: AcidTable, part: ChangePart, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    types = {column.name: column.type for column in table.all_columns}
    arrays = []
    for field in schema:
        if field.name in batch.schema.names:
            array = batch.column(field.name)
            if array.type != field.type:
                array = _converted(table, array, field, types[field.name])
        elif field.name == ADDED_OPERATION:
            array = pa.repeat(pa.scalar(part.operation, pa.string()), batch.num_rows)
        else:
            array = pa.nulls(batch.num_rows, field.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _converted(table: AcidTable, array: pa.Array, field: pa.Field, hive_type: str) -> pa.Array:
    kind = parse_hive_type(hive_type)
    unit = "us" if field.type == arrow_type(kind, timestamp_unit="us") else "ns"
    try:
        return convert_to_column(array, kind, column=field.name, timestamp_unit=unit)
    except (RecordLayoutError, RecordValueError) as error:
        advice = "; other rows of that column have digits below microseconds. Write these in a transaction of"
        raise type(error)(
            f"table {table.full_name}: {error}{f'{advice} their own' if unit == 'ns' else ''}"
        ) from error


def _is_bare(given: pa.Schema) -> bool:
    """Return True if the columns are the fields of ROW__ID, as in a struct array that is not a column."""
    names = {name.lower() for name in given.names}
    return ROW_ID_COLUMN.lower() not in names and {"bucketid", "rowid"} <= names <= {
        *ROW_ID_FIELDS,
        "partition",
    }


def _ignored(table: AcidTable, operation: str, fields: Sequence[pa.Field]) -> set[str]:
    """Return the names (in lower case) of columns that the operation ignores."""
    if operation == INSERT:
        return {ROW_ID_COLUMN.lower()}
    if operation == UPDATE:
        return set()
    needed = {ROW_ID_COLUMN.lower(), *table.partition_key_names}
    return {field.name.lower() for field in fields} - needed


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


class MemoryShare:
    """Memory that several collections share.

    Args:
        byte_count: the size of the memory.
    """

    def __init__(self, byte_count: int) -> None:
        self._left = byte_count

    def took(self, byte_count: int) -> bool:
        """Take this many bytes; return False, and take none, if fewer are left."""
        fits = byte_count <= self._left
        self._left -= byte_count if fits else 0
        return fits


class SpooledBatches:
    """Batches of one schema, in the order in which they were added; they can be read any number of times.

    Args:
        schema: the schema of the batches.
        share: the memory for them. Further batches go to a file in the directory for temporary files. The
            file has no name and disappears with the process.
    """

    def __init__(self, schema: pa.Schema, share: MemoryShare) -> None:
        self.schema = schema
        self._share = share
        self._held: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchWriter | None = None
        self.row_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Raises DeltaWriteError if the temporary file could not be written."""
        self.row_count += batch.num_rows
        if self._file is None and self._share.took(batch.nbytes):
            self._held.append(batch)
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="hive-changes-")  # noqa: SIM115
                self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), self.schema)
            assert self._writer is not None
            self._writer.write_batch(batch)
        except OSError as error:
            raise DeltaWriteError(f"changes could not be written to a temporary file: {error}") from error

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches. Raises DeltaWriteError if the temporary file cannot be completed or read."""
        yield from self._held
        if self._file is None:
            return
        try:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._file.seek(0)
            yield from pa.ipc.open_stream(pa.PythonFile(self._file, mode="r"))
        except OSError as error:
            raise DeltaWriteError(f"changes could not be read from a temporary file: {error}") from error

    def close(self) -> None:
        """Discard the batches, and remove the file."""
        self._held = []
        self._writer = None
        if self._file is not None:
            self._file.close()
