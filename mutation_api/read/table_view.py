"""TableView: a reader's view of one table: its descriptor, locations of its partitions, and valid ids.

:func:`open_table` makes a view from a transaction or a snapshot that a client opened.
:func:`mutation_api.read.directory_scan.open_directory` makes one from a directory without a metastore.
Readers treat both in the same way.

:class:`PlannedFiles` are the files that a scan reads, and the ids whose rows are visible. Conditions on the
values of partitions are applied here. Packages that only some forms of rows need are imported when such a
form is requested.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Protocol, runtime_checkable

from metastore_client.valid_ids import RangeValidity, ValidIdList, ValidTxnList
from mutation_api.errors import ConfigurationError
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.key_groups import count_events
from mutation_api.read.partition_plan import SnapshotSplit, plan_partitions
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable, SnapshotView
from mutation_api.table.partition import parse_partition_name
from mutation_api.table.partition_value import partition_value, stored_partition_value


def _nothing() -> None:
    """Check nothing, because the files are not protected."""


@runtime_checkable
class SeesOwnFiles(Protocol):
    """A transaction, which sees its own writes."""

    def own_files(self, table: str) -> Mapping[str, Sequence[EventFile]]:
        """Return the staged files of one of its tables, by (escaped) partition."""
        ...


@dataclass(frozen=True)
class TableView:
    """A reader's view of one table.

    Attributes:
        table: the table's descriptor.
        locations: the locations of the partitions by (escaped) name. In a table without partition keys, the
            only name is ''.
        valid_ids: the visible ids in its files: write ids, in version 1 transaction ids.
        valid_txns: the visible transactions. They determine which compactions have committed.
        own_files: staged files of the reader's own transaction, by partition; ``valid_ids`` has their id.
        check: raises if the files are no longer protected. See ``SnapshotView.check``.
    """

    table: AcidTable
    locations: Mapping[str, Location]
    valid_ids: ValidIdList
    valid_txns: ValidTxnList
    own_files: Mapping[str, Sequence[EventFile]] = field(default_factory=dict)
    check: Callable[[], None] = field(default=_nothing, compare=False)

    def plan(self, names: Collection[str] | None = None) -> list[SnapshotSplit]:
        """Return the splits of some partitions, in their order. If None, of all partitions.

        Raises:
            DirectoryStateError: See :func:`mutation_api.read.partition_plan.plan_splits`.
        """
        chosen = self.locations if names is None else {name: self.locations[name] for name in names}
        return plan_partitions(
            self.table,
            chosen,
            self.valid_ids,
            self.valid_txns,
            # One listing of the whole table is faster than many of its partitions. The view of a compaction
            # has only some of them.
            is_whole_table=len(chosen) > 1 and 2 * len(chosen) >= len(self.locations),
            own_files=self.own_files,
        )


def partition_names(view: SnapshotView, table: str) -> list[str]:
    """Return the (escaped) names of a table's partitions that a view sees; none if it has no partition keys.

    A transaction also sees the partitions into which it has written.
    """
    own = view.own_files(table) if isinstance(view, SeesOwnFiles) else {}
    return [*dict.fromkeys((*(p.name for p in view.partitions(table)), *filter(None, own)))]


def open_table(view: SnapshotView, table: str) -> TableView:
    """Return the view that a transaction or an open snapshot has of one of its tables.

    Read it while the snapshot or transaction is open, because its lock protects the files only until then.

    Args:
        view: the result of ``client.open_snapshot("db.table")``, or a begun transaction that declared the
            table.
        table: ``database.table``.

    Raises:
        ConfigurationError: If the table was not declared.
        TransactionStateError: If the snapshot or transaction is not open.
    """
    acid_table = view.table(table)
    names = partition_names(view, table) if acid_table.partition_keys else [""]
    own_files = view.own_files(acid_table.full_name) if isinstance(view, SeesOwnFiles) else {}
    valid_ids = view.valid_ids(acid_table.full_name)
    return TableView(
        acid_table,
        {name: acid_table.partition_location(name) for name in names},
        valid_ids.including(acid_table.required_write_id()) if own_files else valid_ids,
        view.valid_txn_list,
        own_files,
        view.check,
    )


def table_bytes(view: TableView) -> int:
    """Return the size of the files that hold the visible rows.

    It lists directories, and raises like a scan of the view.
    """
    return sum(split.byte_count for split in view.plan())


PartitionCondition = tuple[str, object]
"""A partition column (in any case) and the value that it must have."""


def matching_partitions(
    table: AcidTable, names: Iterable[str], conditions: Sequence[PartitionCondition]
) -> list[str]:
    """Return the partitions for which all conditions hold.

    Args:
        table: the table of the partitions.
        names: escaped names of the partitions.
        conditions: all must hold, even if several are on one column. A string is parsed as the column's type,
            as Hive does (``("hr", "1")`` finds ``hr=01``). Any other value is compared as it is, with the
            type that :func:`~mutation_api.table.partition_value.partition_value` returns. None, '' and the
            name of the default partition mean the default partition.

    Raises:
        ConfigurationError: If the table does not have the partition column.
        RecordValueError: If a string cannot be parsed as the column's type.
    """
    types = [parse_hive_type(key.type) for key in table.partition_keys]
    wanted = [_typed(table, *condition) for condition in conditions]

    def matches(name: str) -> bool:
        texts = parse_partition_name(name)
        return all(
            stored_partition_value(texts[at], types[at], table.null_partition_text) == value
            for at, value in wanted
        )

    return [name for name in names if matches(name)]


def _typed(table: AcidTable, name: str, value: object) -> tuple[int, object]:
    """Return the index of the partition column of a condition, and its typed value."""
    try:
        at = table.partition_key_names.index(name.strip().lower())
    except ValueError:
        raise ConfigurationError(
            f"where_partition {name}={value}: table {table.full_name} has the partition columns "
            f"{', '.join(table.partition_key_names) or '(none)'}"
        ) from None
    hive_type = parse_hive_type(table.partition_keys[at].type)
    if isinstance(value, str):
        value = partition_value(value, hive_type, table.null_partition_text)
    return at, value


@dataclass(frozen=True)
class PlannedFiles:
    """The files of a scan by partition and bucket, as they were listed.

    Attributes:
        splits: the files.
        valid_ids: the ids whose rows are visible.
    """

    splits: tuple[SnapshotSplit, ...]
    valid_ids: ValidIdList

    def have_rows_of(self, others: PlannedFiles) -> bool:
        """Return True if a scan finds the same rows in both.

        This is certain if they have the same files, and all rows in these files are visible.
        """
        files = [file for split in self.splits for file in split.files]
        return self.splits == others.splits and all(
            each._counts_whole(file) for each in (self, others) for file in files
        )

    def row_counts(self) -> dict[str, int] | None:
        """Count the visible rows of each partition from the tails of its files, with one request per file.

        Partitions without rows are left out. None if a file also holds rows that are not visible. For tables
        of Hive 4; see :func:`mutation_api.read.key_groups.count_rows`.

        Raises:
            CorruptFileError: If a file is not an ORC file.
            OSError: If a file cannot be read.
        """
        files = [(split.partition_name, file) for split in self.splits for file in split.files]
        if not all(map(self._counts_whole, (file for _, file in files))):
            return None
        counts: dict[str, int] = {}
        for (name, file), count in zip(files, self._event_counts(), strict=True):
            is_delete = file.kind is EventFileKind.DELETE_DELTA
            counts[name] = counts.get(name, 0) + (-count if is_delete else count)
        return {name: count for name, count in counts.items() if count}

    def counted(self, version: AcidVersion) -> tuple[int, PlannedFiles]:
        """Count rows from the tails of files, with one request per file, where these show their number.

        That is where all events are inserts, and all of them are visible.

        Returns:
            The number of these rows, and the files of the buckets that must be read to count theirs.

        Raises:
            CorruptFileError: If a file is not an ORC file.
            OSError: If a file cannot be read.
        """

        def shows_rows(file: EventFile) -> bool:
            is_base = file.kind in (EventFileKind.BASE, EventFileKind.ORIGINAL)
            has_inserts = is_base or (file.kind is EventFileKind.DELTA and version.splits_updates)
            return has_inserts and file.length is None and (file.first == 0 or self._sees_all(file))

        known = [split for split in self.splits if all(map(shows_rows, split.files))]
        rest = tuple(split for split in self.splits if split not in known)
        count = sum(dataclasses.replace(self, splits=tuple(known))._event_counts())
        return count, dataclasses.replace(self, splits=rest)

    def _counts_whole(self, file: EventFile) -> bool:
        return file.kind in (EventFileKind.BASE, EventFileKind.ORIGINAL) or self._sees_all(file)

    def _sees_all(self, file: EventFile) -> bool:
        return self.valid_ids.range_validity(file.first, file.last) is RangeValidity.ALL

    def _event_counts(self) -> list[int]:
        """Return the number of events of each file."""
        files = [file for split in self.splits for file in split.files]
        threads = max((storage_at(split.location).threads for split in self.splits), default=1)
        return side_by_side(lambda file: count_events([file]), files, threads)


def optional_package(name: str, what: str) -> ModuleType:
    """Import an optional package, which is also an extra of this library.

    Args:
        name: the package, for example ``polars``.
        what: the function that requires it, for the message: ``to_polars()``.

    Raises:
        ConfigurationError: If it is not installed. The message names the package to install.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            f"{what} requires the package {name}: pip install hive-mutation-api[{name}] ({error})"
        ) from error
