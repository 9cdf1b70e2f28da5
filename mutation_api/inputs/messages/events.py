"""Events: what the messages of a tool mean. A format makes them of messages; everything else reads events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Row

from mutation_api import errors
from mutation_api.errors import MutationError
from mutation_api.inputs.messages.json_lines import LogFile, place_of
from mutation_api.inputs.messages.json_values import Reader
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.variants import FIELDS
from mutation_api.types.hive_type import HiveType

__all__ = [
    "EVENT_FIELDS",
    "PLACE_NUMBERS",
    "MessageFormat",
    "error_called",
    "event_frame",
    "event_location",
    "looked_up",
    "problem",
]

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

_TYPES = {
    "place": "array<bigint>",
    "key": FIELDS,
    "key_names": "array<string>",
    "rows": f"array<struct<before:{FIELDS},after:{FIELDS}>>",
    "problem": "struct<error:string,field:string,text:string>",
}
"""Types of the fields that are not texts."""

_MESSAGE = ("key", "value")
"""Columns of messages that events do not have as they are."""


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


def event_frame(messages: DataFrame, read: DataFrame, **fields: Column) -> DataFrame:
    """Events of messages: EVENT_FIELDS in their order and of their types, null those that are not given.

    Args:
        messages: what the format was given.
        read: the same rows, with the columns that ``fields`` are made of.
        fields: those of the events.
    """
    kept = [name for name in messages.columns if name not in _MESSAGE]
    made = [
        fields.get(name, sf.lit(None)).cast(_TYPES.get(name, "string")).alias(name) for name in EVENT_FIELDS
    ]
    return read.select(*kept, *made)


def looked_up(texts: Mapping[str, str], value: Column) -> Column:
    """The text that goes with a value; null if none does."""
    return sf.element_at(sf.create_map(*[sf.lit(text) for pair in texts.items() for text in pair]), value)


def problem(error: type[MutationError], name: str | Column, *parts: str | Column) -> Column:
    """What is wrong with a message: the error it is, the field, and what to say of it."""
    texts = [part if isinstance(part, Column) else sf.lit(part) for part in parts]
    return sf.struct(
        sf.lit(error.__name__).alias("error"),
        (name if isinstance(name, Column) else sf.lit(name)).alias("field"),
        sf.concat(*[sf.coalesce(text, sf.lit("null")) for text in texts]).alias("text"),
    )


def error_called(name: str) -> type[MutationError]:
    """The error that a problem is."""
    found: type[MutationError] = getattr(errors, name)
    return found


def event_location(files: Sequence[LogFile], event: Row, field: str | None = None) -> str:
    """For people: file and line of an event, and a field of its message. Raises OSError."""
    return place_of(files[event.file].location, event.offset, field)
