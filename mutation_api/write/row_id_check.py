"""WantedRows: looks up the ROW__IDs of updates and deletes in the transaction's snapshot.

Only the ROW__IDs of the affected buckets are read. The ROW__IDs to look up must fit into memory; those that
are read need not fit.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError
from mutation_api.format.event import ADDED_OPERATION, Operation
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.snapshot_reader import read_split
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.address import (
    BUCKET,
    BUCKET_PROPERTY,
    ROW_NUMBER,
    TXN,
    UNKNOWN_ROWS_SHOWN,
    UnknownRow,
    numbers_of_partitions,
    unknown_rows_error,
)
from mutation_api.write.staged_writer import OpenTransaction, check_known_partitions
from mutation_api.write.writing_order import Watch, in_turn

_Numbers = NDArray[np.int64]
_Group = tuple[str, int]
"""Partition name ('' if the table has no partitions) and bucket id."""
_RowIds = tuple[_Numbers, _Numbers, _Numbers, _Numbers]
"""Original transaction, bucket field, row id and operation of n changes."""


class WantedRows:
    """The ROW__IDs of the updates and deletes of a change set. Threads may add to it.

    Args:
        table: a bound descriptor.
        memory_bytes: limit of the memory for them.
    """

    def __init__(self, table: AcidTable, memory_bytes: int) -> None:
        self._table = table
        self._memory_bytes = memory_bytes
        self._byte_count = 0
        self._mutex = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._batches: list[tuple[_Numbers, ...]] = []

    def add(self, addressed: pa.RecordBatch) -> None:
        """Add the updates and deletes among addressed changes.

        Raises:
            ConfigurationError: If they do not fit into memory.
        """
        existing = addressed.column(ADDED_OPERATION).to_numpy() != Operation.INSERT
        if not existing.any():
            return
        with self._mutex:
            partitions = numbers_of_partitions(addressed, self._number)
            parts = tuple(
                part[existing].astype(np.int64)
                for part in (
                    partitions,
                    *(
                        addressed.column(name).to_numpy()
                        for name in (BUCKET, TXN, BUCKET_PROPERTY, ROW_NUMBER, ADDED_OPERATION)
                    ),
                )
            )
            self._batches.append(parts)
            self._byte_count += sum(part.nbytes for part in parts)
            # Sorting and grouping them makes two copies.
            if 3 * self._byte_count > self._memory_bytes:
                count = sum(len(partitions) for partitions, *_ in self._batches)
                raise ConfigurationError(
                    f"table {self._table.full_name}: verify_row_ids must hold the ROW__IDs of all updates "
                    f"and deletes in memory, and {count:,} are too many: allow more with "
                    "LocalOptions(memory_bytes=...), or apply the changes with Spark"
                )

    def check(self, transaction: OpenTransaction, threads: int, watch: Watch) -> None:
        """Check that the snapshot of the transaction holds all of them.

        Raises:
            RowIdNotFoundError: If rows are missing (the message names the first few, with partition and
                bucket), or if their partition does not exist.
            DirectoryStateError, CorruptFileError: See :mod:`mutation_api.orc.read`.
            OSError: If the storage cannot be read.
        """
        groups = self._groups()
        if not groups:
            return
        names = sorted({name for name, _ in groups})
        check_known_partitions(transaction, self._table, names)
        view = open_table(transaction, self._table.full_name)
        splits = view.plan(names)
        by_group: dict[_Group, list[SnapshotSplit]] = defaultdict(list)
        for split in splits:
            by_group[split.partition_name, split.bucket_id].append(split)

        def not_there(group: _Group) -> list[UnknownRow]:
            look_up = _LookUp(groups[group])
            for split in by_group[group]:
                for batch in read_split(self._table, split, view.valid_ids, columns=(), row_ids=True):
                    watch.check()
                    look_up.see(*(np.asarray(part).astype(np.int64) for part in batch.column(0).flatten()))
            return [UnknownRow(group[0], *row) for row in look_up.unseen()]

        found = itertools.chain.from_iterable(in_turn(not_there, sorted(groups), threads, watch))
        unknown = list(itertools.islice(found, UNKNOWN_ROWS_SHOWN))
        if unknown:
            raise unknown_rows_error(self._table, unknown)

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _groups(self) -> dict[_Group, _RowIds]:
        """Group the changes by partition and bucket."""
        if not self._batches:
            return {}
        columns = [np.concatenate(parts) for parts in zip(*self._batches, strict=True)]
        self._batches.clear()
        order = np.lexsort(columns[4::-1])
        partitions, buckets, txns, fields, numbers, operations = (column[order] for column in columns)
        changed = (np.diff(partitions) != 0) | (np.diff(buckets) != 0)
        bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), len(partitions)]
        names = list(self._numbers)
        return {
            (names[partitions[start]], int(buckets[start])): (
                txns[start:end],
                fields[start:end],
                numbers[start:end],
                operations[start:end],
            )
            for start, end in itertools.pairwise(bounds)
        }


class _LookUp:
    """Records the rows of one group that were seen; the rows are sorted by ROW__ID."""

    def __init__(self, rows: _RowIds) -> None:
        self._rows = rows
        self._seen = np.zeros(len(rows[0]), np.bool_)
        self._ranges = {
            (int(rows[0][start]), int(rows[1][start])): (start, end) for start, end in _runs(*rows[:2])
        }

    def see(self, txns: _Numbers, fields: _Numbers, numbers: _Numbers) -> None:
        """Mark rows of the snapshot as seen; they are ordered by ROW__ID."""
        for start, end in _runs(txns, fields):
            wanted = self._ranges.get((int(txns[start]), int(fields[start])))
            if wanted is None:
                continue
            given, there = self._rows[2][slice(*wanted)], np.sort(numbers[start:end])
            places = np.searchsorted(there, given)
            places[places == len(there)] = 0
            self._seen[slice(*wanted)] |= there[places] == given

    def unseen(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield original transaction, bucket field, row id and operation of rows that were not seen."""
        for at in np.flatnonzero(~self._seen).tolist():
            txn, field, number, operation = (int(part[at]) for part in self._rows)
            yield txn, field, number, operation


def _runs(*parts: _Numbers) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of rows that are equal in all parts."""
    changed = np.logical_or.reduce([np.diff(part) != 0 for part in parts])
    return itertools.pairwise([0, *(np.flatnonzero(changed) + 1).tolist(), len(parts[0])])
