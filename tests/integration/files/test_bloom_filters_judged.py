"""Bloom filters by the table's ``orc.bloom.filter.columns``: Hive and this library skip by them.

Neither loses a row, in files of either.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyorc
import pytest

from judges.hive.judge import HiveJudge
from mutation_api import connect
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.hive.connection import Hive
from mutation_api.orc.format.bloom_filters import SoughtValues
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from tests.fixtures.fix_judge import LINES
from tests.support.orc_stripes import bloom_filter_bits

pytestmark = pytest.mark.slow

ROWS = 25_000
"""Three row groups."""
KINDS = {
    "t": ("tinyint", pa.int8()),
    "h": ("smallint", pa.int16()),
    "i": ("int", pa.int32()),
    "b": ("bigint", pa.int64()),
    "s": ("string", pa.string()),
    "v": ("varchar(20)", pa.string()),
    "f": ("float", pa.float32()),
    "g": ("double", pa.float64()),
    "m": ("decimal(18,4)", pa.decimal128(18, 4)),
}
EDGES: dict[str, list[Any]] = {
    "t": [0, -1, 127, -128],
    "h": [0, -1, 2**15 - 1, -(2**15)],
    "i": [0, -1, 2**31 - 1, -(2**31)],
    "b": [0, -1, 2**63 - 1, -(2**63)],
    "s": ["", "é", "a" * 300, "\U0001f600"],
    "v": ["", " x ", "A" * 20, "日本"],
    "f": [0.0, -2.25, 1e6, -0.0],
    "g": [0.0, -1e-300, 1e300, -0.0],
    "m": [Decimal("5.5"), Decimal(-7), Decimal("-0.0001"), Decimal("12345678901234.9")],
}
SKIPPING = {"hive.optimize.index.filter": "true", "hive.fetch.task.conversion": "none"}


def values(rng: random.Random) -> dict[str, list[Any]]:
    """The values of each column; the edges come first."""
    found: dict[str, list[Any]] = {
        "t": [rng.randrange(-99, 99) for _ in range(ROWS)],
        "h": [rng.randrange(-(2**15), 2**15) for _ in range(ROWS)],
        "i": [rng.randrange(-(2**31), 2**31) for _ in range(ROWS)],
        "b": [rng.randrange(-(2**63), 2**63) for _ in range(ROWS)],
        "s": [f"é{rng.randrange(10**9)}" for _ in range(ROWS)],
        "v": [f"v{rng.randrange(10**9)}" for _ in range(ROWS)],
        "f": [rng.randrange(10**6) / 8 for _ in range(ROWS)],
        "g": [rng.random() for _ in range(ROWS)],
        "m": [Decimal(rng.randrange(10**12)) / 10_000 for _ in range(ROWS)],
    }
    for name, edges in EDGES.items():
        found[name][: len(edges)] = edges
    return found


LOOKED_UP = "hibs"
"""The columns whose filters this library uses."""


def literal(name: str, value: Any) -> str:
    """The value in SQL."""
    kind = KINDS[name][0]
    return f"'{value}'" if isinstance(value, str) else f"cast('{value}' as {kind})"


@pytest.fixture
def connected(hive_line: HiveJudge, line_database: str) -> Iterator[Hive]:
    """A table with Bloom filters; one of its columns has a type for which none is written."""
    columns = "".join(f", {name} {kind}" for name, (kind, _) in KINDS.items())
    with connect(hive_line.uri) as hive:
        hive.create_table(
            f"{line_database}.t",
            f"id bigint{columns}, d date",
            clustered_by=["id"],
            num_buckets=1,
            properties={
                "orc.bloom.filter.columns": f"{','.join(KINDS).upper()}, d,missing",
                "orc.compress": "NONE",
            },
        )
        yield hive


@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_hive_skips_by_the_filters_and_finds_every_row(
    connected: Hive, hive_line: HiveJudge, line_database: str
) -> None:
    """All types and their edges. With filters that exclude everything Hive finds nothing: it uses them."""
    name = f"{line_database}.t"
    found = values(random.Random(1))
    arrays = {column: pa.array(found[column], kind) for column, (_, kind) in KINDS.items()}
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), **arrays, "d": pa.nulls(ROWS, pa.date32())})
    connected.table(name).append(rows)
    sought = {column: [*EDGES[column], found[column][-1]] for column in KINDS}

    def check(name: str) -> None:
        with connected.snapshot(name) as view:
            for column, wanted in sought.items():
                for value in wanted:
                    query = f"SELECT count(*) FROM {name} WHERE {column} = {literal(column, value)}"
                    assert hive_line.sql(query, settings=SKIPPING) == [[found[column].count(value)]], query
                    same = pc.field(column) == pa.scalar(value, KINDS[column][1])
                    rows = view.table(name).scan([column], where=same).to_arrow()
                    assert rows.num_rows == found[column].count(value), query

    check(name)
    of_hive = f"{line_database}.of_hive"
    columns = "".join(f", {name} {kind}" for name, (kind, _) in KINDS.items())
    hive_line.sql(
        f"CREATE TABLE {of_hive} (id bigint{columns}, d date) CLUSTERED BY (id) INTO 1 BUCKETS STORED AS ORC "
        f"TBLPROPERTIES ('transactional'='true', 'orc.bloom.filter.columns'='{','.join(KINDS)}')"
    )
    hive_line.sql(f"INSERT INTO {of_hive} SELECT * FROM {name}")
    check(of_hive)
    with connected.snapshot(of_hive) as view:
        (file,) = Path(view.table(of_hive).descriptor.location.local_path or "").glob("delta_*/bucket_00000*")
    source = OrcInput(LocalStorage(), Location.given(file), None, ReadOptions())
    for column, absent in {"b": range(200), "s": (f"x{n}" for n in range(200))}.items():
        kind, arrow = KINDS[column]
        not_there = pa.array(absent, arrow)
        stored = source.schema.field("row").type.field(1 + list(KINDS).index(column)).name  # or _col…
        filters = source.bloom_filters(0, f"row.{stored}", parse_hive_type(kind))
        # Hive 2.3 writes filters of an older kind, which are not used.
        assert len(filters) == (0 if hive_line.line == "2.3" else 3)
        assert (
            sum(each.may_hold(SoughtValues(not_there[n : n + 1])) for each in filters for n in range(200))
            < 100
        )

    with connected.snapshot(name) as view:
        root = Path(view.table(name).descriptor.location.local_path or "")
    (file,) = root.glob("delta_*/bucket_00000")
    with file.open("rb") as stream:
        assert pyorc.Reader(stream).read_stripe(0).bloom_filter_columns == tuple(range(9, 8 + len(KINDS)))
    data = bytearray(file.read_bytes())
    for start, stop in bloom_filter_bits(bytes(data)):
        data[start:stop] = bytes(stop - start)
    file.write_bytes(data)
    for column, wanted in sought.items():
        query = f"SELECT count(*) FROM {name} WHERE {column} = {literal(column, wanted[-1])}"
        expected = found[column].count(wanted[-1]) if column == "t" else 0  # a tinyint has no filter
        assert hive_line.sql(query, settings=SKIPPING) == [[expected]], query
        same = pc.field(column) == pa.scalar(wanted[-1], KINDS[column][1])
        with connected.snapshot(name) as view:
            left = view.table(name).scan([column], where=same).to_arrow().num_rows
        assert left == (0 if column in LOOKED_UP else found[column].count(wanted[-1])), column
