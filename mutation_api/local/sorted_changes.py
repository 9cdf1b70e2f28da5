"""SortedChanges: addressed changes, split by the threads that write them, each share in writing order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pyarrow as pa

from mutation_api.change_set.address import with_names_once
from mutation_api.change_set.split import split_by_writer
from mutation_api.change_set.writing_order import WritingOrder
from mutation_api.worker.batch_sorter import BatchSorter

__all__ = ["SortedChanges"]


class SortedChanges:
    """Takes addressed changes in any order, from any thread.

    As a context manager it removes the files of what did not fit into memory.

    Args:
        table_name: their table, for messages.
        shares: number of shares; all changes of a (partition, bucket) are in one.
        memory_bytes: memory of each share.
    """

    def __init__(self, table_name: str, shares: int, memory_bytes: int) -> None:
        self._sorters = [BatchSorter(table_name, WritingOrder(), memory_bytes) for _ in range(shares)]
        self._mutexes = [threading.Lock() for _ in range(shares)]
        self._row_counts = [0] * shares
        self._files = contextlib.ExitStack()

    def __enter__(self) -> SortedChanges:
        """Return itself."""
        for sorter in self._sorters:
            self._files.enter_context(sorter)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the files."""
        self._files.close()

    @property
    def shares(self) -> list[int]:
        """The numbers of the shares that have changes."""
        return [share for share, count in enumerate(self._row_counts) if count]

    def add(self, addressed: pa.RecordBatch) -> None:
        """Take changes. Raises DeltaWriteError if rows could not be written to a temporary file."""
        rows = with_names_once(addressed)
        pieces = split_by_writer(rows, len(self._sorters)) if len(self._sorters) > 1 else [(0, rows)]
        for share, piece in pieces:
            with self._mutexes[share]:
                self._sorters[share].add(piece)
                self._row_counts[share] += piece.num_rows

    def in_order(self, share: int) -> Iterator[pa.RecordBatch]:
        """The changes of a share, once, when all were added. Raises DeltaWriteError as :meth:`add`."""
        return self._sorters[share].in_order()
