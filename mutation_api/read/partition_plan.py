"""Plans for reading a snapshot of a table's partitions: the files that make up each bucket.

:func:`plan_splits` plans one partition; :func:`plan_partitions` plans many and lists their directories in
parallel. A split is a small value that can be converted to a string, so another process may read it
(:mod:`.snapshot_reader`). Insert-only tables have neither events nor ROW__IDs: each of their files is a
split.

The plan is rejected if Hive would silently lose or duplicate rows: delta buckets beyond the table's bucket
count, original files with rows that an event would match twice.

Source: Hive's OrcInputFormat (split generation; 2.3, 3.1, 4.x).
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.errors import DirectoryStateError
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.partition_files import list_partition_files
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import Directories, directories_below, side_by_side
from mutation_api.table.acid_table import AcidTable

_T = TypeVar("_T")


@dataclass(frozen=True)
class SnapshotSplit:
    """The files of one (partition, bucket) that one reader merges.

    ``partition_name`` is the escaped name, '' for an unpartitioned table. ``bucket_id`` is -1 for plain files
    without a bucket in their name.
    """

    partition_name: str
    location: Location
    bucket_id: int
    files: tuple[EventFile, ...]

    @property
    def byte_count(self) -> int:
        """The total size of the split's files."""
        return sum(file.byte_count for file in self.files)

    def is_of_bucket(self, num_buckets: int) -> bool:
        """Return True if the split should hold rows of exactly one of the table's buckets.

        Plain files may hold any rows, because they were loaded, or written before the table was
        transactional. The same applies to a bucket that the table no longer has.
        """
        has_plain_files = any(file.kind is EventFileKind.ORIGINAL for file in self.files)
        return 0 <= self.bucket_id < num_buckets and not has_plain_files

    def to_json(self) -> str:
        """Return the split as one line of JSON."""
        value = {
            "partition_name": self.partition_name,
            "location": str(self.location),
            "bucket_id": self.bucket_id,
            "files": [_file_to_json(file, self.location) for file in self.files],
        }
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SnapshotSplit:
        """Parse the result of :meth:`to_json`.

        Raises DirectoryStateError, with the string, if it is invalid.
        """
        try:
            value = json.loads(text)
            location = Location.parse(value.pop("location"))
            files = tuple(_file_from_json(each, location) for each in value.pop("files"))
            return cls(**value, location=location, files=files)
        except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError) as error:
            raise DirectoryStateError(f"not a snapshot split: {text[:200]!r} ({error})") from error


def _file_to_json(file: EventFile, root: Location) -> dict[str, object]:
    """Return a file as JSON, with its path relative to the partition, which keeps the string short.

    A staged file need not lie below the partition.
    """
    is_below = file.location.is_within(root)
    name = file.location.relative_to(root) if is_below else str(file.location)
    ids = [file.first, file.last, file.statement_id]
    return {
        "name": name,
        "is_below": is_below,
        "kind": file.kind.value,
        "bucket_id": file.bucket_id,
        "ids": ids,
        "length": file.length,
        "bytes": file.byte_count,
    }


def _file_from_json(value: Mapping[str, Any], root: Location) -> EventFile:
    first, last, statement_id = value["ids"]
    kind = EventFileKind(value["kind"])
    return EventFile(
        root / value["name"] if value["is_below"] else Location.parse(value["name"]),
        kind,
        value["bucket_id"],
        first,
        last,
        statement_id,
        value["length"],
        value["bytes"],
    )


def takes_deletes_of_all_buckets(table: AcidTable) -> bool:
    """Return True if the deletes of a split's rows may lie in files of any bucket."""
    return table.version.scatters_deletes and not table.is_bucketed


def plan_splits(
    table: AcidTable,
    partition_name: str,
    location: Location,
    valid: ValidIdList,
    valid_txns: ValidTxnList | None = None,
    directories: Directories | None = None,
    own_files: Sequence[EventFile] = (),
) -> list[SnapshotSplit]:
    """Return the splits that a snapshot reads of one partition: one for each bucket with files, by bucket id.

    It lists directories, and opens only side files.

    Args:
        table: the table, whose version and bucket count are used.
        partition_name: the escaped name, '' for an unpartitioned table.
        location: the partition's location. A partition whose directory is missing has no rows.
        valid: the ids that the snapshot sees: the table's write ids, in v1 transactions.
        valid_txns: the transactions that it sees. Required with Hive 4, whose compacted directories have the
            compaction's transaction in their names.
        directories: lists directories. If None, the storage itself does.
        own_files: staged files of the reader's own transaction.

    Raises:
        DirectoryStateError: If Hive would fail on the directory, or would lose or duplicate rows.
    """
    directories = directories or storage_at(location)
    files = [*list_partition_files(directories, table, location, valid, valid_txns), *own_files]
    return splits_of(table, partition_name, location, files)


def splits_of(
    table: AcidTable, partition_name: str, location: Location, files: Sequence[EventFile]
) -> list[SnapshotSplit]:
    """Return the splits of the files that a snapshot reads of one partition.

    Raises:
        DirectoryStateError: If Hive would lose or duplicate rows.
    """
    if not table.version.has_row_ids:
        return [SnapshotSplit(partition_name, location, f.bucket_id, (f,)) for f in files]
    buckets: dict[int, list[EventFile]] = defaultdict(list)
    for file in files:
        buckets[file.bucket_id].append(file)
    if takes_deletes_of_all_buckets(table):
        deletes = [f for f in files if f.kind is EventFileKind.DELETE_DELTA]
        for bucket_id, found in buckets.items():
            found += [f for f in deletes if f.bucket_id != bucket_id]
    for bucket_id, found in buckets.items():
        _check_bucket(table, location, bucket_id, found)
    return [
        SnapshotSplit(partition_name, location, bucket_id, group)
        for bucket_id, found in sorted(buckets.items())
        for group in _groups(found, table.version)
    ]


def plan_partitions(
    table: AcidTable,
    locations: Mapping[str, Location],
    valid: ValidIdList,
    valid_txns: ValidTxnList | None,
    *,
    is_whole_table: bool,
    own_files: Mapping[str, Sequence[EventFile]] | None = None,
) -> list[SnapshotSplit]:
    """Return the splits that a snapshot reads of several partitions.

    Args:
        table: the partitions' table.
        locations: the locations of the partitions by name; '' for an unpartitioned table.
        valid: the ids that the snapshot sees. See :func:`plan_splits`.
        valid_txns: the transactions that it sees. See :func:`plan_splits`.
        is_whole_table: True if these are all partitions, so that everything below the table's location may be
            listed.
        own_files: staged files of the reader's own transaction, by partition.

    Returns:
        Splits by partition, in the given order.

    Raises:
        DirectoryStateError: See :func:`plan_splits`.
    """

    def plan(directories: Directories, name: str, location: Location) -> list[SnapshotSplit]:
        own = (own_files or {}).get(name, ())
        return plan_splits(table, name, location, valid, valid_txns, directories, own)

    return in_each_partition(table, locations, plan, is_whole_table=is_whole_table)


def in_each_partition(
    table: AcidTable,
    locations: Mapping[str, Location],
    plan: Callable[[Directories, str, Location], Iterable[_T]],
    *,
    is_whole_table: bool,
) -> list[_T]:
    """Return what a function finds in partitions, in their order. Several are listed at a time.

    Args:
        table: see :func:`plan_partitions`.
        locations: see :func:`plan_partitions`.
        plan: called with a listing, the name and the location of each partition.
        is_whole_table: see :func:`plan_partitions`.
    """
    listed: Iterable[Location] = locations.values()
    if is_whole_table:
        listed = [table.location if each.is_within(table.location) else each for each in listed]
    directories = directories_below(listed)
    threads = storage_at(table.location).threads
    found = side_by_side(lambda each: plan(directories, *each), locations.items(), threads)
    return [each for of_partition in found for each in of_partition]


def _check_bucket(table: AcidTable, location: Location, bucket_id: int, files: Sequence[EventFile]) -> None:
    originals = [f for f in files if f.kind is EventFileKind.ORIGINAL]
    has_base = bool(originals) or any(f.kind is EventFileKind.BASE for f in files)
    events = [f for f in files if f.kind in (EventFileKind.DELTA, EventFileKind.DELETE_DELTA)]
    if events and bucket_id >= table.num_buckets and not has_base and not table.version.splits_updates:
        raise DirectoryStateError(
            f"table {table.full_name}: {events[0].location} belongs to bucket {bucket_id}, but the table "
            f"has {table.num_buckets} buckets, so Hive 2.3 never reads the file: its rows are silently "
            "lost. If the table once had more buckets, ALTER TABLE … CLUSTERED BY (…) INTO … BUCKETS "
            "makes them readable again"
        )
    merged = [f for f in events if f.kind is EventFileKind.DELETE_DELTA or not table.version.splits_updates]
    if not merged or table.version.numbers_files_through:
        return
    misplaced = [f for f in originals if f.location.parent != location]
    if misplaced or len(originals) > 1:
        raise DirectoryStateError(
            f"table {table.full_name}: {(misplaced or originals[1:])[0].location} is one of "
            f"{len(originals)} original file(s) of bucket {bucket_id}, and {merged[0].location} has events "
            "for that bucket. Hive 2.3 duplicates or loses rows if a bucket has several original files or "
            "one in a subdirectory. Let Hive compact the table before changing it"
        )


def _groups(files: Sequence[EventFile], version: AcidVersion) -> Iterator[tuple[EventFile, ...]]:
    """Yield groups of files that are merged with each other.

    If original files of one bucket have the same ROW__IDs, each file is read alone. :func:`_check_bucket` has
    checked that no events apply to them.
    """
    originals = [f for f in files if f.kind is EventFileKind.ORIGINAL]
    alone = originals if len(originals) > 1 and not version.numbers_files_through else []
    yield from ((f,) for f in alone)
    rest = tuple(f for f in files if f not in alone)
    if any(f.kind is not EventFileKind.DELETE_DELTA for f in rest):
        yield rest


@dataclass(frozen=True)
class ScanExplanation:
    """The parts of a table that a scan reads and leaves out. Made by ``TableScan.explain``.

    Attributes:
        table: ``database.table``.
        where: the condition, if there is one.
        partition_count: number of partitions; 1 in an unpartitioned table.
        partitions_read: number of those that may have rows.
        file_count: number of files in these partitions, including those of deletes.
        byte_count: their size.
        stripe_count: number of stripes in these files.
        stripes_read: number of those that may have rows.
        columns: the columns that are read from each of these stripes.
        late_columns: the columns that are read from a stripe only if it has a row that meets the condition.
    """

    table: str
    where: str | None
    partition_count: int
    partitions_read: int
    file_count: int
    byte_count: int
    stripe_count: int
    stripes_read: int
    columns: tuple[str, ...]
    late_columns: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return it as a dict of JSON types only."""
        found = dataclasses.asdict(self)
        return {name: list(each) if isinstance(each, tuple) else each for name, each in found.items()}

    def __str__(self) -> str:
        """Return a few lines."""
        lines = [
            f"{self.table}{f' where {self.where}' if self.where else ''}",
            f"partitions: {self.partitions_read:,} of {self.partition_count:,}",
            f"files in these: {self.file_count:,}, {self.byte_count:,} bytes",
            f"stripes: {self.stripes_read:,} of {self.stripe_count:,}",
            f"columns: {', '.join(self.columns) or 'none'}",
        ]
        if self.late_columns:
            lines.append(f"only from stripes with such rows: {', '.join(self.late_columns)}")
        return "\n".join(lines)
