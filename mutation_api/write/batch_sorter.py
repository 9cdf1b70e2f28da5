"""BatchSorter: sort the rows of any number of Arrow batches by a key, in bounded memory.

This is an external merge sort. Rows that do not fit into memory are sorted in parts (runs). The runs are
written to local files block by block, and merged. Keys are packed into 64 bits if the ranges of their values
allow it. Freed memory is returned to the system.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import DeltaWriteError
from mutation_api.orc.write.encoders import give_back

KeyParts: TypeAlias = Sequence[NDArray[np.int64]]
"""The key of n rows: arrays of shape (n,), the most significant first."""
SortKey: TypeAlias = Callable[[pa.RecordBatch], KeyParts]
"""A function that computes keys. It must return the same key for a row on each call."""

_Block: TypeAlias = tuple[pa.RecordBatch, KeyParts]

RUNS_MAX = 64
"""The number of runs that are merged at once. When it is reached, they are merged into one run."""
BLOCKS_PER_RUN = 4
"""Blocks in memory for each run of a merge: up to two that were read, and the copies of their rows."""
_PIECES = 16
"""The number of pieces in which rows that fit into memory are returned. Each piece is a copy."""
_KEY_BITS = 64


class BatchSorter:
    """Takes batches, and returns their rows in order, once.

    Rows with equal keys keep their order if there are at most 65,536 different keys, and each run has the
    batches of a range of numbers. Such rows are the inserts of a group in a change set without updates and
    deletes. If they came sorted by a column, its ranges in the stripes of the file are then narrow, and
    readers skip stripes.

    As a context manager it removes its files at the end. The files have no names, so they disappear even if
    the process is killed.

    Args:
        table_name: the table of the rows, for messages.
        key: computes the keys of a batch.
        memory_bytes: memory for rows, including the copies that sorting needs; at most SORT_MEMORY_BYTES_MAX.
            A single batch may be larger.
        folder: directory of the files. If None, the system's directory for temporary files.
    """

    def __init__(self, table_name: str, key: SortKey, memory_bytes: int, folder: str | None = None) -> None:
        self._table_name = table_name
        self._key = key
        self._memory_bytes = memory_bytes
        self._folder = folder or tempfile.gettempdir()
        self._pending: list[tuple[int, pa.RecordBatch]] = []
        self._pending_bytes = 0
        self._runs: list[_Run] = []
        self._files = contextlib.ExitStack()

    def __enter__(self) -> BatchSorter:
        """Return the sorter itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the files."""
        self._files.close()

    def add(self, batch: pa.RecordBatch, number: int = 0) -> None:
        """Add rows. All batches must have the same columns. ``number`` gives their order; see the class.

        Raises:
            DeltaWriteError: If rows cannot be written to a file.
        """
        if not batch.num_rows:
            return
        if self._pending and 2 * (self._pending_bytes + batch.nbytes) > self._memory_bytes:
            self._put_aside(self._sorted_pending(BLOCKS_PER_RUN * RUNS_MAX))
            if len(self._runs) == RUNS_MAX:
                runs, self._runs = self._runs, []
                self._put_aside(self._merged(runs))
        self._pending.append((number, batch))
        self._pending_bytes += batch.nbytes

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """Return all rows, sorted.

        Raises:
            DeltaWriteError: If rows cannot be written to a file, or cannot be read back.
        """
        if not self._runs:
            return self._sorted_pending(_PIECES)
        self._put_aside(self._sorted_pending(BLOCKS_PER_RUN * RUNS_MAX))
        return self._merged(self._runs)

    def _sorted_pending(self, parts: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in memory, sorted, in pieces of ``memory_bytes / parts``."""
        numbered, byte_count = self._pending, self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        batches = [batch for _, batch in sorted(numbered, key=lambda each: each[0])]
        numbered.clear()
        if batches:
            order = _order(_joined(map(self._key, batches)))
            rows = pa.concat_batches(batches)
            batches.clear()
            piece = max(1, self._memory_bytes // parts * rows.num_rows // max(1, byte_count))
            for start in range(0, rows.num_rows, piece):
                yield rows.take(pa.array(order[start : start + piece]))

    def _merged(self, runs: Sequence[_Run]) -> Iterator[pa.RecordBatch]:
        """Merge runs. Rows that no unread row can precede are sorted and returned."""
        heads = [_Head(run.blocks(), self._key) for run in runs]
        byte_count = self._memory_bytes
        while heads := [head for head in heads if head.fill()]:
            if byte_count >= self._memory_bytes:
                # Blocks of many sizes are allocated and freed, so allocators hold several times the used
                # memory.
                give_back()
                byte_count = 0
            end = min(head.last() for head in heads)
            blocks, keys = zip(*_cut(heads, end), strict=True)
            rows = pa.concat_batches(blocks).take(pa.array(_order(_joined(keys))))
            byte_count += rows.nbytes
            yield rows

    def _put_aside(self, blocks: Iterator[pa.RecordBatch]) -> None:
        """Write a run to a file."""
        try:
            file = self._files.enter_context(tempfile.TemporaryFile(dir=self._folder))  # noqa: SIM115
            first = next(blocks)
            with pa.ipc.new_stream(file, first.schema) as stream:
                for block in itertools.chain([first], blocks):
                    stream.write_batch(block)
        except OSError as error:
            raise DeltaWriteError(
                f"table {self._table_name}: sorting could not write changes to a temporary file in "
                f"{self._folder}: {error}. Free space there, or sort more in memory: "
                "WriterOptions(sort_memory_bytes=...)"
            ) from error
        self._runs.append(_Run(self._table_name, file))


class _Run:
    """A file of sorted blocks."""

    def __init__(self, table_name: str, file: IO[bytes]) -> None:
        self._table_name = table_name
        self._file = file

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of the run. At the end its file is deleted."""
        try:
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
        except OSError as error:
            raise DeltaWriteError(
                f"table {self._table_name}: sorting could not read changes back from a temporary file: "
                f"{error}"
            ) from error
        self._file.close()


class _Head:
    """The rows of a run that have been read and not yet returned."""

    def __init__(self, blocks: Iterator[pa.RecordBatch], key: SortKey) -> None:
        self._blocks = blocks
        self._key = key
        self._read: list[_Block] = []

    def fill(self) -> bool:
        """Read until two blocks are held or the run ends. Return True if there are rows."""
        if len(self._read) < 2:
            self._read.extend((block, self._key(block)) for block in itertools.islice(self._blocks, 1))
        return bool(self._read)

    def last(self) -> tuple[int, ...]:
        """Return the key of the last row that has been read."""
        return _at(self._read[-1][1], -1)

    def may_begin_with(self, key: tuple[int, ...]) -> bool:
        """Return True if the next row has this key. All rows before it were removed."""
        return self.fill() and _at(self._read[0][1], 0) == key

    def cut(self, end: tuple[int, ...], *, inclusive: bool) -> list[_Block]:
        """Remove and return the rows before a key, and with ``inclusive`` those that have it."""
        cut: list[_Block] = []
        kept: list[_Block] = []
        bisected = bisect.bisect_right if inclusive else bisect.bisect_left
        for block, keys in self._read:
            count = bisected(range(block.num_rows), end, key=lambda row: _at(keys, row))
            if count:
                cut.append((block.slice(0, count), [part[:count] for part in keys]))
            if count < block.num_rows:
                kept.append((block.slice(count), [part[count:] for part in keys]))
        self._read = kept
        return cut


def _cut(heads: Sequence[_Head], end: tuple[int, ...]) -> Iterator[_Block]:
    """Remove and yield the rows up to a key. Rows that have it are taken from one run after the other."""
    inclusive = True
    for head in heads:
        yield from head.cut(end, inclusive=inclusive)
        inclusive = inclusive and not head.may_begin_with(end)


def _at(keys: KeyParts, row: int) -> tuple[int, ...]:
    return tuple(int(part[row]) for part in keys)


def _joined(keys: Iterator[KeyParts] | Sequence[KeyParts]) -> KeyParts:
    return [np.concatenate(part) for part in zip(*keys, strict=True)]


def _order(keys: KeyParts) -> NDArray[np.intp]:
    """Return the indices of the rows in sorted order. For equal keys see :class:`BatchSorter`."""
    packed, *more = _packed(keys)
    if more:
        return np.lexsort([*reversed(more), packed])
    if len(packed) and int(packed.max()) <= np.iinfo(np.uint16).max:
        return np.argsort(packed.astype(np.uint16), kind="stable")  # a radix sort, which is faster
    return np.argsort(packed)


def _packed(keys: KeyParts) -> list[NDArray[np.uint64]]:
    """Pack keys, without changing their order, into as few arrays as the ranges of their values allow.

    At least one array is returned.
    """
    packed = [np.zeros(len(keys[0]), np.uint64)]
    free = _KEY_BITS
    for part in keys:
        low, high = int(part.min()), int(part.max())
        width = (high - low).bit_length()
        # The difference of any two int64 fits into uint64 if it is computed modulo 2 ** 64.
        offsets = part.view(np.uint64) - np.uint64(low % 2**_KEY_BITS)
        if width > free:
            packed.append(offsets)
            free = _KEY_BITS
        elif width:
            packed[-1] = packed[-1] << np.uint64(width % _KEY_BITS) | offsets
        free -= width
    return packed
