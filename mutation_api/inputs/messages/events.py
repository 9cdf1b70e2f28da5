"""Events: the meaning of a tool's messages. A format makes them of messages; other modules read events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Row

from mutation_api import errors
from mutation_api.errors import MutationError
from mutation_api.inputs.messages.json_lines import LogFile, line_location
from mutation_api.inputs.messages.json_values import Reader
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.variants import FIELDS
from mutation_api.types.hive_type import HiveType

__all__ = [
    "EVENT_FIELDS",
    "LOG_POSITION_NUMBERS",
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
    "log_position",
    "log",
    "schema",
    "key",
    "key_names",
    "rows",
    "text",
    "problem",
)
"""Columns of a format's events.

* ``kind``: ``row``, ``schema change``, ``truncate``, ``other`` for messages that change no table, or
  ``damaged`` for those that do not follow the format; a damaged one has a problem.
* ``table``: the source's name of it. For a schema change that may touch any table: ``DATABASE.*``, or null.
* ``op``: the operation, ``insert``, ``update`` or ``delete``.
* ``log_position``: LOG_POSITION_NUMBERS bigints, or null; ``log``: the log to which they belong.
* ``schema``: text that defines how values are read, or null.
* ``key``: the message's key, map<string,variant>, or null; ``key_names``: columns of the key, if the message
  names them.
* ``rows``: array of structs ``before`` and ``after``, of the same type as ``key``, null if the message has
  none.
* ``text``: description of a schema change.
* ``problem``: what is wrong with the message, see :func:`problem`, or null.
"""

LOG_POSITION_NUMBERS = 3

_TYPES = {
    "log_position": "array<bigint>",
    "key": FIELDS,
    "key_names": "array<string>",
    "rows": f"array<struct<before:{FIELDS},after:{FIELDS}>>",
    "problem": "struct<error:string,field:string,text:string>",
}
"""Types of the fields that are not texts."""

_MESSAGE = ("key", "value")
"""Columns of messages that events do not keep."""


class MessageFormat(Protocol):
    """Meaning of a tool's messages."""

    @property
    def name(self) -> str:
        """The tool's name in lower case."""

    @property
    def placeholder(self) -> str | None:
        """Text that a message has instead of a value that was not logged."""

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
        """Readers of the values of columns.

        Args:
            table: the source's name of the table.
            columns: types of the target's columns, by the source's names.
            schema: ``schema`` of the events, or None.

        Raises:
            RecordLayoutError: values of a column cannot be read, or the user has to say how.
        """


def event_frame(messages: DataFrame, read: DataFrame, **fields: Column) -> DataFrame:
    """Events of messages: EVENT_FIELDS in their order and of their types; those that are not given are null.

    Args:
        messages: the argument of :meth:`MessageFormat.events`.
        read: the same rows, with the columns that ``fields`` are made of.
        fields: fields of the events.
    """
    kept = [name for name in messages.columns if name not in _MESSAGE]
    made = [
        fields.get(name, sf.lit(None)).cast(_TYPES.get(name, "string")).alias(name) for name in EVENT_FIELDS
    ]
    return read.select(*kept, *made)


def looked_up(texts: Mapping[str, str], value: Column) -> Column:
    """The text for a value; null if there is none."""
    return sf.element_at(sf.create_map(*[sf.lit(text) for pair in texts.items() for text in pair]), value)


def problem(error: type[MutationError], name: str | Column, *parts: str | Column) -> Column:
    """A problem of a message: class of the error, field, and text."""
    texts = [part if isinstance(part, Column) else sf.lit(part) for part in parts]
    return sf.struct(
        sf.lit(error.__name__).alias("error"),
        (name if isinstance(name, Column) else sf.lit(name)).alias("field"),
        sf.concat(*[sf.coalesce(text, sf.lit("null")) for text in texts]).alias("text"),
    )


def error_called(name: str) -> type[MutationError]:
    """The class of a problem's error."""
    found: type[MutationError] = getattr(errors, name)
    return found


def event_location(files: Sequence[LogFile], event: Row, field: str | None = None) -> str:
    """Location of an event for messages: file, line and, if given, field. Raises OSError."""
    return line_location(files[event.file].location, event.offset, field)
