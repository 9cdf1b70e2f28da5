"""Small files are read whole, and what was decoded of them is kept by their bytes."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.errors import RecordValueError
from mutation_api.orc.read import orc_input
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.open_files import KEPT_BYTES, SMALL_FILE_BYTES, SmallFiles, with_columns
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
    """They are so at another path, too; each form is decoded for itself."""
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


def test_columns_of_a_whole_stripe_are_those_that_are_decoded_alone() -> None:
    """Random columns of the golden files, and fields of their structs."""
    rng = random.Random(SEED)
    compared = 0
    for path in (path for path in GOLDEN_FILES if path.stat().st_size <= SMALL_FILE_BYTES):
        file = OrcInput(LocalStorage(), Location.given(str(path)), None, ReadOptions(TimestampForm.TEXT))
        names = [name for field in file.schema for name in names_of(field)]
        for _ in range(5):
            chosen = rng.sample(names, rng.randint(1, len(names)))
            for index in range(file.stripe_count):
                alone = file._read_stripe(index, chosen)
                whole = with_columns(file._read_stripe(index, file.schema.names), chosen)
                assert by_name(whole) == by_name(alone), path
                compared += 1
    assert compared > 100


def by_name(rows: pa.RecordBatch) -> dict[str, tuple[Any, ...]]:
    """Type, validity and values of each column and of each field of a struct; their order does not count."""
    found: dict[str, tuple[Any, ...]] = {}
    for name, array in zip(rows.schema.names, rows.columns, strict=True):
        is_valid = array.is_valid().to_pylist()
        if pa.types.is_struct(array.type):
            found[name] = ("struct", is_valid)
            found |= by_name(pa.RecordBatch.from_struct_array(array.filter(array.is_valid())))
        else:
            found[name] = array.type, is_valid, repr(array.to_pylist())
    return found


def names_of(field: pa.Field) -> list[str]:
    """A column, or the fields of a struct."""
    is_struct = pa.types.is_struct(field.type)
    return [f"{field.name}.{each.name}" for each in field.type] if is_struct else [field.name]


def test_a_column_that_cannot_be_decoded_is_no_fault_of_the_others(tmp_path: Path, kept: SmallFiles) -> None:
    """A time that nanoseconds cannot hold, next to the requested column."""
    path = tmp_path / "bucket_00000"
    write_orc(path, pa.table({"id": [1, 2], "at": pa.array([0, 1 << 55], pa.timestamp("us"))}))
    file = OrcInput(LocalStorage(), Location.given(str(path)), None, ReadOptions())
    assert file.read_stripe(0, ["id"])["id"].to_pylist() == [1, 2]
    with pytest.raises(RecordValueError):
        file.read_stripe(0, ["at"])
    assert kept.byte_count == path.stat().st_size


def test_a_file_of_many_columns_is_not_decoded_as_a_whole(tmp_path: Path, kept: SmallFiles) -> None:
    path = tmp_path / "bucket_00000"
    write_orc(path, pa.table({f"c{number}": [number] for number in range(100)}))
    file = OrcInput(LocalStorage(), Location.given(str(path)), None, ReadOptions())
    assert file.read_stripe(0, ["c7"]).to_pylist() == [{"c7": 7}]
    assert kept.byte_count == path.stat().st_size


@pytest.mark.parametrize("count", [3, 20_000])
def test_a_file_that_grows_is_read_up_to_its_committed_bytes(tmp_path: Path, count: int) -> None:
    """A writer appends to it after it was opened. The times need another decoder, which opens it again."""
    path = tmp_path / "bucket_00000"
    rng = random.Random(SEED)
    times = [1 << 55, *(rng.randrange(1 << 40) for _ in range(count))]
    write_orc(path, pa.table({"at": pa.array(times, pa.timestamp("us"))}))
    size = path.stat().st_size
    assert (size > SMALL_FILE_BYTES) == (count > 3)
    file = OrcInput(LocalStorage(), Location.given(str(path)), size, ReadOptions(TimestampForm.TEXT))
    with path.open("ab") as more:
        more.write(b"another stripe")
    found = [
        text
        for index in range(file.stripe_count)
        for text in file.read_stripe(index, ["at"])["at"].to_pylist()
    ]
    assert len(found) == count + 1
    assert found[0].startswith("3111-")
