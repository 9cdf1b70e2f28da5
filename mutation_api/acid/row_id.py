"""RecordIdentifier: the ROW__ID of a row, and its order."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ROW_ID_COLUMN", "RecordIdentifier"]

ROW_ID_COLUMN = "ROW__ID"
"""Name of the ROW__ID column in snapshots and change sets."""


class RecordIdentifier(NamedTuple):
    """ROW__ID of a row; tuples compare in the order that ACID files must have.

    ``bucket`` is the plain bucket id in v1. In v1 an identifier is unique within one partition only.
    """

    original_txn: int
    bucket: int
    row_id: int
