"""Compactions on a metastore in memory: what readers see stays, and a wrong file is never published."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import CompactionError, ConfigurationError, MutationError
from mutation_api.format.event import RowIdArrays
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.orc.write.event_writer import OrcEventWriter
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep import compacted_files
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.changes_of_files import changes_since_base
from tests.unit.upkeep.random_changes import random_change

TABLE = "default.t"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
LAYOUTS = {
    "4.1": (HIVE_4_1, "default"),
    "4.1 insert-only": (HIVE_4_1, "insert_only"),
    "3.1": (HIVE_3_1, "default"),
    "3.1 insert-only": (HIVE_3_1, "insert_only"),
    "2.3": (HIVE_2_3, "default"),
    "2.3 legacy": (HIVE_2_3, "legacy"),
}
Given = tuple[Hive, InMemoryMetastore, Path]


@pytest.fixture
def given(layout: str, tmp_path: Path) -> Iterator[Given]:
    """An empty table."""
    capabilities, properties = LAYOUTS[layout]
    off = {"hive.compactor.initiator.on": "false"}
    metastore = InMemoryMetastore(tmp_path, capabilities=capabilities, configuration=off)
    create_acid_table(
        metastore,
        TABLE,
        COLUMNS,
        clustered_by=["id"],
        num_buckets=2,
        properties={"transactional_properties": properties},
    )
    with connect(metastore) as hive:
        yield hive, metastore, Path(metastore.get_table("default", "t").location.removeprefix("file:"))


def rows_of(ids: list[int], text: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "msg": [f"{text}{id}" for id in ids]})


def seen(hive: Hive, metastore: InMemoryMetastore, *, changes: bool) -> list[str]:
    """All rows with their ROW__IDs, and what a change feed reads since the newest base."""
    found = []
    with (
        MutatorClientBuilder().metastore(metastore).build() as client,
        client.open_snapshot(TABLE) as snapshot,
    ):
        view = open_table(snapshot, TABLE)
        with hive.snapshot(TABLE) as now:
            scan = now.table(TABLE).scan(row_ids=view.table.version.has_row_ids)
            found += [repr(row) for row in scan.to_arrow().to_pylist()]
        if changes:
            found += changes_since_base(view)
    return sorted(found)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_readers_see_the_same(given: Given, layout: str, seed: int) -> None:
    """After compactions of either kind between changes; a feed too, unless a base was written."""
    hive, metastore, folder = given
    rng = random.Random(seed)
    has_queue = layout.startswith("4.1")
    options = WriterOptions(stripe_bytes=1 << 12)
    for number in range(12):
        random_change(hive, TABLE, number, rng, rows_of, ids_apart=10, is_insert_only="insert-only" in layout)
        if number % 3 < 2:
            continue
        kind = rng.choice(["minor", "major"]) if has_queue else "major"
        with_feed = kind == "minor" and "insert-only" not in layout
        before = seen(hive, metastore, changes=with_feed)
        done = compact_partition(
            metastore, TABLE, kind=kind, without_queue=not has_queue, wait_seconds=1.0, options=options
        )
        assert done.kept_for == ""
        assert seen(hive, metastore, changes=with_feed) == before, (number, kind)
        visible = [each.name for each in folder.iterdir() if not each.name.startswith(("_", "."))]
        assert not [each for each in folder.iterdir() if each.name.startswith("_mutation")]
        if not has_queue and done.directory is not None:
            assert visible == [done.directory]


Written = tuple[Any, RowIdArrays, pa.StructArray | None, Any]


def without_last(operations: Any, ids: RowIdArrays, rows: pa.StructArray | None, own: Any) -> Written:
    return operations[:-1], ids.take(slice(-1)), None if rows is None else rows[:-1], own[:-1]


def twice(operations: Any, ids: RowIdArrays, rows: pa.StructArray | None, own: Any) -> Written:
    at = np.array([*range(len(own)), len(own) - 1])
    return operations[at], ids.take(at), None if rows is None else rows.take(pa.array(at)), own[at]


def of_another_transaction(
    operations: Any, ids: RowIdArrays, rows: pa.StructArray | None, own: Any
) -> Written:
    return operations, ids, rows, np.where(np.arange(len(own)) == len(own) - 1, own - 1, own)


def of_another_row(operations: Any, ids: RowIdArrays, rows: pa.StructArray | None, own: Any) -> Written:
    return operations, RowIdArrays(ids.original_txns, ids.buckets, ids.row_ids + 1), rows, own


def with_other_values(operations: Any, ids: RowIdArrays, rows: pa.StructArray | None, own: Any) -> Written:
    if rows is not None:
        values = rows.to_pylist()
        rows = pa.array([*values[:-1], {**values[-1], "msg": None}], rows.type)
    else:
        ids = RowIdArrays(ids.original_txns + 1, ids.buckets, ids.row_ids)
    return operations, ids, rows, own


@pytest.mark.thorough
@pytest.mark.parametrize(
    "layout",
    ["4.1", *(pytest.param(name, marks=pytest.mark.long) for name in LAYOUTS if name != "4.1")],
)
@pytest.mark.parametrize("kind", ["minor", "major"])
@pytest.mark.parametrize(
    "wrong", [without_last, twice, of_another_transaction, of_another_row, with_other_values]
)
def test_a_file_with_a_fault_is_not_published(
    given: Given, layout: str, kind: str, wrong: Callable[..., Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever differs from the old files: nothing changes, and the next compaction works."""
    is_plain, is_event = "insert-only" in layout, kind == "minor"
    if is_event and not layout.startswith("4.1"):
        with pytest.raises(ConfigurationError, match="only major compactions are possible"):
            compact_partition(given[1], TABLE, kind=kind, without_queue=True)
        return
    if wrong is of_another_transaction and not (is_event and not is_plain):
        return  # in a base, the row's own transaction is written
    if wrong is of_another_row and is_plain:
        return
    hive, metastore, folder = given
    for number in range(4):
        hive.table(TABLE).append(rows_of(list(range(number * 10, number * 10 + 5)), "a"))
    if not is_plain:
        hive.table(TABLE).delete(where="id % 10 = 1")
        hive.table(TABLE).update(set={"msg": "'u'"}, where="id % 10 = 2")
    before = seen(hive, metastore, changes=not is_plain)
    names = sorted(each.name for each in folder.iterdir())

    class Wrong(OrcEventWriter):
        def write(self, *arguments: Any) -> None:
            super().write(*wrong(*arguments))

    monkeypatch.setattr(compacted_files, "OrcEventWriter", Wrong)
    without_queue = not layout.startswith("4.1")
    with pytest.raises(MutationError):
        compact_partition(metastore, TABLE, kind=kind, without_queue=without_queue, wait_seconds=1.0)
    assert sorted(each.name for each in folder.iterdir()) == names
    assert seen(hive, metastore, changes=not is_plain) == before
    monkeypatch.undo()
    done = compact_partition(metastore, TABLE, kind=kind, without_queue=without_queue, wait_seconds=1.0)
    assert done.directory is not None


@pytest.mark.parametrize("layout", ["4.1", pytest.param("2.3", marks=pytest.mark.long)])
def test_a_delta_of_open_ids_is_not_covered(given: Given, layout: str) -> None:
    """A streaming client has several ids in one delta, of which the later ones are open."""
    hive, metastore, folder = given
    for number in range(3):
        hive.table(TABLE).append(rows_of([number], "a"))
    first, last = sorted(each for each in folder.iterdir() if each.name.startswith("delta"))[1:]
    shutil.rmtree(last)
    last_id = int(last.name.split("_")[1])
    with hive.transaction(TABLE) as tx:
        tx.table(TABLE).append(rows_of([9], "open"))
        first.rename(first.parent / f"{first.name.rpartition('_')[0].rpartition('_')[0]}_{last_id + 2:07d}")
        names = sorted(each.name for each in folder.iterdir())
        with pytest.raises(CompactionError, match="a streaming client still writes there"):
            compact_partition(metastore, TABLE, without_queue=layout != "4.1", wait_seconds=1.0)
        assert sorted(each.name for each in folder.iterdir()) == names
