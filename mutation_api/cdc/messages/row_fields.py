"""Fields of rows, and the columns of the target that they are: the one place that compares names.

Names in Hive have no case, and a source's log may spell a column in several ways, since a server keeps the
spelling of the last ALTER. So names are compared in lower case, row by row, and only two fields of one row
that differ in case are refused. Rows of equal fields share their :class:`RowFields`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mutation_api.cdc.messages.events import Problem
from mutation_api.cdc.messages.json_text import Fields
from mutation_api.errors import RecordLayoutError

__all__ = ["ColumnNames", "RowFields"]


KINDS_KEPT = 4096
"""Kinds of rows that are kept: if NULLs are left out of messages, there may be as many as rows."""


@dataclass(frozen=True)
class RowFields:
    """Where the columns are in rows that have certain fields.

    Attributes:
        of_columns: for each column of the target its field, None if the rows lack it.
        of_key: those of the key's columns, in the order of the columns.
        lacking: columns that the rows lack and must have.
        defaulted: numbers of the columns that the rows lack, and whose default they then have.
        others: fields that are not columns, and that the user did not leave out.
        doubled: two fields that differ only in case, and are one column; () if there are none.
    """

    of_columns: tuple[str | None, ...]
    of_key: tuple[str | None, ...]
    lacking: tuple[str, ...]
    defaulted: tuple[int, ...]
    others: tuple[str, ...]
    doubled: tuple[str, ...]

    @functools.cached_property
    def picked(self) -> Callable[[Fields], tuple[object, ...]] | None:
        """Takes the columns' values out of a row that has no problem and lacks no column; None otherwise."""
        is_whole = not (self.doubled or self.lacking or self.others)
        names = [name for name in self.of_columns if name is not None]
        if not is_whole or len(names) < len(self.of_columns) or len(names) == 1:
            return None
        return operator.itemgetter(*names)

    @property
    def has_key(self) -> bool:
        """Whether the rows have all columns of the key."""
        return None not in self.of_key

    def problem(self, names: ColumnNames, row: Fields) -> Problem | None:
        """Problem of rows that are written, or None."""
        if self.doubled:
            return names.doubled_problem(self.doubled)
        if self.lacking:
            return names.lacking_problem(self.lacking[0], row)
        if self.others:
            text = (
                f"{names.target} has no such column; add it there, or choose to leave it out: "
                f"--ignore-column {names.table}.{self.others[0]}, in Python ignored_columns"
            )
            return Problem(RecordLayoutError, self.others[0], text)
        return None

    def key_problem(self, names: ColumnNames, row: Fields) -> Problem | None:
        """Problem of rows of which only the key counts, or None."""
        lacking = [column for column, found in zip(names.key, self.of_key, strict=True) if found is None]
        doubled = [each for each in self.doubled if each.lower() in names.key]
        if doubled:
            return names.doubled_problem(doubled)
        return names.lacking_problem(lacking[0], row) if lacking else None


@dataclass(frozen=True)
class ColumnNames:
    """Names of a table's columns, all in lower case but those of ``ignored``.

    Attributes:
        table: the source's name of the table.
        target: the target's.
        columns: the target's columns in its order, partition columns included.
        key: the key's columns, in that order.
        optional: columns that rows may lack.
        defaulted: those of them that then have their default.
        ignored: columns of the source that are left out. Of two that differ in case the one that is spelled
            so is left out; otherwise case does not count.
        metadata: begin the names of fields that are not columns of the source.
    """

    table: str
    target: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    optional: Collection[str]
    defaulted: Collection[str]
    ignored: Collection[str]
    metadata: tuple[str, ...] = ()
    _known: dict[tuple[str, ...], RowFields] = field(default_factory=dict, compare=False, repr=False)

    def fields(self, row: Fields) -> RowFields:
        """The fields of a row."""
        names = tuple(row)
        found = self._known.get(names)
        if found is None:
            if len(self._known) >= KINDS_KEPT:
                self._known.clear()
            found = self._known[names] = self._fields(names)
        return found

    def doubled_problem(self, doubled: Sequence[str]) -> Problem:
        """The problem of two fields that differ only in case."""
        first, second = doubled[:2]
        text = (
            f"columns {first} and {second} differ only in case, and names in {self.target} have no case; "
            f"leave one of them out: --ignore-column {self.table}.{first}, in Python ignored_columns, or "
            "rename it in the source"
        )
        return Problem(RecordLayoutError, first, text)

    def lacking_problem(self, column: str, row: Fields) -> Problem:
        """The problem of a row that lacks a column."""
        text = f"the message does not have this column of {self.target}; it has {', '.join(row)}."
        if column in self.key:
            text += " It is part of the key, so name as the key columns that all messages have"
        else:
            text += (
                f" If it may be missing, choose to read it as NULL: --null-if-missing {self.table}.{column}, "
                "in Python null_if_missing; or as the value of its DEFAULT constraint, if it has one: "
                "--default-if-missing, default_if_missing"
            )
        return Problem(RecordLayoutError, column, text)

    def spelled(self, names: Sequence[str]) -> Mapping[str, str]:
        """The fields of a row by the columns that they are; a column that it lacks is not there."""
        found = self._fields(tuple(names)).of_columns
        return {column: name for column, name in zip(self.columns, found, strict=True) if name is not None}

    def _fields(self, names: tuple[str, ...]) -> RowFields:
        by_column: dict[str, list[str]] = {}
        for name in names:
            by_column.setdefault(name.lower(), []).append(name)
        doubled: tuple[str, ...] = ()
        for column, spellings in by_column.items():
            if len(spellings) > 1:
                left = [name for name in spellings if name not in self.ignored]
                by_column[column] = left or spellings[:1]
                doubled = doubled or tuple(left[:2] if len(left) > 1 else ())
        found = {column: spellings[0] for column, spellings in by_column.items()}
        ignored = {name.lower() for name in self.ignored}
        others = [
            name
            for column, name in sorted(found.items())
            if column not in self.columns and column not in ignored and not self._is_metadata(name)
        ]
        lacking = [each for each in self.columns if each not in found and each not in self.optional]
        return RowFields(
            tuple(map(found.get, self.columns)),
            tuple(map(found.get, self.key)),
            tuple(lacking),
            tuple(
                number
                for number, each in enumerate(self.columns)
                if each in self.defaulted and each not in found
            ),
            tuple(others),
            doubled,
        )

    def _is_metadata(self, name: str) -> bool:
        return name.startswith(self.metadata)
