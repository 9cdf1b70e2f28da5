"""The matrix of values as places of rows: partition columns and bucket columns.

A value says where its row lies, so a wrong one is a row that is not found again: every row is looked for by
its value, updated, and merged by it.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import MutationError, RecordLayoutError, TableNotMutableError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.merge.clauses import first_by
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.upkeep.verify.verify import verify_table
from tests.support.value_matrix import ROWS, Cell, partition_promise, random_cell, text_form

NAME = "default.places"
CELLS = 15
MANY_CELLS = 400
LINES = (HIVE_2_3, HIVE_3_1, HIVE_4_1)
PLACES = ("partition", "bucket")
IDS = pa.array(range(ROWS), pa.int64())


@contextmanager
def made(directory: Path, line: Any, hive_type: str, place: str) -> Iterator[Hive]:
    """A table whose column v is its partition column or its bucket column."""
    directory.mkdir()
    metastore = InMemoryMetastore(directory, capabilities=line)
    ids, value = ColumnInfo("id", "bigint"), ColumnInfo("v", hive_type)
    word = ColumnInfo("word", "string")
    if place == "partition":
        create_acid_table(
            metastore, NAME, [ids, word], partitioned_by=[value], clustered_by=["id"], num_buckets=2
        )
    else:
        create_acid_table(metastore, NAME, [ids, word, value], clustered_by=["v"], num_buckets=7)
    with connect(metastore, time_zone="UTC") as hive:
        yield hive


def can_place(cell: Cell, line: Any, place: str) -> bool:
    """Whether such a column can be there."""
    if place == "partition":
        return "binary" not in cell.hive_type and "<" not in cell.hive_type
    inner = cell.hive_type.partition("<")[2]
    is_old = line is HIVE_2_3 or (inner and cell.hive_type.startswith("map"))  # map's values keep version 1
    return "binary" not in cell.hive_type or bool(is_old)


def rows_of(hive: Hive, condition: pc.Expression | None = None) -> pa.Table:
    with hive.snapshot(NAME) as view:
        return view.table(NAME).scan(where=condition).to_arrow().sort_by("id")


def values_of(rows: pa.Table) -> list[Any]:
    return [comparable(value) for value in rows["v"].to_pylist()]


def comparable(value: Any) -> Any:
    """As `promised` has it: timestamps as texts."""
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if isinstance(value, tuple):
        return tuple(comparable(each) for each in value)
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, datetime.datetime):
        text = value.isoformat()
        return text.rstrip("0") if "." in text else text
    return value


def check_found(hive: Hive, given: pa.Table, values: list[Any]) -> None:
    """Each row is found by its value, can be updated, and is merged by it, as given or as read."""
    rows = rows_of(hive)
    assert text_form(values_of(rows)) == text_form(values)
    is_nested = pa.types.is_nested(rows.schema.field("v").type)
    for at, value in [] if is_nested else enumerate(values):
        column = pc.field("v")
        condition = column.is_null() if value is None else column == pc.scalar(rows["v"][at])
        same = [place for place, other in enumerate(values) if value == other]
        assert rows_of(hive, condition)["id"].to_pylist() == same, f"filter by {value!r}"
    with hive.transaction(NAME) as transaction:
        table = transaction.table(NAME)
        table.update(with_word(table.scan(row_ids=True).to_arrow(), "new"))
    if is_nested:
        with pytest.raises(RecordLayoutError, match="cannot be a key"):
            merge_by_value(hive, rows)
        return
    assert merge_by_value(hive, with_word(rows, "read")) == (0, ROWS)
    try:
        assert merge_by_value(hive, with_word(given, "given")) == (0, ROWS)
        word = "given"
    except MutationError:  # keys that are stored as others
        word = "read"
    after = rows_of(hive)
    assert after["word"].to_pylist() == [word] * ROWS
    assert text_form(values_of(after)) == text_form(values)
    assert not verify_table(hive.metastore, NAME).damages


def with_word(rows: pa.Table, word: str) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index("word"), "word", pa.array([word] * len(rows)))


def merge_by_value(hive: Hive, rows: pa.Table) -> tuple[int, int]:
    """Rows inserted and updated."""
    with hive.transaction(NAME) as transaction:
        merge = transaction.table(NAME).merge(rows, on=["v"], null_safe=True, on_duplicate=first_by("id"))
        merge.when_matched_update({"word": pc.field("source", "word")}).when_not_matched_insert_all()
        total = merge.execute().total
        return total.inserted, total.updated


def check(directory: Path, seed: int, place: str) -> None:
    """One random cell."""
    rng = random.Random(seed)
    cell, line = random_cell(rng, nests=place == "bucket"), rng.choice(LINES)
    promised = cell.promised() if can_place(cell, line, place) else None
    if place == "partition" and promised is not None:
        promised = partition_promise(promised, cell.hive_type)
    given = pa.table({"id": IDS, "word": ["old"] * ROWS, "v": cell.values})
    try:
        with made(directory / str(seed), line, cell.hive_type, place) as hive:
            try:
                with hive.transaction(NAME, create_partitions=True) as transaction:
                    transaction.table(NAME).append(given)
            except MutationError as error:
                assert promised is None, f"is refused: {error}"
                return
            assert promised is not None, "is stored"
            check_found(hive, given, promised)
    except TableNotMutableError as error:
        if can_place(cell, line, place):
            raise AssertionError(f"seed {seed}: {cell}: {error!r}") from error
    except Exception as error:
        raise AssertionError(f"seed {seed}: {place} of {line}: {cell}: {error!r}") from error


@pytest.mark.thorough
@pytest.mark.parametrize("place", PLACES)
def test_random_places(tmp_path: Path, place: str) -> None:
    """A few cells."""
    for seed in range(CELLS):
        check(tmp_path, seed, place)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("place", PLACES)
def test_many_random_places(tmp_path: Path, place: str, part: int) -> None:
    """The same of others."""
    for seed in range(part * MANY_CELLS // 4, (part + 1) * MANY_CELLS // 4):
        check(tmp_path, 1_000 + seed, place)
