"""The comparison of a table with its target: the number and the hash of the rows of each partition.

Both sides are read to their end and in batches: Hive's files by this library, the target by the reader of its
format. Partitions are identified by the values that readers return, not by directories.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from mutation_api.cdc.export.export_report import ComparedPartition, VerifiedTable
from mutation_api.cdc.export.exported_types import exported_batch
from mutation_api.cdc.export.target import Target
from mutation_api.format.row_hash import row_hashes, sum_of_hashes
from mutation_api.read.table_scan import TableScan

__all__ = ["compared"]

_Key = tuple[Any, ...]
_MASK = (1 << 64) - 1


def compared(scan: TableScan, target: Target, schema: pa.Schema, position: str) -> VerifiedTable:
    """Compare the rows of a scan with those of a target.

    Args:
        scan: a scan of all columns at the position of the target.
        target: the target, which has been loaded.
        schema: the columns of the target, as the table has them.
        position: the position, for the report.

    Errors of :meth:`TableScan.by_partition` and those of the target's reader are passed on.
    """
    keys = scan.view.table.partition_key_names
    source, found = _Sums(keys), _Sums(keys)
    for _, batch in scan.by_partition():
        source.add(exported_batch(batch, schema))
    for batch in target.read():
        found.add(batch.select(schema.names))
    partitions = [
        ComparedPartition(
            {name: None if value is None else str(value) for name, value in zip(keys, key, strict=True)},
            *source.sums.get(key, (0, 0)),
            *found.sums.get(key, (0, 0)),
        )
        for key in sorted(source.sums.keys() | found.sums.keys(), key=repr)
    ]
    return VerifiedTable(scan.view.table.full_name, target.name, position, tuple(partitions))


class _Sums:
    """The number of rows and the sum of their hashes by the values of the partition columns."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self.sums: dict[_Key, tuple[int, int]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        for key, rows in self._by_key(batch):
            count, total = self.sums.get(key, (0, 0))
            added = sum_of_hashes(row_hashes(rows))
            self.sums[key] = (count + rows.num_rows, (total + added) & _MASK)

    def _by_key(self, batch: pa.RecordBatch) -> Iterator[tuple[_Key, pa.RecordBatch]]:
        columns = [batch.column(name) for name in self._keys]
        if not batch.num_rows:
            return
        if all(len(column.unique()) == 1 for column in columns):
            yield tuple(column[0].as_py() for column in columns), batch
            return
        places: dict[_Key, list[int]] = {}
        for at, key in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            places.setdefault(key, []).append(at)
        for key, rows in places.items():
            yield key, batch.take(pa.array(rows))
