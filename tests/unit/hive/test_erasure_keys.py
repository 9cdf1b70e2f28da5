"""The keys of an erasure: types, and keys that no column can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.errors import ConfigurationError, DataError, RecordLayoutError, RecordValueError
from mutation_api.format.layout import AcidVersion
from mutation_api.hive.erasure_keys import ErasedKeys, keys_by_table, sought_keys
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable


def found(kind: str, *keys: Any) -> list[Any]:
    location = Location.given(Path("/t"))
    table = AcidTable("shop", "t", location, (AcidColumn("k", kind),), (), 0, (), AcidVersion.V2_HIVE4)
    sought = sought_keys(table, "K", ErasedKeys.of("", pa.array(list(keys))))
    return list(sought.keys.keys.column(0).to_pylist())


def test_keys_are_sorted_values_of_the_column() -> None:
    """Strings are parsed as the cells of a file; other values are converted exactly."""
    assert found("int", "12", "7.0", "+3") == [3, 7, 12]
    assert found("int", 12, 7) == [7, 12]
    assert [str(each) for each in found("decimal(10,2)", "1.5", "12")] == ["1.50", "12.00"]
    assert found("string", "b", "a", "") == ["", "a", "b"]
    assert found("char(3)", "ab") == ["ab"]
    assert [str(each) for each in found("date", "2024-02-29")] == ["2024-02-29"]


@pytest.mark.parametrize(
    ("kind", "key", "said"),
    [
        ("tinyint", "300", "300"),
        ("tinyint", 300, "300"),
        ("int", "x12", "x12"),
        ("int", "1.5", "1.5"),
        ("decimal(10,2)", "1.555", "1.555"),
        ("decimal(4,2)", "123.4", "123.4"),
        ("varchar(2)", "abc", "at most 2 characters"),
        ("char(3)", "ab ", "no blanks"),
        ("date", "2024-02-30", "2024-02-30"),
        ("string", 7, "cannot be compared"),
        ("double", 7.0, "keys can be"),
        ("timestamp", "2024-01-01 00:00:00", "keys can be"),
        ("array<int>", "1", "keys can be"),
    ],
)
def test_keys_that_the_column_cannot_hold(kind: str, key: Any, said: str) -> None:
    """They are refused by name, since they would be found nowhere."""
    with pytest.raises(DataError, match=said):
        found(kind, key)


def test_which_column_of_the_rows() -> None:
    """The one of the same name, the only one, or the one that is named."""
    rows = pa.table({"ID": [1, 2, 2], "mail": ["a", "b", "c"]})
    keys = keys_by_table(rows, {"s.a": "id", "s.b": ("email", "MAIL")})
    assert (keys["s.a"].texts, keys["s.b"].texts) == (("1", "2"), ("a", "b", "c"))
    assert keys_by_table(rows.select(["mail"]), {"s.a": "id"})["s.a"].column == "mail"
    assert keys_by_table([3], {"s.a": "id"})["s.a"].texts == ("3",)
    with pytest.raises(ConfigurationError, match=r"no column 'who'; they have ID, mail"):
        keys_by_table(rows, {"s.a": "who"})


def test_no_keys_and_null() -> None:
    """Neither is a reason to report that something is erased."""
    with pytest.raises(ConfigurationError, match="there are none"):
        keys_by_table([], {"s.a": "id"})
    with pytest.raises(RecordValueError, match=r"column 'id', row 1 is NULL"):
        keys_by_table(pa.table({"id": [1, None]}), {"s.a": "id"})
    with pytest.raises(RecordLayoutError, match="one type"):
        keys_by_table([1, "x"], {"s.a": "id"})


def test_the_hash_of_all_keys_does_not_depend_on_their_order() -> None:
    """So a file that was sorted meanwhile continues the same erasure."""
    one, other = (ErasedKeys.of("", pa.array(keys)) for keys in (["a", "b"], ["b", "a"]))
    assert one.digest(b"s") == other.digest(b"s") != one.digest(b"t")
