"""Read splits in order, small ones in parallel.

If each read is a request to another machine, a small split mostly waits: for the ends of its files, and for
their stripes. So the next small splits are read ahead, each as a whole, while others are being returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from mutation_api.orc.read.snapshot_split import SnapshotSplit
from mutation_api.storage.connect import reading_threads, storage_at

__all__ = ["read_in_turn"]

SMALL_BYTES = 1024 * 1024
"""Maximal size of the files of a split that is read as a whole."""
AHEAD_BYTES = 8 * 1024 * 1024
"""Maximal size of the files of all splits that are read ahead."""
AHEAD_SPLITS = 64


@dataclass(frozen=True)
class _Turn:
    split: SnapshotSplit
    batches: Future[list[pa.RecordBatch]] | None

    @property
    def byte_count(self) -> int:
        """Size of the files that are read ahead."""
        return 0 if self.batches is None else self.split.byte_count


def read_in_turn(
    splits: Iterable[SnapshotSplit], read: Callable[[SnapshotSplit], Iterator[pa.RecordBatch]]
) -> Iterator[tuple[SnapshotSplit, pa.RecordBatch]]:
    """The batches of splits, in the order of the splits.

    Args:
        splits: the splits to read.
        read: returns the batches of one split; also called in other threads.
    """

    def whole(split: SnapshotSplit) -> list[pa.RecordBatch]:
        return list(read(split))

    rest = iter(splits)
    turns: deque[_Turn] = deque()
    pool: ThreadPoolExecutor | None = None
    try:
        while True:
            while len(turns) < AHEAD_SPLITS and sum(turn.byte_count for turn in turns) < AHEAD_BYTES:
                split = next(rest, None)
                if split is None:
                    break
                threads = reading_threads(storage_at(split.location))
                if threads > 1 and 0 < split.byte_count <= SMALL_BYTES:
                    pool = pool or ThreadPoolExecutor(threads)
                    turns.append(_Turn(split, pool.submit(whole, split)))
                else:
                    turns.append(_Turn(split, None))
            if not turns:
                return
            turn = turns.popleft()
            batches = read(turn.split) if turn.batches is None else turn.batches.result()
            for batch in batches:
                yield turn.split, batch
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
