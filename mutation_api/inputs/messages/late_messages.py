"""Late messages: new ones that lie at or before the watermark, and would count as applied though none was.

A run reads the files of a log from their beginnings, and a watermark holds what an earlier run had read of
them. What lies behind that is new. A new message at or before the watermark is from a server that took over
or was restored, or from a partition that is slower than the others. It is harmless only if it repeats one
that was read: tools deliver messages again when they restart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mutation_api.errors import SourcePositionError
from mutation_api.inputs.messages.events import INCREMENTAL, LoggedEvent, LogPart
from mutation_api.inputs.messages.json_text import text_of
from mutation_api.inputs.messages.log_identity import KnownParts
from mutation_api.inputs.messages.log_options import Positions
from mutation_api.inputs.messages.order import ORDER_OF_LINES, START_OVER, Order
from mutation_api.inputs.messages.shape import STEPS
from mutation_api.inputs.source import Position

__all__ = ["Applied", "Digest", "LateFacts", "check_late", "check_replaced", "repeated"]

KEPT = 10_000
"""Late messages of a range that are looked for among those that were read; more are taken for new."""

Digest = tuple[str, ...]
"""What repeated messages have in common."""


@dataclass(frozen=True)
class Applied:
    """Up to where a table was applied: ``after``, and the bytes of each file that had been read."""

    after: tuple[int, ...]
    sizes: tuple[int, ...]

    def is_late(self, found: LoggedEvent, number: int) -> bool:
        """Whether a message is new and counts as applied; ``number`` is that of its file."""
        place, event = found
        if place.offset < self.sizes[place.file]:
            return False
        line = (number, place.offset, max(len(event.rows), 1) * STEPS - 1)
        if len(self.after) == len(line):
            return line <= self.after
        return event.log_position is not None and (*event.log_position, *line) <= self.after

    def is_old(self, found: LoggedEvent) -> bool:
        """Whether an earlier run has read a message."""
        return found.place.offset < self.sizes[found.place.file]


class LateFacts:
    """The late messages of a table in a range, and those that were asked for."""

    def __init__(self) -> None:
        self.found: dict[Digest, LoggedEvent] = {}
        self.repeated: set[Digest] = set()

    def add(self, found: LoggedEvent) -> None:
        """Add a late message."""
        digest = _digest(found)
        if len(self.found) < KEPT:
            self.found.setdefault(digest, LoggedEvent(found.place, found.event._replace(rows=(), key=None)))

    def add_old(self, found: LoggedEvent, wanted: Collection[Digest]) -> None:
        """Add a message that was read, if it is one of those that were asked for."""
        digest = _digest(found)
        if digest in wanted:
            self.repeated.add(digest)

    def merge(self, other: LateFacts) -> None:
        """Add those of another range."""
        self.found.update((key, each) for key, each in other.found.items() if key not in self.found)
        self.repeated |= other.repeated


def repeated(late: Mapping[str, LateFacts], order: Order) -> Mapping[str, frozenset[Digest]]:
    """By table, the late messages that are harmless if a message that was read is the same."""
    if order.by is not Positions.MESSAGE:
        return {}
    return {table: frozenset(facts.found) for table, facts in late.items() if facts.found}


def check_late(
    source_id: str, late: Mapping[str, LateFacts], after: Mapping[str, Position], files: Collection[LogPart]
) -> None:
    """Raise SourcePositionError for the first late message that repeats none."""
    for table, facts in sorted(late.items()):
        new = [each for digest, each in facts.found.items() if digest not in facts.repeated]
        if new:
            first = min(new, key=lambda each: each.place)
            is_of_snapshot = first.event.snapshot not in (None, INCREMENTAL)
            lines = f"{ORDER_OF_LINES} --new-snapshot replace" if is_of_snapshot else ORDER_OF_LINES
            raise SourcePositionError(
                f"{source_id}, table {table}: {first.place.shown(tuple(files))}: the message lies at or "
                f"before the watermark {after[table].shown}, and no run has read it{_at(first)}. Did "
                "another server take over, was one restored, or was a file replaced or completed late? "
                f"{lines}. If the positions are right, and the file came late: --name NAME alone"
            )


def check_replaced(
    source_id: str, order: Order, known: Mapping[str, KnownParts], after: Mapping[str, Position]
) -> None:
    """Raise SourcePositionError if lines order the log and the file of the watermark, or one before it, holds
    other bytes than when it was read, or has another number.
    """
    if order.by is not Positions.LINE:
        return
    for table, parts in known.items():
        last = after[table].order[0]
        for each in parts.replaced:
            if each.number <= last:
                raise SourcePositionError(
                    f"{source_id}, table {table}: file {each.name} is not the one that was read up to "
                    f"{after[table].shown}: it had {each.size} bytes, and is shorter now, or these bytes "
                    "differ. Restore the file, or give the new one a greater number in its name. Or start "
                    "over with the files as they are, under another name of the source (--name NAME)"
                )
        for file, number in parts.renumbered:
            if min(number, file.number) <= last:
                raise SourcePositionError(
                    f"{source_id}, table {table}: {file.name} was read as number {number}, up to "
                    f"{after[table].shown}, and its number is {file.number} now. Numbers in the names of "
                    f"files order a log, so a file must keep its own. {START_OVER}"
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
