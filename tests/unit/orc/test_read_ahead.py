"""Splits come in their order, and small remote ones do not wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from mutation_api.errors import CorruptFileError
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.orc.read.read_ahead import AHEAD_SPLITS, SMALL_BYTES, read_in_turn
from mutation_api.orc.read.snapshot_split import SnapshotSplit
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location

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
        barrier.wait(10)
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
