"""Lazy frames of Polars and datasets for DuckDB read what a query needs, and find what eager frames find."""

from __future__ import annotations

import datetime
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import ConfigurationError, RecordLayoutError, TableNotFoundError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.hive.lazy_frame import pushed_condition
from mutation_api.table.acid_table import WriterOptions
from tests.unit.read.test_scan_skips import (  # noqa: F401  (fixtures)
    DAYS,
    HIVE_TYPES,
    TYPES,
    condition,
    rows,
    small_stripes,
    stripes_read,
    value,
)

T = "default.t"


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    """A partitioned table."""
    with connect(InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)) as connected:
        connected.create_table(T, HIVE_TYPES, partitioned_by=["part"])
        yield connected


def fill(hive: Hive, data: pa.Table) -> None:
    with hive.transaction(T, create_partitions=True, options=WriterOptions(stripe_bytes=1)) as tx:
        tx.table(T).append(data)


def leaf(rng: random.Random) -> pl.Expr:
    """A condition on one column."""
    name = rng.choice([*TYPES])
    column = pl.col(name)
    one, low, high = (value(rng, name, rng.randrange(300)) for _ in range(3))
    if name == "flag":
        return rng.choice([column, column.is_null(), ~column])
    return rng.choice(
        [
            column == one,
            column != one,
            column < one,
            column >= one,
            column.is_between(pl.lit(min(low, high)), pl.lit(max(low, high))),
            column.is_null(),
            column.is_not_null(),
            column.is_in([one, low]),
            column.is_in([one, None], nulls_equal=rng.random() < 0.5),
            column.eq_missing(one),
            column.ne_missing(one),
            *([column.is_nan()] if name == "ratio" else []),
            *([column.str.ends_with("4")] if name == "name" else []),
            *([(column * 2) % 7 == 4] if name in ("id", "small") else []),
        ]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 41))])
def test_a_lazy_frame_has_the_rows_of_an_eager_one(hive: Hive, seed: int) -> None:
    """Random conditions with NULL and NaN, columns and limits; Polars' own rules decide."""
    rng = random.Random(seed)
    fill(hive, rows(rng, 300))
    hive.table(T).delete(where=(pc.field("id") >= 50) & (pc.field("id") < 120))
    frame = hive.scan_polars(T)
    whole = frame.collect()
    pushed = 0
    for _ in range(50 if seed > 1 else 20):
        where = condition(rng, leaf)
        columns = rng.sample([*TYPES], rng.randrange(1, 4))
        found = frame.filter(where).select(columns).collect()
        assert str(found.rows()) == str(whole.filter(where).select(columns).rows()), where
        count = rng.randrange(20)
        assert frame.head(count).filter(where).collect().equals(whole.head(count).filter(where)), where
        assert len(frame.filter(where).head(count).collect()) == min(count, len(whole.filter(where))), where
        pushed += pushed_condition(where, hive.table(T).schema) is not None
    assert pushed >= 3


@pytest.mark.parametrize(
    ("where", "is_pushed"),
    [
        (pl.col("id") > 3, True),
        ((pl.col("id") > 3) & (pl.col("day") == DAYS[0]), True),
        (pl.col("ratio") > 3, False),
        ((pl.col("ratio") > 3) | (pl.col("id") == 1), False),
        (pl.col("id").is_in([1, None]), False),
        (pl.col("name").str.ends_with("x"), False),
    ],
    ids=str,
)
def test_only_conditions_that_mean_the_same_are_pushed(hive: Hive, where: pl.Expr, is_pushed: bool) -> None:
    """Arrow's rules for NaN differ, and Polars leaves NULL out of sets."""
    assert (pushed_condition(where, hive.table(T).schema) is not None) == is_pushed


def test_a_lazy_frame_reads_only_what_it_needs(hive: Hive, stripes_read: list[Any]) -> None:  # noqa: F811
    """Of eight stripes two, and the other column of one; each evaluation sees the table as it is then."""
    fill(hive, ordered(320))
    found = hive.scan_polars(T).filter(pl.col("id") == 100).select("name")
    stripes_read.clear()
    assert found.collect().rows() == [("n0100",)]
    # Each partition has every second row, and both have rows beside the one that is sought.
    # The fields of events are read, without a column, only from the stripe with the row.
    assert stripes_read == [(1, ("id",)), (1, ()), (1, ("name",)), (1, ("id",))]
    hive.table(T).delete(where="id = 100")
    assert found.collect().rows() == []
    assert "HIVE default.t" in found.explain()


def ordered(count: int) -> pa.Table:
    """Rows without NULL, in the order of id."""
    given: dict[str, Any] = {
        "id": range(count),
        "small": [1] * count,
        "name": [f"n{n:04}" for n in range(count)],
        "day": [DAYS[n // 20] for n in range(count)],
        "price": [Decimal(n) / 4 for n in range(count)],
        "ratio": [float("nan") if n % 2 else float(n) for n in range(count)],
        "at": [datetime.datetime(2024, 1, 1)] * count,
        "flag": [True] * count,
        "part": ["ab"[n % 2] for n in range(count)],
    }
    return pa.table({name: pa.array(values, TYPES[name]) for name, values in given.items()})


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    "where",
    [
        "id = 100",
        "id < 5 and name like 'n%3'",
        "price between 10 and 10.5 or id = 7",
        "day = date '2024-01-03' and part = 'a'",
        "ratio > 300",
        "id in (1, 2, 310) and flag",
        "\"at\" >= timestamp '2024-01-01' and small = 1 and id >= 318",
        "name is null",
    ],
)
def test_duckdb_pushes_columns_and_filters(hive: Hive, stripes_read: list[Any], where: str) -> None:  # noqa: F811
    """The same rows as over the whole table in memory, from fewer stripes."""
    fill(hive, ordered(320))
    whole = ordered(320)
    with hive.snapshot(T) as view, duckdb.connect() as database:
        database.register("lazy", view.table(T).scan().to_dataset())
        database.register("whole", whole)
        stripes_read.clear()
        sql = f"select id, part, price from {{}} where {where} order by id"
        found = database.sql(sql.format("lazy")).fetchall()
        assert found == database.sql(sql.format("whole")).fetchall()
        if where == "id = 100":
            assert {index for index, _ in stripes_read} == {1}
        assert not any("at" in columns for _, columns in stripes_read if "at" not in where)
        assert database.sql("select count(*), count(distinct part) from lazy").fetchall() == [(320, 2)]


def test_a_dataset_is_one_of_pyarrow(hive: Hive) -> None:
    """Its readers, in the requested order of columns, with ROW__ID; what needs its files is refused."""
    fill(hive, ordered(90))
    with hive.snapshot(T) as view:
        dataset = view.table(T).scan(row_ids=True, where=pc.field("id") >= 10).to_dataset()
        assert isinstance(dataset, pyarrow.dataset.Dataset)
        assert dataset.schema.names == ["ROW__ID", *TYPES]
        found = dataset.to_table(["part", "ROW__ID", "id"], filter=pc.field("part") == "b")
        assert found.column_names == ["part", "ROW__ID", "id"]
        assert sorted(found["id"].to_pylist()) == list(range(11, 90, 2))
        assert dataset.filter(pc.field("id") < 12).filter(pc.field("part") == "a").count_rows() == 1
        assert dataset.count_rows() == 80 and dataset.head(3, columns=["id"]).num_rows == 3
        assert dataset.scanner(["id"]).projected_schema == pa.schema([("id", pa.int64())])
        assert sum(batch.num_rows for batch in dataset.to_batches(columns=["id"])) == 80
        lazy = pl.scan_pyarrow_dataset(dataset).filter(pl.col("id") == 20).select("name").collect()
        assert lazy.rows() == [("n0020",)]
        for name in ("get_fragments", "join", "take", "sort_by", "replace_schema"):
            with pytest.raises(NotImplementedError, match=name):
                getattr(dataset, name)()
        with pytest.raises(NotImplementedError, match="partition_expression"):
            _ = dataset.partition_expression
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(dataset)
        with pytest.raises(ConfigurationError, match="limit=3"):
            view.table(T).scan(limit=3).to_dataset()


def test_every_member_of_pyarrows_classes_is_overridden(hive: Hive) -> None:
    """Those of the C++ object would read invalid memory."""
    with hive.snapshot(T) as view:
        dataset = view.table(T).scan().to_dataset()
        for ours, theirs in (
            (type(dataset), pyarrow.dataset.Dataset),
            (type(dataset.scanner()), pyarrow.dataset.Scanner),
        ):
            names = {n for n in dir(theirs) if not n.startswith("_")}
            static = {n for n in names if n.startswith("from_")}
            assert names - static - set(vars(ours)) == set()


@pytest.mark.thorough
def test_other_packages_find_pyarrows_modules() -> None:
    """DuckDB takes ``pyarrow.dataset`` from pyarrow, after this library has been imported."""
    program = (
        "import sys, mutation_api.read.row_filter, mutation_api.table.evaluation\n"
        "assert 'pyarrow.dataset' not in sys.modules and 'pyarrow.acero' not in sys.modules\n"
        "import pyarrow.dataset, pyarrow.acero\n"
        "print(pyarrow.dataset.Dataset.__name__, pyarrow.acero.Declaration.__name__)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["Dataset", "Declaration"]


def test_what_a_lazy_frame_refuses(hive: Hive) -> None:
    """At the call: a table that is missing, and unions."""
    with pytest.raises(TableNotFoundError):
        hive.scan_polars("default.nothing")
    hive.create_table("default.u", "id bigint, u uniontype<int,string>")
    with pytest.raises(RecordLayoutError, match="unions"):
        hive.scan_polars("default.u")
