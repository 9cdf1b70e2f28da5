"""Few rows of a stripe, of which only the row groups are decoded, compared with the whole stripe."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyorc
import pytest

from mutation_api.errors import RecordValueError
from mutation_api.format.event import RowIdArrays
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.format import row_groups
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm, read_column
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.orc.write.event_writer import OrcEventWriter
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import WriterOptions

GOLDEN = Path(__file__).parents[2] / "golden"
COUNT = 30_000
EARLY = datetime.datetime(1960, 1, 1, 0, 0, 0, 250_000)
FAR = datetime.datetime(9999, 12, 31)


@pytest.fixture(autouse=True)
def _always_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "_GROUPS_PER_GROUP_ALONE", 0)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns of each request for which only row groups were decoded."""
    answered: list[str] = []
    read = OrcInput._read_groups

    def noted(self: OrcInput, index: int, columns: list[str], groups: Any) -> pa.RecordBatch | None:
        rows = read(self, index, columns, groups)
        answered.extend(columns if rows is not None else ())
        return rows

    monkeypatch.setattr(OrcInput, "_read_groups", noted)
    return answered


def input_of(path: Path, form: TimestampForm) -> OrcInput:
    return OrcInput(LocalStorage(), Location.given(path), None, ReadOptions(timestamp_form=form))


def columns_of(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from (f"{field.name}.{inner.name}" for inner in field.type)
        else:
            yield field.name


def check(path: Path, rng: np.random.Generator, form: TimestampForm = TimestampForm.TEXT) -> None:
    """Each column alone and all together, at random positions of each stripe, in any order, some twice."""
    names = list(columns_of(input_of(path, form).schema))
    for index in range(input_of(path, form).stripe_count):
        count = input_of(path, form).stripe_rows(index)
        positions = np.append(rng.integers(0, count, min(count, 9)), [0, count - 1])
        for columns in (*([name] for name in names), names):
            whole = input_of(path, form).read_stripe(index, columns)
            expected = shown(whole.take(pa.array(positions)), form)
            found = shown(input_of(path, form).read_rows(index, columns, positions, count), form)
            assert found == expected, (path, index, columns)


def shown(rows: pa.RecordBatch, form: TimestampForm) -> list[str]:
    """Names, types and values in any order of columns, with timestamps in the wanted form."""
    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        arrays = {field.name: column}
        if pa.types.is_struct(field.type):
            arrays = dict(zip((inner.name for inner in field.type), column.flatten(), strict=True))
        for name, array in arrays.items():
            if pa.types.is_timestamp(array.type):
                array = read_column(array, parse_hive_type("timestamp"), ReadOptions(timestamp_form=form))
            columns.append(f"{field.name} {name} {array.type} {array.to_pylist()}")
    return sorted(columns)


@pytest.mark.thorough
@pytest.mark.parametrize("path", ["acid", "acid_v4"])
def test_files_of_hive(path: str) -> None:
    """Of 2.3 and 4.1, by SQL and by the streaming API, compacted ones and original files among them."""
    rng = np.random.default_rng(1)
    files = [
        p
        for p in (GOLDEN / path).rglob("*")
        if p.is_file() and p.read_bytes()[:3] == b"ORC" and "flush" not in p.name
    ]
    for file in files:
        if input_of(file, TimestampForm.TEXT).stripe_count:
            check(file, rng)
    assert len(files) > 5


def values(rng: np.random.Generator, at: datetime.datetime) -> dict[str, pa.Array]:
    numbers = rng.integers(-(10**9), 10**9, COUNT)
    floats = np.where(numbers % 97 == 0, np.nan, numbers / 7)
    arrays = {
        "id": pa.array(numbers),
        "small": pa.array((numbers % 5).astype(np.int8)),
        "yes": pa.array(numbers % 3 == 0),
        "day": pa.array((numbers % 40_000).astype(np.int32)).cast(pa.date32()),
        "price": pa.array([Decimal(int(n)) / 100 for n in numbers], pa.decimal128(12, 2)),
        "total": pa.array([Decimal(int(n)) * 10**20 for n in numbers], pa.decimal128(38, 4)),
        "single": pa.array(floats.astype(np.float32)),
        "double": pa.array(floats),
        "few": pa.array([f"kind {n % 4}" for n in numbers.tolist()]),
        "many": pa.array([f"{'é' * (n % 7)}{n}" for n in numbers.tolist()]),
        "bytes": pa.array([bytes([n % 256, 0, 255]) for n in numbers.tolist()], pa.binary()),
        "at": pa.array([at + datetime.timedelta(seconds=n % 86400) for n in numbers.tolist()]),
        "one": pa.array([7] * COUNT, pa.int32()),
    }
    holes = pa.array(rng.random(COUNT) < 0.2)
    with_nulls = {
        f"{name}_or_null": pa.compute.if_else(holes, pa.scalar(None, array.type), array)
        for name, array in arrays.items()
    }
    return arrays | with_nulls | {"nothing": pa.nulls(COUNT, pa.string())}


@pytest.mark.thorough
@pytest.mark.parametrize("stripe_bytes", [400_000, 64 << 20])
@pytest.mark.parametrize("codec", ["zlib", "zstd", "none"])
def test_files_of_ours(tmp_path: Path, codec: str, stripe_bytes: int, alone: list[str]) -> None:
    """Every type, with and without nulls, one or several row groups in a stripe."""
    rng = np.random.default_rng(2)
    path = written(tmp_path, values(rng, datetime.datetime(2020, 1, 1)), codec, stripe_bytes)
    check(path, rng)
    assert stripe_bytes == 400_000 or {"row.total", "row.bytes_or_null", "row.at"} <= set(alone)


@pytest.mark.slow
@pytest.mark.parametrize("form", TimestampForm)
def test_files_with_timestamps_of_long_ago(tmp_path: Path, form: TimestampForm, alone: list[str]) -> None:
    """They are written by the other encoder."""
    rng = np.random.default_rng(3)
    check(written(tmp_path, values(rng, EARLY), "zlib", 64 << 20), rng, form)
    assert "row.at" in alone


def test_a_timestamp_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    arrays = {"at": pa.array([FAR] * COUNT, pa.timestamp("us"))}
    path = written(tmp_path, arrays, "zlib", 64 << 20)
    with pytest.raises(RecordValueError, match=r"row\.at.*does not fit nanoseconds"):
        input_of(path, TimestampForm.NANOSECONDS).read_rows(0, ["row.at"], np.array([5]), COUNT)


def test_texts_that_are_all_empty(tmp_path: Path) -> None:
    """Their stream has no bytes."""
    texts = [""] * (COUNT - 1) + ["x"]
    path = written(tmp_path, {"text": pa.array(texts), "id": pa.array(range(COUNT))}, "zlib", 64 << 20)
    found = input_of(path, TimestampForm.NANOSECONDS).read_rows(
        0, ["row.text", "row.id"], np.array([COUNT - 1, 15_000]), COUNT
    )
    assert found.column("row").to_pylist() == [{"text": "x", "id": COUNT - 1}, {"text": "", "id": 15_000}]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """They are read as Arrow reads them: what to say of them is not decided here."""
    raw = pa.array([b"\xff"] * COUNT, pa.binary()).view(pa.string())
    path = written(tmp_path, {"text": raw}, "zlib", 64 << 20)
    found = input_of(path, TimestampForm.NANOSECONDS).read_rows(0, ["row.text"], np.array([4]), COUNT)
    assert found.column("row").field(0).cast(pa.binary()).to_pylist() == [b"\xff"]


def test_rows_in_most_groups_are_read_with_the_stripe(
    tmp_path: Path, alone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_GROUPS_PER_GROUP_ALONE", 1)
    path = written(tmp_path, {"id": pa.array(range(COUNT))}, "zlib", 64 << 20)
    source = input_of(path, TimestampForm.NANOSECONDS)
    in_two = np.array([5, COUNT - 1])
    assert source.read_rows(0, ["row.id"], in_two, COUNT).column(0).field(0).to_pylist() == in_two.tolist()
    assert not alone
    in_one = np.array([7, 5])
    assert source.read_rows(0, ["row.id"], in_one, COUNT).column(0).field(0).to_pylist() == in_one.tolist()
    assert alone


def written(folder: Path, arrays: dict[str, pa.Array], codec: str, stripe_bytes: int) -> Path:
    """A file of inserts of ``COUNT`` rows."""
    rows = pa.StructArray.from_arrays(list(arrays.values()), names=list(arrays))
    path = folder / "bucket_00000"
    file = LocalStorage().create(Location.given(path))
    options = WriterOptions(stripe_bytes=stripe_bytes, compression=codec)
    writer = OrcEventWriter(file, rows.type, version=AcidVersion.V2_HIVE4, own_id=1, options=options)
    for start in range(0, COUNT, 5_000):
        ids = np.arange(start, start + 5_000)
        keys = RowIdArrays(np.ones(5_000, np.int64), np.full(5_000, 536870912, np.int32), ids)
        writer.write(np.zeros(5_000, np.int8), keys, rows.slice(start, 5_000))
    writer.finish()
    file.close()
    return path


@pytest.mark.parametrize("stride", [0, 1_000])
def test_files_with_and_without_an_index(tmp_path: Path, stride: int, alone: list[str]) -> None:
    """Hive writes none with ``orc.create.index=false``."""
    path = tmp_path / "000000_0"
    with path.open("wb") as sink:
        writer = pyorc.Writer(sink, "struct<a:int,b:string>", row_index_stride=stride)
        writer.writerows((n, f"text {n % 13}" if n % 5 else None) for n in range(COUNT))
        writer.close()
    check(path, np.random.default_rng(4))
    assert bool(alone) == bool(stride)
