"""Readers of a table's rows by key, in any process that has a view of the table or of some of its splits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from metastore_client.valid_ids import ValidIdList
from mutation_api.format.event import ROW_ID_COLUMN, Mask
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.key_groups import KeyGroups, group_keys
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.read_ahead import read_in_turn
from mutation_api.read.row_filter import RowFilter
from mutation_api.read.snapshot_reader import exact_rows, split_rows
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.bucket_resolver import Placement

BATCH_ROWS = 1 << 16


class PlannedView(Protocol):
    """The part of :class:`~mutation_api.read.table_view.TableView` that a merge needs."""

    @property
    def locations(self) -> Mapping[str, Location]:
        """The locations of the partitions by name; '' if the table is not partitioned."""
        ...

    @property
    def valid_ids(self) -> ValidIdList:
        """The ids whose rows are visible."""
        ...

    @property
    def check(self) -> Callable[[], None]:
        """The function that raises an error if the files are no longer protected."""
        ...

    def plan(self, names: Collection[str]) -> Sequence[SnapshotSplit]:
        """Return the splits of some partitions, in their order."""
        ...


@dataclass(frozen=True)
class Reading:
    """The choices that depend on the process that reads.

    Attributes:
        exact_timestamps: True to read nanoseconds where values have them. If False, such values are refused.
        in_one_pass: True to read rows with and without keys together, and to hold all of them.
        checks_rest: True to refuse rows without a key that lie in another bucket than that of their hash,
            where their key is sought.
        memory_bytes: limit of the source and the rows that are held. If None, the limit of the local engine.
        acts_on: returns a mask of the rows without a key that the process acts on. If None, all.
    """

    exact_timestamps: bool = True
    in_one_pass: bool = True
    checks_rest: bool = False
    memory_bytes: int | None = None
    acts_on: Callable[[pa.RecordBatch], Mask] | None = None


READING_DEFAULT = Reading()
"""The choices of a process that does the whole merge."""


@dataclass(frozen=True)
class KeyedSplits:
    """Splits that may hold rows to read, the keys that select the rows, and the names of the key columns.

    ``valid_ids`` are the ids whose rows are visible. Rows that do not meet ``where`` may be left out, if no
    keys select the rows.
    """

    splits: Sequence[SnapshotSplit]
    groups: KeyGroups
    key_names: Sequence[str]
    valid_ids: ValidIdList
    where: RowFilter | None = None

    @property
    def byte_count(self) -> int:
        """The size of the files, which are only read in part."""
        return sum(split.byte_count for split in self.splits)


@dataclass(frozen=True)
class TargetRows:
    """A reader of one table's rows in a snapshot.

    Attributes:
        view: the reader's view of the table.
        table: the table's descriptor.
        columns: names of the columns to read, in table order.
        prune_buckets: True to skip buckets to which no key hashes.
        threads: number of splits to decode at a time.
        exact_timestamps: see :class:`Reading`.
        checks_rows: True to refuse rows that are returned and do not lie in the bucket of their hash.
    """

    view: PlannedView
    table: AcidTable
    columns: Sequence[str]
    prune_buckets: bool
    threads: int
    exact_timestamps: bool = True
    checks_rows: bool = False

    def keyed(
        self, keys: pa.Table, partitions: Sequence[str], *, null_safe: bool, excludes: bool = False
    ) -> KeyedSplits:
        """Find the splits that may hold rows with one of the keys, or without any of them.

        Args:
            keys: the key columns, in the types of the table.
            partitions: names of the partitions to read; '' if the table is not partitioned.
            null_safe: True if NULL equals NULL.
            excludes: True to read the rows that have none of the keys.
        """
        table = self.table
        groups = group_keys(
            table,
            keys,
            partitions,
            null_safe=null_safe,
            excludes=excludes,
            prunes_buckets=self.prune_buckets,
        )
        return self._planned(partitions, groups, keys.column_names)

    def all_rows(self, partitions: Sequence[str], where: RowFilter | None = None) -> KeyedSplits:
        """Return all splits of some partitions, with all of their rows.

        Args:
            partitions: see :meth:`keyed`.
            where: rows that do not meet this condition may be left out. If None, no row is left out.
        """
        groups = KeyGroups(None, False, dict.fromkeys(partitions, (0, 0)), False, {}, self.table.num_buckets)
        return replace(self._planned(partitions, groups, ()), where=where)

    def _planned(self, partitions: Sequence[str], groups: KeyGroups, key_names: Sequence[str]) -> KeyedSplits:
        splits = self.view.plan([name for name in partitions if groups.has_partition(name)])
        wanted = tuple(split for split in splits if groups.has_split(split))
        return KeyedSplits(wanted, groups, key_names, self.view.valid_ids)

    def read(self, keyed: KeyedSplits) -> Iterator[pa.RecordBatch]:
        """Yield the selected rows split by split. For the columns, including ROW__ID, see :func:`split_rows`.

        A timestamp column has nanoseconds in batches whose values need them.
        """
        table, groups = self.table, keyed.groups
        wanted = set(self.columns)
        placing = {name.lower() for name in table.bucket_columns} if self.checks_rows else set()
        columns = [column for column in table.all_columns if column.name in wanted | placing]
        keys_have_clocks = any("timestamp" in c.type for c in columns if c.name in keyed.key_names)

        def read(split: SnapshotSplit) -> Iterator[pa.RecordBatch]:
            is_checked = groups.checks_placement(split)

            def rows(form: TimestampForm) -> Iterator[pa.RecordBatch]:
                options = ReadOptions(form, batch_rows=BATCH_ROWS)
                return split_rows(
                    table,
                    split,
                    keyed.valid_ids,
                    columns,
                    options,
                    groups,
                    where=keyed.where,
                    is_exact=False,
                    checks_placement=is_checked,
                )

            if not self.exact_timestamps:
                return rows(TimestampForm.MICROSECONDS)
            return exact_rows(rows, table, keys_have_clocks)

        with contextlib.closing(read_in_turn(keyed.splits, read, threads=self.threads)) as found:
            for split, rows in found:
                self.view.check()
                yield self._checked(split, rows) if self.checks_rows else rows

    def _checked(self, split: SnapshotSplit, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the requested columns of rows that must lie in the bucket of their hash."""
        found = dict(zip(rows.schema.names, rows.columns, strict=True))
        Placement(self.table, split.partition_name, split.bucket_id).check(found, str(split.location))
        return rows.select([name for name in rows.schema.names if name in {ROW_ID_COLUMN, *self.columns}])
