"""Frames of pandas without rows, which often have no types, are change sets without changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import InMemoryMetastore
from mutation_api import connect, create_acid_table
from mutation_api.errors import RecordLayoutError
from mutation_api.hive.hive_table import HiveTable

NAME = "default.t"
TYPES = {
    "id": "int",
    "s": "string",
    "price": "decimal(5,2)",
    "day": "date",
    "at": "timestamp",
    "list": "array<int>",
    "map": "map<string,int>",
}
EMPTY: dict[str, Callable[[list[str]], Any]] = {
    "pandas, objects": lambda names: pd.DataFrame(columns=names),
    "pandas, floats": lambda names: pd.DataFrame({n: pd.Series([], dtype="float64") for n in names}),
    "polars": lambda names: pl.DataFrame({name: [] for name in names}),
    "arrow": lambda names: pa.table({name: pa.nulls(0) for name in names}),
}


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    """With a table."""
    metastore = InMemoryMetastore(warehouse=tmp_path)
    columns = [ColumnInfo(name, data_type) for name, data_type in TYPES.items()]
    create_acid_table(metastore, NAME, columns, clustered_by=["id"], num_buckets=2)
    return metastore


def _merge(table: HiveTable, rows: Any) -> None:
    table.merge(rows, on=["id", "s"]).when_matched_update_all().when_not_matched_insert_all().execute()


CALLS: dict[str, tuple[list[str], Callable[[HiveTable, Any], Any]]] = {
    "append": ([*TYPES], HiveTable.append),
    "update": (["ROW__ID", *TYPES], HiveTable.update),
    "delete": (["ROW__ID"], HiveTable.delete),
    "apply": (["ROW__ID", *TYPES, "op"], lambda t, rows: t.apply(rows, operation_column="op")),
    "merge": ([*TYPES], _merge),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", EMPTY)
def test_nothing_to_change(metastore: InMemoryMetastore, kind: str, call: str) -> None:
    """Whatever types a library gives to columns without values."""
    names, change = CALLS[call]
    with connect(metastore) as hive, hive.transaction(NAME) as tx:
        change(tx.table(NAME), EMPTY[kind](names))


def test_names_are_checked_all_the_same(metastore: InMemoryMetastore) -> None:
    """A missing column is missing on days with changes, too; so is a type that somebody chose."""
    with connect(metastore) as hive, hive.transaction(NAME) as tx:
        table = tx.table(NAME)
        with pytest.raises(RecordLayoutError, match=r"lacks .*map"):
            table.append(pd.DataFrame(columns=[*TYPES][:-1]))
        wrong = pa.table({name: pa.nulls(0, pa.binary() if name == "id" else None) for name in TYPES})
        with pytest.raises(RecordLayoutError, match="id int from binary"):
            table.append(wrong)


def test_rows_need_types(metastore: InMemoryMetastore) -> None:
    """A row whose ROW__ID is missing is not left out."""
    with (
        connect(metastore) as hive,
        hive.transaction(NAME) as tx,
        pytest.raises(RecordLayoutError, match="ROW__ID is not a struct: found null"),
    ):
        tx.table(NAME).delete(pd.DataFrame({"ROW__ID": [None]}))
