"""The shape of a table's rows: columns of messages and of the target, and the key.

Columns are matched by name, in any case. A message that lacks a column of the target, or has an additional
one, is refused, unless the user chose to read it as NULL, or to leave it out.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Row

from mutation_api.errors import ConfigurationError, InputFormatError, RecordLayoutError
from mutation_api.inputs.messages.events import MessageFormat, problem
from mutation_api.inputs.messages.json_rows import ColumnReader, RowConverter
from mutation_api.inputs.messages.json_values import Reader, can_read
from mutation_api.inputs.messages.log_options import LogOptions
from mutation_api.inputs.messages.variants import field_of, kind_of, text_of
from mutation_api.inputs.source import OPERATION, POSITION, SourceTable
from mutation_api.spark.quoted_name import quoted
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.types.hive_type import HiveType, parse_hive_type, spark_type

__all__ = ["Shape", "ShapeFacts", "shape_aggregates"]


@dataclass(frozen=True)
class ShapeFacts:
    """Facts of a first look about the rows of one table's messages.

    ``schemas``: texts that define how values are written; ``has_no_schema``: some messages have none.
    ``key_names``: keys that messages name. ``columns``: those of the widest row.
    """

    schemas: tuple[str, ...]
    has_no_schema: bool
    key_names: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...]

    @classmethod
    def of(cls, looked: Row) -> ShapeFacts:
        """The facts in a row of the columns of :func:`shape_aggregates`."""
        return cls(
            tuple(sorted(looked.schemas)),
            looked.schemaless > 0,
            tuple(tuple(names) for names in looked.key_names),
            tuple(looked["columns"] or ()),
        )

    @property
    def all_schemas(self) -> tuple[str | None, ...]:
        """The schemas, then None if some messages have none."""
        return (*self.schemas, *([None] if self.has_no_schema else []))

    def schema_index(self) -> Column:
        """Index of an event's schema in :attr:`all_schemas`."""
        found = sf.lit(len(self.schemas))
        if len(self.schemas) == 1:
            return sf.when(sf.col("schema").isNotNull(), 0).otherwise(found)
        for index, schema in enumerate(self.schemas):
            found = sf.when(sf.col("schema") == schema, index).otherwise(found)
        return found


def shape_aggregates(is_row: Column) -> list[Column]:
    """Aggregates of events for :class:`ShapeFacts`; the condition selects rows."""
    row = sf.coalesce(sf.col("rows")[0]["after"], sf.col("rows")[0]["before"])
    return [
        sf.collect_set(sf.when(is_row, sf.col("schema"))).alias("schemas"),
        sf.count(sf.when(is_row & sf.col("schema").isNull(), 1)).alias("schemaless"),
        sf.collect_set(sf.when(is_row, sf.col("key_names"))).alias("key_names"),
        sf.max_by(sf.map_keys(row), sf.when(is_row, sf.size(row))).alias("columns"),
    ]


@dataclass(frozen=True)
class Shape:
    """How rows of a table's messages become rows of its target.

    ``names``: the columns' names in the source, in the order of ``columns``. ``readers``: a tuple for each
    schema of the messages. ``ignored``: columns of the source that are left out. ``optional``: those of
    ``names`` that a message may lack.
    """

    table: SourceTable
    columns: tuple[tuple[str, HiveType], ...]
    names: tuple[str, ...]
    key: tuple[str, ...]
    ignored: tuple[str, ...]
    optional: tuple[str, ...]
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
            readers,
        )

    @functools.cached_property
    def key_names(self) -> tuple[str, ...]:
        """The key's columns in the source."""
        return tuple(n for (c, _), n in zip(self.columns, self.names, strict=True) if c in self.key)

    def operations(self) -> Column:
        """Array of the operations that ``op``, ``images`` and ``key`` of an event describe."""
        before, after, key, op = (
            sf.col("images.before"),
            sf.col("images.after"),
            sf.col("key"),
            sf.col("op"),
        )
        moved = sf.lit(False)
        for name in self.key_names:
            moved |= ~text_of(field_of(before, name)).eqNullSafe(text_of(field_of(after, name)))
        has_key = functools.reduce(
            Column.__and__, [sf.map_contains_key(before, name) for name in self.key_names]
        )
        old = sf.when(sf.coalesce(has_key, sf.lit(False)), before).otherwise(sf.coalesce(key, before))
        both = sf.array(_operation("delete", 0, before), _operation("insert", 1, after))
        return (
            sf.when(op == "delete", sf.array(_operation("delete", 0, old)))
            .when((op == "update") & before.isNotNull() & moved, both)
            .otherwise(sf.array(_operation(op, 0, after)))
        )

    def values(self) -> Column:
        """Array of the columns' values: text and kind of JSON value; for a delete only those of the key.

        One expression for all columns, so that Spark's plan does not grow with them.
        """
        row, is_delete = sf.col("row"), sf.col(OPERATION) == "delete"

        def value(name: Column) -> Column:
            found = sf.when(~is_delete | name.isin(*self.key_names), sf.try_element_at(row, name))
            return sf.struct(text_of(found).alias("text"), kind_of(found).alias("kind"))

        return sf.transform(_texts(self.names), value)

    def problem(self) -> Column:
        """Problem of the columns of a row, or null."""
        row, is_delete = sf.col("row"), sf.col(OPERATION) == "delete"
        names = sf.map_keys(row)
        needed = [name for name in self.names if name not in self.optional]
        lacking = sf.array_except(sf.when(is_delete, _texts(self.key_names)).otherwise(_texts(needed)), names)
        others = sf.array_except(names, _texts([*self.names, *self.ignored]))
        target = self.table.target.full_name
        return (
            sf.when(
                row.isNull(),
                problem(InputFormatError, "key", "the message has no row before the delete, and no key"),
            )
            .when(
                sf.size(lacking) > 0,
                problem(
                    RecordLayoutError,
                    lacking[0],
                    f"the message does not have this column of {target}; it has ",
                    sf.array_join(names, ", "),
                    ". If it may be missing, choose to read it as NULL",
                ),
            )
            .when(
                ~is_delete & (sf.size(others) > 0),
                problem(
                    RecordLayoutError,
                    others[0],
                    f"{target} has no such column; add it there, or choose to leave it out",
                ),
            )
        )

    def ddl(self, values: DataFrame) -> str:
        """Schema of the operations."""
        position = values.schema[POSITION].dataType.simpleString()
        columns = [f"{quoted(name)} {spark_type(hive_type)}" for name, hive_type in self.columns]
        return ", ".join([f"{OPERATION} string", f"{POSITION} {position}", *columns])

    def converter(
        self, files: Sequence[Location], placeholder: str | None, storage: HadoopSettings
    ) -> RowConverter:
        """The function that turns texts into values, batch by batch, in the tasks."""
        columns = tuple(
            ColumnReader(
                column, hive_type, name, name in self.key_names, tuple(each[i] for each in self.readers)
            )
            for i, ((column, hive_type), name) in enumerate(zip(self.columns, self.names, strict=True))
        )
        return RowConverter(self.table.target.full_name, tuple(files), columns, placeholder, storage)


def _operation(operation: str | Column, step: int, row: Column) -> Column:
    name = sf.lit(operation) if isinstance(operation, str) else operation
    return sf.struct(name.alias("operation"), sf.lit(step).cast("bigint").alias("step"), row.alias("row"))


def _texts(names: Sequence[str]) -> Column:
    return sf.array(*[sf.lit(name) for name in names]).cast("array<string>")


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
        key = tuple(name.lower() for name in facts.key_names[0])
    else:
        found = "; ".join(", ".join(names) for names in facts.key_names)
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
