"""From lines to messages: wrappers are removed, and lines that are not messages are reported.

A line is a message; or its key, a tab and the message, as ``kafka-console-consumer`` prints them; or an
object with ``key`` and ``value``, or with ``topic``, ``key`` and ``payload`` (``kcat -J``). Its parts may be
JSON in a string. Blank lines and messages that are null (tombstones) are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from mutation_api.errors import InputFormatError
from mutation_api.inputs.messages.events import MessageFormat, problem
from mutation_api.inputs.messages.json_lines import LogFile, read_lines
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.variants import (
    field_of,
    fields_of,
    is_end,
    is_null,
    is_rough,
    is_text,
    strict_json,
    text_of,
)

__all__ = ["log_events"]

_OF_LINES = ("file", "offset", "is_no_text", "is_rough")
"""Columns that every step keeps."""


def log_events(
    spark: SparkSession, files: Sequence[LogFile], message_format: MessageFormat, positions: Positions
) -> DataFrame:
    """Events of the lines, a row for each message: ``file``, ``offset``, ``is_rough`` and EVENT_FIELDS.

    ``is_rough``: a number of the line may have been rounded.
    """
    messages = _unwrapped(_messages(read_lines(spark, files)))
    return _with_damage(message_format.events(messages, positions))


def _messages(lines: DataFrame) -> DataFrame:
    """Messages of all lines; ``is_damaged`` marks lines that are not messages."""
    text = sf.regexp_replace("text", r"\A([^\t]*)\t", "$1,")
    parsed = lines.where(sf.col("text").isNull() | (sf.trim(sf.col("text"), sf.lit(" \t\r\n")) != "")).select(
        "file",
        "offset",
        sf.instr("text", "\t").alias("tabs"),
        sf.col("text").isNull().alias("is_no_text"),
        is_rough(sf.col("text")).alias("is_rough"),
        strict_json(text).alias("values"),
    )
    size = sf.when(sf.col("tabs") > 0, sf.lit(3)).otherwise(sf.lit(2))
    values = sf.when(sf.size("values") == size, sf.col("values"))
    return parsed.select(
        *_OF_LINES,
        (values.isNull() | ~is_end(values[size - 1])).alias("is_damaged"),
        sf.when(size == 3, values[0]).alias("key"),
        values[size - 2].alias("value"),
    )


def _unwrapped(messages: DataFrame) -> DataFrame:
    """Remove the wrappers of tools, and leave out messages that are null."""
    whole = _out_of_texts(_out_of_objects(messages))
    return _settled(whole).where(sf.col("is_damaged") | ~sf.coalesce(is_null(sf.col("value")), sf.lit(True)))


def _out_of_objects(messages: DataFrame) -> DataFrame:
    fields = fields_of(sf.col("value"))
    has_value = sf.map_contains_key(fields, "value") & ~sf.map_contains_key(fields, "op")
    has_payload = sf.map_contains_key(fields, "payload") & sf.map_contains_key(fields, "topic")
    inner = sf.when(has_value, field_of(fields, "value")).when(has_payload, field_of(fields, "payload"))
    is_wrapped = sf.coalesce(has_value | has_payload, sf.lit(False))
    return messages.withColumn("is_wrapped", is_wrapped).select(
        *_OF_LINES,
        "is_damaged",
        sf.when(sf.col("is_wrapped"), field_of(fields, "key")).otherwise(sf.col("key")).alias("key"),
        sf.when(sf.col("is_wrapped"), inner).otherwise(sf.col("value")).alias("value"),
    )


def _out_of_texts(messages: DataFrame) -> DataFrame:
    texts = {name: sf.when(_is_message_text(name), text_of(sf.col(name))) for name in ("key", "value")}
    parsed = messages.select("*", *[strict_json(text).alias(f"{name}s") for name, text in texts.items()])
    damaged = sf.lit(False)
    for name, text in texts.items():
        inside = sf.col(f"{name}s")
        damaged |= text.isNotNull() & (inside.isNull() | (sf.size(inside) != 2))
    return parsed.select(
        *_OF_LINES,
        (sf.col("is_damaged") | sf.coalesce(damaged, sf.lit(False))).alias("is_damaged"),
        *[
            sf.when(_is_message_text(name), sf.col(f"{name}s")[0]).otherwise(sf.col(name)).alias(name)
            for name in texts
        ],
    )


def _is_message_text(name: str) -> Column:
    """Whether a message is in a string. The schema of an object would show it too, but takes long to find."""
    return fields_of(sf.col(name)).isNull() & is_text(sf.col(name))


def _settled(frame: DataFrame) -> DataFrame:
    """The same rows; Spark moves no filter below this step.

    Otherwise it replaces the columns in a filter by their expressions, down to the lines: a plan of half a
    megabyte that parses each line many times. No filter moves past an expression that is not deterministic.
    """
    return frame.withColumn("offset", sf.when(sf.spark_partition_id() >= 0, sf.col("offset")))


def _with_damage(events: DataFrame) -> DataFrame:
    """Events; those of lines that are not messages are damaged."""
    no_field = sf.lit(None).cast("string")
    no_text = problem(InputFormatError, no_field, "the line is not UTF-8")
    no_json = problem(
        InputFormatError,
        no_field,
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
