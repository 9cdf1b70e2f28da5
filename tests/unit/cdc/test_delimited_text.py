"""Arrow's reading of separated records equals the exact one, and damage is found where it is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mutation_api.cdc.delimited_text import DamagedRecordError, DelimitedText
from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location

HIVE = DelimitedText("\x01")
QUOTED = DelimitedText(",", quote='"')
DOUBLED = DelimitedText(",", null="NULL", escape='"', quote='"')
PLAIN = DelimitedText("\t", escape=None)
SEMICOLON = DelimitedText("|", record_end=";")
WINDOWS = DelimitedText(",", record_end="\r\n")
FORMATS = [HIVE, QUOTED, DOUBLED, PLAIN, SEMICOLON, WINDOWS]

Rows = list[list[str | None]]


def exact(text: DelimitedText, chunk: bytes) -> Rows:
    return [fields for _, fields in text.records(chunk)]


def fast(text: DelimitedText, chunk: bytes, count: int) -> Rows | None:
    columns = text._fast_columns(chunk, count)
    if columns is None:
        return None
    return [list(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


@pytest.mark.parametrize(
    ("text", "chunk", "rows"),
    [
        (HIVE, b"I\x01\\N\x01\\\\N\n", [["I", None, "\\N"]]),
        (HIVE, b"a\\\x01b\x01\\\\\\\x01\x01\\\\\\\\\n", [["a\x01b", "\\\x01", "\\\\"]]),
        (HIVE, b'"\x01\r\x01\x00\xc3\xa9\n', [['"', "\r", "\x00é"]]),
        (HIVE, "\ue000\x01\\\\\x01\ue001\r\n".encode(), [["\ue000", "\\", "\ue001\r"]]),
        (QUOTED, b'"a,\n\\"\\\\",\\N,b\n', [['a,\n"\\', None, "b"]]),
        (DOUBLED, b'"NULL",NULL,"say ""so"""\n', [["NULL", None, 'say "so"']]),
        (PLAIN, b"a\\b\t\\N\t\n", [["a\\b", None, ""]]),
        (SEMICOLON, b"a\n|b\r|c;d|e|f;", [["a\n", "b\r", "c"], ["d", "e", "f"]]),
        (WINDOWS, b"a\n,b\r,\\N\r\n", [["a\n", "b\r", None]]),
    ],
)
def test_fields_of_records(text: DelimitedText, chunk: bytes, rows: Rows) -> None:
    """Separators, NULL, escapes and quotes mean what the format says; both ways of reading agree."""
    assert exact(text, chunk) == rows
    assert fast(text, chunk, 3) == rows


@pytest.mark.long
@pytest.mark.parametrize("text", FORMATS, ids=lambda text: repr(text.field_separator))
def test_what_arrow_reads_is_what_is_there(text: DelimitedText) -> None:
    """Random bytes of the characters that matter: Arrow's reading is used only where it is the exact one."""
    rng = random.Random(text.field_separator)
    alphabet = [text.field_separator.encode(), b"\\", b'"', b"\n", b"\r", b"a", b"\\N", b"NULL", b"\xc3\xa9"]
    alphabet += [text.record_end.encode()] * 2 + [b"\xef\xbb\xbf", b"\x80", b"\xee\x80\x80", b"\x00", b"|"]
    used = 0
    for _ in range(3000):
        chunk = b"".join(rng.choices(alphabet, k=rng.randrange(1, 12))) + text.record_end.encode()
        count = rng.randrange(1, 4)
        read = fast(text, chunk, count)
        if read is not None:
            assert exact(text, chunk) == read, chunk
            used += 1
    assert used > 50


@pytest.mark.parametrize(
    ("text", "chunk", "offset", "field", "reason"),
    [
        (HIVE, b"a\x01b\x01c\na\x01b\n", 6, None, "has 2 fields separated by '\\x01', expected 3"),
        (HIVE, b"a\x01b\x01c\x01d\n", 0, None, "has 4 fields"),
        (HIVE, b"\n", 0, None, "has 1 fields"),
        (HIVE, b"a,b,c\n", 0, None, "has 1 fields separated by"),
        (HIVE, b"a\x01b\\x\x01c\n", 0, 1, "continues with b'\\\\x"),
        (HIVE, b"a\x01\\Nx\x01c\n", 0, 1, "continues with b'\\\\Nx"),
        (HIVE, b"a\x01b\x01c\na\x01\xff\x01c\n", 6, 1, "is not UTF-8: b'\\xff'"),
        (QUOTED, b'a,"b"x,c\n', 0, 1, "continues with b'x,c"),
        (QUOTED, b'a,b"x,c\n', 0, 1, "continues with"),
        (QUOTED, b'a,"b,c\n', 0, 1, "quote that is never closed"),
        (DOUBLED, b'a,b,"c\n', 0, 2, "quote that is never closed"),
        (HIVE, b"a\x01b\x01c", 0, None, "has no end"),
    ],
)
def test_damage_is_found_where_it_is(
    text: DelimitedText, chunk: bytes, offset: int, field: int | None, reason: str
) -> None:
    """The record by its byte, the field by its number, and the bytes found there."""
    with pytest.raises(DamagedRecordError) as caught:
        text.columns(chunk, 3)
    assert (caught.value.offset, caught.value.field) == (offset, field)
    assert reason in caught.value.reason


@pytest.mark.parametrize("text", [HIVE, QUOTED, DOUBLED])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000])
def test_chunks_are_whole_records(text: DelimitedText, chunk_bytes: int, tmp_path: Path) -> None:
    """However little is read at once, and whatever is in quotes, chunks begin and end with records."""
    end = '\n"' if text.quote else "x"
    quoted = f"{text.quote or ''}a{end}b".replace('\n"', f"\n{text.escape}{text.quote}" if text.quote else "")
    record = text.field_separator.join([quoted + (text.quote or ""), text.null]) + "\n"
    path = tmp_path / "file"
    path.write_text(record * 20 + "more")
    size = len(record.encode()) * 20
    chunks = list(text.chunks(Location.given(path), 0, size, chunk_bytes=chunk_bytes))
    assert b"".join(chunk for _, chunk in chunks) == record.encode() * 20
    assert [offset for offset, _ in chunks] == [
        sum(len(c) for _, c in chunks[:i]) for i in range(len(chunks))
    ]
    assert all(len(exact(text, chunk)) == chunk.count(b"a") for _, chunk in chunks)
    with pytest.raises(DamagedRecordError, match="has no end"):
        list(text.chunks(Location.given(path), 0, size + 4))
    with pytest.raises(EOFError):
        list(text.chunks(Location.given(path), 0, size + 5))


@pytest.mark.parametrize(
    "characters",
    [
        {"field_separator": ""},
        {"field_separator": "||"},
        {"field_separator": "é"},
        {"field_separator": "\n"},
        {"field_separator": "\\"},
        {"field_separator": ",", "null": "a,b"},
        {"field_separator": ",", "quote": ","},
        {"field_separator": ",", "quote": '"', "record_end": ";"},
    ],
)
def test_formats_that_cannot_be_read_are_refused(characters: dict[str, str]) -> None:
    """Characters that serve two purposes, and texts where one character is needed."""
    with pytest.raises(ConfigurationError):
        DelimitedText(**characters)
