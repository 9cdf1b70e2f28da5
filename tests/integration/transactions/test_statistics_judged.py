"""Statistics that a commit records, beside those of Hive's ANALYZE TABLE over the same rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from metastore_client.model import ColumnStatistics
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api import Hive, WriterOptions, connect
from mutation_api.upkeep.verify.verify import verify_table
from tests.fixtures.fix_newest import HIVE_4
from tests.integration.upkeep.soundness import check_sound

pytestmark = pytest.mark.slow

COLUMNS = {
    "i": "int",
    "b": "bigint",
    "t": "tinyint",
    "o": "boolean",
    "d": "double",
    "f": "float",
    "s": "string",
    "v": "varchar(20)",
    "c": "char(12)",
    "x": "binary",
    "m": "decimal(20,4)",
    "y": "date",
    "w": "timestamp",
}
GATHER = WriterOptions(column_statistics=True)
BY_STATISTICS = {"hive.compute.query.using.stats": "true"}


def random_rows(count: int, seed: int) -> pa.Table:
    """Rows of every type with statistics, a tenth of them nulls, with many and few distinct values."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-(10**6), 10**6, count)
    each = numbers.tolist()
    columns = [
        pa.array(numbers.astype(np.int32)),
        pa.array(rng.integers(-(2**62), 2**62, count)),
        pa.array(rng.integers(-5, 5, count).astype(np.int8)),
        pa.array(rng.random(count) < 0.3),
        pa.array(rng.normal(size=count)),
        pa.array(rng.normal(size=count).astype(np.float32)),
        pa.array([f"é{n % 777}" * (n % 4) for n in each]),
        pa.array([f"v{n}" for n in each]),
        pa.array([f"c{n % 99}" for n in each]),
        pa.array([bytes([n % 256]) * (n % 9) for n in each], pa.binary()),
        pa.array([Decimal(n).scaleb(-2) for n in each], pa.decimal128(20, 4)),
        pa.array([date(2000, 1, 1) + timedelta(days=n % 5000) for n in each]),
        pa.array([datetime(1960, 1, 1) + timedelta(seconds=n, milliseconds=n % 7) for n in each]),
    ]
    masked = [pa.array(each.to_pylist(), each.type, mask=rng.random(count) < 0.1) for each in columns]
    return pa.table(dict(zip(COLUMNS, masked, strict=True)))


@dataclass
class Gathered:
    """A table, and who looks at it."""

    judge: HiveJudge
    hive: Hive
    metastore: ThriftMetastoreClient
    database: str
    keys: str

    @property
    def name(self) -> str:
        return f"{self.database}.t"

    @property
    def partition(self) -> str:
        return "p=1" if self.keys else ""

    def create(self) -> None:
        self.hive.create_table(
            self.name,
            ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()) + (", p int" if self.keys else ""),
            partitioned_by=["p"] if self.keys else [],
        )

    def append(self, rows: pa.Table, options: WriterOptions | None = GATHER) -> None:
        if self.keys:
            rows = rows.append_column("p", pa.array([1] * len(rows), pa.int32()))
        with self.hive.transaction(
            self.name, create_partitions=bool(self.keys), insert_only=True, options=options
        ) as tx:
            tx.table(self.name).append(rows)

    def statistics(self) -> dict[str, ColumnStatistics]:
        """What the metastore has recorded, by column."""
        names = [self.partition] if self.keys else None
        found = self.metastore.get_column_statistics(self.database, "t", names, list(COLUMNS))
        return {each.column: each for each in found.get(self.partition, ())}

    def accurate(self) -> set[str]:
        """The columns whose statistics the metastore marks as accurate."""
        if self.keys:
            (described,) = self.metastore.get_partitions_by_names(self.database, "t", [self.partition])
            parameters = described.parameters
        else:
            parameters = self.metastore.get_table(self.database, "t").parameters
        return {*json.loads(parameters.get("COLUMN_STATS_ACCURATE", "{}")).get("COLUMN_STATS", {})}

    def analyze(self) -> dict[str, ColumnStatistics]:
        """What ANALYZE TABLE records."""
        partition = " partition (p)" if self.keys else ""
        self.judge.sql(f"analyze table {self.name}{partition} compute statistics for columns")
        return self.statistics()

    def plan(self) -> list[list[object]]:
        """Hive's plan of a query that depends on statistics, without the numbers of the query."""
        lines = self.judge.sql(
            f"explain select s, count(*) from {self.name} where i > 500000 and t in (1, 2) and y is not null "
            "group by s"
        )
        return [line for line in lines if "Dag" not in str(line[0])]


@pytest.fixture(params=["", "p"], ids=["table", "partition"])
def gathered(request: pytest.FixtureRequest, hive_line: HiveJudge, line_database: str) -> Iterator[Gathered]:
    with connect(hive_line.uri) as hive, open_client(hive_line.uri) as metastore:
        world = Gathered(hive_line, hive, metastore, line_database, request.param)
        world.create()
        yield world


def check_equal(ours: dict[str, ColumnStatistics], theirs: dict[str, ColumnStatistics]) -> None:
    """Compare all but estimates, which may differ by 2 %."""
    assert ours.keys() == theirs.keys()
    for name, each in theirs.items():
        mine = ours[name]
        for fact in ("null_count", "low", "high", "true_count", "false_count", "max_length"):
            assert getattr(mine, fact) == getattr(each, fact), (name, fact)
        assert (mine.average_length is None) is (each.average_length is None), name
        assert (mine.average_length or 0) == pytest.approx(each.average_length or 0), name
        assert (mine.distinct_count or 0) == pytest.approx(each.distinct_count or 0, rel=0.02), name


@pytest.mark.feature("column statistics with the commit")
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
@pytest.mark.parametrize("count", [100, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_first_load_is_as_after_analyze(gathered: Gathered, count: int) -> None:
    """Values, estimates, plans and answers."""
    gathered.append(random_rows(count, seed=count))
    assert gathered.accurate() == {*COLUMNS}
    ours, plan = gathered.statistics(), gathered.plan()
    answers = gathered.judge.sql(
        f"select min(i), max(b), count(s), max(y) from {gathered.name}", settings=BY_STATISTICS
    )
    assert check_sound(gathered.metastore, gathered.name).row_count == count
    check_equal(ours, gathered.analyze())
    assert gathered.plan() == plan
    read = gathered.judge.sql(
        f"select min(i), max(b), count(s), max(y) from {gathered.name}",
        settings={"hive.compute.query.using.stats": "false"},
    )
    assert read == answers


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_later_changes(gathered: Gathered) -> None:
    """An insert widens them, except decimals; a delete, another insert or an abort make them doubtful."""
    gathered.append(random_rows(50, seed=1))
    first = gathered.statistics()
    gathered.append(random_rows(3000, seed=2))
    assert gathered.accurate() == {*COLUMNS} - {"m"}
    second = gathered.statistics()
    assert second["i"].low < first["i"].low
    assert second["i"].null_count > first["i"].null_count
    check_sound(gathered.metastore, gathered.name)
    analyzed = gathered.analyze()
    for name, each in analyzed.items():
        if name != "m":
            assert (second[name].low, second[name].high) == (each.low, each.high), name
            assert second[name].null_count == each.null_count, name
    with gathered.hive.transaction(gathered.name, options=GATHER) as tx:
        tx.table(gathered.name).append(_of_table(gathered, random_rows(10, seed=3)))
        tx.abort()
    check_sound(gathered.metastore, gathered.name)
    gathered.analyze()
    assert gathered.accurate() == {*COLUMNS}
    gathered.append(random_rows(10, seed=4), None)
    assert gathered.accurate() == set()
    check_sound(gathered.metastore, gathered.name)
    gathered.analyze()
    gathered.hive.table(gathered.name).delete(where="i > 0")
    assert gathered.accurate() == set()
    check_sound(gathered.metastore, gathered.name)
    gathered.append(random_rows(10, seed=5))
    assert gathered.accurate() == set()


def _of_table(gathered: Gathered, rows: pa.Table) -> pa.Table:
    return rows.append_column("p", pa.array([1] * len(rows), pa.int32())) if gathered.keys else rows


def check_ends(gathered: Gathered) -> None:
    """Hive answers by the statistics as it does by the rows."""
    query = f"select min(i), max(b), min(d), max(m), min(y), max(w), max(o), count(s) from {gathered.name}"
    found = gathered.judge.sql(query, settings=BY_STATISTICS)
    assert found == gathered.judge.sql(query, settings={"hive.compute.query.using.stats": "false"})
    check_sound(gathered.metastore, gathered.name)


def _without_values(rows: pa.Table) -> pa.Table:
    """The rows with NULL in all columns but the first."""
    nulls = {name: pa.nulls(len(rows), rows[name].type) for name in rows.column_names[1:]}
    return pa.table({rows.column_names[0]: rows[rows.column_names[0]], **nulls})


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_columns_that_lose_all_values(gathered: Gathered) -> None:
    """The server keeps the range of a column that gets none, so after an overwrite it is not accurate."""
    gathered.append(random_rows(50, seed=1))
    rows = _without_values(random_rows(20, seed=2))
    with gathered.hive.transaction(gathered.name, options=GATHER) as tx:
        kept = {"partitions": "dynamic"} if gathered.keys else {}
        tx.table(gathered.name).overwrite(_of_table(gathered, rows), **kept)
    assert "i" in gathered.accurate()
    check_ends(gathered)


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_new_rows_after_all_were_deleted(gathered: Gathered) -> None:
    """The ranges of the deleted rows are still recorded, and must not become accurate."""
    gathered.append(random_rows(50, seed=1))
    gathered.hive.table(gathered.name).delete(where="i IS NULL OR i IS NOT NULL")
    gathered.append(random_rows(3, seed=2))
    check_ends(gathered)


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_hive_keeps_the_range_of_a_column_without_values(gathered: Gathered) -> None:
    """After its own ANALYZE, Hive answers from the old range. ``verify`` finds that."""
    gathered.append(random_rows(50, seed=1))
    gathered.hive.table(gathered.name).delete(where="i IS NULL OR i IS NOT NULL")
    gathered.append(_without_values(random_rows(20, seed=2)), None)
    gathered.analyze()
    query = f"select min(d) from {gathered.name}"
    assert gathered.judge.sql(query, settings={"hive.compute.query.using.stats": "false"}) == [[None]]
    (found,) = gathered.judge.sql(query, settings=BY_STATISTICS)
    wrong = [each for each in verify_table(gathered.metastore, gathered.name).findings if "d:" in each.found]
    assert found != [None]
    assert wrong


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_values_without_an_order_have_no_statistics(gathered: Gathered) -> None:
    """NaN and days that Hive's releases count differently."""
    rows = random_rows(20, seed=7)
    for name, value in (("d", float("nan")), ("f", float("nan")), ("y", date(1500, 1, 1))):
        column = pa.array([value, *rows[name].to_pylist()[1:]], rows[name].type)
        rows = rows.set_column(rows.column_names.index(name), name, column)
    gathered.append(rows)
    assert gathered.accurate() == {*COLUMNS} - {"d", "f", "y"}
    assert not {"d", "f", "y"} & {*gathered.statistics()}
    check_sound(gathered.metastore, gathered.name)


@pytest.mark.long
@pytest.mark.feature("column statistics with the commit", says="of new partitions")
@pytest.mark.parametrize("hive_line", ["3.1"], indirect=True)
def test_a_new_partition_of_hive_31(gathered: Gathered) -> None:
    """Only a new partition gets them, as this release does not say which are accurate."""
    gathered.append(random_rows(5000, seed=9))
    ours = gathered.statistics()
    if not gathered.keys:
        assert ours == {}
        return
    assert gathered.judge.line not in HIVE_4
    check_equal(ours, gathered.analyze())
