"""Logs of Canal: rows of MySQL and MariaDB as flat JSON messages; TiCDC writes them too.

A message has ``database``, ``table``, ``type`` (INSERT, UPDATE, DELETE) and ``data``, an array of rows;
``old``, of an update, has for each row the columns that it changed. Statements (``isDdl``) that change,
rename or drop a followed table are refused, and so is TRUNCATE unless the user chose to apply it, see
:class:`~.log_options.LogOptions`. A table that is created is empty, and an index has no rows, so neither
needs action. Marks of transactions, heartbeats and TiCDC's watermarks change nothing.

**Order**: the lines, as Canal sends them, then the rows in a message. ``id`` counts Canal's batches: all
messages of a batch have the same one, and it restarts with the server. ``es`` is the time at which a
statement began, not when it was committed. So ``id`` is used only if the user asks for the order of the
messages' positions; the log must not have such a restart then. With TiCDC's extension, ``_tidb.commitTs``
orders transactions.

**Key**: ``pkNames``, or the user names it.

**Values** (MySQL → JSON → Hive). All are strings, or null:

================================  ==========================  ===============================================
MySQL                             string                      Hive
================================  ==========================  ===============================================
tinyint … bigint, year, bit(n)    digits                      integers, decimal; also boolean for 0 and 1
decimal, float, double            digits                      decimal, float, double
char, varchar, …text              the text                    string, char, varchar
enum, set, json, time             as Canal writes them        string
binary, varbinary, …blob          a character for each byte,  binary
                                  as in ISO 8859-1
date, datetime, timestamp         ``2018-06-20 06:37:03``     date, timestamp: the wall clock; zero dates are
                                                              refused
================================  ==========================  ===============================================

Source: FlatMessage, MQMessageUtils and EntryProtocol.proto of alibaba/canal; PingCAP's page on TiCDC's
Canal-JSON protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame

from mutation_api.errors import InputFormatError
from mutation_api.inputs.messages.events import MessageFormat, event_frame, problem
from mutation_api.inputs.messages.json_values import TEXT, Reader
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.message_source import MessageSource
from mutation_api.inputs.messages.variants import field_of, fields_of, objects_of, text_of, texts_of
from mutation_api.types.hive_type import HiveType

__all__ = ["CanalFormat", "CanalSource"]

OPERATIONS = ("INSERT", "UPDATE", "DELETE")

SCHEMA_CHANGES = ("ALTER", "ERASE", "RENAME", "QUERY")
"""ERASE is DROP. QUERY is any other statement, also one whose rows are not in the log."""

NO_CHANGES = (
    *("CREATE", "CINDEX", "DINDEX"),
    *("GTID", "TRANSACTIONBEGIN", "TRANSACTIONEND", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT", "TIDB_WATERMARK"),
)

_TEXTS = ("database", "table", "type", "sql", "id")


@dataclass(frozen=True)
class CanalSource(MessageSource):
    """A log of flat messages of Canal, or of TiCDC.

    Args: see :class:`~mutation_api.inputs.messages.message_source.MessageSource`.
    """

    @property
    def format(self) -> MessageFormat:
        """Meaning of Canal's messages."""
        return CanalFormat()


class CanalFormat:
    """Meaning of Canal's messages."""

    name = "canal"
    placeholder: str | None = None

    def events(self, messages: DataFrame, positions: Positions) -> DataFrame:
        """See :class:`~mutation_api.inputs.messages.events.MessageFormat`."""
        fields = sf.col("fields")
        read = messages.withColumn("fields", fields_of(sf.col("value"))).select(
            "*",
            *[text_of(field_of(fields, name)).alias(name) for name in _TEXTS],
            objects_of(field_of(fields, "data")).alias("data"),
            objects_of(field_of(fields, "old")).alias("old"),
            text_of(field_of(fields_of(field_of(fields, "_tidb")), "commitTs"))
            .try_cast("bigint")
            .alias("ts"),
        )
        table = sf.when(_is_of_table(), sf.col("table")).otherwise("*")
        return event_frame(
            messages,
            read,
            kind=_kind(),
            table=sf.concat(sf.col("database"), sf.lit("."), table),
            op=sf.lower("type"),
            log_position=_log_position(positions),
            log=sf.when(sf.col("ts").isNotNull(), "commitTs").otherwise("id"),
            key_names=texts_of(field_of(fields, "pkNames")),
            rows=sf.transform("data", _images),
            text=sf.coalesce(sf.nullif("sql", sf.lit("")), sf.col("type")),
            problem=_problem(),
        )

    def readers(
        self, _table: str, columns: Mapping[str, HiveType], _schema: str | None
    ) -> Mapping[str, Reader]:
        """See :class:`~mutation_api.inputs.messages.events.MessageFormat`."""
        return {name: Reader("latin1") if t.kind == "binary" else TEXT for name, t in columns.items()}


def _kind() -> Column:
    kind = sf.col("type")
    return (
        sf.when(kind == "TRUNCATE", "truncate")
        .when(kind.isin(*NO_CHANGES), "other")
        .when(kind.isin(*SCHEMA_CHANGES), "schema change")
        .when(kind.isNull() | sf.col("database").isNull() | sf.col("table").isNull(), "damaged")
        .otherwise("row")
    )


def _is_of_table() -> Column:
    """A table can be renamed to the name of a followed one, so RENAME touches all tables of the database."""
    return (sf.coalesce("table", sf.lit("")) != "") & ~sf.coalesce(sf.col("type") == "RENAME", sf.lit(False))


def _images(row: Column, index: Column) -> Column:
    kind, old = sf.col("type"), sf.get("old", index)
    unchanged = sf.map_filter(row, lambda name, _: ~sf.map_contains_key(old, name))
    before = sf.when(kind == "DELETE", row).when(kind == "UPDATE", sf.map_concat(unchanged, old))
    return sf.struct(before.alias("before"), sf.when(kind != "DELETE", row).alias("after"))


def _log_position(positions: Positions) -> Column:
    by_id = sf.col("id").try_cast("bigint") if positions is Positions.MESSAGE else sf.lit(None).cast("bigint")
    first = sf.coalesce("ts", by_id)
    zero = sf.lit(0).cast("bigint")
    return sf.when(first.isNotNull(), sf.array(first, zero, zero))


def _problem() -> Column:
    kind, rows, old = sf.col("type"), sf.col("data"), sf.col("old")
    missing = (
        sf.when(kind.isNull(), "type")
        .when(sf.col("database").isNull(), "database")
        .when(sf.col("table").isNull(), "table")
    )
    is_incomplete = sf.exists(rows, lambda row: row.isNull())
    is_old_short = old.isNull() | (sf.size(old) != sf.size(rows)) | sf.exists(old, lambda row: row.isNull())
    return (
        sf.when(kind.isin(*NO_CHANGES, *SCHEMA_CHANGES, "TRUNCATE"), sf.lit(None))
        .when(
            missing.isNotNull(),
            problem(
                InputFormatError, missing, "a message of Canal must have this field, and this one does not"
            ),
        )
        .when(
            ~kind.isin(*OPERATIONS),
            problem(InputFormatError, "type", "no operation is called ", kind, f"; known are {OPERATIONS}"),
        )
        .when(
            rows.isNull() | (sf.size(rows) == 0) | is_incomplete,
            problem(InputFormatError, "data", "the message has no array of rows"),
        )
        .when(
            (kind == "UPDATE") & is_old_short,
            problem(InputFormatError, "old", "the message does not say for each row what the update changed"),
        )
    )
