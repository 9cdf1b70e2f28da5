"""The order of a log's operations: positions, the part that was applied, and messages that arrive late.

If messages have positions in the source's log, these order the operations (:class:`PositionSource`),
regardless of the order of files and lines. If no message has a position, files are ordered by the last number
in their names, and lines by their position in the file. In this case no two files may have the same number,
and a log may grow only at the end of its files, or by files with higher numbers. A log in which only some
messages have a position is refused, unless the user chooses the order of lines.

Operations at or before the watermark are left out if a run has read them: a run reads the files of a log from
their beginnings, and a watermark records the bytes that an earlier run had read. All bytes after these are
new. A new message at or before the watermark would wrongly count as applied. It comes from a server that took
over or was restored, or from a partition that is slower than the others, and is refused. It is harmless only
if it repeats one that was read: tools deliver messages again when they restart.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mutation_api.cdc.messages.events import INCREMENTAL, Event, LoggedEvent, LogPart, Place, PositionSource
from mutation_api.cdc.messages.json_text import text_of
from mutation_api.cdc.messages.shape import STEPS
from mutation_api.cdc.messages.table_names import KnownParts
from mutation_api.cdc.source import FILE, OFFSET, PART, PARTITION, TIME, TIME_UNKNOWN, Position
from mutation_api.errors import InputFormatError, SourcePositionError

_LINE = (FILE, OFFSET, "step")
_LINE_OF_PARTITION = (PARTITION, *_LINE[1:])
_LOG = ("log0", "log1", "log2")
"""The names of a position's numbers."""

START_OVER = "Start over under another source name (--name NAME)"
ORDER_OF_LINES = (
    "If the lines are in the order of the changes, and the files in the order of the numbers in their "
    "names, start over in that order under another source name: --positions line --name NAME"
)
ORDER_OF_PARTITIONS = (
    "Leave out --positions message: a partition has the messages about a key in the order of the changes"
)
"""Advice in messages."""


@dataclass
class OrderFacts:
    """The facts of a first look about the order of one table's messages.

    ``messages``: number of messages with rows or truncates. ``unordered``: number of those without a
    position. ``last_log_position`` and ``last_line``: position of the last operation, by messages and by
    lines; () if there is none. ``first_log_position`` and ``first_line``: those of the first operation.
    ``parts``: indices of the parts of the log that have rows. ``origins``: the servers that assigned the
    positions, see :class:`~mutation_api.cdc.messages.events.Event`.
    """

    messages: int = 0
    unordered: int = 0
    first_unordered: Place | None = None
    last_log_position: tuple[int, ...] = ()
    last_line: tuple[int, ...] = ()
    logs: set[str] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    origins: set[tuple[str, str]] = field(default_factory=set)
    first_log_position: tuple[int, ...] = ()
    first_line: tuple[int, ...] = ()

    def add(self, found: LoggedEvent, number: int) -> None:
        """Add a row or truncate; ``number`` is that of its file."""
        event = found.event
        self.messages += 1
        if event.log is not None:
            self.logs.add(event.log)
        if event.origins:
            self.origins.update(event.origins)
        if event.log_position is None:
            self.unordered += 1
            self.first_unordered = min(self.first_unordered or found.place, found.place)
        if event.kind == "row":
            self.parts.add(found.place.file)
            line = (number, found.place.offset, len(event.rows) * STEPS - 1)
            if line > self.last_line:
                self.last_line = line
            if line < self.first_line or not self.first_line:
                self.first_line = line
            if event.log_position is not None:
                position = (*event.log_position, *line)
                if position > self.last_log_position:
                    self.last_log_position = position
                if position < self.first_log_position or not self.first_log_position:
                    self.first_log_position = position

    def merge(self, other: OrderFacts) -> None:
        """Add the facts of another part of the log."""
        self.messages += other.messages
        self.unordered += other.unordered
        places = [each for each in (self.first_unordered, other.first_unordered) if each is not None]
        self.first_unordered = min(places, default=None)
        self.first_log_position = _first(self.first_log_position, other.first_log_position)
        self.first_line = _first(self.first_line, other.first_line)
        self.last_log_position = max(self.last_log_position, other.last_log_position)
        self.last_line = max(self.last_line, other.last_line)
        self.logs |= other.logs
        self.parts |= other.parts
        self.origins |= other.origins


def _first(*positions: tuple[int, ...]) -> tuple[int, ...]:
    return min((each for each in positions if each), default=())


@dataclass(frozen=True)
class Order:
    """The order of the operations of one reading.

    ``by``: MESSAGE or LINE. ``log``: the log of the positions. ``is_partitioned``: True if lines of different
    parts have no order.
    """

    by: PositionSource
    log: str
    is_partitioned: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of a position's numbers."""
        if self.by is PositionSource.MESSAGE:
            return (*_LOG, PART, *_LINE[1:]) if self.is_partitioned else (*_LOG, *_LINE, TIME)
        return _LINE_OF_PARTITION if self.is_partitioned else _LINE

    def times(self, event: Event) -> tuple[int, ...]:
        """Return the last numbers of an event's position, which do not affect the order."""
        if self.by is PositionSource.LINE or self.is_partitioned:
            return ()
        return (TIME_UNKNOWN if event.time is None else event.time,)

    def before_steps(self, found: LoggedEvent, files: Sequence[LogPart]) -> tuple[int, ...]:
        """Return the position of an event's operations, without the step of each."""
        return (*self._in_log(found.event), files[found.place.file].number, found.place.offset)

    def position_of(self, found: LoggedEvent, files: Sequence[LogPart]) -> tuple[int, ...]:
        """Return the position of an event."""
        return (*self.before_steps(found, files), 0)

    def _in_log(self, event: Event) -> tuple[int, ...]:
        has_position = self.by is PositionSource.MESSAGE and event.log_position is not None
        return event.log_position or () if has_position else ()

    def last(self, facts: OrderFacts) -> tuple[int, ...]:
        """Return the position of a table's last operation, or a later one before the next message, or ()."""
        return facts.last_log_position if self.by is PositionSource.MESSAGE else facts.last_line

    def first(self, facts: OrderFacts) -> tuple[int, ...]:
        """Return the position of a table's first operation, or a later one before the next message, or ()."""
        return facts.first_log_position if self.by is PositionSource.MESSAGE else facts.first_line

    def described(self, order: tuple[int, ...]) -> str:
        """Return a position as a string, for the watermark."""
        return json.dumps({"by": self.by.value, "log": self.log, "at": list(order)})

    def check_watermarks(self, source_id: str, after: Mapping[str, Position]) -> None:
        """Raise SourcePositionError for the first watermark of another source, or of another order."""
        for name, position in after.items():
            try:
                text = json.loads(position.text)
                known = text["by"], text["log"]
            except (ValueError, KeyError, TypeError) as error:
                raise SourcePositionError(
                    f"{source_id}: the watermark of table {name} is not from this source: {position.text!r}"
                ) from error
            if known != (self.by.value, self.log):
                raise SourcePositionError(
                    f"{source_id}: table {name} was applied up to {position.shown}, in the order of "
                    f"{_shown(*known)}, but this log has the order of {_shown(self.by.value, self.log)}. Was "
                    f"the source's server replaced, or were options changed? {START_OVER}"
                )

    def check_origins(
        self, source_id: str, found: Collection[tuple[str, str]], known: Collection[tuple[str, str]]
    ) -> None:
        """Raise SourcePositionError if positions order the log and several servers assigned them.

        Args:
            source_id: name of the source in messages.
            found: the servers of the messages, by kind.
            known: the servers of the messages that were applied up to the watermarks.
        """
        if self.by is not PositionSource.MESSAGE:
            return
        for kind in sorted({kind for kind, _ in found}):
            names = sorted(name for each, name in {*found, *known} if each == kind)
            if len(names) > 1:
                raise SourcePositionError(
                    f"{source_id}: messages come from several servers, whose positions cannot be compared: "
                    f"{kind} {', '.join(names)}. Did another server take over, or was a server restored? "
                    f"{_ways_on(is_partitioned=self.is_partitioned)}"
                )


def _ways_on(*, is_partitioned: bool) -> str:
    """Return advice on how to read a log whose positions do not order it."""
    return ORDER_OF_PARTITIONS if is_partitioned else ORDER_OF_LINES


def chosen_order(
    source_id: str, files: Sequence[LogPart], facts: Collection[OrderFacts], asked: PositionSource
) -> Order:
    """Choose the order of a log's operations.

    Raises:
        InputFormatError: If only some messages have a position, or if files have the same number.
        SourcePositionError: If positions belong to several logs.
    """
    messages = sum(fact.messages for fact in facts)
    unordered = sum(fact.unordered for fact in facts)
    if asked is PositionSource.LINE or (asked is PositionSource.AUTO and unordered == messages):
        _check_numbers(files)
        return Order(PositionSource.LINE, "")
    if unordered:
        first = min(fact.first_unordered for fact in facts if fact.first_unordered is not None)
        raise InputFormatError(
            f"{first.shown(files)}: the message has no position in the source's log, but "
            f"{messages - unordered} of {messages} messages have one, so its order among them is not known; "
            "if the lines are in the order of the log, use --positions line"
        )
    logs = sorted({log for fact in facts for log in fact.logs})
    if len(logs) > 1:
        raise SourcePositionError(
            f"{source_id}: messages come from several logs, whose positions cannot be compared: "
            f"{'; '.join(logs)}; read them as separate sources, or use --positions line"
        )
    return Order(PositionSource.MESSAGE, logs[0] if logs else "")


def _check_numbers(files: Sequence[LogPart]) -> None:
    by_number: dict[int, str] = {}
    for file in files:
        if file.number in by_number:
            raise InputFormatError(
                f"{by_number[file.number]} and {file.name} have the same number "
                f"{file.number} in their names, so the order of their lines is not known; give the files of "
                "a log increasing numbers"
            )
        by_number[file.number] = file.name


def _shown(by: str, log: str) -> str:
    return f"positions in {log}" if by == PositionSource.MESSAGE.value else "lines"


KEPT = 10_000
"""The maximum number of late messages of a range that are searched for in the bytes that were read. Any more
count as new."""

Digest = tuple[str, ...]
"""The values by which repeated messages are recognized."""


@dataclass(frozen=True)
class Applied:
    """The applied part of a log: the position ``after``, and the bytes read of each file by then."""

    after: tuple[int, ...]
    sizes: tuple[int, ...]

    def has_position(self, found: LoggedEvent, number: int) -> bool:
        """Return True if a message counts as applied by its position; ``number`` is that of its file.

        A message that counts as applied but is not old is late.
        """
        place, event = found
        line = (number, place.offset, max(len(event.rows), 1) * STEPS - 1)
        if len(self.after) == len(line):
            return line <= self.after
        return event.log_position is not None and (*event.log_position, *line) <= self.after

    def is_old(self, found: LoggedEvent) -> bool:
        """Return True if an earlier run has read a message."""
        return found.place.offset < self.sizes[found.place.file]


class LateFacts:
    """The late messages of a table in a range, and those of the requested messages that were found."""

    def __init__(self) -> None:
        self.found: dict[Digest, LoggedEvent] = {}
        self.repeated: set[Digest] = set()

    def add(self, found: LoggedEvent) -> None:
        """Add a late message."""
        digest = _digest(found)
        if len(self.found) < KEPT:
            self.found.setdefault(digest, LoggedEvent(found.place, found.event._replace(rows=(), key=None)))

    def add_old(self, found: LoggedEvent, wanted: Collection[Digest]) -> None:
        """Add a message that was read, if it is one of the requested messages."""
        digest = _digest(found)
        if digest in wanted:
            self.repeated.add(digest)

    def merge(self, other: LateFacts) -> None:
        """Add the facts of another range."""
        self.found.update((key, each) for key, each in other.found.items() if key not in self.found)
        self.repeated |= other.repeated


def repeated(late: Mapping[str, LateFacts], order: Order) -> Mapping[str, frozenset[Digest]]:
    """Return, by table, the late messages that are harmless if an equal message was read before."""
    if order.by is not PositionSource.MESSAGE:
        return {}
    return {table: frozenset(facts.found) for table, facts in late.items() if facts.found}


def check_late(
    source_id: str, late: Mapping[str, LateFacts], after: Mapping[str, Position], files: Collection[LogPart]
) -> None:
    """Raise SourcePositionError for the first late message that does not repeat an earlier one."""
    for table, facts in sorted(late.items()):
        new = [each for digest, each in facts.found.items() if digest not in facts.repeated]
        if new:
            first = min(new, key=lambda each: each.place)
            is_of_snapshot = first.event.snapshot not in (None, INCREMENTAL)
            lines = f"{ORDER_OF_LINES} --new-snapshot replace" if is_of_snapshot else ORDER_OF_LINES
            raise SourcePositionError(
                f"{source_id}, table {table}: {first.place.shown(tuple(files))}: the message lies at or "
                f"before the watermark {after[table].shown}, but no run has read it{_at(first)}. Did "
                "another server take over, was a server restored, or was a file replaced or completed late? "
                f"{lines}. If the positions are right and the file came late, use only --name NAME"
            )


def check_replaced(
    source_id: str, order: Order, known: Mapping[str, KnownParts], after: Mapping[str, Position]
) -> None:
    """Raise SourcePositionError if lines order the log and a file up to the watermark's has changed.

    It has changed if its bytes or its number differ from those of the earlier run.
    """
    if order.by is not PositionSource.LINE:
        return
    for table, parts in known.items():
        last = after[table].order[0]
        for each in parts.replaced:
            if each.number <= last:
                raise SourcePositionError(
                    f"{source_id}, table {table}: file {each.name} is not the one that was read up to "
                    f"{after[table].shown}: it had {each.size} bytes, and is now shorter, or these bytes "
                    "differ. Restore the file, or give the new one a greater number in its name. Or start "
                    "over with the files as they are, under another source name (--name NAME)"
                )
        for file, number in parts.renumbered:
            if min(number, file.number) <= last:
                raise SourcePositionError(
                    f"{source_id}, table {table}: {file.name} was read as number {number}, up to "
                    f"{after[table].shown}, but its number is now {file.number}. Numbers in file names "
                    f"order a log, so a file must keep its number. {START_OVER}"
                )


def _digest(found: LoggedEvent) -> Digest:
    event = found.event
    rows = [text_of(image) or "" for row in event.rows for image in row[:2]]
    return (
        event.kind,
        event.op or "",
        str(event.log_position),
        str(event.id),
        str(event.origins),
        text_of(event.key) or "",
        *rows,
    )


def _at(found: LoggedEvent) -> str:
    position, origins = found.event.log_position, found.event.origins
    texts = [] if position is None else [f"its position is {list(position)}"]
    texts += [f"{kind} {name}" for kind, name in origins]
    return f" ({', '.join(texts)})" if texts else ""
