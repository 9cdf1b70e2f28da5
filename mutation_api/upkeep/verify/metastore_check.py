"""Compares what the metastore says of partitions and of their rows with what is there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from metastore_client.model import PartitionInfo, TableInfo
from mutation_api.acid.layout import is_hidden
from mutation_api.scan.table_view import TableView
from mutation_api.storage.location import Location
from mutation_api.storage.tree import Directories
from mutation_api.upkeep.verify.directory_check import committed_directories
from mutation_api.upkeep.verify.finding import Finding
from mutation_api.upkeep.verify.known_ids import KnownIds

__all__ = ["row_statistics", "unregistered_partitions"]

_ACCURATE = "COLUMN_STATS_ACCURATE"
_ROWS = "numRows"


def unregistered_partitions(view: TableView, directories: Directories, known: KnownIds) -> Iterator[Finding]:
    """Directories of partitions that hold committed rows, and that the metastore does not know.

    Raises OSError: a directory cannot be listed.
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
            yield Finding("unregistered-partition", "", location, found, "a partition of the metastore")


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
    view: TableView,
    registered: tuple[TableInfo, Sequence[PartitionInfo]],
    row_counts: Mapping[str, int | None],
    *,
    is_current: int,
) -> Iterator[Finding]:
    """Numbers of rows that the metastore calls accurate, and which are not those of the files.

    Args:
        view: the snapshot that was read.
        registered: the table and its partitions as described after the snapshot was taken.
        row_counts: rows by partition; None: not known.
        is_current: the highest id that the metastore has given out now. If it is above the snapshot's, the
            statistics may be of younger rows and are not compared.
    """
    info, partitions = registered
    parameters = (
        {p.name: p.parameters for p in partitions} if view.table.partition_keys else {"": info.parameters}
    )
    for name, location in sorted(view.locations.items()):
        text, count = parameters.get(name, {}).get(_ROWS), row_counts.get(name)
        if text is None or count is None or not _is_called_accurate(parameters[name]):
            continue
        if view.table.version.uses_write_ids and is_current > view.valid_ids.high_watermark:
            yield Finding("statistics-unchecked", name, location, f"id {is_current}", "no younger ids")
        elif text != str(count):
            yield Finding("row-statistics", name, location, f"{count} rows in the files", f"numRows={text}")


def _is_called_accurate(parameters: Mapping[str, str]) -> bool:
    """Whether Hive answers count(*) from numRows."""
    try:
        accurate = json.loads(parameters.get(_ACCURATE, "{}"))
    except ValueError:
        return False
    return isinstance(accurate, dict) and str(accurate.get("BASIC_STATS", "")).lower() == "true"
