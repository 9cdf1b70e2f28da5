"""Ranges that writers record for a stripe, compared with its values."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.errors import CorruptFileError
from mutation_api.format.event import RowIdArrays
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.format.stored_values import column_id, comparable_range
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.orc.write.event_writer import OrcEventWriter
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import WriterOptions

GOLDEN = Path(__file__).parents[2] / "golden" / "acid"
HIVE_TYPES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "date32[day]": "date",
}
ROW = pa.struct(
    [
        ("tags", pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())]))),
        ("id", pa.int64()),
        ("counts", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("total", pa.decimal128(38, 4)),
        ("msg", pa.string()),
        ("small", pa.int8()),
        ("at", pa.timestamp("us")),
    ]
)


def check_ranges(path: Path) -> int:
    """Compare the ranges of all columns of a file with its values. Returns the number of ranges."""
    source = OrcInput(LocalStorage(), Location.given(path), None, ReadOptions())
    types = {name: hive for name, kind in columns_of(source.schema) if (hive := hive_type_of(kind))}
    checked = 0
    for index, ranges in enumerate(source.stripe_ranges({n: parse_hive_type(t) for n, t in types.items()})):
        for name, (low, high) in ranges.items():
            outer, _, inner = name.partition(".")
            array = source.read_stripe(index, [name]).column(outer)
            values = (array.field(0) if inner else array).drop_null()
            comparable = [plain(value) for value in values]
            assert low <= min(comparable), (path, index, name)
            assert high >= max(comparable), (path, index, name)
            checked += 1
    return checked


def columns_of(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from ((f"{field.name}.{inner.name}", inner.type) for inner in field.type)
        else:
            yield field.name, field.type


def hive_type_of(data_type: pa.DataType) -> str | None:
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    return HIVE_TYPES.get(str(data_type), "string" if pa.types.is_string(data_type) else None)


def plain(value: pa.Scalar) -> Any:
    if pa.types.is_string(value.type):
        return value.as_py().encode()
    return value.value if pa.types.is_date32(value.type) else value.as_py()


@pytest.mark.thorough
def test_files_of_hive() -> None:
    """Of 2.3, by its SQL and its streaming API, compacted ones among them."""
    files = [p for p in GOLDEN.rglob("bucket_*") if p.suffix == "" and "flush" not in p.name]
    checked = sum(check_ranges(path) for path in files)
    assert checked > 5 * len(files) > 0


@pytest.mark.thorough
@pytest.mark.parametrize("needs_pyorc", [False, True])
def test_files_of_ours(tmp_path: Path, needs_pyorc: bool) -> None:
    """Several stripes, by both encoders; nested columns before others shift the numbers."""
    rng = np.random.default_rng(1)
    count = 30_000
    early = datetime.datetime(1960, 1, 1, 0, 0, 0, 250_000)
    numbers = rng.integers(-(10**9), 10**9, count)
    columns = [
        pa.array([[{"k": "x", "v": 1}], None] * (count // 2), ROW.field("tags").type),
        pa.array(numbers),
        pa.array([[("a", [1, 2])], None] * (count // 2), ROW.field("counts").type),
        pa.array((numbers % 40_000).astype(np.int32)).cast(pa.date32()),
        pa.array([Decimal(int(n)) / 100 for n in numbers], pa.decimal128(12, 2)),
        pa.array([Decimal(int(n)) * 10**20 for n in numbers], pa.decimal128(38, 4)),
        pa.array([f"{'é' * (n % 7)}{n}{'long' * 400 if n % 9999 == 0 else ''}" for n in numbers.tolist()]),
        pa.array((numbers % 5).astype(np.int8)),
        pa.array([early if needs_pyorc else datetime.datetime(2020, 1, 1)] * count, pa.timestamp("us")),
    ]
    rows = pa.StructArray.from_arrays(columns, fields=list(ROW))
    file = LocalStorage().create(Location.given(tmp_path / "bucket_00000"))
    writer = OrcEventWriter(
        file,
        ROW,
        version=AcidVersion.V2_HIVE4,
        own_id=1,
        options=WriterOptions(stripe_bytes=200_000),
    )
    for start in range(0, count, 5_000):
        ids = np.arange(start, start + 5_000)
        keys = RowIdArrays(np.ones(5_000, np.int64), np.full(5_000, 536870912, np.int32), ids)
        writer.write(np.zeros(5_000, np.int8), keys, rows.slice(start, 5_000))
    facts = writer.finish()
    file.close()
    assert facts.stripe_count > 2
    # Six columns of the row, five of the event.
    assert check_ranges(tmp_path / "bucket_00000") == 11 * facts.stripe_count


def test_columns_are_numbered_as_the_tree_is_walked() -> None:
    """The root is 0; lists, maps and structs count themselves and what is in them."""
    schema = pa.schema([("operation", pa.int32()), ("row", ROW)])
    assert [column_id(schema, name) for name in ("operation", "row", "row.tags", "row.id")] == [1, 2, 3, 7]
    assert [column_id(schema, name) for name in ("row.counts", "row.day", "row.at")] == [8, 12, 17]
    with pytest.raises(KeyError):
        column_id(schema, "row.nope")


@pytest.mark.parametrize(
    ("statistics", "file_type", "hive_type"),
    [
        (b"", pa.int64(), "bigint"),
        (b"\x12\x04\x08\x02\x10\x08", pa.string(), "bigint"),
        (b"\x12\x04\x08\x02\x10\x08", pa.int64(), "double"),
        (b"\x12\x02\x08\x02", pa.int64(), "bigint"),
        (b"\x12\x04\x08\x08\x10\x02", pa.int64(), "bigint"),
        (b"\x22\x06\x0a\x01a\x12\x01b", pa.string(), "char(3)"),
        (b"\x22\x06\x0a\x01a\x12\x01b", pa.string(), "varchar(3)"),
        (b"\x3a\x08\x08\xff\xff\xff\xff\x0f\x10\x02", pa.date32(), "date"),
        (b"\x22\x08\x0a\x01a\x12\x03\xef\xbf\xbd", pa.string(), "string"),
    ],
)
def test_what_tells_nothing(statistics: bytes, file_type: pa.DataType, hive_type: str) -> None:
    """No or half a range, another type, a reversed one, padding, an early day, bytes that were no text."""
    assert comparable_range(statistics, file_type, parse_hive_type(hive_type)) is None


def test_ranges_that_are_known() -> None:
    """Zigzag numbers; bounds replace texts that were too long; decimals are text."""
    assert comparable_range(b"\x12\x04\x08\x01\x10\x08", pa.int32(), parse_hive_type("bigint")) == (-1, 4)
    bounds = comparable_range(b"\x22\x06\x22\x01a\x2a\x01b", pa.string(), parse_hive_type("string"))
    assert bounds == (b"a", b"b")
    decimals = comparable_range(
        b"\x32\x09\x0a\x03-.5\x12\x02" + b"7.", pa.decimal128(3, 1), parse_hive_type("decimal(3,1)")
    )
    assert decimals == (Decimal("-0.5"), Decimal(7))


def test_damaged_statistics_are_refused() -> None:
    """They would hide rows."""
    for statistics in (b"\x12\x99", b"\x32\x06\x0a\x01x\x12\x01y"):
        kind = "bigint" if statistics[0] == 0x12 else "decimal(3,1)"
        file_type = pa.int64() if kind == "bigint" else pa.decimal128(3, 1)
        with pytest.raises(CorruptFileError, match="statistics of an ORC column cannot be parsed"):
            comparable_range(statistics, file_type, parse_hive_type(kind))
