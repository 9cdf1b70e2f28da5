"""The form in which Debezium writes values: source → JSON → Hive.

If messages have a schema, it defines how a value is written. Otherwise the user defines it for decimals and
bytes, and for times that are not strings (:class:`DebeziumValues`):

==================================  ============================================  ===========================
MySQL, PostgreSQL                   JSON: Kafka's type, semantic type             Hive
==================================  ============================================  ===========================
integers, year, bit(1), boolean     number, true, false                           integers, decimal, boolean
bigint unsigned                     number; Debezium's ``precise`` mode: Decimal  decimal(20,0)
float, double                       number; ``"NaN"``                             float, double, or string in
                                                                                  the shortest form
decimal, numeric                    ``precise``: base64, ``connect…Decimal``, or  decimal, integers, string
                                    a struct, ``VariableScaleDecimal``
…                                   the same; number, if the converter has        decimal, integers, string
                                    ``decimal.format=NUMERIC``
…                                   ``string``: string                            decimal, string
…                                   ``double``: number; only if the user chooses  decimal, double
                                    it, since it is not exact
char, varchar, text, enum, set,     string, with or without semantic type         string, char, varchar
json, xml, uuid, ltree, inet
binary, blob, bytea                 ``bytes``: base64; else as the user defines:  binary
                                    ``base64``, ``base64-url-safe``, ``hex``
bit(n)                              base64, low byte first, ``Bits``              integers, decimal, binary
date                                number of days, ``Date``, or ``IsoDate``      date, string
datetime, timestamp of PostgreSQL   number: ``Timestamp``, ``MicroTimestamp``,    timestamp without time
                                    ``NanoTimestamp``, or ``IsoTimestamp``        zone, string
timestamp of MySQL, timestamptz,    string, ``ZonedTimestamp``, with any offset   timestamp in UTC, or string
datetimeoffset                                                                    unchanged
time                                number: ``Time``, ``MicroTime``,              string
                                    ``NanoTime``, ``IsoTime``, ``ZonedTime``
geometry, point, array, hstore      struct, array, map                            string: its JSON
json                                string, ``Json``: its JSON                    string, array, map, struct
==================================  ============================================  ===========================

``__debezium_unavailable_value``, in the form that it has for the column's type
(:mod:`~mutation_api.cdc.messages.events`), is refused. PostgreSQL does not log a long value that an
update does not change (TOAST) unless the table has REPLICA IDENTITY FULL.

Source: Debezium's documentation of its connectors for MySQL and PostgreSQL, 3.x.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mutation_api.cdc.messages.events import Unlogged
from mutation_api.cdc.messages.json_values import TEXT, Reader
from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.hive_type import HiveType, TypeFamily

DECIMAL_MODES = ("precise", "string", "double", "numeric")
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")
TIME_MODES = {"connect": "millis", "microseconds": "micros", "nanoseconds": "nanos", "isostring": "utc"}
"""Values of ``time.precision.mode`` that define how all columns of one type are written, with the reader of a
timestamp. The adaptive modes do not define it."""

_JSON = "io.debezium.data.Json"
_SEMANTIC_READERS = {
    "io.debezium.time.Date": "days",
    "io.debezium.time.Timestamp": "millis",
    "io.debezium.time.MicroTimestamp": "micros",
    "io.debezium.time.NanoTimestamp": "nanos",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.NanoTime": "time-nanos",
    "io.debezium.time.ZonedTimestamp": "utc",
    "io.debezium.time.IsoDate": "utc",
    "io.debezium.time.IsoTimestamp": "utc",
    "io.debezium.time.Year": "flag",
    "io.debezium.data.Bits": "bits",
    _JSON: "json",
    "io.debezium.data.VariableScaleDecimal": "decimal-struct",
    "org.apache.kafka.connect.data.Date": "days",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "millis",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
SEMANTIC_TYPES = (*_SEMANTIC_READERS, f"{_DECIMAL}(SCALE)", "text")
"""The semantic types that a user may give to a column; ``text`` is the value itself."""

_DECIMAL_TYPE = re.compile(re.escape(_DECIMAL) + r"\((\d{1,3})\)")
_NUMBER_TYPES = ("int8", "int16", "int32", "int64", "boolean")
_DOUBLES = ("float", "double", "float32", "float64")


@dataclass(frozen=True, kw_only=True)
class DebeziumValues:
    """The form in which values are written, for messages without a schema.

    Args:
        decimals: ``decimal.handling.mode``, or ``numeric`` if that is precise and the converter has
            ``decimal.format=NUMERIC``.
        binary: ``binary.handling.mode``.
        times: one of TIME_MODES. If None, a timestamp must be a string in UTC.
        column_types: semantic type by ``TABLE.COLUMN``, one of SEMANTIC_TYPES; overrides all others.
        placeholder: ``unavailable.value.placeholder``.

    Raises:
        ConfigurationError: If a value is not one of these.
    """

    decimals: str | None = None
    binary: str | None = None
    times: str | None = None
    column_types: Mapping[str, str] = field(default_factory=dict)
    placeholder: str = "__debezium_unavailable_value"

    def __post_init__(self) -> None:
        Unlogged(self.placeholder)
        _check_choice("decimals", self.decimals, DECIMAL_MODES)
        _check_choice("binary", self.binary, BINARY_MODES)
        _check_choice("times", self.times, tuple(TIME_MODES))
        for name, semantic in self.column_types.items():
            if _reader_called(semantic) is None:
                raise ConfigurationError(
                    f"column {name}: unknown semantic type {semantic!r}, expected one of "
                    f"{', '.join(SEMANTIC_TYPES)}"
                )

    @functools.cached_property
    def unlogged(self) -> Unlogged:
        """The placeholder in all its forms. Raises ConfigurationError if it is not valid."""
        return Unlogged(self.placeholder)

    def readers(
        self, table: str, columns: Mapping[str, HiveType], schema: str | None
    ) -> Mapping[str, Reader]:
        """Return the readers of columns; ``schema`` is that of the rows."""
        schemas = None
        if schema is not None:
            exact = {each["field"]: each for each in json.loads(schema).get("fields", [])}
            schemas = {**{name.lower(): each for name, each in exact.items()}, **exact}
        return {name: self._reader(table, name, hive_type, schemas) for name, hive_type in columns.items()}

    def _reader(
        self, table: str, name: str, hive_type: HiveType, schemas: Mapping[str, Mapping[str, Any]] | None
    ) -> Reader:
        semantic = self._semantics.get((table, name.lower()))
        if semantic is not None:
            return _reader_called(semantic) or TEXT
        where = f"table {table}, column {name} ({hive_type.text})"
        if schemas is None:
            return self._reader_without_schema(where, hive_type)
        found = schemas.get(name) or schemas.get(name.lower())
        return TEXT if found is None else self._reader_of_schema(where, hive_type, found)

    @functools.cached_property
    def _semantics(self) -> Mapping[tuple[str, str], str]:
        """The semantic types by table and column; column names are not case-sensitive."""
        parted = {name: name.rpartition(".") for name in self.column_types}
        return {
            (table, column.lower()): self.column_types[name] for name, (table, _, column) in parted.items()
        }

    def _reader_of_schema(self, where: str, hive_type: HiveType, schema: Mapping[str, Any]) -> Reader:
        semantic, kafka_type = schema.get("name"), schema.get("type")
        if semantic == _DECIMAL:
            return Reader("decimal-bytes", int(schema["parameters"]["scale"]))
        if semantic == _JSON and hive_type.family is not TypeFamily.NESTED:
            return TEXT
        if semantic in _SEMANTIC_READERS:
            return Reader(_SEMANTIC_READERS[semantic])
        if kafka_type == "bytes":
            return Reader("base64")
        if kafka_type == "string" and hive_type.family is TypeFamily.BINARY:
            return self._binary(where)
        if kafka_type in _DOUBLES and hive_type.family in (TypeFamily.DECIMAL, TypeFamily.INTEGER):
            if self.decimals == "double":
                return TEXT
            raise RecordLayoutError(
                f"{where}: the source writes doubles, which are not exact; have Debezium write decimals as "
                "precise or string, or choose double for decimals"
            )
        if kafka_type in _NUMBER_TYPES and hive_type.family in (TypeFamily.BOOLEAN, TypeFamily.INTEGER):
            return Reader("flag")
        if kafka_type in ("struct", "array", "map") and hive_type.family is not TypeFamily.TEXT:
            raise RecordLayoutError(
                f"{where}: {semantic or kafka_type} can only be stored in a string column"
            )
        return TEXT

    def _reader_without_schema(self, where: str, hive_type: HiveType) -> Reader:
        match hive_type.family:
            case TypeFamily.BINARY:
                return self._binary(where)
            case TypeFamily.DECIMAL:
                return self._decimal(where, hive_type.scale)
            case TypeFamily.DATE:
                return Reader("utc" if self.times == "isostring" else "days")
            case TypeFamily.TIMESTAMP:
                return Reader(TIME_MODES[self.times or "isostring"])
            case TypeFamily.BOOLEAN:
                return Reader("flag")
            case TypeFamily.INTEGER | TypeFamily.FLOAT:
                return Reader("number")
        return TEXT

    def _binary(self, where: str) -> Reader:
        if self.binary is None:
            raise RecordLayoutError(
                f"{where}: the messages do not define how bytes are written; choose one of "
                f"{', '.join(BINARY_MODES)}"
            )
        return Reader("base64" if self.binary == "bytes" else self.binary)

    def _decimal(self, where: str, scale: int) -> Reader:
        if self.decimals in ("string", "double"):
            return TEXT
        if self.decimals == "numeric":
            return Reader("decimal-number", scale)
        advice = (
            f"give its scale: {_DECIMAL}(SCALE)"
            if self.decimals == "precise"
            else f"choose one of {', '.join(DECIMAL_MODES)}"
        )
        raise RecordLayoutError(f"{where}: the messages do not define how decimals are written; {advice}")


def _check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise ConfigurationError(f"{name}={value!r}: expected one of {', '.join(choices)}")


def _reader_called(semantic: str) -> Reader | None:
    if semantic == "text":
        return TEXT
    if semantic in _SEMANTIC_READERS:
        return Reader(_SEMANTIC_READERS[semantic])
    decimal = _DECIMAL_TYPE.fullmatch(semantic)
    return Reader("decimal-bytes", int(decimal[1])) if decimal else None
