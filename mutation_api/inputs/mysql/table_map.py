"""A table as the log describes it before its rows: columns with their types, and the key.

Rows are decoded by what the table was when they were logged, whatever it is today. The library reads the
types; the character sets, the members of enums and sets, and the key are read here.

Source: MySQL's source documentation, "Table_map_event", "The Optional_metadata"; MariaDB's rpl_tblmap.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymysqlreplication.constants import CHARSET, FIELD_TYPE

from mutation_api.inputs.mysql.column_types import codec_of
from mutation_api.inputs.mysql.row_events import LoggedColumn

__all__ = ["LoggedTable", "charset_of", "logged_table"]

_PACKET_BYTES = 1 + 19
"""The packet's first byte, and the event's header."""
_TABLE_BYTES = 6 + 2
"""The number of the table, and flags."""
_BINARY = 63
_NO_PAD_OFFSET = 1024
_UCA1400 = 2048
_UCA1400_CHARSETS = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
"""Character sets of MariaDB's newest collations, each with 256 numbers from _UCA1400 on."""
_WITH_CHARSET = (FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB)


class _Field(enum.IntEnum):
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    SET_MEMBERS = 5
    ENUM_MEMBERS = 6
    PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    MEMBERS_DEFAULT_CHARSET = 10
    MEMBERS_COLUMN_CHARSET = 11


@dataclass(frozen=True)
class LoggedTable:
    """Columns in their order, and the names of those of the primary key.

    A table without a primary key has the first unique one whose columns are never NULL in its place.
    """

    columns: tuple[LoggedColumn, ...]
    primary_key: tuple[str, ...]


def logged_table(event: Any, data: bytes) -> LoggedTable:
    """Return what a table map event says.

    Args:
        event: the library's event, whose columns have names.
        data: the packet with the event, to its end or its checksum.
    """
    fields = dict(_fields(_optional(event, data)))
    is_mariadb = event.dbms == "mariadb"
    with_charset = (*_WITH_CHARSET, FIELD_TYPE.GEOMETRY) if is_mariadb else _WITH_CHARSET
    texts = [n for n, column in enumerate(event.columns) if column.type in with_charset]
    members = [
        n for n, column in enumerate(event.columns) if column.type in (FIELD_TYPE.ENUM, FIELD_TYPE.SET)
    ]
    charsets = _charsets(fields, texts, _Field.DEFAULT_CHARSET, _Field.COLUMN_CHARSET)
    charsets |= _charsets(fields, members, _Field.MEMBERS_DEFAULT_CHARSET, _Field.MEMBERS_COLUMN_CHARSET)
    labels: dict[int, list[bytes]] = {}
    for code, field in ((FIELD_TYPE.ENUM, _Field.ENUM_MEMBERS), (FIELD_TYPE.SET, _Field.SET_MEMBERS)):
        numbers = [n for n in members if event.columns[n].type == code]
        labels |= dict(zip(numbers, _members(fields.get(field, b"")), strict=False))
    columns = tuple(
        LoggedColumn(column.name, column, charsets.get(n), _decoded(labels.get(n), charsets.get(n)))
        for n, column in enumerate(event.columns)
    )
    key = _Bytes(fields.get(_Field.PRIMARY_KEY, b"")).numbers()
    if not key:
        key = _Bytes(fields.get(_Field.PRIMARY_KEY_WITH_PREFIX, b"")).numbers()[::2]
    return LoggedTable(columns, tuple(columns[n].name for n in key))


class _Bytes:
    """Reads numbers and strings of the protocol one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        first = self.take(1)[0]
        size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
        return first if size is None else int.from_bytes(self.take(size), "little")

    def string(self) -> bytes:
        return self.take(self.number())

    def numbers(self) -> list[int]:
        found = []
        while self.at < len(self.data):
            found.append(self.number())
        return found


def _optional(event: Any, data: bytes) -> bytes:
    """The part behind the columns."""
    reader = _Bytes(data)
    reader.take(_PACKET_BYTES + _TABLE_BYTES)
    for _ in ("database", "table"):
        reader.take(reader.take(1)[0] + 1)
    count = reader.number()
    reader.take(count)
    reader.take(reader.number())
    reader.take((count + 7) // 8)
    return data[reader.at : _PACKET_BYTES + event.event_size]


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Bytes(data)
    while reader.at < len(data):
        kind = reader.take(1)[0]
        yield kind, reader.string()


def _charsets(
    fields: dict[int, bytes], columns: Sequence[int], default: int, each: int
) -> dict[int, str | None]:
    """Character sets of these columns."""
    if each in fields:
        return dict(zip(columns, map(charset_of, _Bytes(fields[each]).numbers()), strict=False))
    if default not in fields:
        return {}
    first, *others = _Bytes(fields[default]).numbers()
    found: dict[int, str | None] = dict.fromkeys(columns, charset_of(first))
    for index, collation in zip(others[::2], others[1::2], strict=True):
        found[columns[index]] = charset_of(collation)
    return found


def charset_of(collation: int) -> str | None:
    """The character set of a collation, by its number; None if it is not known."""
    if collation == _BINARY:
        return "binary"
    if collation >= _UCA1400:
        place = collation - _UCA1400 >> 8
        return _UCA1400_CHARSETS[place] if place < len(_UCA1400_CHARSETS) else None
    if collation >= _NO_PAD_OFFSET:
        collation -= _NO_PAD_OFFSET
    found = CHARSET.charset_by_id(str(collation)) or CHARSET.charset_by_id(str(collation), "mariadb")
    return None if found is None else str(found.name)


def _members(data: bytes) -> Iterator[list[bytes]]:
    reader = _Bytes(data)
    while reader.at < len(data):
        yield [reader.string() for _ in range(reader.number())]


def _decoded(labels: list[bytes] | None, charset: str | None) -> tuple[str, ...] | None:
    """The members of an enum or a set; None if they cannot be read."""
    if labels is None:
        return None
    decode = codec_of(charset)
    try:
        return None if decode is None else tuple(map(decode, labels))
    except UnicodeError:
        return None
