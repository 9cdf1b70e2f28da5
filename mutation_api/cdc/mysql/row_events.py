"""Decodes the row images of the binary log from the bytes of an event into values by column.

The replication library decodes a row into a dictionary by name. This loses values that are needed here: the
order of a set's members, zero dates, the bytes of a binary column, and fractions of negative times. It is
also several times slower. The replication library therefore supplies only the bytes and the log's description
of the columns.

Source: MySQL's source documentation, "Rows_event" and "Table_map_event"; MariaDB's knowledge base,
"Rows_event_v1". Formats of values: MySQL's manual, "Data Type Storage Requirements".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE

from mutation_api.cdc.mysql.column_types import GEOMETRY_KINDS, SourceColumn
from mutation_api.cdc.mysql.log_position import START_OVER
from mutation_api.errors import InputFormatError

Reader = Callable[[bytes, int], tuple[Any, int]]
"""A function from bytes and an offset to a value and the offset after it."""

_DIGITS_PER_WORD = 9
_BYTES_OF_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_MICROS = 1_000_000
_WIDE = Context(prec=65)
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")

_INTEGER_BYTES = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}
_KINDS = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.BIT: "bit",
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.ENUM: "enum",
    FIELD_TYPE.SET: "set",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.DATETIME2: "datetime",
    FIELD_TYPE.TIMESTAMP2: "timestamp",
    FIELD_TYPE.TIME2: "time",
    FIELD_TYPE.GEOMETRY: "geometry",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.VARCHAR: "varchar",
    FIELD_TYPE.VAR_STRING: "varchar",
    FIELD_TYPE.STRING: "char",
    FIELD_TYPE.BLOB: "text",
}
_BINARY_KINDS = {"varchar": "varbinary", "char": "binary", "text": "blob"}
_SIZES = {1: "tiny", 2: "", 3: "medium", 4: "long"}
"""The prefixes of ``text`` and ``blob`` types, by the number of bytes of their length."""
_BYTES_OF_CHARACTERS = {
    "utf8mb4": 4,
    "utf8mb3": 3,
    "utf8": 3,
    "ucs2": 2,
    "utf16": 4,
    "utf16le": 4,
    "utf32": 4,
}


@dataclass(frozen=True)
class LoggedColumn:
    """A column as described by a table map event.

    ``meta`` is the replication library's description. ``charset`` is that of strings, enums and sets; None if
    unknown. ``labels`` are the members of an enum or a set; None if they cannot be read.
    """

    name: str
    meta: Any
    charset: str | None = None
    labels: tuple[str, ...] | None = None

    def reader(self) -> Reader:
        """Return the reader of its values. Raises KeyError if the type has no reader."""
        return _READERS[self.meta.type](self.meta)

    def described(self, now: SourceColumn | None) -> SourceColumn | None:
        """Return the column as it was when its rows were logged.

        This is ``now``, the column in the catalog, if it agrees with the log, because the catalog has more
        detail. The result is None if the log does not contain enough because the type or the character set is
        unknown.
        """
        found = self._described()
        if found is None or (now is not None and _is_same(found, now)):
            return now if found is not None else None
        return found

    def _described(self) -> SourceColumn | None:
        meta = self.meta
        kind = _KINDS.get(meta.type)
        if kind is None or (self.labels is None and kind in ("enum", "set")):
            return None
        if self.charset is None and kind in ("enum", "set", "varchar", "char", "text"):
            return None
        charset = None if self.charset == "binary" else self.charset
        length, text = 0, ""
        if charset is None:
            kind = _BINARY_KINDS.get(kind, kind)
        if kind in ("text", "blob"):
            kind = _SIZES[meta.length_size] + kind
            length = (1 << 8 * meta.length_size) - 1
        elif kind in ("varchar", "char", "varbinary", "binary"):
            length = meta.max_length // _BYTES_OF_CHARACTERS.get(charset or "", 1)
            text = f"{kind}({length})"
        elif kind in ("enum", "set"):
            labels = [label.replace("\\", "\\\\").replace("'", "''") for label in self.labels or ()]
            text = kind + "(" + ",".join(f"'{label}'" for label in labels) + ")"
        elif kind == "decimal":
            text = f"decimal({meta.precision},{meta.decimals})"
        elif kind == "bit":
            length = meta.bits
            text = f"bit({length})"
        elif meta.type in _INTEGER_BYTES and meta.unsigned:
            text = f"{kind} unsigned"
        return SourceColumn(
            self.name,
            kind,
            text or kind,
            length=length,
            precision=getattr(meta, "precision", 0),
            scale=getattr(meta, "decimals", 0),
            fraction=getattr(meta, "fsp", 0),
            charset=charset,
            is_logged=True,
        )


def _is_same(logged: SourceColumn, now: SourceColumn) -> bool:
    """Return True if the values of both columns are decoded in the same way."""
    return _essence(logged) == _essence(now)


def _essence(column: SourceColumn) -> tuple[Any, ...]:
    """Return the parts of a column's type that determine how its values are logged."""
    kind = column.kind
    if kind in ("enum", "set"):
        return kind, column.labels
    if kind in ("char", "varchar", "binary", "varbinary"):
        return kind, column.length, _charset_name(column)
    if column.charset is not None:
        return kind, _charset_name(column)
    if kind == "decimal":
        return kind, column.precision, column.scale
    if kind in ("datetime", "timestamp", "time"):
        return kind, column.fraction
    if kind == "bit":
        return kind, column.length
    if kind in GEOMETRY_KINDS:
        return ("geometry",)
    return kind, kind in _KINDS_OF_INTEGERS and column.is_unsigned


_KINDS_OF_INTEGERS = {_KINDS[code] for code in _INTEGER_BYTES}


def _charset_name(column: SourceColumn) -> str | None:
    return "utf8mb3" if column.charset == "utf8" else column.charset


class RowDecoder:
    """Decodes the rows of a table as described by one table map event."""

    def __init__(self, table: str, logged: Sequence[LoggedColumn], wanted: Sequence[str]) -> None:
        """Prepare the readers of the columns.

        Args:
            table: name of the table, for messages.
            logged: all columns of the table at the time of the event.
            wanted: lower-case names of the columns of the result, in order.

        Raises:
            InputFormatError: If the type of a column is unknown.
        """
        self.table = table
        self._count = len(logged)
        self._mask = (1 << self._count) - 1
        self._bitmap_bytes = (self._count + 7) // 8
        indices = {name: index for index, name in enumerate(wanted)}
        self._width = len(indices)
        self._steps: list[tuple[int, Reader, int | None]] = []
        for number, column in enumerate(logged):
            self._steps.append((1 << number, self._reader(column), indices.get(column.name.lower())))

    def _reader(self, column: LoggedColumn) -> Reader:
        """Return the reader of a column. Raises InputFormatError if it has none."""
        try:
            return column.reader()
        except KeyError:
            raise InputFormatError(
                f"source table {self.table}, column {column.name!r}: the log's type {column.meta.type} is "
                "unknown. Leaving the column out of Hive does not help: without its type the columns after "
                "it cannot be found"
            ) from None

    def rows(self, data: bytes, present: Sequence[bytes]) -> Iterator[list[Any]]:
        """Yield the row images of an event one by one; an update has two images per row, before and after.

        Args:
            data: the event from its first row on, without a checksum.
            present: bitmap of the columns that the images have; two bitmaps for an update.

        Raises:
            InputFormatError: If images lack columns, or the bytes end within a row.
        """
        for bitmap in present:
            if int.from_bytes(bitmap, "little") & self._mask != self._mask:
                raise InputFormatError(
                    f"source table {self.table}: the log contains row images without some columns; it needs "
                    f"binlog_row_image=FULL. {START_OVER}"
                )
        offset, end = 0, len(data)
        try:
            while offset < end:
                row, offset = self._row(data, offset)
                yield row
        except (IndexError, struct.error) as error:
            raise InputFormatError(f"source table {self.table}: a row in the log is damaged") from error
        if offset != end:
            raise InputFormatError(f"source table {self.table}: a row in the log extends beyond its event")

    def _row(self, data: bytes, offset: int) -> tuple[list[Any], int]:
        row: list[Any] = [None] * self._width
        nulls = int.from_bytes(data[offset : offset + self._bitmap_bytes], "little")
        offset += self._bitmap_bytes
        for bit, read, index in self._steps:
            if not nulls & bit:
                value, offset = read(data, offset)
                if index is not None:
                    row[index] = value
        return row, offset


def _integer(size: int) -> Callable[[Any], Reader]:
    def make(meta: Any) -> Reader:
        signed = not meta.unsigned
        return lambda data, at: (int.from_bytes(data[at : at + size], "little", signed=signed), at + size)

    return make


def _year(_meta: Any) -> Reader:
    return lambda data, at: (1900 + data[at] if data[at] else 0, at + 1)


def _float(_meta: Any) -> Reader:
    return lambda data, at: (_FLOAT.unpack_from(data, at)[0], at + 4)


def _double(_meta: Any) -> Reader:
    return lambda data, at: (_DOUBLE.unpack_from(data, at)[0], at + 8)


def _counted(size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        return data[start:end], end

    return read


def _string(meta: Any) -> Reader:
    return _counted(2 if meta.max_length > 255 else 1)


def _blob(meta: Any) -> Reader:
    return _counted(meta.length_size)


def _number(meta: Any) -> Reader:
    """Return a reader of an enum's number or a set's bits."""
    size = meta.size
    return lambda data, at: (int.from_bytes(data[at : at + size], "little"), at + size)


def _bit(meta: Any) -> Reader:
    size = meta.bytes
    return lambda data, at: (int.from_bytes(data[at : at + size], "big"), at + size)


def _date(_meta: Any) -> Reader:
    return lambda data, at: (int.from_bytes(data[at : at + 3], "little"), at + 3)


def _datetime(meta: Any) -> Reader:
    fraction_bytes, factor = _fraction(meta)
    middle = 1 << 39

    def read(data: bytes, at: int) -> tuple[int, int]:
        behind = at + 5
        packed = int.from_bytes(data[at:behind], "big") - middle
        end = behind + fraction_bytes
        return packed * _MICROS + int.from_bytes(data[behind:end], "big") * factor, end

    return read


def _timestamp(meta: Any) -> Reader:
    fraction_bytes, factor = _fraction(meta)

    def read(data: bytes, at: int) -> tuple[int, int]:
        behind = at + 4
        end = behind + fraction_bytes
        fraction = int.from_bytes(data[behind:end], "big") * factor
        return int.from_bytes(data[at:behind], "big") * _MICROS + fraction, end

    return read


def _time(meta: Any) -> Reader:
    """Return a reader of times.

    A time has ten bits of hours, six of minutes, six of seconds, then the fraction. Negative times are the
    negated number.
    """
    fraction_bytes, factor = _fraction(meta)
    size, shift = 3 + fraction_bytes, 8 * fraction_bytes
    middle, mask = 1 << (8 * size - 1), (1 << shift) - 1

    def read(data: bytes, at: int) -> tuple[int, int]:
        signed = int.from_bytes(data[at : at + size], "big") - middle
        packed = abs(signed)
        whole = packed >> shift
        seconds = (whole >> 12 & 1023) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
        micros = seconds * _MICROS + (packed & mask) * factor
        return (micros if signed >= 0 else -micros), at + size

    return read


def _fraction(meta: Any) -> tuple[int, int]:
    """Return the number of bytes of the fraction of a second, and the microseconds of its last digit."""
    size = (meta.fsp + 1) // 2
    return size, 10 ** (6 - 2 * size)


def _decimal(meta: Any) -> Reader:
    """Return a reader of decimals.

    Nine digits take four bytes; the outer groups have fewer. The top bit is inverted, and so are all bits of
    a negative number.
    """
    whole = meta.precision - meta.decimals
    groups = _groups(whole)[::-1] + _groups(meta.decimals)
    size = sum(_BYTES_OF_DIGITS[digits] for digits in groups)
    exponent, flip = -meta.decimals, (1 << 8 * size) - 1
    top = 1 << (8 * size - 1)

    def read(data: bytes, at: int) -> tuple[Decimal, int]:
        packed = int.from_bytes(data[at : at + size], "big") ^ top
        negative = packed & top
        body = (packed ^ flip if negative else packed).to_bytes(size, "big")
        number, offset = 0, 0
        for digits in groups:
            end = offset + _BYTES_OF_DIGITS[digits]
            number = number * 10**digits + int.from_bytes(body[offset:end], "big")
            offset = end
        return Decimal(-number if negative else number).scaleb(exponent, _WIDE), at + size

    return read


def _groups(digits: int) -> list[int]:
    """Return the groups of digits after the decimal point; those before it are in reverse order."""
    full, rest = divmod(digits, _DIGITS_PER_WORD)
    return [_DIGITS_PER_WORD] * full + ([rest] if rest else [])


_READERS: dict[int, Callable[[Any], Reader]] = {
    **{code: _integer(size) for code, size in _INTEGER_BYTES.items()},
    FIELD_TYPE.YEAR: _year,
    FIELD_TYPE.FLOAT: _float,
    FIELD_TYPE.DOUBLE: _double,
    FIELD_TYPE.VARCHAR: _string,
    FIELD_TYPE.VAR_STRING: _string,
    FIELD_TYPE.STRING: _string,
    FIELD_TYPE.BLOB: _blob,
    FIELD_TYPE.GEOMETRY: _blob,
    FIELD_TYPE.JSON: _blob,
    FIELD_TYPE.ENUM: _number,
    FIELD_TYPE.SET: _number,
    FIELD_TYPE.BIT: _bit,
    FIELD_TYPE.DATE: _date,
    FIELD_TYPE.DATETIME2: _datetime,
    FIELD_TYPE.TIMESTAMP2: _timestamp,
    FIELD_TYPE.TIME2: _time,
    FIELD_TYPE.NEWDECIMAL: _decimal,
}
