"""Logs of Maxwell's daemon: rows of MySQL and MariaDB as JSON.

A message has ``database``, ``table``, ``type`` and ``data``, the row; ``old``, of an update, holds the
columns that it changed. Rows of a bootstrap (``bootstrap-insert``) are inserts; they replace existing rows.
Messages around a bootstrap and heartbeats change nothing. Changes and drops of tables (``output_ddl``) are
refused, see :class:`~.log_options.LogOptions`. A table that is created is empty and needs no action. Maxwell
does not report TRUNCATE TABLE; do not use it on a followed table.

**Order**: ``position`` (``output_binlog_position``): the number of the binlog file, the byte in it, then
``xoffset`` (``output_xoffset``), or the line. All rows of a statement have the same position. The last row of
a transaction has ``commit`` and no ``xoffset``. Byte 0 is not a position; MariaDB logs it within transactions
from 11.4 on, and Maxwell may pass it on. Rows of a bootstrap have no position either. In these cases ask for
the order of lines, and let Maxwell bootstrap before, or synchronously. ``xid`` cannot be used: it is assigned
when a transaction begins, not when it commits.

**Key**: ``primary_key_columns`` (``output_primary_key_columns``), or the user names it.

**Values** (MySQL → JSON → Hive):

===============================  ===============================  ===========================================
MySQL                            JSON                             Hive
===============================  ===============================  ===========================================
tinyint … bigint, year, bit(n)   number                           integers, decimal; tinyint(1), bit(1) also
                                                                  boolean
decimal                          number                           decimal
float, double                    number                           float, double
char, varchar, …text, enum       string                           string, char, varchar
set                              array of strings                 string: the array's JSON
json                             the JSON value itself            string: its JSON, fields sorted, blanks
                                                                  removed; of a JSON string its text
binary, varbinary, …blob         string of base64                 binary
date, datetime, timestamp        string                           date, timestamp: the wall clock; zero dates
                                                                  are refused (``output_null_zerodates``)
time                             string                           string
geometry                         string (WKT)                     string
===============================  ===============================  ===========================================

A number in a column of strings gets its shortest text (``1.50`` is ``1.5``). With ``output_nulls=false``
Maxwell leaves out NULLs: then name the columns that may be missing.

Source: Maxwell's documentation (dataformat, bootstrapping, config) and its classes RowMap and ColumnDef.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame

from mutation_api.errors import InputFormatError
from mutation_api.inputs.messages.events import MessageFormat, event_frame, looked_up, problem
from mutation_api.inputs.messages.json_values import TEXT, Reader
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.message_source import MessageSource
from mutation_api.inputs.messages.variants import field_of, fields_of, text_of, texts_of
from mutation_api.types.hive_type import HiveType

__all__ = ["MaxwellFormat", "MaxwellSource"]

OPERATIONS = {"insert": "insert", "bootstrap-insert": "insert", "update": "update", "delete": "delete"}

NO_CHANGES = ("bootstrap-start", "bootstrap-complete", "heartbeat", "table-create", "database-create")

SCHEMA_CHANGES = ("table-alter", "table-drop", "database-alter", "database-drop")

_LAST_ROW = 2**62
"""Replaces the ``xoffset`` of the last row of a transaction."""

_POSITION = r"\A(.*?)\.?(\d{1,18}):(\d{1,18})\z"


@dataclass(frozen=True)
class MaxwellSource(MessageSource):
    """A log of messages of Maxwell's daemon.

    Args: see :class:`~mutation_api.inputs.messages.message_source.MessageSource`.
    """

    @property
    def format(self) -> MessageFormat:
        """Meaning of Maxwell's messages."""
        return MaxwellFormat()


class MaxwellFormat:
    """Meaning of Maxwell's messages."""

    name = "maxwell"
    placeholder: str | None = None

    def events(self, messages: DataFrame, _positions: Positions) -> DataFrame:
        """See :class:`~mutation_api.inputs.messages.events.MessageFormat`."""
        fields = sf.col("fields")
        read = messages.withColumn("fields", fields_of(sf.col("value"))).select(
            "*",
            *[
                text_of(field_of(fields, name)).alias(name)
                for name in ("database", "table", "type", "position")
            ],
            fields_of(field_of(fields, "data")).alias("data"),
            fields_of(field_of(fields, "old")).alias("old"),
        )
        table = sf.when(_is_of_database(), sf.lit("*")).otherwise(sf.col("table"))
        return event_frame(
            messages,
            read,
            kind=_kind(),
            table=sf.concat_ws(".", "database", table),
            op=looked_up(OPERATIONS, sf.col("type")),
            log_position=_log_position(),
            log=sf.regexp_extract("position", _POSITION, 1),
            key_names=texts_of(field_of(fields, "primary_key_columns")),
            rows=sf.array(_images()),
            text=sf.coalesce(text_of(field_of(fields, "sql")), sf.col("type")),
            problem=_problem(),
        )

    def readers(
        self, _table: str, columns: Mapping[str, HiveType], _schema: str | None
    ) -> Mapping[str, Reader]:
        """See :class:`~mutation_api.inputs.messages.events.MessageFormat`."""
        return {name: Reader("base64") if t.kind == "binary" else TEXT for name, t in columns.items()}


def _kind() -> Column:
    kind = sf.col("type")
    return (
        sf.when(kind.isin(*NO_CHANGES), "other")
        .when(kind.isin(*SCHEMA_CHANGES), "schema change")
        .when(sf.col("database").isNull() | sf.col("table").isNull() | kind.isNull(), "damaged")
        .otherwise("row")
    )


def _is_of_database() -> Column:
    return sf.coalesce(sf.col("type").startswith("database-"), sf.lit(False))


def _images() -> Column:
    data, old, kind = sf.col("data"), sf.col("old"), sf.col("type")
    unchanged = sf.map_filter(data, lambda name, _: ~sf.map_contains_key(old, name))
    before = sf.when(kind == "delete", data).when(kind == "update", sf.map_concat(unchanged, old))
    return sf.struct(before.alias("before"), sf.when(kind != "delete", data).alias("after"))


def _log_position() -> Column:
    xoffset = text_of(field_of(sf.col("fields"), "xoffset")).try_cast("bigint")
    is_last = text_of(field_of(sf.col("fields"), "commit")) == "true"
    row = sf.coalesce(xoffset, sf.when(is_last, sf.lit(_LAST_ROW)), sf.lit(0))
    numbers = [sf.regexp_extract("position", _POSITION, group).try_cast("bigint") for group in (2, 3)]
    is_known = sf.col("position").rlike(_POSITION) & (numbers[1] > 0)
    return sf.when(is_known, sf.array(*numbers, row.cast("bigint")))


def _problem() -> Column:
    fields, kind = sf.col("fields"), sf.col("type")
    missing = (
        sf.when(sf.col("database").isNull(), "database")
        .when(kind.isNull(), "type")
        .when(sf.col("table").isNull(), "table")
    )
    is_change = kind.isin(*NO_CHANGES, *SCHEMA_CHANGES)
    position = field_of(fields, "position")
    return (
        sf.when(is_change, sf.lit(None))
        .when(
            missing.isNotNull(),
            problem(
                InputFormatError, missing, "a message of Maxwell must have this field, and this one does not"
            ),
        )
        .when(
            ~kind.isin(*OPERATIONS),
            problem(
                InputFormatError,
                "type",
                "no operation is called ",
                kind,
                f"; known are {', '.join(OPERATIONS)}",
            ),
        )
        .when(
            sf.col("data").isNull(),
            problem(InputFormatError, "data", "the message has no row; is it encrypted, or a part of one?"),
        )
        .when(
            (kind == "update") & sf.col("old").isNull(),
            problem(InputFormatError, "old", "the message does not say what the update changed"),
        )
        .when(
            text_of(position).isNotNull() & ~sf.col("position").rlike(_POSITION),
            problem(
                InputFormatError,
                "position",
                sf.col("position"),
                " is not a position such as master.000006:800911",
            ),
        )
    )
