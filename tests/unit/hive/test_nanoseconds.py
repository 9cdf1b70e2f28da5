"""Timestamps with digits below microseconds stay as they are, whatever rewrites their rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_table import HiveTable
from mutation_api.merge.local_merge import LocalMerge
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.upkeep.create_acid_table import create_acid_table

NAME = "default.clocks"
NS, US = pa.timestamp("ns"), pa.timestamp("us")
FINE = 1_700_000_000_123_456_789
"""2023-11-14 22:13:20.123456789, in nanoseconds."""
FAR = 253_402_300_799_000_000
"""9999-12-31 23:59:59, in microseconds."""


@pytest.fixture(params=["2.3", "4.1"])
def hive(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hive]:
    """A table with two rows that have all nine digits."""
    metastore = InMemoryMetastore(tmp_path, capabilities={"2.3": HIVE_2_3, "4.1": HIVE_4_1}[request.param])
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("at", "timestamp"), ColumnInfo("word", "string")]
    columns += [ColumnInfo("ends", "timestamp"), ColumnInfo("all", "array<struct<x:timestamp,y:string>>")]
    create_acid_table(metastore, NAME, columns, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as opened:
        change(opened, lambda table: table.append(rows([1, 2], [FINE, FINE + 1])))
        yield opened


def rows(ids: list[int], values: list[Any], unit: pa.DataType = NS, word: str = "a") -> pa.Table:
    """Rows whose other timestamps are one of the year 9999, and fine ones in structs of lists."""
    inner = pa.array([{"x": FINE, "y": "t"}] * len(ids), pa.struct([("x", NS), ("y", pa.string())]))
    return pa.table(
        {
            "id": ids,
            "at": pa.array(values, unit),
            "word": [word] * len(ids),
            "ends": pa.array([FAR] * len(ids), US),
            "all": pa.ListArray.from_arrays(pa.array(range(len(ids) + 1), pa.int32()), inner),
        }
    )


def words(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "word": ["new"] * len(ids)})


def change(hive: Hive, *calls: Callable[[HiveTable], object]) -> None:
    with hive.transaction(NAME) as transaction:
        for call in calls:
            call(transaction.table(NAME))


def found(hive: Hive) -> dict[int, str]:
    """Digits behind the second, by id."""
    with hive.snapshot(NAME) as view:
        read = view.table(NAME).scan(timestamps=TimestampForm.TEXT).to_arrow()
        others = {(row["ends"], row["all"][0]["x"]) for row in read.to_pylist()}
        assert others == {("9999-12-31T23:59:59", "2023-11-14T22:13:20.123456789")}
        texts = dict(zip(read["id"].to_pylist(), read["at"].to_pylist(), strict=True))
        return {number: text.partition(".")[2] for number, text in texts.items()}


UPDATE_WORD = {"word": pc.field("source", "word")}
SINCE_2000 = pc.field("target", "at") > pa.scalar(datetime.datetime(2000, 1, 1), US)
MERGES: dict[str, tuple[pa.Table, Callable[[LocalMerge], LocalMerge], dict[int, str]]] = {
    "another column": (
        words([1]),
        lambda m: m.when_matched_update(UPDATE_WORD),
        {1: "123456789", 2: "12345679"},
    ),
    "coarse values": (
        rows([1, 3], [5, 6], US),
        lambda m: m.when_matched_update_all().when_not_matched_insert_all(),
        {1: "000005", 2: "12345679", 3: "000006"},
    ),
    "fine values": (
        rows([1, 3], [FINE + 5, FINE + 6]),
        lambda m: m.when_matched_update_all().when_not_matched_insert_all(),
        {1: "123456794", 2: "12345679", 3: "123456795"},
    ),
    "the same values": (
        rows([1], [FINE]),
        lambda m: m.when_matched_update_all(),
        {1: "123456789", 2: "12345679"},
    ),
    "a condition": (
        rows([1], [7], US),
        lambda m: m.when_matched_update_all(SINCE_2000),
        {1: "000007", 2: "12345679"},
    ),
    "rows that the source lacks": (
        words([9]),
        lambda m: m.when_not_matched_by_source_update({"word": pc.scalar("gone")}),
        {1: "123456789", 2: "12345679"},
    ),
    "a value of the table": (
        words([1]),
        lambda m: m.when_matched_update({"at": pc.field("target", "at")}).when_not_matched_insert_all(),
        {1: "123456789", 2: "12345679"},
    ),
}


@pytest.mark.thorough(1)
@pytest.mark.parametrize("name", MERGES)
def test_a_merge_keeps_them(hive: Hive, name: str) -> None:
    """Whether the clause assigns the column, compares it or leaves it alone; a dry run counts the same."""
    source, clauses, expected = MERGES[name]
    with hive.transaction(NAME) as transaction:
        table = transaction.table(NAME)
        trial = clauses(table.merge(source, on=["id"])).dry_run().total
        assert clauses(table.merge(source, on=["id"])).execute().total == trial
        assert trial.unchanged == (1 if name in ("the same values", "a value of the table") else 0)
    assert found(hive) == expected


def test_updates_of_rows_that_were_read(hive: Hive) -> None:
    """As Arrow and as pandas. A scan has one form, so no other column may have another year."""
    name = "default.plain"
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("at", "timestamp"), ColumnInfo("word", "string")]
    create_acid_table(hive.metastore, name, columns, clustered_by=["id"], num_buckets=2)
    with hive.transaction(name) as transaction:
        transaction.table(name).append(rows([1, 2], [FINE, FINE + 1]).select(["id", "at", "word"]))
    with hive.transaction(name) as transaction:
        table = transaction.table(name)
        first, second = (
            table.scan(row_ids=True, timestamps=TimestampForm.NANOSECONDS, where=pc.field("id") == number)
            for number in (1, 2)
        )
        table.update(first.to_pandas().assign(word="read"))
        table.update(second.to_arrow())
    with hive.snapshot(name) as view:
        read = view.table(name).scan(timestamps=TimestampForm.NANOSECONDS).to_arrow().sort_by("id")
        assert read["at"].cast(pa.int64()).to_pylist() == [FINE, FINE + 1]
        assert read["word"].to_pylist() == ["read", "a"]


@pytest.mark.thorough(1)
def test_parts_of_two_units(hive: Hive) -> None:
    """In one transaction, in any order, also nanoseconds that are none beside another year."""
    change(
        hive,
        lambda table: table.merge(words([1]), on=["id"]).when_matched_update(UPDATE_WORD).execute(),
        lambda table: table.append(rows([3], [5], US)),
        lambda table: table.append(rows([4], [FINE])),
    )
    assert found(hive) == {1: "123456789", 2: "12345679", 3: "000005", 4: "123456789"}
    change(
        hive,
        lambda table: table.append(rows([5], [FINE - 789])),
        lambda table: table.append(rows([6], [FAR], US)),
    )
    assert found(hive) == {**found(hive), 5: "123456", 6: ""}


@pytest.mark.thorough(1)
def test_what_no_unit_holds_is_refused(hive: Hive) -> None:
    """All digits beside another year, in one change set; each alone is merged."""
    with pytest.raises(RecordValueError, match=r"clocks: column 'at'.*in a separate transaction"):
        change(
            hive,
            lambda table: table.append(rows([3], [FINE])),
            lambda table: table.append(rows([4], [FAR], US)),
        )
    change(hive, lambda table: table.append(rows([4], [FAR], US)))
    for number in (1, 4):
        merged = words([number])
        change(
            hive,
            lambda table, source=merged: (
                table.merge(source, on=["id"]).when_matched_update(UPDATE_WORD).execute()
            ),
        )
    assert found(hive) == {1: "123456789", 2: "12345679", 4: ""}


def test_the_form_is_one_of_three(hive: Hive) -> None:
    """Anything else is refused at once."""
    with (
        hive.snapshot(NAME) as view,
        pytest.raises(ConfigurationError, match="expected one of TimestampForm"),
    ):
        view.table(NAME).scan(timestamps="ns")  # type: ignore[arg-type]


def test_keys_are_compared_in_microseconds(hive: Hive) -> None:
    """A finer key, and finer values of the table, are refused: a row would not be found."""
    for values, unit in (([FINE], NS), ([5], US)):
        source = pa.table({"at": pa.array(values, unit), "word": ["new"]})
        with pytest.raises(
            RecordValueError, match=r"clocks: .*microseconds.* [Uu]se other keys|by other keys"
        ):
            change(
                hive,
                lambda table, source=source: (
                    table.merge(source, on=["at"]).when_matched_update(UPDATE_WORD).execute()
                ),
            )
