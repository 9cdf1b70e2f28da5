"""The ACID event: its ORC columns and operation codes.

Names, case and order are fixed, because readers look for them. Source: Hive's OrcRecordUpdater.
"""

from __future__ import annotations

import enum

import pyarrow as pa

__all__ = [
    "BUCKET",
    "CURRENT_TRANSACTION",
    "EVENT_FIELDS",
    "OPERATION",
    "ORIGINAL_TRANSACTION",
    "ROW",
    "ROW_ID",
    "Operation",
    "event_schema",
]

OPERATION = "operation"
ORIGINAL_TRANSACTION = "originalTransaction"
BUCKET = "bucket"
ROW_ID = "rowId"
CURRENT_TRANSACTION = "currentTransaction"
ROW = "row"
EVENT_FIELDS = (OPERATION, ORIGINAL_TRANSACTION, BUCKET, ROW_ID, CURRENT_TRANSACTION, ROW)


class Operation(enum.IntEnum):
    """Operation code of an event. UPDATE occurs in v1 legacy files only."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2


def event_schema(row_type: pa.StructType) -> pa.Schema:
    """Arrow schema of an ACID file.

    Args:
        row_type: the fields of ``row``: the data columns, lower case, in table order.
    """
    return pa.schema(
        [
            (OPERATION, pa.int32()),
            (ORIGINAL_TRANSACTION, pa.int64()),
            (BUCKET, pa.int32()),
            (ROW_ID, pa.int64()),
            (CURRENT_TRANSACTION, pa.int64()),
            (ROW, row_type),
        ]
    )
