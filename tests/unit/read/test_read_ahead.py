"""Splits come in their order, and small remote ones do not wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from mutation_api.errors import CorruptFileError
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.read_ahead import AHEAD_SPLITS, SMALL_BYTES, read_in_turn
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from tests.fixtures.fix_clock import WAIT_BOUND_SECONDS

REMOTE = Location.parse("s3a://tables/t")
LOCAL = Location.parse("/t")


@pytest.fixture(autouse=True)
def _known_settings() -> Iterator[None]:
    """Nothing is looked for in the environment, which other tests change."""
    configure_storage(HadoopSettings())
    yield
    configure_storage(None)


def split(number: int, byte_count: int = 1000, root: Location = REMOTE) -> SnapshotSplit:
    file = EventFile(root / f"{number}", EventFileKind.DELTA, number, 1, 1, byte_count=byte_count)
    return SnapshotSplit("", root, number, (file,))


def batches(each: SnapshotSplit) -> Iterator[pa.RecordBatch]:
    for part in range(2):
        yield pa.record_batch({"split": [each.bucket_id], "part": [part]})


@pytest.mark.parametrize("root", [REMOTE, LOCAL])
def test_batches_come_in_the_order_of_their_splits(root: Location) -> None:
    """Small and large ones, more than are read ahead."""
    splits = [split(n, SMALL_BYTES + 1 if n % 3 else 10, root) for n in range(2 * AHEAD_SPLITS)]
    found = [(each, *batch.to_pylist()) for each, batch in read_in_turn(iter(splits), batches)]
    assert found == [(each, {"split": each.bucket_id, "part": part}) for each in splits for part in (0, 1)]


def test_small_splits_are_read_side_by_side() -> None:
    """Each waits here until three others are being read."""
    barrier = threading.Barrier(4)

    def read(each: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        barrier.wait(WAIT_BOUND_SECONDS)
        yield from batches(each)

    assert len(list(read_in_turn([split(n) for n in range(8)], read))) == 16


@pytest.mark.parametrize("byte_count", [SMALL_BYTES + 1, 0])
def test_what_may_be_large_is_read_in_its_turn(byte_count: int) -> None:
    """Also if its size is not known; no more of it is in memory than its reader gives at a time."""
    began: list[int] = []

    def read(each: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        began.append(each.bucket_id)
        yield from batches(each)

    turns = read_in_turn([split(n, byte_count) for n in range(3)], read)
    next(turns)
    assert began == [0]
    turns.close()


def test_nothing_is_read_far_ahead() -> None:
    """From an endless sequence, only the allowed number of splits is read ahead."""
    asked: list[int] = []

    def endless() -> Iterator[SnapshotSplit]:
        while True:
            asked.append(len(asked))
            yield split(asked[-1])

    turns = read_in_turn(endless(), batches)
    next(turns)
    turns.close()
    assert len(asked) == AHEAD_SPLITS


def test_an_error_comes_in_its_turn() -> None:
    """After the batches of the splits before."""

    def read(each: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        if each.bucket_id == 2:
            raise CorruptFileError("broken")
        yield from batches(each)

    turns = read_in_turn([split(n) for n in range(9)], read)
    assert [next(turns)[0].bucket_id for _ in range(4)] == [0, 0, 1, 1]
    with pytest.raises(CorruptFileError, match="broken"):
        next(turns)


def test_several_threads_decode_splits_of_any_kind() -> None:
    """Also large ones, on the local disk; they come in their order nevertheless."""
    barrier = threading.Barrier(2)

    def read(each: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        barrier.wait(WAIT_BOUND_SECONDS)
        yield from batches(each)

    splits = [split(n, SMALL_BYTES * 99, LOCAL) for n in range(8)]
    found = [(each.bucket_id, *batch.to_pylist()) for each, batch in read_in_turn(splits, read, threads=2)]
    assert found == [(n, {"split": n, "part": part}) for n in range(8) for part in (0, 1)]


def test_what_waits_is_bounded() -> None:
    """The first split is read on, whatever the others hold; the bound is kept but for its one batch."""
    held = threading.Semaphore(0)
    taken = 0

    def read(each: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        for _ in range(20):
            held.release()
            yield pa.record_batch({"n": pa.nulls(1000, pa.int64())})

    waiting = 5 * next(read(split(0))).nbytes
    held.acquire()
    splits = [split(n, root=LOCAL) for n in range(4)]
    for _ in read_in_turn(splits, read, threads=4, waiting_bytes=waiting):
        taken += 1
        made = 0
        while held.acquire(timeout=0.001):
            made += 1
        # Each of four threads holds the batch that it made; one waits for whoever asks.
        assert made <= 4 + 5 + 1 + 1
    assert taken == 80


@pytest.mark.parametrize("waiting_bytes", [1, None])
def test_threads_end_with_the_reading(waiting_bytes: int | None) -> None:
    """At its end, at an error, and when nobody wants more."""
    before = set(threading.enumerate())

    def read(each: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        yield from batches(each)
        if each.bucket_id == 5:
            raise CorruptFileError("broken")

    splits = [split(n, root=LOCAL) for n in range(9)]
    turns = read_in_turn(splits, read, threads=3, waiting_bytes=waiting_bytes)
    next(turns)
    assert set(threading.enumerate()) - before
    turns.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(CorruptFileError):
        list(read_in_turn(splits, read, threads=3, waiting_bytes=waiting_bytes))
    assert set(threading.enumerate()) <= before
    assert len(list(read_in_turn(splits[:5], read, threads=3, waiting_bytes=waiting_bytes))) == 10
    assert set(threading.enumerate()) <= before
