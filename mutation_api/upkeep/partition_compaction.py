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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
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
from mutation_api.read.partition_files import list_partition_files
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.table_view import TableView, open_table
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable, WriterOptions
from mutation_api.transaction.committer import V2_MARK
from mutation_api.transaction.manifest import staging_directory
from mutation_api.transaction.snapshot import Snapshot
from mutation_api.transaction.staging import children_of
from mutation_api.upkeep.compacted_files import (
    CompactedFile,
    FilePlan,
    check_compacted,
    check_row_ids,
    write_compacted,
)

__all__ = ["COMPACTED_KINDS", "CompactedDirectory", "PartitionCompaction", "compactable_view"]

_log = logging.getLogger(__name__)

_COMPACTED_MARK = b'{"thisFileVersion":"0","dataFormat":"compacted"}'
"""The content of the marker in a compacted base of Hive 3."""

COMPACTED_KINDS = (CompactionType.MINOR, CompactionType.MAJOR)
"""The kinds of compactions that this library does."""


@dataclass(frozen=True)
class CompactedDirectory:
    """The result of one compaction. ``directory`` is None if there was nothing to compact.

    After a minor compaction, it is the delta; a delete delta of the same range may lie beside it.
    ``row_count`` and ``byte_count`` are those of the new directories; a row of a delta is an event.
    ``byte_count_before`` is the size of the files that it replaces. ``kept_for`` is the reason why obsolete
    files stay for now, '' if none is known: a change feed with a hold, before Hive 4 any open transaction.
    """

    table: str
    partition: str
    kind: str
    directory: str | None
    row_count: int = 0
    byte_count: int = 0
    byte_count_before: int = 0
    seconds: float = 0.0
    kept_for: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the result as a dict of JSON types only."""
        return {**vars(self), "seconds": round(self.seconds, 3)}

    def __str__(self) -> str:
        """Return one line, or two if old files are kept."""
        where = f"{self.table}/{self.partition}" if self.partition else self.table
        kept = f"\n{where}: its old files are kept: {self.kept_for}" if self.kept_for else ""
        if self.directory is None:
            return f"{where}: nothing to compact{kept}"
        return (
            f"{where}: wrote {self.directory}: {self.row_count:,} rows, {self.byte_count:,} bytes instead of "
            f"{self.byte_count_before:,} ({self.seconds:.1f} s){kept}"
        )


def compactable_view(
    metastore: MetastoreClient,
    snapshot: Snapshot,
    database: str,
    table: str,
    partition: str,
    up_to: int | None = None,
) -> TableView:
    """Return the view of a table that a compaction may rewrite: up to the first id that is open.

    Transactions with later ids may still write rows that a new base would hide. ``up_to`` may be a lower id.

    Raises:
        CompactionError: If the table is sorted, or the partition does not exist.
    """
    view = open_table(snapshot, f"{database}.{table}")
    if partition not in view.locations:
        raise CompactionError(f"table {view.table.full_name}: it no longer has a partition {partition!r}")
    if metastore.get_table(database, table).sort_columns:
        raise CompactionError(
            f"table {view.table.full_name} is sorted; Hive does not compact sorted tables either"
        )
    last = view.valid_ids.min_open - 1
    if up_to is not None:
        # Ids in a base cannot be taken out of it again.
        bases = [file.last for file in _files(view, partition) if not file.is_of_delta]
        last = min(last, max([up_to, *bases]))
    return dataclasses.replace(view, valid_ids=view.valid_ids.up_to(last))


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
        threads: number of files that are written at once.
        options: stripe size and compression of the new files.
    """

    kind: CompactionType
    view: TableView
    partition: str
    txn_id: int
    splits: tuple[SnapshotSplit, ...]
    files: tuple[EventFile, ...]
    threads: int
    options: WriterOptions

    @classmethod
    def planned(
        cls,
        kind: CompactionType,
        view: TableView,
        partition: str,
        txn_id: int,
        threads: int,
        options: WriterOptions,
    ) -> PartitionCompaction:
        """List the partition.

        Raises:
            CompactionError: If a base would cover ids that are still open.
            DirectoryStateError: If a snapshot could not read the partition.
        """
        splits, files = tuple(view.plan([partition])), tuple(_files(view, partition))
        high_watermark = view.valid_ids.high_watermark
        beyond = [each.location for each in files if each.last > high_watermark]
        if beyond and kind is CompactionType.MAJOR:
            raise CompactionError(
                f"table {view.table.full_name}: {beyond[0]} also has ids above {high_watermark}, up to which "
                "the partition is compacted: a streaming client still writes there, or a consumer of changes "
                "has read only a part of it. Compact when it has ended, or has read on"
            )
        return cls(kind, view, partition, txn_id, splits, files, threads, options)

    @property
    def is_needed(self) -> bool:
        """True if several directories would become one, or plain rows would get ROW__IDs."""
        if self.kind is CompactionType.MINOR:
            return len({(file.first, file.last) for file in self._joined}) > 1
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
        return sum(file.byte_count for file in self._joined)

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
        if self.kind is CompactionType.MAJOR:
            deltas = [each for each in others if isinstance(each, DeltaDirectory)]
            return [each for each in deltas if each.first <= self.last < each.last]
        first, last = min(file.first for file in self._joined), max(file.last for file in self._joined)

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
        return tuple(_files(self.view, self.partition)) == self.files

    def is_published(self, sizes: Mapping[Location, int]) -> bool:
        """Return True if the view reads files of these sizes in the partition, and no others."""
        found = {file.location: file.byte_count for file in _files(self.view, self.partition)}
        return found == sizes

    def _made(self) -> list[CompactedFile]:
        files = self._written()
        self.view.check()
        self._name(files)
        self._check(files)
        self.view.check()
        return files

    @property
    def _location(self) -> Location:
        return self.view.locations[self.partition]

    @property
    def _staging(self) -> Location:
        return staging_directory(self._location, self.txn_id)

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
    def _joined(self) -> list[EventFile]:
        """The files that the new ones replace."""
        if self.kind is CompactionType.MAJOR:
            return list(self.files)
        high_watermark = self.view.valid_ids.high_watermark
        return [file for file in self.files if file.is_of_delta and file.last <= high_watermark]

    def _plans(self) -> list[FilePlan]:
        if self.kind is CompactionType.MINOR:
            return self._minor_plans()
        txn_id = self.txn_id if self.view.table.version.is_hive_4 else 0
        directory = self._root / base_directory_name(self.last, txn_id)
        # A store without directories could not show an empty one.
        buckets = _by_bucket(self.view.table, self.splits) or {0: []}
        return [FilePlan(directory, bucket, tuple(splits)) for bucket, splits in sorted(buckets.items())]

    def _minor_plans(self) -> list[FilePlan]:
        joined, table = self._joined, self.view.table
        first, last = min(file.first for file in joined), max(file.last for file in joined)
        found: list[FilePlan] = []
        for name, is_delete in ((delta_directory_name, False), (delete_delta_directory_name, True)):
            directory = self._root / name(first, last, None, self.txn_id)
            files = [file for file in joined if (file.kind is EventFileKind.DELETE_DELTA) is is_delete]
            if table.version.has_row_ids:
                buckets = _by_bucket(table, self._of_each_bucket(files))
            else:
                buckets = _by_bucket(table, [s for s in self.splits if s.files[0] in files])
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
            return write_compacted(self.view.table, plan, self.view.valid_ids, self._hidden, self.options)

        return side_by_side(write, self._plans(), self.threads)

    def _name(self, files: list[CompactedFile]) -> None:
        storage, version = storage_at(self._location), self.view.table.version
        marks = {ACID_VERSION_FILE: V2_MARK} if version.encodes_buckets else {}
        if version.marks_bases and not version.is_hive_4:
            marks[BASE_MARKER] = _COMPACTED_MARK
        for directory in self.directories:
            storage.create_directory(directory)
            for name, content in marks.items():
                mark = storage.create(directory / name)
                mark.write(content)
                mark.close()
        side_by_side(lambda file: storage.publish(file.staged, file.target), files, storage.threads)
        for directory in self.directories:
            storage.sync_directory(directory)

    def _check(self, files: list[CompactedFile]) -> None:
        """Compare what a snapshot reads that sees the compaction with what was read before."""
        table, valid = self.view.table, self.view.valid_ids
        view = dataclasses.replace(self.view, locations={**self.view.locations, self.partition: self._root})
        now = _files(view, self.partition)
        joined = set(self._joined)
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

        def check(file: CompactedFile) -> None:
            self.view.check()
            found = tuple(each for each in now if each.location == file.target)
            split = SnapshotSplit(self.partition, self._location, file.plan.bucket_id, found)
            check_compacted(table, file, [split] if found else [], valid)

        side_by_side(check, files, self.threads)
        if self.kind is CompactionType.MINOR and table.version.has_row_ids:
            self._check_row_ids()

    def _check_row_ids(self) -> None:
        """Compare the ROW__IDs of all rows: the deletes in the new files may hit rows of the base."""
        table = self.view.table
        before = _by_bucket(table, self.splits)
        after = _by_bucket(table, self.view.plan([self.partition]))
        if before.keys() != after.keys():
            raise CompactionError(
                f"table {table.full_name}, {self._location}: there were files with rows of the buckets "
                f"{sorted(before)}, and after the compaction of {sorted(after)}. Report this"
            )

        def check(bucket: int) -> None:
            self.view.check()
            check_row_ids(table, before[bucket], after[bucket], self.view.valid_ids)

        side_by_side(check, sorted(before), self.threads)


def _files(view: TableView, partition: str) -> list[EventFile]:
    location = view.locations[partition]
    return list_partition_files(storage_at(location), view.table, location, view.valid_ids, view.valid_txns)


def _by_bucket(table: AcidTable, splits: Iterable[SnapshotSplit]) -> dict[int, list[SnapshotSplit]]:
    buckets: dict[int, list[SnapshotSplit]] = defaultdict(list)
    for split in splits:
        bucket = split.bucket_id
        if bucket < 0:
            if table.version.has_row_ids or table.is_bucketed:
                raise CompactionError(
                    f"{split.files[0].location} has no bucket in its name. Let Hive compact the partition"
                )
            bucket = 0  # without buckets, a file of an insert-only table may hold any row
        buckets[bucket].append(split)
    return buckets


def _remove(location: Location) -> None:
    try:
        storage_at(location).delete_directory(location)
    except OSError as error:
        _log.warning("could not remove %s: %s", location, error)
