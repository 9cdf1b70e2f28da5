"""What a merge reads: texts only where nothing else differs, and both kinds of rows in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import (
    LocalOptions,
    MergeCounts,
    MutatorClient,
    MutatorClientBuilder,
    TableScan,
    create_acid_table,
    open_table,
)
from mutation_api.merge import table_side
from mutation_api.merge.local_merge import LocalMerge, local_merge
from mutation_api.merge.target_rows import KeyedSplits, TargetRows
from mutation_api.write.apply import apply_arrow

NAME = "default.t"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("number", "int"), ColumnInfo("text", "string"))
ROWS = 400
EARLY, LATE, ALL = ("id", "number", "ds"), ("id", "text"), ("id", "number", "text", "ds")

Passes = list[tuple[str, ...]]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[MutatorClient]:
    """A client of a table with ROWS rows in two partitions."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    keys = [ColumnInfo("ds", "string")]
    create_acid_table(metastore, NAME, COLUMNS, keys, clustered_by=["id"], num_buckets=2)
    builder = MutatorClientBuilder().metastore(metastore).add_sink_table(NAME, create_partitions=True)
    with builder.build() as made:
        with made.new_transaction() as transaction:
            rows = source(range(ROWS)).append_column("operation", pa.array(["insert"] * ROWS))
            apply_arrow(transaction, NAME, rows)
        yield made


@pytest.fixture(autouse=True)
def _files_count_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_side, "_SMALL_SPLIT_BYTES", 0)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """The columns of each pass over the table."""
    found: Passes = []
    read = TargetRows.read

    def recorded(self: TargetRows, keyed: KeyedSplits) -> Iterator[pa.RecordBatch]:
        found.append(tuple(self.columns))
        return read(self, keyed)

    monkeypatch.setattr(TargetRows, "read", recorded)
    return found


def source(ids: range, **changed: dict[int, Any]) -> pa.Table:
    """Rows of the table, some values of which are others."""
    rows = [
        {"id": n, "number": n % 7, "text": None if n % 5 == 0 else f"t{n}", "ds": "ab"[n % 2]} for n in ids
    ]
    for name, values in changed.items():
        for number, value in values.items():
            rows[number - ids.start][name] = value
    return pa.Table.from_pylist(
        rows, pa.schema({"id": pa.int64(), "number": pa.int32(), "text": pa.string(), "ds": pa.string()})
    )


def merging(client: MutatorClient, rows: pa.Table, **options: Any) -> LocalMerge:
    """An upsert by id."""
    transaction = client.new_transaction()
    transaction.begin()
    merge = local_merge(transaction, NAME, source=rows, on=["id"], local=LocalOptions(threads=2), **options)
    return merge.when_matched_update_all().when_not_matched_insert_all()


def committed(client: MutatorClient, merge: LocalMerge) -> tuple[MergeCounts, list[dict[str, Any]]]:
    """Counts, and the rows afterwards."""
    total = merge.execute().total
    merge.transaction.commit()  # type: ignore[attr-defined]
    with client.open_snapshot(NAME) as view:
        found = TableScan(open_table(view, NAME)).to_arrow().sort_by("id").to_pylist()
    return total, found


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("setting", "value"), [("_SMALL_SPLIT_BYTES", 1 << 18), ("_BYTES_PER_SOUGHT_ROW", 0)]
)
def test_small_files_and_few_keys_are_read_once(
    client: MutatorClient, passes: Passes, monkeypatch: pytest.MonkeyPatch, setting: str, value: int
) -> None:
    """A second pass over the keys would take longer than all columns of the rows."""
    monkeypatch.setattr(table_side, setting, value)
    total, found = committed(client, merging(client, source(range(20), text={3: "changed"})))
    assert total == MergeCounts(updated=1, unchanged=19)
    assert found[3]["text"] == "changed"
    assert passes == [ALL]


def test_texts_are_not_read_if_numbers_differ(client: MutatorClient, passes: Passes) -> None:
    """One pass without them; the row has all of the source's values."""
    rows = source(range(3), number={0: 100, 1: None, 2: 100}, text={0: "new"})
    total, found = committed(client, merging(client, rows))
    assert total == MergeCounts(updated=3)
    assert found[:3] == rows.to_pylist()
    assert found[3:] == source(range(3, ROWS)).to_pylist()
    assert passes == [EARLY]


def test_texts_are_read_of_the_rows_that_seem_unchanged(client: MutatorClient, passes: Passes) -> None:
    """NULL and a text, either way, differ; equal ones, also NULLs, do not."""
    rows = source(range(8), number={1: 100}, text={0: "new", 2: None, 3: "other"})
    total, found = committed(client, merging(client, rows))
    assert total == MergeCounts(updated=4, unchanged=4)
    assert found[:8] == rows.to_pylist()
    assert passes == [EARLY, LATE]


def test_texts_that_are_needed_are_read_at_once(client: MutatorClient, passes: Passes) -> None:
    """A condition reads them, an update keeps them, or a dry run shows them."""
    rows = source(range(3), number={0: 100})
    with client.new_transaction() as transaction:
        reading = local_merge(transaction, NAME, source=rows, on=["id"])
        reading.when_matched_update_all(when=pc.field("target", "text").is_null()).dry_run(samples=0)
        keeping = local_merge(transaction, NAME, source=rows.drop_columns(["text"]), on=["id"])
        keeping.when_matched_update_all().dry_run(samples=0)
        shown = local_merge(transaction, NAME, source=rows, on=["id"])
        shown.when_matched_update_all().dry_run()
    assert passes == [ALL] * 3


@pytest.mark.parametrize("clause", ["delete", "update"])
def test_one_pass_finds_both_kinds_of_rows(client: MutatorClient, passes: Passes, clause: str) -> None:
    """Rows with a key of the source, and rows without; those that are updated need all columns."""
    rows = source(range(ROWS - 2, ROWS + 1), number={ROWS - 2: 100})
    merge = merging(client, rows)
    if clause == "delete":
        merge.when_not_matched_by_source_delete()
    else:
        merge.when_not_matched_by_source_update({"number": 0})
    total, found = committed(client, merge)
    kept = ROWS - 2
    if clause == "delete":
        assert total == MergeCounts(inserted=1, updated=1, deleted=kept, unchanged=1)
        assert found == rows.to_pylist()
        assert passes == [EARLY, LATE]
    else:
        zeros = len([n for n in range(kept) if n % 7 == 0])
        assert total == MergeCounts(inserted=1, updated=1 + kept - zeros, unchanged=1 + zeros)
        assert {row["number"] for row in found[:kept]} == {0}
        assert passes == [ALL]


def test_other_partitions_for_rows_without_a_source_row_need_a_pass_of_their_own(
    client: MutatorClient, passes: Passes
) -> None:
    """The condition excludes a partition, in which rows of the source lie nevertheless."""
    rows = source(range(2), number={0: 100, 1: 100})
    merge = merging(client, rows).when_not_matched_by_source_delete(when=pc.field("target", "ds") == "a")
    total, found = committed(client, merge)
    assert total == MergeCounts(updated=2, deleted=ROWS // 2 - 1)
    assert found == [
        *rows.to_pylist(),
        *(row for row in source(range(2, ROWS)).to_pylist() if row["ds"] == "b"),
    ]
    assert passes == [EARLY, ALL]


def test_a_source_without_rows_deletes_all(client: MutatorClient, passes: Passes) -> None:
    """Every row is one that the source lacks."""
    merge = merging(client, source(range(0))).when_not_matched_by_source_delete()
    assert committed(client, merge) == (MergeCounts(deleted=ROWS), [])
    assert len(passes) == 1
