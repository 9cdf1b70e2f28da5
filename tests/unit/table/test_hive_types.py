"""Hive types in the spelling of Arrow, Spark and ORC, and texts that are not types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mutation_api.errors import TableNotMutableError
from mutation_api.format.hive_type import arrow_type, parse_hive_type, spark_type
from mutation_api.table.acid_table import AcidColumn
from mutation_api.table.row_type import row_type


@pytest.mark.parametrize(
    ("text", "arrow", "spark"),
    [
        ("boolean", pa.bool_(), "boolean"),
        ("tinyint", pa.int8(), "tinyint"),
        ("smallint", pa.int16(), "smallint"),
        ("int", pa.int32(), "int"),
        ("bigint", pa.int64(), "bigint"),
        ("float", pa.float32(), "float"),
        ("double", pa.float64(), "double"),
        ("string", pa.string(), "string"),
        ("varchar(20)", pa.string(), "string"),
        ("char(3)", pa.string(), "string"),
        ("binary", pa.binary(), "binary"),
        ("date", pa.date32(), "date"),
        ("timestamp", pa.timestamp("ns"), "timestamp_ntz"),
        ("decimal(38,18)", pa.decimal128(38, 18), "decimal(38,18)"),
        ("array<char(2)>", pa.list_(pa.string()), "array<string>"),
        ("map<int,date>", pa.map_(pa.int32(), pa.date32()), "map<int,date>"),
        (
            "struct<a:int,order:array<timestamp>>",
            pa.struct([("a", pa.int32()), ("order", pa.list_(pa.timestamp("ns")))]),
            "struct<`a`:int,`order`:array<timestamp_ntz>>",
        ),
    ],
)
def test_each_type_in_three_spellings(text: str, arrow: pa.DataType, spark: str) -> None:
    """One Hive type, one Arrow type, one Spark type."""
    parsed = parse_hive_type(text)
    assert (parsed.text, arrow_type(parsed), spark_type(parsed)) == (text, arrow, spark)


def test_unions_are_dense_and_unknown_to_spark() -> None:
    """Spark has no union; a table with one can still be written without Spark."""
    parsed = parse_hive_type("array<uniontype<int,string>>")
    assert arrow_type(parsed.children[0]).mode == "dense"
    with pytest.raises(TableNotMutableError, match="no union"):
        spark_type(parsed)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("INT", "int"),
        ("integer", "int"),
        (" double  precision ", "double"),
        ("decimal", "decimal(10,0)"),
        ("Decimal( 5 )", "decimal(5,0)"),
        ("numeric(5, 2)", "decimal(5,2)"),
        ("map< string , array <int> >", "map<string,array<int>>"),
        ("struct<`a b`: int, C:string>", "struct<a b:int,C:string>"),
    ],
)
def test_spellings_of_users(text: str, meant: str) -> None:
    """Case, blanks and aliases do not matter; field names stay as they are."""
    assert parse_hive_type(text).text == meant


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "missing"),
        ("foo", "'foo' is not a Hive type"),
        ("int)", "unexpected characters"),
        ("int int", "not a Hive type"),
        ("array<int", "'>' is missing"),
        ("array<int,int>", "requires 1 type"),
        ("map<int>", "requires 2 type"),
        ("array", "'<' is missing"),
        ("struct<int>", "field name"),
        ("struct<a:int,A:int>", "duplicate field names"),
        ("char", "length from 1 to 255"),
        ("char(256)", "length from 1 to 255"),
        ("varchar(65536)", "length from 1 to 65535"),
        ("varchar(0)", "length from 1"),
        ("varchar(3,1)", "length from 1"),
        ("decimal(39,0)", "precision from 1 to 38"),
        ("decimal(5,6)", "no larger scale"),
        ("timestamp with local time zone", "not supported"),
        ("interval_day_time", "not supported"),
        ("void", "not supported"),
    ],
)
def test_what_is_no_type_is_refused_with_the_reason(text: str, reason: str) -> None:
    """The message quotes the text and says what is wrong with it."""
    with pytest.raises(TableNotMutableError, match=reason) as caught:
        parse_hive_type(text)
    assert repr(text) in str(caught.value)


def test_the_row_type_names_a_bad_column() -> None:
    """Columns keep their order; the error names the column of a type that is not supported."""
    columns = [AcidColumn("id", "int"), AcidColumn("name", "varchar(9)")]
    assert row_type(columns) == pa.struct([("id", pa.int32()), ("name", pa.string())])
    with pytest.raises(TableNotMutableError, match=r"'gone'.*not supported"):
        row_type([*columns, AcidColumn("gone", "void")])
