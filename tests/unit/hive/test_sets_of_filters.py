"""``isin`` with values of another type finds what ``==`` finds: no value is cut to the column's type."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.hive.connect import connect
from mutation_api.upkeep.create_acid_table import create_acid_table

NAME = "default.t"
DAY = date(2024, 1, 1)
EXACT = pa.decimal128(20, 3)
CASES: dict[str, tuple[str, pa.Array, Any, list[int]]] = {
    "a double between decimals": ("decimal(20,3)", pa.array([Decimal("0.001")], EXACT), [0.0014], []),
    "a double of a decimal": ("decimal(20,3)", pa.array([Decimal("0.100")], EXACT), [0.1, 7.5, None], [0]),
    "noon of a day": ("date", pa.array([DAY]), [datetime(2024, 1, 1, 12)], []),
    "midnight of a day": ("date", pa.array([DAY]), [datetime(2024, 1, 1), datetime(2024, 1, 2, 1)], [0]),
    "a number that is not true": ("boolean", pa.array([True]), [2], []),
    "a part of true": ("boolean", pa.array([True]), [0.5], []),
    "a number that is true": ("boolean", pa.array([True]), [1], [0]),
}


@pytest.mark.thorough(1)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_key", [False, True], ids=["data", "partition"])
def test_values_of_another_type(tmp_path: Path, name: str, is_key: bool) -> None:
    """Of data and of partition columns, and negated."""
    kind, stored, values, found = CASES[name]
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("x", kind)]
    keys = [columns.pop()] if is_key else []
    create_acid_table(metastore, NAME, columns, partitioned_by=keys, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as hive:
        with hive.transaction(NAME, create_partitions=True) as transaction:
            transaction.table(NAME).append(pa.table({"id": [0], "x": stored}))
        with hive.snapshot(NAME) as view:
            table, condition = view.table(NAME), pc.field("x").isin(values)
            assert table.scan(["id"], where=condition).to_arrow()["id"].to_pylist() == found
            assert table.scan(where=~condition).to_arrow().num_rows == 1 - len(found)
        with hive.transaction(NAME) as transaction:
            merge = transaction.table(NAME).merge(pa.table({"id": [9], "x": stored}), on="id")
            named = pc.field("target", "x").isin(values)
            report = merge.when_not_matched_by_source_delete(named).execute()
            assert report.total.deleted == len(found)
