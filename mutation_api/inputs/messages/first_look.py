"""The first look at a log, in one pass: facts of each table, and changes of whole tables.

A log is read twice. This look finds the tables, the order of operations and the end of the log. The second
reading, when the operations are evaluated, gives the operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, Row

from mutation_api.inputs.messages.events import error_called, event_location
from mutation_api.inputs.messages.json_lines import LogFile
from mutation_api.inputs.messages.order import OrderFacts, order_aggregates
from mutation_api.inputs.messages.shape import ShapeFacts, shape_aggregates
from mutation_api.inputs.messages.table_changes import TableChanges, change_aggregate

__all__ = ["LogFacts", "TableFacts", "look"]


@dataclass(frozen=True)
class TableFacts:
    """Facts of a log about one table."""

    order: OrderFacts
    shape: ShapeFacts


@dataclass(frozen=True)
class LogFacts:
    """Facts of a log about the followed tables. ``tables``: those with rows or truncates, by name."""

    tables: Mapping[str, TableFacts]
    changes: TableChanges

    @property
    def has_nothing(self) -> bool:
        """Whether no message concerns any of the tables."""
        return not self.tables and not self.changes.found


def look(events: DataFrame, files: Sequence[LogFile], tables: Sequence[str]) -> LogFacts:
    """Look at the events of a log.

    Args:
        events: as of :func:`~mutation_api.inputs.messages.unwrap.log_events`.
        files: files of the log.
        tables: the source's names of the followed tables.

    Raises:
        InputFormatError, or another class of the first damaged message's problem; names file, line, field.
    """
    is_ours = sf.col("kind").isin("row", "truncate") & sf.col("table").isin([*tables])
    is_row = is_ours & (sf.col("kind") == "row")
    is_wrong = sf.col("problem").isNotNull() & (is_row | (sf.col("kind") == "damaged"))
    looked = events.groupBy(sf.when(is_ours, sf.col("table")).alias("table")).agg(
        *order_aggregates(files, is_ours, is_row),
        *shape_aggregates(is_row),
        sf.min(sf.when(is_wrong, sf.struct("file", "offset", "problem"))).alias("wrong"),
        change_aggregate(tables),
    )
    rows = looked.collect()
    _refuse_first(files, [row.wrong for row in rows if row.wrong is not None])
    facts = {
        row.table: TableFacts(OrderFacts.of(row), ShapeFacts.of(row)) for row in rows if row.table is not None
    }
    changes = tuple(change for row in rows for change in row.changes)
    return LogFacts(facts, TableChanges(changes, tuple(tables), tuple(files)))


def _refuse_first(files: Sequence[LogFile], found: Sequence[Row]) -> None:
    if found:
        first = min(found, key=lambda row: (row.file, row.offset))
        wrong = first.problem
        raise error_called(wrong.error)(f"{event_location(files, first, wrong.field)}: {wrong.text}")
