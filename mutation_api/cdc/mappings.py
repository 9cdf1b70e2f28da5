"""Which tables of Hive follow which tables of a source: their rows, their history, or a log of their changes.

Several targets may follow one source table. They move together: each has a watermark, and all watermarks of a
source table have the same position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from mutation_api.cdc.source import CHANGED_AT, OPERATION, POSITION, SourceTable
from mutation_api.errors import ConfigurationError, InputFormatError, RecordLayoutError
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.plain_array import repeated
from mutation_api.merge.history import HistoryRules
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.transaction.catalog import normal_full_name

POSITION_COLUMN_DEFAULT = "log_position"
"""The column of histories and of tables of changes that holds positions as strings."""


@dataclass(frozen=True)
class TableMapping:
    """A target table that has the rows of the source table that it follows.

    ``source_table`` is the source's name for its table, ``target`` is ``database.table``. ``key`` lists the
    columns that identify a row of the target; it is empty if the source defines the key.
    """

    source_table: str
    target: str
    key: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Return the columns of the target that do not come from the source's rows."""
        return ()


@dataclass(frozen=True)
class HistoryMapping:
    """A history table (slowly changing dimension, type 2) of a source table, as ``HiveTable.track`` keeps it.

    The table has the columns of the source's rows (or some of them), the interval of each version, and the
    position in the log, a string. Positions decide between changes at the same point.

    Attributes:
        source_table: the source's name for its table.
        target: ``database.table``.
        key: the columns that identify a row; empty if the source, or another mapping, defines the key.
        sequence: the point of a change. CHANGED_AT is the time at which the source made it, in UTC. POSITION
            is the position in the log, as a string. Otherwise a column of the source's rows; deletes, which
            have no value in it, get the time.
        position: the column of positions. It does not exist if ``sequence`` is POSITION.
        deletes: ``"close"`` ends the version of a deleted key, ``"ignore"`` leaves it as it is, ``"refuse"``
            raises RecordValueError.
        valid_from: the column where intervals begin.
        valid_to: the column where intervals end.
        current: a boolean column that is true for the last version of a key that is not deleted. If None,
            there is none.
    """

    source_table: str
    target: str
    key: tuple[str, ...] = ()
    _: KW_ONLY
    sequence: str = CHANGED_AT
    position: str = POSITION_COLUMN_DEFAULT
    deletes: Literal["close", "ignore", "refuse"] = "close"
    valid_from: str = "valid_from"
    valid_to: str = "valid_to"
    current: str | None = None

    def names(self) -> tuple[str, ...]:
        """Return the columns of the target that do not come from the source's rows."""
        position = () if self.sequence == POSITION else (self.position,)
        marks = (self.valid_from, self.valid_to, *position, *([self.current] if self.current else []))
        return tuple(name.lower() for name in marks)

    def rules(self, table: AcidTable, key: Sequence[str]) -> HistoryRules:
        """Return the options of the history.

        Raises: See :meth:`~mutation_api.merge.history.HistoryRules.of`.
        """
        position = self.position.lower()
        return HistoryRules.of(
            table,
            key,
            [position] if self.sequence == POSITION else [CHANGED_AT, position],
            columns=[name for name in _data_columns(table, self) if name not in key],
            deletes=self.deletes,
            operation_column=OPERATION,
            valid_from=self.valid_from,
            valid_to=self.valid_to,
            current=self.current,
            in_log_order=self.sequence != POSITION,
        )

    def check(self, table: AcidTable) -> None:
        """Check the columns of the target that do not come from the source's rows.

        Raises ConfigurationError if one is missing or has an unfit type.
        """
        types = _types(table, self.names(), "a history of a source")
        wanted = {} if self.sequence == POSITION else {self.position.lower(): "string"}
        if self.sequence in (CHANGED_AT, POSITION):
            wanted[self.valid_from.lower()] = "timestamp" if self.sequence == CHANGED_AT else "string"
        _check_types(table, types, wanted)


@dataclass(frozen=True)
class ChangesMapping:
    """A table that gets every change of a source table as a row.

    The table has the columns of the source's rows (or some of them), the operation (``insert``, ``update`` or
    ``delete``), the position in the log, and possibly the time of the change. A delete has only the key.
    A change of a key is a delete and an insert.

    Attributes:
        source_table: the source's name for its table.
        target: ``database.table``.
        key: the columns that identify a row; empty if the source, or another mapping, defines the key.
        operation: the column of operations, a string.
        position: the column of positions, a string. A key has no two changes at the same position.
        changed_at: the column of the times at which the source made the changes, timestamps in UTC. If the
            table does not have it, the source need not give times.
    """

    source_table: str
    target: str
    key: tuple[str, ...] = ()
    _: KW_ONLY
    operation: str = "operation"
    position: str = POSITION_COLUMN_DEFAULT
    changed_at: str = "changed_at"

    def names(self) -> tuple[str, ...]:
        """Return the columns of the target that do not come from the source's rows."""
        return tuple(name.lower() for name in (self.operation, self.position, self.changed_at))

    def check(self, table: AcidTable) -> None:
        """Check the columns of the target that do not come from the source's rows.

        Raises ConfigurationError if one is missing or has an unfit type.
        """
        operation, position, changed_at = self.names()
        types = _types(table, (operation, position), "a table of changes")
        _check_types(table, types, {operation: "string", position: "string"})
        _check_types(table, types, {changed_at: "timestamp"} if changed_at in types else {})

    def has_times(self, table: AcidTable) -> bool:
        """Return True if the table has the column of times."""
        return self.names()[-1] in {column.name for column in table.all_columns}


AnyMapping = TableMapping | HistoryMapping | ChangesMapping
"""A table that follows a table of a source."""


@dataclass(frozen=True)
class FollowedTable:
    """A table of the source, and all targets that follow it.

    ``key``: columns that identify a row; empty if the source defines the key.
    """

    name: str
    key: tuple[str, ...]
    rows: TableMapping | None
    histories: tuple[HistoryMapping, ...]
    changes: tuple[ChangesMapping, ...]

    @property
    def mappings(self) -> tuple[AnyMapping, ...]:
        """All mappings of the table."""
        return (*([] if self.rows is None else [self.rows]), *self.kept)

    @property
    def kept(self) -> tuple[HistoryMapping | ChangesMapping, ...]:
        """The mappings that need all operations on a key, not only the last one."""
        return (*self.histories, *self.changes)

    def source_table(self, tables: Mapping[str, AcidTable]) -> SourceTable:
        """Return the table for the source, with the columns of its rows in the target that has most.

        Args:
            tables: the targets, by name.

        Raises:
            ConfigurationError: If a target lacks a column, or if targets have different columns.
        """
        for each in self.kept:
            each.check(tables[each.target])
        found = {each.target: _rows_of(tables[each.target], each) for each in self.mappings}
        if self.rows is not None:
            whole = found[self.rows.target]
        else:
            whole = max(found.values(), key=lambda table: len(table.all_columns))
        types = {column.name: column.type for column in whole.all_columns}
        for mapping in self.kept:
            if hidden := sorted({*mapping.names()} & types.keys()):
                raise ConfigurationError(
                    f"table {mapping.target}: column {hidden[0]} is not one of the rows of source table "
                    f"{self.name}, but {whole.full_name} has a column of this name that is: use another name "
                    f"in {mapping.target}"
                )
        for table in found.values():
            for column in table.all_columns:
                if types.get(column.name) != column.type:
                    raise ConfigurationError(
                        f"tables {table.full_name} and {whole.full_name} follow {self.name}, but "
                        f"column {column.name} is {column.type} in the first and "
                        f"{types.get(column.name, 'missing')} in the second: give both the same columns"
                    )
        wants_times = any(each.sequence != POSITION for each in self.histories)
        wants_times |= any(each.has_times(tables[each.target]) for each in self.changes)
        return SourceTable(self.name, whole, self.key, wants_times)


def followed_tables(mappings: Iterable[AnyMapping]) -> tuple[FollowedTable, ...]:
    """Return the tables of the source in the order of their first mappings, with normal names.

    Raises:
        ConfigurationError: If there are no mappings, a target is listed twice, or two mappings of a source
            table contradict each other.
    """
    checked = [
        dataclasses.replace(
            each, target=normal_full_name(each.target), key=tuple(name.lower() for name in each.key)
        )
        for each in mappings
    ]
    if not checked:
        raise ConfigurationError(
            "no table given: name at least one target table (--table, --history, --changes)"
        )
    doubled = repeated([each.target for each in checked])
    doubled = doubled or repeated([each.source_table for each in checked if isinstance(each, TableMapping)])
    if doubled:
        raise ConfigurationError(
            f"table {doubled[0]} is listed twice: in a run, each target has one source table"
        )
    names = dict.fromkeys(each.source_table for each in checked)
    return tuple(_followed(name, [each for each in checked if each.source_table == name]) for name in names)


def emptied_error(what: str, table: FollowedTable) -> InputFormatError:
    """Return the error for a source that emptied a table whose changes are kept; ``what`` names the log."""
    targets = ", ".join(each.target for each in table.kept)
    return InputFormatError(
        f"{what}: all rows of the table were removed at once, or replaced by a copy, and the log does not "
        f"contain a delete of each row, which {targets} would need. Nothing was written. End the open "
        "versions by hand (UPDATE … SET valid_to = … WHERE valid_to IS NULL), and follow the table from "
        "there on under another name of the source"
    )


def _followed(name: str, mappings: Sequence[AnyMapping]) -> FollowedTable:
    keys = list(dict.fromkeys(each.key for each in mappings if each.key))
    if len(keys) > 1:
        shown = " and ".join(", ".join(key) for key in keys)
        raise ConfigurationError(
            f"source table {name}: its targets have different keys, {shown}: a key identifies a row of the "
            "source, so it is the same in all targets"
        )
    rows = [each for each in mappings if isinstance(each, TableMapping)]
    return FollowedTable(
        name,
        keys[0] if keys else (),
        rows[0] if rows else None,
        tuple(each for each in mappings if isinstance(each, HistoryMapping)),
        tuple(each for each in mappings if isinstance(each, ChangesMapping)),
    )


def _data_columns(table: AcidTable, mapping: AnyMapping) -> list[str]:
    names = mapping.names()
    return [column.name for column in table.all_columns if column.name not in names]


def _rows_of(table: AcidTable, mapping: AnyMapping) -> AcidTable:
    """Return the target with only the columns that come from the source's rows."""
    taken = sorted({column.name for column in table.all_columns} & {OPERATION, POSITION, CHANGED_AT})
    if taken:
        raise RecordLayoutError(
            f"table {table.full_name} cannot be an ingest target: the column name {taken[0]!r} is reserved; "
            "rename the column"
        )
    if isinstance(mapping, TableMapping):
        return table
    names = mapping.names()

    def kept(columns: tuple[AcidColumn, ...]) -> tuple[AcidColumn, ...]:
        return tuple(column for column in columns if column.name not in names)

    return dataclasses.replace(table, columns=kept(table.columns), partition_keys=kept(table.partition_keys))


def _types(table: AcidTable, names: Sequence[str], what: str) -> dict[str, str]:
    types = {column.name: column.type for column in table.all_columns}
    if missing := [name for name in names if name not in types]:
        raise ConfigurationError(
            f"table {table.full_name}: {what} has columns {', '.join(names)}, but the table lacks "
            f"{', '.join(missing)}: it has {', '.join(types)}. Add them, or name the table's own columns"
        )
    return types


def _check_types(table: AcidTable, types: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    for name, kind in wanted.items():
        if parse_hive_type(types[name]).kind != kind:
            advice = ""
            if kind == "timestamp":
                advice = ", since it holds the times at which the source made changes"
            raise ConfigurationError(
                f"table {table.full_name}: column {name} is {types[name]}, expected {kind}{advice}"
            )
