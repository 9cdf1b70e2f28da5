"""Checks of the files of one bucket together: duplicate ROW__IDs, wrong or repeated deletes, bucket hashes.

At most one stripe of keys of each file is in memory.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.format.event import Operation, bucket_ids
from mutation_api.format.hive_type import TypeFamily, parse_hive_type
from mutation_api.format.layout import AcidVersion
from mutation_api.format.merge_events import EventKeys, concatenate_keys, merge_legacy, order_of
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.file_merge import key_rounds
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.upkeep.verify.event_rules import Broken, twice_rule
from mutation_api.upkeep.verify.finding import Finding

_Mask = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class BucketResult:
    """The findings about a bucket's files together, and the number of rows that a snapshot sees in them."""

    findings: tuple[Finding, ...]
    row_count: int


class BucketCheck:
    """The examination of one bucket; used once.

    Args:
        partition: escaped name, for the findings.
        bucket_id: the bucket; deletes of other buckets are not examined.
        files: its files.
        valid: the ids that the snapshot sees.
        version: the layout of the table.
        base_last: highest id in the base. Deletes up to this id may refer to rows that the base no longer
            contains.
        any_bucket: True if deletes of the bucket may be in files of other buckets.
    """

    def __init__(
        self,
        partition: str,
        bucket_id: int,
        files: Sequence[EventFile],
        valid: ValidIdList,
        version: AcidVersion,
        *,
        base_last: int,
        any_bucket: bool,
    ) -> None:
        self._partition = partition
        self._bucket_id = bucket_id
        self._files = files
        self._valid = valid
        self._version = version
        self._base_last = base_last
        self._any_bucket = any_bucket
        self._positions: Counter[Location] = Counter()
        self._found: dict[tuple[str, Location], Finding] = {}
        self._counts: Counter[tuple[str, Location]] = Counter()

    def run(self) -> BucketResult:
        """Read the keys of all files and return the findings.

        Raises:
            MutationError: See :func:`~mutation_api.read.file_merge.key_rounds`.
        """
        storage = storage_at(self._files[0].location)
        row_count = 0
        for pieces in key_rounds(storage, self._files, self._version, any_bucket=self._any_bucket):
            round_ = _Round(pieces, self._positions, self._valid)
            row_count += self._split(round_) if self._version.splits_updates else self._legacy(round_)
            for file, keys in pieces:
                self._positions[file.location] += len(keys)
        found = (dataclasses.replace(f, count=self._counts[key]) for key, f in self._found.items())
        return BucketResult(tuple(found), row_count)

    def _split(self, events: _Round) -> int:
        """Check rows and deletes in different files, and return the number of rows that remain."""
        is_row = events.is_visible & ~events.is_delete
        is_delete = events.is_visible & events.is_delete
        self._report_twins(events, is_row, twice_rule(self._version), "another row with its ROW__ID")
        self._report_twins(
            events, is_delete & self._is_ours(events), "deleted-twice", "another delete of its row"
        )
        has_row = np.bincount(events.groups, weights=is_row, minlength=events.group_count) > 0
        has_delete = np.bincount(events.groups, weights=is_delete, minlength=events.group_count) > 0
        lost = is_delete & ~has_row[events.groups] & self._is_ours(events)
        self._report(events, lost & (events.keys.current_txn > self._base_last), "a delete of a missing row")
        return int((is_row & ~has_delete[events.groups]).sum())

    def _is_ours(self, events: _Round) -> _Mask:
        if not self._any_bucket:
            return np.ones(len(events.keys), np.bool_)
        ours: _Mask = bucket_ids(events.keys.bucket) == self._bucket_id
        return ours

    def _legacy(self, events: _Round) -> int:
        """Check all events of a row in one order, and return the number of rows that remain."""
        keys = events.keys
        is_first_event = (keys.operation == Operation.INSERT) | events.is_in_base
        is_row = events.is_visible & is_first_event
        self._report_twins(events, is_row, "key-twice", "another row with its ROW__ID")
        has_row = np.bincount(events.groups, weights=is_row, minlength=events.group_count) > 0
        lost = events.is_visible & ~is_first_event & ~has_row[events.groups]
        self._report(events, lost & (keys.current_txn > self._base_last), "a change of a missing row")
        return len(merge_legacy(keys, self._valid))

    def _report_twins(self, events: _Round, mask: _Mask, rule_name: str, found: str) -> None:
        """Report events whose key is also in another file; a file's own check finds duplicates within it."""
        order = events.order[mask[events.order]]
        groups, files = events.groups[order], events.files[order]
        is_twin = np.zeros(len(order), np.bool_)
        is_twin[1:] = (groups[1:] == groups[:-1]) & (files[1:] != files[:-1])
        self._keep(events, order[is_twin], rule_name, found, "one")

    def _report(self, events: _Round, mask: _Mask, found: str) -> None:
        self._keep(events, np.flatnonzero(mask), "delete-hits-nothing", found, "the row in a base or delta")

    def _keep(
        self, events: _Round, indices: NDArray[np.int64], rule_name: str, found: str, expected: str
    ) -> None:
        for number in np.unique(events.files[indices]):
            of_file = indices[events.files[indices] == number]
            file, position = events.place(int(of_file[0]))
            at = (rule_name, file.location)
            self._counts[at] += len(of_file)
            if at not in self._found:
                key = events.keys.key(int(of_file[0]))
                self._found[at] = Finding(
                    rule_name,
                    self._partition,
                    file.location,
                    found,
                    expected,
                    None if file.kind is EventFileKind.ORIGINAL else position,
                    (key.original_txn, key.bucket, key.row_id),
                )


class _Round:
    """All events of some rows: n events of several files, grouped by row."""

    def __init__(
        self,
        pieces: Sequence[tuple[EventFile, EventKeys]],
        positions: Counter[Location],
        valid: ValidIdList,
    ) -> None:
        self._pieces = pieces
        self._starts = np.cumsum([0, *(len(keys) for _, keys in pieces)])
        self._positions = _positions(pieces, positions)
        self.keys = concatenate_keys([keys for _, keys in pieces])
        counts = [len(keys) for _, keys in pieces]
        self._piece_of = np.repeat(np.arange(len(pieces)), counts)
        self.files = np.repeat(_file_numbers(pieces), counts)
        self.is_visible = _visible(self.keys.current_txn, valid)
        self.is_delete = self._of_kinds(EventFileKind.DELETE_DELTA)
        self.is_in_base = self._of_kinds(EventFileKind.BASE, EventFileKind.ORIGINAL)
        self.order = order_of(self.keys)
        in_order = self.keys.take(self.order)
        is_new = np.ones(len(self.keys), np.bool_)
        is_new[1:] = (
            (in_order.original_txn[1:] != in_order.original_txn[:-1])
            | (in_order.bucket[1:] != in_order.bucket[:-1])
            | (in_order.row_id[1:] != in_order.row_id[:-1])
        )
        self.groups = np.empty(len(self.keys), np.int64)
        self.groups[self.order] = np.cumsum(is_new) - 1
        self.group_count = int(is_new.sum())

    def place(self, index: int) -> tuple[EventFile, int]:
        """Return the file of an event, and its position there."""
        number = int(self._piece_of[index])
        return self._pieces[number][0], self._positions[number] + index - int(self._starts[number])

    def _of_kinds(self, *kinds: EventFileKind) -> _Mask:
        of_piece = np.array([file.kind in kinds for file, _ in self._pieces], np.bool_)
        return of_piece[self._piece_of]


def _positions(pieces: Sequence[tuple[EventFile, EventKeys]], before: Counter[Location]) -> list[int]:
    """Return the position in its file of the first event of each piece."""
    reached = Counter(before)
    positions = []
    for file, keys in pieces:
        positions.append(reached[file.location])
        reached[file.location] += len(keys)
    return positions


def _file_numbers(pieces: Sequence[tuple[EventFile, EventKeys]]) -> list[int]:
    """Return a number for each piece, the same for pieces of the same file."""
    numbers: dict[Location, int] = {}
    return [numbers.setdefault(file.location, len(numbers)) for file, _ in pieces]


def _visible(ids: NDArray[np.int64], valid: ValidIdList) -> _Mask:
    unique, inverse = np.unique(ids, return_inverse=True)
    of_unique = np.array([valid.is_valid(int(id)) for id in unique], np.bool_)
    return of_unique[inverse]


class HashCheck:
    """Compares rows with their buckets. Threads may share it."""

    def __init__(self, table: AcidTable, resolver: BucketIdResolver) -> None:
        self._names = [name.lower() for name in table.bucket_columns]
        self._resolver = resolver
        self._rule_name = "bucket-hash-old" if table.keeps_misplaced_rows else "bucket-hash"

    @classmethod
    def of(cls, table: AcidTable) -> HashCheck | None:
        """Create a check; None if the table is not bucketed, or its hash is undefined or of timestamps.

        Timestamps are read in microseconds, and their hash of version 1 depends on the zone of Hive's
        processes.
        """
        kinds = [parse_hive_type(c.type).family for c in table.columns if c.name in table.bucket_columns]
        if not table.is_bucketed or not table.version.has_row_ids or TypeFamily.TIMESTAMP in kinds:
            return None
        try:
            return cls(table, BucketIdResolver(table))
        except (ConfigurationError, TableNotMutableError):
            return None

    def misplaced(
        self, columns: Mapping[str, pa.Array], has_row: NDArray[np.bool_], bucket_id: int
    ) -> Broken | None:
        """Return rows of a bucket that hash to another one; None if there are none.

        Args:
            columns: the table's columns by name, n values each.
            has_row: True for values that are rows; shape (n,).
            bucket_id: the bucket that contains them.
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
