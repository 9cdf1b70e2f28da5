r"""Logs of JSON messages, one a line, as operations on tables: what Debezium, Maxwell and Canal share.

A format says what a message is (:class:`MessageFormat`); everything else is here: files, lines, JSON, keys,
columns, values, positions, and refusing what is wrong.

**JSON** is read by Spark's ``parse_json``. ``from_json`` would not do: it takes every number that stands
where a text is wanted through a double (``123456789012345678901234567890.10`` becomes
``1.2345678901234568E29``), overlooks what follows the message on its line, takes the last of two fields of
one name, and does not tell a field that is missing from one that is null. A variant keeps 38 digits exactly;
a longer number, or one with an exponent and more digits than a double has, is refused where it is the value
of a column.

**Lines.** A line is a message; or its key, a tab and the message, as ``kafka-console-consumer`` prints them;
or an object with ``key`` and ``value``, or with ``topic``, ``key`` and ``payload`` (``kcat -J``), whose parts
may be JSON in a string. Blank lines and messages that are null (tombstones) are left out. The last line needs
no end, but must be a whole message.

**Order.** Operations are ordered by the place in the source's log that the messages tell
(:class:`Positions`), whatever the order of files and lines. Where no message tells one, files count by the
last number in their names, lines by their place in the file; then no two files may have the same number, and
files may only be appended to, or new ones with higher numbers added. A log where some messages tell a place
and others do not is refused, unless the order of lines is asked for.

What lies at or before the watermark is left out. So files of several partitions of a topic must reach equally
far, or a message of the slower one that comes later is taken for one that was applied.

**Columns** are matched by name, whatever the case. A message that lacks a column of the target, or has
another one, is refused, unless the user said to read it as NULL, or to leave it out.
"""

from __future__ import annotations

import enum
import functools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Row, SparkSession

from mutation_api import errors
from mutation_api.errors import (
    ConfigurationError,
    InputFormatError,
    RecordLayoutError,
    SourcePositionError,
)
from mutation_api.inputs.messages.json_lines import LogFile, log_files, place_of, read_lines
from mutation_api.inputs.messages.json_rows import KIND_LENGTH, ColumnReader, RowConverter
from mutation_api.inputs.messages.json_values import Reader, can_read
from mutation_api.inputs.source import OPERATION, POSITION, Batch, Position, SourceTable, TableOperations
from mutation_api.inputs.source_files import readable
from mutation_api.spark.credentials import worker_settings
from mutation_api.spark.jvm import spark_context
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location, Place
from mutation_api.types.hive_type import HiveType, parse_hive_type, spark_type

__all__ = [
    "EVENT_FIELDS",
    "JsonLog",
    "LogOptions",
    "MessageFormat",
    "Positions",
    "event_columns",
    "field_of",
    "fields_of",
    "is_text",
    "log_events",
    "problem",
    "strict_json",
    "text_of",
]

logger = logging.getLogger(__name__)


class Positions(enum.Enum):
    """What orders operations."""

    AUTO = "auto"
    """the messages' places in the source's log if they tell them, else the order of lines"""
    MESSAGE = "message"
    LINE = "line"


@dataclass(frozen=True)
class LogOptions:
    """What the user chose about a log.

    Columns are named ``TABLE.COLUMN``, with the source's name of the table and the target's, or the source's,
    of the column. ``ignored`` are columns of the source that the target does not have; ``null_if_missing``
    columns of the target that a message may lack. ``accepts_schema_changes``: messages that tell of a changed
    table are left out, because the target is as the rows that follow need it. ``applies_truncates``: where a
    table was truncated, its rows are deleted that no later operation writes; otherwise a truncate is refused.
    """

    positions: Positions = Positions.AUTO
    ignored: frozenset[str] = frozenset()
    null_if_missing: frozenset[str] = frozenset()
    accepts_schema_changes: bool = False
    applies_truncates: bool = False


EVENT_FIELDS = (
    "kind",
    "table",
    "op",
    "place",
    "log",
    "schema",
    "key",
    "key_names",
    "rows",
    "text",
    "problem",
)
"""Columns of a format's events.

``kind``: ``row``, ``schema change``, ``truncate``, ``other`` for what changes no table, or ``damaged`` for
what is no message of the format; then there is a problem. ``table``: the source's name of it; of a schema
change also ``DATABASE.*`` or null, for one that may touch any of them. ``op``: as of an operation. ``place``:
PLACE_NUMBERS bigints, or null; ``log``: in which log that counts. ``schema``: text that tells how values are
to be read, or null. ``key``: the message's key, map<string,variant>, or null; ``key_names``: columns of the
key, if the message names them. ``rows``: array of structs ``before`` and ``after``, of the same type as
``key``, null where the message has none. ``text``: says what a schema change does. ``problem``: what is wrong
with the message, see :func:`problem`, or null.
"""

PLACE_NUMBERS = 3

_STEPS = 2
"""Operations that a row of a message may be."""

_END = "\x01end of line"
_ROUGH_NUMBER = r"[0-9.]{18,}[eE]|[0-9.]{40,}|[eE][+-]?[0-9]{3,}"
"""A number that a variant may round or make infinite."""
_PROBLEM = "struct<error:string,field:string,text:string>"


class MessageFormat(Protocol):
    """What the messages of a tool mean."""

    @property
    def name(self) -> str:
        """The tool's name in lower case."""

    @property
    def placeholder(self) -> str | None:
        """Text that stands for a value that the message does not have."""

    def events(self, messages: DataFrame, positions: Positions) -> DataFrame:
        """Events of messages: adds EVENT_FIELDS.

        Args:
            messages: columns ``file``, ``offset``; ``key`` and ``value``, of type variant. A value is never
                null.
            positions: what orders operations.
        """

    def readers(
        self, table: str, columns: Mapping[str, HiveType], schema: str | None
    ) -> Mapping[str, Reader]:
        """How the values of columns are to be read.

        Args:
            table: the source's name of the table.
            columns: the source's names of the columns, and the types of the target's.
            schema: what messages told, or None.

        Raises:
            RecordLayoutError: a value of a column cannot be read, or not without being told how.
        """


def strict_json(text: Column) -> Column:
    """An array of the JSON values in a text, between commas, and one more; null if they are none.

    Something behind them, which ``parse_json`` would not see, makes it null too.
    """
    end = f',"{json.dumps(_END)[1:-1]}"]'
    return sf.try_parse_json(sf.concat(sf.lit("["), text, sf.lit(end))).try_cast("array<variant>")


def fields_of(value: Column) -> Column:
    """The fields of an object, as a map; null if it is none."""
    return value.try_cast("map<string,variant>")


def field_of(fields: Column, name: str) -> Column:
    """A field of what :func:`fields_of` gives; null if there is none, or it is null."""
    return sf.try_element_at(fields, sf.lit(name))


def text_of(value: Column) -> Column:
    """The text of a JSON value: a string's own, a number's shortest, an object's JSON; null if null."""
    return value.try_cast("string")


def is_text(value: Column) -> Column:
    """Whether a value is a JSON string."""
    return sf.schema_of_variant(value) == "STRING"


def problem(error: type[errors.MutationError], name: str | Column, *parts: str | Column) -> Column:
    """What is wrong with a message: the error it is, the field, and what to say of it."""
    texts = [part if isinstance(part, Column) else sf.lit(part) for part in parts]
    return sf.struct(
        sf.lit(error.__name__).alias("error"),
        (name if isinstance(name, Column) else sf.lit(name)).alias("field"),
        sf.concat(*[sf.coalesce(text, sf.lit("null")) for text in texts]).alias("text"),
    )


def event_columns(**columns: Column) -> list[Column]:
    """EVENT_FIELDS in their order and of their types; those that are not given are null."""
    types = {
        "place": "array<bigint>",
        "key": "map<string,variant>",
        "key_names": "array<string>",
        "rows": "array<struct<before:map<string,variant>,after:map<string,variant>>>",
        "problem": _PROBLEM,
    }
    return [
        columns.get(name, sf.lit(None)).cast(types.get(name, "string")).alias(name) for name in EVENT_FIELDS
    ]


def log_events(
    spark: SparkSession, files: Sequence[LogFile], message_format: MessageFormat, positions: Positions
) -> DataFrame:
    """What the lines of files tell, one row a message: ``file``, ``offset``, ``is_rough`` and EVENT_FIELDS.

    ``is_rough``: a number of the line may have been rounded.
    """
    return _with_damage(message_format.events(_messages(read_lines(spark, files)), positions))


@dataclass(frozen=True)
class JsonLog:
    """A log of JSON messages in files: a change source.

    ``paths`` are files and folders on any storage; local ones the driver and the workers see under the same
    name. ``name`` tells this log from others of its format in the watermarks.
    """

    format: MessageFormat
    paths: tuple[Place, ...]
    name: str
    options: LogOptions = field(default_factory=LogOptions)

    @property
    def source_id(self) -> str:
        """``FORMAT:NAME``."""
        return f"{self.format.name}:{self.name}"

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """See :class:`~mutation_api.inputs.source.ChangeSource`. The log is read once, for what it has, and
        again by whoever evaluates the operations.

        A table's key is the one given, or the one that the messages name. What is wrong with the columns of a
        row, and with their values, is raised when the operations are evaluated.

        Raises:
            ConfigurationError: nothing says which columns are the key, or a table is there twice.
            InputFormatError: see there; or a schema change, a truncate that is not to be applied, or
                messages without a place among others.
            InputError: the files cannot be read.
            Others: see there.
        """
        _check_tables(tables)
        with readable(self.source_id):
            files = log_files(self.paths)
        if not any(file.size for file in files):
            return Batch((), None)
        reading = _Reading(self, files, spark, tuple(tables), after)
        with readable(self.source_id), translated_worker_errors(f"{self.source_id}: reading the log"):
            return reading.batch()


@dataclass(frozen=True)
class _Facts:
    """What a first look at the log tells of one table.

    ``messages`` are those of rows and of truncates; ``unplaced`` those that tell no place. ``last_place`` and
    ``last_line`` are the position of the last operation, by what the messages tell and by lines.
    """

    messages: int
    unplaced: int
    first_unplaced: Row | None
    last_place: tuple[int, ...] | None
    last_line: tuple[int, ...] | None
    logs: tuple[str, ...]
    schemas: tuple[str, ...]
    has_no_schema: bool
    key_names: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class _Order:
    """What orders the operations of this reading."""

    by: Positions
    log: str

    def position(self) -> Column:
        """Position of an operation of an event; ``step`` counts them."""
        places = [sf.col("place")[i].alias(f"place{i}") for i in range(PLACE_NUMBERS)]
        lines = [sf.col("number").alias("file"), sf.col("offset"), sf.col("step")]
        return sf.struct(*(places if self.by is Positions.MESSAGE else ()), *lines)

    def position_of(self, event: Row, number: int) -> tuple[int, ...]:
        """The same for an event that is here."""
        place = tuple(event.place) if self.by is Positions.MESSAGE and event.place is not None else ()
        return (*place, number, event.offset, 0)

    def last(self, facts: _Facts) -> tuple[int, ...] | None:
        """Position of the last operation on a table, or one behind it and before the next message."""
        return facts.last_place if self.by is Positions.MESSAGE else facts.last_line

    def described(self, order: tuple[int, ...]) -> str:
        """Text of a position."""
        return json.dumps({"by": self.by.value, "log": self.log, "at": list(order)})


@dataclass
class _Reading:
    log: JsonLog
    files: tuple[LogFile, ...]
    spark: SparkSession
    tables: tuple[SourceTable, ...]
    after: Mapping[str, Position]

    def batch(self) -> Batch:
        events = log_events(self.spark, self.files, self.log.format, self.log.options.positions)
        facts, changes = self._look(events)
        if not facts and not changes:
            return Batch((), None)
        order = self._order(facts)
        self._check_after(order)
        self._refuse_changes(changes, order)
        truncates = self._truncates(changes, order)
        found = []
        reached = []
        for table in self.tables:
            if table.name not in facts:
                logger.warning("%s: no message is about table %s", self.log.source_id, table.name)
                continue
            after = self.after[table.name].order if table.name in self.after else ()
            truncate = truncates.get(table.name, ())
            last = max(order.last(facts[table.name]) or (), truncate)
            if last > after:
                start = max(after, truncate)
                operations = self._operations(events, table, facts[table.name], order, start)
                found.append(replace(operations, is_emptied=truncate > after))
                reached.append(last)
        if not found:
            return Batch((), None)
        end = max([*reached, *(position.order for position in self.after.values())])
        return Batch(tuple(found), Position(end, order.described(end)))

    def _look(self, events: DataFrame) -> tuple[dict[str, _Facts], list[Row]]:
        """What the log has of each table, and the changes of their schemas; refuses what is damaged."""
        names = [table.name for table in self.tables]
        databases = [f"{name.rpartition('.')[0]}.*" for name in names]
        is_ours = sf.col("kind").isin("row", "truncate") & sf.col("table").isin(names)
        is_row = is_ours & (sf.col("kind") == "row")
        touches = sf.col("table").isNull() | sf.col("table").isin([*names, *databases])
        is_change = sf.col("kind").isin("schema change", "truncate") & touches
        place = sf.struct("file", "offset")
        wrong = sf.when(
            sf.col("problem").isNotNull() & (is_row | (sf.col("kind") == "damaged")),
            sf.struct("file", "offset", "problem"),
        )
        after = sf.coalesce(sf.col("rows")[0]["after"], sf.col("rows")[0]["before"])
        unplaced = is_ours & sf.col("place").isNull()
        last_step = (sf.size("rows").cast("bigint") * _STEPS) - 1
        line = [_file_number(self.files), sf.col("offset"), last_step]
        places = [sf.col("place")[i] for i in range(PLACE_NUMBERS)]
        looked = events.groupBy(sf.when(is_ours, sf.col("table")).alias("table")).agg(
            sf.count(sf.when(is_ours, 1)).alias("messages"),
            sf.count(sf.when(unplaced, 1)).alias("unplaced"),
            sf.min(sf.when(unplaced, place)).alias("first_unplaced"),
            sf.max(sf.when(is_row, _numbers(places + line))).alias("last_place"),
            sf.max(sf.when(is_row, _numbers(line))).alias("last_line"),
            sf.collect_set(sf.when(is_ours, sf.col("log"))).alias("logs"),
            sf.collect_set(sf.when(is_row, sf.col("schema"))).alias("schemas"),
            sf.count(sf.when(is_row & sf.col("schema").isNull(), 1)).alias("schemaless"),
            sf.collect_set(sf.when(is_row, sf.col("key_names"))).alias("key_names"),
            sf.max_by(sf.map_keys(after), sf.when(is_row, sf.size(after))).alias("columns"),
            sf.min(wrong).alias("wrong"),
            sf.collect_list(
                sf.when(is_change, sf.struct("file", "offset", "kind", "table", "place", "text"))
            ).alias("changes"),
        )
        rows = looked.collect()
        self._refuse_first([row.wrong for row in rows if row.wrong is not None])
        facts = {
            row.table: _Facts(
                row.messages,
                row.unplaced,
                row.first_unplaced,
                row.last_place and tuple(row.last_place),
                row.last_line and tuple(row.last_line),
                tuple(row.logs),
                tuple(sorted(row.schemas)),
                row.schemaless > 0,
                tuple(tuple(names) for names in row.key_names),
                tuple(row["columns"] or ()),
            )
            for row in rows
            if row.table is not None
        }
        return facts, [change for row in rows for change in row.changes]

    def _refuse_first(self, found: Sequence[Row]) -> None:
        if found:
            first = min(found, key=lambda row: (row.file, row.offset))
            wrong = first.problem
            raise getattr(errors, wrong.error)(f"{self._where(first, wrong.field)}: {wrong.text}")

    def _where(self, event: Row, name: str | None = None) -> str:
        return place_of(self.files[event.file].location, event.offset, name)

    def _order(self, facts: Mapping[str, _Facts]) -> _Order:
        rows = sum(fact.messages for fact in facts.values())
        unplaced = sum(fact.unplaced for fact in facts.values())
        asked = self.log.options.positions
        if asked is Positions.LINE or (asked is Positions.AUTO and unplaced == rows):
            self._check_numbers()
            return _Order(Positions.LINE, "")
        if unplaced:
            first = min(fact.first_unplaced for fact in facts.values() if fact.first_unplaced is not None)
            raise InputFormatError(
                f"{self._where(first)}: the message does not tell its place in the source's log, as "
                f"{rows - unplaced} of {rows} others do, so nothing tells its order among them; where the "
                "order of lines is that of the log, ask for the order of lines"
            )
        logs = sorted({log for fact in facts.values() for log in fact.logs})
        if len(logs) > 1:
            raise SourcePositionError(
                f"{self.log.source_id}: messages come from several logs, whose places cannot be compared: "
                f"{'; '.join(logs)}; read them as sources of their own, or ask for the order of lines"
            )
        return _Order(Positions.MESSAGE, logs[0] if logs else "")

    def _check_numbers(self) -> None:
        by_number: dict[int, Location] = {}
        for file in self.files:
            if file.number in by_number:
                raise InputFormatError(
                    f"{by_number[file.number].shown} and {file.location.shown} have the same number "
                    f"{file.number} in their names, so nothing tells the order of their lines; give files of "
                    "a log increasing numbers"
                )
            by_number[file.number] = file.location

    def _check_after(self, order: _Order) -> None:
        for name, position in self.after.items():
            try:
                text = json.loads(position.text)
                known = text["by"], text["log"]
            except (ValueError, KeyError, TypeError) as error:
                raise SourcePositionError(
                    f"{self.log.source_id}: the watermark of table {name} is not one of this source: "
                    f"{position.text!r}"
                ) from error
            if known != (order.by.value, order.log):
                raise SourcePositionError(
                    f"{self.log.source_id}: table {name} was applied up to {position.text}, in the order of "
                    f"{_order_text(*known)}; this log has that of {_order_text(order.by.value, order.log)}. "
                    "Was the source's server replaced, or were options changed? Start over under another "
                    "name of the source"
                )

    def _refuse_changes(self, changes: Sequence[Row], order: _Order) -> None:
        names = [table.name for table in self.tables]
        for change in sorted(changes, key=lambda row: (row.file, row.offset)):
            if change.kind == "truncate" and self.log.options.applies_truncates and change.table in names:
                continue
            if change.kind == "schema change" and self.log.options.accepts_schema_changes:
                logger.info("%s: left out: %s", self._where(change), change.text)
                continue
            if self._is_applied(change, order):
                continue
            advice = (
                "say that truncates are to be applied: then the target's rows from before are deleted"
                if change.kind == "truncate"
                else "bring the target into line, and then accept schema changes"
            )
            raise InputFormatError(
                f"{self._where(change)}: {change.kind} of {change.table or 'a table'}: {change.text}; "
                f"{advice}"
            )

    def _truncates(self, changes: Sequence[Row], order: _Order) -> dict[str, tuple[int, ...]]:
        """Position of the last truncate of each table."""
        found: dict[str, tuple[int, ...]] = {}
        for change in changes:
            if change.kind == "truncate":
                position = order.position_of(change, self.files[change.file].number)
                found[change.table] = max(found.get(change.table, ()), position)
        return found

    def _is_applied(self, change: Row, order: _Order) -> bool:
        position = order.position_of(change, self.files[change.file].number)
        touched = [
            t.name for t in self.tables if change.table in (None, t.name, f"{t.name.rpartition('.')[0]}.*")
        ]
        return all(name in self.after and position <= self.after[name].order for name in touched)

    def _operations(
        self,
        events: DataFrame,
        table: SourceTable,
        facts: _Facts,
        order: _Order,
        after: tuple[int, ...],
    ) -> TableOperations:
        """The operations behind a position; behind () all."""
        shape = _Shape.of(table, facts, self.log)
        rows = events.where((sf.col("kind") == "row") & (sf.col("table") == table.name))
        schema = _schema_index(facts.schemas)
        images = rows.select(
            "file",
            "offset",
            _file_number(self.files).alias("number"),
            "is_rough",
            "op",
            "place",
            "key",
            schema.alias("schema"),
            sf.posexplode("rows").alias("index", "images"),
        )
        operations = images.select("*", sf.explode(shape.operations()).alias("o")).select(
            "file",
            "offset",
            "number",
            "is_rough",
            "place",
            "schema",
            sf.col("o.operation").alias(OPERATION),
            (sf.col("index").cast("bigint") * _STEPS + sf.col("o.step")).alias("step"),
            sf.col("o.row").alias("row"),
        )
        placed = operations.withColumn(POSITION, order.position())
        if after:
            fields = placed.schema[POSITION].dataType.names  # type: ignore[attr-defined]
            low = sf.struct(*[sf.lit(n).cast("bigint").alias(f) for n, f in zip(after, fields, strict=True)])
            placed = placed.where(sf.col(POSITION) > low)
        values = placed.select(
            "file",
            "offset",
            "schema",
            "is_rough",
            OPERATION,
            POSITION,
            shape.problem().alias("problem"),
            shape.values().alias("values"),
        )
        locations = [file.location for file in self.files]
        storage = worker_settings(spark_context(values.sparkSession), locations)
        converter = shape.converter(locations, self.log.format.placeholder, storage)
        typed = values.mapInArrow(converter, shape.ddl(values))
        return TableOperations(replace(table, key=shape.key), typed)


@dataclass(frozen=True)
class _Shape:
    """How rows of a table's messages become rows of its target.

    ``names`` are the columns' names in the source, in the order of ``columns``; ``readers`` has one tuple for
    each schema that messages have.
    """

    table: SourceTable
    columns: tuple[tuple[str, HiveType], ...]
    names: tuple[str, ...]
    key: tuple[str, ...]
    ignored: tuple[str, ...]
    optional: tuple[str, ...]
    readers: tuple[tuple[Reader, ...], ...]

    @staticmethod
    def of(table: SourceTable, facts: _Facts, log: JsonLog) -> _Shape:
        target = table.target
        columns = tuple((c.name, parse_hive_type(c.type)) for c in (*target.columns, *target.partition_keys))
        spelled = _spelled(table, facts.columns)
        names = tuple(spelled.get(name, name) for name, _ in columns)
        types = dict(zip(names, (hive_type for _, hive_type in columns), strict=True))
        schemas: list[str | None] = [*facts.schemas, *([None] if facts.has_no_schema else [])]
        readers = []
        for schema in schemas:
            chosen = log.format.readers(table.name, types, schema)
            for name, hive_type in types.items():
                _check_reader(table, name, hive_type, chosen[name])
            readers.append(tuple(chosen[name] for name in names))
        options = log.options
        return _Shape(
            table,
            columns,
            names,
            _key(table, facts, [name for name, _ in columns]),
            tuple(column for t, _, column in (c.rpartition(".") for c in options.ignored) if t == table.name),
            tuple(n for (c, _), n in zip(columns, names, strict=True) if _is_named(options, table, c, n)),
            tuple(readers),
        )

    @functools.cached_property
    def key_names(self) -> tuple[str, ...]:
        """The key's columns in the source."""
        return tuple(n for (c, _), n in zip(self.columns, self.names, strict=True) if c in self.key)

    def operations(self) -> Column:
        """Array of operations of ``op`` on the row of ``images`` and ``key``."""
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
        """Array of the columns' values: text and kind of JSON value; of a delete those of the key alone.

        One expression for all columns, so that Spark's plan does not grow with them.
        """
        row, is_delete = sf.col("row"), sf.col(OPERATION) == "delete"

        def value(name: Column) -> Column:
            found = sf.when(~is_delete | name.isin(*self.key_names), sf.try_element_at(row, name))
            kind = sf.substring(sf.schema_of_variant(found), 1, KIND_LENGTH)
            return sf.struct(text_of(found).alias("text"), kind.alias("kind"))

        return sf.transform(_texts(self.names), value)

    def problem(self) -> Column:
        """What is wrong with the columns that a row has, or null."""
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
                    ". If it may be missing, say that it is NULL then",
                ),
            )
            .when(
                ~is_delete & (sf.size(others) > 0),
                problem(
                    RecordLayoutError,
                    others[0],
                    f"{target} has no such column; add it there, or say that it is left out",
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


def _messages(lines: DataFrame) -> DataFrame:
    """Messages of all lines, with what is wrong with those that are none."""
    text = sf.regexp_replace("text", r"\A([^\t]*)\t", "$1,")
    parsed = lines.where(sf.col("text").isNull() | (sf.trim(sf.col("text"), sf.lit(" \t\r\n")) != "")).select(
        "file",
        "offset",
        sf.instr("text", "\t").alias("tabs"),
        sf.col("text").isNull().alias("is_no_text"),
        sf.col("text").rlike(_ROUGH_NUMBER).alias("is_rough"),
        strict_json(text).alias("values"),
    )
    size = sf.when(sf.col("tabs") > 0, sf.lit(3)).otherwise(sf.lit(2))
    values = sf.when(sf.size("values") == size, sf.col("values"))
    split = parsed.select(
        "file",
        "offset",
        "is_no_text",
        "is_rough",
        (values.isNull() | (text_of(values[size - 1]) != _END)).alias("is_damaged"),
        sf.when(size == 3, values[0]).alias("key"),
        values[size - 2].alias("value"),
    )
    return _unwrapped(split)


def _unwrapped(messages: DataFrame) -> DataFrame:
    """Take messages out of what tools put around them, and leave out those that are null."""
    fields = fields_of(sf.col("value"))
    has_value = sf.map_contains_key(fields, "value") & ~sf.map_contains_key(fields, "op")
    has_payload = sf.map_contains_key(fields, "payload") & sf.map_contains_key(fields, "topic")
    inner = sf.when(has_value, field_of(fields, "value")).when(has_payload, field_of(fields, "payload"))
    is_wrapped = sf.coalesce(has_value | has_payload, sf.lit(False))
    unwrapped = messages.withColumn("is_wrapped", is_wrapped).select(
        "file",
        "offset",
        "is_no_text",
        "is_rough",
        "is_damaged",
        sf.when(sf.col("is_wrapped"), field_of(fields, "key")).otherwise(sf.col("key")).alias("key"),
        sf.when(sf.col("is_wrapped"), inner).otherwise(sf.col("value")).alias("value"),
    )
    texts = {name: sf.when(_is_message_text(name), text_of(sf.col(name))) for name in ("key", "value")}
    parsed = unwrapped.select("*", *[strict_json(text).alias(f"{name}s") for name, text in texts.items()])
    damaged = sf.lit(False)
    for name, text in texts.items():
        inside = sf.col(f"{name}s")
        damaged |= text.isNotNull() & (inside.isNull() | (sf.size(inside) != 2))
    whole = parsed.select(
        "file",
        "offset",
        "is_no_text",
        "is_rough",
        (sf.col("is_damaged") | sf.coalesce(damaged, sf.lit(False))).alias("is_damaged"),
        *[
            sf.when(_is_message_text(name), sf.col(f"{name}s")[0]).otherwise(sf.col(name)).alias(name)
            for name in texts
        ],
    )
    is_null = sf.coalesce(sf.is_variant_null("value"), sf.lit(True))
    return _settled(whole).where(sf.col("is_damaged") | ~is_null)


def _is_message_text(name: str) -> Column:
    """Whether a message is in a string. An object's schema, which would tell it too, takes long to find."""
    return fields_of(sf.col(name)).isNull() & is_text(sf.col(name))


def _settled(frame: DataFrame) -> DataFrame:
    """The same rows, below which Spark moves no filter.

    It would replace the columns in a filter by their expressions, down to the lines: a plan of half a
    megabyte that parses each line many times. Nothing is moved past what is not deterministic.
    """
    return frame.withColumn("offset", sf.when(sf.spark_partition_id() >= 0, sf.col("offset")))


def _with_damage(events: DataFrame) -> DataFrame:
    """Events, of which lines that are no message are said to be damaged."""
    no_text = problem(InputFormatError, sf.lit(None).cast("string"), "the line is not UTF-8")
    no_json = problem(
        InputFormatError,
        sf.lit(None).cast("string"),
        "the line is not one whole JSON message; is it cut off, are two of them on it, or has an object two "
        "fields of one name?",
    )
    is_damaged = sf.col("is_no_text") | sf.col("is_damaged")
    whole = events.withColumns(
        {
            "kind": sf.when(is_damaged, "damaged").otherwise(sf.col("kind")),
            "problem": sf.when(sf.col("is_no_text"), no_text)
            .when(is_damaged, no_json)
            .otherwise(sf.col("problem")),
        }
    )
    return _settled(whole)


def _operation(operation: str | Column, step: int, row: Column) -> Column:
    name = sf.lit(operation) if isinstance(operation, str) else operation
    return sf.struct(name.alias("operation"), sf.lit(step).cast("bigint").alias("step"), row.alias("row"))


def _file_number(files: Sequence[LogFile]) -> Column:
    """Number in the name of an event's file."""
    numbers = sf.create_map(*[sf.lit(n) for index, file in enumerate(files) for n in (index, file.number)])
    return numbers[sf.col("file")].cast("bigint")


def _numbers(columns: Sequence[Column]) -> Column:
    """A struct that Spark can order."""
    return sf.struct(*[column.alias(f"n{i}") for i, column in enumerate(columns)])


def _texts(names: Sequence[str]) -> Column:
    return sf.array(*[sf.lit(name) for name in names]).cast("array<string>")


def _schema_index(schemas: Sequence[str]) -> Column:
    """Index of the event's schema; behind all others that of an event without one."""
    found = sf.lit(len(schemas))
    if len(schemas) == 1:
        return sf.when(sf.col("schema").isNotNull(), 0).otherwise(found)
    for index, schema in enumerate(schemas):
        found = sf.when(sf.col("schema") == schema, index).otherwise(found)
    return found


def _check_tables(tables: Sequence[SourceTable]) -> None:
    names = [table.name for table in tables]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled or not names:
        raise ConfigurationError(
            f"tables of the source that are given twice: {', '.join(doubled)}" if doubled else "name a table"
        )


def _spelled(table: SourceTable, columns: Sequence[str]) -> dict[str, str]:
    spelled: dict[str, str] = {}
    for column in columns:
        if column.lower() in spelled:
            raise RecordLayoutError(
                f"table {table.name}: columns {spelled[column.lower()]} and {column} differ in case alone, "
                f"which {table.target.full_name} cannot tell apart"
            )
        spelled[column.lower()] = column
    return spelled


def _check_reader(table: SourceTable, name: str, hive_type: HiveType, reader: Reader) -> None:
    if not can_read(reader, hive_type):
        raise RecordLayoutError(
            f"table {table.name}, column {name}: values written as {reader.name!r} cannot go into a column "
            f"of type {hive_type.text} of {table.target.full_name}"
        )


def _key(table: SourceTable, facts: _Facts, columns: Sequence[str]) -> tuple[str, ...]:
    if table.key:
        key = tuple(name.lower() for name in table.key)
    elif len(facts.key_names) == 1:
        key = tuple(name.lower() for name in facts.key_names[0])
    else:
        found = "; ".join(", ".join(names) for names in facts.key_names)
        raise ConfigurationError(
            f"table {table.name}: the messages name {f'several keys ({found})' if found else 'no key'}; say "
            "which columns tell its rows apart"
        )
    unknown = [name for name in key if name not in columns]
    if unknown:
        raise RecordLayoutError(
            f"table {table.name}: {table.target.full_name} has no key columns {', '.join(unknown)}; it has "
            f"{', '.join(columns)}"
        )
    return key


def _is_named(options: LogOptions, table: SourceTable, column: str, name: str) -> bool:
    return not options.null_if_missing.isdisjoint((f"{table.name}.{column}", f"{table.name}.{name}"))


def _order_text(by: str, log: str) -> str:
    return f"places in {log}" if by == Positions.MESSAGE.value else "lines"
