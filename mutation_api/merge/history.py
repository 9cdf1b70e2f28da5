"""Histories of keys in a table, as of a slowly changing dimension of type 2: one row per version of a key.

A change is an event: at a point of its sequence, a key gets a state or is deleted. A table holds the events
of a key as rows with intervals:

========  ==================================================================================================
event     row
========  ==================================================================================================
state     ``valid_from`` is the event's point, ``valid_to`` that of the key's next event, or NULL
delete    none if the event before it is a state, whose interval then ends at the delete. Otherwise a row
          whose interval is empty (``valid_from`` = ``valid_to``), and whose other columns are NULL
========  ==================================================================================================

So the rows of a key depend only on its events. To add events, the rows are turned back into events, and the
rows of all events are compared with those of the table. Therefore neither the order of arrival nor the cut
into runs makes a difference, and a change that arrives again changes nothing.

Two different changes of a key at one point are refused, unless further sequence columns decide which one is
later. As these are then needed for later arrivals, they are columns of the table, and each delete gets a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import (
    ConfigurationError,
    RecordLayoutError,
    RecordValueError,
    TableNotMutableError,
    listed,
)
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.differences import differs
from mutation_api.format.event import DELETE, INSERT, UPDATE, Mask
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.format.json_values import json_texts
from mutation_api.format.timestamps import exact_unit
from mutation_api.merge.clauses import altered_keys_error
from mutation_api.merge.key_columns import are_comparable, key_in_type
from mutation_api.orc.format.stored_values import hollow, nulled
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.row_type import checked_names
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT

Deletes = Literal["close", "ignore", "refuse"]

ROWS_SHOWN = 3

_UNFIT_KEYS = ("float", "double", "array", "map", "struct", "uniontype")


class HistoryOptionsDict(TypedDict, total=False):
    """The options of a history besides its key and sequence, as keyword arguments."""

    columns: Sequence[str] | None
    """The columns that a version has, besides its key and interval. If None, all other columns of the table.
    The table's further columns are NULL, and further columns of the changes are not read."""
    deletes: Deletes
    """The effect of a delete: ``"close"`` (the default) ends the key's version, ``"ignore"`` leaves it as it
    is, ``"refuse"`` raises RecordValueError."""
    operation_column: str
    """The column of the changes with ``'insert'``, ``'update'`` or ``'delete'``. Inserts and updates mean the
    same. If the changes lack it, none of them is a delete."""
    valid_from: str
    """The column of the table where the interval of a version begins (inclusive)."""
    valid_to: str
    """The column where the interval ends (exclusive). NULL if the version is the key's last one."""
    current: str | None
    """A boolean column that is true for the last version of a key that is not deleted. If None, there is
    none."""


@dataclass(frozen=True)
class HistoryRules:
    """The checked options of a history, with all names in lower case; made by :meth:`of`.

    Attributes:
        key: columns of the table and of the changes that identify a key.
        point: the column of the changes that orders the events, and begins the intervals.
        ties: further columns of the changes and the table, which order events at the same point.
        columns: the other columns of a version.
        deletes: the effect of deletes.
        operation_column: see :class:`HistoryOptionsDict`.
        valid_from: the column where intervals begin.
        valid_to: the column where intervals end.
        current: the column that marks the last version of a key. If None, there is none.
        in_log_order: True if ``ties`` are the order in which the changes were made, even at different points.
            A change whose point is before that of the change before it then begins at that
            point, as the clock of a source may be set back.
    """

    key: tuple[str, ...]
    point: str
    ties: tuple[str, ...]
    columns: tuple[str, ...]
    deletes: Deletes
    operation_column: str
    valid_from: str
    valid_to: str
    current: str | None
    in_log_order: bool = False

    @classmethod
    def of(
        cls,
        table: AcidTable,
        key: Sequence[str],
        sequence: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        deletes: Deletes = "close",
        operation_column: str = OPERATION_COLUMN_DEFAULT,
        valid_from: str = "valid_from",
        valid_to: str = "valid_to",
        current: str | None = None,
        in_log_order: bool = False,
    ) -> HistoryRules:
        """Check the options of a history.

        Args:
            table: the table that holds it.
            key: the key columns; a single string is one column.
            sequence: the column that orders the changes of a key, or several, of which the first gives the
                intervals and the others decide ties.
            columns: the columns of a version; for this and the rest see :class:`HistoryOptionsDict`.
            deletes: the effect of deletes.
            operation_column: the column with the operation of each change.
            valid_from: the column where intervals begin.
            valid_to: the column where intervals end.
            current: the column that marks the last version.
            in_log_order: True if the further columns of ``sequence`` are the order of all changes of a key.

        Raises:
            ConfigurationError: If an option is invalid, or if the table lacks a column.
            TableNotMutableError: If rows of the table cannot be updated.
        """
        what = f"table {table.full_name}: a history"
        if not table.version.has_row_ids:
            raise TableNotMutableError(
                f"{what} ends the intervals of existing rows, but the table is insert-only: create one "
                "without insert_only"
            )
        keys = tuple(checked_names(key, f"{what}: key"))
        point, *ties = checked_names(sequence, f"{what}: sequence") or [""]
        marks = [valid_from.lower(), valid_to.lower(), *([] if current is None else [current.lower()])]
        wanted = [column.name for column in table.all_columns]
        if columns is not None:
            wanted = checked_names(columns, f"{what}: columns")
        own = [name for name in wanted if name not in (*keys, *marks)]
        rules = cls(
            keys,
            point,
            tuple(ties),
            (*own, *(name for name in ties if name not in (*own, *keys))),
            deletes,
            operation_column.lower(),
            marks[0],
            marks[1],
            None if current is None else marks[2],
            in_log_order,
        )
        rules._check(what, {column.name: column.type for column in table.all_columns})
        return rules

    def _check(self, what: str, types: Mapping[str, str]) -> None:
        """Check the options against the types of the table's columns."""
        if self.deletes not in get_args(Deletes):
            raise ConfigurationError(
                f"{what}: deletes={self.deletes!r}: expected 'close', 'ignore' or 'refuse'"
            )
        interval = (self.valid_from, self.valid_to)
        marks = interval if self.current is None else (*interval, self.current)
        for name in (*self.key, *marks, *self.columns):
            if name not in types:
                raise ConfigurationError(
                    f"{what}: the table has no column {name!r}. It has {', '.join(types)}. Name its columns "
                    "with key, columns, valid_from, valid_to, current. Columns that decide ties are in it too"
                )
        if unfit := [name for name in self.key if parse_hive_type(types[name]).kind in _UNFIT_KEYS]:
            raise ConfigurationError(
                f"{what}: key columns must be numbers, dates, timestamps or strings that are equal exactly; "
                f"{unfit[0]} is {types[unfit[0]]}"
            )
        if not self.key or not self.point or len({*self.key, *marks}) < len(self.key) + len(marks):
            raise ConfigurationError(
                f"{what} needs key columns, a sequence, and separate columns for its interval: got "
                f"key={self.key}, sequence={(self.point, *self.ties)}, and {', '.join(marks)}"
            )
        first, last = (types[name] for name in interval)
        kind = parse_hive_type(first)
        if first != last or kind.children or kind.kind in ("binary", "boolean"):
            raise ConfigurationError(
                f"{what}: {interval[0]} ({first}) and {interval[1]} ({last}) must have the same type, a "
                "number, date, timestamp or string"
            )
        if self.current is not None and types[self.current] != "boolean":
            raise ConfigurationError(f"{what}: {self.current} must be boolean, it is {types[self.current]}")

    def of_source(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of the changes that are read, given all that there are, in lower case."""
        own = [name for name in (*self.key, self.point, *self.columns) if name in names]
        operation = [self.operation_column] if self.operation_column in names else []
        return tuple(dict.fromkeys([*own, *operation]))


@dataclass(frozen=True)
class HistoryReport:
    """The result of adding changes to a history.

    Attributes:
        table: ``database.table``.
        change_count: number of changes, without ignored deletes.
        inserted: number of versions (and rows of deletes) that are new.
        updated: number of versions whose interval ends elsewhere, or that another change replaces.
        deleted: number of rows that are removed: others replace them. An update that moves its row to another
            partition counts as a delete and an insert.
        is_dry_run: True if nothing was written.
    """

    table: str
    change_count: int
    inserted: int
    updated: int
    deleted: int
    is_dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict of JSON types only."""
        values = dataclasses.asdict(self)
        return {"table": self.table, "dry_run": values.pop("is_dry_run"), **values}

    def __str__(self) -> str:
        would = "would be " if self.is_dry_run else ""
        return (
            f"{self.table}: {self.change_count:,} changes; versions {would}inserted: {self.inserted:,}, "
            f"updated: {self.updated:,}, deleted: {self.deleted:,}"
        )


@dataclass(frozen=True)
class Events:
    """Changes as rows of the table: ``rows`` has all of its columns, ``deletes`` marks the deletes."""

    rows: pa.RecordBatch
    deletes: Mask


def events_of(table: AcidTable, rules: HistoryRules, changes: pa.RecordBatch) -> Events:
    """Convert changes to rows of the table.

    Args:
        table: the table.
        rules: the options of its history.
        changes: plain arrays under lower-case names.

    Raises:
        RecordLayoutError: If columns are missing or have unfit types.
        RecordValueError: If a key or point is NULL or would be stored as another value, if an operation is
            unknown, or if a delete is refused.
    """
    what = f"table {table.full_name}: the changes"
    check_columns(table, rules, changes.schema.names)
    deletes = _deletes(what, rules, changes)
    if rules.deletes == "refuse" and deletes.any():
        raise RecordValueError(
            f"{what}: {int(deletes.sum())} of them are deletes, and deletes='refuse'. Nothing was written. "
            "deletes='close' ends the versions of deleted keys"
        )
    if rules.deletes == "ignore" and deletes.any():
        changes = changes.filter(pa.array(~deletes))
        deletes = np.zeros(changes.num_rows, np.bool_)
    types = {column.name: column.type for column in table.all_columns}
    exact = {name: _exact(table, name, changes.column(name), types[name]) for name in rules.key}
    exact[rules.valid_from] = _exact(table, rules.point, changes.column(rules.point), types[rules.valid_from])
    kept = {*rules.ties, *table.partition_key_names}
    columns = {}
    for name, hive_type in types.items():
        if name in exact:
            columns[name] = exact[name]
        elif name in rules.columns:
            given = changes.column(name)
            given = given if name in kept else blank(given, deletes)
            columns[name] = _converted(table, name, given, hive_type)
        else:
            columns[name] = hollow(arrow_type(parse_hive_type(hive_type), timestamp_unit="us"), len(deletes))
    for name in rules.ties:
        _check_no_null(table, name, columns[name])
    return Events(pa.record_batch(columns), deletes)


def check_columns(table: AcidTable, rules: HistoryRules, names: Sequence[str]) -> None:
    """Raise RecordLayoutError if changes with columns of these names, in lower case, lack one."""
    if missing := [each for each in (*rules.key, rules.point, *rules.columns) if each not in names]:
        raise RecordLayoutError(
            f"table {table.full_name}: the changes lack {listed(missing)}: they have {', '.join(names)}. "
            "columns=[…] names the columns that versions have"
        )


def blank(values: pa.Array, mask: Mask) -> pa.Array:
    """Return values that are NULL where the mask is true."""
    if not mask.any():
        return values
    return hollow(values.type, len(values)) if mask.all() else nulled(values, mask)


def _deletes(what: str, rules: HistoryRules, changes: pa.RecordBatch) -> Mask:
    if rules.operation_column not in changes.schema.names:
        return np.zeros(changes.num_rows, np.bool_)
    given = changes.column(rules.operation_column)
    try:
        operations = pc.utf8_lower(given.cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecordLayoutError(
            f"{what}: column {rules.operation_column!r}: {given.type} is not a string"
        ) from error
    known = pc.fill_null(pc.is_in(operations, pa.array([INSERT, UPDATE, DELETE])), False)
    if pc.any(pc.invert(known)).as_py():
        wrong = operations.filter(pc.invert(known)).unique().to_pylist()
        raise RecordValueError(
            f"{what}: column {rules.operation_column!r}: {listed([repr(each) for each in wrong])}: expected "
            "'insert', 'update' or 'delete'"
        )
    found: Mask = pc.equal(operations, DELETE).to_numpy(zero_copy_only=False)
    return found


def _converted(table: AcidTable, name: str, given: pa.Array, hive_type: str) -> pa.Array:
    try:
        return convert_to_column(
            given, parse_hive_type(hive_type), column=name, timestamp_unit=exact_unit(given)
        )
    except (RecordLayoutError, RecordValueError) as error:
        raise type(error)(f"table {table.full_name}: {error}") from error


def _exact(table: AcidTable, name: str, given: pa.Array, hive_type: str) -> pa.Array:
    """Return values of a key or of the sequence in the table's type, which must not change them."""
    _check_no_null(table, name, given)
    if exact_unit(given) != "us":
        raise RecordValueError(
            f"table {table.full_name}: changes: column {name!r}: a value has digits below microseconds, in "
            "which keys and points are compared. Nothing was written. Round it, or use another column"
        )
    stored = _converted(table, name, given, hive_type)
    if given.type == stored.type and given.equals(stored):
        return stored
    if not are_comparable(given.type, stored.type):
        raise RecordLayoutError(
            f"table {table.full_name}: {name}: {given.type} values cannot be compared with {stored.type} "
            "values of the table. Cast the column of the changes"
        )
    kept, is_lost = key_in_type(table.full_name, name, given, stored.type)
    if (other := is_lost | differs(kept, stored)).any():
        shown = pa.array(np.flatnonzero(other)[:ROWS_SHOWN])
        parts = [pa.array([name] * len(shown), pa.string()), given.take(shown), stored.take(shown)]
        texts = json_texts(pa.StructArray.from_arrays(parts, ["column", "key", "stored"]))
        raise altered_keys_error(table.full_name, texts)
    return stored


def _check_no_null(table: AcidTable, name: str, values: pa.Array) -> None:
    if values.null_count:
        raise RecordValueError(
            f"table {table.full_name}: column {name!r} of the changes is NULL in {values.null_count:,} rows. "
            "A history needs its keys and the order of its changes. Nothing was written"
        )
