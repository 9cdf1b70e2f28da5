"""Columns that a source added, found in the schemas of its messages (Debezium, as JSON with schemas or Avro).

A schema describes the columns of the rows that it comes with. A column was added if all messages without it
come before all messages with it. Rows from before are then NULL in it, if the column is nullable and has no
default: this is what the source does itself. A column that disappears later, or that may be the new name of
another one, is not added: the run then refuses the messages.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mutation_api.cdc.messages.events import LoggedEvent, PositionSource
from mutation_api.cdc.messages.json_text import HAS_DEFAULT
from mutation_api.cdc.messages.order import Order
from mutation_api.errors import RecordLayoutError

_TYPES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "boolean": "boolean",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "string": "string",
    "bytes": "binary",
    "struct": "string",
    "array": "string",
    "map": "string",
}
"""Hive's types of values without a semantic type."""

_TIMES = ("Time", "MicroTime", "NanoTime", "IsoTime", "ZonedTime")
_TIMESTAMPS = ("Timestamp", "MicroTimestamp", "NanoTimestamp", "IsoTimestamp", "ZonedTimestamp")
_SEMANTIC_TYPES = {
    **{f"io.debezium.time.{name}": "string" for name in _TIMES},
    **{f"io.debezium.time.{name}": "timestamp" for name in _TIMESTAMPS},
    "io.debezium.time.Date": "date",
    "io.debezium.time.IsoDate": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "string",
    "org.apache.kafka.connect.data.Timestamp": "timestamp",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_BITS = "io.debezium.data.Bits"
_DECIMAL_DIGITS = 38
_BIGINT_BITS = 63

_Line = tuple[int, int]
_Key = tuple[int, ...]


@dataclass
class _Span:
    """The first and the last message with a schema in one part of a log, by lines and by log positions."""

    first_line: _Line
    last_line: _Line
    first_log: _Key
    last_log: _Key

    def merge(self, other: _Span) -> None:
        self.first_line = min(self.first_line, other.first_line)
        self.last_line = max(self.last_line, other.last_line)
        self.first_log = min(self.first_log, other.first_log)
        self.last_log = max(self.last_log, other.last_log)


@dataclass
class SchemaPlaces:
    """The places of the schemas of one table's messages.

    ``spans``: by schema and part of the log. ``has_rows_without``: True if a row that is not deleted has no
    schema.
    """

    spans: dict[str, dict[int, _Span]] = field(default_factory=dict)
    has_rows_without: bool = False

    def add(self, found: LoggedEvent, number: int) -> None:
        """Add a row; ``number`` is that of its file."""
        place, event = found
        if event.schema is None:
            self.has_rows_without |= event.op != "delete"
            return
        line, log = (number, place.offset), event.log_position or ()
        self._merge(event.schema, place.file, _Span(line, line, log, log))

    def merge(self, other: SchemaPlaces) -> None:
        """Add the places of another part of the log."""
        self.has_rows_without |= other.has_rows_without
        for schema, parts in other.spans.items():
            for part, span in parts.items():
                self._merge(schema, part, span)

    def _merge(self, schema: str, part: int, span: _Span) -> None:
        known = self.spans.setdefault(schema, {})
        if part in known:
            known[part].merge(span)
        else:
            known[part] = span

    def all_before(self, one: Collection[str], other: Collection[str], order: Order) -> bool:
        """Return True if all messages with schemas of ``one`` come before all those with ``other``.

        In different partitions the positions in the source's log decide, if all messages have them.
        """
        lasts = [span for schema in one for span in self.spans[schema].values()]
        firsts = [span for schema in other for span in self.spans[schema].values()]
        if order.by is PositionSource.MESSAGE or all(span.first_log for span in (*lasts, *firsts)):
            by_log = _is_before([each.last_log for each in lasts], [each.first_log for each in firsts])
            if not by_log or (order.by is PositionSource.MESSAGE and not order.is_partitioned):
                return by_log
        if not order.is_partitioned:
            return _is_before([each.last_line for each in lasts], [each.first_line for each in firsts])
        return all(
            _is_before(
                [self.spans[schema][part].last_line for schema in one if part in self.spans[schema]],
                [self.spans[schema][part].first_line for schema in other if part in self.spans[schema]],
            )
            for part in {part for spans in self.spans.values() for part in spans}
        )

    def after(self, order: Order, position: _Key) -> list[str]:
        """Return the schemas with messages after a position; all, if () or if the log has only new ones."""
        if order.is_partitioned or not position:
            return sorted(self.spans)

        def last(span: _Span) -> _Key:
            log = span.last_log if order.by is PositionSource.MESSAGE else ()
            return (*log, *span.last_line)

        return sorted(
            schema for schema, parts in self.spans.items() if max(map(last, parts.values())) > position
        )


def _is_before(lasts: Sequence[_Key], firsts: Sequence[_Key]) -> bool:
    return not (lasts and firsts) or max(lasts) < min(firsts)


def added_later(places: SchemaPlaces, order: Order) -> set[str]:
    """Return the nullable columns, in lower case, that all messages have from some message on."""
    fields = {schema: _fields(schema) for schema in places.spans}
    found = set()
    for name in {name for each in fields.values() for name in each}:
        having = [schema for schema, each in fields.items() if name in each]
        lacking = [schema for schema in fields if schema not in having]
        is_nullable = not any(_has_value(fields[schema][name]) for schema in having)
        if lacking and is_nullable and places.all_before(lacking, having, order):
            found.add(name)
    return found


def new_columns(
    table: str,
    places: SchemaPlaces,
    order: Order,
    after: _Key,
    *,
    target: Collection[str],
    left_out: Collection[str],
    optional: Collection[str],
    metadata: tuple[str, ...],
) -> dict[str, str]:
    """Return the columns that the target lacks, with Hive's types.

    Args:
        table: the source's name of the table, for messages.
        places: the schemas of its messages.
        order: the order of the log.
        after: the position up to which the table was applied; () if nothing was.
        target: the target's columns, in lower case.
        left_out: columns of the source that are left out, in lower case.
        optional: columns of the target that messages may lack.
        metadata: prefixes of fields that are not columns.

    Raises:
        RecordLayoutError: If a column has no type in Hive, or several, or has a value in older rows. Also if
            messages have no schema.
    """
    new = places.after(order, after)
    if places.has_rows_without:
        raise RecordLayoutError(
            f"table {table}: messages have no schema, so the types of their columns are not known. Have the "
            "converter write schemas (schemas.enable=true, or Avro), or add columns with hive-mutate "
            "alter-table and leave out schema='add'"
        )
    fields = {schema: _fields(schema) for schema in places.spans}
    names = dict.fromkeys(name for schema in new for name in fields[schema])
    found: dict[str, str] = {}
    for name in names:
        if name in target or name in left_out or name.startswith(metadata):
            continue
        having = [schema for schema in fields if name in fields[schema]]
        lacking = [schema for schema in fields if name not in fields[schema]]
        if not places.all_before(lacking, having, order):
            continue
        if any({*target} - fields[schema].keys() - {*optional} for schema in having):
            continue  # a column of the target may have been renamed
        if (after or lacking) and any(_has_value(fields[schema][name]) for schema in having):
            raise RecordLayoutError(
                f"table {table}, column {name}: the source added it with a value in the rows that it had "
                "(NOT NULL, or a default). Add it with hive-mutate alter-table, and give existing rows the "
                "value"
            )
        types = sorted({hive_type_of(table, fields[schema][name]) for schema in having})
        if len(types) > 1:
            raise RecordLayoutError(
                f"table {table}, column {name}: messages give it the types {' and '.join(types)}: add it "
                "with hive-mutate alter-table"
            )
        found[name] = types[0]
    return found


def hive_type_of(table: str, described: Mapping[str, Any]) -> str:
    """Return the Hive type that holds all values of a column, given its schema.

    Raises RecordLayoutError if there is none. ``table`` is for the message.
    """
    semantic, kafka_type = described.get("name"), described.get("type")
    parameters = described.get("parameters") or {}
    where = f"table {table}, column {described.get('field')} ({semantic or kafka_type})"
    if semantic == _DECIMAL:
        precision, scale = parameters.get("connect.decimal.precision"), int(parameters["scale"])
        if precision is None or int(precision) > _DECIMAL_DIGITS or not 0 <= scale <= int(precision):
            raise RecordLayoutError(
                f"{where}: its schema does not have the number of digits, or has more than "
                f"{_DECIMAL_DIGITS}: add the column with hive-mutate alter-table"
            )
        return f"decimal({int(precision)},{scale})"
    if semantic == _VARIABLE_DECIMAL:
        raise RecordLayoutError(
            f"{where}: its values have any number of digits: add it with hive-mutate alter-table"
        )
    if semantic == _BITS:
        return "bigint" if int(parameters.get("length", _BIGINT_BITS + 1)) <= _BIGINT_BITS else "binary"
    found = _SEMANTIC_TYPES.get(str(semantic)) or _TYPES.get(str(kafka_type))
    if found is None:
        raise RecordLayoutError(f"{where}: Hive has no type for it: add it with hive-mutate alter-table")
    return found


def _has_value(described: Mapping[str, Any]) -> bool:
    """Return True if rows from before the column was added have a value in it."""
    has_default = described.get("default") is not None or bool(described.get(HAS_DEFAULT))
    return has_default or not described.get("optional", False)


def _fields(schema: str) -> dict[str, Mapping[str, Any]]:
    """Return the columns of a schema, by name in lower case."""
    return {each["field"].lower(): each for each in json.loads(schema).get("fields", ())}
