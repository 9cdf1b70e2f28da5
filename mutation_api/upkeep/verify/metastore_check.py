"""Compares what the metastore says of partitions and of their rows with what is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mutation_api.acid.layout import is_hidden
from mutation_api.scan.table_view import TableView
from mutation_api.storage.location import Location
from mutation_api.storage.tree import Directories
from mutation_api.upkeep.verify.directory_check import committed_directories
from mutation_api.upkeep.verify.finding import Finding
from mutation_api.upkeep.verify.known_ids import KnownIds
from mutation_api.upkeep.verify.registered import Registered

__all__ = ["has_younger", "row_statistics", "unregistered_partitions"]

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
    view: TableView, registered: Registered, row_counts: Mapping[str, int | None], *, newest_id: int
) -> Iterator[Finding]:
    """Numbers of rows that the metastore calls accurate, and which are not those of the files.

    Args:
        view: the snapshot that was read.
        registered: the table as described after the snapshot was taken.
        row_counts: rows by partition; None: not known.
        newest_id: the highest id that the metastore has given out now. If it is above the snapshot's, the
            statistics may be of younger rows and are not compared.
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
    """Whether the table may have rows that the snapshot does not see."""
    return view.table.version.uses_write_ids and newest_id > view.valid_ids.high_watermark
