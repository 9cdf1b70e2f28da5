"""Changes of whole tables in a log: schema changes, at which a run stops, and truncates, which may apply.

A schema change has a position, as rows have. What comes before it is applied, in the shape that the target
still has, and the run stops there. So nothing that was written before a change is ever read in the shape that
the table has after it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mutation_api.errors import InputFormatError
from mutation_api.inputs.messages.events import LoggedEvent, LogPart
from mutation_api.inputs.messages.followed_tables import FollowedTables
from mutation_api.inputs.messages.late_messages import Applied
from mutation_api.inputs.messages.log_options import LogOptions, Positions
from mutation_api.inputs.messages.order import Order
from mutation_api.inputs.messages.unwrap import MessageLog
from mutation_api.inputs.source import Position

__all__ = ["Barrier", "TableChanges"]

logger = logging.getLogger(__name__)

BEFORE = -1
"""Step of a position that lies before the first operation of its message."""


@dataclass(frozen=True)
class Barrier:
    """A schema change at which a run stops: the last position before it, and the error that says so."""

    before: tuple[int, ...]
    error: InputFormatError


@dataclass(frozen=True)
class TableChanges:
    """Schema changes and truncates of the followed tables, in any order.

    ``applied``: up to where the tables were applied, and what had been read then.
    """

    found: tuple[LoggedEvent, ...]
    followed: FollowedTables
    files: tuple[LogPart, ...]
    applied: Mapping[str, Applied] = field(default_factory=dict)

    def barrier(
        self,
        options: LogOptions,
        order: Order,
        after: Mapping[str, Position],
        firsts: Sequence[tuple[int, ...]],
    ) -> Barrier | None:
        """The first schema change that is neither applied already nor allowed by the options.

        Args:
            options: the user's choices.
            order: order of the log's operations.
            after: the watermarks, by table.
            firsts: position of the first operation of each table that has any.

        Raises:
            InputFormatError: a change is not allowed, and a run cannot stop at it: it is a truncate, its
                order among the rows is not known, or there is nothing before it.
        """
        barrier: Barrier | None = None
        for change in sorted(self.found, key=lambda each: each.place):
            names = self.followed.touched_by(change.event)
            if self._is_allowed(change, names, options) or self._is_applied(change, names, order, after):
                continue
            error = self._refusal(change, names)
            before = self._before(change, order)
            is_first = before is None or all(first > before for first in firsts)
            is_reached = any(self._is_reached(change, name, order, after) for name in names)
            is_next = all(name in after and after[name].order == before for name in names)
            if before is None or is_first or is_reached or is_next:
                raise error
            if barrier is None or before < barrier.before:
                barrier = Barrier(before, error)
        return barrier

    def _is_allowed(self, change: LoggedEvent, names: Sequence[str], options: LogOptions) -> bool:
        if change.event.kind == "truncate":
            return options.applies_truncates and not any(map(self.followed.is_sharded, names))
        if options.accepts_schema_changes:
            logger.info("%s: left out: %s", change.place.shown(self.files), change.event.text)
        return options.accepts_schema_changes

    def _before(self, change: LoggedEvent, order: Order) -> tuple[int, ...] | None:
        """The last position before a schema change; None if a run cannot stop at it."""
        is_ordered = order.by is Positions.LINE or change.event.log_position is not None
        if change.event.kind == "truncate" or order.is_partitioned or not is_ordered:
            return None
        return (*order.before_steps(change, self.files), BEFORE)

    def check_parts(self, log: MessageLog, parts: Mapping[str, Collection[int]]) -> None:
        """Raise InputFormatError for a truncate whose order among the rows is not known.

        Args:
            log: the log.
            parts: for each table the indices of the parts of the log that have rows of it.
        """
        for change in self.found:
            event = change.event
            if event.kind != "truncate" or event.table is None:
                continue
            if not log.has_order(change.place, parts.get(event.table, ())):
                raise InputFormatError(
                    f"{change.place.shown(self.files)}: truncate of {event.table}: rows of the table may be "
                    "in other partitions, so it is not known which of them were written before. Give the "
                    "topic one partition, or empty the target and read the table anew under another name of "
                    "the source"
                )

    def truncates(self, order: Order) -> dict[str, tuple[int, ...]]:
        """Position of the last truncate of each table."""
        found: dict[str, tuple[int, ...]] = {}
        for change in self.found:
            table = change.event.table
            if change.event.kind == "truncate" and table is not None:
                position = order.position_of(change, self.files)
                found[table] = max(found.get(table, ()), position)
        return found

    def _refusal(self, change: LoggedEvent, names: Sequence[str]) -> InputFormatError:
        event = change.event
        if event.kind != "truncate":
            advice = (
                "change the target likewise, then accept schema changes (--accept-schema-changes). It may "
                f"concern {', '.join(names)}, which is followed; if another table has its name, or its rows, "
                "since then, copy the table anew and read it under another name of the source (--name NAME)"
            )
        elif any(map(self.followed.is_sharded, names)):
            advice = (
                "it is one of several shards of the target: delete its rows there, and start over under "
                "another name of the source (--name NAME), from files behind the truncate"
            )
        else:
            advice = "choose to apply truncates: then the target's rows from before are deleted"
            advice += " (--apply-truncates)"
        return InputFormatError(
            f"{change.place.shown(self.files)}: {event.kind} of {event.table or 'a table'}: {event.text}; "
            f"{advice}"
        )

    def _is_applied(
        self, change: LoggedEvent, names: Sequence[str], order: Order, after: Mapping[str, Position]
    ) -> bool:
        return all(
            self._is_reached(change, name, order, after) and self._is_old(change, name) for name in names
        )

    def _is_reached(
        self, change: LoggedEvent, name: str, order: Order, after: Mapping[str, Position]
    ) -> bool:
        return name in after and order.position_of(change, self.files) <= after[name].order

    def _is_old(self, change: LoggedEvent, name: str) -> bool:
        """Whether a run has read the change: one that comes late lies before what was applied."""
        return name not in self.applied or self.applied[name].is_old(change)
