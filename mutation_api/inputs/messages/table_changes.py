"""Changes of whole tables in a log: schema changes, which are refused, and truncates, which may apply."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mutation_api.errors import InputFormatError
from mutation_api.inputs.messages.events import Event, LoggedEvent, LogPart
from mutation_api.inputs.messages.log_options import LogOptions
from mutation_api.inputs.messages.order import Order
from mutation_api.inputs.messages.unwrap import MessageLog
from mutation_api.inputs.source import Position

__all__ = ["TableChanges", "is_change"]

logger = logging.getLogger(__name__)


def is_change(event: Event, tables: Collection[str]) -> bool:
    """Whether an event is a change of one of these tables."""
    if event.kind not in ("schema change", "truncate"):
        return False
    return event.table is None or event.table in {*tables, *map(_all_of_database, tables)}


@dataclass(frozen=True)
class TableChanges:
    """Schema changes and truncates of the followed tables, in any order."""

    found: tuple[LoggedEvent, ...]
    tables: tuple[str, ...]
    files: tuple[LogPart, ...]

    def refuse(self, options: LogOptions, order: Order, after: Mapping[str, Position]) -> None:
        """Raise InputFormatError for the first change neither applied already nor allowed by the options.

        Args:
            options: the user's choices.
            order: order of the log's operations.
            after: the watermarks, by table.
        """
        for change in sorted(self.found, key=lambda each: each.place):
            event = change.event
            is_truncate = event.kind == "truncate"
            if is_truncate and options.applies_truncates and event.table in self.tables:
                continue
            if not is_truncate and options.accepts_schema_changes:
                logger.info("%s: left out: %s", change.place.shown(self.files), event.text)
                continue
            if not self._is_applied(change, order, after):
                raise self._refusal(change)

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

    def _refusal(self, change: LoggedEvent) -> InputFormatError:
        event = change.event
        advice = (
            "choose to apply truncates: then the target's rows from before are deleted"
            if event.kind == "truncate"
            else "change the target likewise, then accept schema changes"
        )
        return InputFormatError(
            f"{change.place.shown(self.files)}: {event.kind} of {event.table or 'a table'}: {event.text}; "
            f"{advice}"
        )

    def _is_applied(self, change: LoggedEvent, order: Order, after: Mapping[str, Position]) -> bool:
        position = order.position_of(change, self.files)
        table = change.event.table
        touched = [name for name in self.tables if table in (None, name, _all_of_database(name))]
        return all(name in after and position <= after[name].order for name in touched)


def _all_of_database(table: str) -> str:
    """Name in events that may touch any table of this table's database."""
    return f"{table.rpartition('.')[0]}.*"
