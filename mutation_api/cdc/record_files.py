"""Code shared by sources whose fields are separated: a table's columns in a file, and the location of an
error in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.cdc.delimited_text import DamagedRecordError, DelimitedText
from mutation_api.cdc.source import OPERATION, POSITION
from mutation_api.errors import InputFormatError, MutationError, RecordLayoutError, RecordValueError
from mutation_api.format.hive_type import MisfitError, UnfitTypeError, parse_hive_type
from mutation_api.format.text_values import BinaryEncoding, check_text_type, values_of_texts
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable


class FieldError(Exception):
    """Raised when a field of a record is wrong; :meth:`Chunk.located` translates it for users.

    ``row``: number of the record in its chunk. ``field``: description of the field. ``kind``: class of the
    error that users see.
    """

    def __init__(
        self, row: int, field: str, reason: str, kind: type[MutationError] = InputFormatError
    ) -> None:
        super().__init__(row, field, reason, kind)
        self.row = row
        self.field = field
        self.reason = reason
        self.kind = kind


def _refuse(is_wrong: pa.Array, field: str, reason: str, shown: pa.Array | None = None) -> None:
    """Raise FieldError if a record is wrong, for the first such record.

    If ``shown`` is given, its value for that record replaces ``{}`` in ``reason``.
    """
    row = pc.index(pc.fill_null(is_wrong, False), True).as_py()
    if row >= 0:
        raise FieldError(row, field, reason if shown is None else reason.format(repr(shown[row].as_py())))


def refuse_nulls(texts: pa.Array, field: str, reason: str) -> None:
    """Refuse the first string that is null."""
    if texts.null_count:
        _refuse(texts.is_null(), field, reason)


def refuse_others(found: pa.Array, wanted: pa.Array, field: str, reason: str) -> None:
    """Refuse the first string that differs from the expected one, which is never null."""
    if not found.equals(wanted):
        _refuse(pc.invert(pc.fill_null(pc.equal(found, wanted), False)), field, reason, found)


def operation_names(codes: pa.Array, known: Mapping[str, str]) -> pa.Array:
    """Return the operations that codes stand for; refuse the first code that is not known."""
    numbers = pc.index_in(codes, pa.array(list(known)))
    if numbers.null_count:
        _refuse(numbers.is_null(), "field operation", f"is {{}}, expected one of {', '.join(known)}", codes)
    return pa.array(list(known.values())).take(numbers)


@dataclass(frozen=True)
class FileColumns:
    """The columns of a table in the order of a file's fields; ``table_name`` names the table."""

    table_name: str
    columns: tuple[AcidColumn, ...]
    binary: BinaryEncoding | None = None

    @classmethod
    def of(
        cls,
        table: AcidTable,
        names: Sequence[str] | None,
        *,
        binary: BinaryEncoding | None,
        elsewhere: Collection[str] = (),
    ) -> FileColumns:
        """Match the columns of a file with those of the table.

        Args:
            table: the target.
            names: the file's columns in order, in upper or lower case. If None, the table's columns, with
                partition columns last.
            binary: how the file represents binary values.
            elsewhere: columns of the table whose values do not come from the file's columns.

        Raises:
            RecordLayoutError: If file and table do not have the same columns, or if the type of a column
                cannot be read from a string.
        """
        known = {c.name: c for c in table.all_columns}
        _check_names(table, known)
        unknown = [name for name in elsewhere if name not in known]
        if unknown:
            raise RecordLayoutError(
                f"table {table.full_name} does not have columns {', '.join(unknown)}, only {', '.join(known)}"
            )
        wanted = [name for name in known if name not in elsewhere]
        found = wanted if names is None else [name.lower() for name in names]
        if sorted(found) != sorted(wanted):
            raise RecordLayoutError(
                f"table {table.full_name}: the columns of the file are wrong: got {', '.join(found)}, "
                f"expected {', '.join(wanted)}, in any order"
            )
        columns = tuple(known[name] for name in found)
        for column in (*columns, *(known[name] for name in elsewhere)):
            try:
                check_text_type(parse_hive_type(column.type), binary)
            except UnfitTypeError as unfit:
                where = f"table {table.full_name}: column {column.name!r} ({column.type})"
                raise RecordLayoutError(f"{where}: {unfit.reason}") from unfit
        return cls(table.full_name, columns, binary)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(c.name for c in self.columns)

    def typed(self, texts: Sequence[pa.Array]) -> dict[str, pa.Array]:
        """Convert strings to the columns' types; return them by column name. Raises FieldError."""
        return {c.name: self.values(t, c) for c, t in zip(self.columns, texts, strict=True)}

    def values(self, texts: pa.Array, column: AcidColumn) -> pa.Array:
        """Convert strings to values of a column of the table. Raises FieldError."""
        try:
            return values_of_texts(texts, parse_hive_type(column.type), binary=self.binary)
        except MisfitError as misfit:
            reason = f"({column.type} of table {self.table_name}): value {misfit.value} {misfit.reason}"
            raise FieldError(misfit.row, f"column {column.name!r}", reason, RecordValueError) from misfit


def _check_names(table: AcidTable, known: Collection[str]) -> None:
    taken = [name for name in (OPERATION, POSITION) if name in known]
    if taken:
        raise RecordLayoutError(
            f"table {table.full_name} has a column named {' and '.join(taken)}; its changes cannot be "
            "read, because this name is reserved for their operation or position. Rename the column"
        )


def operations_batch(
    names: Sequence[str],
    operations: pa.Array,
    position: Mapping[str, pa.Array],
    values: Mapping[str, pa.Array],
) -> pa.RecordBatch:
    """Return a batch of operations.

    Args:
        names: the table's columns in its order.
        operations: the operations.
        position: the numbers of their positions, by name.
        values: the values by column.
    """
    positions = pa.StructArray.from_arrays(list(position.values()), names=list(position))
    arrays = {OPERATION: operations, POSITION: positions, **{name: values[name] for name in names}}
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


@dataclass(frozen=True)
class RecordFile:
    """A file of records: the bytes from ``start`` to ``end``.

    ``fields`` names the fields of a record, for messages. Bytes that were appended after the listing are
    beyond ``end``; the next run reads them.
    """

    location: Location
    start: int
    end: int
    text: DelimitedText
    fields: tuple[str, ...]

    def chunks(self) -> Iterator[Chunk]:
        """Read the file's records, many at a time, as columns of strings.

        Raises:
            InputFormatError: If a record does not follow the format. Names file, line and field.
        """
        try:
            for offset, content in self.text.chunks(self.location, self.start, self.end):
                try:
                    yield Chunk(self, offset, content, self.text.columns(content, len(self.fields)))
                except DamagedRecordError as damaged:
                    raise damaged.moved(offset) from damaged
        except DamagedRecordError as damaged:
            raise self.damaged(damaged) from damaged
        except (OSError, EOFError) as error:
            raise InputFormatError(
                f"{self.location.shown}: the file cannot be read to its end: {error}"
            ) from error

    def damaged(self, error: DamagedRecordError) -> InputFormatError:
        """Return the error that users see."""
        field = None if error.field is None else self._named(error.field)
        return InputFormatError(self.message(error.offset, field, error.reason))

    def message(self, offset: int, field: str | None, reason: str) -> str:
        """Return ``reason`` after its location: file, line of the record that begins at ``offset``, field."""
        subject = "the record" if field is None else field
        return f"{self.location.shown}, line {self._line_number(offset)}: {subject} {reason}"

    def _named(self, number: int) -> str:
        if number < len(self.fields):
            return f"field {number + 1} ({self.fields[number]})"
        return f"field {number + 1}"

    def _line_number(self, offset: int) -> int:
        """Count the lines on each call; there is only one call, since an error ends the run."""
        end = self.text.record_end.encode()
        before = self.text.chunks(self.location, 0, offset)
        return sum(content.count(end) for _, content in before) + 1


@dataclass(frozen=True)
class Chunk:
    """Successive records of a file; ``offset`` is their first byte, ``texts`` holds their columns."""

    file: RecordFile
    offset: int
    content: bytes
    texts: Sequence[pa.Array]

    def __len__(self) -> int:
        return len(self.texts[0])

    @contextmanager
    def located(self) -> Iterator[None]:
        """Raise a FieldError of the block as the error that users see, with its location."""
        try:
            yield
        except FieldError as error:
            records = self.file.text.records(self.content)
            offset, _ = next(itertools.islice(records, error.row, None))
            message = self.file.message(self.offset + offset, error.field, error.reason)
            raise error.kind(message) from error
