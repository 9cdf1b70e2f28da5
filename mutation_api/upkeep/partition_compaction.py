"""PartitionCompaction: writes, publishes and checks the files of one compaction of a partition.

A major compaction writes one base in place of everything. A minor one joins the deltas above the base to one
delta and one delete delta. Each directory that it joins lies within the range of ids of the new one, so
readers no longer choose it.

Directories whose highest id is above the compaction's ids are not joined: a streaming client that has written
them may still add rows.

On Hive 4 a new directory has the compaction's transaction in its name, so it is published before the commit.
Before Hive 4 it is hidden until :mod:`.unqueued_compaction` renames it.

Source: Hive's CompactorMR (2.3, 3.1), MRCompactor and MinorQueryCompactor (4.x).
"""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from metastore_client.model import CompactionType
from mutation_api.errors import CompactionError
from mutation_api.format.layout import (
    ACID_VERSION_FILE,
    BASE_MARKER,
    BaseDirectory,
    DeltaDirectory,
    base_directory_name,
    delete_delta_directory_name,
    delta_directory_name,
    is_hidden,
    parse_directory_name,
)
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.orc.write.encoders import BYTES_PER_GIVING_BACK, give_back
from mutation_api.read.partition_plan import SnapshotSplit, splits_of
from mutation_api.read.table_view import TableView
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import side_by_side
from mutation_api.transaction.committer import V2_MARK
from mutation_api.transaction.manifest import staging_of
from mutation_api.transaction.staging import children_of
from mutation_api.upkeep.compacted_files import (
    CompactedFile,
    FilePlan,
    check_compacted,
    check_row_ids,
    write_compacted,
)
from mutation_api.upkeep.compaction_terms import CompactionSettings
from mutation_api.upkeep.compaction_view import files_read, splits_by_bucket
from mutation_api.upkeep.rebalance import RebalancedRows, check_rebalanced, parse_sort_by, write_rebalanced

_log = logging.getLogger(__name__)

_COMPACTED_MARK = b'{"thisFileVersion":"0","dataFormat":"compacted"}'
"""The content of the marker in a compacted base of Hive 3."""


def _nothing() -> None:
    """Ask nobody: nothing becomes visible by the work of this class."""


COMPACTED_KINDS = (CompactionType.MINOR, CompactionType.MAJOR, CompactionType.REBALANCE)
"""The kinds of compactions that this library does."""


@dataclass(frozen=True)
class PartitionCompaction:
    """The compaction of one partition.

    Attributes:
        kind: one of :data:`COMPACTED_KINDS`.
        view: the table as the compaction reads it; all ids up to its high watermark have ended.
        partition: the escaped name of the partition; '' for an unpartitioned table.
        txn_id: the transaction under which files are staged, on Hive 4 also in the names of new directories.
        splits: what the view reads of the partition.
        files: the same as files.
        settings: how to compact.
        confirm: asks the server whether the transaction is alive, and raises if it is not. The server may
            have forgotten a transaction that it aborted, and then readers take its directories for committed.
    """

    kind: CompactionType
    view: TableView
    partition: str
    txn_id: int
    splits: tuple[SnapshotSplit, ...]
    files: tuple[EventFile, ...]
    settings: CompactionSettings
    confirm: Callable[[], None] = field(default=_nothing, compare=False)

    @classmethod
    def planned(
        cls,
        kind: CompactionType,
        view: TableView,
        partition: str,
        txn_id: int,
        settings: CompactionSettings,
        confirm: Callable[[], None] = _nothing,
    ) -> PartitionCompaction:
        """List the partition.

        Raises:
            CompactionError: If a base would cover ids that are still open.
            DirectoryStateError: If a snapshot could not read the partition.
        """
        files = tuple(files_read(view, partition))
        splits = tuple(splits_of(view.table, partition, view.locations[partition], files))
        settings.check_kind(kind)
        high_watermark = view.valid_ids.high_watermark
        beyond = [each.location for each in files if each.last > high_watermark]
        if beyond and kind is not CompactionType.MINOR:
            raise CompactionError(
                f"table {view.table.full_name}: {beyond[0]} also has ids above {high_watermark}, up to which "
                "the partition is compacted: a streaming client still writes there, or a consumer of changes "
                "has read only a part of it. Compact when it has ended, or has read on"
            )
        work = cls(kind, view, partition, txn_id, splits, files, settings, confirm)
        if kind is CompactionType.REBALANCE:
            work._check_can_rebalance()
        return work

    def _check_can_rebalance(self) -> None:
        table, last = self.view.table, self.view.valid_ids.high_watermark
        if table.is_bucketed or not table.version.has_row_ids:
            why = (
                "has buckets, and each row stays in the one of its key"
                if table.is_bucketed
                else "is insert-only"
            )
            raise CompactionError(
                f"table {table.full_name} {why}: only tables without buckets are rebalanced"
            )
        later = [each.name for each in self._directories_now() if each.last > last]
        if later:
            raise CompactionError(
                f"table {table.full_name}, {self._location / later[0]}: it was written after id {last}, up "
                "to which the partition would get new ROW__IDs, and may refer to old ones. Rebalance when "
                "earlier transactions have ended"
            )
        parse_sort_by(table, self.settings.sort_by)

    @property
    def is_needed(self) -> bool:
        """True if several directories would become one, or plain rows would get ROW__IDs, or to rebalance."""
        if self.kind is CompactionType.REBALANCE:
            return bool(self.files)
        if self.kind is CompactionType.MINOR:
            return len({(file.first, file.last) for file in self.joined}) > 1
        has_plain_files = any(file.kind is EventFileKind.ORIGINAL for file in self.files)
        has_plain_files &= self.view.table.version.has_row_ids
        return has_plain_files or len({file.location.parent for file in self.files}) > 1

    @property
    def has_unread(self) -> bool:
        """True if there are directories of events that the snapshot does not read."""
        return len({file.location.parent for file in self.files}) < len(self._directories_now())

    @property
    def byte_count(self) -> int:
        """The size of the files that it replaces."""
        return sum(file.byte_count for file in self.joined)

    @property
    def directories(self) -> list[Location]:
        """The new directories: the base, or the delta before the delete delta."""
        return list(dict.fromkeys(plan.directory for plan in self._plans()))

    def publish(self) -> list[CompactedFile]:
        """Write, publish and check the new files. On any error they are removed. For Hive 4."""
        try:
            return self._made()
        except BaseException:
            self.remove()
            raise
        finally:
            _remove(self._staging)

    def prepare(self) -> list[CompactedFile]:
        """Write and check the new base in a hidden directory. Before Hive 4; see :meth:`discard`."""
        try:
            return self._made()
        except BaseException:
            self.discard()
            raise

    def remove(self) -> None:
        """Remove the new directories. A failure is only logged: the server's cleaner removes them later."""
        for directory in self.directories:
            _remove(directory)

    def discard(self) -> None:
        """Remove what is hidden. A failure is only logged: the next transaction removes it."""
        _remove(self._staging)

    def rivals(self) -> list[BaseDirectory | DeltaDirectory]:
        """Return what other compactions have written since, beside which readers would read rows twice.

        These are directories that share ids with the new ones without covering them. The server gives a
        partition to one worker at a time, but to another one if the first seems to be dead.
        """
        others = [
            each
            for each in self._directories_now()
            if each.compaction_txn not in (0, self.txn_id)
            and not self.view.valid_txns.is_valid(each.compaction_txn)
        ]
        if self.kind is CompactionType.REBALANCE:  # even the same rows have other ROW__IDs there
            return others
        if self.kind is CompactionType.MAJOR:
            deltas = [each for each in others if isinstance(each, DeltaDirectory)]
            return [each for each in deltas if each.first <= self.last < each.last]
        first, last = min(file.first for file in self.joined), max(file.last for file in self.joined)

        def shares_ids(other: BaseDirectory | DeltaDirectory) -> bool:
            if isinstance(other, BaseDirectory):
                return first <= other.last < last
            return other.first <= last and first <= other.last

        return [each for each in others if shares_ids(each)]

    def _directories_now(self) -> list[BaseDirectory | DeltaDirectory]:
        """Return the directories of the partition that have ids in their names."""
        entries = children_of(storage_at(self._location), self._location)
        names = [each.name for each in entries if each.is_directory and not is_hidden(each.name)]
        parsed = [parse_directory_name(each, self.view.table.version) for each in names]
        return [each for each in parsed if each is not None]

    def is_unchanged(self) -> bool:
        """Return True if the view would still read the files that were planned."""
        return tuple(files_read(self.view, self.partition)) == self.files

    def is_published(self, sizes: Mapping[Location, int]) -> bool:
        """Return True if the view reads files of these sizes in the partition, and no others."""
        found = {file.location: file.byte_count for file in files_read(self.view, self.partition)}
        return found == sizes

    def _made(self) -> list[CompactedFile]:
        if self.kind is CompactionType.REBALANCE:
            return self._rebalanced()
        files = self._written()
        self.view.check()
        self._name(files)
        self._check(files)
        self.view.check()
        return files

    def _rebalanced(self) -> list[CompactedFile]:
        table, settings = self.view.table, self.settings
        count = settings.num_buckets or len({each.bucket_id for each in self.splits}) or 1
        keys = parse_sort_by(table, settings.sort_by)
        storage_at(self._hidden).create_directory(self._hidden)
        with RebalancedRows(table, self.splits, self.view.valid_ids, count, keys) as rows:
            files = write_rebalanced(rows, self.directories[0], self._hidden, settings.options)
            self.view.check()
            self._name(files)
            now = self._files_now(files)
            check_rebalanced(rows, files, splits_of(table, self.partition, self._location, now))
        self.view.check()
        return files

    @property
    def _location(self) -> Location:
        return self.view.locations[self.partition]

    @property
    def _staging(self) -> Location:
        return staging_of(self.view.table, self._location, self.txn_id)

    @property
    def _hidden(self) -> Location:
        return self._staging / "compaction" / "0"

    @property
    def _root(self) -> Location:
        """The directory in which the new directories are created."""
        is_named_by_txn = self.view.table.version.is_hive_4
        return self._location if is_named_by_txn else self._staging / "compaction" / "1"

    @property
    def last(self) -> int:
        """The highest id in the name of a new base.

        Hive 4 takes the compaction's highest id, earlier releases the highest one of a directory.
        """
        if self.view.table.version.is_hive_4:
            return self.view.valid_ids.high_watermark
        return max(file.last for file in self.files)

    @property
    def joined(self) -> list[EventFile]:
        """The files that the new ones replace."""
        if self.kind is not CompactionType.MINOR:
            return list(self.files)
        high_watermark = self.view.valid_ids.high_watermark
        return [file for file in self.files if file.is_of_delta and file.last <= high_watermark]

    def _plans(self) -> list[FilePlan]:
        if self.kind is CompactionType.MINOR:
            return self._minor_plans()
        txn_id = self.txn_id if self.view.table.version.is_hive_4 else 0
        directory = self._root / base_directory_name(self.last, txn_id)
        # A store without directories could not show an empty one.
        buckets = splits_by_bucket(self.view.table, self.splits) or {0: []}
        return [FilePlan(directory, bucket, tuple(splits)) for bucket, splits in sorted(buckets.items())]

    def _minor_plans(self) -> list[FilePlan]:
        joined, table = self.joined, self.view.table
        first, last = min(file.first for file in joined), max(file.last for file in joined)
        found: list[FilePlan] = []
        for name, is_delete in ((delta_directory_name, False), (delete_delta_directory_name, True)):
            directory = self._root / name(first, last, None, self.txn_id)
            files = [file for file in joined if (file.kind is EventFileKind.DELETE_DELTA) is is_delete]
            if table.version.has_row_ids:
                buckets = splits_by_bucket(table, self._of_each_bucket(files))
            else:
                buckets = splits_by_bucket(table, [s for s in self.splits if s.files[0] in files])
            found += [
                FilePlan(directory, bucket, tuple(splits), table.version.has_row_ids)
                for bucket, splits in sorted(buckets.items())
            ]
        return found

    def _of_each_bucket(self, files: Iterable[EventFile]) -> list[SnapshotSplit]:
        buckets: dict[int, list[EventFile]] = defaultdict(list)
        for file in files:
            buckets[file.bucket_id].append(file)
        return [
            SnapshotSplit(self.partition, self._location, bucket, tuple(found))
            for bucket, found in buckets.items()
        ]

    def _written(self) -> list[CompactedFile]:
        storage_at(self._hidden).create_directory(self._hidden)

        def write(plan: FilePlan) -> CompactedFile:
            self.view.check()
            written = write_compacted(
                self.view.table, plan, self.view.valid_ids, self._hidden, self.settings.options
            )
            self._give_back(written)
            return written

        return side_by_side(write, self._plans(), self.settings.threads)

    @staticmethod
    def _give_back(file: CompactedFile) -> None:
        """Otherwise the process keeps the peak of every large file."""
        if file.byte_count >= BYTES_PER_GIVING_BACK:
            give_back()

    def _name(self, files: list[CompactedFile]) -> None:
        """Let the new directories appear, each with all its files in one step if the storage can rename.

        A worker that was suspended may have lost its transaction. So it asks the server just before, and
        again just after. If the answer is no, the caller removes the directories.
        """
        storage, version = storage_at(self._location), self.view.table.version
        marks = {ACID_VERSION_FILE: V2_MARK} if version.encodes_buckets else {}
        if version.marks_bases and not version.is_hive_4:
            marks[BASE_MARKER] = _COMPACTED_MARK
        built = self._staging / "compaction" / "2" if storage.has_directories else self._root
        for directory in self.directories:
            storage.create_directory(built / directory.name)
            for name, content in marks.items():
                mark = storage.create(built / directory.name / name)
                mark.write(content)
                mark.close()
        if not storage.has_directories:
            self.confirm()

        def publish(file: CompactedFile) -> None:
            storage.publish(file.staged, built / file.plan.directory.name / file.target.name)

        side_by_side(publish, files, storage.threads)
        if storage.has_directories:
            for directory in self.directories:
                storage.sync_directory(built / directory.name)
            storage.create_directory(self._root)
            self.confirm()
            for directory in self.directories:
                storage.publish_directory(built / directory.name, directory)
        self.confirm()

    def _check(self, files: list[CompactedFile]) -> None:
        """Compare what a snapshot reads that sees the compaction with what was read before."""
        table, valid = self.view.table, self.view.valid_ids
        now = self._files_now(files)

        def check(file: CompactedFile) -> None:
            self.view.check()
            found = tuple(each for each in now if each.location == file.target)
            split = SnapshotSplit(self.partition, self._location, file.plan.bucket_id, found)
            check_compacted(table, file, [split] if found else [], valid)
            self._give_back(file)

        side_by_side(check, files, self.settings.threads)
        if self.kind is CompactionType.MINOR and table.version.has_row_ids:
            self._check_row_ids()

    def _files_now(self, files: list[CompactedFile]) -> list[EventFile]:
        """Return the files that a snapshot reads that sees the compaction. Refuse others than expected."""
        table = self.view.table
        view = dataclasses.replace(self.view, locations={**self.view.locations, self.partition: self._root})
        now = files_read(view, self.partition)
        joined = set(self.joined)
        expected = {file.location for file in self.files if file not in joined}
        expected |= {file.target for file in files}
        unexpected = sorted(expected ^ {file.location for file in now})
        # A file of an insert-only table without rows may be left out.
        empty = {file.target for file in files if not file.row_count}
        if any(each not in empty for each in unexpected):
            raise CompactionError(
                f"table {table.full_name}, {self._location}: a snapshot that sees the compaction would read "
                f"other files than expected: {', '.join(map(str, unexpected))}. No row was changed, and the "
                "new files are removed. If a streaming client writes to the table, wait until it has ended"
            )
        return now

    def _check_row_ids(self) -> None:
        """Compare the ROW__IDs of all rows: the deletes in the new files may hit rows of the base."""
        table = self.view.table
        before = splits_by_bucket(table, self.splits)
        after = splits_by_bucket(table, self.view.plan([self.partition]))
        if before.keys() != after.keys():
            raise CompactionError(
                f"table {table.full_name}, {self._location}: there were files with rows of the buckets "
                f"{sorted(before)}, and after the compaction of {sorted(after)}. Report this"
            )

        def check(bucket: int) -> None:
            self.view.check()
            check_row_ids(table, before[bucket], after[bucket], self.view.valid_ids)

        side_by_side(check, sorted(before), self.settings.threads)


def _remove(location: Location) -> None:
    try:
        storage_at(location).delete_directory(location)
    except OSError as error:
        _log.warning("could not remove %s: %s", location, error)
