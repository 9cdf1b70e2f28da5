"""BatchSorter: Arrow batches, any number in any order -> the same rows in order of a key, in bounded memory.

Rows that do not fit into memory are sorted in parts; the parts (runs) go to local files, block by block, and
are merged. Each sort is one of packed 64-bit keys where the ranges of the key's values allow it.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mutation_api.errors import DeltaWriteError
from mutation_api.worker.idle_memory import give_back

__all__ = ["BatchSorter", "KeyParts", "SortKey"]

KeyParts: TypeAlias = Sequence[npt.NDArray[np.int64]]
"""A key of n rows: arrays of shape (n,), the most significant first."""
SortKey: TypeAlias = Callable[[pa.RecordBatch], KeyParts]
"""Must give a row the same key whenever it is asked."""

_Block: TypeAlias = tuple[pa.RecordBatch, KeyParts]

RUNS_MAX = 64
"""Runs that are merged at once; when there are as many, they become one."""
BLOCKS_PER_RUN = 4
"""In memory: each run that is merged has up to two there, and what is taken from them needs as much."""
_PIECES = 16
"""In which rows are given away that fit into memory; each is a copy."""
_KEY_BITS = 64


class BatchSorter:
    """Takes batches, and gives their rows back in order, once. Rows of equal keys come in any order.

    As a context manager it removes its files at the end. They have no names: nothing is left of them when the
    process is killed.

    Args:
        table_name: whose rows, for messages.
        key: of a batch.
        memory_bytes: for rows, the copies that sorting needs counted in; at most SORT_MEMORY_BYTES_MAX. A
            single batch may be larger.
        folder: of the files; the system's if None.
    """

    def __init__(self, table_name: str, key: SortKey, memory_bytes: int, folder: str | None = None) -> None:
        self._table_name = table_name
        self._key = key
        self._memory_bytes = memory_bytes
        self._folder = folder or tempfile.gettempdir()
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._runs: list[_Run] = []
        self._files = contextlib.ExitStack()

    def __enter__(self) -> BatchSorter:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the files."""
        self._files.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows, all batches with the same columns.

        Raises:
            DeltaWriteError: rows could not be put into a file.
        """
        if not batch.num_rows:
            return
        if self._pending and 2 * (self._pending_bytes + batch.nbytes) > self._memory_bytes:
            self._put_aside(self._sorted_pending(BLOCKS_PER_RUN * RUNS_MAX))
            if len(self._runs) == RUNS_MAX:
                runs, self._runs = self._runs, []
                self._put_aside(self._merged(runs))
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """All rows that were taken.

        Raises:
            DeltaWriteError: rows could not be put into a file, or not be read again.
        """
        if not self._runs:
            return self._sorted_pending(_PIECES)
        self._put_aside(self._sorted_pending(BLOCKS_PER_RUN * RUNS_MAX))
        return self._merged(self._runs)

    def _sorted_pending(self, parts: int) -> Iterator[pa.RecordBatch]:
        """The rows in memory, in pieces of such a part of the memory."""
        batches, byte_count = self._pending, self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        if batches:
            order = _order(_joined(map(self._key, batches)))
            rows = pa.concat_batches(batches)
            batches.clear()
            piece = max(1, self._memory_bytes // parts * rows.num_rows // max(1, byte_count))
            for start in range(0, rows.num_rows, piece):
                yield rows.take(pa.array(order[start : start + piece]))

    def _merged(self, runs: Sequence[_Run]) -> Iterator[pa.RecordBatch]:
        """Merge runs: what no row still to be read can precede is sorted, and given away."""
        heads = [_Head(run.blocks(), self._key) for run in runs]
        byte_count = self._memory_bytes
        while heads := [head for head in heads if head.fill()]:
            if byte_count >= self._memory_bytes:
                # Blocks of all sizes come and go: allocators hold several times of what is in use.
                give_back()
                byte_count = 0
            end = min(head.last() for head in heads)
            blocks, keys = zip(*itertools.chain.from_iterable(head.cut(end) for head in heads), strict=True)
            rows = pa.concat_batches(blocks).take(pa.array(_order(_joined(keys))))
            byte_count += rows.nbytes
            yield rows

    def _put_aside(self, blocks: Iterator[pa.RecordBatch]) -> None:
        """Write a run."""
        try:
            file = self._files.enter_context(tempfile.TemporaryFile(dir=self._folder))  # noqa: SIM115
            first = next(blocks)
            with pa.ipc.new_stream(file, first.schema) as stream:
                for block in itertools.chain([first], blocks):
                    stream.write_batch(block)
        except OSError as error:
            raise DeltaWriteError(
                f"table {self._table_name}: to be sorted, changes had to be put into a file in "
                f"{self._folder}, which failed: {error}. Have space there, or let more of them be sorted in "
                "memory: WriterOptions(sort_memory_bytes=...)"
            ) from error
        self._runs.append(_Run(self._table_name, file))


class _Run:
    """A file of blocks in order."""

    def __init__(self, table_name: str, file: IO[bytes]) -> None:
        self._table_name = table_name
        self._file = file

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Its rows; at the end its space is free again."""
        try:
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
        except OSError as error:
            raise DeltaWriteError(
                f"table {self._table_name}: changes that were put into a local file while they are sorted "
                f"could not be read again: {error}"
            ) from error
        self._file.close()


class _Head:
    """The rows of a run that were read and not yet given away."""

    def __init__(self, blocks: Iterator[pa.RecordBatch], key: SortKey) -> None:
        self._blocks = blocks
        self._key = key
        self._read: list[_Block] = []

    def fill(self) -> bool:
        """Have more than a block, while there is; return whether there are rows."""
        if len(self._read) < 2:
            self._read.extend((block, self._key(block)) for block in itertools.islice(self._blocks, 1))
        return bool(self._read)

    def last(self) -> tuple[int, ...]:
        """Key of the last row that was read."""
        return _at(self._read[-1][1], -1)

    def cut(self, last: tuple[int, ...]) -> list[_Block]:
        """Take off the rows that are not behind a key."""
        cut: list[_Block] = []
        kept: list[_Block] = []
        for block, keys in self._read:
            count = bisect.bisect_right(range(block.num_rows), last, key=lambda row: _at(keys, row))
            if count:
                cut.append((block.slice(0, count), [part[:count] for part in keys]))
            if count < block.num_rows:
                kept.append((block.slice(count), [part[count:] for part in keys]))
        self._read = kept
        return cut


def _at(keys: KeyParts, row: int) -> tuple[int, ...]:
    return tuple(int(part[row]) for part in keys)


def _joined(keys: Iterator[KeyParts] | Sequence[KeyParts]) -> KeyParts:
    return [np.concatenate(part) for part in zip(*keys, strict=True)]


def _order(keys: KeyParts) -> npt.NDArray[np.intp]:
    """Where the rows are, in order."""
    packed = _packed(keys)
    return np.argsort(packed[0]) if len(packed) == 1 else np.lexsort(packed[::-1])


def _packed(keys: KeyParts) -> list[npt.NDArray[np.uint64]]:
    """The same order in as few arrays as the ranges of the values allow; at least one."""
    packed = [np.zeros(len(keys[0]), np.uint64)]
    free = _KEY_BITS
    for part in keys:
        low, high = int(part.min()), int(part.max())
        width = (high - low).bit_length()
        # Differences of any two int64 fit into uint64, if they are taken modulo 2 ** 64.
        offsets = part.view(np.uint64) - np.uint64(low % 2**_KEY_BITS)
        if width > free:
            packed.append(offsets)
            free = _KEY_BITS
        elif width:
            packed[-1] = packed[-1] << np.uint64(width % _KEY_BITS) | offsets
        free -= width
    return packed
