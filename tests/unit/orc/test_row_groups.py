"""Row groups that are decoded without the rest of their stripe, compared with the whole stripe."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyorc
import pytest
from numpy.typing import NDArray

from mutation_api.orc.format.row_groups import RowGroups
from mutation_api.orc.format.run_lengths import (
    RunKind,
    end_of_runs,
    first_bytes,
    runs_of_bytes,
    sum_of_first_lengths,
    without_first_bytes,
    zeros,
)
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from tests.unit.orc.test_ranged_input import CountedStorage

KINDS = ("tiny", "int", "big", "bool", "double", "float", "text", "binary", "timestamp", "date", "decimal")


def numbers(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Numbers in an order that makes the encoder choose one of its kinds of runs."""
    kind = rng.integers(0, 5)
    if kind == 0:
        return np.arange(count)
    if kind == 1:
        return rng.integers(0, 5, count)
    if kind == 2:
        return rng.integers(-(2**40), 2**40, count)
    if kind == 3:
        return np.repeat(rng.integers(0, 1000, count // 7 + 1), 7)[:count]
    return np.where(rng.random(count) < 0.01, rng.integers(0, 2**50, count), rng.integers(0, 100, count))


def column(rng: np.random.Generator, kind: str, count: int) -> pa.Array:
    """Values of a kind without nulls, with many or with few."""
    base = numbers(rng, count)
    given = {
        "tiny": lambda: (base % 200 - 100).astype(np.int8),
        "int": lambda: (base % 2**31 - 2**20).astype(np.int32),
        "big": lambda: base,
        "bool": lambda: base % 3 == 0,
        "double": lambda: base / 7,
        "float": lambda: (base / 7).astype(np.float32),
        "text": lambda: ["x" * (n % 17) + str(n % 100_000) for n in base.tolist()],
        "binary": lambda: [str(n).encode() * (n % 3) for n in base.tolist()],
        "timestamp": lambda: pa.array(base % 2**40 * 1000).cast(pa.timestamp("ns")),
        "date": lambda: pa.array((base % 20_000).astype(np.int32)).cast(pa.date32()),
        "decimal": lambda: pa.array(
            [Decimal(n % 10**12) / 1000 for n in base.tolist()], pa.decimal128(20, 3)
        ),
    }[kind]()
    array = given if isinstance(given, pa.Array) else pa.array(given)
    nulls = rng.choice([0, 0.3, 0.001])
    missing = pa.array(rng.random(count) < nulls)
    return pc.if_else(missing, pa.scalar(None, array.type), array) if nulls else array


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 60))])
@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
def test_groups_have_the_rows_that_their_stripe_has_there(tmp_path: Path, seed: int, remote: bool) -> None:
    """All types and kinds of runs, codecs, sizes of groups and of stripes."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "file.orc"
    compared = 0
    for _ in range(4):
        count = int(rng.integers(1000, 60_000))
        names = [f"{kind}{at}" for at, kind in enumerate(rng.choice(KINDS, 4))]
        inner = [column(rng, name[:-1], count) for name in names]
        rows = pa.StructArray.from_arrays(inner, names=names)
        pyarrow.orc.write_table(
            pa.table({"rowid": pa.array(range(count)), "row": rows}),
            path,
            compression=str(rng.choice(["uncompressed", "zlib", "snappy", "zstd", "lz4"])),
            compression_block_size=int(rng.choice([64, 128, 256])) * 1024,
            row_index_stride=int(rng.choice([1000, 5000, 10_000])),
            dictionary_key_size_threshold=float(rng.choice([0, 0.8, 1])),
            stripe_size=int(rng.choice([64 * 1024, 2**20, 2**26])),
        )
        storage = CountedStorage() if remote else LocalStorage()
        source = OrcInput(storage, Location.given(path), None, ReadOptions())
        for index in range(source.stripe_count):
            groups = source.row_groups(index)
            chosen = np.unique(rng.integers(0, groups.count, rng.integers(1, groups.count + 1)))
            wanted = pa.array(groups.positions(chosen))
            for columns in (["rowid"], *([f"row.{name}"] for name in names), ["rowid", "row"]):
                whole = source.read_stripe(index, columns)
                found = source._read_groups(index, columns, chosen)
                assert (found is None) == (groups.count == 1)
                assert found is None or found.equals(whole.take(wanted)), (names, index, chosen)
                compared += found is not None
    assert compared


def test_timestamps_that_nanoseconds_cannot_hold(tmp_path: Path) -> None:
    """They are decoded value by value; the columns beside them are not."""
    path = tmp_path / "file.orc"
    far = [datetime.datetime(9999, 12, 31, 0, 0, n) for n in range(60)]
    with path.open("wb") as sink:
        writer = pyorc.Writer(
            sink, "struct<id:int,row:struct<at:timestamp,text:string>>", row_index_stride=1000
        )
        writer.writerows((n, (far[n % 60], str(n))) for n in range(5000))
        writer.close()
    source = OrcInput(LocalStorage(), Location.given(path), None, ReadOptions(TimestampForm.MICROSECONDS))
    chosen = np.array([1, 3])
    wanted = [*range(1000, 2000), *range(3000, 4000)]
    for _ in range(2):
        at = source._read_groups(0, ["row.at"], chosen)
        assert at is not None
        assert at.column("row").field("at").to_pylist() == [far[n % 60] for n in wanted]
        both = source.read_stripe(0, ["id", "row.text"], chosen)
        assert both.column("id").to_pylist() == wanted
        assert both.column("row").field("text").to_pylist() == [str(n) for n in wanted]


def test_nested_columns_are_read_with_their_stripe(tmp_path: Path) -> None:
    path = tmp_path / "file.orc"
    rows = pa.table({"id": range(5000), "list": [[n, n + 1] for n in range(5000)]})
    pyarrow.orc.write_table(rows, path, row_index_stride=1000)
    source = OrcInput(LocalStorage(), Location.given(path), None, ReadOptions())
    chosen = np.array([1, 3])
    assert source._read_groups(0, ["list"], chosen) is None
    found = source.read_stripe(0, ["id", "list"], chosen)
    assert found.column("id").to_pylist() == [*range(1000, 2000), *range(3000, 4000)]
    assert found.column("list").to_pylist()[-1] == [3999, 4000]
    assert source.read_stripe(0, ["id"], np.array([], np.int64)).num_rows == 0
    assert source.read_rows(0, ["id"], np.array([], np.int64), 5000).num_rows == 0


def test_groups_of_a_stripe_are_counted_from_its_first_row() -> None:
    groups = RowGroups.of(2500, 1000)
    assert (groups.count, RowGroups.of(2500, 0).count) == (3, 1)
    chosen = groups.holding(np.array([2400, 10, 999]))
    assert chosen.tolist() == [0, 2]
    assert groups.spans(np.array([0, 2, 3])) == [(0, 1), (2, 4)]
    assert groups.positions(chosen).tolist() == [*range(1000), *range(2000, 2500)]
    assert groups.places(chosen, np.array([2400, 10])).tolist() == [1400, 10]


@pytest.mark.parametrize("kind", RunKind)
@pytest.mark.parametrize("count", [0, 1, 8, 127, 128, 129, 512, 513, 2000])
def test_zeros_are_as_many_values(kind: RunKind, count: int) -> None:
    data = zeros(count, kind)
    assert end_of_runs(data, 0, count, kind) == len(data)
    assert kind is not RunKind.VERSION_2 or sum_of_first_lengths(data, count, is_version_2=True) == 0


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 130, 260])
def test_the_first_bytes_are_left_out_of_any_run(count: int) -> None:
    """Literals, then five times the same byte, then literals."""
    values = bytes(range(5)), b"\x07" * 5, bytes(range(250))
    data = runs_of_bytes(values[0]) + bytes([2, 7]) + runs_of_bytes(values[2])
    whole = b"".join(values)
    assert first_bytes(data, 1000) == whole
    left = without_first_bytes(data, count)
    assert first_bytes(left, 1000) == whole[count:]


def test_bytes_that_are_missing_are_refused() -> None:
    with pytest.raises(IndexError):
        without_first_bytes(runs_of_bytes(b"ab"), 3)
