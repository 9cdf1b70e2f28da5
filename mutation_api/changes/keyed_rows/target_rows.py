"""Reads the rows of the table that a merge needs, several splits side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mutation_api.change_set.staged_writer import OpenTransaction
from mutation_api.changes.keyed_rows.exact_timestamps import exact_rows
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.reader.key_groups import KeyGroups, group_keys
from mutation_api.reader.partition_plan import plan_partitions
from mutation_api.reader.read_ahead import read_in_turn
from mutation_api.reader.snapshot_split import SnapshotSplit
from mutation_api.reader.split_rows import split_rows
from mutation_api.table.acid_table import AcidTable

__all__ = ["KeyedSplits", "TargetRows"]

BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class KeyedSplits:
    """Splits that may hold wanted rows, and the keys that say which rows are, with their columns' names."""

    splits: Sequence[SnapshotSplit]
    groups: KeyGroups
    key_names: Sequence[str]

    @property
    def byte_count(self) -> int:
        """Size of the files, which are read in part."""
        return sum(split.byte_count for split in self.splits)


@dataclass(frozen=True)
class TargetRows:
    """Reads rows of one table in a transaction's snapshot.

    Attributes:
        transaction: begun; the table is one of its sinks.
        table: its descriptor.
        columns: names of the columns to read, in table order.
        prune_buckets: leave out buckets to which no key hashes.
        threads: number of splits that are decoded at a time.
    """

    transaction: OpenTransaction
    table: AcidTable
    columns: Sequence[str]
    prune_buckets: bool
    threads: int

    def keyed(
        self, keys: pa.Table, partitions: Sequence[str], *, null_safe: bool, excludes: bool = False
    ) -> KeyedSplits:
        """Find the splits that may hold rows with one of the keys, or with none.

        Args:
            keys: a column for each key column, in the types of the table.
            partitions: names of the partitions that count; '' for an unpartitioned table.
            null_safe: whether NULL equals NULL.
            excludes: whether the rows that have none of the keys are wanted.
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

    def all_rows(self, partitions: Sequence[str]) -> KeyedSplits:
        """All splits of some partitions, and all of their rows.

        Args:
            partitions: as of :meth:`keyed`.
        """
        groups = KeyGroups(None, False, dict.fromkeys(partitions, (0, 0)), False, {}, self.table.num_buckets)
        return self._planned(partitions, groups, ())

    def _planned(self, partitions: Sequence[str], groups: KeyGroups, key_names: Sequence[str]) -> KeyedSplits:
        table = self.table
        locations = {
            name: table.partition_location(name) for name in partitions if groups.has_partition(name)
        }
        known = self.transaction.partitions(table.full_name) if table.partition_keys else ()
        splits = plan_partitions(
            table,
            locations,
            self.transaction.valid_ids(table.full_name),
            self.transaction.valid_txn_list,
            is_whole_table=2 * len(locations) >= len(known),
        )
        wanted = tuple(split for split in splits if groups.has_split(split))
        return KeyedSplits(wanted, groups, key_names)

    def read(self, keyed: KeyedSplits) -> Iterator[pa.RecordBatch]:
        """The wanted rows, split by split; their columns include ROW__ID, see :func:`split_rows`.

        A column of timestamps has nanoseconds in some batches if values there need it.
        """
        table, groups = self.table, keyed.groups
        valid_ids = self.transaction.valid_ids(table.full_name)
        wanted = set(self.columns)
        columns = [column for column in table.all_columns if column.name in wanted]
        keys_have_clocks = any("timestamp" in c.type for c in columns if c.name in keyed.key_names)

        def read(split: SnapshotSplit) -> Iterator[pa.RecordBatch]:
            is_checked = groups.checks_placement(split)

            def rows(form: TimestampForm) -> Iterator[pa.RecordBatch]:
                options = ReadOptions(form, batch_rows=BATCH_ROWS)
                return split_rows(
                    table, split, valid_ids, columns, options, groups, checks_placement=is_checked
                )

            return exact_rows(rows, table, keys_have_clocks)

        with contextlib.closing(read_in_turn(keyed.splits, read, threads=self.threads)) as found:
            for _, rows in found:
                self.transaction.check()
                yield rows
