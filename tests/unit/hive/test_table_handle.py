"""Reads and merges of one table without a transaction or snapshot of the caller's own."""

from __future__ import annotations

import datetime
import gc
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from metastore_client import TxnState
from mutation_api import MergeCounts, RecordLayoutError
from mutation_api.hive.connection import Hive
from tests.unit.hive.conftest import NAME, MakeHive
from tests.unit.hive.test_steps import read, row, rows

FIRST = (row(1), row(2, "milk", "2.00"), row(3, "tea", "3.00", 1), row(4, "water", "4.00", 2))


@pytest.fixture(params=["2.3", "4.1"])
def hive(request: pytest.FixtureRequest, make_hive: MakeHive) -> Hive:
    """A table with four rows in three partitions."""
    connected = make_hive(request.param)
    assert connected.table(NAME).append(rows(*FIRST), create_partitions=True) == 4
    return connected


def open_transactions(hive: Hive) -> int:
    """The number of transactions that the server knows as open."""
    return sum(txn.state is TxnState.OPEN for txn in hive.metastore.get_open_txns().txns)


@pytest.mark.thorough
def test_every_read_has_a_snapshot_of_its_own(hive: Hive) -> None:
    """A scan reads the table as it is when it is read, and leaves nothing open."""
    scan = hive.table(NAME).scan(["id"], where="item = 'tea'")
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [1, 3]
    hive.table(NAME).delete(where="id = 1")
    assert scan.to_arrow()["id"].to_pylist() == [3]
    assert isinstance(frame := scan.to_pandas(), pd.DataFrame)
    assert frame["id"].to_list() == [3]
    assert isinstance(polars := scan.to_polars(), pl.DataFrame)
    assert polars["id"].to_list() == [3]
    assert scan.to_duckdb("found").sql("SELECT id FROM found").fetchall() == [(3,)]
    assert duckdb.sql("SELECT id FROM scan").fetchall() == [(3,)]
    assert pl.DataFrame(scan)["id"].to_list() == [3]
    assert scan.count() == 1
    assert scan.schema.names == ["id"]
    assert scan.explain().columns == ("item",)
    assert hive.table(NAME).scan(limit=2).to_arrow().num_rows == 2
    assert open_transactions(hive) == 0


@pytest.mark.thorough
def test_a_stream_holds_its_snapshot_until_it_ends_or_is_dropped(hive: Hive) -> None:
    """Rows deleted meanwhile are still read."""
    scan = hive.table(NAME).scan(["id"])
    reader = scan.to_arrow_batch_reader()
    assert open_transactions(hive) == 1
    hive.table(NAME).truncate()
    assert sorted(reader.read_all()["id"].to_pylist()) == [1, 2, 3, 4]
    assert open_transactions(hive) == 0
    dropped = scan.to_arrow_batch_reader()
    assert open_transactions(hive) == 1
    del dropped
    gc.collect()
    assert open_transactions(hive) == 0


def test_a_scan_that_cannot_be_read_leaves_nothing_open(hive: Hive) -> None:
    """The error is that of a scan in a snapshot."""
    scan = hive.table(NAME).scan(["colour"])
    for read_it in (scan.to_arrow, scan.count, scan.explain, scan.to_arrow_batch_reader, lambda: scan.schema):
        with pytest.raises(RecordLayoutError, match="colour"):
            read_it()
    assert open_transactions(hive) == 0


@pytest.mark.thorough(1)
def test_a_merge_commits_when_it_is_executed(hive: Hive) -> None:
    """A dry run writes nothing; the clauses act in their order."""
    source = rows(row(2, "milk", "9.00"), row(4, "water", "0.00", 2), row(5, "juice", "5.00", 2))
    merge = hive.table(NAME).merge(source, on=["id"], count_by="item")
    merge.when_matched_delete("source.price = 0").when_matched_update_all().when_not_matched_insert_all()
    before = read(hive)
    report = merge.dry_run()
    assert (report.is_dry_run, read(hive)) == (True, before)
    done = merge.execute()
    assert done.total == report.total == MergeCounts(inserted=1, updated=1, deleted=1)
    assert read(hive) == [FIRST[0], row(2, "milk", "9.00"), FIRST[2], row(5, "juice", "5.00", 2)]
    assert open_transactions(hive) == 0


def test_a_clause_that_is_wrong_is_refused_when_the_merge_is_executed(hive: Hive) -> None:
    """Nothing is written."""
    before = read(hive)
    merge = hive.table(NAME).merge(rows(row(1)), on=["id"]).when_matched_delete("colour = 'red'")
    with pytest.raises(RecordLayoutError, match="colour"):
        merge.execute()
    assert (read(hive), open_transactions(hive)) == (before, 0)


def test_a_merge_adds_columns_and_partitions_if_asked(make_hive: MakeHive) -> None:
    """A dry run of such a merge adds neither."""
    hive = make_hive("4.1")
    hive.table(NAME).append(rows(*FIRST), create_partitions=True)
    source = rows((9, "milk", Decimal("1.00"), datetime.date(2024, 12, 1))).append_column(
        "organic", pa.array([True])
    )
    merge = hive.table(NAME).merge(source, on=["id"], create_partitions=True, schema="add")
    merge.when_not_matched_insert_all()
    assert merge.dry_run().total == MergeCounts(inserted=1)
    assert "organic" not in hive.table(NAME).schema.names
    merge.execute()
    found = hive.table(NAME).scan(["id", "organic"]).to_arrow().sort_by("id")
    assert found["organic"].to_pylist() == [None, None, None, None, True]
