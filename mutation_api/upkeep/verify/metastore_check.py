"""Comparison of the metastore's records about partitions and their rows with the files.

:class:`Registered` contains a table's entries in the metastore, and shows which of them Hive trusts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnStatistics, PartitionInfo, TableInfo
from metastore_client.valid_ids import (
    ValidIdList,
    ValidWriteIdList,
    accurate_columns,
    is_row_count_accurate,
)
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.layout import is_hidden
from mutation_api.read.table_view import TableView
from mutation_api.storage.location import Location
from mutation_api.storage.tree import Directories
from mutation_api.upkeep.verify.directory_check import committed_directories
from mutation_api.upkeep.verify.finding import Finding, KnownIds


@dataclass(frozen=True)
class Registered:
    """A table and its partitions as described after a snapshot was taken, and the metastore for further
    queries.

    COLUMN_STATS_ACCURATE is a JSON object. ``BASIC_STATS`` is "true" if numRows is accurate. ``COLUMN_STATS``
    has the columns whose statistics are accurate. Source: Hive's StatsSetupConst.
    """

    metastore: MetastoreClient
    info: TableInfo
    partitions: Sequence[PartitionInfo]

    def parameters(self, partition: str) -> Mapping[str, str]:
        """Return the parameters of a partition or an unpartitioned table; empty if it is no longer known."""
        return self._parameters.get(partition, {})

    def claims_rows(self, partition: str) -> bool:
        """Return True if Hive answers count(*) from numRows."""
        return is_row_count_accurate(self.parameters(partition))

    def claimed_columns(self, partition: str) -> tuple[str, ...]:
        """Return the data columns whose min, max and count Hive answers from their statistics, sorted."""
        known = {column.name for column in self.info.columns}
        return tuple(name for name in accurate_columns(self.parameters(partition)) if name in known)

    def answers_from(self, column: ColumnStatistics) -> bool:
        """Return True if this Hive answers queries from the statistics of such a column.

        Older releases than Hive 4 never do so for transactional tables.
        """
        has_answers = parse_hive_type(column.type).facts.has_answers
        return has_answers and self.metastore.capabilities().has_exclusive_write_lock

    def column_statistics(
        self, partitions: Sequence[str], columns: Sequence[str], valid_ids: ValidIdList
    ) -> dict[str, tuple[ColumnStatistics, ...]]:
        """Return the recorded statistics by partition. Raises MetastoreError."""
        return self.metastore.get_column_statistics(
            self.info.database,
            self.info.name,
            partitions if self.info.partition_keys else None,
            columns,
            valid_write_ids=valid_ids if isinstance(valid_ids, ValidWriteIdList) else None,
        )

    @functools.cached_property
    def _parameters(self) -> dict[str, Mapping[str, str]]:
        if not self.info.partition_keys:
            return {"": self.info.parameters}
        return {each.name: each.parameters for each in self.partitions}


_ROWS = "numRows"


def unregistered_partitions(view: TableView, directories: Directories, known: KnownIds) -> Iterator[Finding]:
    """Yield directories of partitions that hold committed rows but are not in the metastore.

    Raises OSError if a directory cannot be listed.
    """
    table = view.table
    if not table.partition_keys:
        return
    registered = set(view.locations.values())
    for name, location in _directories_at(directories, table.location, [*table.partition_key_names]):
        if location in registered:
            continue
        entries = directories.list(location)
        held = committed_directories(entries, table.version, known)
        if held:
            found = f"{held[0][0].name} in {name}"
            yield Finding("unregistered-partition", "", location, found, "a partition in the metastore")


def _directories_at(
    directories: Directories, root: Location, keys: Sequence[str], above: str = ""
) -> Iterator[tuple[str, Location]]:
    try:
        entries = directories.list(root)
    except FileNotFoundError:
        return
    for entry in entries:
        key, equals, _ = entry.name.partition("=")
        if not entry.is_directory or is_hidden(entry.name) or not equals or key.lower() != keys[0]:
            continue
        name = f"{above}{entry.name}"
        if len(keys) == 1:
            yield name, entry.location
        else:
            yield from _directories_at(directories, entry.location, keys[1:], f"{name}/")


def row_statistics(
    view: TableView, registered: Registered, row_counts: Mapping[str, int | None], *, newest_id: int
) -> Iterator[Finding]:
    """Yield numbers of rows that the metastore marks as accurate but that differ from the files.

    Args:
        view: the snapshot that was read.
        registered: the table as described after the snapshot was taken.
        row_counts: rows by partition; None if not known.
        newest_id: the highest id that the metastore has allocated now. If it is above the snapshot's, the
            statistics may include newer rows and are not compared.
    """
    is_old = has_younger(view, newest_id)
    for name, location in sorted(view.locations.items()):
        text, count = registered.parameters(name).get(_ROWS), row_counts.get(name)
        has_rows = text is not None and registered.claims_rows(name)
        if count is None or not (has_rows or registered.claimed_columns(name)):
            continue
        if is_old:
            yield Finding("statistics-unchecked", name, location, f"id {newest_id}", "no younger ids")
        elif has_rows and text != str(count):
            yield Finding("row-statistics", name, location, f"{count} rows in the files", f"numRows={text}")


def has_younger(view: TableView, newest_id: int) -> bool:
    """Return True if the table may have rows that the snapshot does not see."""
    return view.table.version.uses_write_ids and newest_id > view.valid_ids.high_watermark
