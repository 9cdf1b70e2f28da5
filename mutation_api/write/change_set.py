"""ChangeSet: the changes of several calls on one table, which are written together.

Each call's changes are read, checked and addressed immediately, so its errors come from that call. Then they
wait in memory up to a limit, and beyond it in a temporary file.

Calls may pass different columns and types. Timestamps are written with nanoseconds only if values need them.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import (
    ConfigurationError,
    DeltaWriteError,
    RecordLayoutError,
    RecordValueError,
    listed,
)
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.event import ADDED_OPERATION
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.format.timestamps import exact_unit
from mutation_api.orc.format.stored_values import hollow
from mutation_api.read.row_filter import RowFilter
from mutation_api.read.table_view import PartitionCondition, matching_partitions
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.write.address import ADDRESS_COLUMNS, PARTITION
from mutation_api.write.arrow_input import BATCH_PART, changes_reader, looked_ahead, sized
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.write.local_plan import LocalOptions, LocalPlan, plan_changes
from mutation_api.write.staged_writer import OpenTransaction
from mutation_api.write.writing_order import Watch, in_turn, writing

SMALL_ROWS = 50_000
"""Changes with fewer rows are handled by the caller's thread."""


@dataclass(frozen=True)
class _Part:
    """The addressed changes of one call, and the columns whose timestamps have digits below microseconds."""

    addressed: SpooledBatches
    fine: frozenset[str]


class ChangeSet:
    """Addressed changes of one table, collected from any number of calls.

    Args:
        transaction: an open transaction.
        table_name: one of its sinks.
        share: memory for waiting changes, shared by the tables of a transaction.
        local: memory and threads for checking them.
    """

    def __init__(
        self, transaction: OpenTransaction, table_name: str, share: MemoryShare, local: LocalOptions
    ) -> None:
        self.table = transaction.table(table_name)
        self._transaction = transaction
        self._share = share
        self._local = local
        self._parts: list[_Part] = []

    def __len__(self) -> int:
        """Return the number of changes."""
        return sum(part.addressed.row_count for part in self._parts)

    def add(
        self, data: object, operation: str | None, *, operation_column: str = OPERATION_COLUMN_DEFAULT
    ) -> int:
        """Add changes and return their number.

        Args:
            data: any object with an Arrow interface. It is read now.
            operation: the operation of all rows. If None, ``operation_column`` holds it.
            operation_column: the column with each row's operation.

        Raises:
            RecordLayoutError, RecordValueError, BucketIdError, RowIdNotFoundError, TableNotMutableError: If a
                change is wrong; see :func:`mutation_api.write.apply.apply_arrow`.
            DeltaWriteError: If the changes fit neither into memory nor into a temporary file.
        """
        what = "the rows" if operation else "the change set"
        reader = changes_reader(data, self.table, operation_column, what)
        valid_ids = self._transaction.valid_ids(self.table.full_name)
        plan = plan_changes(self.table, reader.schema, valid_ids, operation_column, operation)
        stamped = [c.name for c in self.table.columns if plan.row_type and _may_be_fine(plan.row_type, c)]
        fine: set[str] = set()
        spool = SpooledBatches(plan.schema, self._share)
        try:
            for addressed in self._in_turn(plan, reader):
                fine |= {name for name in stamped if exact_unit(addressed.column(name)) == "ns"}
                spool.add(addressed)
        except BaseException:
            spool.close()
            raise
        self._parts.append(_Part(spool, frozenset(fine)))
        return spool.row_count

    def _in_turn(self, plan: LocalPlan, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the addressed changes; many are addressed by several threads."""
        batches, is_small = looked_ahead(reader, SMALL_ROWS)
        threads = 1 if is_small else self._local.thread_count
        parts = sized(batches, self._local.memory_bytes // BATCH_PART // threads)
        yield from in_turn(plan.addressed, parts, threads, Watch(self._transaction, writing(self.table)))

    def partitions(self) -> list[str]:
        """Return the (escaped) names of the partitions of all changes; '' if the table is not partitioned."""
        names: dict[str, None] = {}
        for part in self._parts:
            for batch in part.addressed:
                names.update(dict.fromkeys(batch.column(PARTITION).unique().to_pylist()))
        return [*names]

    def addressed(self) -> Iterator[pa.RecordBatch]:
        """Yield all changes with the same columns, in the order of the calls.

        Raises:
            RecordValueError: If a timestamp is out of range for nanoseconds, which other rows need.
            DeltaWriteError: If a temporary file cannot be read.
        """
        schema = self._schema()
        for part in self._parts:
            for batch in part.addressed:
                yield self._fitted(batch, schema)

    def close(self) -> None:
        """Discard the changes, and remove temporary files."""
        for part in self._parts:
            part.addressed.close()
        self._parts = []

    def _schema(self) -> pa.Schema:
        """Return the schema of all parts together."""
        parts = [part for part in self._parts if part.addressed.row_count]
        schemas = [part.addressed.schema for part in parts]
        fields = [schemas[0].field(name) for name in ADDRESS_COLUMNS] if schemas else []
        if any(len(schema) > len(ADDRESS_COLUMNS) for schema in schemas):
            fine = {name for part in parts for name in part.fine}
            fields += [pa.field(c.name, _stored_type(c, c.name in fine)) for c in self.table.columns]
        return pa.schema(fields)

    def _fitted(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        if batch.schema == schema:
            return batch
        address = batch.columns[: len(ADDRESS_COLUMNS)]
        if len(batch.schema) == len(ADDRESS_COLUMNS):  # only deletes, without the table's columns
            rows = [hollow(field.type, batch.num_rows) for field in list(schema)[len(ADDRESS_COLUMNS) :]]
        else:
            rows = [
                self._with_unit(batch.column(c.name), c, schema.field(c.name)) for c in self.table.columns
            ]
        return pa.RecordBatch.from_arrays([*address, *rows], schema=schema)

    def _with_unit(self, array: pa.Array, column: AcidColumn, field: pa.Field) -> pa.Array:
        if array.type == field.type:
            return array
        kind = parse_hive_type(column.type)
        unit = "us" if field.type == _stored_type(column, is_fine=False) else "ns"
        try:
            return convert_to_column(array, kind, column=column.name, timestamp_unit=unit)
        except (RecordLayoutError, RecordValueError) as error:
            raise type(error)(
                f"table {self.table.full_name}: {error}; other rows of that column have digits below "
                "microseconds. Write these in a separate transaction"
            ) from error


def _may_be_fine(row_type: pa.StructType, column: AcidColumn) -> bool:
    """Return True if a column of this type may hold nanoseconds."""
    return bool(row_type.field(column.name).type != _stored_type(column, is_fine=False))


def _stored_type(column: AcidColumn, is_fine: bool) -> pa.DataType:
    return arrow_type(parse_hive_type(column.type), timestamp_unit="ns" if is_fine else "us")


class MemoryShare:
    """Memory that several collections share.

    Args:
        byte_count: the size of the memory.
    """

    def __init__(self, byte_count: int) -> None:
        self._left = byte_count

    def took(self, byte_count: int) -> bool:
        """Take this many bytes. If fewer are left, take none and return False."""
        fits = byte_count <= self._left
        self._left -= byte_count if fits else 0
        return fits

    def gave_back(self, byte_count: int) -> None:
        """Return bytes that were taken."""
        self._left += byte_count


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
        self._share.gave_back(sum(batch.nbytes for batch in self._held))
        self._held = []
        self._writer = None
        if self._file is not None:
            self._file.close()


DYNAMIC = "dynamic"
"""Replace the partitions that new rows belong to, as in Spark's ``partitionOverwriteMode``."""


@dataclass(frozen=True)
class OverwriteReport:
    """The result of an overwrite.

    Attributes:
        table: ``database.table``.
        deleted: number of rows that were replaced.
        inserted: number of new rows.
        partitions: the (escaped) names of the partitions that were replaced, including empty ones; with a
            condition, those in which rows were replaced or added.
        is_base: True if the new rows become a base, so that the old ones are not deleted one by one. If
            another step of the table follows in the transaction, it deletes them first.
        is_dry_run: True if nothing was written.
    """

    table: str
    deleted: int
    inserted: int
    partitions: tuple[str, ...]
    is_base: bool = False
    is_dry_run: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return the report as a dict of JSON types only."""
        values = dataclasses.asdict(self)
        return {"table": self.table, "dry_run": values.pop("is_dry_run"), **values}

    def __str__(self) -> str:
        """Return one readable line."""
        of = f" of {len(self.partitions)} partitions" if self.partitions else ""
        done = "would replace" if self.is_dry_run else "replaced"
        return f"{self.table}: {done} {self.deleted} rows{of} by {self.inserted}"


@dataclass(frozen=True)
class Replaced:
    """The rows that an overwrite replaces; made by :meth:`of`.

    Attributes:
        is_dynamic: True to replace the partitions of the new rows.
        specs: the partitions to replace, by values of partition columns. If None, all.
        where: the condition that old and new rows must meet. If None, there is no condition.
    """

    is_dynamic: bool
    specs: tuple[tuple[PartitionCondition, ...], ...] | None
    where: pc.Expression | str | None

    @classmethod
    def of(
        cls,
        table: AcidTable,
        partitions: str | Sequence[Mapping[str, object]] | None,
        where: pc.Expression | str | None,
    ) -> Replaced:
        """Check the arguments of ``HiveTable.overwrite``. Raises ConfigurationError if they do not fit."""
        what = f"table {table.full_name}: overwrite"
        if partitions is not None and where is not None:
            raise ConfigurationError(f"{what}: pass either partitions or where, not both")
        if partitions is not None and not table.partition_keys:
            raise ConfigurationError(f"{what}: the table is not partitioned: omit partitions")
        if isinstance(partitions, str):
            if partitions != DYNAMIC:
                raise ConfigurationError(
                    f'{what}: partitions must be "{DYNAMIC}" or a list such as [{{"day": "2024-05-01"}}], '
                    f"got {partitions!r}"
                )
            return cls(True, None, None)
        if partitions is None:
            return cls(False, None, where)
        for each in partitions:
            if not isinstance(each, Mapping) or not each:
                raise ConfigurationError(
                    f"{what}: a partition must be a dictionary with values of some of "
                    f"{', '.join(table.partition_key_names)}, got {each!r}"
                )
        return cls(False, tuple(tuple(each.items()) for each in partitions), None)

    def partitions(self, table: AcidTable, known: Sequence[str], new: Sequence[str]) -> list[str]:
        """Return the partitions to replace that exist; '' if the table is not partitioned.

        Args:
            table: the table.
            known: names of the partitions that exist.
            new: names of the partitions of the new rows.

        Raises:
            RecordValueError: If new rows do not belong to the partitions to replace.
        """
        if self.is_dynamic:
            return [name for name in known if name in {*new}]
        if self.specs is None:
            return [*known]
        matching = {
            name
            for spec in self.specs
            for name in matching_partitions(table, dict.fromkeys((*known, *new)), spec)
        }
        if others := sorted({*new} - matching):
            raise RecordValueError(
                f"table {table.full_name}: overwrite: new rows belong to the partitions {listed(others)}, "
                "which are not among those to replace: name these as well, or leave out the rows"
            )
        return [name for name in known if name in matching]

    def checked(self, table: AcidTable, data: object) -> object:
        """Return the new rows. Reading them raises RecordValueError for rows that ``where`` excludes."""
        if self.where is None:
            return data
        reader = changes_reader(data, table, ADDED_OPERATION, "the rows")
        schema = pa.schema([field.with_name(field.name.lower()) for field in reader.schema])
        meets = RowFilter.of(self.where, table, schema)

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                kept = meets.rows(batch.rename_columns(schema.names)).num_rows
                if kept < batch.num_rows:
                    raise RecordValueError(
                        f"table {table.full_name}: overwrite: {batch.num_rows - kept} of the new rows do not "
                        "meet the condition of the rows to replace: leave them out, or append them"
                    )
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, rows())
