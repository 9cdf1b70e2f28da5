"""The order of rebalanced rows, and the keys by which they are sorted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mutation_api import CompactionError, ConfigurationError
from mutation_api.format.event import ROW_ID_COLUMN, bucket_property
from mutation_api.format.layout import AcidVersion
from mutation_api.read.snapshot_reader import row_id_type
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.upkeep import rebalance
from mutation_api.upkeep.rebalance import SortKey, _in_order, parse_order_by, parse_sort_by


def batch(bucket: int, *ids: tuple[int, int]) -> pa.RecordBatch:
    """Rows with these write ids and row ids."""
    type_ = row_id_type(AcidVersion.V2_HIVE4)
    names = [field.name for field in type_]
    rows = [dict(zip(names, (write, bucket_property(bucket), row), strict=True)) for write, row in ids]
    return pa.record_batch([pa.array(rows, type_)], names=[ROW_ID_COLUMN])


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_rows_are_merged_by_write_id_and_bucket(monkeypatch: pytest.MonkeyPatch, batch_rows: int) -> None:
    """Batches end anywhere, and a write id may be missing in some buckets."""
    monkeypatch.setattr(rebalance, "BATCH_ROWS", batch_rows)
    first = [batch(0, (1, 0), (1, 1)), batch(0, (1, 2), (3, 0))]
    second = [batch(1, (1, 0)), batch(1, (2, 0), (2, 1), (3, 0), (4, 0))]
    merged = [
        tuple(row[ROW_ID_COLUMN].values())
        for each in _in_order([iter(first), iter(second), iter(())])
        for row in each.to_pylist()
    ]
    given = [tuple(row[ROW_ID_COLUMN].values()) for part in (*first, *second) for row in part.to_pylist()]
    assert merged == sorted(given)


def table() -> AcidTable:
    """A table with columns that have an order, and one that has none."""
    columns = (AcidColumn("id", "int"), AcidColumn("tags", "array<string>"))
    return AcidTable("d", "t", Location.parse("file:/t"), columns, (), 0, (), version=AcidVersion.V2_HIVE4)


def test_keys_of_an_order() -> None:
    """Names in any case, with a direction; what has no order is refused by name."""
    assert parse_sort_by(table(), ["ID", "id desc"]) == (SortKey("id"), SortKey("id", True))
    assert parse_order_by("ORDER BY `id` DESC NULLS LAST, b") == ("`id` DESC NULLS LAST", "b")
    assert parse_sort_by(table(), ["`id` DESC NULLS LAST"]) == (SortKey("id", True),)
    with pytest.raises(ConfigurationError, match="sort_by 'no': expected one of id, tags"):
        parse_sort_by(table(), ["no"])
    with pytest.raises(ConfigurationError, match="rows cannot be sorted by array<string>"):
        parse_sort_by(table(), ["tags"])
    with pytest.raises(CompactionError, match="only names of columns are supported"):
        parse_order_by("order by id + 1")
