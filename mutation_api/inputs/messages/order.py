"""The order of a log's operations: its choice, the position of an operation, and what was applied.

The positions in the source's log that messages have order the operations (:class:`Positions`), in whatever
order files and lines are. If no message has one, files are ordered by the last number in their names, and
lines by their position in the file. Then no two files may have the same number, and a log may only grow: at
the end of its files, or by files with higher numbers. A log where some messages have a position and others do
not is refused, unless the user asks for the order of lines.

Operations at or before the watermark are left out. So the files of all partitions of a topic must reach
equally far: a message that a slower partition adds later counts as applied.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, Row

from mutation_api.errors import InputFormatError, SourcePositionError
from mutation_api.inputs.messages.events import LOG_POSITION_NUMBERS, event_location
from mutation_api.inputs.messages.json_lines import LogFile
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.source import Position
from mutation_api.storage.location import Location

__all__ = ["STEPS", "Order", "OrderFacts", "chosen_order", "file_number", "order_aggregates"]

STEPS = 2
"""Largest number of operations of one row of a message."""


@dataclass(frozen=True)
class OrderFacts:
    """Facts of a first look about the order of one table's messages.

    ``messages``: number of messages of rows and of truncates; ``unordered``: number of those without a
    position. ``last_log_position`` and ``last_line``: position of the last operation, by the messages and by
    lines.
    """

    messages: int
    unordered: int
    first_unordered: Row | None
    last_log_position: tuple[int, ...] | None
    last_line: tuple[int, ...] | None
    logs: tuple[str, ...]

    @classmethod
    def of(cls, looked: Row) -> OrderFacts:
        """The facts in a row of the columns of :func:`order_aggregates`."""
        return cls(
            looked.messages,
            looked.unordered,
            looked.first_unordered,
            looked.last_log_position and tuple(looked.last_log_position),
            looked.last_line and tuple(looked.last_line),
            tuple(looked.logs),
        )


def order_aggregates(files: Sequence[LogFile], is_ours: Column, is_row: Column) -> list[Column]:
    """Aggregates of events for :class:`OrderFacts`; the conditions select messages and rows."""
    unordered = is_ours & sf.col("log_position").isNull()
    last_step = (sf.size("rows").cast("bigint") * STEPS) - 1
    line = [file_number(files), sf.col("offset"), last_step]
    return [
        sf.count(sf.when(is_ours, 1)).alias("messages"),
        sf.count(sf.when(unordered, 1)).alias("unordered"),
        sf.min(sf.when(unordered, sf.struct("file", "offset"))).alias("first_unordered"),
        sf.max(sf.when(is_row, _numbers(_log_position() + line))).alias("last_log_position"),
        sf.max(sf.when(is_row, _numbers(line))).alias("last_line"),
        sf.collect_set(sf.when(is_ours, sf.col("log"))).alias("logs"),
    ]


@dataclass(frozen=True)
class Order:
    """Order of the operations of one reading: ``by`` MESSAGE or LINE; ``log``: the log of the positions."""

    by: Positions
    log: str

    def position(self) -> Column:
        """Position of an operation; ``step`` is its index in the event, ``number`` the file's number."""
        positions = [number.alias(f"log{i}") for i, number in enumerate(_log_position())]
        lines = [sf.col("number").alias("file"), sf.col("offset"), sf.col("step")]
        return sf.struct(*(positions if self.by is Positions.MESSAGE else ()), *lines)

    def position_of(self, event: Row, files: Sequence[LogFile]) -> tuple[int, ...]:
        """Position of an event in the driver."""
        has_position = self.by is Positions.MESSAGE and event.log_position is not None
        position = tuple(event.log_position) if has_position else ()
        return (*position, files[event.file].number, event.offset, 0)

    def last(self, facts: OrderFacts) -> tuple[int, ...] | None:
        """Position of the last operation on a table, or a later one before the next message."""
        return facts.last_log_position if self.by is Positions.MESSAGE else facts.last_line

    def described(self, order: tuple[int, ...]) -> str:
        """Text of a position."""
        return json.dumps({"by": self.by.value, "log": self.log, "at": list(order)})

    def check_watermarks(self, source_id: str, after: Mapping[str, Position]) -> None:
        """Raise SourcePositionError for the first watermark of another source, or of another order."""
        for name, position in after.items():
            try:
                text = json.loads(position.text)
                known = text["by"], text["log"]
            except (ValueError, KeyError, TypeError) as error:
                raise SourcePositionError(
                    f"{source_id}: the watermark of table {name} is not one of this source: {position.text!r}"
                ) from error
            if known != (self.by.value, self.log):
                raise SourcePositionError(
                    f"{source_id}: table {name} was applied up to {position.text}, in the order of "
                    f"{_shown(*known)}; this log has that of {_shown(self.by.value, self.log)}. Was the "
                    "source's server replaced, or were options changed? Start over under another name of the "
                    "source"
                )


def chosen_order(
    source_id: str, files: Sequence[LogFile], facts: Collection[OrderFacts], asked: Positions
) -> Order:
    """Choose the order of a log's operations.

    Raises:
        InputFormatError: some messages have a position and others do not; or files have the same number.
        SourcePositionError: positions belong to several logs.
    """
    messages = sum(fact.messages for fact in facts)
    unordered = sum(fact.unordered for fact in facts)
    if asked is Positions.LINE or (asked is Positions.AUTO and unordered == messages):
        _check_numbers(files)
        return Order(Positions.LINE, "")
    if unordered:
        first = min(fact.first_unordered for fact in facts if fact.first_unordered is not None)
        raise InputFormatError(
            f"{event_location(files, first)}: the message has no position in the source's log, as "
            f"{messages - unordered} of {messages} others do, so its order among them is not known; if the "
            "lines are in the order of the log, ask for the order of lines"
        )
    logs = sorted({log for fact in facts for log in fact.logs})
    if len(logs) > 1:
        raise SourcePositionError(
            f"{source_id}: messages come from several logs, whose positions cannot be compared: "
            f"{'; '.join(logs)}; read them as separate sources, or ask for the order of lines"
        )
    return Order(Positions.MESSAGE, logs[0] if logs else "")


def file_number(files: Sequence[LogFile]) -> Column:
    """Number in the name of an event's file."""
    numbers = sf.create_map(*[sf.lit(n) for index, file in enumerate(files) for n in (index, file.number)])
    return numbers[sf.col("file")].cast("bigint")


def _check_numbers(files: Sequence[LogFile]) -> None:
    by_number: dict[int, Location] = {}
    for file in files:
        if file.number in by_number:
            raise InputFormatError(
                f"{by_number[file.number].shown} and {file.location.shown} have the same number "
                f"{file.number} in their names, so the order of their lines is not known; give files of a "
                "log increasing numbers"
            )
        by_number[file.number] = file.location


def _log_position() -> list[Column]:
    return [sf.col("log_position")[i] for i in range(LOG_POSITION_NUMBERS)]


def _numbers(columns: Sequence[Column]) -> Column:
    """A struct that Spark can order."""
    return sf.struct(*[column.alias(f"n{i}") for i, column in enumerate(columns)])


def _shown(by: str, log: str) -> str:
    return f"positions in {log}" if by == Positions.MESSAGE.value else "lines"
