"""Cost of reading a file if each read is a request to another machine."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.errors import CorruptFileError
from mutation_api.format.event import RowIdArrays
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.open_files import END_BYTES, GAP_BYTES, RangedInput
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.orc.write.event_writer import OrcEventWriter
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import WriterOptions

GOLDEN = Path(__file__).parents[2] / "golden"
GOLDEN_FILES = sorted(
    path
    for folder in ("acid", "acid_v4")
    for path in GOLDEN.glob(f"{folder}/**/*")
    if path.is_file() and path.read_bytes()[:3] == b"ORC"
)
TEXT = ReadOptions(TimestampForm.TEXT)
ROW = pa.struct([("id", pa.int64()), ("msg", pa.string()), ("v", pa.float64())])


class _Counted(io.BytesIO):
    """The bytes of a file, and the reads of them."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        data = super().read(size)
        self.reads.append((start, len(data)))
        return data


class CountedStorage(LocalStorage):
    """The local disk, whose files are streams of Python as those of other storages are."""

    def __init__(self) -> None:
        self.opened: list[_Counted] = []

    def open_input(self, location: Location) -> pa.NativeFile:
        self.opened.append(_Counted(Path(location.path).read_bytes()))
        return pa.PythonFile(self.opened[-1], mode="r")

    def take_count(self) -> int:
        """Reads since the last call."""
        count = sum(len(file.reads) for file in self.opened)
        for file in self.opened:
            file.reads.clear()
        return count


def _written(path: Path, rows: int, stripe_bytes: int) -> Location:
    location = Location.given(path)
    file = LocalStorage().create(location)
    options = WriterOptions(compression="zlib", stripe_bytes=stripe_bytes)
    writer = OrcEventWriter(file, ROW, version=AcidVersion.V1_SPLIT, own_id=5, options=options)
    numbers = np.random.default_rng(1)
    step = min(rows, 10_000)
    for start in range(0, rows, step):
        ids = RowIdArrays(
            np.full(step, 5), np.full(step, 0, np.int32), np.arange(start, start + step, dtype=np.int64)
        )
        columns = [
            pa.array(numbers.integers(0, 2**60, step)),
            pa.array([f"text {number}" for number in numbers.integers(0, 2**40, step)]),
            pa.array(numbers.random(step)),
        ]
        values = pa.StructArray.from_arrays(columns, fields=list(ROW))
        writer.write(np.zeros(step, np.int8), ids, values)
    writer.finish()
    file.close()
    return location


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("columns", "requests"),
    [(["row.id"], 2), (["row.v"], 3), (["operation", "row.v"], 3), (["operation", "row"], 2)],
)
def test_a_stripe_takes_two_or_three_reads(tmp_path: Path, columns: list[str], requests: int) -> None:
    """Its footer, and what is wanted of it; opening takes one, and footers are not read twice."""
    location = _written(tmp_path / "file", 300_000, 4 * 1024 * 1024)
    storage = CountedStorage()
    file = OrcInput(storage, location, None, ReadOptions())
    assert file.stripe_count > 1
    assert storage.take_count() == 1
    for index in range(file.stripe_count):
        file.read_stripe(index, columns)
        assert storage.take_count() <= requests
    assert len(storage.opened) == 1


@pytest.mark.thorough
def test_a_row_group_takes_a_few_short_reads(tmp_path: Path) -> None:
    """Footer and index of its stripe, which are not read twice, and the parts of the streams."""
    location = _written(tmp_path / "file", 300_000, 64 * 1024 * 1024)
    storage = CountedStorage()
    file = OrcInput(storage, location, None, ReadOptions())
    storage.take_count()
    rows = file.read_rows(0, ["row.id", "row.msg"], np.array([150_007]), 300_000)
    assert rows.num_rows == 1
    byte_count = sum(count for opened in storage.opened for _, count in opened.reads)
    assert byte_count < Path(location.path).stat().st_size // 4
    assert storage.take_count() <= 4
    file.read_rows(0, ["row.v"], np.array([150_007]), 300_000)
    assert storage.take_count() <= 2
    assert len(storage.opened) == 1


def test_a_small_stripe_takes_one_read(tmp_path: Path) -> None:
    """A small file needs only the request for its end."""
    location = _written(tmp_path / "file", 40_000, 512 * 1024)
    storage = CountedStorage()
    file = OrcInput(storage, location, None, ReadOptions())
    assert file.stripe_count > 2
    assert storage.take_count() == 1
    for index in range(file.stripe_count):
        file.read_stripe(index, ["operation", "row"])
        assert storage.take_count() <= 1
    small = _written(tmp_path / "small", 1, 512 * 1024)
    assert Path(small.path).stat().st_size < END_BYTES
    OrcInput(storage, small, None, ReadOptions()).read_stripe(0, ["operation", "row"])
    assert storage.take_count() == 1


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_the_same_values(path: Path) -> None:
    """Files of Hive, of all types and with timestamps out of range, say the same as on the local disk."""
    location = Location.given(path)
    storage = CountedStorage()
    local = OrcInput(LocalStorage(), location, None, TEXT)
    remote = OrcInput(storage, location, None, TEXT)
    assert remote.stripe_count == local.stripe_count
    for index in range(local.stripe_count):
        for name in local.schema.names:
            found, expected = (each.read_stripe(index, [name]) for each in (remote, local))
            assert repr(found.to_pylist()) == repr(expected.to_pylist())  # NaN is like NaN there
    assert storage.take_count() <= 1 + local.stripe_count
    assert len(storage.opened) == 1


def test_what_is_no_orc_file_is_said_to_be_none(tmp_path: Path) -> None:
    """Cut off, too."""
    whole = _written(tmp_path / "file", 10_000, 512 * 1024)
    data = Path(whole.path).read_bytes()
    for bad in (b"x" * 100_000, data[:-1], data[: len(data) // 2]):
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(CorruptFileError, match="bad is not a readable ORC file"):
            OrcInput(CountedStorage(), Location.given(tmp_path / "bad"), None, ReadOptions())


def test_ranges_are_joined_where_they_are_close() -> None:
    """A gap is fetched with them where a request would cost more; what was fetched is what is read."""
    data = np.random.default_rng(2).bytes(4 * GAP_BYTES)
    stream = _Counted(data)
    ranged = RangedInput(pa.PythonFile(stream, mode="r"), len(data))
    stream.reads.clear()
    far = 2 * GAP_BYTES + 200
    ranged.fetch([(far, far + 10), (100, 200), (200 + GAP_BYTES, far - GAP_BYTES - 1), (0, 50)])
    assert stream.reads == [(0, far - GAP_BYTES - 1), (far, 10)]
    stream.reads.clear()
    for start, count in ((0, 50), (150, 20), (far + 2, 8), (len(data) - 5, 5)):
        ranged.seek(start)
        assert ranged.read(count) == data[start : start + count]
    assert stream.reads == []
    ranged.seek(len(data) - END_BYTES - 10)
    assert ranged.read() == data[-END_BYTES - 10 :]
    assert stream.reads == [(len(data) - END_BYTES - 10, 10)]
    assert ranged.read(5) == b""
