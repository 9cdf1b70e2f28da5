"""The bucket of each new row, and the check that rows lie in the bucket of their hash. Pure.

Buckets are computed for inserts only. An update or a delete goes to the bucket in its ROW__ID, even if the
hash gives another bucket, because Hive itself may have misplaced the row.

A read of only some buckets relies on the check, because it assumes that the other buckets hold no matching
row. Hive guarantees this until ALTER TABLE changes CLUSTERED BY, the number of buckets or the type of a
bucket column. ALTER TABLE moves no rows, and -1 as int hashes differently from -1 as bigint. Therefore all
buckets of a table that was altered (``AcidTable.was_altered``) are read. The check detects files that were
put there by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from mutation_api.errors import (
    ConfigurationError,
    DirectoryStateError,
    RecordLayoutError,
    TableNotMutableError,
)
from mutation_api.format.bucket_hash import bucket_ids, check_hashable, hash_columns
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.event import MAX_BUCKETS
from mutation_api.format.hive_type import HiveType, parse_hive_type
from mutation_api.format.layout import AcidVersion, FileCalendar
from mutation_api.table.acid_table import AcidTable


class NamedType(Protocol):
    """A column: its name in lower case and its Hive type."""

    @property
    def name(self) -> str:
        """The name in lower case."""

    @property
    def type(self) -> str:
        """The Hive type as a string."""


class BucketedTable(Protocol):
    """The properties of a table that the resolver needs. AcidTable has them."""

    @property
    def full_name(self) -> str:
        """``database.table``, for messages."""

    @property
    def columns(self) -> Sequence[NamedType]:
        """The data columns."""

    @property
    def bucket_columns(self) -> Sequence[str]:
        """The names of the bucket columns in CLUSTERED BY order, which may differ from the table's order."""

    @property
    def num_buckets(self) -> int:
        """The number of buckets."""

    @property
    def bucketing_version(self) -> int:
        """The bucketing version, 1 or 2."""

    @property
    def version(self) -> AcidVersion:
        """The layout of the table's files. It determines the calendar of early dates."""

    @property
    def time_zone(self) -> str | None:
        """The time zone of Hive's own processes."""


class BucketIdResolver:
    """Computes bucket ids for one table. It keeps no state between batches, so threads may share it."""

    def __init__(self, table: BucketedTable) -> None:
        """Check that the table's buckets can be computed.

        Raises:
            TableNotMutableError: If the bucket count is not in 1 to 4096, bucket columns are missing or are
                not columns of the table, or the hash of a type is not defined.
            ConfigurationError: If a bucket column holds timestamps, the version is 1 and the time zone is
                missing.
        """
        if not 1 <= table.num_buckets <= MAX_BUCKETS:
            raise TableNotMutableError(
                f"table {table.full_name}: got {table.num_buckets} buckets; 1 to {MAX_BUCKETS} are supported"
            )
        if not table.bucket_columns:
            raise TableNotMutableError(
                f"table {table.full_name}: {table.num_buckets} buckets but no bucket columns"
            )
        self._table = table
        self._names = [name.lower() for name in table.bucket_columns]
        self._types = [_type_of(table, name) for name in self._names]
        try:
            check_hashable(self._types, table.bucketing_version, table.time_zone)
        except (TableNotMutableError, ConfigurationError) as error:
            raise type(error)(f"table {table.full_name}, bucketed by {self._names}: {error}") from error

    def resolve(self, batch: pa.RecordBatch | pa.Table) -> pa.Int32Array:
        """Compute the bucket of every record.

        The values are first converted to the table's column types, because equal numbers of different types
        hash differently. A null field counts as hash 0.

        Args:
            batch: n records. Their columns may be in any order, with names in any case. Columns other than
                the bucket columns are ignored.

        Returns:
            int32, n values without nulls, each 0 <= id < num_buckets.

        Raises:
            RecordLayoutError: If a bucket column is missing, occurs twice, or has an unsuitable type.
            RecordValueError: If a value does not fit its column.

        Source: Hive's ReduceSinkOperator: CLUSTERED BY order, the table's bucket count.
        """
        arrays = [
            self._column(batch, name, kind) for name, kind in zip(self._names, self._types, strict=True)
        ]
        hashes = hash_columns(
            arrays,
            self._types,
            self._table.bucketing_version,
            self._table.time_zone,
            hybrid_dates=self._table.version.calendar is FileCalendar.HYBRID,
        )
        return pa.array(bucket_ids(hashes, self._table.num_buckets), pa.int32())

    def _column(self, batch: pa.RecordBatch | pa.Table, name: str, hive_type: HiveType) -> pa.Array:
        indices = [index for index, given in enumerate(batch.schema.names) if given.lower() == name]
        if len(indices) != 1:
            found = "missing" if not indices else f"there {len(indices)} times (case is ignored)"
            raise RecordLayoutError(
                f"table {self._table.full_name}: bucket column {name!r} is {found}; "
                f"the records have {batch.schema.names}"
            )
        array = batch.column(indices[0])
        # The hash accepts any unit. Years that nanoseconds cannot hold must not be rejected here.
        unit = "ns" if "[ns" in str(array.type) else "us"
        return convert_to_column(
            array, hive_type, column=f"{self._table.full_name}.{name}", timestamp_unit=unit
        )


def _type_of(table: BucketedTable, name: str) -> HiveType:
    for column in table.columns:
        if column.name.lower() == name:
            return parse_hive_type(column.type)
    raise TableNotMutableError(f"table {table.full_name}: bucket column {name!r} is not one of its columns")


def tells_bucket(table: AcidTable, key_columns: Set[str]) -> bool:
    """Return True if the values of these columns (in lower case) determine the bucket of a row.

    They do not if rows may lie in other buckets (``keeps_misplaced_rows``).
    """
    bucket_columns = {name.lower() for name in table.bucket_columns}
    if not bucket_columns or not bucket_columns <= key_columns or table.keeps_misplaced_rows:
        return False
    types = [parse_hive_type(c.type) for c in table.columns if c.name in bucket_columns]
    return all(each.facts.keeps_bucket for each in types)


@dataclass(frozen=True)
class Placement:
    """The bucket in which all rows of a split must lie. ``table`` is bucketed."""

    table: AcidTable
    partition_name: str
    bucket_id: int

    def check(self, columns: Mapping[str, pa.Array], path: str) -> None:
        """Raise DirectoryStateError, with an example row, if rows hash to another bucket.

        Args:
            columns: the bucket columns under the table's names, with n values each. Other columns are
                allowed. Rows whose bucket columns are all NULL are not checked, because an event without a
                row looks the same.
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
            f"{self.bucket_id} but hash to others; for example, {values} hashes to bucket {expected} of "
            f"{table.num_buckets}. Files were added by hand, or a program other than Hive altered the "
            "table. Hive itself misses such rows when it reads a single bucket. Read all buckets "
            "(prune_buckets=False, or --all-buckets) to see or delete these rows. To update them, rewrite "
            "the table first (INSERT OVERWRITE … SELECT)"
        )
