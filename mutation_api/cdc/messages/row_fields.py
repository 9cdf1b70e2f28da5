"""Match the fields of rows with the columns of the target; the only module that compares their names.

Names in Hive are not case-sensitive, and a source's log may spell a column in several ways, since a server
keeps the spelling of the last ALTER. Names are therefore compared in lower case, row by row. Only two fields
of one row that differ in case are refused. Rows with the same fields share their :class:`RowFields`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mutation_api.cdc.messages.events import Problem
from mutation_api.cdc.messages.json_text import Fields
from mutation_api.errors import RecordLayoutError

KINDS_KEPT = 4096
"""The number of kinds of rows to cache. If messages leave out NULLs, there may be as many kinds as rows."""


@dataclass(frozen=True)
class RowFields:
    """The fields of the columns, in rows with the same fields.

    Attributes:
        of_columns: the field of each column of the target; None if the rows lack it.
        of_key: the fields of the key's columns, in the order of the columns.
        lacking: required columns that the rows lack.
        defaulted: indices of the columns that the rows lack, and that get their default.
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
        """A function that returns the columns' values of a row; None if the rows are incomplete or wrong."""
        is_whole = not (self.doubled or self.lacking or self.others)
        names = [name for name in self.of_columns if name is not None]
        if not is_whole or len(names) < len(self.of_columns) or len(names) == 1:
            return None
        return operator.itemgetter(*names)

    @property
    def has_key(self) -> bool:
        """True if the rows have all columns of the key."""
        return None not in self.of_key

    def problem(self, names: ColumnNames, row: Fields) -> Problem | None:
        """Return the problem of rows that are written, or None."""
        if self.doubled:
            return names.doubled_problem(self.doubled)
        if self.lacking:
            return names.lacking_problem(self.lacking[0], row)
        if self.others:
            text = (
                f"{names.target} does not have this column; add it there, or choose to leave it out: "
                f"--ignore-column {names.table}.{self.others[0]}, in Python ignored_columns"
            )
            return Problem(RecordLayoutError, self.others[0], text)
        return None

    def key_problem(self, names: ColumnNames, row: Fields) -> Problem | None:
        """Return the problem of rows that are deleted, for which only the key counts, or None."""
        lacking = [column for column, found in zip(names.key, self.of_key, strict=True) if found is None]
        doubled = [each for each in self.doubled if each.lower() in names.key]
        if doubled:
            return names.doubled_problem(doubled)
        return names.lacking_problem(lacking[0], row) if lacking else None


@dataclass(frozen=True)
class ColumnNames:
    """The names of a table's columns, all in lower case except those of ``ignored``.

    Attributes:
        table: the source's name of the table.
        target: the target's name.
        columns: the target's columns in its order, including partition columns.
        key: the key's columns, in that order.
        optional: columns that rows may lack.
        defaulted: optional columns that get their default if they are missing.
        ignored: columns of the source that are left out. If two columns differ only in case, the one with
            this spelling is left out; otherwise upper and lower case are the same.
        metadata: prefixes of the names of fields that are not columns of the source.
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
        """Return the fields of a row."""
        names = tuple(row)
        found = self._known.get(names)
        if found is None:
            if len(self._known) >= KINDS_KEPT:
                self._known.clear()
            found = self._known[names] = self._fields(names)
        return found

    def doubled_problem(self, doubled: Sequence[str]) -> Problem:
        """Return the problem of two fields that differ only in case."""
        first, second = doubled[:2]
        text = (
            f"columns {first} and {second} differ only in case, but names in {self.target} are not "
            f"case-sensitive; leave one of them out: --ignore-column {self.table}.{first}, in Python "
            "ignored_columns, or rename it in the source"
        )
        return Problem(RecordLayoutError, first, text)

    def lacking_problem(self, column: str, row: Fields) -> Problem:
        """Return the problem of a row that lacks a column."""
        text = f"the message does not have this column of {self.target}; it has {', '.join(row)}."
        if column in self.key:
            text += " It is part of the key, so choose key columns that all messages have"
        else:
            text += (
                f" If it may be missing, choose to read it as NULL: --null-if-missing {self.table}.{column}, "
                "in Python null_if_missing; or as the value of its DEFAULT constraint, if it has one: "
                "--default-if-missing, default_if_missing"
            )
        return Problem(RecordLayoutError, column, text)

    def spelled(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the fields of a row by column; columns that the row lacks are left out."""
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
