"""Placement: check that rows lie in the bucket that their values hash to. Pure, vectorised.

A read of some buckets alone, because the others can hold no wanted row, relies on it. Hive promises it, and
keeps the promise no longer once ALTER TABLE has changed CLUSTERED BY, the number of buckets or the type of a
bucket column: it moves no row, and -1 as int hashes unlike -1 as bigint. Of a table that was altered
(``AcidTable.was_altered``) all buckets are read. The check finds files that somebody has put there by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mutation_api.bucketing.bucket_resolver import BucketIdResolver
from mutation_api.errors import DirectoryStateError
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.hive_type import parse_hive_type

__all__ = ["Placement", "tells_bucket"]

_UNHASHED_KINDS = ("float", "double", "timestamp")
"""Types whose equal values hash differently (-0.0 and 0.0), or whose values are rounded on reading."""


def tells_bucket(table: AcidTable, key_columns: Set[str]) -> bool:
    """Whether the values of these columns (lower case) determine the bucket of a row.

    They do not if rows may lie in other buckets (``keeps_misplaced_rows``).
    """
    bucket_columns = {name.lower() for name in table.bucket_columns}
    if not bucket_columns or not bucket_columns <= key_columns or table.keeps_misplaced_rows:
        return False
    kinds = {parse_hive_type(c.type).kind for c in table.columns if c.name in bucket_columns}
    return kinds.isdisjoint(_UNHASHED_KINDS)


@dataclass(frozen=True)
class Placement:
    """The bucket in which all rows of a split must lie. ``table`` is bucketed."""

    table: AcidTable
    partition_name: str
    bucket_id: int

    def check(self, columns: Mapping[str, pa.Array], path: str) -> None:
        """Raise DirectoryStateError, naming a row, if a row hashes to another bucket.

        Args:
            columns: the bucket columns, maybe others too, under the table's names; n values each. Rows whose
                bucket columns are all NULL are not checked: an event without a row looks the same.
            path: the file, for the message.
        """
        names = [name.lower() for name in self.table.bucket_columns]
        batch = pa.record_batch([columns[name] for name in names], names=names)
        is_misplaced = np.asarray(self._resolver.resolve(batch)) != self.bucket_id
        if not is_misplaced.any():
            return
        nulls = [array.is_null().to_numpy(zero_copy_only=False) for array in batch.columns]
        misplaced = np.flatnonzero(is_misplaced & ~np.logical_and.reduce(nulls))
        if len(misplaced):
            row = batch.slice(int(misplaced[0]), 1)
            raise DirectoryStateError(self._message(row, len(misplaced), batch.num_rows, path))

    @functools.cached_property
    def _resolver(self) -> BucketIdResolver:
        return BucketIdResolver(self.table)

    def _message(self, row: pa.RecordBatch, count: int, total: int, path: str) -> str:
        table = self.table
        partition = f", partition {self.partition_name}" if self.partition_name else ""
        values = ", ".join(f"{name}={value!r}" for name, value in row.to_pylist()[0].items())
        expected = self._resolver.resolve(row)[0].as_py()
        return (
            f"table {table.full_name}{partition}: {count:,} of {total:,} rows in {path} lie in bucket "
            f"{self.bucket_id} but hash to others; for example {values} hashes to bucket {expected} of "
            f"{table.num_buckets}. Files were added by hand, or another program than Hive altered the table. "
            "Hive itself misses such rows when it reads a single bucket. Read all buckets "
            "(prune_buckets=False, or --all-buckets) to see or delete them; to update them, rewrite the "
            "table first (INSERT OVERWRITE … SELECT)"
        )
