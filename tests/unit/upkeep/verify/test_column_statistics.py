"""Statistics of columns that a metastore calls accurate: true ones are silent, each lie is found."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo, ColumnStatistics, TableInfo
from metastore_client.testing import HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.hive.connect import connect
from mutation_api.upkeep.verify.finding import Finding
from mutation_api.upkeep.verify.statistics_check import ColumnValues
from mutation_api.upkeep.verify.verify import verify_table

ROWS = pa.table(
    {
        "n": pa.array([3, None, -7, 5], pa.int32()),
        "x": pa.array([0.5, None, -1e300, 0.5]),
        "price": pa.array([Decimal("1.50"), None, None, Decimal("-0.05")], pa.decimal128(9, 2)),
        "day": pa.array([date(2024, 5, 1), date(1969, 12, 31), None, date(2024, 5, 3)]),
        "at": pa.array([datetime(2024, 5, 1, 12, 30, 1, 999999), None, None, None], pa.timestamp("us")),
        "ok": [True, None, True, False],
        "msg": ["a", None, None, "b"],
    }
)
TYPES = ("int", "double", "decimal(9,2)", "date", "timestamp", "boolean", "string")
AT = datetime(2024, 5, 1, 12, 30, 1)
TRUE = (
    ColumnStatistics("n", "int", 1, low=-7, high=5),
    ColumnStatistics("x", "double", 1, low=-1e300, high=0.5),
    ColumnStatistics("price", "decimal(9,2)", 2, low=Decimal("-0.05"), high=Decimal("1.5")),
    ColumnStatistics("day", "date", 1, low=date(1969, 12, 31), high=date(2024, 5, 3)),
    ColumnStatistics("at", "timestamp", 3, low=AT, high=AT),
    ColumnStatistics("ok", "boolean", 1, true_count=2, false_count=1),
    ColumnStatistics("msg", "string", 2),
)
LIES = {  # those from which Hive 4 answers queries, and those that it uses for plans only
    "high": replace(TRUE[0], high=6),
    "low": replace(TRUE[0], low=-8),
    "no range": replace(TRUE[0], low=None, high=None),
    "double": replace(TRUE[1], high=0.25),
    "decimal": replace(TRUE[2], low=Decimal("-0.5")),
    "date": replace(TRUE[3], high=date(2024, 5, 1)),
    "timestamp": replace(TRUE[4], high=AT.replace(second=2)),
    "truths": replace(TRUE[5], true_count=1, false_count=2),
    "nulls of integers": replace(TRUE[0], null_count=0),
    "nulls of texts": replace(TRUE[6], null_count=3),
    "nulls of booleans": replace(TRUE[5], null_count=4),
}


@pytest.fixture(params=["", "ds=a"], ids=["table", "partition"])
def place(request: pytest.FixtureRequest) -> str:
    """Name of the partition with the rows; '' in a table without partitions."""
    return str(request.param)


@pytest.fixture
def metastore(tmp_path: Path, place: str) -> InMemoryMetastore:
    """Hive 4.1 with the rows in a table t whose columns are called accurate."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_4_1)
    columns = tuple(ColumnInfo(name, type) for name, type in zip(ROWS.schema.names, TYPES, strict=True))
    keys = (ColumnInfo("ds", "string"),) if place else ()
    parameters = {"transactional": "true", "transactional_properties": "default"}
    metastore.create_table(TableInfo("default", "t", columns, keys, parameters=parameters))
    rows = ROWS.append_column("ds", pa.array(["a"] * len(ROWS))) if place else ROWS
    with connect(metastore) as hive, hive.transaction("default.t", create_partitions=True) as tx:
        tx.table("default.t").append(rows)
    call_accurate(metastore, place)
    return metastore


def call_accurate(
    metastore: InMemoryMetastore, place: str, columns: Sequence[str] = ROWS.schema.names
) -> None:
    """What Hive sets after ANALYZE … FOR COLUMNS."""
    claims = json.dumps({"BASIC_STATS": "true", "COLUMN_STATS": dict.fromkeys(columns, "true")})
    parameters = {} if place else dict(metastore.get_table("default", "t").parameters)
    metastore.set_parameters("default", "t", place or None, parameters | {"COLUMN_STATS_ACCURATE": claims})


def findings(metastore: InMemoryMetastore) -> tuple[Finding, ...]:
    """All of the table."""
    return verify_table(metastore, "default.t").findings


def test_true_statistics_are_no_finding(metastore: InMemoryMetastore, place: str) -> None:
    """Of every kind of value; nor are missing ones."""
    assert findings(metastore) == ()
    metastore.set_column_statistics("default", "t", place or None, TRUE)
    assert findings(metastore) == ()


@pytest.mark.thorough(1)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_is_found(metastore: InMemoryMetastore, place: str, lie: ColumnStatistics) -> None:
    """The column and both values are named; it is damage if Hive answers queries from it."""
    told = [lie if each.column == lie.column else each for each in TRUE]
    metastore.set_column_statistics("default", "t", place or None, told)
    (finding,) = findings(metastore)
    is_damage = lie.type not in ("decimal(9,2)", "timestamp") and lie != LIES["truths"]
    rule_name = "column-statistics" if is_damage else "column-statistics-plan"
    assert (finding.rule_name, finding.partition, finding.is_damage) == (rule_name, place, is_damage)
    assert finding.found.startswith(f"{lie.column}: ")
    assert finding.expected.startswith(f"{lie.column}: ")
    assert finding.found not in finding.expected


def test_what_is_not_called_accurate_may_be_wrong(metastore: InMemoryMetastore, place: str) -> None:
    """Hive uses it for plans only."""
    metastore.set_column_statistics("default", "t", place or None, [LIES["high"]])
    call_accurate(metastore, place, ["msg"])
    assert findings(metastore) == ()


def test_a_commit_of_ours_takes_the_claim_away(metastore: InMemoryMetastore, place: str) -> None:
    """Statistics stay, but nobody relies on them."""
    metastore.set_column_statistics("default", "t", place or None, TRUE)
    with connect(metastore) as hive, hive.transaction("default.t", create_partitions=True) as tx:
        empty = pa.table({name: pa.nulls(1, ROWS[name].type) for name in ROWS.schema.names})
        tx.table("default.t").append(empty.append_column("ds", [["a"]]) if place else empty)
    assert findings(metastore) == ()
    call_accurate(metastore, place)
    lies = {f.found.partition(":")[0] for f in findings(metastore)}
    assert lies == {*ROWS.schema.names}


def test_hive_3_answers_nothing_from_statistics(tmp_path: Path) -> None:
    """There a lie is a notice."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_3_1)
    parameters = {"transactional": "true", "transactional_properties": "default"}
    metastore.create_table(TableInfo("default", "t", (ColumnInfo("n", "int"),), parameters=parameters))
    call_accurate(metastore, "", ["n"])
    metastore.set_column_statistics("default", "t", None, [LIES["high"]])
    (finding,) = findings(metastore)
    assert (finding.rule_name, finding.found) == ("column-statistics-plan", "n: 0 nulls")


def test_younger_rows_are_a_notice(
    metastore: InMemoryMetastore, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was recorded may be of them."""
    metastore.set_column_statistics("default", "t", place or None, [LIES["high"]])
    asked = metastore.get_column_statistics

    def begin_meanwhile(*args: object, **options: object) -> object:
        metastore.allocate_write_id(metastore.open_txn("u", "h", ""), "default", "t")
        return asked(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(metastore, "get_column_statistics", begin_meanwhile)
    assert [f.rule_name for f in findings(metastore)] == ["statistics-unchecked"]


def test_ranges_that_releases_count_differently() -> None:
    """NaN, days before 1582-10-15, and timestamps as numbers are not compared; nulls always are."""
    nan, early, seconds = ColumnValues(), ColumnValues(), ColumnValues()
    nan.add(pa.array([math.nan, 1.0]))
    early.add(pa.array([date(1500, 1, 1)]))
    seconds.add(pa.array([AT], pa.timestamp("us")))
    assert nan.difference(ColumnStatistics("c", "double", 0, low=1.0, high=1.0)) is None
    assert (
        early.difference(ColumnStatistics("c", "date", 0, low=date(1500, 1, 10), high=date(1500, 1, 10)))
        is None
    )
    assert seconds.difference(ColumnStatistics("c", "timestamp", 0, low=7, high=7)) is None
    assert nan.difference(ColumnStatistics("c", "double", 1, low=1.0, high=1.0)) == ("0 nulls", "1 nulls")
