"""Conditions that Hive pushes down to ORC statistics: ours must not make Hive skip a row that matches."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest

from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.write.coordinator import MutatorCoordinator

pytestmark = pytest.mark.slow

COUNT = 20_000
EPOCH = datetime.datetime(2000, 1, 1)
COLUMNS = (
    "id bigint, s string, v varchar(6), c char(8), n decimal(12,3), f float, d double, b boolean, "
    "dt date, t timestamp"
)
CONDITIONS = {
    "id = 17": 1,
    "s = 's17'": 1,
    "s < 's1'": 1,
    "v = 'v17'": 1,
    "v between 'v17' and 'v170'": 2,
    "c = 'c17'": 1,
    "c <= 'c0'": 1,
    "c in ('c17', 'c19999')": 2,
    "n = 17.125": 1,
    "n < 10.125": 10,
    "f = 17.5": 1,
    "d = 19999.25": 1,
    "b = false": COUNT // 2,
    "dt = date '2000-01-18'": 1,
    "dt < date '1582-10-15'": 1,
    "dt = date '1500-03-01'": 1,
    "t = timestamp '2000-01-18 00:00:00.5'": 1,
    "t < timestamp '1970-01-01 00:00:00'": 1,
    "t = timestamp '1500-03-01 01:02:03'": 1,
    "t > timestamp '2100-01-01 00:00:00'": 1,
    "t is null": 1,
    "s is null": 1,
}


def rows() -> pa.Table:
    """Rows in order of every column, so that statistics distinguish stripes; marks and nulls at the end."""
    days = [EPOCH + datetime.timedelta(days=i) for i in range(COUNT)]
    dates = [day.date() for day in days]
    times: list[datetime.datetime | None] = [
        EPOCH + datetime.timedelta(days=i % 20_000, milliseconds=500) for i in range(COUNT)
    ]
    texts: list[str | None] = [f"s{i}" for i in range(COUNT)]
    dates[-1] = datetime.date(1500, 3, 1)
    times[-3:] = [datetime.datetime(1500, 3, 1, 1, 2, 3), datetime.datetime(9999, 12, 31, 23, 59, 59), None]
    texts[-1] = None
    return pa.table(
        {
            "id": range(COUNT),
            "s": texts,
            "v": [f"v{i}" for i in range(COUNT)],
            "c": [f"c{i}" for i in range(COUNT)],
            "n": [decimal.Decimal(i) + decimal.Decimal("0.125") for i in range(COUNT)],
            "f": [i + 0.5 for i in range(COUNT)],
            "d": [i + 0.25 for i in range(COUNT)],
            "b": [i < COUNT // 2 for i in range(COUNT)],
            "dt": dates,
            "t": times,
        }
    )


@pytest.mark.feature("point lookups by bucket key")
@pytest.mark.parametrize("properties", ["legacy", "default"])
def test_no_condition_skips_a_row(hive, hive_database, properties):
    """Every type of column, in many stripes; Hive answers alike with pushdown and without."""
    layout = "" if properties == "legacy" else ", 'transactional_properties'='default'"
    hive.sql(
        f"create table {hive_database}.t ({COLUMNS}) clustered by (id) into 1 buckets stored as orc "
        f"tblproperties ('transactional'='true'{layout})"
    )
    name = f"{hive_database}.t"
    client = MutatorClientBuilder().metastore(hive.uri).add_sink_table(hive_database, "t", False).build()
    with client, client.new_transaction() as transaction:
        options = WriterOptions(stripe_bytes=1)
        with MutatorCoordinator(transaction.table(name), options=options) as coordinator:
            coordinator.insert([], rows())
            manifests = coordinator.close()
        assert manifests[0].stripe_count >= 3
        transaction.add_manifests(name, coordinator.writer_id, manifests)
        location = transaction.table(name).location.path
    wrong = {}
    for condition, expected in CONDITIONS.items():
        for pushed in ("true", "false"):
            settings = {"hive.optimize.index.filter": pushed, "hive.fetch.task.conversion": "more"}
            found = len(hive.sql(f"select id from {name} where {condition}", settings=settings))
            if found != expected:
                wrong[condition, pushed] = found
    assert wrong == {}
    read = {
        literal: [
            row.values
            for row in hive.read(
                location,
                COLUMNS.replace(", ", ",").replace(" ", ":"),
                transactional_properties=properties,
                where=(column, "=", literal),
            )
        ]
        for column, literal in [("id", 17), ("s", "s17"), ("v", "v17"), ("c", "c17     ")]
    }
    assert all(any(row[0] == 17 for row in found) for found in read.values())
    if properties == "default":
        assert len(read[17]) < COUNT, "Hive did skip stripes"
