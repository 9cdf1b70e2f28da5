"""Columns that were renamed, added or replaced after rows were written: we read those that Hive reads."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from judges.hive.hive_judges import Hive4, Hive23, Hive31, Hive41
from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from tests.fixtures.fix_judge import LINES, new_database, started
from tests.support.either_engine import Engine

pytestmark = pytest.mark.slow

ALL_LINES = pytest.mark.parametrize("hive_line", LINES, indirect=True)
SETTING = "orc.force.positional.evolution"
CHANGES = {
    "renamed": ["CHANGE v vv string"],
    "swapped": ["CHANGE v x string", "CHANGE w v string", "CHANGE x w string"],
    "added": ["ADD COLUMNS (x string)", "CHANGE w y string"],
    "replaced": ["REPLACE COLUMNS (id int, w string, y string)"],
}
FORMS = ["stored as orc", "partitioned by (ds string) clustered by (id) into 2 buckets stored as orc"]


def judged(judge: HiveJudge, engine: Engine, name: str, form: str, properties: str) -> None:
    """A table with rows of Hive's and of ours is altered in each way, and changed afterwards."""
    for change, statements in CHANGES.items():
        table = f"{name}_{change}"
        part = {"ds": "a"} if "partitioned" in form else {}
        where = "partition (ds='a') " if part else ""
        judge.sql(f"create table {table} (id int, v string, w string) {form} tblproperties ({properties})")
        judge.sql(f"insert into {table} {where}values (1, 'v1', 'w1'), (2, 'v2', 'w2')")
        ours = pa.table({"id": pa.array([3, 4], pa.int32()), "v": ["v3", "v4"], "w": ["w3", "w4"]})
        for key, value in part.items():
            ours = ours.append_column(key, pa.array([value] * 2))
        engine.append(table, ours)
        for statement in statements:
            judge.sql(f"alter table {table} {statement}")
        before = _theirs(judge, table)
        assert _ours(engine, table) == before, (change, form, properties)
        with open_client(judge.uri) as metastore:
            last = metastore.get_table(*table.split(".")).columns[-1].name
        engine.merge(table, pa.table({"id": pa.array([1, 3], pa.int32()), last: ["new", "new"]}), ["id"])
        expected = [[*row[:-1], "new"] if row[0] in (1, 3) else row for row in before]
        assert _theirs(judge, table) == expected == _ours(engine, table), (change, form, properties)


def _theirs(judge: HiveJudge, table: str) -> list[list[object]]:
    return sorted([*row.values] for row in judge.table_rows(table, row_ids=False))


def _ours(engine: Engine, table: str) -> list[list[object]]:
    rows = engine.rows(table).to_pylist()
    return sorted([value for key, value in row.items() if key != "ds"] for row in rows)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", [None, "true", "false"])
@ALL_LINES
def test_columns_are_those_that_hive_reads(
    hive_line: HiveJudge,
    line_database: str,
    asked: str | None,
    form: str,
    engine_session: SparkSession | None,
) -> None:
    """With the table's property, and without it."""
    if hive_line.line == "2.3" and "clustered" not in form:
        form = f"clustered by (id) into 1 buckets {form}"
    properties = "'transactional'='true'" + (f", '{SETTING}'='{asked}'" if asked else "")
    judged(hive_line, Engine(hive_line.uri, engine_session), f"{line_database}.t", form, properties)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "setting"), [(Hive23, "true"), (Hive31, "true"), (Hive41, "false")])
def test_the_setting_of_hive_site(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kind: type[Hive23 | Hive31 | Hive4],
    setting: str,
    engine_session: SparkSession | None,
) -> None:
    """The server does not report it; the hive-site.xml that names the server does."""
    with (
        started(kind, request, tmp_path_factory, {SETTING: setting}) as judge,
        new_database(judge) as database,
    ):
        site = {"hive.metastore.uris": judge.uri, SETTING: setting}
        judged(judge, Engine(site, engine_session), f"{database}.t", FORMS[1], "'transactional'='true'")
