"""Values that PostgreSQL sends by COPY are those of its queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from judges.postgres import Postgres
from mutation_api.cdc.update.database import SourceDatabase, connect_database
from mutation_api.cdc.update.source_rows import ReadPlan
from mutation_api.errors import ConnectionFailedError, RecordValueError
from mutation_api.format.hive_type import parse_hive_type
from tests.support.shops import PostgresSource

pytestmark = pytest.mark.slow

VALUES = {
    ("smallint", "smallint"): ("-32768", "0", "32767"),
    ("integer", "decimal(10,0)"): ("-2147483648", "7"),
    ("bigint", "bigint"): ("-9223372036854775808", "9223372036854775807"),
    ("bigint", "string"): ("-1", "12"),
    ("boolean", "boolean"): ("true", "false"),
    ("numeric(12,3)", "decimal(12,3)"): ("-123456789.125", "0.001", "0"),
    ("numeric", "decimal(20,2)"): ("1.5", "1.50000", "123456789012345678.25"),
    ("numeric", "string"): ("1.50", "'NaN'", "1e-30", "'Infinity'"),
    ("real", "float"): ("1.1", "'-Infinity'", "'NaN'", "1e-45", "-0.0"),
    ("double precision", "double"): ("0.1", "'Infinity'", "5e-324", "1.7976931348623157e308", "'NaN'"),
    ("text", "string"): (
        "''",
        "','",
        "'\"'",
        "E'a\\r\\n,\"b\"\\tc\\\\'",
        "'NULL'",
        "E'\\\\N'",
        "E'\\\\.'",
        "' ä😀 '",
        "repeat('x\"', 100000)",
    ),
    ("char(5)", "char(5)"): ("'ab'", "''"),
    ("bytea", "binary"): ("''", r"'\x00ff22'"),
    ("date", "date"): ("'0001-01-01'", "'9999-12-31'"),
    ("date", "string"): ("'infinity'", "'0044-03-15 BC'"),
    ("timestamp", "timestamp"): ("'0001-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.5'"),
    ("timestamptz", "timestamp"): ("'2024-07-01 12:00:00+02'", "'1900-01-01 00:00:00+00'"),
    ("uuid", "string"): ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
    ("json", "string"): ("""'{"a": [1, null, "x, y"]}'""",),
    ("int[]", "string"): ("'{1,NULL,3}'",),
    ("interval", "string"): ("'1 year 2 days 03:04:05'",),
}
"""Types in PostgreSQL and in Hive -> values."""


@pytest.fixture
def database(postgres: Postgres, postgres_database: str) -> Iterator[SourceDatabase]:
    """A new database."""
    source = PostgresSource(postgres, postgres_database)
    with closing(connect_database(source.url, source.password)) as connected:
        yield connected


@pytest.mark.parametrize(
    ("kind", "target", "values"),
    [(kind, target, values) for (kind, target), values in VALUES.items()],
    ids=[f"{kind}-{target}" for kind, target in VALUES],
)
def test_copied_values_are_those_of_a_query(
    postgres: Postgres,
    postgres_database: str,
    database: SourceDatabase,
    kind: str,
    target: str,
    values: tuple[str, ...],
) -> None:
    """With NULLs, alone in a row and beside another column."""
    rows = ", ".join(f"({each})" for each in (*values, "NULL"))
    postgres.sql(f"CREATE TABLE t (v {kind})", database=postgres_database)
    postgres.sql(f"INSERT INTO t VALUES {rows}", database=postgres_database)
    table = database.describe("t")
    column = (target, parse_hive_type(target), table.columns[0])
    for columns in ((column,), (column, ("other", *column[1:]))):
        plan = ReadPlan(database, table, (), columns, "Europe/Berlin")
        with database.snapshot() as snapshot:
            (expected,) = map(plan.columns_of, snapshot.chunks(plan.select_all()))
            ((count, found),) = plan.read(snapshot, plan.select_all())
        assert found[target].type == expected[target].type
        assert [str(v) for v in found[target].to_pylist()] == [str(v) for v in expected[target].to_pylist()]
        assert found[target].null_count == 1
        assert count == len(values) + 1
        assert len(found) == len(columns)


def test_a_misfit_names_its_row_and_may_become_null(
    postgres: Postgres, postgres_database: str, database: SourceDatabase
) -> None:
    """An infinite day among 50,000 others. A query that is left in the middle does not disturb the next."""
    postgres.sql("CREATE TABLE t (id int PRIMARY KEY, d date)", database=postgres_database)
    postgres.sql(
        "INSERT INTO t SELECT i, CASE i WHEN 30000 THEN "
        "'infinity'::date ELSE '2024-05-01'::date END FROM generate_series(1, 50000) i",
        database=postgres_database,
    )
    table = database.describe("t")
    key = replace(table.columns[0], is_key=True)
    columns = (("id", parse_hive_type("int"), key), ("d", parse_hive_type("date"), table.columns[1]))
    plan = ReadPlan(database, table, (key,), columns, "UTC")
    with database.snapshot() as snapshot, pytest.raises(RecordValueError, match=r"id=30000.*infinity"):
        list(plan.read(snapshot, plan.select_all()))
    nulled = (columns[0], (*columns[1][:2], replace(table.columns[1], nulls_invalid=True)))
    with database.snapshot() as snapshot:
        read = replace(plan, columns=nulled).read(snapshot, plan.select_all())
        found = pa.concat_tables(pa.table(values) for _, values in read)
    assert found["id"].to_pylist() == list(range(1, 50_001))
    assert found["d"].null_count == 1
    with database.snapshot() as snapshot, pytest.raises(ConnectionFailedError, match="division by zero"):
        list(plan.read(snapshot, "SELECT 1 / 0, NULL"))
