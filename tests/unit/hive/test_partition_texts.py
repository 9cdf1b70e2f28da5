"""Texts in a partition column that Hive keeps as NULL: no key of a merge becomes another one in silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import RecordValueError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.merge.local_diff import local_diff
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep.create_acid_table import create_acid_table

NAME = "default.t"
NULL_NAME = "__HIVE_DEFAULT_PARTITION__"


@pytest.fixture(params=["string", "varchar(40)"])
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hive]:
    """A table partitioned by the text p."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    columns, keys = [ColumnInfo("id", "bigint")], [ColumnInfo("p", request.param)]
    create_acid_table(metastore, NAME, columns, partitioned_by=keys, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as connected:
        yield connected


def rows_of(*texts: str | None) -> pa.Table:
    return pa.table({"id": range(len(texts)), "p": pa.array(texts, pa.string())})


def merge(hive: Hive, rows: pa.Table, on: list[str]) -> Any:
    with hive.transaction(NAME, create_partitions=True) as transaction:
        begun = transaction.table(NAME).merge(rows, on=on, null_safe=True)
        return begun.when_matched_update_all().when_not_matched_insert_all().execute().total


def stored(hive: Hive) -> list[str | None]:
    with hive.snapshot(NAME) as view:
        values: list[str | None] = view.table(NAME).scan().to_arrow().sort_by("id")["p"].to_pylist()
        return values


def test_an_empty_text_becomes_null(hive: Hive) -> None:
    """As in Hive's own INSERT; once more it is the value that is there, so the row is not moved."""
    rows = rows_of("a", "", None)
    assert merge(hive, rows, ["id"]).inserted == 3
    assert stored(hive) == ["a", None, None]
    again = merge(hive, rows, ["id"])
    assert (again.unchanged, again.moved) == (3, 0)


def test_an_empty_text_as_key_is_refused(hive: Hive) -> None:
    """It would be inserted again by every merge."""
    merge(hive, rows_of("a"), ["p"])
    with pytest.raises(
        RecordValueError, match=r"keys to insert would be stored as different keys.*p='' as None"
    ):
        merge(hive, rows_of("a", ""), ["p"])
    assert stored(hive) == ["a"]


def test_the_name_of_null_is_no_value(hive: Hive) -> None:
    """It would be read as NULL."""
    for on in ("id", "p"):
        with pytest.raises(RecordValueError, match=rf"{NULL_NAME}' is the server's name for NULL"):
            merge(hive, rows_of("a", NULL_NAME), [on])
    with (
        pytest.raises(RecordValueError, match=rf"default\.t.*{NULL_NAME}' is the server's name for NULL"),
        hive.transaction(NAME, create_partitions=True) as transaction,
    ):
        transaction.table(NAME).append(rows_of(NULL_NAME))
    assert stored(hive) == []


def test_a_difference_of_states_knows_it(hive: Hive) -> None:
    """The state that has '' does not differ from the table that has NULL."""
    merge(hive, rows_of("a", ""), ["id"])
    with (
        MutatorClientBuilder().metastore(hive.metastore).add_source_table(NAME).build() as client,
        client.open_snapshot(NAME) as view,
        hive.snapshot(NAME) as snapshot,
    ):
        old = snapshot.table(NAME).scan(row_ids=True)
        new = rows_of("a", "").to_reader()
        changes = local_diff(view.table(NAME), old.to_arrow_batch_reader(), new, ["id"])
    assert changes.num_rows == 0
