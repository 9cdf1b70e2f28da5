"""Logs of Debezium: rows of MySQL, MariaDB, PostgreSQL and others as JSON envelopes.

A message is an envelope with ``before``, ``after``, ``source`` and ``op``, or has it as ``payload`` beside
its ``schema``. ``c`` and ``r`` (a row that a snapshot read) are inserts, which replace what is there; ``u``
updates, ``d`` deletes. A delete needs the row before it, or the message's key. An update that changes the key
comes as a delete and an insert, as Debezium sends it, or in one message. Tombstones, marks of transactions,
heartbeats and messages of PostgreSQL's ``pg_logical_emit_message`` change nothing. Truncates (``t``) are
refused, or applied for those who ask for it; by default Debezium leaves them out (``skipped.operations``), so
do not truncate a table that is followed then. Changes of schemas are refused, see
:class:`~.json_log.LogOptions`, if their topic is a part of the log; tables that are
created, or that a snapshot tells of, are nothing to do.

A table is called ``DATABASE.TABLE``, or ``SCHEMA.TABLE`` where the source has schemas.

**Order**: ``source.file``, ``pos`` and ``row`` of MySQL and MariaDB, files by the number in their names;
``source.sequence`` and ``lsn`` of PostgreSQL: the last commit before, then the place of the change, since
transactions come in the order of their commits, and their changes lie mixed. Other sources, and rows that an
incremental snapshot reads, tell no place: ask for the order of lines. So do it where ``pos`` is 0, as of
MariaDB from 11.4 on if the connector passes on what that logs within a transaction.

**Key**: the columns of the message's key, or the user says it.

**Values** (source → JSON → Hive). Where messages have a schema, that tells how a value is written; where they
do not, the user says it for decimals and bytes, and for times where it is not a text
(:class:`DebeziumValues`):

==================================  ============================================  ===========================
MySQL, PostgreSQL                   JSON: Kafka's type, semantic type             Hive
==================================  ============================================  ===========================
integers, year, bit(1), boolean     number, true, false                           integers, decimal, boolean
bigint unsigned                     number; Debezium's ``precise`` mode: Decimal  decimal(20,0)
float, double                       number; ``"NaN"``                             float, double
decimal, numeric                    ``precise``: base64, ``connect…Decimal``, or  decimal, integers, string
                                    a struct, ``VariableScaleDecimal``
…                                   ``string``: string                            decimal, string
…                                   ``double``: number; only if the user says     decimal, double
                                    so, since it is not exact
char, varchar, text, enum, set,     string, with or without semantic type         string, char, varchar
json, xml, uuid, ltree, inet
binary, blob, bytea                 ``bytes``: base64; else as the user says:     binary
                                    ``base64``, ``base64-url-safe``, ``hex``
bit(n)                              base64, low byte first, ``Bits``              integers, decimal, binary
date                                number of days, ``Date``; ``IsoDate``         date, string
datetime; timestamp of PostgreSQL   number: ``Timestamp``, ``MicroTimestamp``,    timestamp, as it is there;
                                    ``NanoTimestamp``; ``IsoTimestamp``           string
timestamp of MySQL, timestamptz     string, ``ZonedTimestamp``                    timestamp: that of UTC;
                                                                                  string as it is
time                                number: ``Time``, ``MicroTime``,              string
                                    ``NanoTime``; ``IsoTime``, ``ZonedTime``
geometry, point, array, hstore      struct, array, map                            string: its JSON
==================================  ============================================  ===========================

``__debezium_unavailable_value`` is refused: PostgreSQL does not log a long value that an update leaves
alone (TOAST) unless the table has REPLICA IDENTITY FULL.

Source: Debezium's documentation of its connectors for MySQL and PostgreSQL, 3.x.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame

from mutation_api.errors import ConfigurationError, InputFormatError, RecordLayoutError
from mutation_api.inputs.messages.json_log import (
    Positions,
    event_columns,
    field_of,
    fields_of,
    problem,
    text_of,
)
from mutation_api.inputs.messages.json_values import TEXT, Reader
from mutation_api.types.hive_type import INTEGER_KINDS, HiveType

__all__ = ["BINARY_MODES", "DECIMAL_MODES", "SEMANTIC_TYPES", "TIME_MODES", "Debezium", "DebeziumValues"]

OPERATIONS = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}

DECIMAL_MODES = ("precise", "string", "double")
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")
TIME_MODES = {"connect": "millis", "microseconds": "micros", "nanoseconds": "nanos", "isostring": "utc"}
"""Values of ``time.precision.mode`` that tell how all columns of one type are written, and the reader for a
timestamp. The adaptive ones do not."""

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
    "io.debezium.data.VariableScaleDecimal": "decimal-struct",
    "org.apache.kafka.connect.data.Date": "days",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "millis",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
SEMANTIC_TYPES = (*_SEMANTIC_READERS, f"{_DECIMAL}(SCALE)", "text")
"""What a user may say that a column is; ``text`` is a value as it stands."""

_DECIMAL_TYPE = re.compile(re.escape(_DECIMAL) + r"\((\d{1,3})\)")
_NUMBER_TYPES = ("int8", "int16", "int32", "int64", "boolean")
_STRINGS = ("string", "char", "varchar")
_FILE = r"\A(.*?)\.?(\d{1,18})\z"


@dataclass(frozen=True)
class DebeziumValues:
    """How values are written, where messages do not tell it.

    ``decimals``: ``decimal.handling.mode``. ``binary``: ``binary.handling.mode``. ``times``: one of
    TIME_MODES; without it a timestamp must be a text of UTC. ``columns``: semantic type by ``TABLE.COLUMN``,
    one of SEMANTIC_TYPES; counts before everything else. ``placeholder``: ``unavailable.value.placeholder``.

    Raises:
        ConfigurationError: a value that is none of these.
    """

    decimals: str | None = None
    binary: str | None = None
    times: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    placeholder: str = "__debezium_unavailable_value"

    def __post_init__(self) -> None:
        _check_choice("decimals", self.decimals, DECIMAL_MODES)
        _check_choice("binary", self.binary, BINARY_MODES)
        _check_choice("times", self.times, tuple(TIME_MODES))
        for name, semantic in self.columns.items():
            if _reader_called(semantic) is None:
                raise ConfigurationError(
                    f"column {name}: no semantic type is called {semantic!r}; known are "
                    f"{', '.join(SEMANTIC_TYPES)}"
                )


@dataclass(frozen=True)
class Debezium:
    """Messages of Debezium's connectors."""

    values: DebeziumValues = field(default_factory=DebeziumValues)
    name: str = field(default="debezium", init=False)

    @property
    def placeholder(self) -> str | None:
        """See :class:`~mutation_api.inputs.messages.json_log.MessageFormat`."""
        return self.values.placeholder

    def events(self, messages: DataFrame, _positions: Positions) -> DataFrame:
        """See :class:`~mutation_api.inputs.messages.json_log.MessageFormat`."""
        kept = [name for name in messages.columns if name not in ("key", "value")]
        fields, key = fields_of(sf.col("value")), fields_of(sf.col("key"))
        opened = messages.select(
            *kept,
            sf.when(_has_payload(fields), fields_of(field_of(fields, "payload")))
            .otherwise(fields)
            .alias("fields"),
            sf.when(_has_payload(fields), _row_schema(field_of(fields, "schema"))).alias("row_schema"),
            _has_payload(fields).alias("has_schema"),
            sf.when(_has_payload(key), fields_of(field_of(key, "payload"))).otherwise(key).alias("key"),
        )
        envelope = sf.col("fields")
        read = opened.select(
            "*",
            text_of(field_of(envelope, "op")).alias("code"),
            fields_of(field_of(envelope, "before")).alias("before"),
            fields_of(field_of(envelope, "after")).alias("after"),
            fields_of(field_of(envelope, "source")).alias("source"),
        ).select("*", _table().alias("source_table"))
        return read.select(
            *kept,
            *event_columns(
                kind=_kind(),
                table=sf.when(sf.col("code").isNull(), _changed_table()).otherwise(sf.col("source_table")),
                op=sf.element_at(
                    sf.create_map(*[sf.lit(text) for pair in OPERATIONS.items() for text in pair]),
                    sf.col("code"),
                ),
                place=_place(),
                log=_log(),
                schema=sf.col("row_schema"),
                key=sf.col("key"),
                key_names=sf.map_keys("key"),
                rows=sf.array(sf.struct("before", "after")),
                text=sf.coalesce(text_of(field_of(envelope, "ddl")), sf.col("code")),
                problem=_problem(),
            ),
        )

    def readers(
        self, table: str, columns: Mapping[str, HiveType], schema: str | None
    ) -> Mapping[str, Reader]:
        """See :class:`~mutation_api.inputs.messages.json_log.MessageFormat`."""
        told = (
            None if schema is None else {each["field"]: each for each in json.loads(schema).get("fields", [])}
        )
        return {name: self._reader(table, name, hive_type, told) for name, hive_type in columns.items()}

    def _reader(
        self, table: str, name: str, hive_type: HiveType, told: Mapping[str, Mapping[str, Any]] | None
    ) -> Reader:
        semantic = self.values.columns.get(f"{table}.{name}")
        if semantic is not None:
            return _reader_called(semantic) or TEXT
        where = f"table {table}, column {name} ({hive_type.text})"
        if told is None:
            return self._reader_untold(where, hive_type)
        if name not in told:
            return TEXT
        return self._reader_told(where, hive_type, told[name])

    def _reader_told(self, where: str, hive_type: HiveType, told: Mapping[str, Any]) -> Reader:
        semantic, kafka_type = told.get("name"), told.get("type")
        if semantic == _DECIMAL:
            return Reader("decimal-bytes", int(told["parameters"]["scale"]))
        if semantic in _SEMANTIC_READERS:
            return Reader(_SEMANTIC_READERS[semantic])
        if kafka_type == "bytes":
            return Reader("base64")
        if kafka_type == "string" and hive_type.kind == "binary":
            return self._binary(where)
        if kafka_type in ("float", "double", "float32", "float64") and hive_type.kind in (
            "decimal",
            *INTEGER_KINDS,
        ):
            if self.values.decimals == "double":
                return TEXT
            raise RecordLayoutError(
                f"{where}: the source writes doubles, which are not exact; let Debezium write decimals as "
                "precise or string, or say that decimals are double"
            )
        if kafka_type in _NUMBER_TYPES and hive_type.kind in ("boolean", *INTEGER_KINDS):
            return Reader("flag")
        if kafka_type in ("struct", "array", "map") and hive_type.kind not in _STRINGS:
            raise RecordLayoutError(f"{where}: {semantic or kafka_type} can go into a string only")
        return TEXT

    def _reader_untold(self, where: str, hive_type: HiveType) -> Reader:
        match hive_type.kind:
            case "binary":
                return self._binary(where)
            case "decimal":
                return self._decimal(where)
            case "date":
                return Reader("utc" if self.values.times == "isostring" else "days")
            case "timestamp":
                return Reader(TIME_MODES[self.values.times or "isostring"])
            case "boolean":
                return Reader("flag")
            case kind if kind in (*INTEGER_KINDS, "float", "double"):
                return Reader("number")
        return TEXT

    def _binary(self, where: str) -> Reader:
        if self.values.binary is None:
            raise RecordLayoutError(
                f"{where}: the messages do not tell how bytes are written; say which of "
                f"{', '.join(BINARY_MODES)}"
            )
        return Reader("base64" if self.values.binary == "bytes" else self.values.binary)

    def _decimal(self, where: str) -> Reader:
        if self.values.decimals in ("string", "double"):
            return TEXT
        advice = (
            f"say its scale: {_DECIMAL}(SCALE)"
            if self.values.decimals == "precise"
            else f"say which of {', '.join(DECIMAL_MODES)}"
        )
        raise RecordLayoutError(f"{where}: the messages do not tell how decimals are written; {advice}")


def _check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise ConfigurationError(f"{name}={value!r}: it must be one of {', '.join(choices)}")


def _reader_called(semantic: str) -> Reader | None:
    if semantic == "text":
        return TEXT
    if semantic in _SEMANTIC_READERS:
        return Reader(_SEMANTIC_READERS[semantic])
    decimal = _DECIMAL_TYPE.fullmatch(semantic)
    return Reader("decimal-bytes", int(decimal[1])) if decimal else None


def _has_payload(fields: Column) -> Column:
    return sf.coalesce(
        sf.map_contains_key(fields, "payload") & sf.map_contains_key(fields, "schema"), sf.lit(False)
    )


def _row_schema(schema: Column) -> Column:
    """Text of the schema of the rows in an envelope."""
    fields = field_of(fields_of(schema), "fields").try_cast("array<map<string,variant>>")
    rows = sf.filter(fields, lambda each: text_of(field_of(each, "field")) == "after")
    return sf.to_json(sf.try_element_at(rows, sf.lit(1)))


def _source(name: str) -> Column:
    return text_of(field_of(sf.col("source"), name))


def _table() -> Column:
    return sf.concat(sf.coalesce(_source("schema"), _source("db")), sf.lit("."), _source("table"))


def _is_schema_change() -> Column:
    fields = sf.col("fields")
    return sf.map_contains_key(fields, "ddl") | sf.map_contains_key(fields, "tableChanges")


def _table_changes() -> Column:
    return field_of(sf.col("fields"), "tableChanges").try_cast("array<map<string,variant>>")


def _changed_table() -> Column:
    """The table that a message on the schema change topic is about; all of the database if not just one."""
    changes = _table_changes()
    one = sf.translate(text_of(field_of(sf.try_element_at(changes, sf.lit(1)), "id")), '"', "")
    database = text_of(field_of(sf.col("fields"), "databaseName"))
    return sf.when(sf.size(changes) == 1, one).otherwise(sf.concat(database, sf.lit(".*")))


def _kind() -> Column:
    code, fields, changes = sf.col("code"), sf.col("fields"), _table_changes()
    is_of_snapshot = ~sf.coalesce(_source("snapshot"), sf.lit("false")).isin("false", "")
    creates = (sf.size(changes) > 0) & sf.forall(changes, lambda c: text_of(field_of(c, "type")) == "CREATE")
    times = sf.map_filter(fields, lambda name, _: name.startswith("ts_"))
    is_heartbeat = (sf.size(times) > 0) & (sf.size(times) == sf.size(fields))
    is_mark = text_of(field_of(fields, "status")).isin("BEGIN", "END") & sf.map_contains_key(fields, "id")
    is_tombstone = sf.col("has_schema") & fields.isNull()
    return (
        sf.when(code == "t", "truncate")
        .when((code == "m") | is_tombstone, "other")
        .when(code.isNotNull() & sf.col("source_table").isNotNull(), "row")
        .when(code.isNotNull(), "damaged")
        .when(is_heartbeat | is_mark, "other")
        .when(_is_schema_change() & (is_of_snapshot | sf.coalesce(creates, sf.lit(False))), "other")
        .when(_is_schema_change(), "schema change")
        .otherwise("damaged")
    )


def _place() -> Column:
    file, row = _source("file"), sf.coalesce(_source("row"), sf.lit("0"))
    binlog = [sf.regexp_extract(file, _FILE, 2), sf.nullif(_source("pos"), sf.lit("0")), row]
    last_commit = sf.regexp_extract(_source("sequence"), r'\A\[\s*"?(\d{1,19})"?\s*,', 1)
    wal = [sf.coalesce(sf.nullif(last_commit, sf.lit("")), sf.lit("0")), _source("lsn"), sf.lit("0")]
    numbers = sf.when(file.rlike(_FILE), _bigints(binlog)).when(
        _source("connector") == "postgresql", _bigints(wal)
    )
    is_told = (_source("snapshot") != "incremental") | _source("snapshot").isNull()
    return sf.when(is_told & ~sf.exists(numbers, lambda number: number.isNull()), numbers)


def _bigints(texts: list[Column]) -> Column:
    return sf.array(*[text.try_cast("bigint") for text in texts])


def _log() -> Column:
    """The log in which a place counts: a server's, by the name that Debezium was given for it."""
    prefix = sf.regexp_extract(sf.coalesce(_source("file"), sf.lit("")), _FILE, 1)
    return sf.rtrim(sf.concat_ws(" ", _source("connector"), _source("name"), prefix))


def _problem() -> Column:
    code, fields = sf.col("code"), sf.col("fields")
    has_no_place = sf.col("source_table").isNull()
    return (
        sf.when(_kind().isin("other", "schema change", "truncate"), sf.lit(None))
        .when(
            code.isNull(),
            problem(
                InputFormatError,
                "op",
                "this is no envelope of Debezium: it has the fields ",
                sf.array_join(sf.map_keys(fields), ", "),
                "; flattened messages (ExtractNewRecordState) lack what is needed",
            ),
        )
        .when(
            ~code.isin(*OPERATIONS),
            problem(
                InputFormatError,
                "op",
                "no operation is called ",
                code,
                f"; known are {', '.join(OPERATIONS)}",
            ),
        )
        .when(has_no_place, problem(InputFormatError, "source", "does not tell database and table"))
        .when(
            (code != "d") & sf.col("after").isNull(),
            problem(InputFormatError, "after", "the message has no row"),
        )
    )
