"""The shape of a table's rows: columns of messages and of the target, and the key.

Columns are matched by name, in upper or lower case. A message that lacks a column of the target, or has an
additional one, is refused, unless the user chose to read it as NULL or as its default, or to leave it out.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from mutation_api.cdc.messages.events import Event, Images, LogOptions, MessageFormat, Problem
from mutation_api.cdc.messages.json_rows import ColumnReader, Content
from mutation_api.cdc.messages.json_text import Fields, text_of
from mutation_api.cdc.messages.json_values import TEXT, Reader, can_read
from mutation_api.cdc.messages.row_fields import ColumnNames
from mutation_api.cdc.source import SourceTable
from mutation_api.errors import ConfigurationError, InputFormatError, RecordLayoutError
from mutation_api.format.hive_type import HiveType, parse_hive_type
from mutation_api.write.layout import default_columns

_STAND_INS = (None, 0, "0", "", "AA==", "1970-01-01T00:00:00Z", "1970-01-01Z")
"""Debezium's placeholders for a column that was not logged: null; zero or the default if it is NOT NULL."""

_SCHEMAS_KEPT = 64

STEPS = 2
"""The largest number of operations for one row of a message."""


@dataclass
class ShapeFacts:
    """The facts of a first look about the rows in one table's messages.

    ``schemas``: strings that define how values are written. ``has_no_schema``: True if some messages have no
    schema. ``key_names``: the keys that messages define. ``columns``: the columns of the widest row.
    """

    schemas: set[str] = field(default_factory=set)
    has_no_schema: bool = False
    key_names: set[tuple[str, ...]] = field(default_factory=set)
    columns: tuple[str, ...] = ()

    def add(self, event: Event) -> None:
        """Add the facts of a row."""
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
        """The schemas, then None if some messages have no schema."""
        return (*sorted(self.schemas), *([None] if self.has_no_schema else []))


class RowOperation(NamedTuple):
    """An operation on a row: its name, its number in the row's message, and the row, which may be None.

    ``doubt``: why it is not known which row it is, or None.
    """

    operation: str
    step: int
    row: Fields | None
    doubt: Problem | None = None


@dataclass(frozen=True)
class Shape:
    """The conversion of rows in a table's messages to rows of its target.

    ``columns``: the target's columns with their types. ``names``: the column names of both sides.
    ``schemas``: the schemas of the messages, including None if some have none. ``readers``: a tuple for each
    schema. ``spelled``: a spelling of each column in the source, for messages. ``is_key_trusted``: True if
    the user asserts that an update or delete leaves the key unchanged if its message does not show the old
    key. ``defaults``: by column, the value in messages that lack it, if it is not NULL.
    """

    table: SourceTable
    columns: tuple[tuple[str, HiveType], ...]
    names: ColumnNames
    schemas: tuple[str | None, ...]
    readers: tuple[tuple[Reader, ...], ...]
    spelled: Mapping[str, str]
    is_key_trusted: bool
    defaults: Mapping[str, pa.Scalar] = field(default_factory=dict)

    @staticmethod
    def of(
        table: SourceTable,
        facts: ShapeFacts,
        message_format: MessageFormat,
        options: LogOptions,
        shard: str | None = None,
    ) -> Shape:
        """Match the columns of both sides; ``shard``: the target's column for the shard, if it has one.

        Raises:
            ConfigurationError: If the key is neither given nor in the messages.
            RecordLayoutError: If the target lacks a key column, or if a column cannot hold the values.
        """
        target = table.target
        columns = tuple((c.name, parse_hive_type(c.type)) for c in (*target.columns, *target.partition_keys))
        in_order = tuple(name for name, _ in columns)
        key = _key(table, facts, in_order)
        defaults = _hive_defaults(table, options)
        names = ColumnNames(
            table.name,
            target.full_name,
            in_order,
            tuple(name for name in in_order if name in key),
            frozenset((*_low(columns_of(table, options.null_if_missing)), *defaults)),
            frozenset(defaults),
            frozenset(columns_of(table, options.ignored_columns)),
            message_format.metadata_prefixes,
        )
        spelled = names.spelled(facts.columns)
        types = {spelled.get(name, name): hive_type for name, hive_type in columns}
        readers = tuple(_readers(table, types, message_format, schema, shard) for schema in facts.all_schemas)
        return Shape(
            replace(table, key=key),
            columns,
            names,
            facts.all_schemas,
            readers,
            spelled,
            table.name in options.trusted_keys,
            defaults,
        )

    @property
    def key(self) -> tuple[str, ...]:
        """The key's columns."""
        return self.table.key

    def operations(self, event: Event, number: int) -> Iterator[RowOperation]:
        """Return the operations that an event describes with one of its rows."""
        images, op = event.rows[number], event.op
        assert op is not None
        step = number * STEPS
        if op == "delete":
            yield self._delete(event, images, step)
        elif op != "update":
            yield RowOperation(op, step, images.after)
        elif images.before is None or images.is_partial:
            yield from self._update_of_part(event, images, step)
        else:
            yield from self._update(images, step)

    def _delete(self, event: Event, images: Images, step: int) -> RowOperation:
        before, key = images.before, event.key
        if before is None or not self.names.fields(before).has_key:
            return RowOperation("delete", step, before if key is None else key)
        doubt = self._doubt(event, images, "row was deleted") if images.is_partial else None
        return RowOperation("delete", step, before, doubt)

    def _update_of_part(self, event: Event, images: Images, step: int) -> Iterator[RowOperation]:
        """Return the operations of an update whose message may not show the old key of the row."""
        doubt = self._doubt(event, images, "row had the old key")
        if doubt is not None or images.before is None:
            yield RowOperation("update", step, images.after, doubt)
        else:
            yield from self._update(images, step)

    def _update(self, images: Images, step: int) -> Iterator[RowOperation]:
        if self._is_moved(images):
            yield RowOperation("delete", step, images.before)
            yield RowOperation("insert", step + 1, images.after)
        else:
            yield RowOperation("update", step, images.after)

    def _is_moved(self, images: Images) -> bool:
        before, after = images.before or {}, images.after or {}
        old, new = self.names.fields(before).of_key, self.names.fields(after).of_key
        for was, now in zip(old, new, strict=True):
            first, second = before.get(was or ""), after.get(now or "")
            is_same = first.__class__ is second.__class__ and first == second
            if not is_same and text_of(first) != text_of(second):
                return True
        return False

    def _doubt(self, event: Event, images: Images, what: str) -> Problem | None:
        """Return the problem of a key that the message does not show, or None.

        A message shows the columns of its own key: if they change, a delete is logged. It shows other columns
        if the row before has values in them that cannot be placeholders for values that were not logged.
        """
        if self.is_key_trusted:
            return None
        before, is_own = images.before, self._is_within(event.key_names)
        if before is None:
            is_shown = is_own
        else:
            names = self.names.fields(before).of_key
            defaults = _defaults_of(event.schema)
            stand_ins = [
                before.get(name or "") in _STAND_INS
                or (name in defaults and text_of(before.get(name or "")) == defaults[name])
                for name in names
            ]
            is_shown = not any(stand_ins) or (is_own and not (all(stand_ins) and self._has_more(before)))
        if is_shown:
            return None
        own = "none" if event.key_names is None else ", ".join(event.key_names)
        row = (
            ("no row from before the change")
            if images.before is None
            else "a row from before the change that may be incomplete"
        )
        name = self.table.name
        text = (
            f"it is not known which {what}: the key is {', '.join(self.key)}, the message has {row}, and "
            f"its own key is {own}. If the source logs the columns of the key with each change (they are "
            "its primary key or replica identity, or the table has REPLICA IDENTITY FULL), use --trust-key "
            f"{name}, in Python trusted_keys. Otherwise follow the table by the key of its messages, read "
            "with them (print.key=true); or set REPLICA IDENTITY FULL and begin with a new snapshot under "
            "another source name (--name)"
        )
        return Problem(InputFormatError, "before", text)

    def _has_more(self, row: Fields) -> bool:
        """Return True if a row before the change has values besides its key.

        Otherwise the key was not logged, as in a table whose replica identity is not the primary key but
        another index.
        """
        names = self.names.fields(row).of_key
        return any(value not in _STAND_INS for name, value in row.items() if name not in names)

    def _is_within(self, key_names: tuple[str, ...] | None) -> bool:
        """Return True if the key's columns are columns of a message's key."""
        if key_names is None:
            return False
        known = self._within.get(key_names)
        if known is None:
            low = {name.lower() for name in key_names}
            known = self._within[key_names] = low.issuperset(self.key)
        return known

    @functools.cached_property
    def _within(self) -> dict[tuple[str, ...], bool]:
        return {}

    def content(self, operation: RowOperation) -> Content:
        """Return the values of a row's columns; for a delete only those of the key."""
        row = operation.row
        if row is None:
            text = (
                "the message has neither the row from before the delete nor a key that is a JSON object "
                "(print.key=true, key.converter=org.apache.kafka.connect.json.JsonConverter)"
            )
            return Content((None,) * len(self.columns), problem=Problem(InputFormatError, "key", text))
        fields = self.names.fields(row)
        if operation.operation == "delete":
            keyed = zip(fields.of_columns, self._is_key, strict=True)
            values = [None if name is None or not is_key else row[name] for name, is_key in keyed]
            return Content(tuple(values), problem=fields.key_problem(self.names, row))
        if fields.picked is not None:
            return Content(fields.picked(row))
        values = [None if name is None else row[name] for name in fields.of_columns]
        return Content(tuple(values), fields.defaulted, fields.problem(self.names, row))

    @functools.cached_property
    def column_readers(self) -> tuple[ColumnReader, ...]:
        """The readers of each column."""
        return tuple(
            ColumnReader(
                name,
                hive_type,
                self.spelled.get(name, name),
                is_key,
                tuple(each[i] for each in self.readers),
                self.defaults.get(name),
            )
            for i, ((name, hive_type), is_key) in enumerate(zip(self.columns, self._is_key, strict=True))
        )

    @functools.cached_property
    def _is_key(self) -> tuple[bool, ...]:
        return tuple(name in self.key for name, _ in self.columns)


@functools.lru_cache(maxsize=_SCHEMAS_KEPT)
def _defaults_of(schema: str | None) -> Mapping[str | None, str | None]:
    """Return the defaults of columns as strings; they can also be placeholders."""
    fields = () if schema is None else json.loads(schema).get("fields", ())
    return {each["field"]: text_of(each["default"]) for each in fields if each.get("default") is not None}


def columns_of(table: SourceTable, names: Collection[str]) -> list[str]:
    """Return the columns of a table from names ``TABLE.COLUMN``."""
    parted = [name.rpartition(".") for name in names]
    return [column for name, _, column in parted if name == table.name]


def _hive_defaults(table: SourceTable, options: LogOptions) -> Mapping[str, pa.Scalar]:
    """Return the defaults of the columns that get them if messages lack the column.

    Raises:
        ConfigurationError: If a column has no default.
        RecordLayoutError: If only Hive can evaluate a default.
    """
    chosen = set(_low(columns_of(table, options.default_if_missing)))
    if not chosen:
        return {}
    target = table.target
    defaults = default_columns(target, {column.name for column in target.columns} - chosen)
    for name in sorted(chosen - set(defaults)):
        has = ", ".join(column.name for column in target.columns if column.default) or "none"
        raise ConfigurationError(
            f"table {table.name}: --default-if-missing, in Python default_if_missing, names {name}, but "
            f"{target.full_name} has no DEFAULT for such a column (columns with a DEFAULT: {has})"
        )
    return defaults


def _readers(
    table: SourceTable,
    types: Mapping[str, HiveType],
    message_format: MessageFormat,
    schema: str | None,
    shard: str | None,
) -> tuple[Reader, ...]:
    """Return the readers of the columns' values, for messages with one schema."""
    others = {name: hive_type for name, hive_type in types.items() if name != shard}
    shards = dict.fromkeys(types.keys() - others.keys(), TEXT)
    chosen = {**message_format.readers(table.name, others, schema), **shards}
    for name, hive_type in types.items():
        if not can_read(chosen[name], hive_type):
            raise RecordLayoutError(
                f"table {table.name}, column {name}: values written as {chosen[name].name!r} cannot go into "
                f"a column of type {hive_type.text} of {table.target.full_name}"
            )
    return tuple(chosen[name] for name in types)


def _low(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


def _key(table: SourceTable, facts: ShapeFacts, columns: Sequence[str]) -> tuple[str, ...]:
    named = {frozenset(low): low for low in map(_low, sorted(facts.key_names))}
    if table.key:
        key = _low(table.key)
    elif len(named) == 1:
        (key,) = named.values()
    else:
        found = "; ".join(", ".join(names) for names in sorted(facts.key_names))
        raise ConfigurationError(
            f"table {table.name}: the messages have {f'several keys ({found})' if found else 'no key'}; name "
            "the columns that identify a row"
        )
    unknown = [name for name in key if name not in columns]
    if unknown:
        raise RecordLayoutError(
            f"table {table.name}: {table.target.full_name} lacks key columns {', '.join(unknown)}; it has "
            f"{', '.join(columns)}"
        )
    return key
