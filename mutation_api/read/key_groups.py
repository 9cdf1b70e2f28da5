"""The keys of a keyed snapshot, grouped by the partition in which their rows can lie, and row counts.

If the key determines the bucket, buckets to which no key hashes are not read. A merge would insert a row that
was overlooked a second time. Therefore, if a bucket of a partition is not read, the rows of its other buckets
must lie in the bucket of their hash (:mod:`mutation_api.table.bucket_resolver`).

Row counts come from the footers of files. Nothing else of the files is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.orc.format.tail import read_tail
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.read.partition_files import list_partition_files
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import Directories
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver, tells_bucket
from mutation_api.table.partition import partition_scalars

_FILTERS_KEPT = 4


class KeyGroups:
    """Keys ordered by partition. :func:`group_keys` makes them on the driver, and workers use them.

    Args:
        keys: the data columns among the key columns, one row per key. If None, there are no such columns, and
            all rows of the partitions in ``ranges`` are selected.
        null_safe: True if NULL equals NULL.
        ranges: the indices start..stop-1 of a partition's keys, by its name. Partitions without keys are
            missing.
        excludes: True if the rows that have none of the keys are selected.
        buckets: the buckets that can hold a key, by partition. Partitions in which every bucket can hold a
            key are missing.
        num_buckets: the table's number of buckets.
    """

    def __init__(
        self,
        keys: pa.Table | None,
        null_safe: bool,
        ranges: Mapping[str, tuple[int, int]],
        excludes: bool,
        buckets: Mapping[str, frozenset[int]],
        num_buckets: int,
    ) -> None:
        self._keys = keys
        self._null_safe = null_safe
        self._ranges = dict(ranges)
        self._excludes = excludes
        self._buckets = dict(buckets)
        self._num_buckets = num_buckets
        # Consecutive splits of a task, and the tasks of a process, mostly share their keys.
        self._filter_of_range = functools.lru_cache(maxsize=_FILTERS_KEPT)(self._filter)

    def __reduce__(self) -> tuple[Callable[..., KeyGroups], tuple[object, ...]]:
        """Pickle without the cached filters."""
        return KeyGroups, (
            self._keys,
            self._null_safe,
            self._ranges,
            self._excludes,
            self._buckets,
            self._num_buckets,
        )

    def has_partition(self, partition_name: str) -> bool:
        """Return True if rows of the partition can be selected."""
        if self._excludes:
            return self._keys is not None or partition_name not in self._ranges
        return partition_name in self._ranges

    def has_split(self, split: SnapshotSplit) -> bool:
        """Return True if rows of the split can be selected. Its partition must pass :meth:`has_partition`."""
        return not self.checks_placement(split) or split.bucket_id in self._buckets[split.partition_name]

    def checks_placement(self, split: SnapshotSplit) -> bool:
        """Return True if the split's rows must lie in the bucket of their hash.

        This is the case if other buckets are not read. Files that may hold rows of any bucket are always
        read.
        """
        return split.partition_name in self._buckets and split.is_of_bucket(self._num_buckets)

    def filter_for(self, partition_name: str) -> KeyFilter | None:
        """Return the filter for a partition; None if all its rows are selected.

        The partition must pass :meth:`has_partition`.
        """
        if self._keys is None or partition_name not in self._ranges:
            return None
        return self._filter_of_range(*self._ranges[partition_name])

    def _filter(self, start: int, stop: int) -> KeyFilter:
        assert self._keys is not None
        return KeyFilter(self._keys.slice(start, stop - start), self._null_safe, self._excludes)


def group_keys(
    table: AcidTable,
    keys: pa.Table,
    partition_names: Sequence[str],
    *,
    null_safe: bool,
    excludes: bool = False,
    prunes_buckets: bool = True,
) -> KeyGroups:
    """Order keys by the partition in which rows with them can lie.

    Args:
        table: the table that is read.
        keys: one column per key column, in any case and order, in the types of ``arrow_type`` with timestamps
            in microseconds.
        partition_names: the (escaped) names of the partitions to read; '' for an unpartitioned table.
        null_safe: True if NULL equals NULL.
        excludes: True to select the rows that have none of the keys.
        prunes_buckets: True to leave out buckets to which no key hashes.

    Raises:
        RecordLayoutError: If the key has no columns, or one is not in the table, occurs twice or has
            another type.
        RecordValueError: If a key column cannot hold its value in a partition's name.
    """
    keys = KeyFilter(_checked(table, keys).combine_chunks(), null_safe).keys
    data = [name for name in keys.column_names if name not in table.partition_key_names]
    in_partition = [name for name in keys.column_names if name in table.partition_key_names]
    if in_partition:
        filter_ = KeyFilter(keys.select(in_partition), null_safe)
        indices, codes = filter_.encode([_chunk(keys, name) for name in in_partition])
        found, codes_of_found = filter_.encode(_partition_values(table, partition_names, filter_))
        code_of_partition = {
            partition_names[at]: code
            for at, code in zip(found.tolist(), codes_of_found.tolist(), strict=True)
        }
    else:
        indices, codes = np.arange(keys.num_rows), np.zeros(keys.num_rows, np.int64)
        code_of_partition = dict.fromkeys(partition_names, 0) if keys.num_rows else {}
    order = np.argsort(codes, kind="stable")
    codes, indices = codes[order], indices[order]
    ranges = {
        name: (int(np.searchsorted(codes, code)), int(np.searchsorted(codes, code, side="right")))
        for name, code in code_of_partition.items()
    }
    ordered = keys.select(data).take(pa.array(indices)).combine_chunks() if data else None
    is_pruned = prunes_buckets and not excludes and tells_bucket(table, set(data))
    return KeyGroups(
        keys=ordered,
        null_safe=null_safe,
        ranges=ranges,
        excludes=excludes,
        buckets=_buckets(table, ordered, ranges) if is_pruned and ordered is not None else {},
        num_buckets=table.num_buckets,
    )


def _buckets(
    table: AcidTable, keys: pa.Table, ranges: Mapping[str, tuple[int, int]]
) -> dict[str, frozenset[int]]:
    """Return the buckets of the keys by partition; leave out partitions with keys in all buckets."""
    try:
        bucket_ids = np.asarray(BucketIdResolver(table).resolve(keys))
    except RecordValueError:
        # A key that the column cannot hold (a day of the year 10000) equals no row and has no bucket.
        return {}
    of_range = {
        (start, stop): frozenset(np.unique(bucket_ids[start:stop]).tolist())
        for start, stop in set(ranges.values())
    }
    return {
        name: of_range[found] for name, found in ranges.items() if len(of_range[found]) < table.num_buckets
    }


def _partition_values(table: AcidTable, names: Sequence[str], keys: KeyFilter) -> list[pa.Array]:
    """Return the values of the partitions, one array per key column."""
    scalars = [partition_scalars(table, name) for name in names]
    types = {field.name: field.type for field in keys.keys.schema}
    return [pa.array([each[name].as_py() for each in scalars], types[name]) for name in keys.names]


def _checked(table: AcidTable, keys: pa.Table) -> pa.Table:
    """Return the keys with names in lower case. Raises RecordLayoutError if they do not fit the table."""
    names = [name.lower() for name in keys.column_names]
    columns = {c.name: c for c in table.all_columns}
    unknown = [name for name in names if name not in columns]
    if unknown or not names or len(set(names)) < len(names):
        raise RecordLayoutError(
            f"table {table.full_name}: keys {unknown or names}: each must be a column of the table and "
            f"occur once; the columns are {', '.join(columns)}"
        )
    for name, found in zip(names, keys.schema.types, strict=True):
        if found != key_type(columns[name]):
            raise RecordLayoutError(
                f"table {table.full_name}: keys of {name} {columns[name].type} have the Arrow type "
                f"{found}: convert them to {key_type(columns[name])}"
            )
    return keys.rename_columns(names)


def key_type(column: AcidColumn) -> pa.DataType:
    """Return the Arrow type that the keys of a column must have."""
    return arrow_type(parse_hive_type(column.type), timestamp_unit="us")


def in_key_types(table: AcidTable, keys: pa.Table) -> pa.Table:
    """Return keys, under the table's lower-case names, in the types of :func:`key_type`."""
    types = {column.name: key_type(column) for column in table.all_columns}
    return keys.cast(pa.schema([(name, types[name]) for name in keys.column_names]))


def _chunk(keys: pa.Table, name: str) -> pa.Array:
    column = keys.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def count_rows(
    directories: Directories,
    table: AcidTable,
    location: Location,
    valid: ValidIdList,
    valid_txns: ValidTxnList | None,
) -> int:
    """Count the rows of a partition that a snapshot sees: those in bases and deltas, less the deletes.

    Every delete applies to one row that is still in a file: writers lock what they delete, and a compaction
    that drops a row also drops its delete. It must not be used for tables of Hive 2, whose deltas mix inserts
    and deletes.

    Raises:
        CorruptFileError: If a file is not an ORC file.
        OSError: If a file cannot be read.

    Errors of :func:`~mutation_api.read.partition_files.list_partition_files` are passed on.
    """
    files = list_partition_files(directories, table, location, valid, valid_txns)
    deletes = [file for file in files if file.kind is EventFileKind.DELETE_DELTA]
    return count_events(files) - 2 * count_events(deletes)


def count_events(files: Iterable[EventFile]) -> int:
    """Return the number of events of some files, or of rows of plain ones, with one request per file."""
    return sum(
        read_tail(storage_at(file.location), file.location).row_count if file.byte_count else 0
        for file in files
    )
