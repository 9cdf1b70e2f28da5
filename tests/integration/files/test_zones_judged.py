"""Timestamps are wall clocks in whatever zone Hive runs: those it writes, and those that it reads of ours.

Hive 2.3 names its own zone in each stripe, as Java calls it; later releases write in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from judges.hive.judge import HiveJudge
from mutation_api.hive.connect import connect
from tests.fixtures.fix_hive_elsewhere import KINDS
from tests.fixtures.fix_judge import new_database, started
from tests.integration.upkeep.soundness import check_sound
from tests.support.either_engine import Engine

pytestmark = pytest.mark.slow

ZONES = (
    "GMT+08:00",
    "GMT-03:30",
    "Asia/Kolkata",
    "America/St_Johns",
    "Europe/Berlin",
    "EST",
    "CTT",
    "Pacific/Apia",
)
CLOCKS = (
    "2024-06-01 12:34:56.789",
    "2024-01-15 00:00:00",
    "2011-12-31 10:00:00.000001",
    "1970-01-01 00:00:00",
    "1969-12-31 10:00:00",
    "1946-05-01 12:00:00.25",
    "1900-01-01 00:00:00",
    "1850-07-01 12:00:00",
    "1700-03-01 06:00:00",
    "1582-10-04 06:00:00.5",
    "0001-01-01 00:00:00",
    "2200-07-01 12:00:00.5",
    "9999-12-31 23:59:59.999999",
)
"""None of them is in a gap of one of the zones; before 1883 their offsets are those of places."""


@pytest.fixture(
    params=[
        pytest.param(("2.3", zone), id=f"2.3 in {zone}", marks=[] if zone == ZONES[0] else pytest.mark.long)
        for zone in ZONES
    ]
    + [
        pytest.param((line, zone), id=f"{line} in {zone}", marks=pytest.mark.long)
        for line in ("3.1", "4.1", "4.2")
        for zone in ZONES[:3]
    ]
)
def abroad(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveJudge]:
    """Hive in another zone."""
    line, zone = request.param
    with started(KINDS[line], request, tmp_path_factory, zone=zone) as judge:
        yield judge


def test_wall_clocks_stay(abroad: HiveJudge, engine_session: SparkSession | None) -> None:
    """What Hive writes is read, filtered and updated; what is written is what Hive reads."""
    with new_database(abroad) as database, connect(abroad.uri) as hive:
        name = f"{database}.t"
        abroad.sql(
            f"CREATE TABLE {name} (id int, seen timestamp, day date) CLUSTERED BY (id) INTO 1 BUCKETS STORED "
            "AS ORC TBLPROPERTIES ('transactional'='true')"
        )
        rows = ", ".join(f"({number}, '{clock}', '{clock[:10]}')" for number, clock in enumerate(CLOCKS))
        abroad.sql(f"INSERT INTO {name} VALUES {rows}")
        engine = Engine(abroad.uri, engine_session)
        with hive.snapshot(name) as view:
            table = view.table(name)
            found = engine.rows(name)
            assert _texts(found["seen"]) == _texts(_wall_clocks())
            assert found["day"].cast(pa.string()).to_pylist() == [clock[:10] for clock in CLOCKS]
            for number, clock in enumerate(_wall_clocks().to_pylist()):
                one = table.scan(where=pc.field("seen") == pa.scalar(clock, pa.timestamp("us")))
                assert one.to_arrow()["id"].to_pylist() == [number]
        engine.append(name, found.set_column(0, "id", pc.add(found["id"], 100).cast(pa.int32())))
        with hive.transaction(name) as tx:
            written = tx.table(name)
            written.update(written.scan(row_ids=True, where=pc.field("id") < 5).to_arrow())
        expected = dict(enumerate(CLOCKS))
        expected |= {number + 100: clock for number, clock in enumerate(CLOCKS)}
        for reader in ("false", "true"):
            settings = {"hive.vectorized.execution.enabled": reader, "hive.fetch.task.conversion": "none"}
            of_hive = abroad.sql(f"SELECT id, seen, day FROM {name}", settings=settings)
            assert {row[0]: _plain(row[1]) for row in of_hive} == {k: _plain(v) for k, v in expected.items()}
            assert {row[0]: row[2] for row in of_hive} == {k: v[:10] for k, v in expected.items()}
        check_sound(hive.metastore, name)


def _wall_clocks() -> pa.Array:
    return pa.array(CLOCKS).cast(pa.timestamp("us"))


def _texts(array: pa.ChunkedArray | pa.Array) -> list[str]:
    return [_plain(text) for text in array.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()]


def _plain(text: str) -> str:
    """Without the zeros at the end of a fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text
