"""Rows of a scan as JSON objects, for export and printing.

:mod:`mutation_api.types.json_values` formats the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.scan.table_scan import TableScan
from mutation_api.types.json_values import to_json

__all__ = ["row_objects"]


def row_objects(scan: TableScan, rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows as objects for ``json.dumps``.

    Args:
        scan: the scan that returned the rows.
        rows: one of its batches. Its rows are of one partition, so partition values are converted once.

    Yields:
        ``{"ROW__ID": {"writeid": 7, "bucketid": 0, "rowid": 1}, "id": 1, "ds": "x"}``: ROW__ID if the scan
        has it, then the columns in the order of the scan.
    """
    columns: dict[str, list[Any]] = {}
    if scan.row_ids:
        columns[ROW_ID_COLUMN] = rows.column(ROW_ID_COLUMN).to_pylist()
    partition_keys = scan.view.table.partition_keys
    for column in scan.selected:
        array = rows.column(column.name)
        if column in partition_keys:
            columns[column.name] = to_json(array.slice(0, 1)) * rows.num_rows
        else:
            columns[column.name] = to_json(array)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))
