"""Files for people, which may replace older ones: exports, reports. Files of tables never replace others.

On a local disk an older file is replaced in one step. Other storages cannot do that: the older file is
deleted when the new one is complete, right before the new one gets its name.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import OutputFile, Staged

__all__ = ["hidden_beside", "move_to", "replacing", "stream_into"]

_COPIED_BYTES = 4 * 1024 * 1024


@contextlib.contextmanager
def replacing(location: Location) -> Iterator[pa.NativeFile]:
    """A stream into a file that replaces an older one when the block ends without an error.

    After an error nothing of the new file remains. Its directory must exist. Raises OSError.
    """
    file = storage_at(location).stage(hidden_beside(location), location)
    try:
        with stream_into(file) as stream:
            yield stream
        file.close()
        _replace_older(file.staged, location)
    except BaseException:
        file.discard()
        raise


def stream_into(file: OutputFile) -> pa.NativeFile:
    """A stream that writes to the file; closing the stream does not close the file."""
    return pa.PythonFile(_Sink(file), mode="w")


def move_to(part: Location, location: Location) -> None:
    """Rename a complete file, and replace an older one of that name. Raises OSError."""
    storage = storage_at(location)
    if storage.publishes_by_rename:
        _replace_older(Staged(part), location)
        return
    with storage.open_input(part) as source, replacing(location) as target:
        while block := source.read(_COPIED_BYTES):
            target.write(block)
    storage.delete_file(part)


def hidden_beside(location: Location) -> Location:
    """A new hidden name in the same directory."""
    return location.parent / f".{location.name}-{uuid.uuid4().hex}"


def _replace_older(staged: Staged, location: Location) -> None:
    if location.local_path is not None:
        os.replace(staged.location.path, location.path)  # noqa: PTH105 - both are texts
        return
    storage = storage_at(location)
    entry = storage.stat(location)
    if entry is not None and not entry.is_directory:
        storage.delete_file(location)
    storage.publish(staged, location)


class _Sink:
    """The methods of a file that pyarrow needs for writing."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self._count = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Append bytes."""
        self._count += self._file.write(data)
        return len(data)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._count

    def flush(self) -> None:
        """Does nothing: an incomplete file is not read."""

    def close(self) -> None:
        """Does nothing: the owner of the file closes it."""
        self.closed = True
