"""BucketIdResolver: a batch of records -> the bucket that each new row belongs to.

For inserts only. An update or a delete goes to the bucket in its ROW__ID, even if its hash says another one:
Hive itself may have misplaced the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from mutation_api.acid.bucket_codec import MAX_BUCKETS
from mutation_api.acid.version import AcidVersion, FileCalendar
from mutation_api.bucketing.bucket_hash import bucket_ids, check_hashable, hash_columns
from mutation_api.errors import ConfigurationError, RecordLayoutError, TableNotMutableError
from mutation_api.types.conversion import convert_to_column
from mutation_api.types.hive_type import HiveType, parse_hive_type

__all__ = ["BucketIdResolver", "BucketedTable", "NamedType"]


class NamedType(Protocol):
    """A column: name in lower case, Hive type text."""

    @property
    def name(self) -> str:
        """Name in lower case."""

    @property
    def type(self) -> str:
        """Hive type text."""


class BucketedTable(Protocol):
    """What the resolver must know of a table; AcidTable is one."""

    @property
    def full_name(self) -> str:
        """``database.table``, for messages."""

    @property
    def columns(self) -> Sequence[NamedType]:
        """Data columns."""

    @property
    def bucket_columns(self) -> Sequence[str]:
        """Names in CLUSTERED BY order, which need not be the table's order."""

    @property
    def num_buckets(self) -> int:
        """Bucket count."""

    @property
    def bucketing_version(self) -> int:
        """1 or 2."""

    @property
    def version(self) -> AcidVersion:
        """Layout of the table's files; it determines the calendar of early dates."""

    @property
    def time_zone(self) -> str | None:
        """Zone of Hive's own processes."""


class BucketIdResolver:
    """Computes bucket ids for one table; holds no state between batches, so threads may share it."""

    def __init__(self, table: BucketedTable) -> None:
        """Check that the table's buckets can be computed.

        Raises:
            TableNotMutableError: the bucket count is not in 1 to 4096, bucket columns are missing or are not
                columns of the table, or the hash of a type is not defined.
            ConfigurationError: a bucket column holds timestamps, the version is 1 and no time zone is given.
        """
        if not 1 <= table.num_buckets <= MAX_BUCKETS:
            raise TableNotMutableError(
                f"table {table.full_name}: {table.num_buckets} buckets; 1 to {MAX_BUCKETS} are supported"
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

        The values are converted to the table's column types first, since equal numbers of different types
        hash differently. A null field counts as hash 0.

        Args:
            batch: n records; columns in any order, names in any case; columns other than the bucket columns
                are ignored.

        Returns:
            int32, n values, none null, each 0 <= id < num_buckets.

        Raises:
            RecordLayoutError: a bucket column is missing, occurs twice, or has a type that does not fit.
            RecordValueError: a value does not fit its column.

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
            found = "missing" if not indices else f"there {len(indices)} times (case does not count)"
            raise RecordLayoutError(
                f"table {self._table.full_name}: bucket column {name!r} is {found}; "
                f"the records have {batch.schema.names}"
            )
        array = batch.column(indices[0])
        # The hash accepts any unit: years that nanoseconds cannot hold must not be refused here.
        unit = "ns" if "[ns" in str(array.type) else "us"
        return convert_to_column(
            array, hive_type, column=f"{self._table.full_name}.{name}", timestamp_unit=unit
        )


def _type_of(table: BucketedTable, name: str) -> HiveType:
    for column in table.columns:
        if column.name.lower() == name:
            return parse_hive_type(column.type)
    raise TableNotMutableError(f"table {table.full_name}: bucket column {name!r} is not one of its columns")
