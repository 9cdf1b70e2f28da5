"""The order of a log's operations: what tells it, which position an operation has, and what was applied.

Operations are ordered by the place in the source's log that the messages tell (:class:`Positions`),
whatever the order of files and lines. Where no message tells one, files count by the last number in their
names, lines by their place in the file; then no two files may have the same number, and files may only be
appended to, or new ones with higher numbers added. A log where some messages tell a place and others do not
is refused, unless the order of lines is asked for.

What lies at or before the watermark is left out. So files of several partitions of a topic must reach equally
far, or a message of the slower one that comes later is taken for one that was applied.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, Row

from mutation_api.errors import InputFormatError, SourcePositionError
from mutation_api.inputs.messages.events import PLACE_NUMBERS, event_location
from mutation_api.inputs.messages.json_lines import LogFile
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.source import Position
from mutation_api.storage.location import Location

__all__ = ["STEPS", "Order", "OrderFacts", "chosen_order", "file_number", "order_aggregates"]

STEPS = 2
"""Operations that a row of a message may be."""


@dataclass(frozen=True)
class OrderFacts:
    """What a first look tells of the order of one table's messages.

    ``messages`` are those of rows and of truncates; ``unplaced`` those that tell no place. ``last_place`` and
    ``last_line`` are the position of the last operation, by what the messages tell and by lines.
    """

    messages: int
    unplaced: int
    first_unplaced: Row | None
    last_place: tuple[int, ...] | None
    last_line: tuple[int, ...] | None
    logs: tuple[str, ...]

    @classmethod
    def of(cls, looked: Row) -> OrderFacts:
        """Those in a row of what :func:`order_aggregates` gives."""
        return cls(
            looked.messages,
            looked.unplaced,
            looked.first_unplaced,
            looked.last_place and tuple(looked.last_place),
            looked.last_line and tuple(looked.last_line),
            tuple(looked.logs),
        )


def order_aggregates(files: Sequence[LogFile], is_ours: Column, is_row: Column) -> list[Column]:
    """What is counted of events for :class:`OrderFacts`; the conditions say which are messages, or rows."""
    unplaced = is_ours & sf.col("place").isNull()
    last_step = (sf.size("rows").cast("bigint") * STEPS) - 1
    line = [file_number(files), sf.col("offset"), last_step]
    return [
        sf.count(sf.when(is_ours, 1)).alias("messages"),
        sf.count(sf.when(unplaced, 1)).alias("unplaced"),
        sf.min(sf.when(unplaced, sf.struct("file", "offset"))).alias("first_unplaced"),
        sf.max(sf.when(is_row, _numbers(_place() + line))).alias("last_place"),
        sf.max(sf.when(is_row, _numbers(line))).alias("last_line"),
        sf.collect_set(sf.when(is_ours, sf.col("log"))).alias("logs"),
    ]


@dataclass(frozen=True)
class Order:
    """What orders the operations of one reading: ``by`` MESSAGE or LINE; ``log``, in which places count."""

    by: Positions
    log: str

    def position(self) -> Column:
        """Position of an operation of an event; ``step`` counts them, ``number`` is the file's."""
        places = [number.alias(f"place{i}") for i, number in enumerate(_place())]
        lines = [sf.col("number").alias("file"), sf.col("offset"), sf.col("step")]
        return sf.struct(*(places if self.by is Positions.MESSAGE else ()), *lines)

    def position_of(self, event: Row, files: Sequence[LogFile]) -> tuple[int, ...]:
        """The same for an event that is here."""
        place = tuple(event.place) if self.by is Positions.MESSAGE and event.place is not None else ()
        return (*place, files[event.file].number, event.offset, 0)

    def last(self, facts: OrderFacts) -> tuple[int, ...] | None:
        """Position of the last operation on a table, or one behind it and before the next message."""
        return facts.last_place if self.by is Positions.MESSAGE else facts.last_line

    def described(self, order: tuple[int, ...]) -> str:
        """Text of a position."""
        return json.dumps({"by": self.by.value, "log": self.log, "at": list(order)})

    def check_watermarks(self, source_id: str, after: Mapping[str, Position]) -> None:
        """Raise SourcePositionError for the first that is none of this source, or counts in another order."""
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
    """What orders the operations of a log.

    Raises:
        InputFormatError: some messages tell a place, and others do not; or files have the same number.
        SourcePositionError: places count in several logs.
    """
    messages = sum(fact.messages for fact in facts)
    unplaced = sum(fact.unplaced for fact in facts)
    if asked is Positions.LINE or (asked is Positions.AUTO and unplaced == messages):
        _check_numbers(files)
        return Order(Positions.LINE, "")
    if unplaced:
        first = min(fact.first_unplaced for fact in facts if fact.first_unplaced is not None)
        raise InputFormatError(
            f"{event_location(files, first)}: the message does not tell its place in the source's log, as "
            f"{messages - unplaced} of {messages} others do, so nothing tells its order among them; where "
            "the order of lines is that of the log, ask for the order of lines"
        )
    logs = sorted({log for fact in facts for log in fact.logs})
    if len(logs) > 1:
        raise SourcePositionError(
            f"{source_id}: messages come from several logs, whose places cannot be compared: "
            f"{'; '.join(logs)}; read them as sources of their own, or ask for the order of lines"
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
                f"{file.number} in their names, so nothing tells the order of their lines; give files of a "
                "log increasing numbers"
            )
        by_number[file.number] = file.location


def _place() -> list[Column]:
    return [sf.col("place")[i] for i in range(PLACE_NUMBERS)]


def _numbers(columns: Sequence[Column]) -> Column:
    """A struct that Spark can order."""
    return sf.struct(*[column.alias(f"n{i}") for i, column in enumerate(columns)])


def _shown(by: str, log: str) -> str:
    return f"places in {log}" if by == Positions.MESSAGE.value else "lines"
