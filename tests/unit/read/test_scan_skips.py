"""A condition of a scan leaves out stripes and columns, and never a row."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import RecordValueError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.orc.read import file_columns
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.orc.write import encoders
from mutation_api.read.row_filter import RowFilter
from mutation_api.table.acid_table import WriterOptions

LAYOUTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "2.3": (HIVE_2_3, {"properties": {"transactional_properties": "default"}}),
    "2.3 legacy": (HIVE_2_3, {}),
    "3.1": (HIVE_3_1, {}),
    "4.1": (HIVE_4_1, {}),
    "4.1 insert-only": (HIVE_4_1, {"insert_only": True}),
}
T = "default.t"
STRIPES = WriterOptions(stripe_bytes=1)
"""A stripe for each batch of the encoder."""
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=n) for n in range(30)]
TYPES: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "small": pa.int8(),
    "name": pa.string(),
    "day": pa.date32(),
    "price": pa.decimal128(9, 2),
    "ratio": pa.float64(),
    "at": pa.timestamp("us"),
    "flag": pa.bool_(),
    "part": pa.string(),
}
HIVE_TYPES = (
    "id bigint, small tinyint, name string, day date, price decimal(9,2), ratio double, at timestamp, "
    "flag boolean, part string"
)


@pytest.fixture(autouse=True)
def small_stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stripes have 40 rows, and their ranges are used for files of any size."""
    monkeypatch.setattr(file_columns, "_SMALL_BYTES", 0)
    monkeypatch.setattr(encoders, "BATCH_ROWS", 40)


@pytest.fixture(params=LAYOUTS)
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hive]:
    """A partitioned table of two buckets, with Bloom filters."""
    capabilities, given = LAYOUTS[request.param]
    filters = {"orc.bloom.filter.columns": "id,small,name"}
    layout = given | {"properties": given.get("properties", {}) | filters}
    with connect(InMemoryMetastore(tmp_path, capabilities=capabilities)) as connected:
        buckets: dict[str, Any] = (
            {} if "insert_only" in layout else {"clustered_by": ["id"], "num_buckets": 2}
        )
        connected.create_table(
            T, HIVE_TYPES, partitioned_by=["part"], **layout, **({} if "insert_only" in layout else buckets)
        )
        yield connected


def value(rng: random.Random, name: str, near: int) -> Any:
    """A value of a column: in most columns, rows that are near have values that are near."""
    at = max(0, near + rng.randrange(-3, 4))
    return {
        "id": at,
        "small": at % 100,
        "name": f"n{at:04}" + "x" * rng.choice([0, 1200]),
        "day": DAYS[at // 20 % len(DAYS)],
        "price": Decimal(at) / 4,
        "ratio": rng.choice([float(at), float("nan"), -0.0]),
        "at": datetime.datetime(2024, 1, 1) + datetime.timedelta(minutes=at),
        "flag": rng.random() < 0.5,
        "part": rng.choice("ab"),
    }[name]


def rows(rng: random.Random, count: int) -> pa.Table:
    """Rows in the order of their values, with NULLs everywhere but in the key and the partition."""
    nulls = {name: 0 if name in ("id", "part") else rng.choice([0, 0.1, 1]) for name in TYPES}
    return pa.table(
        {
            name: pa.array(
                [None if rng.random() < nulls[name] else value(rng, name, n) for n in range(count)], kind
            )
            for name, kind in TYPES.items()
        }
    )


def leaf(rng: random.Random) -> pc.Expression:
    """A condition on one column."""
    name = rng.choice([*TYPES])
    field, kind = pc.field(name), TYPES[name]
    constants = [pa.scalar(value(rng, name, rng.randrange(500)), kind) for _ in range(3)]
    compare = rng.randrange(9)
    if compare == 0:
        return field.is_null()
    if compare == 1:
        return field.is_valid()
    if compare == 2:
        return field.isin(pa.array([each.as_py() for each in constants], kind))
    if name == "flag":
        return field
    if compare == 3 and name == "name":
        return pc.match_like(field, "%4")
    if compare == 4 and name in ("id", "small"):
        return pc.divide(field, 7) == 3
    (low, high), one = sorted(constants[:2], key=lambda each: str(each)), constants[2]
    return [
        lambda: field == one,
        lambda: field != one,
        lambda: field < one,
        lambda: field >= one,
        lambda: (field >= low) & (field <= high),
    ][compare % 5]()


def condition(rng: random.Random, leaf: Callable[[random.Random], Any], depth: int = 2) -> Any:
    """Conditions joined by and, or, not; ``leaf`` makes one on a single column."""
    kind = rng.randrange(4) if depth else 3
    if kind == 0:
        return condition(rng, leaf, depth - 1) & condition(rng, leaf, depth - 1)
    if kind == 1:
        return condition(rng, leaf, depth - 1) | condition(rng, leaf, depth - 1)
    if kind == 2:
        return ~condition(rng, leaf, depth - 1)
    return leaf(rng)


@pytest.fixture(params=["stripes", "groups"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stripes of 40 rows, or of 1,000 in row groups of 20."""
    if request.param == "groups":
        monkeypatch.setattr(encoders, "BATCH_ROWS", 1000)
        monkeypatch.setattr(encoders, "ROW_INDEX_STRIDE", 20)


@pytest.mark.thorough
@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 41))])
def test_the_rows_are_those_of_the_whole_table_filtered(hive: Hive, seed: int) -> None:
    """Random rows, deletes and conditions."""
    rng = random.Random(seed)
    table = hive.table(T)
    for _ in range(2):
        with hive.transaction(T, create_partitions=True, options=STRIPES) as tx:
            tx.table(T).append(rows(rng, rng.choice([0, 30, 300])))
    if table._table.version.has_row_ids:
        table.delete(where=(pc.field("id") >= 50) & (pc.field("id") < 120))
        table.update(set={"name": "'new'"}, where="small = 7")
    with hive.snapshot(T) as view:
        handle = view.table(T)
        whole = handle.scan().to_arrow()
        assert handle.scan().count() == whole.num_rows
        for _ in range(50 if seed > 1 else 15):
            where = condition(rng, leaf)
            columns = rng.sample([*TYPES], rng.randrange(1, 4))
            found = handle.scan(columns, where=where).to_arrow()
            every = RowFilter.of(where, table._table, whole.schema)
            expected = pa.Table.from_batches(
                [every.rows(each) for each in whole.to_batches()], whole.schema
            ).select(columns)
            assert found.num_rows == handle.scan(where=where).count() == expected.num_rows, where
            # NaN differs from itself, so rows are compared as strings.
            assert str(found.to_pylist()) == str(expected.to_pylist()), where


@pytest.fixture
def stripes_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[str, ...]]]:
    """The stripes that are decoded, and their columns without the fields of events."""
    found = []
    read = OrcInput.read_stripe

    def noting(source: OrcInput, index: int, columns: Any, groups: Any = None) -> pa.RecordBatch:
        found.append((index, tuple(name.removeprefix("row.") for name in columns if name.startswith("row."))))
        return read(source, index, columns, groups)

    monkeypatch.setattr(OrcInput, "read_stripe", noting)
    return found


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("where", "stripes", "late"),
    [
        (pc.field("id") == 100, 1, 1),
        (pc.field("id").isin([-1, 100, 310, 312, 10_000]), 2, 2),
        ((pc.field("id") == 100) | (pc.field("name") == "n0300"), 2, 2),
        ((pc.field("id") > 90) & (pc.field("id") < 130), 2, 2),
        ((pc.field("id") == 100) & (pc.field("part") == "z"), 0, 0),
        ((pc.field("id") == 100) | (pc.field("part") == "z"), 1, 1),
        (pc.field("day") == DAYS[4], 1, 1),
        (pc.field("price") > Decimal("99.9"), 0, 0),
        (pc.field("name").is_null(), 8, 0),
        (pc.field("ratio") == 100.0, 8, 1),
        (pc.field("id") * 2 == 200, 8, 1),
    ],
    ids=str,
)
def test_stripes_that_cannot_have_rows_are_not_read(
    tmp_path: Path, stripes_read: list[tuple[int, tuple[str, ...]]], where: Any, stripes: int, late: int
) -> None:
    """Of those that can, other columns are read only if a row meets the condition."""
    with connect(InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)) as hive:
        hive.create_table(T, HIVE_TYPES, partitioned_by=["part"])
        given = {
            "id": range(320),
            "small": [1] * 320,
            "name": [f"n{n:04}" for n in range(320)],
            "day": [DAYS[n // 20] for n in range(320)],
            "price": [Decimal(n) / 4 for n in range(320)],
            "ratio": [float(n) for n in range(320)],
            "at": [None] * 320,
            "flag": [True] * 320,
            "part": ["a"] * 320,
        }
        data = pa.table({name: pa.array(values, TYPES[name]) for name, values in given.items()})
        with hive.transaction(T, create_partitions=True, options=STRIPES) as tx:
            tx.table(T).append(data)
        with hive.snapshot(T) as view:
            scan = view.table(T).scan(["flag"], where=where)
            explained = scan.explain()
            stripes_read.clear()
            found = scan.to_arrow()
        assert found.num_rows == data.filter(where).num_rows
    assert len({index for index, columns in stripes_read if columns != ("flag",)}) == stripes
    assert len([index for index, columns in stripes_read if columns == ("flag",)]) == late
    parts = 0 if "z" in str(where) and stripes == 0 else 1
    assert (explained.partition_count, explained.partitions_read) == (1, parts)
    assert (explained.stripe_count, explained.stripes_read) == (8 * parts, stripes)
    assert (explained.file_count, explained.late_columns) == (parts, ("flag",))


def test_a_value_that_cannot_be_computed_counts_only_in_rows_that_are_there(tmp_path: Path) -> None:
    """The row with the zero is deleted. If it is there, the scan is refused."""
    with connect(InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)) as hive:
        table = hive.create_table(T, "id bigint, pieces bigint")
        table.append(pa.table({"id": [1, 2, 3], "pieces": [4, 0, 2]}))
        where = pc.scalar(8) / pc.field("pieces") == 4
        with hive.snapshot(T) as view, pytest.raises(RecordValueError, match="divide by zero"):
            view.table(T).scan(where=where).to_arrow()
        table.delete(where="pieces = 0")
        with hive.snapshot(T) as view:
            assert view.table(T).scan(where=where).to_arrow()["id"].to_pylist() == [3]


def test_an_explanation_names_columns_and_conditions(tmp_path: Path) -> None:
    """As lines, and as a dict of JSON types; without a condition, all columns of all stripes."""
    with connect(InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)) as hive:
        table = hive.create_table(T, "id bigint, pieces bigint, item string")
        table.append(pa.table({"id": [1, 2, 3], "pieces": [4, 0, 2], "item": ["a", "b", "c"]}))
        table.delete(where="id = 3")
        with hive.snapshot(T) as view:
            found = view.table(T).scan(["item", "id"], where=pc.field("pieces") > 9).explain()
            whole = view.table(T).scan(["item"]).explain()
    size = found.byte_count
    assert str(found).splitlines() == [
        "default.t where (pieces > 9)",
        "partitions: 1 of 1",
        f"files in these: 2, {size:,} bytes",
        "stripes: 1 of 2",
        "columns: pieces",
        "only from stripes with such rows: item, id",
    ]
    assert whole.to_dict() == {
        "table": T,
        "where": None,
        "partition_count": 1,
        "partitions_read": 1,
        "file_count": 2,
        "byte_count": size,
        "stripe_count": 2,
        "stripes_read": 2,
        "columns": ["item"],
        "late_columns": [],
    }
