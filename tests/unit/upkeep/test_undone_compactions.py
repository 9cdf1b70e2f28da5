"""Rebalances, and compactions that are undone, on a metastore in memory: what readers see stays."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import CompactionError, MutationError
from mutation_api.format.event import RowIdArrays
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.orc.write.event_writer import OrcEventWriter
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep import compacted_files, restore
from mutation_api.upkeep.compaction_view import files_read
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.upkeep.kept_files import find_kept
from mutation_api.upkeep.restore import restore_table
from tests.unit.upkeep.random_changes import random_change

TABLE = "default.t"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"), ColumnInfo("at", "timestamp"))
LAYOUTS = {
    "4.1": (HIVE_4_1, "default", 0),
    "4.1 bucketed": (HIVE_4_1, "default", 2),
    "4.1 insert-only": (HIVE_4_1, "insert_only", 0),
    "3.1": (HIVE_3_1, "default", 2),
    "2.3": (HIVE_2_3, "default", 2),
    "2.3 legacy": (HIVE_2_3, "legacy", 2),
}
Given = tuple[Hive, InMemoryMetastore, Path]


@pytest.fixture
def given(layout: str, tmp_path: Path) -> Iterator[Given]:
    """An empty table."""
    capabilities, properties, buckets = LAYOUTS[layout]
    off = {"hive.compactor.initiator.on": "false"}
    metastore = InMemoryMetastore(tmp_path, capabilities=capabilities, configuration=off)
    create_acid_table(
        metastore,
        TABLE,
        COLUMNS,
        clustered_by=["id"] if buckets else [],
        num_buckets=buckets or None,
        properties={"transactional_properties": properties},
    )
    with connect(metastore) as hive:
        yield hive, metastore, Path(metastore.get_table("default", "t").location.removeprefix("file:"))


def rows_of(ids: list[int], text: str) -> pa.Table:
    """Rows; the message of each tenth is missing."""
    at = pa.array([1_600_000_000_000_000 + id for id in ids], pa.timestamp("us"))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "msg": pa.array([None if id % 10 == 3 else f"{text}{id % 7}" for id in ids], pa.string()),
            "at": at,
        }
    )


def seen(hive: Hive, *, row_ids: bool) -> list[Any]:
    """All rows, in the order of their ROW__IDs if they are asked for."""
    with hive.snapshot(TABLE) as now:
        rows = now.table(TABLE).scan(row_ids=row_ids).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: tuple(row["ROW__ID"].values()) if row_ids else repr(row))


def clean(metastore: InMemoryMetastore, folder: Path) -> None:
    """Remove what no new reader reads, as the server's cleaner does."""
    with (
        MutatorClientBuilder().metastore(metastore).build() as client,
        client.open_snapshot(TABLE) as snapshot,
    ):
        read = {each.location.parent.name for each in files_read(open_table(snapshot, TABLE), "")}
    for each in folder.iterdir():
        if not each.name.startswith(("_", ".")) and each.name not in read:
            shutil.rmtree(each)
    for entry in metastore.show_compactions():
        if entry.state == "ready for cleaning":
            assert entry.id is not None
            metastore._change(entry.id, state="succeeded")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_SETTLE_SECONDS", 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 30))])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_compaction_is_undone(given: Given, layout: str, seed: int) -> None:
    """Between changes: rows and ROW__IDs are the same after it, what was written since included."""
    hive, metastore, folder = given
    rng = random.Random(seed)
    is_4, is_insert_only = layout.startswith("4.1"), "insert-only" in layout
    depth = 0
    for number in range(14):
        random_change(hive, TABLE, number, rng, rows_of, ids_apart=100, is_insert_only=is_insert_only)
        before = seen(hive, row_ids=not is_insert_only)
        step = rng.choice(["compact", "undo", "nothing"])
        if step == "compact":
            kind = rng.choice(["minor", "major"]) if is_4 else "major"
            done = compact_partition(
                metastore,
                TABLE,
                kind=kind,
                keep_old=timedelta(days=1),
                without_queue=not is_4,
                wait_seconds=1.0,
            )
            depth += done.directory is not None
            if is_4:
                clean(metastore, folder)
        elif step == "undo" and depth:
            names = find_kept(restore.Location.given(folder))[depth - 1].results
            try:
                (found,) = restore_table(metastore, TABLE)
            except CompactionError as error:
                assert "a later compaction" in str(error)
                continue
            assert not set(found.hidden).intersection(each.name for each in folder.iterdir())
            assert names
            depth -= 1
        assert seen(hive, row_ids=not is_insert_only) == before, (number, step)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 30))])
@pytest.mark.parametrize("layout", ["4.1"])
def test_rows_are_rebalanced(given: Given, layout: str, seed: int) -> None:
    """The rows are the same, evenly in files, by write id and counted through; or sorted by columns."""
    hive, metastore, folder = given
    rng = random.Random(seed)
    options = WriterOptions(stripe_bytes=1 << 12)
    for number in range(12):
        random_change(hive, TABLE, number, rng, rows_of, ids_apart=100, is_insert_only=False)
        if number % 3 < 2:
            continue
        before, old = seen(hive, row_ids=False), seen(hive, row_ids=True)
        is_sorted, buckets = rng.random() < 0.5, rng.choice([1, 2, 5, 200])
        done = compact_partition(
            metastore,
            TABLE,
            kind="rebalance",
            num_buckets=buckets,
            sort_by=["msg desc", "id"] if is_sorted else (),
            options=options,
        )
        if done.directory is None:  # there were no files
            assert not before
            continue
        assert seen(hive, row_ids=False) == before
        new = seen(hive, row_ids=True)
        assert [row["ROW__ID"]["rowid"] for row in new] == list(range(len(new)))
        per_file = -(-len(new) // buckets)
        files = sorted((folder / done.directory).glob("bucket*"))
        assert len(files) == max(1, -(-len(new) // max(1, per_file)))
        if is_sorted:
            assert len({row["ROW__ID"]["writeid"] for row in new}) <= 1
            keys = [(row["msg"] is None, [-ord(c) for c in row["msg"] or ""], row["id"]) for row in new]
            assert keys == sorted(keys)
        else:
            assert [row["ROW__ID"]["writeid"] for row in new] == [row["ROW__ID"]["writeid"] for row in old]
            assert [row["id"] for row in new] == [row["id"] for row in old]
        clean(metastore, folder)


def without_last(operations: Any, ids: RowIdArrays, rows: pa.StructArray, own: Any) -> Any:
    return operations[:-1], ids.take(slice(-1)), rows[:-1], own[:-1]


def of_another_row(operations: Any, ids: RowIdArrays, rows: pa.StructArray, own: Any) -> Any:
    return operations, RowIdArrays(ids.original_txns, ids.buckets, ids.row_ids + 1), rows, own


def with_other_values(operations: Any, ids: RowIdArrays, rows: pa.StructArray, own: Any) -> Any:
    values = rows.to_pylist()
    return operations, ids, pa.array([*values[:-1], {**values[-1], "msg": "no"}], rows.type), own


@pytest.mark.thorough(1)
@pytest.mark.parametrize("layout", ["4.1"])
@pytest.mark.parametrize("sort_by", [(), ("id desc",)])
@pytest.mark.parametrize("wrong", [without_last, of_another_row, with_other_values])
def test_a_wrong_file_is_not_published(
    given: Given, layout: str, sort_by: tuple[str, ...], wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever differs from the old rows: nothing changes, and the next rebalance works."""
    hive, metastore, folder = given
    for number in range(3):
        hive.table(TABLE).append(rows_of(list(range(number * 10, number * 10 + 5)), "a"))
    before, names = seen(hive, row_ids=True), sorted(each.name for each in folder.iterdir())

    class Wrong(OrcEventWriter):
        def write(self, *arguments: Any) -> None:
            super().write(*wrong(*arguments))

    monkeypatch.setattr(compacted_files, "OrcEventWriter", Wrong)
    with pytest.raises(MutationError):
        compact_partition(metastore, TABLE, kind="rebalance", sort_by=sort_by)
    assert sorted(each.name for each in folder.iterdir()) == names
    assert seen(hive, row_ids=True) == before
    monkeypatch.undo()
    assert compact_partition(metastore, TABLE, kind="rebalance", sort_by=sort_by).row_count == 15
