"""Hive's second minor compaction of one range moves its result into that of the first."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from mutation_api.hive.connect import connect
from tests.integration.upkeep.soundness import check_sound

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("hive_line", ["3.1"], indirect=True)
def test_a_result_within_another_one(hive_line: HiveJudge, line_database: str) -> None:
    """Hive 3.1 reads the table as if the inner directory were not there, with both readers; so is it read."""
    name = f"{line_database}.t"
    hive_line.sql(
        f"CREATE TABLE {name} (id int, item string) CLUSTERED BY (id) INTO 1 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true')"
    )
    for number in range(3):
        hive_line.sql(f"INSERT INTO {name} VALUES ({2 * number}, 'a'), ({2 * number + 1}, 'b')")
    hive_line.sql(f"DELETE FROM {name} WHERE id = 1")
    hive_line.compact(name, "minor")
    for outer in (hive_line.warehouse / f"{line_database}.db" / "t").glob("*delta*"):
        shutil.copytree(outer, outer.parent / "moved")
        (outer.parent / "moved").rename(outer / outer.name)
    expected = [[0, "a"], [2, "a"], [3, "b"], [4, "a"], [5, "b"]]
    assert sorted(list(row.values) for row in hive_line.table_rows(name)) == expected
    with connect(hive_line.uri) as hive:
        with hive.snapshot(name) as view:
            assert view.table(name).scan().to_arrow().sort_by("id").to_pylist() == [
                {"id": key, "item": item} for key, item in expected
            ]
        check_sound(hive.metastore, name)
        source = pa.table({"id": pa.array([2, 9], pa.int32()), "item": ["changed", "new"]})
        with hive.transaction(name) as tx:
            merge = tx.table(name).merge(source, on=["id"])
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
    expected = [[0, "a"], [2, "changed"], [3, "b"], [4, "a"], [5, "b"], [9, "new"]]
    assert sorted(list(row.values) for row in hive_line.table_rows(name)) == expected
    hive_line.compact(name, "major")
    assert sorted(list(row.values) for row in hive_line.table_rows(name)) == expected
