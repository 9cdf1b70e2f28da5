"""Counts the events of each id in a partition's directories."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mutation_api.acid.event import CURRENT_TRANSACTION, OPERATION, Operation
from mutation_api.acid.layout import (
    BaseDirectory,
    DeltaDirectory,
    is_hidden,
    parse_bucket_file_name,
    parse_directory_name,
)
from mutation_api.acid.version import AcidVersion
from mutation_api.errors import CorruptFileError, DirectoryStateError
from mutation_api.orc.format.tail import read_tail
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.event_reader import event_fields
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry

__all__ = ["DirectoryFacts", "EventCounts", "PartitionEvents", "partition_events"]


@dataclass(frozen=True)
class EventCounts:
    """Events of one id in one partition. ``updates`` is 0 where an update is a delete and an insert."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    def __add__(self, other: EventCounts) -> EventCounts:
        """The sums."""
        return EventCounts(
            self.inserts + other.inserts, self.updates + other.updates, self.deletes + other.deletes
        )


@dataclass(frozen=True)
class DirectoryFacts:
    """A base or delta: its files, and when the youngest was written (seconds since 1970)."""

    name: str
    directory: BaseDirectory | DeltaDirectory
    file_count: int
    byte_count: int
    written: float | None


@dataclass
class PartitionEvents:
    """One partition: events by id, the directories, and what could not be read.

    An id's events come from its own directories if they are still there, else from deltas that a compaction
    made; events that a base took in are not counted.
    """

    partition: str
    counts: dict[int, EventCounts] = field(default_factory=dict)
    directories: list[DirectoryFacts] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def partition_events(partition: str, location: Location, version: AcidVersion) -> PartitionEvents:
    """Read the footers of deltas of one id, and two columns of those of several.

    Raises OSError: a directory cannot be listed.
    """
    result = PartitionEvents(partition)
    storage = storage_at(location)
    try:
        entries = storage.list(location)
    except FileNotFoundError:
        return result
    own: Counter[int] = Counter()
    compacted: dict[int, EventCounts] = defaultdict(EventCounts)
    for entry in entries:
        if not entry.is_directory or is_hidden(entry.name):
            continue
        try:
            directory = parse_directory_name(entry.name, version)
        except DirectoryStateError as error:
            result.problems.append(str(error))
            continue
        if directory is None:
            continue
        files = _files(entry)
        times = [file.modified for file in files if file.modified is not None]
        result.directories.append(
            DirectoryFacts(
                entry.name, directory, len(files), sum(f.size for f in files), max(times, default=None)
            )
        )
        if not isinstance(directory, DeltaDirectory):
            continue
        for file in files:
            try:
                for id, counts in _events(file, directory, version):
                    if directory.first == directory.last:
                        own[id] += 1
                        result.counts[id] = result.counts.get(id, EventCounts()) + counts
                    else:
                        compacted[id] += counts
            except (CorruptFileError, DirectoryStateError) as error:
                result.problems.append(str(error))
    result.counts |= {id: counts for id, counts in compacted.items() if not own[id]}
    return result


def _files(directory: FileEntry) -> list[FileEntry]:
    try:
        entries = storage_at(directory.location).list(directory.location)
    except FileNotFoundError:
        return []
    return [e for e in entries if not e.is_directory and not is_hidden(e.name)]


def _events(
    file: FileEntry, directory: DeltaDirectory, version: AcidVersion
) -> Iterator[tuple[int, EventCounts]]:
    if not file.size:
        return
    is_plain = parse_bucket_file_name(file.name, version) is None
    if directory.first == directory.last and (version.splits_updates or is_plain):
        count = read_tail(storage_at(file.location), file.location).row_count
        kind = EventCounts(deletes=count) if directory.is_delete else EventCounts(inserts=count)
        yield directory.last, kind
        return
    if is_plain:
        return  # rows of several ids, without their ids
    source = OrcInput(storage_at(file.location), file.location, None, ReadOptions())
    if not source.stripe_count:
        return
    fields = event_fields(source, version)
    names = [fields[OPERATION], fields[CURRENT_TRANSACTION]]
    for index in range(source.stripe_count):
        batch = source.read_stripe(index, names)
        operations = batch.column(names[0]).to_numpy(zero_copy_only=False)
        ids = batch.column(names[1]).to_numpy(zero_copy_only=False)
        for id in np.unique(ids):
            of_id = operations[ids == id]
            yield int(id), EventCounts(*(int((of_id == code).sum()) for code in Operation))
