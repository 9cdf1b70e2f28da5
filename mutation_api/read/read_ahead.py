"""Read splits in order, several at a time.

If each read is a request to another machine, reading a small split is mostly waiting: for the ends of its
files, and for their stripes. Therefore the next small splits are read ahead while others are being returned.
If the reader may use several threads, the next splits are read ahead on any storage, because most of the work
is decoding, during which pyarrow lets other threads run.

The amount of data that was read ahead and not returned yet is limited. So when the others have filled their
share, only the first of several large splits is read further.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.storage.connect import reading_threads, storage_at

SMALL_BYTES = 1024 * 1024
"""The maximum total size of the files of a split that counts as small."""
AHEAD_BYTES = 8 * 1024 * 1024
"""The maximum total size of the files of all small splits that are read ahead."""
AHEAD_SPLITS = 64
SPLITS_PER_THREAD = 2
"""The number of splits that are read ahead per thread.

With two, no thread waits while the data that the others have read is being returned.
"""
WAITING_BYTES_DEFAULT = 128 * 1024 * 1024
ALONE_SECONDS = 0.01
"""Until a split has taken so long, one is decoded at a time.

To find one row takes 2 ms of Python a file. Threads that do this side by side take longer than one (27 ms
instead of 20 for eight files), as they wait for the interpreter's lock.
"""

_Read = Callable[[SnapshotSplit], Iterator[pa.RecordBatch]]


@dataclass(eq=False)
class _Turn:
    """A split in the queue, and the batches read from it. ``is_ahead``: a thread of the pool reads it."""

    split: SnapshotSplit
    is_ahead: bool
    is_small: bool
    batches: deque[pa.RecordBatch] = field(default_factory=deque)
    is_done: bool = False
    error: BaseException | None = None


def read_in_turn(
    splits: Iterable[SnapshotSplit],
    read: _Read,
    *,
    threads: int = 1,
    waiting_bytes: int | None = WAITING_BYTES_DEFAULT,
) -> Generator[tuple[SnapshotSplit, pa.RecordBatch], None, None]:
    """Yield the batches of splits, in the order of the splits.

    Args:
        splits: the splits to read.
        read: returns the batches of one split. It is also called in other threads.
        threads: the number of splits that are decoded at a time. If 1, only small splits of remote storages
            are read ahead.
        waiting_bytes: the limit of the batches that are read ahead. If None, there is no limit, for callers
            who keep all batches anyway.
    """
    queue = _Queue(splits, read, threads, waiting_bytes)
    try:
        while (turn := queue.next_turn()) is not None:
            batches = queue.batches_of(turn) if turn.is_ahead else read(turn.split)
            for batch in batches:
                yield turn.split, batch
    finally:
        queue.stop()


class _Queue:
    """The next splits, and the threads that read them."""

    def __init__(
        self, splits: Iterable[SnapshotSplit], read: _Read, threads: int, waiting_bytes: int | None
    ) -> None:
        self._rest = iter(splits)
        self._read = read
        self._threads = threads
        self._limit = waiting_bytes
        self._turns: deque[_Turn] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._changed = threading.Condition()
        self._first: _Turn | None = None
        self._waiting_bytes = 0
        self._is_stopped = False
        self._decoding = 0
        self._is_side_by_side = False

    def next_turn(self) -> _Turn | None:
        """Return the next split, while those after it are being read; None at the end."""
        while self._has_room() and (split := next(self._rest, None)) is not None:
            self._turns.append(self._begun(split))
        turn = self._turns.popleft() if self._turns else None
        with self._changed:
            self._first = turn
            self._changed.notify_all()
        return turn

    def batches_of(self, turn: _Turn) -> Iterator[pa.RecordBatch]:
        """Yield the batches that a thread reads from a split, until its end or error."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: turn.batches or turn.is_done)
                if not turn.batches:
                    if turn.error is not None:
                        raise turn.error
                    return
                batch = turn.batches.popleft()
                self._waiting_bytes -= batch.nbytes
                self._changed.notify_all()
            yield batch

    def stop(self) -> None:
        """Stop the threads."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _has_room(self) -> bool:
        ahead = [turn for turn in self._turns if turn.is_ahead]
        return (
            len(self._turns) < AHEAD_SPLITS
            and sum(turn.split.byte_count for turn in ahead if turn.is_small) < AHEAD_BYTES
            and sum(not turn.is_small for turn in ahead) < SPLITS_PER_THREAD * self._threads
        )

    def _begun(self, split: SnapshotSplit) -> _Turn:
        requests = reading_threads(storage_at(split.location))
        is_small = requests > 1 and 0 < split.byte_count <= SMALL_BYTES
        turn = _Turn(split, is_small or self._threads > 1, is_small)
        if turn.is_ahead:
            self._pool = self._pool or ThreadPoolExecutor(max(requests, self._threads))
            self._pool.submit(self._run, turn)
        return turn

    def _run(self, turn: _Turn) -> None:
        error = None
        if not turn.is_small:
            self._wait_while_alone()
        try:
            for batch in self._read(turn.split):
                if not self._put(turn, batch):
                    break
        except BaseException as caught:  # raised when it is the split's turn
            error = caught
        with self._changed:
            turn.error, turn.is_done = error, True
            self._decoding -= not turn.is_small
            self._changed.notify_all()

    def _wait_while_alone(self) -> None:
        """Wait until no split is decoded, or one has taken long; then begin."""
        with self._changed:
            is_free = self._changed.wait_for(
                lambda: self._is_stopped or self._is_side_by_side or not self._decoding, ALONE_SECONDS
            )
            self._is_side_by_side |= not is_free
            self._decoding += 1

    def _put(self, turn: _Turn, batch: pa.RecordBatch) -> bool:
        """Wait until there is room. Return False if the batch is no longer needed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._fits(turn, batch))
            if self._is_stopped:
                return False
            turn.batches.append(batch)
            self._waiting_bytes += batch.nbytes
            self._changed.notify_all()
        return True

    def _fits(self, turn: _Turn, batch: pa.RecordBatch) -> bool:
        is_next = turn is self._first and not turn.batches
        return is_next or self._limit is None or self._waiting_bytes + batch.nbytes <= self._limit
