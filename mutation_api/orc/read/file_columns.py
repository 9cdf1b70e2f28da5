"""FileColumns: the requested columns of one file, in the requested form.

A column of the table is found in the file by position or by name, depending on the version. A column that the
file does not have (added later) is null. If only rows with certain keys are requested, the key columns of a
stripe are read first, and the others when one of its rows is returned.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import CorruptFileError, RecordValueError, TableNotMutableError
from mutation_api.format.event import EVENT_FIELDS, ROW, Operation
from mutation_api.format.hive_type import HiveType, parse_hive_type
from mutation_api.format.merge_events import EventKeys
from mutation_api.format.plain_array import struct_fields
from mutation_api.orc.format.bloom_filters import HASHED_KINDS, MOST_VALUES, SoughtValues
from mutation_api.orc.format.checked_file import faults_of
from mutation_api.orc.format.stored_values import Range
from mutation_api.orc.read.column_reader import ReadOptions, column_type, read_column
from mutation_api.orc.read.event_file import EventFile
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.orc.read.type_changes import NOT_UTF8, first_not_utf8, timestamps_of_texts
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.bucket_resolver import Placement

_SMALL_BYTES = 64 * 1024
"""Reading a file up to this size is faster than determining which parts need not be read."""
_FEW_GROUPS = 4
"""Decoding the key columns of fewer row groups is faster than parsing the ranges of the groups."""
_NAMELESS_COLUMN = re.compile(r"_col([0-9]+)")


class RowChoice(Protocol):
    """Chooses rows by the values of some columns: those that have one of some keys, or meet a condition."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of these columns, which are data columns of the table."""
        ...

    @property
    def is_read_first(self) -> bool:
        """True if nothing else is read of a stripe without a chosen row, at the price of one more request."""
        ...

    def find(self, arrays: Sequence[pa.Array]) -> NDArray[np.int64]:
        """Return the indices of the chosen rows, ascending, given the values of each column.

        It may return other rows too, if the caller examines the rows again.
        """
        ...

    def may_hold(self, ranges: Sequence[Mapping[str, Range]]) -> Sequence[bool]:
        """Return which parts of a file may hold chosen rows.

        Args:
            ranges: for each part, the lower and upper bounds (inclusive) of the columns' values except NULL,
                as far as they are known: int, Decimal, bytes for strings, days for dates.
        """
        ...

    def equal_values(self) -> Mapping[str, pa.Array]:
        """Return the values of which a column has one in each chosen row, as far as they are known.

        They have the column's type, and none is null.
        """
        ...


@dataclass(frozen=True)
class Wanted:
    """The part of each file to read: ``columns`` out of ``table_columns`` (all data columns, in table order).

    ``only`` chooses the requested rows; its columns need not be among ``columns``. ``placement``
    is the bucket check for every row, requested or not, and requires that ``only`` has the bucket columns.
    ``row_ids`` is True if the rows' ROW__IDs are returned. ``table_name`` is for messages. ``by_position`` is
    True if the columns of a file are matched with the table's by position, False if by name. ``sought`` holds
    the ROW__IDs of the requested rows, sorted; it excludes ``only``, and files of legacy tables ignore it.
    """

    table_columns: tuple[AcidColumn, ...]
    columns: tuple[AcidColumn, ...]
    options: ReadOptions
    only: RowChoice | None
    placement: Placement | None
    row_ids: bool
    table_name: str = ""
    by_position: bool = False
    sought: EventKeys | None = None

    @classmethod
    def of(
        cls,
        table: AcidTable,
        columns: Sequence[AcidColumn],
        options: ReadOptions,
        *,
        only: RowChoice | None = None,
        placement: Placement | None = None,
        row_ids: bool = True,
        sought: EventKeys | None = None,
    ) -> Wanted:
        """Describe the part to read of a table's files. Numbers become strings as in the table's Hive."""
        options = dataclasses.replace(options, prints_shortest_numbers=table.prints_shortest_numbers)
        by_position = table.matches_columns_by_position
        name = table.full_name
        return cls(
            table.columns, tuple(columns), options, only, placement, row_ids, name, by_position, sought
        )

    @functools.cached_property
    def key_columns(self) -> tuple[AcidColumn, ...]:
        """The columns of ``only``, in its order."""
        by_name = {c.name: c for c in self.table_columns}
        return () if self.only is None else tuple(by_name[name] for name in self.only.names)

    @functools.cached_property
    def late_columns(self) -> tuple[AcidColumn, ...]:
        """The columns that are read only from stripes with a requested row."""
        if self.sought is not None:
            return self.columns
        return () if self.only is None else tuple(c for c in self.columns if c not in self.key_columns)


_EVENT_NAMES = (OPERATION, ORIGINAL_TRANSACTION, BUCKET, ROW_ID, CURRENT_TRANSACTION) = tuple(
    name.lower() for name in EVENT_FIELDS if name != ROW
)
"""Some writers spell the names of event fields in another case."""


@dataclass(frozen=True)
class NumberedRows:
    """Some rows of a stripe whose rows were inserted by one statement and numbered without a gap.

    Attributes:
        count: the number of rows of the stripe.
        ends: the keys of its first and its last row.
        positions: the positions of the rows in the stripe, ascending.
        keys: their keys.
    """

    count: int
    ends: EventKeys
    positions: NDArray[np.int64]
    keys: EventKeys


@dataclass(frozen=True)
class StripeNumbers:
    """The ROW__IDs of a stripe whose rows were inserted by one statement and numbered without a gap.

    Attributes:
        source: the file.
        file: its kind and place.
        index: the number of the stripe.
        first: the event fields of the first row, by lower-case name; only the row ids of the others differ.
    """

    source: OrcInput
    file: EventFile
    index: int
    first: Mapping[str, int]

    def rows_at(self, positions: NDArray[np.int64]) -> NumberedRows | None:
        """Return the rows at these positions, without reading all event fields.

        Only their row ids are read, which proves that the rows are where they are expected.

        Returns:
            None if other row ids are stored there.
        """
        first, count = self.first[ROW_ID], self.source.stripe_rows(self.index)
        (name,) = (name for name in self.source.schema.names if name.lower() == ROW_ID)
        stored = self.source.read_rows(self.index, [name], positions, count).column(0)
        row_ids = positions + first
        if stored.null_count or not np.array_equal(stored.to_numpy(), row_ids):
            return None
        ends = self._keys(np.array([first, first + count - 1]))
        return NumberedRows(count, ends, positions, self._keys(row_ids))

    def _keys(self, row_ids: NDArray[np.int64]) -> EventKeys:
        original_txn, bucket, current_txn = (
            self.first[name] for name in (ORIGINAL_TRANSACTION, BUCKET, CURRENT_TRANSACTION)
        )
        return EventKeys.inserted(row_ids, original_txn, bucket, current_txn, self.file.precedence)


@dataclass(frozen=True)
class EventRanges:
    """The ranges of the event fields that a file's writer recorded.

    Attributes:
        source: the file.
        file: its kind and place.
        stripes: for each stripe, or only the first ones, the known ranges, by lower-case name.
    """

    source: OrcInput
    file: EventFile
    stripes: Sequence[Mapping[str, Range]]

    def numbers(self, index: int) -> StripeNumbers | None:
        """Return the ROW__IDs of a stripe. None if its rows are of several statements, or have gaps."""
        ranges = self.stripes[index] if index < len(self.stripes) else {}
        if any(name not in ranges for name in _EVENT_NAMES):
            return None
        constants = [ranges[name] for name in _EVENT_NAMES if name != ROW_ID]
        first, last = ranges[ROW_ID]
        if (
            any(low != high for low, high in constants)
            or ranges[OPERATION][0] != Operation.INSERT
            or last - first + 1 != self.source.stripe_rows(index)
        ):
            return None
        return StripeNumbers(self.source, self.file, index, {name: ranges[name][0] for name in _EVENT_NAMES})


@dataclass(frozen=True)
class SoughtRows:
    """Where some ROW__IDs may be in a file, by the ranges that its writer recorded.

    Attributes:
        events: the ranges.
        sought: the ROW__IDs, sorted.
    """

    events: EventRanges
    sought: EventKeys

    def stripes_without_ids(self) -> frozenset[int]:
        """Return the stripes that cannot hold any of the ROW__IDs."""
        stripes = enumerate(self.events.stripes)
        return frozenset(i for i, ranges in stripes if not self._may_be_in(ranges).any())

    def _may_be_in(self, ranges: Mapping[str, Range]) -> NDArray[np.bool_]:
        found = np.ones(len(self.sought), np.bool_)
        for name, values in ((ORIGINAL_TRANSACTION, self.sought.original_txn), (ROW_ID, self.sought.row_id)):
            low, high = ranges.get(name, (None, None))
            if low is not None and high is not None:
                found &= (values >= low) & (values <= high)
        return found

    def numbered(self, index: int) -> NumberedRows | None:
        """Return the rows in a stripe; see :class:`StripeNumbers`."""
        numbers = self.events.numbers(index)
        if numbers is None:
            return None
        is_here = self._may_be_in(self.events.stripes[index]) & (self.sought.bucket == numbers.first[BUCKET])
        return numbers.rows_at(self.sought.row_id[is_here] - numbers.first[ROW_ID])


@dataclass(frozen=True)
class FileColumns:
    """The requested columns of one file.

    ``in_file`` is the result of :func:`names_in_file`. ``struct`` is the name, in the file, of the struct
    that has the columns as fields; None if they are top-level columns.
    """

    source: OrcInput
    file: EventFile
    wanted: Wanted
    in_file: dict[str, str]
    struct: str | None

    @functools.cached_property
    def early(self) -> tuple[AcidColumn, ...]:
        """The columns that are read from every stripe."""
        if self.wanted.sought is not None:
            return ()
        return self.wanted.columns if self.wanted.only is None else self.wanted.key_columns

    @property
    def early_names(self) -> list[str]:
        """The names under which :meth:`OrcInput.read_stripe` reads ``early``."""
        return self._names(self.early)

    def read(self, columns: Sequence[AcidColumn], batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return columns of some of a stripe's rows, in the requested form."""
        stored = {f.name: array for f, array in self._stored(columns, batch)}
        arrays = {c.name: stored[self.in_file[c.name]] for c in columns if c.name in self.in_file}
        return {c.name: self._column(arrays.get(c.name), c, batch.num_rows) for c in columns}

    def check_texts(self, columns: Mapping[str, pa.Array]) -> None:
        """Check the strings that are returned. Raises RecordValueError if one is not UTF-8."""
        found = first_not_utf8(list(columns), list(columns.values()))
        if found is not None:
            raise RecordValueError(f"{self._where()}column {found}: {NOT_UTF8} ({self.file.location})")

    def read_late(self, index: int, positions: NDArray[np.int64], stripe_rows: int) -> dict[str, pa.Array]:
        """Return the late columns of the rows at these positions of a stripe with ``stripe_rows`` rows."""
        columns = self.wanted.late_columns
        names = self._names(columns)
        if not names:
            return {c.name: self._column(None, c, len(positions)) for c in columns}
        with faults_of(self.file.location):
            found = self.read(columns, self.source.read_rows(index, names, positions, stripe_rows))
        self.check_texts(found)
        return found

    def stripes_without_keys(self) -> frozenset[int]:
        """Return the stripes that cannot hold a row which ``only`` chooses.

        The ranges that the file's writer recorded show this.
        """
        only = self.wanted.only
        if only is None or not self._key_ranges:
            return frozenset()
        return frozenset(np.flatnonzero(~np.array(only.may_hold(self._key_ranges), np.bool_)).tolist())

    def groups_with_keys(self, index: int) -> NDArray[np.int64] | None:
        """Return the row groups of a stripe that may hold a row which ``only`` chooses; see RowGroups.

        Returns:
            None if all groups are to be read, as it is not faster to read these alone.
        """
        only, groups = self.wanted.only, self.source.row_groups(index)
        if only is None or not any(self._key_ranges[index : index + 1]):
            return None
        found = np.arange(groups.count)
        if groups.count >= _FEW_GROUPS:
            ranges = self._by_column(self.source.group_ranges(index, self._key_types))
            found = np.flatnonzero(only.may_hold(ranges)) if ranges else found
        for name, sought in self._sought_values.items():
            filters = self.source.bloom_filters(index, name, self._key_types[name]) if len(found) else []
            if filters:
                found = found[[filters[group].may_hold(sought) for group in found.tolist()]]
        return found if groups.are_few(found) else None

    @functools.cached_property
    def _sought_values(self) -> dict[str, SoughtValues]:
        """The values of which a column has one in each chosen row, by name in the file."""
        known = {} if self.wanted.only is None else self.wanted.only.equal_values()
        found = {}
        for stored, column in self._stored_keys.items():
            values = known.get(column.name)
            is_hashed = self._key_types[stored].kind in HASHED_KINDS
            if values is not None and is_hashed and len(values) <= MOST_VALUES:
                found[stored] = SoughtValues(values)
        return found

    @functools.cached_property
    def _stored_keys(self) -> dict[str, AcidColumn]:
        """The table's key columns that the file has, by the names under which they are read."""
        columns = [c for c in self.wanted.key_columns if c.name in self.in_file]
        return dict(zip(self._names(columns), columns, strict=True))

    @functools.cached_property
    def _key_types(self) -> dict[str, HiveType]:
        """The types of these columns, by the same names."""
        return {stored: parse_hive_type(column.type) for stored, column in self._stored_keys.items()}

    @functools.cached_property
    def _key_ranges(self) -> list[dict[str, Range]]:
        """The ranges of the key columns in the stripes, by column; nothing for a small file."""
        if self.wanted.only is None or 0 < self.file.byte_count <= _SMALL_BYTES:
            return []
        return self._by_column(self.source.stripe_ranges(self._key_types))

    def _by_column(self, parts: Sequence[Mapping[str, Range]]) -> list[dict[str, Range]]:
        """Return the ranges of key columns by the names of the table's columns."""
        keys = self._stored_keys
        return [{keys[name].name: ends for name, ends in ranges.items()} for ranges in parts]

    def sought_rows(self) -> SoughtRows | None:
        """Return where the sought ROW__IDs may be. None if none are sought, or the file is small or plain."""
        if self.wanted.sought is None or self.event_ranges is None:
            return None
        return SoughtRows(self.event_ranges, self.wanted.sought)

    @functools.cached_property
    def event_ranges(self) -> EventRanges | None:
        """The recorded ranges of the event fields. If None, the file is small or plain."""
        if self.struct is None or 0 < self.file.byte_count <= _SMALL_BYTES:
            return None
        stored = {name.lower(): name for name in self.source.schema.names}
        types = {stored[name]: parse_hive_type("bigint") for name in _EVENT_NAMES if name in stored}
        ranges = self.source.stripe_ranges(types)
        by_name = [{name.lower(): ends for name, ends in each.items()} for each in ranges]
        return EventRanges(self.source, self.file, by_name)

    def _names(self, columns: Sequence[AcidColumn]) -> list[str]:
        prefix = "" if self.struct is None else f"{self.struct}."
        return [f"{prefix}{self.in_file[c.name]}" for c in columns if c.name in self.in_file]

    def _column(self, array: pa.Array | None, column: AcidColumn, count: int) -> pa.Array:
        hive_type = parse_hive_type(column.type)
        options = self.wanted.options
        if array is None:
            return pa.nulls(count, column_type(hive_type, options.timestamp_form))
        try:
            if pa.types.is_string(array.type) and self._holds_timestamps(column):
                array = timestamps_of_texts(array)
            return read_column(array, hive_type, options)
        except (CorruptFileError, RecordValueError, TableNotMutableError) as error:
            where = self._where()
            raise type(error)(f"{where}column {column.name!r}: {error} ({self.file.location})") from error

    def _where(self) -> str:
        return f"table {self.wanted.table_name}, " if self.wanted.table_name else ""

    def _holds_timestamps(self, column: AcidColumn) -> bool:
        """Return True if the file has timestamps, but the table's column has another type.

        Strings of such a column are then timestamps in the form TEXT.
        """
        if parse_hive_type(column.type).kind == "timestamp" or column.name not in self.in_file:
            return False
        schema = self.source.schema
        fields = schema if self.struct is None else schema.field(self.struct).type
        return bool(pa.types.is_timestamp(fields.field(self.in_file[column.name]).type))

    def _stored(
        self, columns: Sequence[AcidColumn], batch: pa.RecordBatch
    ) -> Iterator[tuple[pa.Field, pa.Array]]:
        if self.struct is None:
            yield from zip(batch.schema, batch.columns, strict=True)
        elif any(c.name in self.in_file for c in columns):
            rows = batch.column(self.struct)
            yield from zip(rows.type, struct_fields(rows), strict=True)


def names_in_file(names: Sequence[str], wanted: Wanted) -> dict[str, str]:
    """Return, for each requested column that the file has, the name of the file's column.

    Columns are found by position or by name (case-sensitive), as Hive does for the table. Hive's SQL often
    writes ``_col0``, ``_col1``, … instead of names; these are always found by position.
    """
    nameless = all(_NAMELESS_COLUMN.fullmatch(name) for name in names)
    if wanted.by_position or nameless:
        by_name = dict(zip((c.name for c in wanted.table_columns), names, strict=False))
    else:
        by_name = {name: name for name in names}
    return {c.name: by_name[c.name] for c in (*wanted.columns, *wanted.key_columns) if c.name in by_name}
