"""Lists of columns and types, as options and statements write them."""

from __future__ import annotations

import pytest

from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.table.acid_table import AcidColumn
from mutation_api.table.row_type import parse_columns, parse_types


def test_types_are_split_outside_brackets_only() -> None:
    """Commas inside <> and () belong to a type."""
    text = "int,decimal(10,2),map<int,struct<a:int,b:char(3)>>,string"
    assert [each.text for each in parse_types(text)] == [
        "int",
        "decimal(10,2)",
        "map<int,struct<a:int,b:char(3)>>",
        "string",
    ]
    for wrong in ("", "int,", "foo"):
        with pytest.raises(TableNotMutableError, match=r"is not a Hive type|a type name is missing"):
            parse_types(wrong)


def test_columns_have_a_name_and_a_type() -> None:
    """Names become lower case, and may be quoted; a column that has neither is refused."""
    found = parse_columns("ID bigint, `We ird` map<string, int>,m:decimal(5, 2)")
    assert found == (
        AcidColumn("id", "bigint"),
        AcidColumn("we ird", "map<string,int>"),
        AcidColumn("m", "decimal(5,2)"),
    )
    for wrong in ("", "id", "id bigint, ID int", "id bigintt"):
        with pytest.raises(ConfigurationError, match="schema"):
            parse_columns(wrong)
