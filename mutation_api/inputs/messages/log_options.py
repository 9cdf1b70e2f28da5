"""What a user chooses about a log of messages."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["LogOptions", "Positions"]


class Positions(enum.Enum):
    """What orders operations."""

    AUTO = "auto"
    """the messages' places in the source's log if they tell them, else the order of lines"""
    MESSAGE = "message"
    LINE = "line"


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What the user chose about a log.

    Columns are named ``TABLE.COLUMN``, with the source's name of the table and the target's, or the source's,
    of the column. ``ignored_columns`` are columns of the source that the target does not have;
    ``null_if_missing`` columns of the target that a message may lack. ``accepts_schema_changes``: messages
    that tell of a changed table are left out, because the target is as the rows that follow need it.
    ``applies_truncates``: where a table was truncated, its rows are deleted that no later operation writes;
    otherwise a truncate is refused.
    """

    positions: Positions = Positions.AUTO
    ignored_columns: Collection[str] = frozenset()
    null_if_missing: Collection[str] = frozenset()
    accepts_schema_changes: bool = False
    applies_truncates: bool = False
