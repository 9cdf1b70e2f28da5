"""The number of rows that a metastore records of a table or partition, and if it is called accurate. Pure.

Hive 4 answers ``count(*)`` from such a number. Its INSERT, UPDATE and DELETE add to the recorded number
whether it is called accurate or not, and its minor compaction calls the sum accurate (seen on 4.1.0). So a
writer must leave the right number, as Hive's own statements do; to say that it is not accurate is not enough.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from metastore_client.valid_ids import ValidWriteIdList

__all__ = ["COLUMN_STATS_ACCURATE", "CountRows", "accurate_row_count", "with_row_count"]

COLUMN_STATS_ACCURATE = "COLUMN_STATS_ACCURATE"
"""The parameter that names what is accurate, as JSON."""
CountRows = Callable[[Mapping[str, int | None]], Mapping[str, int | None]]
"""Gives the numbers of rows to record for the recorded ones, by partition ('' for the table).

None stands for a number that is not known.
"""
_BASIC, _NUM_ROWS = "BASIC_STATS", "numRows"
_ONLY_ROWS = '{"BASIC_STATS":"true"}'


def accurate_row_count(
    parameters: Mapping[str, str], writer: int | None, valid_write_ids: ValidWriteIdList
) -> int | None:
    """The recorded number of rows, if it is called accurate by a writer that has not aborted; else None.

    Args:
        parameters: of the table or partition.
        writer: the write id under which they were stored.
        valid_write_ids: those of the reader. A writer that is still open counts: Hive adds to its number,
            too.
    """
    try:
        claims = json.loads(parameters.get(COLUMN_STATS_ACCURATE, "{}"))
        rows = int(parameters.get(_NUM_ROWS, ""))
    except ValueError:
        return None
    is_accurate = isinstance(claims, dict) and str(claims.get(_BASIC)).lower() == "true"
    return rows if is_accurate and rows >= 0 and writer not in valid_write_ids.aborted else None


def with_row_count(parameters: Mapping[str, str], row_count: int | None) -> dict[str, str]:
    """The parameters with an accurate number of rows, or with none that is called accurate.

    Statistics of columns are no longer called accurate either way.
    """
    others = {name: value for name, value in parameters.items() if name != COLUMN_STATS_ACCURATE}
    if row_count is None:
        return others
    return others | {_NUM_ROWS: str(row_count), COLUMN_STATS_ACCURATE: _ONLY_ROWS}
