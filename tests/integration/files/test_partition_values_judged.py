"""Values of partitions are those that Hive shows, however the partition is spelled and NULL is called."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api import Hive, connect
from mutation_api.errors import RecordValueError
from tests.fixtures.fix_hive_elsewhere import KINDS
from tests.fixtures.fix_judge import new_database, started
from tests.support.either_engine import Engine

pytestmark = pytest.mark.slow

LINES = pytest.mark.parametrize(
    "hive_line", [pytest.param("3.1", marks=pytest.mark.long), "4.1"], indirect=True
)
PLAIN = {"hive.stats.fetch.column.stats": "false"}
"""Otherwise Hive 4 parses the texts of partitions when it plans, and fails for these."""
NO_VALUES = {
    "int": ["abc", "2147483648", "1.5", "7"],
    "smallint": ["70000", "40000", "99999999999", "-5"],
    "tinyint": ["200", "-129", "x"],
    "date": ["abc", "2020-1-2"],
    "double": ["abc"],
    "timestamp": ["abc"],
}
"""By type: texts of partitions that are no values of it."""


def _table(judge: HiveJudge, name: str, keys: str) -> None:
    judge.sql(
        f"create table {name} (id int, item string) partitioned by ({keys}) clustered by (id) into 2 buckets "
        "stored as orc tblproperties ('transactional'='true')"
    )


def _retype(judge: HiveJudge, name: str, data_type: str) -> None:
    """Give the partition column another type, which Hive's own ALTER refuses for such texts."""
    database, table = name.split(".")
    with open_client(judge.uri) as metastore:
        raw: Any = metastore.get_table(database, table).sent
        raw.partitionKeys[0].type = data_type
        metastore._alter_raw_table(raw, {})


def _ids(hive: Hive, name: str, condition: pc.Expression | None = None) -> list[int]:
    with hive.snapshot(name) as snapshot:
        rows = snapshot.table(name).scan(["id"], where=condition).to_arrow()
    return sorted(rows["id"].to_pylist())


@pytest.mark.long
@LINES
def test_a_zero_with_a_sign(
    hive_line: HiveJudge, line_database: str, engine_session: SparkSession | None
) -> None:
    """-0.0 and 0.0 are two partitions and one value: for filters, for keys, for a data column."""
    name = f"{line_database}.t"
    _table(hive_line, name, "d double")
    data = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "item": ["a", "b", "c"], "d": [0.0, -0.0, 1.5]})
    engine = Engine(hive_line.uri, engine_session)
    engine.append(name, data)
    assert hive_line.sql(f"select id from {name} where d = 0.0 order by id") == [[1], [2]]
    for zero in (0.0, -0.0, 0):
        assert engine.rows(name, values={"d": [zero]})["id"].to_pylist() == [1, 2]
    with connect(hive_line.uri) as hive:
        assert _ids(hive, name, pc.field("d") == -0.0) == [1, 2]
    source = pa.table({"id": pa.array([1, 2], pa.int32()), "d": [-0.0, 0.0], "item": ["x", "y"]})
    engine.merge(name, source, ["id", "d"])
    assert hive_line.sql(f"select id, item from {name} order by id") == [[1, "x"], [2, "y"], [3, "c"]]


@pytest.mark.long
@LINES
def test_texts_that_are_no_values(
    hive_line: HiveJudge, line_database: str, engine_session: SparkSession | None
) -> None:
    """They read as NULL, as Hive shows them; other partitions are written as ever, a NULL is refused."""
    engine = Engine(hive_line.uri, engine_session)
    with connect(hive_line.uri) as hive:
        for at, (data_type, texts) in enumerate(NO_VALUES.items()):
            name = f"{line_database}.t{at}"
            _table(hive_line, name, "p string")
            for id, text in enumerate(texts):
                hive_line.sql(f"insert into {name} partition (p='{text}') values ({id}, 'a')")
            _retype(hive_line, name, data_type)
            shown = hive_line.sql(f"select id, p from {name} order by id", settings=PLAIN)
            rows = engine.rows(name, ["p"])
            found = [[row["id"], row["p"]] for row in rows.to_pylist()]
            assert [[id, str(p) if isinstance(p, date) else p] for id, p in found] == shown, (
                data_type,
                texts,
            )
            with hive.transaction(name, create_partitions=True) as tx:
                table = tx.table(name)
                nothing = pa.nulls(1, table.scan().schema.field("p").type)
                row = pa.table({"id": pa.array([9], pa.int32()), "item": ["z"], "p": nothing})
                with pytest.raises(RecordValueError, match=f"{name}: the partitions .* could belong"):
                    table.append(row)


@LINES
def test_one_value_in_two_spellings(
    hive_line: HiveJudge, line_database: str, engine_session: SparkSession | None
) -> None:
    """Older Hives' static INSERT keeps a text as it is: all is read, and other partitions are written."""
    name = f"{line_database}.t"
    _table(hive_line, name, "at string")
    at = "2020-01-01 10:00:00"
    hive_line.sql(f"insert into {name} partition (at='{at}.0') values (1, 'a')")
    hive_line.sql(f"insert into {name} partition (at='{at}') values (2, 'b')")
    hive_line.sql(f"insert into {name} partition (at='2021-01-01 10:00:00') values (3, 'c')")
    _retype(hive_line, name, "timestamp")
    assert hive_line.sql(f"select id from {name} where at = timestamp '{at}' order by id") == [[1], [2]]
    with connect(hive_line.uri) as hive:
        moment = pa.array([datetime(2020, 1, 1, 10)], pa.timestamp("us"))
        engine = Engine(hive_line.uri, engine_session)
        assert engine.rows(name)["id"].to_pylist() == [1, 2, 3]
        assert engine.rows(name, values={"at": moment.to_pylist()})["id"].to_pylist() == [1, 2]
        with hive.transaction(name) as tx:
            table = tx.table(name)
            table.delete(table.scan(row_ids=True, where=pc.field("id") == 3))
        engine.merge(name, pa.table({"id": pa.array([1], pa.int32()), "item": ["new"]}), ["id"])
        with hive.transaction(name) as tx:
            table = tx.table(name)
            row = pa.table({"id": pa.array([4], pa.int32()), "item": ["z"], "at": moment})
            with pytest.raises(RecordValueError, match=r"partitions at=.*, at=.* have the same values"):
                table.append(row)
    assert hive_line.sql(f"select id, item from {name} order by id") == [[1, "new"], [2, "b"]]


@pytest.mark.parametrize(
    "line", [pytest.param("2.3", marks=pytest.mark.long), pytest.param("3.1", marks=pytest.mark.long), "4.1"]
)
def test_a_server_that_calls_null_by_another_name(
    line: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    engine_session: SparkSession | None,
) -> None:
    """Its partition of NULL is read, written, merged into and made; the usual name is a plain text."""
    settings = {"hive.exec.default.partition.name": "NULLPART"}
    with (
        started(KINDS[line], request, tmp_path_factory, settings) as judge,
        new_database(judge) as database,
    ):
        name = f"{database}.t"
        _table(judge, name, "d int, s string")
        dynamic = {"hive.exec.dynamic.partition.mode": "nonstrict"}
        judge.sql(
            f"insert into {name} partition (d, s) select 1, 'hive', cast(null as int), 'x'", settings=dynamic
        )
        with connect(judge.uri) as hive:
            assert _ids(hive, name, pc.field("d").is_null()) == [1]
        engine = Engine(judge.uri, engine_session)
        assert engine.rows(name)["d"].to_pylist() == [None]
        data = pa.table(
            {
                "id": pa.array([1, 2, 3], pa.int32()),
                "item": ["ours", "new", "new"],
                "d": pa.array([None, 5, None], pa.int32()),
                "s": ["x", "__HIVE_DEFAULT_PARTITION__", None],
            }
        )
        for _ in range(2):
            engine.merge(name, data, ["id", "d", "s"], inserts=True, null_safe=True)
        # Hive shows the name itself for NULL in a text column, whatever the name is.
        shown = [
            [1, "ours", None, "x"],
            [2, "new", 5, "__HIVE_DEFAULT_PARTITION__"],
            [3, "new", None, "NULLPART"],
        ]
        assert judge.sql(f"select id, item, d, s from {name} order by id", settings=PLAIN) == shown
        assert len(judge.sql(f"show partitions {name}")) == 3
