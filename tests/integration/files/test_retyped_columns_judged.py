"""Columns whose type was altered after rows were written: we read what Hive shows, digit by digit."""

from __future__ import annotations

import datetime
import json
import math
import random
import shutil
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api import connect
from mutation_api.errors import TableNotMutableError
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from tests.fixtures.fix_judge import LINES
from tests.support.either_engine import Engine

pytestmark = pytest.mark.slow

ALL_LINES = pytest.mark.parametrize("hive_line", LINES, indirect=True)
ROWS = 400
EPOCH = datetime.datetime(1970, 1, 1)
CHANGES = {
    "float": ["string", "varchar(9)", "char(12)", "double"],
    "double": ["string", "varchar(7)", "char(30)"],
    "decimal(20,6)": ["string", "decimal(10,2)", "double"],
    "decimal(38,18)": ["varchar(60)", "double", "float"],
    "decimal(5,0)": ["char(3)", "float"],
    "timestamp": ["string", "varchar(12)", "char(40)"],
    "date": ["string", "varchar(7)", "char(12)"],
    "tinyint": ["smallint", "string", "decimal(20,6)"],
    "smallint": ["bigint", "char(3)"],
    "int": ["varchar(4)", "float", "decimal(9,2)"],
    "bigint": ["double", "string", "decimal(20,6)"],
    "string": ["double", "varchar(5)"],
    "varchar(20)": ["double", "char(4)"],
    "char(20)": ["double", "string"],
}
TEXTS = [
    "",
    "abc",
    " 1.5 ",
    "1e3",
    "NaN",
    "-NaN",
    "Infinity",
    "inf",
    "0x1p3",
    "1d",
    "1f",
    "1L",
    "+5",
    ".5",
    "5.",
]
TEXTS += [
    "1_000",
    "\t2\n",
    "1e",
    "1e-400",
    "1e400",
    "１",
    "--1",
    "0x10",
    "1e3d",
    "-0",
    "1.e5",
    "e5",
    "0x1.8p1",
]


def doubles(rng: random.Random, count: int) -> list[float]:
    found = [
        0.0,
        -0.0,
        math.nan,
        math.inf,
        -math.inf,
        0.1,
        2e23,
        1e23,
        8.41e21,
        4.9e-324,
        1e-3,
        9999999.0,
        1e7,
    ]
    while len(found) < count:
        found += [
            struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0],
            round(rng.uniform(-1e6, 1e6), rng.randint(0, 9)),
            float(rng.randint(-(10**15), 10**15)),
            rng.choice([1.0, 2.0, 7.0]) * 10.0 ** rng.randint(-30, 30),
        ]
    return found[:count]


def floats(rng: random.Random, count: int) -> list[float]:
    found = [0.1, 1.4e-45, 3.4028235e38, 33554432.0, 8.999999e9, math.nan, -math.inf]
    while len(found) < count:
        found += [
            struct.unpack("<f", struct.pack("<I", rng.getrandbits(32)))[0],
            round(rng.uniform(-1e4, 1e4), rng.randint(0, 5)),
            float(rng.randint(-(10**8), 10**8)),
        ]
    return found[:count]


def decimals(rng: random.Random, count: int, precision: int, scale: int) -> list[Decimal]:
    digits = (rng.randint(1, precision) for _ in range(count))
    numbers = (rng.randint(1 - 10**each, 10**each - 1) for each in digits)
    return [Decimal(n if rng.random() < 0.6 else int(n / 1000) * 1000).scaleb(-scale) for n in numbers]


def timestamps(rng: random.Random, count: int) -> list[datetime.datetime]:
    first = [
        datetime.datetime(1, 1, 1),
        datetime.datetime(1500, 2, 28, 10),
        datetime.datetime(9999, 12, 31, 1),
    ]
    late = [
        EPOCH
        + datetime.timedelta(
            seconds=rng.randint(-(8 * 10**9), 8 * 10**9), microseconds=rng.choice([0, 1, 120, 45000, 999999])
        )
        for _ in range(count)
    ]
    return [*first, *late][:count]


def dates(rng: random.Random, count: int) -> list[datetime.date]:
    named = [datetime.date(1, 1, 1), datetime.date(1582, 10, 4), datetime.date(1582, 10, 15)]
    found = [*named, *(datetime.date.fromordinal(rng.randint(1, 3652059)) for _ in range(count))]
    return [day for day in found if not datetime.date(1582, 10, 4) < day < datetime.date(1582, 10, 15)][
        :count
    ]


def texts(rng: random.Random, count: int) -> list[str]:
    found = list(TEXTS)
    while len(found) < count:
        found += [repr(rng.uniform(-1e6, 1e6)), "".join(rng.choices("0123456789.eE+- ", k=rng.randint(1, 8)))]
    return found[:count]


def values_of(rng: random.Random, kind: str) -> pa.Array:
    hive_type = parse_hive_type(kind)
    target = arrow_type(hive_type, timestamp_unit="us")
    made: list[Any]
    match hive_type.kind:
        case "float":
            made = floats(rng, ROWS)
        case "double":
            made = doubles(rng, ROWS)
        case "decimal":
            made = decimals(rng, ROWS, hive_type.precision, hive_type.scale)
        case "timestamp":
            made = timestamps(rng, ROWS)
        case "date":
            made = dates(rng, ROWS)
        case "string" | "varchar" | "char":
            made = [text[:20] for text in texts(rng, ROWS)]
        case _:
            low = -(2 ** (target.bit_width - 1))
            made = [rng.randint(low, -1 - low) >> rng.randint(0, target.bit_width - 1) for _ in range(ROWS)]
    return pa.array([None, *made[1:]], target)


def comparable(value: Any, kind: str) -> Any:
    """A value of ours or of the judge's, so that equal ones are equal."""
    if value is None:
        return None
    if kind in ("float", "double"):
        number = float(value)
        (single,) = (
            struct.unpack("<f", struct.pack("<f", number))
            if kind == "float" and abs(number) < 1e39
            else (number,)
        )
        return repr(single)
    if kind == "decimal":
        return Decimal(str(value))
    return value.rstrip(" ") if kind == "char" else value


@pytest.mark.long
@pytest.mark.feature("columns whose type was altered")
@pytest.mark.parametrize("cascade", [None, "", " cascade"])
@ALL_LINES
def test_values_are_those_that_hive_shows(
    hive_line: HiveJudge, line_database: str, cascade: str | None, engine_session: SparkSession | None
) -> None:
    """Of random values, read by us and by both of Hive's readers; an update of another column keeps them."""
    name = f"{line_database}.t"
    seed = random.randrange(10**9)
    rng = random.Random(seed)
    pairs = [(old, new) for old, targets in CHANGES.items() for new in targets]
    if hive_line.line >= "4":
        pairs = [
            (old, new)
            for old, new in pairs
            if not (new == "double" and parse_hive_type(old).kind in ("string", "varchar", "char"))
        ]
    columns = [f"c{number}" for number in range(len(pairs))]
    listed = ", ".join(f"{column} {old}" for column, (old, _) in zip(columns, pairs, strict=True))
    hive_line.sql(
        f"create table {name} (id int, note string, {listed}) "
        f"{'' if cascade is None else 'partitioned by (ds string) '}clustered by (id) into 1 buckets "
        "stored as orc tblproperties ('transactional'='true')"
    )
    data = {"id": pa.array(range(ROWS), pa.int32()), "note": pa.array(["a"] * ROWS)}
    data |= {column: values_of(rng, old) for column, (old, _) in zip(columns, pairs, strict=True)}
    where = {} if cascade is None else {"ds": pa.array(["a"] * ROWS)}
    Engine(hive_line.uri, None).append(name, pa.table(data | where))
    for column, (_, new) in zip(columns, pairs, strict=True):
        hive_line.sql(f"alter table {name} change {column} {column} {new}{cascade or ''}")
    expected = {row.values[0]: row.values for row in hive_line.table_rows(name, row_ids=False)}
    engine = Engine(hive_line.uri, engine_session)
    ours = engine.rows(name).to_pydict()
    for number, (column, (old, new)) in enumerate(zip(columns, pairs, strict=True), 2):
        kind = parse_hive_type(new).kind
        found = [comparable(value, kind) for value in ours[column]]
        wanted = [comparable(expected[id][number], kind) for id in range(ROWS)]
        assert found == wanted, (seed, old, new)
    engine.merge(name, pa.table({"id": data["id"], "note": pa.array(["b"] * ROWS)}), ["id"])
    after = {row.values[0]: row.values for row in hive_line.table_rows(name, row_ids=False)}
    for number, (_, new) in enumerate(pairs, 2):
        kind = parse_hive_type(new).kind
        assert [comparable(after[id][number], kind) for id in range(ROWS)] == [
            comparable(expected[id][number], kind) for id in range(ROWS)
        ], (seed, pairs[number - 2])
    assert {values[1] for values in after.values()} == {"b"}


@ALL_LINES
def test_another_change_is_refused(hive_line: HiveJudge, line_database: str) -> None:
    """The error names table, column and both types, and nothing is written."""
    name = f"{line_database}.t"
    hive_line.sql(
        f"create table {name} (id int, v string) clustered by (id) into 1 buckets stored as orc "
        "tblproperties ('transactional'='true')"
    )
    hive_line.sql(
        f"create table {name}_int (id int, v int) clustered by (id) into 1 buckets stored as orc "
        "tblproperties ('transactional'='true')"
    )
    hive_line.sql(f"insert into {name} values (1, '5')")
    hive_line.sql(f"insert into {name}_int values (2, 6)")
    with open_client(hive_line.uri) as metastore:
        uris = [metastore.get_table(line_database, each).location for each in ("t", "t_int")]
    source, target = (Path(uri.removeprefix("file:")) for uri in uris)
    shutil.rmtree(target)
    shutil.copytree(source, target)
    with connect(hive_line.uri) as hive, hive.transaction(f"{name}_int") as tx:
        data = pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([7], pa.int32())})
        merge = tx.table(f"{name}_int").merge(data, on=["id"]).when_matched_update_all()
        with pytest.raises(TableNotMutableError, match=rf"table {name}_int, column 'v': .* string .* int"):
            merge.execute()
        tx.abort()


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)
def test_values_within_others(
    hive_line: HiveJudge, line_database: str, engine_session: SparkSession | None
) -> None:
    """In structs, arrays and maps, where Hive 3.1 and 4.1 allow the change."""
    name = f"{line_database}.t"
    hive_line.sql(
        f"create table {name} (id int, s struct<a:float,b:int,c:timestamp>, l array<double>, "
        "m map<string,decimal(4,3)>) clustered by (id) into 1 buckets stored as orc "
        "tblproperties ('transactional'='true')"
    )
    hive_line.sql(
        f"insert into {name} select 1, named_struct('a', cast(0.1 as float), 'b', 7, 'c', "
        "cast('2020-01-02 03:04:05' as timestamp)), "
        "array(cast(2e23 as double), cast(1e7 as double), cast(null as double)), "
        "map('x', cast('1.125' as decimal(4,3)))"
    )
    for change in ("s struct<a:string,b:bigint,c:string,d:int>", "l array<string>", "m map<string,string>"):
        column = change.partition(" ")[0]
        hive_line.sql(f"alter table {name} change {column} {change}")
    (shown,) = (row.values for row in hive_line.table_rows(name, row_ids=False))
    (ours,) = Engine(hive_line.uri, engine_session).rows(name).to_pylist()
    assert ours["s"] == json.loads(shown[1])
    assert ours["l"] == json.loads(shown[2])
    assert dict(ours["m"]) == json.loads(shown[3])
