"""What a change source gives: operations on tables, and the position reached when they are applied.

A source is read inside the transaction that applies it. The transaction holds the write lock on the
watermarks by then, so nobody else moves them; the operations and the new watermark become visible together
or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from mutation_api.table.acid_table import AcidTable

__all__ = ["OPERATION", "POSITION", "Batch", "ChangeSource", "Position", "SourceTable", "TableOperations"]

OPERATION = "__operation"
"""Column of a frame of operations: ``insert``, ``update`` or ``delete``."""

POSITION = "__position"
"""Column of a frame of operations: where in the log the operation stands, a struct of bigints that Spark can
order. No two operations on one key have the same."""


@dataclass(frozen=True, order=True)
class Position:
    """A place in a source's log; a later one is greater.

    ``order``: numbers compared one by one, as many for every position of one source. ``text``: what the
    source needs to go on from here and a person wants to see, in the source's own words (JSON).
    """

    order: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class SourceTable:
    """One table of the source, by the source's name for it, and the table that shall follow it.

    ``key`` are columns of the target that tell its rows apart; empty where the source says which they are.
    """

    name: str
    target: AcidTable
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableOperations:
    """Operations on one table, in any order of rows.

    ``operations`` has the columns ``OPERATION``, ``POSITION`` and all columns of the target, partition
    columns included, under the target's names and of its Spark types. A ``delete`` needs values in the key
    columns alone. An update of key columns comes as ``delete`` of the old key and ``insert`` of the new one.

    ``is_emptied``: all rows of the table were removed at once before the first of these operations, which
    may be none.
    """

    table: SourceTable
    operations: DataFrame
    is_emptied: bool = False


@dataclass(frozen=True)
class Batch:
    """What a source has after the positions that were asked for: all of it up to ``position``.

    ``position`` is None, and ``tables`` empty, if there is nothing new.
    """

    tables: tuple[TableOperations, ...]
    position: Position | None


class ChangeSource(Protocol):
    """A log of operations on several tables."""

    @property
    def source_id(self) -> str:
        """Names this source in the watermarks, such as ``tungsten:alpha``."""

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """All operations on these tables later than ``after`` says, by the source's name of the table.

        A table that ``after`` does not name has had nothing applied yet.

        Raises:
            InputFormatError: a file or message is not what the format says; names file, line and field.
            SourcePositionError: the source no longer has what follows the position.
            RecordLayoutError: the source's columns and the target's do not agree.
            RecordValueError: a value does not fit the target's column.
        """
