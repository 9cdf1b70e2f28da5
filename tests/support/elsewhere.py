"""Files of tests on any storage."""

from __future__ import annotations

from pathlib import Path

from mutation_api.storage.connect import replacing, storage_at
from mutation_api.storage.location import Location


def put(location: Location, data: bytes) -> Location:
    """Write a file, in place of an older one."""
    storage_at(location).create_directory(location.parent)
    with replacing(location) as file:
        file.write(data)
    return location


def get(location: Location) -> bytes:
    """What a file holds."""
    with storage_at(location).open_input(location) as file:
        return bytes(file.read())


def copy_tree(folder: Path, location: Location) -> Location:
    """Copy all files below a local folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            put(location / str(path.relative_to(folder)), path.read_bytes())
    return location


def names(directory: Location) -> list[str]:
    """What is in a directory; nothing of one that is not there."""
    try:
        return [entry.name for entry in storage_at(directory).list(directory)]
    except FileNotFoundError:
        return []
