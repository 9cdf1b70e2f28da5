"""Partition texts as Hive's SQL writes them, and what is refused."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from metastore_client.partition_name import DEFAULT_PARTITION_NAME
from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.layout import AcidVersion
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import (
    canonical_partition_name,
    parse_partition_name,
    partition_name,
    partition_names,
    partition_texts,
)
from mutation_api.table.partition_value import partition_value

TABLE = AcidTable(
    database="db",
    name="t",
    location="/warehouse/t",
    columns=(AcidColumn("id", "int"),),
    partition_keys=(AcidColumn("ds", "string"), AcidColumn("hr", "int")),
    num_buckets=2,
    bucket_columns=("id",),
    version=AcidVersion.V1_LEGACY,
    partition_spellings={"ds=a%2Fb/hr=1": "ds=a%2Fb/hr=01"},
)


@pytest.mark.parametrize(
    ("hive_type", "value", "text"),
    [
        ("int", 7, "7"),
        ("bigint", -(2**63), "-9223372036854775808"),
        ("boolean", True, "true"),
        ("date", datetime.date(2020, 1, 2), "2020-01-02"),
        ("date", datetime.date(1, 1, 1), "0001-01-01"),
        ("timestamp", datetime.datetime(2020, 1, 10), "2020-01-10 00:00:00"),
        ("timestamp", datetime.datetime(2020, 1, 2, 3, 4, 5, 120000), "2020-01-02 03:04:05.12"),
        ("decimal(10,2)", Decimal("1.50"), "1.5"),
        ("decimal(10,2)", Decimal("100.00"), "100"),
        ("decimal(10,2)", Decimal("-0.00"), "0"),
        ("decimal(38,38)", Decimal("1E-38"), "0." + "0" * 37 + "1"),
        ("double", 1.0, "1.0"),
        ("double", 1e10, "1.0E10"),
        ("double", 1e-4, "1.0E-4"),
        ("double", 9999999.0, "9999999.0"),
        ("double", 0.001, "0.001"),
        ("double", float("nan"), "NaN"),
        ("double", float("-inf"), "-Infinity"),
        ("double", -0.0, "-0.0"),
        ("float", 0.1, "0.1"),
        ("string", "a b", "a b"),
        ("string", "", DEFAULT_PARTITION_NAME),
        ("string", None, DEFAULT_PARTITION_NAME),
        ("int", None, DEFAULT_PARTITION_NAME),
        ("varchar(3)", "é😀bc", "é😀b"),
        ("varchar(5)", "ab ", "ab "),
        ("char(5)", "ab", "ab   "),
        ("char(3)", "", "   "),
    ],
)
def test_texts_are_those_of_hives_sql(hive_type: str, value: object, text: str) -> None:
    """The metastore accepts any text, so each value must get exactly the text that SQL gives it."""
    assert partition_texts(pa.array([value]), parse_hive_type(hive_type), column="k").to_pylist() == [text]


@pytest.mark.parametrize(
    ("hive_type", "given", "canonical"),
    [
        ("int", "01", "1"),
        ("int", "+1", "1"),
        ("int", "abc", DEFAULT_PARTITION_NAME),
        ("int", "2147483648", DEFAULT_PARTITION_NAME),
        ("boolean", "TRUE", "true"),
        ("date", "2020-1-2", "2020-01-02"),
        ("date", "2020-02-30", "2020-02-30"),
        ("timestamp", "2020-01-02 03%3A04%3A05.100", "2020-01-02 03%3A04%3A05.1"),
        ("decimal(5,2)", "1.50", "1.5"),
        ("decimal(5,2)", "12345", DEFAULT_PARTITION_NAME),
        ("double", "1", "1.0"),
        ("double", "nonsense", DEFAULT_PARTITION_NAME),
        ("char(4)", "ab", "ab  "),
        ("string", "%3a", "%3A"),
        ("int", DEFAULT_PARTITION_NAME, DEFAULT_PARTITION_NAME),
        ("binary", "01 ab", "01 ab"),
    ],
)
def test_a_partition_that_others_spelled_differently_is_recognised(
    hive_type: str, given: str, canonical: str
) -> None:
    """A readable value gets its canonical text; one that Hive shows as NULL is NULL, and one that its
    releases read differently stays as it is.
    """
    assert canonical_partition_name([AcidColumn("k", hive_type)], f"K={given}") == f"k={canonical}"


def test_a_name_with_other_keys_is_refused() -> None:
    """A name is looked up with its table's keys, in their order."""
    with pytest.raises(RecordValueError, match="does not have the keys"):
        canonical_partition_name(TABLE.partition_keys, "hr=1/ds=a")


@pytest.mark.parametrize("name", ["ds", "=x", "ds=a//hr=1"])
def test_a_text_that_is_no_name_is_refused(name: str) -> None:
    """Every part needs a key and a value."""
    with pytest.raises(RecordValueError, match="not a partition name"):
        parse_partition_name(name)


def test_an_unpartitioned_table_has_the_empty_name() -> None:
    """'' stands for the table itself."""
    assert parse_partition_name("") == ()
    plain = AcidTable("db", "t", "/t", (), (), 1, (), AcidVersion.V1_LEGACY)
    assert partition_names(plain, {"id": pa.array([1, 2])}).to_pylist() == ["", ""]


def test_names_of_rows_follow_existing_spellings() -> None:
    """Rows go to the partition that exists, spelled as it is; null and '' go to the default partition."""
    columns = {"DS": pa.array(["a/b", "c", None, ""]), "hr": pa.array([1.0, 2.0, None, None])}
    assert partition_names(TABLE, columns).to_pylist() == [
        "ds=a%2Fb/hr=01",
        "ds=c/hr=2",
        f"ds={DEFAULT_PARTITION_NAME}/hr={DEFAULT_PARTITION_NAME}",
        f"ds={DEFAULT_PARTITION_NAME}/hr={DEFAULT_PARTITION_NAME}",
    ]


@pytest.mark.thorough
def test_each_row_has_its_own_name_however_many_there_are() -> None:
    """Every combination of values, in any order, nulls among them; chunks count as one column."""
    days = [None if n % 11 == 0 else f"d{n % 7}" for n in range(2000)]
    hours = [None if n % 13 == 0 else n % 24 for n in range(2000)]
    columns = {
        "ds": pa.chunked_array([days[:900], days[900:]]),
        "hr": pa.chunked_array([hours[:900], hours[900:]]),
    }
    names = partition_names(TABLE, columns).to_pylist()
    one_by_one = [
        partition_names(TABLE, {"ds": pa.array([day]), "hr": pa.array([hour], pa.int64())})[0].as_py()
        for day, hour in zip(days, hours, strict=True)
    ]
    assert names == one_by_one
    assert (
        partition_names(TABLE, {"ds": pa.array([], pa.string()), "hr": pa.array([], pa.int32())}).to_pylist()
        == []
    )


def test_a_missing_partition_column_is_refused() -> None:
    """A row without all partition values would vanish in a directory that no reader opens."""
    with pytest.raises(RecordLayoutError, match=r"db\.t.*\['hr'\] are missing"):
        partition_names(TABLE, {"ds": pa.array(["x"])})


def test_a_value_that_does_not_fit_its_key_is_refused() -> None:
    """The metastore would store it and Hive read NULL."""
    with pytest.raises(RecordValueError, match=r"db\.t\.hr.*row 1"):
        partition_names(TABLE, {"ds": pa.array(["x", "y"]), "hr": pa.array([1, 2**40])})


@pytest.mark.parametrize("hive_type", ["binary", "array<int>", "map<int,int>"])
def test_types_without_a_common_text_are_refused(hive_type: str) -> None:
    """Releases disagree on them."""
    parsed = parse_hive_type(hive_type)
    with pytest.raises(RecordLayoutError, match="'k'"):
        partition_texts(pa.nulls(1), parsed, column="k")
    with pytest.raises(RecordValueError, match="not supported as a partition key"):
        partition_value("x", parsed)


def test_what_the_metastore_cannot_hold_is_refused() -> None:
    """Before anything is written: a value over 256 or a name over 767 characters."""
    with pytest.raises(RecordValueError, match="257 characters"):
        partition_texts(pa.array(["x" * 257]), parse_hive_type("string"), column="k")
    with pytest.raises(RecordValueError, match="768 characters"):
        partition_name(["a", "b", "c", "d"], ["x" * 200, "x" * 200, "x" * 200, "x" * 157])


def test_a_timestamp_below_microseconds_is_not_cut() -> None:
    """Python's datetime has no nanoseconds; a partition named so is refused, not taken for another."""
    with pytest.raises(RecordValueError, match="microseconds"):
        partition_value("2020-01-02 03:04:05.000000001", parse_hive_type("timestamp"))
