"""Rows in groups: each lies in the bucket that Hive's hash says, and Java is given the same."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.coordinator import bound_table
from benchmarks.data.group_data import GroupedRows
from mutation_api.table.bucket_resolver import BucketIdResolver


def test_groups_are_of_one_size_and_in_their_buckets(tmp_path: Path) -> None:
    """Partition after partition, in each bucket after bucket; no id comes twice."""
    table = bound_table(tmp_path, 4, 1)
    rows = GroupedRows.made(table, 3, 130)
    assert [batch.num_rows for batch in rows.batches] == [10] * 12
    assert rows.count == 120
    assert [value for value, _ in rows.groups()] == ["p0000"] * 4 + ["p0001"] * 4 + ["p0002"] * 4
    resolver = BucketIdResolver(table)
    found = [set(resolver.resolve(batch).to_pylist()) for batch in rows.batches]
    assert found == [{0}, {1}, {2}, {3}] * 3
    assert len(set(pa.Table.from_batches(rows.batches)["id"].to_pylist())) == 120


def test_a_group_has_a_row_at_least(tmp_path: Path) -> None:
    """However few rows are asked for."""
    assert GroupedRows.made(bound_table(tmp_path, 8, 1), 5, 1).count == 40


def test_file_for_java_holds_the_same_rows(tmp_path: Path) -> None:
    """Read back column by column, as the JVM does."""
    rows = GroupedRows.made(bound_table(tmp_path, 2, 1), 2, 20)
    rows.write_for_java(tmp_path / "rows")
    content = (tmp_path / "rows").read_bytes()
    table = pa.Table.from_batches(rows.batches)
    count = 20
    assert int.from_bytes(content[:8], "little") == count
    assert np.frombuffer(content, "<i8", count, 8).tolist() == table["id"].to_pylist()
    assert np.frombuffer(content, "<f8", count, 8 + 8 * count).tolist() == table["v"].to_pylist()
    offsets = np.frombuffer(content, "<i4", count + 1, 8 + 16 * count)
    texts = content[8 + 16 * count + 4 * (count + 1) :]
    cut = [texts[a:b].decode() for a, b in itertools.pairwise(offsets)]
    assert cut == table["msg"].to_pylist()
