"""A char is read without the blanks at its end; a text with them is refused where it would find nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.upkeep.create_acid_table import create_acid_table

NAME = "default.t"
C, S, P = pc.field("c"), pc.field("s"), pc.field("p")
ROWS = pa.table(
    {"id": [1, 2], "c": ["a", "b"], "s": ["a ", "b"], "n": [{"c": "x", "v": "y "}] * 2, "p": ["1", "2"]}
)


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    """A table with a char column, a char in a struct and one of the partitions."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    types = {"id": "bigint", "c": "char(4)", "s": "string", "n": "struct<c:char(3),v:varchar(3)>"}
    columns, keys = [ColumnInfo(name, text) for name, text in types.items()], [ColumnInfo("p", "char(3)")]
    create_acid_table(metastore, NAME, columns, partitioned_by=keys, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as connected:
        with connected.transaction(NAME, create_partitions=True) as transaction:
            transaction.table(NAME).append(ROWS)
        yield connected


REFUSED = {
    "equal": (C == "a ", "c, a char, with 'a '.* Write 'a'"),
    "on the left": (pc.equal(pc.scalar("a "), C), "c, a char"),
    "an order": (C < "a   ", "c, a char, with 'a   '.* Write 'a'"),
    "a set": (C.isin(["b", "a "]), "c, a char, with 'a '"),
    "a typed set": (C.isin(pa.array(["a "], pa.large_string())), "c, a char"),
    "not": (~(P == "1  "), "p, a char, with '1  '"),
    "a struct's field": (pc.field("n", "c") == "x ", r"n\.c, a char, with 'x '"),
    "within a function": (pc.utf8_upper(C) == "A ", "c, a char, with 'A '"),
    "within a cast": (C.cast(pa.large_string()) == pa.scalar("a ", pa.large_string()), "c, a char"),
    "beside others": ((S == "a ") & ((C == "b") | (C == " ")), "c, a char, with ' '.* Write ''"),
}
FOUND = {
    "without blanks": (C == "a", [1]),
    "blanks in front": (C == " a", []),
    "another column": ((S == "a ") & (C == "a"), [1]),
    "a varchar in a struct": (pc.field("n", "v") == "y ", [1, 2]),
    "two columns": (C == S, [2]),
    "a set with NULL": (C.isin(pa.array([None, "a"])), [1]),
    "very many": (
        reduce(or_, [pc.equal(C, pc.scalar(str(number))) for number in range(3000)], C == "a"),
        [1],
    ),
    "a text that is made of it": (pc.binary_join_element_wise(C, "", "  ") == "a  ", [1]),
}


@pytest.mark.thorough(1)
@pytest.mark.parametrize("name", REFUSED)
def test_a_padded_text_is_refused(hive: Hive, name: str) -> None:
    """By a filter; by a condition of a merge see below."""
    given, message = REFUSED[name]
    with hive.snapshot(NAME) as view, pytest.raises(RecordLayoutError, match=message):
        view.table(NAME).scan(["id"], where=given).to_arrow()


@pytest.mark.thorough(1)
@pytest.mark.parametrize("name", FOUND)
def test_other_texts_are_compared(hive: Hive, name: str) -> None:
    """Whatever blanks they have."""
    given, ids = FOUND[name]
    with hive.snapshot(NAME) as view:
        assert view.table(NAME).scan(["id"], where=given).to_arrow()["id"].to_pylist() == ids


def test_conditions_of_a_merge(hive: Hive) -> None:
    """The table's columns count; the source has texts as they are."""
    padded = ROWS.set_column(1, "c", pa.array(["a   ", "b"]))
    with hive.transaction(NAME) as transaction:
        table = transaction.table(NAME)
        merge = table.merge(padded, on="id").when_matched_delete(pc.field("target", "c") == "a   ")
        with pytest.raises(RecordLayoutError, match=r"compares target\.c, a char, with 'a   '"):
            merge.execute()
        merge = table.merge(padded, on="id").when_matched_delete(pc.field("source", "c") == "a   ")
        assert merge.execute().total.deleted == 1


def test_keys(hive: Hive) -> None:
    """No row would match: none were updated, and each of the table's would be missing in the source."""
    padded = ROWS.set_column(1, "c", pa.array(["a   ", None]))
    with hive.transaction(NAME) as transaction:
        table = transaction.table(NAME)
        for begun in (
            table.merge(padded, on="c").when_matched_update({"s": "s"}),
            table.merge(padded, on=["id", "c"]).when_matched_delete(),
            table.merge(padded, on="c").when_not_matched_by_source_delete(),
            table.merge(padded, on="c", null_safe=True).when_not_matched_insert_all(),
        ):
            with pytest.raises(
                RecordValueError, match=r"key column 'c' is of type char.* the source key 'a   '"
            ):
                begun.dry_run()
        merge = table.merge(padded, on="id").when_matched_update_all()
        assert merge.execute().total.unchanged == 1  # as the column stores it; the other loses its value
