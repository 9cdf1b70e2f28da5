"""The shape of a table's rows: columns of messages and of the target, and the key.

Columns are matched by name, in any case. A message that lacks a column of the target, or has an additional
one, is refused, unless the user chose to read it as NULL, or to leave it out.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mutation_api.errors import ConfigurationError, InputFormatError, RecordLayoutError
from mutation_api.inputs.messages.events import Event, Images, MessageFormat, Problem
from mutation_api.inputs.messages.json_rows import ColumnReader
from mutation_api.inputs.messages.json_text import Fields, text_of
from mutation_api.inputs.messages.json_values import Reader, can_read
from mutation_api.inputs.messages.log_options import LogOptions
from mutation_api.inputs.source import SourceTable
from mutation_api.types.hive_type import HiveType, parse_hive_type

__all__ = ["STEPS", "RowOperation", "Shape", "ShapeFacts"]

STEPS = 2
"""Largest number of operations of one row of a message."""


@dataclass
class ShapeFacts:
    """Facts of a first look about the rows of one table's messages.

    ``schemas``: texts that define how values are written; ``has_no_schema``: some messages have none.
    ``key_names``: keys that messages name. ``columns``: those of the widest row.
    """

    schemas: set[str] = field(default_factory=set)
    has_no_schema: bool = False
    key_names: set[tuple[str, ...]] = field(default_factory=set)
    columns: tuple[str, ...] = ()

    def add(self, event: Event) -> None:
        """Add a row."""
        if event.schema is None:
            self.has_no_schema = True
        else:
            self.schemas.add(event.schema)
        if event.key_names is not None:
            self.key_names.add(event.key_names)
        if event.rows:
            row = event.rows[0].after or event.rows[0].before or ()
            if len(row) > len(self.columns):
                self.columns = tuple(row)

    def merge(self, other: ShapeFacts) -> None:
        """Add the facts of another part of the log."""
        self.schemas |= other.schemas
        self.has_no_schema |= other.has_no_schema
        self.key_names |= other.key_names
        self.columns = max(self.columns, other.columns, key=len)

    @property
    def all_schemas(self) -> tuple[str | None, ...]:
        """The schemas, then None if some messages have none."""
        return (*sorted(self.schemas), *([None] if self.has_no_schema else []))


class RowOperation(NamedTuple):
    """An operation on a row: its name, number in the row's message, and the row; None if there is none."""

    operation: str
    step: int
    row: Fields | None


@dataclass(frozen=True)
class Shape:
    """How rows of a table's messages become rows of its target.

    ``names``: the columns' names in the source, in the order of ``columns``. ``schemas``: those of the
    messages, None if messages have none; ``readers``: a tuple for each. ``ignored``: columns of the source
    that are left out. ``optional``: those of ``names`` that a message may lack.
    """

    table: SourceTable
    columns: tuple[tuple[str, HiveType], ...]
    names: tuple[str, ...]
    key: tuple[str, ...]
    ignored: tuple[str, ...]
    optional: tuple[str, ...]
    schemas: tuple[str | None, ...]
    readers: tuple[tuple[Reader, ...], ...]

    @staticmethod
    def of(
        table: SourceTable, facts: ShapeFacts, message_format: MessageFormat, options: LogOptions
    ) -> Shape:
        """Match the columns of both sides.

        Raises:
            ConfigurationError: neither user nor messages name the key.
            RecordLayoutError: names of columns differ only in case, the target lacks a key column, or a
                column cannot hold the values.
        """
        target = table.target
        columns = tuple((c.name, parse_hive_type(c.type)) for c in (*target.columns, *target.partition_keys))
        spelled = _spelled(table, facts.columns)
        names = tuple(spelled.get(name, name) for name, _ in columns)
        types = dict(zip(names, (hive_type for _, hive_type in columns), strict=True))
        readers = tuple(_readers(table, types, message_format, schema) for schema in facts.all_schemas)
        return Shape(
            table,
            columns,
            names,
            _key(table, facts, [name for name, _ in columns]),
            tuple(column for t, _, column in _parted(options.ignored_columns) if t == table.name),
            tuple(n for (c, _), n in zip(columns, names, strict=True) if _is_optional(options, table, c, n)),
            facts.all_schemas,
            readers,
        )

    @functools.cached_property
    def key_names(self) -> tuple[str, ...]:
        """The key's columns in the source."""
        return tuple(n for (c, _), n in zip(self.columns, self.names, strict=True) if c in self.key)

    def operations(self, event: Event, number: int) -> Iterator[RowOperation]:
        """The operations that an event describes with one of its rows."""
        images, op = event.rows[number], event.op
        assert op is not None
        step = number * STEPS
        if op == "delete":
            has_key = images.before is not None and all(name in images.before for name in self.key_names)
            yield RowOperation(op, step, images.before if has_key or event.key is None else event.key)
        elif op == "update" and self._is_moved(images):
            yield RowOperation("delete", step, images.before)
            yield RowOperation("insert", step + 1, images.after)
        else:
            yield RowOperation(op, step, images.after)

    def _is_moved(self, images: Images) -> bool:
        before, after = images.before, images.after or {}
        if before is None:
            return False
        return any(text_of(before.get(name)) != text_of(after.get(name)) for name in self.key_names)

    def problem(self, operation: RowOperation) -> Problem | None:
        """Problem of the columns of a row, or None."""
        row, is_delete = operation.row, operation.operation == "delete"
        target = self.table.target.full_name
        if row is None:
            text = "the message has no row before the delete, and no key"
            return Problem(InputFormatError, "key", text)
        if not is_delete and row.keys() == self._own:
            return None
        needed = self.key_names if is_delete else self._needed
        lacking = [name for name in needed if name not in row]
        if lacking:
            text = (
                f"the message does not have this column of {target}; it has {', '.join(row)}. If it may be "
                f"missing, choose to read it as NULL: --null-if-missing {self.table.name}.{lacking[0]}, in "
                "Python null_if_missing"
            )
            return Problem(RecordLayoutError, lacking[0], text)
        if not is_delete and not row.keys() <= self._known:
            (other, *_) = sorted(row.keys() - self._known)
            text = (
                f"{target} has no such column; add it there, or choose to leave it out: --ignore-column "
                f"{self.table.name}.{other}, in Python ignored_columns"
            )
            return Problem(RecordLayoutError, other, text)
        return None

    def values(self, operation: RowOperation) -> tuple[object, ...]:
        """The JSON values of the columns; for a delete only those of the key."""
        row = operation.row or {}
        names = self._named_by_delete if operation.operation == "delete" else self.names
        return tuple([None if name is None else row.get(name) for name in names])

    @functools.cached_property
    def column_readers(self) -> tuple[ColumnReader, ...]:
        """The readers of each column."""
        return tuple(
            ColumnReader(
                column, hive_type, name, name in self.key_names, tuple(each[i] for each in self.readers)
            )
            for i, ((column, hive_type), name) in enumerate(zip(self.columns, self.names, strict=True))
        )

    @functools.cached_property
    def _needed(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.optional)

    @functools.cached_property
    def _own(self) -> frozenset[str]:
        return frozenset(self.names)

    @functools.cached_property
    def _named_by_delete(self) -> tuple[str | None, ...]:
        """The names of the key's columns, None for the others."""
        return tuple(name if name in self.key_names else None for name in self.names)

    @functools.cached_property
    def _known(self) -> frozenset[str]:
        return frozenset((*self.names, *self.ignored))


def _parted(names: Collection[str]) -> list[tuple[str, str, str]]:
    return [name.rpartition(".") for name in names]


def _spelled(table: SourceTable, columns: Sequence[str]) -> dict[str, str]:
    spelled: dict[str, str] = {}
    for column in columns:
        if column.lower() in spelled:
            raise RecordLayoutError(
                f"table {table.name}: columns {spelled[column.lower()]} and {column} differ only in case, "
                f"and names in {table.target.full_name} have no case"
            )
        spelled[column.lower()] = column
    return spelled


def _readers(
    table: SourceTable, types: Mapping[str, HiveType], message_format: MessageFormat, schema: str | None
) -> tuple[Reader, ...]:
    """Readers of the columns' values, for messages of one schema."""
    chosen = message_format.readers(table.name, types, schema)
    for name, hive_type in types.items():
        if not can_read(chosen[name], hive_type):
            raise RecordLayoutError(
                f"table {table.name}, column {name}: values written as {chosen[name].name!r} cannot go into "
                f"a column of type {hive_type.text} of {table.target.full_name}"
            )
    return tuple(chosen[name] for name in types)


def _key(table: SourceTable, facts: ShapeFacts, columns: Sequence[str]) -> tuple[str, ...]:
    if table.key:
        key = tuple(name.lower() for name in table.key)
    elif len(facts.key_names) == 1:
        (names,) = facts.key_names
        key = tuple(name.lower() for name in names)
    else:
        found = "; ".join(", ".join(names) for names in sorted(facts.key_names))
        raise ConfigurationError(
            f"table {table.name}: the messages name {f'several keys ({found})' if found else 'no key'}; name "
            "the columns that identify a row"
        )
    unknown = [name for name in key if name not in columns]
    if unknown:
        raise RecordLayoutError(
            f"table {table.name}: {table.target.full_name} has no key columns {', '.join(unknown)}; it has "
            f"{', '.join(columns)}"
        )
    return key


def _is_optional(options: LogOptions, table: SourceTable, column: str, name: str) -> bool:
    return any(f"{table.name}.{each}" in options.null_if_missing for each in (column, name))
