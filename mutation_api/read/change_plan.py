"""Find the splits of a table with changes between two snapshots, and the directories to read.

A base that a compaction wrote since the older snapshot has lost deletes. But the directories of which it was
made stay until the cleaner removes them. So such a base is left out, and the deltas are read instead. The
caller makes certain that none has been removed since the older snapshot: there was no such base when the lock
of the newer snapshot was already held, or a hold has kept the directories. Before Hive 4, a compaction may
publish a base at any time that an older snapshot may use, even between that check and this plan.

An overwrite also leaves the files with the earlier rows until the cleaner runs. They form a separate layer:
changes up to the overwrite, which deletes all rows that are left. The rows that it wrote are inserts, and the
first ones of the next layer.

A single missing directory would silently make the changes wrong. An id may have no file in a partition, so
the names do not show whether a directory is missing.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from metastore_client.valid_ids import RangeValidity, ValidIdList
from mutation_api.errors import DirectoryStateError
from mutation_api.format.directory_state import first_missing, is_compacted, spans
from mutation_api.format.layout import BaseDirectory, is_hidden, parse_directory_name
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.changes import SplitChanges
from mutation_api.read.partition_files import base_formats
from mutation_api.read.partition_plan import in_each_partition, plan_splits
from mutation_api.read.table_view import TableView
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.storage.tree import Directories, side_by_side
from mutation_api.table.acid_table import AcidColumn


def split_changes(
    view: TableView,
    before: ValidIdList,
    columns: Sequence[AcidColumn],
    *,
    until: ValidIdList | None = None,
    options: ReadOptions | None = None,
    transactions: Mapping[int, int] | None = None,
) -> list[SplitChanges]:
    """Return a reader for each split of a table in which something may have changed. Directories are listed.

    No file of the older snapshot or a later one may have been removed; see
    :func:`mutation_api.transaction.feed_position.check_complete`.

    Args:
        view: a view of the table.
        before: the ids of the older snapshot.
        columns: the data and partition columns of the rows, in order.
        until: the ids of the newer snapshot, all of which the view sees. If None, those of the view.
        options: the form of timestamps. If None, nanoseconds.
        transactions: the transactions of the table's ids, as far as they are known. Needed if there are bases
            that the older snapshot does not see.

    Raises:
        DirectoryStateError: See :func:`mutation_api.read.partition_plan.plan_splits`. Also if the older
            snapshot has seen an id above that of an overwrite that it has not seen, or if it is not known
            whether a base is an overwrite.
    """
    after = view.valid_ids if until is None else until
    missing = first_missing(before, after)
    if missing is None:
        return []
    plan = _ChangePlan(view, before, after, missing, transactions or {}, columns, options or ReadOptions())
    found = in_each_partition(view.table, view.locations, plan.splits, is_whole_table=True)
    return [each for each in found if each.may_have_changes]


def count_changes(readers: Sequence[SplitChanges]) -> Counter[int]:
    """Return the number of events of each id in several splits, which are read in parallel."""
    threads = max((storage_at(each.split.location).threads for each in readers), default=1)
    return sum(side_by_side(SplitChanges.counts, readers, threads), Counter[int]())


@dataclass(frozen=True)
class _ChangePlan:
    """A plan over all directories, including those that were replaced since the older snapshot.

    ``missing`` is the result of :func:`first_missing`.
    """

    view: TableView
    before: ValidIdList
    after: ValidIdList
    missing: int
    transactions: Mapping[int, int]
    columns: Sequence[AcidColumn]
    options: ReadOptions

    def splits(self, directories: Directories, name: str, location: Location) -> list[SplitChanges]:
        """Return the readers of a partition, layer by layer."""
        bases = self._bases(directories, location)
        overwrites = sorted(
            base.last
            for base, compacted in bases.items()
            if not compacted and self._is_new(base.last) and self.after.is_valid(base.last)
        )
        self._check_order(location, overwrites)
        found: list[SplitChanges] = []
        for first, last in zip([None, *overwrites], [*overwrites, None], strict=True):
            if first is None:
                left_out = {e.name for e, compacted in bases.items() if compacted or self._is_new(e.last)}
            else:
                left_out = {each.name for each, compacted in bases.items() if compacted or each.last != first}
            found += self._layer(_Chosen(directories, location, left_out, self), name, first, last)
        return found

    def _layer(
        self, directories: Directories, name: str, first: int | None, last: int | None
    ) -> Iterator[SplitChanges]:
        """Yield readers of the changes after an overwrite, if there is one, up to the next one, if any."""
        view = self.view
        after = self.after if last is None else self.after.up_to(last - 1)
        location = view.locations[name]
        for split in plan_splits(view.table, name, location, after, view.valid_txns, directories):
            if first is not None:
                files = tuple(_as_delta(file, first) for file in split.files)
                split = dataclasses.replace(split, files=files)
            yield SplitChanges(
                view.table, split, self.before, after, self.columns, self.options, wiped_by=last
            )

    def _bases(self, directories: Directories, location: Location) -> dict[BaseDirectory, bool]:
        """Return the bases of a partition from ``missing`` on, and those of them that a compaction wrote."""
        version = self.view.table.version
        names = [e.name for e in _listed(directories, location) if e.is_directory and not is_hidden(e.name)]
        bases = [
            each
            for name in names
            if isinstance(each := parse_directory_name(name, version), BaseDirectory)
            and each.last >= self.missing
            and self._has_committed(each)
        ]
        formats = base_formats(directories, location, [each.name for each in bases], version)
        return {
            each: is_compacted(each, version, formats, str(location))
            and not self._is_own_overwrite(each, location)
            for each in bases
        }

    def _has_committed(self, base: BaseDirectory) -> bool:
        return not base.compaction_txn or self.view.valid_txns.is_valid(base.compaction_txn)

    def _is_own_overwrite(self, base: BaseDirectory, location: Location) -> bool:
        """Return True if a base named like that of a compaction was written by the transaction of its id.

        Overwrites of this library have such names. A compaction has no id.
        """
        id = base.last
        if not base.compaction_txn or not self.after.is_valid(id):
            return False
        if (txn := self.transactions.get(id)) is None:
            raise DirectoryStateError(
                f"table {self.view.table.full_name}, {location / base.name}: the metastore has forgotten the "
                f"transaction of id {id}, so it is not known whether a compaction or an overwrite wrote this "
                'base. Start over (since="beginning")'
            )
        if txn != base.compaction_txn:
            return False
        if not (self.after.is_valid_base(id) and (self._is_new(id) or self.before.is_valid_base(id))):
            raise DirectoryStateError(
                f"table {self.view.table.full_name}, {location / base.name}: an id below {id} is still open, "
                "so readers do not see this overwrite yet. Try again when its transaction has ended"
            )
        return True

    def _is_new(self, id: int) -> bool:
        return not self.before.is_valid(id)

    def _check_order(self, location: Location, overwrites: Sequence[int]) -> None:
        seen = self.before
        for first in overwrites[:1]:
            if seen.range_validity(first, max(first, seen.high_watermark)) is not RangeValidity.NONE:
                raise DirectoryStateError(
                    f"table {self.view.table.full_name}, {location}: id {first} overwrote rows, and the "
                    'position has seen a higher id but not this one. Start over (since="beginning")'
                )


class _Chosen:
    """A listing of a partition without some of its directories."""

    def __init__(
        self, directories: Directories, location: Location, left_out: set[str], plan: _ChangePlan
    ) -> None:
        self._directories = directories
        self._location = location
        self._left_out = left_out
        self._plan = plan

    def list(self, directory: Location) -> list[FileEntry]:
        """Return the children of a directory."""
        found = self._directories.list(directory)
        if directory != self._location:
            return found
        return [each for each in found if not (each.is_directory and self._hides(each.name))]

    def open_input(self, location: Location) -> pa.NativeFile:
        """Return a stream over a file."""
        return self._directories.open_input(location)

    def _hides(self, name: str) -> bool:
        """Return True for directories that were left out, and for compacted deltas without row ids."""
        plan, version = self._plan, self._plan.view.table.version
        if name in self._left_out:
            return True
        if is_hidden(name) or version.has_row_ids:
            return False
        directory = parse_directory_name(name, version)
        if directory is None or isinstance(directory, BaseDirectory):
            return False
        return spans(directory, plan.before, plan.missing, version)


def _listed(directories: Directories, location: Location) -> list[FileEntry]:
    try:
        return directories.list(location)
    except FileNotFoundError:
        return []


def _as_delta(file: EventFile, overwrite: int) -> EventFile:
    """Return a file of the base that an overwrite wrote as one of a delta of its id."""
    if file.kind is EventFileKind.BASE:
        return dataclasses.replace(file, kind=EventFileKind.DELTA, first=overwrite, last=overwrite)
    if file.kind is EventFileKind.ORIGINAL and file.first == 0:
        return dataclasses.replace(file, first=overwrite, last=overwrite)
    return file
