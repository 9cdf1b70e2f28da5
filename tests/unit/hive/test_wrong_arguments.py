"""Arguments of a wrong type are refused with one of our errors, which says what to give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import InMemoryMetastore
from mutation_api import connect, create_acid_table
from mutation_api.errors import ConfigurationError, MutationError, RecordLayoutError
from mutation_api.hive.hive_table import HiveTable
from mutation_api.local.local_options import LocalOptions

NAME = "default.t"
ROWS = pa.table({"id": pa.array([1], pa.int32()), "x": [1.5]})


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    """With a table of one row."""
    metastore = InMemoryMetastore(warehouse=tmp_path)
    columns = [ColumnInfo("id", "integer"), ColumnInfo("x", "double precision")]
    create_acid_table(metastore, NAME, columns, clustered_by="id", num_buckets=2)
    with connect(metastore) as hive, hive.transaction(NAME) as tx:
        tx.table(NAME).append(ROWS)
    return metastore


@pytest.fixture
def table(metastore: InMemoryMetastore) -> Iterator[HiveTable]:
    """It, in a transaction that is aborted."""
    with connect(metastore) as hive:
        tx = hive.transaction(NAME).begin()
        yield tx.table(NAME)
        tx.abort()


def test_types_get_the_names_that_hive_stores(metastore: InMemoryMetastore) -> None:
    """Hive cannot read a table with another one."""
    assert [column.type for column in metastore.get_table("default", "t").columns] == ["int", "double"]


@pytest.mark.parametrize("columns", [pa.schema([("id", pa.int32())]), [("id", "int")], {"id": "int"}, 5])
def test_columns_of_a_new_table(metastore: InMemoryMetastore, columns: Any) -> None:
    """They are ours, not Arrow's or tuples."""
    with pytest.raises(ConfigurationError, match=r"^columns: .* give ColumnInfo\("):
        create_acid_table(metastore, "default.u", columns)


@pytest.mark.parametrize("given", ["1G", 1.5, True, [1]])
def test_numbers(table: HiveTable, given: Any) -> None:
    """A whole number is one of Python's or numpy's."""
    for wrong in ({"memory_bytes": given}, {"threads": given}):
        with pytest.raises(ConfigurationError, match="must be a whole number"):
            LocalOptions(**wrong)
    with pytest.raises(ConfigurationError, match=r"limit .* must be a whole number"):
        table.scan(limit=given).to_arrow()
    assert table.scan(limit=np.int64(1)).to_arrow().num_rows == 1


@pytest.mark.parametrize(
    "given", [True, 5, ["id"], [("id", "=", 1)], {"id": 1}, pa.array([True]), pl.col("id") > 1]
)
def test_conditions(table: HiveTable, given: Any) -> None:
    """Of scans and of merges."""
    hint = "; for Polars' pl.col write pc.field" if isinstance(given, pl.Expr) else "the name of a column"
    with pytest.raises(RecordLayoutError, match=f"{NAME}: the filter is of type .*{hint}"):
        table.scan(filter=given).to_arrow()
    with pytest.raises(RecordLayoutError, match=f"{NAME}: the condition is of type .*{hint}"):
        table.merge(ROWS, on="id").when_matched_delete(given)


@pytest.mark.parametrize("given", [5, [5], [None], pc.field("id"), ROWS.schema])
def test_names_of_columns(table: HiveTable, given: Any) -> None:
    """Those to read, and keys."""
    with pytest.raises(RecordLayoutError, match=f"(?s){NAME}: columns=.* give names of columns"):
        table.scan(given).to_arrow()
    with pytest.raises(RecordLayoutError, match=f"(?s){NAME}: on=.* give names of columns"):
        table.merge(ROWS, on=given)


WRONG: dict[str, tuple[Callable[[HiveTable], Any], str]] = {
    "no keys": (lambda t: t.merge(ROWS, on=None), "on=None: give names"),  # type: ignore[arg-type]
    "values as a list": (
        lambda t: t.merge(ROWS, on="id").when_matched_update(["x"]),  # type: ignore[arg-type]
        "no values by column",
    ),
    "a text as a value": (
        lambda t: t.merge(ROWS, on="id").when_matched_update({"x": "abc"}),
        "pc.scalar",
    ),
    "Polars' value": (
        lambda t: t.merge(ROWS, on="id").when_matched_update({"x": pl.col("x")}),
        "the value of x: .* is no value of Arrow",
    ),
    "lazy rows": (lambda t: t.append(pl.LazyFrame({"id": [1]})), r"its collect\(\) returns"),
    "delete by a condition": (lambda t: t.delete(pc.field("id") == 1), "scan.row_ids=True, filter="),
}


@pytest.mark.parametrize("name", WRONG)
def test_data_and_values(table: HiveTable, name: str) -> None:
    """The message says what to give instead."""
    call, message = WRONG[name]
    with pytest.raises(MutationError, match=message):
        call(table)


def test_names_of_tables(metastore: InMemoryMetastore) -> None:
    """A transaction takes texts."""
    with connect(metastore) as hive:
        for wrong in (5, ["default.t"], None):
            with pytest.raises(ConfigurationError, match=r"expected .database\.table."):
                hive.transaction(wrong)  # type: ignore[arg-type]


def test_a_scan_is_shown_in_a_line(table: HiveTable) -> None:
    """Not with its hundred thousand partitions."""
    scan = table.scan(["id"], filter=pc.field("id") > 1, limit=5)
    assert repr(scan) == "TableScan(default.t, columns=['id'], filter='(id > 1)', limit=5)"
