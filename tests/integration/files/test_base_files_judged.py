"""Hive 2.3 reads each row once in the legacy layout, also of a bucket that had no base file."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from metastore_client.client import MetastoreClient
from tests.fixtures.fix_judge import new_database
from tests.integration.conftest import MakeTable
from tests.integration.transactions.live_table import LiveTable, RowId, delete, insert

pytestmark = pytest.mark.slow

STRATEGIES = ("ETL", "BI")
"""By stripes and by files; the settings make jobs of the queries, which read as those of large tables do."""


def check(table: LiveTable, expected: list[int]) -> None:
    """Both ways of cutting the input, and Hive's readers, give each row once."""
    for strategy, is_vectorised in itertools.product(STRATEGIES, ("false", "true")):
        settings = {
            "hive.exec.orc.split.strategy": strategy,
            "hive.vectorized.execution.enabled": is_vectorised,
            "hive.fetch.task.conversion": "none",
        }
        found = table.hive.sql(f"SELECT id FROM {table.full_name}", settings=settings)
        assert sorted(n for (n,) in found) == expected, settings
    assert sorted(row.values[0] for row in table.rows()) == expected


def row_id(table: LiveTable, id_: int) -> RowId:
    (found,) = (row.row_id for row in table.rows() if row.values[0] == id_)
    assert found is not None
    return found


def base_files(table: LiveTable) -> list[str]:
    """``ds=…/bucket_N`` of all bases."""
    found = (Path(f) for f in table.files() if "/base_" in f"/{f}")
    return sorted(f"{path.parts[0]}/{path.name}" for path in found)


@pytest.mark.long
def test_a_bucket_that_the_compacted_base_lacks_gets_a_file(make_table: MakeTable) -> None:
    table = make_table(buckets=4)
    table.commit(insert("a", 0), insert("a", 1), insert("b", 3))
    table.hive.compact(table.full_name, "major", partition="ds='a'")
    table.commit(insert("a", 2), insert("a", 6), insert("b", 7), insert("c", 0, "other"))
    check(table, [0, 0, 1, 2, 3, 6, 7])
    assert base_files(table) == [f"ds=a/bucket_{n:05d}" for n in range(4)]
    table.commit(delete("a", row_id(table, 2)), insert("a", 10))
    check(table, [0, 0, 1, 3, 6, 7, 10])
    table.hive.compact(table.full_name, "major", partition="ds='a'")
    table.commit(insert("a", 14))
    check(table, [0, 0, 1, 3, 6, 7, 10, 14])


def test_buckets_that_hive_filled_beside_one_base_file_stay_single(make_table: MakeTable) -> None:
    """Of dynamic partitions Hive writes the buckets that have rows; a file of ours for another one must not
    bring theirs a second time.
    """
    table = make_table(buckets=4)
    table.commit(insert("a", 0))
    table.hive.compact(table.full_name, "major", partition="ds='a'")
    table.hive.sql(
        f"INSERT INTO {table.full_name} PARTITION (ds) VALUES (2, 'x', 'a')",
        settings={"hive.exec.dynamic.partition.mode": "nonstrict"},
    )
    table.commit(insert("a", 1))
    check(table, [0, 1, 2])
    assert base_files(table) == ["ds=a/bucket_00000"]
    table.hive.compact(table.full_name, "major", partition="ds='a'")
    table.commit(insert("a", 3))
    check(table, [0, 1, 2, 3])


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("more", ["", ", c char(3), v varchar(4), n decimal(9,2), t timestamp"])
def test_a_bucket_without_original_rows_gets_a_file(
    hive: Hive23, live_metastore: MetastoreClient, more: str
) -> None:
    """Hive leaves a file of length 0 where a bucket of a plain table is empty."""
    with new_database(hive) as database:
        name = f"{database}.t"
        hive.sql(
            f"CREATE TABLE {name} (id int, msg string{more}) CLUSTERED BY (id) INTO 4 BUCKETS STORED AS ORC"
        )
        rows = ", ".join(f"({n}, 'old'{', NULL' * 4 if more else ''})" for n in (0, 3))
        hive.sql(f"INSERT INTO {name} VALUES {rows}")
        hive.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('transactional'='true')")
        table = LiveTable(hive, live_metastore, live_metastore.get_table(database, "t"))
        sizes = {f: (table.directory / f).stat().st_size for f in table.files()}
        assert {f for f, size in sizes.items() if not size} == {"000001_0", "000002_0"}
        nulls = dict.fromkeys("cvnt") if more else {}
        table.commit(insert(None, 1, **nulls), insert(None, 5, **nulls))
        check(table, [0, 1, 3, 5])
        table.commit(delete(None, row_id(table, 5)), insert(None, 4, **nulls))
        check(table, [0, 1, 3, 4])
        assert all((table.directory / f).stat().st_size for f in table.files())
        hive.compact(name, "major")
        check(table, [0, 1, 3, 4])
        table.commit(insert(None, 2, **nulls))
        check(table, [0, 1, 2, 3, 4])
