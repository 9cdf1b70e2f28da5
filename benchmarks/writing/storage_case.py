"""The writer on HDFS in the benchmark of storage: ours, into a table whose files lie there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from benchmarks.writing.write_input import Prepared
from benchmarks.writing.write_stage import Layout, Stage
from benchmarks.writing.writers import OURS_KINDS, TableWriter
from mutation_api import Location
from mutation_api.storage.connect import storage_at
from mutation_api.storage.protocol import Staged
from mutation_api.storage.tree import side_by_side

HDFS = "hdfs"
"""The kind of its process."""
LARGEST_WARMING_POWER = 19
SETTLING_SECONDS = 7.0
"""A DataNode gets the list of blocks to delete every three seconds."""


class RemoteWriter(TableWriter):
    """Ours, into a new table below a root on HDFS each round.

    There are no links: the table's first rows are copied there once, and move from one round's table to the
    next one's.

    Args:
        stage: where.
        name: of the contestant.
        prepared: what to apply.
        layout: of the table.
        root: below which tables lie; an empty directory.
        folder: where HDFS keeps its blocks on this machine.
    """

    kinds: ClassVar[tuple[str, ...]] = (*OURS_KINDS, HDFS)

    def __init__(
        self, stage: Stage, name: str, prepared: Prepared, layout: Layout, root: Location, folder: Path
    ) -> None:
        self._root = root
        self._blocks = folder
        self._base_at: Location | None = None
        super().__init__(stage, name, prepared, layout)

    def _folder(self) -> Path:
        return self._blocks

    def _location(self) -> str:
        return str(self._root / self.table)

    def _prepare(self, number: int) -> None:
        if self.table and self._prepared.base is not None:
            self._move_base(self._root / f"base_{self._prepared.name}")
        super()._prepare(number)
        self._settle()

    def _settle(self) -> None:
        """Wait until nothing is left of the last round's table, which HDFS removes by and by."""
        before = -1
        while (now := sum(1 for _ in self._blocks.rglob("blk_*"))) != before:
            before = now
            time.sleep(SETTLING_SECONDS)

    def _bring(self, base: Path) -> None:
        if self._base_at is None:
            self._base_at = self._root / f"base_{self._prepared.name}"
            _copy(Location.given(base), self._base_at)
        self._move_base(self._root / self.table)

    def _move_base(self, target: Location) -> None:
        """Move the files of the first rows to another directory."""
        source, self._base_at = self._base_at, target
        assert source is not None
        assert self._prepared.base is not None
        names = [str(each.relative_to(self._prepared.base)) for each in self._prepared.base.glob("ds=*/*")]
        storage = storage_at(target)

        def move(name: str) -> None:
            storage.create_directory((target / name).parent)
            storage.publish(Staged(source / name), target / name)

        side_by_side(move, names, storage.threads)


def warm(directory: Location, files: int) -> None:
    """Write, list, rename and delete this number of files, of 1 byte to 256 KiB."""
    storage = storage_at(directory)
    storage.create_directory(directory)

    def write(number: int) -> None:
        hidden, target = directory / f"_{number}", directory / str(number)
        file = storage.stage(hidden, target)
        file.write(bytes(2 ** (number % LARGEST_WARMING_POWER)))
        file.close()
        storage.publish(file.staged, target)

    side_by_side(write, range(files), storage.threads)
    storage.list(directory)
    storage.delete_directory(directory)


def _copy(source: Location, target: Location) -> None:
    storage = storage_at(target)
    names = [each.relative_to(source) for each in _files(source)]
    side_by_side(storage.create_directory, {(target / name).parent for name in names}, storage.threads)

    def copy(name: str) -> None:
        with storage_at(source).open_input(source / name) as stream:
            file = storage.create(target / name)
            file.write(stream.read())
            file.close()

    side_by_side(copy, names, storage.threads)


def _files(directory: Location) -> Iterator[Location]:
    for entry in storage_at(directory).list(directory):
        if entry.is_directory:
            yield from _files(entry.location)
        else:
            yield entry.location
