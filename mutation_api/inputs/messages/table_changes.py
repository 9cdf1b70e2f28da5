"""Changes of whole tables in a log: schema changes, which are refused, and truncates, which may apply."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import Column, Row

from mutation_api.errors import InputFormatError
from mutation_api.inputs.messages.events import event_location
from mutation_api.inputs.messages.json_lines import LogFile
from mutation_api.inputs.messages.log_options import LogOptions
from mutation_api.inputs.messages.order import Order
from mutation_api.inputs.source import Position

__all__ = ["TableChanges", "change_aggregate"]

logger = logging.getLogger(__name__)


def change_aggregate(tables: Sequence[str]) -> Column:
    """Aggregate of events for :class:`TableChanges`: those that touch one of these tables."""
    databases = [_all_of_database(name) for name in tables]
    touches = sf.col("table").isNull() | sf.col("table").isin([*tables, *databases])
    is_change = sf.col("kind").isin("schema change", "truncate") & touches
    event = sf.struct("file", "offset", "kind", "table", "log_position", "text")
    return sf.collect_list(sf.when(is_change, event)).alias("changes")


@dataclass(frozen=True)
class TableChanges:
    """Schema changes and truncates of the followed tables, in any order."""

    found: tuple[Row, ...]
    tables: tuple[str, ...]
    files: tuple[LogFile, ...]

    def refuse(self, options: LogOptions, order: Order, after: Mapping[str, Position]) -> None:
        """Raise InputFormatError for the first change neither applied already nor allowed by the options.

        Args:
            options: the user's choices.
            order: order of the log's operations.
            after: the watermarks, by table.
        """
        for change in sorted(self.found, key=lambda row: (row.file, row.offset)):
            is_truncate = change.kind == "truncate"
            if is_truncate and options.applies_truncates and change.table in self.tables:
                continue
            if not is_truncate and options.accepts_schema_changes:
                logger.info("%s: left out: %s", event_location(self.files, change), change.text)
                continue
            if not self._is_applied(change, order, after):
                raise self._refusal(change)

    def truncates(self, order: Order) -> dict[str, tuple[int, ...]]:
        """Position of the last truncate of each table."""
        found: dict[str, tuple[int, ...]] = {}
        for change in self.found:
            if change.kind == "truncate":
                position = order.position_of(change, self.files)
                found[change.table] = max(found.get(change.table, ()), position)
        return found

    def _refusal(self, change: Row) -> InputFormatError:
        advice = (
            "choose to apply truncates: then the target's rows from before are deleted"
            if change.kind == "truncate"
            else "change the target likewise, then accept schema changes"
        )
        return InputFormatError(
            f"{event_location(self.files, change)}: {change.kind} of {change.table or 'a table'}: "
            f"{change.text}; {advice}"
        )

    def _is_applied(self, change: Row, order: Order, after: Mapping[str, Position]) -> bool:
        position = order.position_of(change, self.files)
        touched = [name for name in self.tables if change.table in (None, name, _all_of_database(name))]
        return all(name in after and position <= after[name].order for name in touched)


def _all_of_database(table: str) -> str:
    """Name in events that may touch any table of this table's database."""
    return f"{table.rpartition('.')[0]}.*"
