"""HdfsInput: a file of HDFS to be read."""

from __future__ import annotations

from typing import Any

from mutation_api.storage.hdfs.hdfs_errors import os_errors
from mutation_api.storage.location import Location
from mutation_api.storage.sized_input import SizedInput

__all__ = ["HdfsInput"]


class HdfsInput(SizedInput):
    """A file over the client's reader, which panics where one reads past the end."""

    def __init__(self, reader: Any, location: Location) -> None:
        super().__init__(len(reader), str(location))
        self._reader = reader
        self._location = location

    def _bytes_at(self, start: int, stop: int) -> bytes:
        with os_errors(self._location):
            return bytes(self._reader.read_range(start, stop - start))
