"""Logs of Debezium: rows of MySQL, MariaDB, PostgreSQL and others as JSON envelopes.

A message is an envelope with ``before``, ``after``, ``source`` and ``op``, or has it as ``payload`` beside
its ``schema``. ``c`` and ``r`` (a row that a snapshot read) are inserts, which replace an existing row; ``u``
are updates, ``d`` deletes. A delete needs the row before it, or the message's key. An update that changes the
key comes as a delete and an insert, as Debezium sends it, or in one message. Tombstones, marks of
transactions, heartbeats and messages of PostgreSQL's ``pg_logical_emit_message`` change nothing. Truncates
(``t``) are refused, or applied if the user chose so. By default Debezium leaves them out
(``skipped.operations``); do not truncate a followed table then. Changes of schemas are refused, see
:class:`~.log_options.LogOptions`, if their topic is part of the log. Tables that are created, or that a
snapshot describes, need no action.

The name of a table is ``DATABASE.TABLE``, or ``SCHEMA.TABLE`` if the source has schemas.

**Order**: ``source.file``, ``pos`` and ``row`` of MySQL and MariaDB, files by the number in their names;
``source.sequence`` and ``lsn`` of PostgreSQL: the last commit before, then the position of the change, since
transactions come in the order of their commits, and their changes are interleaved in the log. Other sources,
and rows that an incremental snapshot reads, have no position: ask for the order of lines. Do the same if
``pos`` is 0, as with MariaDB from 11.4 on if the connector passes on its positions within a transaction.

**Key**: the columns of the message's key, or the user names it.

**Values**: see :mod:`~mutation_api.inputs.messages.debezium_values`.

Source: Debezium's documentation of its connectors for MySQL and PostgreSQL, 3.x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame

from mutation_api.errors import InputFormatError
from mutation_api.inputs.messages.debezium_values import DebeziumValues
from mutation_api.inputs.messages.events import MessageFormat, event_frame, looked_up, problem
from mutation_api.inputs.messages.json_values import Reader
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.message_source import MessageSource
from mutation_api.inputs.messages.variants import field_of, fields_of, objects_of, text_of
from mutation_api.types.hive_type import HiveType

__all__ = ["DebeziumFormat", "DebeziumSource"]

OPERATIONS = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}

_FILE = r"\A(.*?)\.?(\d{1,18})\z"


@dataclass(frozen=True)
class DebeziumSource(MessageSource):
    """A log of messages of Debezium's connectors.

    Args:
        values: how values are written, for messages without a schema.
        Others: see :class:`~mutation_api.inputs.messages.message_source.MessageSource`.
    """

    _: KW_ONLY
    values: DebeziumValues = field(default_factory=DebeziumValues)

    @property
    def format(self) -> MessageFormat:
        """Meaning of Debezium's messages."""
        return DebeziumFormat(self.values)


@dataclass(frozen=True)
class DebeziumFormat:
    """Meaning of Debezium's messages."""

    values: DebeziumValues = field(default_factory=DebeziumValues)
    name: str = field(default="debezium", init=False)

    @property
    def placeholder(self) -> str | None:
        """See :class:`~mutation_api.inputs.messages.events.MessageFormat`."""
        return self.values.placeholder

    def events(self, messages: DataFrame, _positions: Positions) -> DataFrame:
        """See :class:`~mutation_api.inputs.messages.events.MessageFormat`."""
        envelope = sf.col("fields")
        return event_frame(
            messages,
            _opened(messages),
            kind=_kind(),
            table=sf.when(sf.col("code").isNull(), _changed_table()).otherwise(sf.col("source_table")),
            op=looked_up(OPERATIONS, sf.col("code")),
            log_position=_log_position(),
            log=_log(),
            schema=sf.col("row_schema"),
            key=sf.col("row_key"),
            key_names=sf.map_keys("row_key"),
            rows=sf.array(sf.struct("before", "after")),
            text=sf.coalesce(text_of(field_of(envelope, "ddl")), sf.col("code")),
            problem=_problem(),
        )

    def readers(
        self, table: str, columns: Mapping[str, HiveType], schema: str | None
    ) -> Mapping[str, Reader]:
        """See :class:`~mutation_api.inputs.messages.events.MessageFormat`."""
        return self.values.readers(table, columns, schema)


def _opened(messages: DataFrame) -> DataFrame:
    """Messages, with the fields of their envelopes."""
    fields, key = fields_of(sf.col("value")), fields_of(sf.col("key"))
    opened = messages.select(
        "*",
        sf.when(_has_payload(fields), fields_of(field_of(fields, "payload")))
        .otherwise(fields)
        .alias("fields"),
        sf.when(_has_payload(fields), _row_schema(field_of(fields, "schema"))).alias("row_schema"),
        _has_payload(fields).alias("has_schema"),
        sf.when(_has_payload(key), fields_of(field_of(key, "payload"))).otherwise(key).alias("row_key"),
    )
    envelope = sf.col("fields")
    return opened.select(
        "*",
        text_of(field_of(envelope, "op")).alias("code"),
        fields_of(field_of(envelope, "before")).alias("before"),
        fields_of(field_of(envelope, "after")).alias("after"),
        fields_of(field_of(envelope, "source")).alias("source"),
    ).select("*", _table().alias("source_table"))


def _has_payload(fields: Column) -> Column:
    return sf.coalesce(
        sf.map_contains_key(fields, "payload") & sf.map_contains_key(fields, "schema"), sf.lit(False)
    )


def _row_schema(schema: Column) -> Column:
    """Text of the schema of the rows in an envelope."""
    fields = objects_of(field_of(fields_of(schema), "fields"))
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
    return objects_of(field_of(sf.col("fields"), "tableChanges"))


def _changed_table() -> Column:
    """The table that a message on the schema change topic names; all of the database if it is not one."""
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


def _log_position() -> Column:
    file, row = _source("file"), sf.coalesce(_source("row"), sf.lit("0"))
    binlog = [sf.regexp_extract(file, _FILE, 2), sf.nullif(_source("pos"), sf.lit("0")), row]
    last_commit = sf.regexp_extract(_source("sequence"), r'\A\[\s*"?(\d{1,19})"?\s*,', 1)
    wal = [sf.coalesce(sf.nullif(last_commit, sf.lit("")), sf.lit("0")), _source("lsn"), sf.lit("0")]
    numbers = sf.when(file.rlike(_FILE), _bigints(binlog)).when(
        _source("connector") == "postgresql", _bigints(wal)
    )
    is_known = (_source("snapshot") != "incremental") | _source("snapshot").isNull()
    return sf.when(is_known & ~sf.exists(numbers, lambda number: number.isNull()), numbers)


def _bigints(texts: list[Column]) -> Column:
    return sf.array(*[text.try_cast("bigint") for text in texts])


def _log() -> Column:
    """The log to which a position belongs: that of a server, by the name that Debezium has for it."""
    prefix = sf.regexp_extract(sf.coalesce(_source("file"), sf.lit("")), _FILE, 1)
    return sf.rtrim(sf.concat_ws(" ", _source("connector"), _source("name"), prefix))


def _problem() -> Column:
    code, fields = sf.col("code"), sf.col("fields")
    has_no_table = sf.col("source_table").isNull()
    return (
        sf.when(_kind().isin("other", "schema change", "truncate"), sf.lit(None))
        .when(
            code.isNull(),
            problem(
                InputFormatError,
                "op",
                "this is no envelope of Debezium: it has the fields ",
                sf.array_join(sf.map_keys(fields), ", "),
                "; flattened messages (ExtractNewRecordState) cannot be read",
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
        .when(has_no_table, problem(InputFormatError, "source", "does not name database and table"))
        .when(
            (code != "d") & sf.col("after").isNull(),
            problem(InputFormatError, "after", "the message has no row"),
        )
    )
