"""PastSnapshot: tables as they were, as far as their files still allow.

Hive deliberately keeps no history: a major compaction rewrites rows, and the cleaner removes the files that
were compacted. So a past state can be read only while the deltas in which it was written exist. A minor
compaction keeps every event with its id, so the past survives it (but not in insert-only tables, whose rows
have no ids).

No metastore call reports when a transaction committed. The times at which files were written are known: files
of one id shortly before its commit, files of a compaction after the commits of all ids in them. So an id
counts as present at a moment if its files had been written. A transaction that wrote before the moment and
committed after it therefore counts too early, by the duration of its commit. The clocks are those of the
storage.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from metastore_client.model import PartitionInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.errors import ConfigurationError, DirectoryStateError
from mutation_api.format.directory_state import COMPACTED, first_missing, spans
from mutation_api.format.layout import (
    BASE_MARKER,
    AcidVersion,
    BaseDirectory,
    DeltaDirectory,
    is_hidden,
    parse_directory_name,
)
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Storage
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable, SnapshotView
from mutation_api.transaction.snapshot import ClosedAtEnd, Snapshot


@dataclass(frozen=True)
class TimedDirectory:
    """A base or delta, with the time when its newest file was written, in seconds since 1970.

    ``is_compacted_base`` is True if a compaction wrote the base, False if an overwrite did.
    """

    directory: BaseDirectory | DeltaDirectory
    written: float
    is_compacted_base: bool = False

    def tells_time_of_id(self, version: AcidVersion) -> bool:
        """Return True if its files were written by the transaction of one id and not by a compaction."""
        directory = self.directory
        if isinstance(directory, BaseDirectory):
            return not self.is_compacted_base
        if directory.first != directory.last or directory.compaction_txn:
            return False
        # Before Hive 4, a compaction of several statements of one id has such a name too.
        return directory.statement_id is not None or version.is_hive_4

    @property
    def first(self) -> int:
        """The lowest id that the directory may hold."""
        return self.directory.first if isinstance(self.directory, DeltaDirectory) else 1


class UnknownTime(Exception):
    """Raised when a directory written after the moment holds ids whose times are not known."""

    def __init__(self, directory: TimedDirectory) -> None:
        super().__init__(directory.directory.name)
        self.directory = directory


def ids_at(
    moment: float, directories: Iterable[TimedDirectory], valid: ValidIdList, version: AcidVersion
) -> ValidIdList:
    """Return the ids of a table that existed at a moment: the ids of the list without those written later.

    Args:
        moment: seconds since 1970.
        directories: all bases and deltas of all partitions that the list's snapshot may read.
        valid: the ids that exist now.
        version: the layout of the table.

    Raises:
        UnknownTime: If these ids are no longer known. It contains the newest of several directories.
    """
    late: set[int] = set()
    known: set[int] = set()
    vague: list[TimedDirectory] = []
    for each in directories:
        if each.tells_time_of_id(version):
            known.add(each.directory.last)
            if each.written > moment:
                late.add(each.directory.last)
        elif each.written > moment:
            vague.append(each)
    unknown = [each for each in vague if _holds_unknown(each, known, valid)]
    if unknown:
        raise UnknownTime(max(unknown, key=lambda each: each.written))
    return valid.without(late)


def _holds_unknown(each: TimedDirectory, known: set[int], valid: ValidIdList) -> bool:
    """Return True if a directory may hold a committed id whose time no other directory shows."""
    last = min(each.directory.last, valid.high_watermark)
    invalid = sum(1 for id in valid.exceptions if each.first <= id <= last)
    told = sum(1 for id in known if each.first <= id <= last and valid.is_valid(id))
    return last - each.first + 1 - invalid - told > 0


AsOf = int | datetime.datetime | Mapping[str, int | datetime.datetime]
"""A point in the past: a write id of the one table (on Hive 2 a transaction id), a moment with a time zone
for all tables, or a mapping from table names to such points."""


class PastSnapshot(ClosedAtEnd):
    """The tables of an open snapshot without rows written after a point in the past.

    A transaction is included by its id, no matter how late it committed. For a moment, it is included by the
    time at which its files were written (see :mod:`.past_snapshot`). Partitions and columns are the current
    ones: a partition that was dropped since is missing, and so are rows that TRUNCATE removed.

    Created by ``client.open_snapshot(…, as_of=…)``. A context manager that closes the snapshot.

    Args:
        snapshot: an open snapshot.
        as_of: the point in the past; tables that a mapping does not name are read as they are.

    Raises:
        ConfigurationError: If an id is above every id that the snapshot sees or below 0, a moment has no time
            zone, an id is given for several tables, or a mapping names a table that is not in the snapshot.
        DirectoryStateError: If the files no longer show which ids existed at a moment. The message names the
            directory and the earliest moment that can be read.
        OSError: If a directory cannot be listed.
    """

    def __init__(self, snapshot: Snapshot, as_of: AsOf) -> None:
        self._snapshot = snapshot
        points = check_as_of(as_of, snapshot.table_names)
        self._ids = {name: ids_of_point(snapshot, name, point) for name, point in points.items()}

    @property
    def closed(self) -> bool:
        """True if the snapshot was closed."""
        return self._snapshot.closed

    @property
    def txn_id(self) -> int:
        """The id of the reading transaction."""
        return self._snapshot.txn_id

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The current transactions, which determine the compactions that have committed."""
        return self._snapshot.valid_txn_list

    def valid_ids(self, table: str) -> ValidIdList:
        """Return the ids in the table's files that the view sees."""
        now = self._snapshot.valid_ids(table)
        return self._ids.get(self.table(table).full_name, now)

    def table(self, table: str) -> AcidTable:
        """Return the descriptor of a table."""
        return self._snapshot.table(table)

    def partitions(self, table: str) -> Sequence[PartitionInfo]:
        """Return the partitions of a table as they are now."""
        return self._snapshot.partitions(table)

    def check(self) -> None:
        """Raise an error if the lock is lost."""
        self._snapshot.check()

    def close(self) -> None:
        """Close the snapshot."""
        self._snapshot.close()

    def check_history(self) -> None:
        """Raise an error if the past state may have lost rows.

        A compaction that ends later does no harm: under the snapshot's lock its input is not removed.

        Raises:
            DirectoryStateError: If a base holds ids of the past together with later ones, so that the
                directories it was created from may be gone. The message names it, and the lowest id that can
                be read.
        """
        check_history(self._snapshot, self._ids)


def check_history(
    view: SnapshotView, ids: Mapping[str, ValidIdList], is_kept: Callable[[str, str], bool] | None = None
) -> tuple[str, ...]:
    """Raise an error if a past state may have lost rows.

    Args:
        view: an open snapshot or transaction.
        ids: the ids of the past state, by full name of the table.
        is_kept: returns True if it is certain that no file of a table's partition has been removed since the
            past state. If None, this is never certain.

    Returns:
        The tables whose past state is only in directories that have since been replaced.

    Raises:
        DirectoryStateError: See :meth:`PastSnapshot.check_history`.
    """
    replaced = []
    for name, past in ids.items():
        table, now = view.table(name), view.valid_ids(name)
        missing = first_missing(past, now)
        if missing is None:
            continue
        found = [
            (partition, each.directory)
            for partition, listed in _listed(view, table).items()
            for each in listed
        ]
        spanning = [each for each in found if spans(each[1], past, missing, table.version)]
        lost = [each for each in spanning if is_kept is None or not is_kept(name, each[0])]
        if lost:
            oldest = max(directory.last for _, directory in lost)
            raise DirectoryStateError(_refusal(table, lost[0], missing, oldest))
        if spanning:
            replaced.append(name)
    return tuple(replaced)


def ids_of_point(view: SnapshotView, name: str, point: int | datetime.datetime) -> ValidIdList:
    """Return the ids of a table that existed at a point in the past.

    Args:
        view: an open snapshot or transaction.
        name: the full name of the table.
        point: an id, or a moment with a time zone.

    Raises:
        ConfigurationError: If an id is not in the range of the table's ids.
        DirectoryStateError: If the files no longer show which ids existed at a moment.
    """
    now = view.valid_ids(name)
    if isinstance(point, int):
        if not 0 <= point <= now.high_watermark:
            raise ConfigurationError(
                f"table {name} cannot be read as it was at id {point}: its ids range from 0 to "
                f"{now.high_watermark}"
            )
        return now.up_to(point)
    table = view.table(name)
    directories = [each for listed in _listed(view, table).values() for each in listed]
    try:
        return ids_at(point.timestamp(), directories, now, table.version)
    except UnknownTime as error:
        youngest = error.directory
        since = datetime.datetime.fromtimestamp(youngest.written, datetime.UTC)
        raise DirectoryStateError(
            f"table {name} cannot be read as it was at {point.isoformat()}: "
            f"{youngest.directory.name} was compacted after that, and the times when its ids "
            f"were committed are no longer known. Choose {since.isoformat(timespec='seconds')} or later, "
            "or an id (hive-mutate history lists them)"
        ) from error


def _listed(view: SnapshotView, table: AcidTable) -> dict[str, list[TimedDirectory]]:
    """Return the bases and deltas that the view may read, by partition."""
    names = [p.name for p in view.partitions(table.full_name)] if table.partition_keys else [""]
    now, txns = view.valid_ids(table.full_name), view.valid_txn_list

    def listed(name: str) -> list[TimedDirectory]:
        return _Listing(table.partition_location(name), table.version, now, txns).directories()

    found = side_by_side(listed, names, storage_at(table.location).threads)
    return dict(zip(names, found, strict=True))


def check_as_of(as_of: AsOf, table_names: Sequence[str]) -> dict[str, int | datetime.datetime]:
    """Return the point of each table, by full name. For ConfigurationError see :class:`PastSnapshot`."""
    if isinstance(as_of, Mapping):
        points = {name.strip().lower(): point for name, point in as_of.items()}
        unknown = sorted(points.keys() - set(table_names))
        if unknown:
            raise ConfigurationError(f"as_of names {', '.join(unknown)}, which the snapshot does not contain")
    elif isinstance(as_of, int) and len(table_names) > 1:
        raise ConfigurationError(
            f"as_of={as_of}: an id belongs to one table, but the snapshot contains {', '.join(table_names)}: "
            "pass an id for each table by name, or a moment"
        )
    else:
        points = dict.fromkeys(table_names, as_of)
    for name, point in points.items():
        if not isinstance(point, int | datetime.datetime):
            raise ConfigurationError(
                f"as_of={point!r} for {name}: expected an id, or a datetime with a time zone, such as "
                'datetime.fromisoformat("2026-03-01T12:00:00+00:00")'
            )
        if isinstance(point, datetime.datetime) and point.tzinfo is None:
            raise ConfigurationError(f"as_of={point.isoformat()} for {name}: the moment has no time zone")
    return points


@dataclass(frozen=True)
class _Listing:
    """Lists the directories of one partition."""

    location: Location
    version: AcidVersion
    valid: ValidIdList
    txns: ValidTxnList

    def directories(self) -> list[TimedDirectory]:
        """Return the partition's bases and deltas that a snapshot may read."""
        storage = storage_at(self.location)
        try:
            entries = storage.list(self.location)
        except FileNotFoundError:
            return []
        found = []
        for entry in entries:
            if not entry.is_directory or is_hidden(entry.name):
                continue
            directory = parse_directory_name(entry.name, self.version)
            if directory is not None and (not directory.compaction_txn or self._has_committed(directory)):
                timed = self._timed(storage, entry, directory)
                if not isinstance(directory, BaseDirectory) or self._is_readable(timed):
                    found.append(timed)
        return found

    def _has_committed(self, directory: BaseDirectory | DeltaDirectory) -> bool:
        return self.txns.is_valid(directory.compaction_txn)

    def _is_readable(self, base: TimedDirectory) -> bool:
        last = base.directory.last
        return base.is_compacted_base or self.valid.is_valid(last)

    def _timed(
        self, storage: Storage, entry: FileEntry, directory: BaseDirectory | DeltaDirectory
    ) -> TimedDirectory:
        try:
            files = storage.list(entry.location)
        except FileNotFoundError:
            files = []
        times = [file.modified for file in files if file.modified is not None and not is_hidden(file.name)]
        is_compacted = isinstance(directory, BaseDirectory) and (
            not self.version.marks_bases or bool(directory.compaction_txn) or _is_marked(storage, files)
        )
        return TimedDirectory(directory, max(times, default=entry.modified or 0.0), is_compacted)


def _is_marked(storage: Storage, files: Sequence[FileEntry]) -> bool:
    """Return True if a marker shows that a compaction wrote the base, or if the marker cannot be read."""
    for file in files:
        if file.name == BASE_MARKER:
            with storage.open_input(file.location) as stream:
                text = stream.read()
            try:
                return str(json.loads(text)["dataFormat"]) == COMPACTED
            except (ValueError, KeyError, TypeError):
                return True
    return False


def _refusal(
    table: AcidTable,
    spanning: tuple[str, BaseDirectory | DeltaDirectory],
    missing: int,
    oldest: int,
) -> str:
    name, directory = spanning
    where = f" partition {name}" if name else ""
    return (
        f"table {table.full_name}{where} cannot be read as it was before id {missing}: "
        f"{directory.name} holds rows from before and after it (after a compaction or an overwrite), so the "
        f"history is no longer complete. The lowest id that can still be read is {oldest}; or compare "
        "with a saved snapshot"
    )
