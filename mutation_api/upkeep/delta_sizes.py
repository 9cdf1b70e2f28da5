"""The sizes of the deltas and bases of a table's partitions, which show what to compact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.key_groups import count_events
from mutation_api.read.partition_files import list_partition_files
from mutation_api.read.table_view import TableView
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import Directories, directories_below, side_by_side


@dataclass(frozen=True)
class FileSizes:
    """The number of some files, their bytes, and their rows (None if rows were not counted).

    In a delta a row is an event, in a delete delta a delete.
    """

    file_count: int = 0
    byte_count: int = 0
    row_count: int | None = 0

    def __add__(self, other: FileSizes) -> FileSizes:
        """Return the sizes of both together; rows are unknown if they are unknown in either."""
        rows = (self.row_count, other.row_count)
        return FileSizes(
            self.file_count + other.file_count,
            self.byte_count + other.byte_count,
            None if rows[0] is None or rows[1] is None else rows[0] + rows[1],
        )


@dataclass(frozen=True)
class DeltaSizes:
    """The files of one partition that a snapshot reads.

    ``partition`` is its escaped name, '' for an unpartitioned table. ``base`` has the base, and files of
    plain rows outside deltas. ``inserts`` has the deltas, which in ``legacy`` tables of Hive 2 hold all
    events. ``deletes`` has the delete deltas. ``directory_count`` is the number of delta and delete delta
    directories.
    """

    partition: str
    base: FileSizes
    inserts: FileSizes
    deletes: FileSizes
    directory_count: int

    @property
    def deltas(self) -> FileSizes:
        """The size of everything that a major compaction would merge into the base."""
        return self.inserts + self.deletes


def delta_sizes(view: TableView, *, counts_rows: bool = True) -> list[DeltaSizes]:
    """Return files, bytes and rows of a table's deltas and bases, as a snapshot reads them.

    Args:
        view: the table and its snapshot; see :func:`~mutation_api.read.table_view.open_table`.
        counts_rows: True to read the number of rows from each file's footer, with one request per file.
            Otherwise directories are only listed.

    Returns:
        One entry for each partition, by name, including partitions without files.

    Raises:
        DirectoryStateError: If Hive would fail on a directory, or lose or duplicate rows.
        CorruptFileError: If a file is not an ORC file.
        OSError: If the storage cannot be read.
    """
    listed = [_listed_root(view, place) for place in view.locations.values()]
    directories = directories_below(listed)
    threads = storage_at(view.table.location).threads

    def sizes(partition: tuple[str, Location]) -> DeltaSizes:
        return _sizes_of(view, partition, directories, counts_rows=counts_rows)

    return side_by_side(sizes, sorted(view.locations.items()), threads)


def _listed_root(view: TableView, location: Location) -> Location:
    """Return the table's location if the partition is in it, so that the table is listed in one request."""
    return view.table.location if location.is_within(view.table.location) else location


def _sizes_of(
    view: TableView, partition: tuple[str, Location], directories: Directories, *, counts_rows: bool
) -> DeltaSizes:
    name, location = partition
    files = list_partition_files(directories, view.table, location, view.valid_ids, view.valid_txns)
    in_deltas = [file for file in files if file.is_of_delta]
    deletes = [file for file in in_deltas if file.kind is EventFileKind.DELETE_DELTA]
    inserts = [file for file in in_deltas if file.kind is not EventFileKind.DELETE_DELTA]
    base = [file for file in files if file not in in_deltas]
    return DeltaSizes(
        partition=name,
        base=_sum(base, counts_rows=counts_rows),
        inserts=_sum(inserts, counts_rows=counts_rows),
        deletes=_sum(deletes, counts_rows=counts_rows),
        directory_count=len({file.location.parent for file in in_deltas}),
    )


def _sum(files: Sequence[EventFile], *, counts_rows: bool) -> FileSizes:
    rows = count_events(files) if counts_rows else None
    return FileSizes(len(files), sum(file.byte_count for file in files), rows)
