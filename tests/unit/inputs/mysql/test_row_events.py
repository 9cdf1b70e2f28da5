"""Rows of a binary log, decoded from bytes as the formats' documentation gives them."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysqlreplication.constants import FIELD_TYPE

from mutation_api.errors import InputFormatError
from mutation_api.inputs.mysql.column_types import SourceColumn
from mutation_api.inputs.mysql.row_events import LoggedColumn, RowDecoder


def logged(name: str, code: int, **meta: Any) -> LoggedColumn:
    return LoggedColumn(name, SimpleNamespace(type=code, unsigned=False, **meta))


def decoded(column: LoggedColumn, source: SourceColumn, data: bytes) -> Any:
    decoder = RowDecoder("s.t", [column], {column.name: source})
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
    assert decoded(column, DECIMAL, bytes.fromhex(data)) == Decimal(value)


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
    source = SourceColumn("v", "time", "time")
    assert decoded(column, source, stored.to_bytes(3 + size, "big")) == micros


def test_nulls_take_no_bytes_and_columns_that_are_not_wanted_are_passed_over() -> None:
    """Whatever their order is."""
    columns = [
        logged("a", FIELD_TYPE.LONG),
        logged("b", FIELD_TYPE.VARCHAR, max_length=20),
        logged("C", FIELD_TYPE.TINY),
    ]
    wanted = {"c": SourceColumn("C", "tinyint", "tinyint(4)"), "a": SourceColumn("a", "int", "int(11)")}
    decoder = RowDecoder("s.t", columns, wanted)
    data = b"\0" + b"\1\0\0\0" + b"\2hi" + b"\xff" + b"\5" + b"\1x"
    assert list(decoder.rows(data, [b"\7"])) == [[-1, 1], [None, None]]


@pytest.mark.parametrize("length", range(1, 8))
def test_rows_that_end_too_early_are_refused(length: int) -> None:
    """No value is made up from the bytes that are there."""
    columns = [logged("a", FIELD_TYPE.LONG), logged("b", FIELD_TYPE.VARCHAR, max_length=20)]
    wanted = {"a": SourceColumn("a", "int", "int(11)"), "b": SourceColumn("b", "varchar", "varchar(20)")}
    data = (b"\0" + b"\1\0\0\0" + b"\2hi")[:length]
    with pytest.raises(InputFormatError, match="a row of the log"):
        list(RowDecoder("s.t", columns, wanted).rows(data, [b"\3"]))


def test_images_without_some_columns_are_refused() -> None:
    """A minimal image lacks the others."""
    decoder = RowDecoder("s.t", [logged("a", FIELD_TYPE.TINY), logged("b", FIELD_TYPE.TINY)], {})
    with pytest.raises(InputFormatError, match="binlog_row_image=FULL"):
        list(decoder.rows(b"\0\1", [b"\1"]))


@pytest.mark.parametrize(
    ("column", "source"),
    [
        (logged("v", FIELD_TYPE.LONG), SourceColumn("v", "varchar", "varchar(9)")),
        (logged("v", FIELD_TYPE.LONG), SourceColumn("v", "int", "int(11) unsigned")),
        (logged("v", FIELD_TYPE.NEWDECIMAL, precision=14, decimals=3), DECIMAL),
        (logged("v", FIELD_TYPE.DATETIME), SourceColumn("v", "datetime", "datetime")),
        (
            logged("v", FIELD_TYPE.ENUM, size=1, enum_values=["", "a", "b"]),
            SourceColumn("v", "enum", "enum('b','a')"),
        ),
        (logged("v", FIELD_TYPE.SET, size=1, set_values=["a"]), SourceColumn("v", "set", "set('b','a')")),
    ],
)
def test_a_log_of_another_type_than_the_column_has_now_is_refused(
    column: LoggedColumn, source: SourceColumn
) -> None:
    """Its values would be misread."""
    with pytest.raises(InputFormatError, match="'v': the log holds values of another type than"):
        RowDecoder("s.t", [column], {"v": source})


def test_members_may_be_added_to_an_enum() -> None:
    """The numbers of the others stay what they are."""
    column = logged("v", FIELD_TYPE.ENUM, size=1, enum_values=["", "a", ""])
    assert decoded(column, SourceColumn("v", "enum", "enum('a','ü','b')"), b"\2") == 2


def test_a_type_that_is_not_known_is_refused() -> None:
    """Even in a column that is not wanted: without it the next one cannot be found."""
    with pytest.raises(InputFormatError, match="type 140 of the log is not known"):
        RowDecoder("s.t", [logged("v", 140)], {})
