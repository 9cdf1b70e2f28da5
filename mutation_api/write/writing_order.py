"""The order in which addressed changes are written, and the threads that write them.

Changes are joined into batches that are large enough to be efficient, and split by writer. The first failure,
or the loss of the transaction, stops all threads.
"""

from __future__ import annotations

import itertools
import sys
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import RecordLayoutError, WorkerError
from mutation_api.format.event import ADDED_OPERATION, RowIdArrays, ranks_in_bucket
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.address import (
    ADDRESS_COLUMNS,
    BUCKET,
    BUCKET_PROPERTY,
    PARTITION,
    ROW_NUMBER,
    TXN,
    numbers_of_partitions,
)
from mutation_api.write.batch_sorter import KeyParts
from mutation_api.write.coordinator import MutatorCoordinator
from mutation_api.write.staged_writer import OpenTransaction


class WritingOrder:
    """The sort key that puts addressed changes into a coordinator's order: by group, then by ROW__ID.

    Partitions are numbered by first occurrence, since groups may come in any order. Inserts carry the
    transaction's own id, which is the greatest id, so they come last in their group.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, batch: pa.RecordBatch) -> KeyParts:
        """Return partition, bucket, original transaction, bucket property and row id of n changes."""
        # Rows of one transaction and bucket may have different properties: these hold the statement id.
        return [
            numbers_of_partitions(batch, lambda name: self._numbers.setdefault(name, len(self._numbers))),
            batch.column(BUCKET).to_numpy().astype(np.int64),
            batch.column(TXN).to_numpy(),
            ranks_in_bucket(batch.column(BUCKET_PROPERTY).to_numpy()),
            batch.column(ROW_NUMBER).to_numpy(),
        ]


def write_batch(coordinator: MutatorCoordinator, batch: pa.RecordBatch) -> None:
    """Cut a batch of addressed changes at group boundaries and write each piece.

    Args:
        coordinator: the task's coordinator.
        batch: ADDRESS_COLUMNS and the data columns, in the order of :class:`WritingOrder`.
    """
    if not batch.num_rows:
        return
    address = {name: batch.column(name) for name in ADDRESS_COLUMNS}
    partitions, buckets, codes = address[PARTITION], address[BUCKET], address[ADDED_OPERATION].to_numpy()
    row_ids = RowIdArrays(*(address[name].to_numpy() for name in (TXN, BUCKET_PROPERTY, ROW_NUMBER)))
    rows = _rows(batch)
    bounds = _group_bounds(partitions, buckets)
    for start, end in itertools.pairwise(bounds):
        coordinator.write_events(
            partitions[start].as_py(),
            buckets[start].as_py(),
            codes[start:end],
            row_ids.take(slice(start, end)),
            None if rows is None else rows.slice(start, end - start),
        )


def _rows(batch: pa.RecordBatch) -> pa.StructArray | None:
    names = batch.schema.names[len(ADDRESS_COLUMNS) :]
    if not names:
        return None
    return pa.StructArray.from_arrays([batch.column(n) for n in names], names=names)


def _group_bounds(partitions: pa.Array, buckets: pa.Array) -> list[int]:
    """Return the first index of each group, followed by the number of rows."""
    changes: NDArray[np.bool_] = np.zeros(len(buckets), np.bool_)
    changes[0] = True
    changes[1:] = np.diff(buckets.to_numpy()) != 0
    changes[1:] |= np.diff(partitions.dictionary_encode().indices.to_numpy()) != 0
    return [*np.flatnonzero(changes).tolist(), len(buckets)]


ADDRESSED_ROWS_MAX = 1 << 16
"""The maximum number of rows that are addressed at once. Engines pass few rows at a time, and fixed costs
dominate small batches."""


def split_by_writer(rows: pa.RecordBatch, writers: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number of each writer that receives changes, and copies of these changes.

    All changes of a (partition, bucket) go to one writer. The buckets of a partition go to consecutive
    writers, so that a table with few groups keeps all writers busy.

    Args:
        rows: addressed changes.
        writers: number of writers.
    """
    yield from split_by_number(rows, _writers(rows, writers), writers)


def split_by_number(
    rows: pa.RecordBatch, numbers: NDArray[np.int64], writers: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number of each writer that receives rows, and copies of these rows.

    Args:
        rows: n rows.
        numbers: the writer of each row, shape (n,).
        writers: number of writers.
    """
    # numpy sorts 16-bit numbers in linear time.
    order = np.argsort(numbers.astype(np.uint16) if writers <= 1 << 16 else numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(writers + 1))
    for writer in np.flatnonzero(np.diff(starts)).tolist():
        yield writer, rows.take(pa.array(order[starts[writer] : starts[writer + 1]]))


def _writers(rows: pa.RecordBatch, writers: int) -> NDArray[np.int64]:
    """Return the writer of each change. It depends only on partition and bucket."""
    first = numbers_of_partitions(rows, partition_number)
    numbers: NDArray[np.int64] = (first + rows.column(BUCKET).to_numpy()) % writers
    return numbers


def partition_number(name: str) -> int:
    """Return a number for a partition, by which its changes are sent to a writer."""
    return zlib.crc32(name.encode())


def joined_batches(
    batches: Iterable[pa.RecordBatch], bytes_max: int, rows_max: int = sys.maxsize
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of the maximum size; a larger batch stays unchanged.

    Raises:
        RecordLayoutError: If an array of the rows is malformed.
    """
    pending: list[pa.RecordBatch] = []
    byte_count = row_count = 0
    for batch in batches:
        byte_count += batch.nbytes
        row_count += batch.num_rows
        if pending and (byte_count > bytes_max or row_count > rows_max):
            yield _joined(pending)
            pending, byte_count, row_count = [], batch.nbytes, batch.num_rows
        pending.append(batch)
    if pending:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    try:
        return pa.concat_batches(batches)
    except pa.ArrowException as error:  # such as a sliced fixed_size_list<null> from pandas
        raise RecordLayoutError(
            f"the rows cannot be copied, since one of their arrays is malformed ({error}); the columns are "
            f"{', '.join(f'{each.name} {each.type}' for each in batches[0].schema)}. Use other types, "
            "or create the rows again with pyarrow.Table.from_pylist"
        ) from error


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_AHEAD = 2
"""Number of items per thread that are taken before their results are needed."""


def writing(table: AcidTable) -> str:
    """Return a description of the writing of a table's changes, for messages."""
    return f"table {table.full_name}, transaction {table.required_txn_id()}: writing the changes"


class Watch:
    """Decides whether the threads continue; called between batches, from any thread.

    Args:
        transaction: if it is lost, all threads stop at their next batch.
        what: the work, for messages.
    """

    def __init__(self, transaction: OpenTransaction, what: str) -> None:
        self._transaction = transaction
        self._what = what
        self._is_stopped = threading.Event()

    def stop(self) -> None:
        """Make :meth:`check` raise an error."""
        self._is_stopped.set()

    def check(self) -> None:
        """Raise the error about the loss of the transaction, or WorkerError if another thread failed."""
        self._transaction.check()
        if self._is_stopped.is_set():
            raise WorkerError(f"{self._what}: stopped, since another part of the work failed")


def in_turn(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int, watch: Watch
) -> Iterator[_Result]:
    """Yield the results of ``work`` in the order of the items, which are taken a few ahead.

    After all work has ended, the error of the first failed item is raised.
    """
    if threads == 1:
        for item in items:
            watch.check()
            yield work(item)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Result]] = deque()
        try:
            source = iter(items)
            while True:
                for item in itertools.islice(source, max(0, _AHEAD * threads - len(waiting))):
                    waiting.append(pool.submit(work, item))
                if not waiting:
                    return
                watch.check()
                yield waiting.popleft().result()
        except BaseException:
            watch.stop()
            for each in waiting:
                each.cancel()
            raise


def run_all(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int, watch: Watch
) -> list[_Result]:
    """Return the results of ``work`` for all items, in their order.

    After all work has ended, the first error is raised.
    """
    if threads == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            pending = set(futures)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for each in done:
                    each.result()
        except BaseException:
            watch.stop()
            for each in futures:
                each.cancel()
            raise
    return [each.result() for each in futures]
