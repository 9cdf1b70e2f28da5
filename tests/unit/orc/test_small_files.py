"""Small files are read whole, and what was decoded of them is kept by their bytes."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from mutation_api.orc.read import orc_input
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.open_files import KEPT_BYTES, SMALL_FILE_BYTES, SmallFiles
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from tests.support.acid_files import write_orc
from tests.unit.orc.test_ranged_input import GOLDEN_FILES, CountedStorage

SEED = 20261201


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> SmallFiles:
    """The small files of one test."""
    files = SmallFiles(KEPT_BYTES)
    monkeypatch.setattr(orc_input, "SMALL_FILES", files)
    return files


def read(path: Path, *, form: TimestampForm = TimestampForm.TEXT) -> pa.Table:
    """All rows of a file."""
    file = OrcInput(LocalStorage(), Location.given(str(path)), None, ReadOptions(form))
    stripes = [file.read_stripe(each, file.schema.names) for each in range(file.stripe_count)]
    return pa.Table.from_batches(stripes, None if stripes else file.schema)


def ids(path: Path, *values: int) -> Path:
    write_orc(path, pa.table({"id": pa.array(values, pa.int64())}))
    return path


@pytest.mark.usefixtures("kept")
def test_a_path_with_another_file_is_read_again(tmp_path: Path) -> None:
    """A table that was dropped and created again has the same paths, and its files may have the same size."""
    path = ids(tmp_path / "bucket_00000", 1, 3, 2)
    before = path.stat()
    assert read(path)["id"].to_pylist() == [1, 3, 2]
    ids(path, 3, 1, 2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert read(path)["id"].to_pylist() == [3, 1, 2]


def test_the_same_bytes_are_decoded_once(tmp_path: Path, kept: SmallFiles) -> None:
    """They are so at another path, too; each set of columns and each form is decoded for itself."""
    first, second = ids(tmp_path / "a", 1, 2), ids(tmp_path / "b", 1, 2)
    assert read(first).column(0).chunk(0) is not None
    one = kept.byte_count
    assert read(second).equals(read(first))
    assert kept.byte_count == one > first.stat().st_size
    read(first, form=TimestampForm.MICROSECONDS)
    assert kept.byte_count > one


def test_a_small_file_is_one_request(tmp_path: Path) -> None:
    storage, path = CountedStorage(), ids(tmp_path / "a", *range(100))
    for _ in range(2):
        file = OrcInput(storage, Location.given(str(path)), None, ReadOptions())
        assert len(file.read_stripe(0, ["id"])) == 100
        assert storage.take_count() == 1


@pytest.mark.parametrize("byte_limit", [0, 1 << 14, KEPT_BYTES])
def test_the_files_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte_limit: int) -> None:
    """Others are dropped, and are read again."""
    files = SmallFiles(byte_limit)
    monkeypatch.setattr(orc_input, "SMALL_FILES", files)
    rng = random.Random(SEED)
    paths = [ids(tmp_path / str(each), *range(each, each + 100)) for each in range(50)]
    for _ in range(300):
        at = rng.randrange(50)
        assert read(paths[at])["id"].to_pylist() == list(range(at, at + 100))
        assert files.byte_count <= byte_limit
    assert files.byte_count == sum(each.byte_count for each in files._files.values())
    assert (len(files._files) == 50) == (byte_limit == KEPT_BYTES)


def test_several_threads_read_the_same_files(tmp_path: Path, kept: SmallFiles) -> None:
    kept.byte_limit = 1 << 15
    paths = [ids(tmp_path / str(each), *range(each, each + 500)) for each in range(40)]

    def found(number: int) -> list[int]:
        rng = random.Random(number)
        chosen = [rng.randrange(40) for _ in range(100)]
        return [at for at in chosen if read(paths[at])["id"].to_pylist() != list(range(at, at + 500))]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(found, range(8))) == [[]] * 8
    assert kept.byte_count == sum(each.byte_count for each in kept._files.values()) <= kept.byte_limit


def test_files_of_hive_are_the_same_from_memory(kept: SmallFiles) -> None:
    """The golden files, decoded, kept, and without a place to keep them."""
    small = [path for path in GOLDEN_FILES if path.stat().st_size <= SMALL_FILE_BYTES]
    assert len(small) > 20

    def texts() -> list[str]:
        return [repr(read(path).to_pylist()) for path in small]

    decoded = texts()
    assert texts() == decoded
    kept.clear()
    assert not kept.byte_count
    kept.byte_limit = 0
    assert texts() == decoded
