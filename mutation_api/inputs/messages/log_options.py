"""Options of a log of messages."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["LogOptions", "NewSnapshot", "Positions"]


class Positions(enum.Enum):
    """The order of operations."""

    AUTO = "auto"
    """the messages' positions in the source's log if they have them, else the order of lines"""
    MESSAGE = "message"
    LINE = "line"


class NewSnapshot(enum.Enum):
    """What a snapshot of a table means that was taken after changes of it."""

    REFUSE = "refuse"
    REPLACE = "replace"
    """all rows of the table: those of the target that neither it nor a later change has are deleted"""
    MERGE = "merge"
    """rows like others"""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The user's choices about a log.

    Columns are named ``TABLE.COLUMN``, with the source's name of the table and the target's, or the source's,
    of the column. ``ignored_columns``: columns of the source that the target does not have.
    ``null_if_missing``: columns of the target that are NULL in a message that lacks them.
    ``default_if_missing``: the same, but they then have the value of their DEFAULT constraint, also in a row
    that is updated. ``trusted_keys``: tables, by the
    source's names, whose changes of the key are all logged, though messages do not show the key that a row
    had. ``accepts_schema_changes``: messages
    about a changed table are left out, because the target already fits the rows that follow.
    ``applies_truncates``: if a table was truncated, the rows that no later operation writes are deleted;
    otherwise a truncate is refused. ``new_snapshot``: what a second snapshot of a table means.
    ``shard_column``: column of the targets of tables whose name has ``*`` or ``?``, which fits several tables
    of the source; it holds the source's name of the table, and belongs to the key.
    """

    positions: Positions = Positions.AUTO
    ignored_columns: Collection[str] = frozenset()
    null_if_missing: Collection[str] = frozenset()
    default_if_missing: Collection[str] = frozenset()
    trusted_keys: Collection[str] = frozenset()
    accepts_schema_changes: bool = False
    applies_truncates: bool = False
    new_snapshot: NewSnapshot = NewSnapshot.REFUSE
    shard_column: str | None = None
