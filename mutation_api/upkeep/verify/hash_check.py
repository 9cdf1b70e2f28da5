"""HashCheck: whether rows lie in the bucket that their values hash to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.bucketing.bucket_resolver import BucketIdResolver
from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.hive_type import parse_hive_type
from mutation_api.upkeep.verify.event_rules import Broken

__all__ = ["HashCheck"]


class HashCheck:
    """Compares rows with buckets. Threads may share it."""

    def __init__(self, table: AcidTable, resolver: BucketIdResolver) -> None:
        self._names = [name.lower() for name in table.bucket_columns]
        self._resolver = resolver
        self._rule_name = "bucket-hash-old" if table.keeps_misplaced_rows else "bucket-hash"

    @classmethod
    def of(cls, table: AcidTable) -> HashCheck | None:
        """None if the table is not bucketed, or its hash is not defined, or is of timestamps.

        Those are read with microseconds, and in version 1 depend on the zone of Hive's processes.
        """
        kinds = [parse_hive_type(c.type).kind for c in table.columns if c.name in table.bucket_columns]
        if not table.is_bucketed or not table.version.has_row_ids or "timestamp" in kinds:
            return None
        try:
            return cls(table, BucketIdResolver(table))
        except (ConfigurationError, TableNotMutableError):
            return None

    def misplaced(
        self, columns: Mapping[str, pa.Array], has_row: NDArray[np.bool_], bucket_id: int
    ) -> Broken | None:
        """Rows of a bucket that hash to another one; None if there are none.

        Args:
            columns: the table's columns by name, n values each.
            has_row: which of them are rows; shape (n,).
            bucket_id: the bucket in which they lie.
        """
        batch = pa.record_batch([columns[name] for name in self._names], names=self._names)
        ids = np.asarray(self._resolver.resolve(batch))
        misplaced = (ids != bucket_id) & has_row
        if not misplaced.any():
            return None
        at = int(misplaced.argmax())
        values = ", ".join(f"{name}={value!r}" for name, value in batch.slice(at, 1).to_pylist()[0].items())
        return Broken(
            self._rule_name,
            at,
            int(misplaced.sum()),
            f"{values} in bucket {bucket_id}",
            f"bucket {int(ids[at])} by its hash",
        )
