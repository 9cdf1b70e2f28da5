"""Arguments of a wrong type are refused with one of our errors, which says what to give."""

from __future__ import annotations

import datetime
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
from mutation_api import connect, create_acid_table, first_by
from mutation_api.errors import (
    ConfigurationError,
    DuplicateKeyError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
)
from mutation_api.hive.hive_table import HiveTable
from mutation_api.write.local_plan import LocalOptions

NAME = "default.t"
ROWS = pa.table({"id": pa.array([1], pa.int32()), "x": [1.5]})


def nested() -> pa.Table:
    """Two rows of one key, with values that no table holds, or no order has."""
    return pa.table(
        {
            "id": pa.array([1, 1], pa.int32()),
            "s": [{"a": 1}, {"a": 2}],
            "i": pa.array([(1, 2, 3), (1, 2, 4)], pa.month_day_nano_interval()),
            "clock": [datetime.time(1), datetime.time(2)],
            "nothing": pa.nulls(2),
        }
    )


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
    with pytest.raises(ConfigurationError, match=r"^columns: .* pass ColumnInfo\("):
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
    hint = (
        "; instead of Polars' pl.col use pc.field" if isinstance(given, pl.Expr) else "the name of a column"
    )
    with pytest.raises(RecordLayoutError, match=f"{NAME}: the filter is of type .*{hint}"):
        table.scan(where=given).to_arrow()
    with pytest.raises(RecordLayoutError, match=f"{NAME}: the condition is of type .*{hint}"):
        table.merge(ROWS, on="id").when_matched_delete(given)


@pytest.mark.parametrize("given", [5, [5], [None], pc.field("id"), ROWS.schema])
def test_names_of_columns(table: HiveTable, given: Any) -> None:
    """Those to read, and keys."""
    with pytest.raises(RecordLayoutError, match=f"(?s){NAME}: columns=.* expected column names"):
        table.scan(given).to_arrow()
    with pytest.raises(RecordLayoutError, match=f"(?s){NAME}: on=.* expected column names"):
        table.merge(ROWS, on=given)


WRONG: dict[str, tuple[Callable[[HiveTable], Any], str]] = {
    "no keys": (lambda t: t.merge(ROWS, on=None), "on=None: expected column names"),  # type: ignore[arg-type]
    "values as a list": (
        lambda t: t.merge(ROWS, on="id").when_matched_update(["x"]),  # type: ignore[arg-type]
        "expected values by column",
    ),
    "a text as a value": (
        lambda t: t.merge(ROWS, on="id").when_matched_update({"x": "abc"}),
        "A constant string is pc.scalar",
    ),
    "Polars' value": (
        lambda t: t.merge(ROWS, on="id").when_matched_update({"x": pl.col("x")}),
        "the value of x: .* cannot be converted to Arrow",
    ),
    "two values of a column": (
        lambda t: t.merge(ROWS, on="id").when_matched_update({"x": 1.0, "X": 2.0}),
        "a column has two values .case is ignored.: x, X",
    ),
    "a number as a column": (
        lambda t: t.merge(ROWS, on="id").when_matched_update({1: 2.0}),
        "expected column names",
    ),
    "a value that Arrow cannot hold": (
        lambda t: t.merge(ROWS, on="id").when_matched_update({"x": 2**70}),
        "the value of x: .* cannot be converted to Arrow",
    ),
    "a flag as text": (
        lambda t: t.merge(ROWS, on="id", null_safe="no"),
        "null_safe must be True or False, got 'no'",
    ),
    "counted by a number": (lambda t: t.merge(ROWS, on="id", count_by=3), "count_by must be the name"),
    "counted by structs": (
        lambda t: t.merge(nested(), on="id", count_by="s").when_matched_delete().execute(),
        "count_by='s': rows cannot be counted by struct",
    ),
    "ordered by a number": (
        lambda t: t.merge(ROWS, on="id", on_duplicate=first_by(3)).when_matched_delete().execute(),
        "first_by 3: expected a column of the source",
    ),
    "ordered by an expression": (
        lambda t: (
            t.merge(ROWS, on="id", on_duplicate=first_by(pc.field("x"))).when_matched_delete().execute()
        ),
        "first_by .*Expression x>: expected a column of the source",
    ),
    "ordered by intervals": (
        lambda t: t.merge(nested(), on="id", on_duplicate=first_by("i")).when_matched_delete().execute(),
        "first_by 'i': month_day_nano_interval values cannot be sorted",
    ),
    "lazy rows": (lambda t: t.append(pl.LazyFrame({"id": [1]})), r"its collect\(\) returns"),
    "delete by a condition": (lambda t: t.delete(pc.field("id") == 1), "scan.row_ids=True, where="),
}


@pytest.mark.thorough(1)
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
    scan = table.scan(["id"], where=pc.field("id") > 1, limit=5)
    assert repr(scan) == "TableScan(default.t, columns=['id'], where='(id > 1)', limit=5)"


def test_orders_and_texts_of_other_columns(table: HiveTable) -> None:
    """A source may have columns that no table holds; they order rows, and stand in messages."""
    for column in ("clock", "nothing"):
        merge = table.merge(nested(), on="id", on_duplicate=first_by(column))
        assert merge.when_matched_delete().dry_run().total.deleted == 1
    with pytest.raises(DuplicateKeyError, match='"clock":"01:00:00"'):
        table.merge(nested(), on="id").when_matched_update({"x": 1.0}).dry_run()


def test_a_condition_without_a_value_for_a_partition(tmp_path: Path) -> None:
    """It is evaluated for rows, of which that partition need not have any; partitions only save reading."""
    metastore = InMemoryMetastore(warehouse=tmp_path)
    columns, keys = [ColumnInfo("id", "bigint")], [ColumnInfo("p", "int")]
    create_acid_table(metastore, NAME, columns, partitioned_by=keys, clustered_by="id", num_buckets=2)
    rows = pa.table({"id": [1, 2], "p": pa.array([0, 2], pa.int32())})
    is_one = pc.divide(pc.scalar(2), pc.field("target", "p")) == 1
    with connect(metastore) as hive:
        with hive.transaction(NAME, create_partitions=True) as tx:
            tx.table(NAME).append(rows)
        with hive.transaction(NAME) as tx:
            merge = tx.table(NAME).merge(rows.slice(0, 1), on="id")
            assert merge.when_not_matched_by_source_delete(is_one).execute().total.deleted == 1
        with (
            pytest.raises(RecordValueError, match="cannot be evaluated for a row"),
            hive.transaction(NAME) as tx,
        ):
            tx.table(NAME).merge(rows.slice(1), on="id").when_not_matched_by_source_delete(is_one).execute()


def test_unions_in_messages(tmp_path: Path) -> None:
    """Rows of a union are shown, too."""
    metastore = InMemoryMetastore(warehouse=tmp_path)
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("u", "uniontype<int,string>")]
    create_acid_table(metastore, NAME, columns, clustered_by="id", num_buckets=2)
    kinds = pa.array([0, 1], pa.int8())
    union = pa.UnionArray.from_sparse(kinds, [pa.array([1, 2], pa.int32()), pa.array(["a", "b"])])
    with connect(metastore) as hive:
        tx = hive.transaction(NAME).begin()
        merge = tx.table(NAME).merge(pa.table({"id": [1, 1], "u": union}), on="id")
        with pytest.raises(DuplicateKeyError, match=r'"u":\[0,1\]'):
            merge.when_not_matched_insert_all().execute()
        tx.abort()
