"""All operations of a log as rows of a history, or of a table of changes; pure Arrow, for both engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.cdc.mappings import ChangesMapping, HistoryMapping
from mutation_api.cdc.source import CHANGED_AT, OPERATION, POSITION, TIME
from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.format.event import DELETE
from mutation_api.format.plain_array import plain_array, struct_fields
from mutation_api.merge.history import HistoryRules
from mutation_api.table.acid_table import AcidTable

_DIGITS = "abcdefghijklmnopqrs"
"""The letter before a number: its position in the alphabet is the count of the number's digits."""


def position_texts(positions: pa.StructArray) -> pa.Array:
    """Return positions as strings that sort, byte by byte, as the positions do, such as ``b12.d4096.a0``.

    A letter before each number is the count of its digits (a is 1). The time of a position, which orders
    nothing, is left out.

    Raises RecordValueError if a number is negative.
    """
    numbers = [plain_array(each) for each in struct_fields(positions)]
    named = zip(positions.type, numbers, strict=True)
    texts = [_text(each.cast(pa.int64())) for field, each in named if field.name != TIME]
    return pc.binary_join_element_wise(*texts, ".") if len(texts) > 1 else texts[0]


def _text(numbers: pa.Array) -> pa.Array:
    if pc.any(pc.less(numbers, 0)).as_py():
        raise RecordValueError("positions with negative numbers cannot be stored as strings that sort")
    digits = numbers.cast(pa.string())
    letters = pa.array(list(_DIGITS)).take(pc.subtract(pc.binary_length(digits), 1))
    return pc.binary_join_element_wise(letters, digits, "")


@dataclass(frozen=True)
class KeptChanges:
    """Converts operations to rows of one target; pickled for tasks.

    Attributes:
        source_id: the source's name, for messages.
        target: ``database.table``.
        columns: the columns of the target that come from the source's rows.
        operation: the name of the column of operations.
        changed_at: the name of the column of times. If None, there is none.
        position: the name of the column of positions.
        sequence: the column of the source's rows that replaces the time, except in deletes. If None, none
            does.
        rules: the options of the history. If None, the target is a table of changes.
    """

    source_id: str
    target: str
    columns: tuple[str, ...]
    operation: str
    changed_at: str | None
    position: str
    sequence: str | None = None
    rules: HistoryRules | None = None

    @classmethod
    def of(
        cls,
        source_id: str,
        mapping: HistoryMapping | ChangesMapping,
        table: AcidTable,
        key: Sequence[str],
        names: Sequence[str],
    ) -> KeptChanges:
        """Check a target.

        Args:
            source_id: the source's name.
            mapping: the target's mapping.
            table: the target.
            key: the columns that identify a row of the source.
            names: the columns of the operations.

        Raises:
            ConfigurationError: If the source does not give times, or if an option is invalid.
            TableNotMutableError: If rows of a history cannot be updated.
        """
        marks = mapping.names()
        columns = tuple(each.name for each in table.all_columns if each.name not in marks)
        if missing := [name for name in key if name not in columns]:
            raise ConfigurationError(
                f"table {table.full_name} lacks key columns {', '.join(missing)} of source {source_id}: it "
                f"has {', '.join(columns)}"
            )
        if isinstance(mapping, ChangesMapping):
            times = mapping.names()[-1] if mapping.has_times(table) else None
            found = cls(source_id, table.full_name, columns, mapping.names()[0], times, mapping.names()[1])
        else:
            times = None if mapping.sequence == POSITION else CHANGED_AT
            own = None if mapping.sequence in (CHANGED_AT, POSITION) else mapping.sequence.lower()
            if own is not None and own not in names:
                raise ConfigurationError(
                    f"table {table.full_name}: the source's rows have no column {own!r} for the points of a "
                    f"history: they have {', '.join(names)}"
                )
            rules = mapping.rules(table, key)
            found = cls(
                source_id, table.full_name, columns, OPERATION, times, mapping.position.lower(), own, rules
            )
        if times is not None and found.sequence is None and CHANGED_AT not in names:
            raise ConfigurationError(
                f"source {source_id} does not give the time at which a row was changed, which "
                f"{table.full_name} needs. Nothing was written. A history can be ordered by positions in the "
                f"log ({POSITION}), and a table of changes needs no column of times"
            )
        return found

    def fields(self, types: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the columns of :meth:`rows`, given the types of those of the operations."""
        return self.rows(pa.record_batch({name: pa.nulls(0, kind) for name, kind in types.items()})).schema

    def rows(self, operations: pa.RecordBatch) -> pa.RecordBatch:
        """Return operations, whose column names are in lower case, as rows for the target.

        Raises RecordValueError if an operation has no time, or no value in the column of the points.
        """
        found = {name: operations.column(name) for name in self.columns}
        found[self.operation] = operations.column(OPERATION)
        found[self.position] = position_texts(plain_array(operations.column(POSITION)))
        if self.changed_at is not None:
            found[self.changed_at] = self._points(operations)
        return pa.record_batch(found)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert batches, as a function that runs in tasks."""
        for batch in batches:
            yield self.rows(batch.rename_columns([name.lower() for name in batch.schema.names]))

    def _points(self, operations: pa.RecordBatch) -> pa.Array:
        is_delete = pc.equal(operations.column(OPERATION), DELETE)
        is_ignored = self.rules is not None and self.rules.deletes == "ignore"
        points = operations.column(self.sequence or CHANGED_AT)
        if self.sequence is not None and not is_ignored and pc.any(is_delete).as_py():
            if CHANGED_AT not in operations.schema.names or not pa.types.is_timestamp(points.type):
                raise RecordValueError(
                    f"table {self.target}: source {self.source_id} deletes rows. A delete has no value in "
                    f"{self.sequence}, and the source does not give its time, or the time cannot be compared "
                    f"with {points.type} values. Nothing was written. Ignore deletes, or order the history "
                    f"by {CHANGED_AT} or {POSITION}"
                )
            points = pc.if_else(is_delete, operations.column(CHANGED_AT).cast(points.type), points)
        missing = pc.and_(points.is_null(), pc.invert(is_delete)) if is_ignored else points.is_null()
        row = pc.index(missing, True).as_py()
        if row >= 0:
            at = position_texts(plain_array(operations.column(POSITION)).slice(row, 1))[0]
            raise RecordValueError(
                f"table {self.target}: source {self.source_id}: the operation at position {at} has no "
                f"{'time' if self.sequence is None else self.sequence}, so its point of the history is not "
                "known. Nothing was written"
            )
        return points
