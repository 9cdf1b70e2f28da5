"""Rows of a binary log, decoded from bytes as the formats' documentation gives them."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysqlreplication.constants import FIELD_TYPE

from mutation_api.cdc.mysql.column_types import SourceColumn
from mutation_api.cdc.mysql.row_events import LoggedColumn, RowDecoder
from mutation_api.errors import InputFormatError


def logged(
    name: str, code: int, charset: str | None = None, labels: tuple[str, ...] | None = None, **meta: Any
) -> LoggedColumn:
    return LoggedColumn(name, SimpleNamespace(type=code, unsigned=False, **meta), charset, labels)


def decoded(column: LoggedColumn, data: bytes) -> Any:
    decoder = RowDecoder("s.t", [column], [column.name])
    (row,) = decoder.rows(b"\0" + data, [b"\1"])
    return row[0]


DECIMAL = SourceColumn("v", "decimal", "decimal(14,4)", precision=14, scale=4)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        # The example of MySQL's decimal.c: 1234567890.1234 in DECIMAL(14,4), and the same below zero.
        ("1234567890.1234", "810DFB38D204D2"),
        ("-1234567890.1234", "7EF204C72DFB2D"),
    ],
)
def test_decimals_are_as_the_source_of_mysql_shows(value: str, data: str) -> None:
    """Groups of nine digits in four bytes, the outer ones in fewer."""
    column = logged("v", FIELD_TYPE.NEWDECIMAL, precision=14, decimals=4)
    assert decoded(column, bytes.fromhex(data)) == Decimal(value)


@given(st.integers(-(838 * 3600 * 10**6), 838 * 3600 * 10**6), st.integers(0, 6))
def test_times_are_read_as_they_are_written(micros: int, digits: int) -> None:
    """Below zero all bytes are those of the negated number, the fraction's included."""
    size = (digits + 1) // 2
    step = 10 ** (6 - digits)
    micros = abs(micros) // step * step * (1 if micros >= 0 else -1)
    seconds, rest = divmod(abs(micros), 10**6)
    packed = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    packed = packed << 8 * size | rest // 10 ** (6 - 2 * size)
    stored = (1 << 8 * (3 + size) - 1) + (packed if micros >= 0 else -packed)
    column = logged("v", FIELD_TYPE.TIME2, fsp=digits)
    assert decoded(column, stored.to_bytes(3 + size, "big")) == micros


def test_nulls_take_no_bytes_and_columns_that_are_not_wanted_are_passed_over() -> None:
    """Whatever their order is."""
    columns = [
        logged("a", FIELD_TYPE.LONG),
        logged("b", FIELD_TYPE.VARCHAR, max_length=20),
        logged("C", FIELD_TYPE.TINY),
    ]
    decoder = RowDecoder("s.t", columns, ["c", "a"])
    data = b"\0" + b"\1\0\0\0" + b"\2hi" + b"\xff" + b"\5" + b"\1x"
    assert list(decoder.rows(data, [b"\7"])) == [[-1, 1], [None, None]]


@pytest.mark.parametrize("length", range(1, 8))
def test_rows_that_end_too_early_are_refused(length: int) -> None:
    """No value is made up from the bytes that are there."""
    columns = [logged("a", FIELD_TYPE.LONG), logged("b", FIELD_TYPE.VARCHAR, max_length=20)]
    data = (b"\0" + b"\1\0\0\0" + b"\2hi")[:length]
    with pytest.raises(InputFormatError, match="a row in the log"):
        list(RowDecoder("s.t", columns, ["a", "b"]).rows(data, [b"\3"]))


def test_images_without_some_columns_are_refused() -> None:
    """A minimal image lacks the others."""
    decoder = RowDecoder("s.t", [logged("a", FIELD_TYPE.TINY), logged("b", FIELD_TYPE.TINY)], [])
    with pytest.raises(InputFormatError, match="binlog_row_image=FULL"):
        list(decoder.rows(b"\0\1", [b"\1"]))


@pytest.mark.parametrize(
    ("column", "now", "then"),
    [
        (
            logged("v", FIELD_TYPE.LONG),
            SourceColumn("v", "varchar", "varchar(9)", 9, charset="latin1"),
            "int",
        ),
        (logged("v", FIELD_TYPE.LONG), SourceColumn("v", "int", "int(11) unsigned"), "int"),
        (logged("v", FIELD_TYPE.NEWDECIMAL, precision=14, decimals=3), DECIMAL, "decimal(14,3)"),
        (logged("v", FIELD_TYPE.DATETIME2, fsp=3), SourceColumn("v", "datetime", "datetime"), "datetime"),
        (
            logged("v", FIELD_TYPE.ENUM, size=1, charset="utf8mb4", labels=("a", "b")),
            SourceColumn("v", "enum", "enum('b','a')", charset="utf8mb4"),
            "enum('a','b')",
        ),
        (
            logged("v", FIELD_TYPE.VARCHAR, max_length=40, charset="latin1"),
            SourceColumn("v", "varchar", "varchar(40)", 40, charset="utf8mb4"),
            "varchar(40)",
        ),
        (
            logged("v", FIELD_TYPE.BLOB, length_size=2, charset="binary"),
            SourceColumn("v", "text", "text", 65535, charset="latin1"),
            "blob",
        ),
        (logged("v", FIELD_TYPE.TINY), None, "tinyint"),
    ],
)
def test_rows_are_read_by_what_a_column_was(
    column: LoggedColumn, now: SourceColumn | None, then: str
) -> None:
    """Not by what it is now, whose values would be others."""
    found = column.described(now)
    assert found
    assert (found.type_text, found.is_logged, found.charset) == (then, True, then_charset(column))


def then_charset(column: LoggedColumn) -> str | None:
    """Bytes have none."""
    return None if column.charset == "binary" else column.charset


def test_the_catalog_says_more_of_a_column_that_has_not_changed() -> None:
    """Such as the width that makes a boolean of a tinyint."""
    now = SourceColumn("v", "tinyint", "tinyint(1)")
    assert logged("v", FIELD_TYPE.TINY).described(now) is now


@pytest.mark.parametrize(
    "column",
    [
        logged("v", 140),
        logged("v", FIELD_TYPE.VARCHAR, max_length=40),
        logged("v", FIELD_TYPE.ENUM, size=1, charset="cp1251"),
    ],
)
def test_a_type_or_a_character_set_that_is_not_known_is_not_guessed(column: LoggedColumn) -> None:
    """Not even from the catalog, which may say what came later."""
    assert column.described(SourceColumn("v", "varchar", "varchar(9)", 9, charset="latin1")) is None


def test_a_type_that_is_not_known_is_refused() -> None:
    """Even in a column that is not wanted: without it the next one cannot be found."""
    with pytest.raises(InputFormatError, match="the log's type 140 is unknown"):
        RowDecoder("s.t", [logged("v", 140)], [])
