r"""Read records of separated fields, as in logs of changes: bytes to Arrow columns of strings.

pyarrow's CSV reader does the work, a chunk of whole records at a time. It does not support these formats: it
reads ``\N`` as an escaped N, continues after a closing quote, turns an empty line into empty fields, drops a
byte order mark, and also ends records at a CR. Everything that it would read differently is therefore
replaced by characters that do not occur in the chunk, and restored afterwards. If a chunk may still be read
wrongly, :meth:`DelimitedText.records` reads it again, exactly and slowly, and reports each error with its
location.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from mutation_api.cdc.source_url import opened
from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location

CHUNK_BYTES = 1024 * 1024
"""The number of bytes that are parsed at once: some ten thousand records. Larger chunks take longer: 59 MB,
half a million records of 13 fields, take 0.29 s of CPU in chunks of this size and 0.40 s with 7 MB."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STAND_INS = range(0xE000, 0xF900)
"""Private-use characters. Those that do not occur in a chunk replace others while Arrow reads it."""
_SHOWN_BYTES = 60


class DamagedRecordError(Exception):
    """Raised when a record does not follow the format.

    ``offset``: byte at which the record begins, in the chunk or file that was read. ``field``: number of the
    field, from 0, if it is known. ``reason`` continues a sentence that begins with the record or the field.
    """

    def __init__(self, offset: int, field: int | None, reason: str) -> None:
        super().__init__(offset, field, reason)
        self.offset = offset
        self.field = field
        self.reason = reason

    def moved(self, by: int) -> DamagedRecordError:
        """Return the same error with its offset in the file; the chunk begins at byte ``by``."""
        return DamagedRecordError(self.offset + by, self.field, self.reason)


@dataclass(frozen=True)
class DelimitedText:
    """A format of records. Each special character is one ASCII character and serves one purpose.

    Args:
        field_separator: the character between two fields.
        record_end: the character or CR LF that ends a record.
        null: the representation of NULL; never in quotes.
        escape: the character that makes a following separator, quote or escape part of the value. If None,
            the format has no escape. If it equals the quote, a quote in a value is written twice.
        quote: the character that may enclose a value, which can then hold separators and record ends. If
            None, values are never in quotes.

    Raises:
        ConfigurationError: If the format is ambiguous, or if it has quotes and records do not end with a
            newline.
    """

    field_separator: str
    record_end: str = "\n"
    null: str = "\\N"
    escape: str | None = "\\"
    quote: str | None = None

    def __post_init__(self) -> None:
        wrong = None
        if not all(len(c) == 1 and c.isascii() for c in self._single_characters):
            wrong = (
                "separators, escape and quote must be one ASCII character each (the record end can be \\r\\n)"
            )
        elif len(set(self._single_characters)) < len(self._single_characters):
            wrong = "a character serves two purposes"
        elif any(c in self.null for c in (self.field_separator, self.record_end, self.quote) if c):
            wrong = "the representation of NULL contains a separator or a quote"
        elif self.quote is not None and self.record_end != "\n":
            wrong = "in a format with quotes, records must end with a newline"
        if wrong:
            raise ConfigurationError(f"{self}: {wrong}")

    def chunks(
        self, location: Location, start: int, end: int, *, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[tuple[int, bytes]]:
        """Read whole records of a file from byte ``start`` to ``end``, with the first byte of each chunk.

        A record begins at ``start``. Memory holds one chunk, which is larger only if a single record is.

        Raises:
            DamagedRecordError: If the last record before ``end`` does not end there.
            EOFError: If the file has fewer bytes.
            OSError: If the file cannot be read.
        """
        rest, offset, at = b"", start, start
        with opened(location) as file:
            file.seek(start)
            while at < end:
                read = file.read(min(chunk_bytes, end - at))
                if not read:
                    raise EOFError(f"it has {at} bytes, but had {end} when it was listed")
                at += len(read)
                rest += read
                length = self._length_of_records(rest)
                if length:
                    yield offset, rest[:length]
                    offset, rest = offset + length, rest[length:]
        if rest:
            raise self._without_end(offset, rest)

    def columns(self, chunk: bytes, count: int) -> list[pa.Array]:
        """Return the fields of whole records, column by column.

        Args:
            chunk: whole records, at least one.
            count: number of fields of each record.

        Raises:
            DamagedRecordError: If a record has another number of fields, or does not follow the format.
        """
        found = self._fast_columns(chunk, count)
        if found is not None:
            return found
        rows = []
        for offset, fields in self.records(chunk):
            if len(fields) != count:
                reason = f"has {len(fields)} fields separated by {self.field_separator!r}, expected {count}"
                raise DamagedRecordError(offset, None, reason)
            rows.append(fields)
        return [pa.array([row[i] for row in rows], pa.string()) for i in range(count)]

    def records(self, chunk: bytes) -> Iterator[tuple[int, list[str | None]]]:
        """Read fields record by record, with the byte at which each record begins; slow.

        Raises:
            DamagedRecordError: If a record does not follow the format.
        """
        offset = 0
        while offset < len(chunk):
            fields, after = self._record(chunk, offset)
            yield offset, fields
            offset = after

    def check(self, chunk: bytes) -> None:
        """Check that the chunk consists of whole records, with any number of fields.

        Raises:
            DamagedRecordError: If a record does not follow the format.
        """
        if (
            self.quote is not None
            and self._escape is None
            and _is_utf8(chunk)
            and self._is_well_quoted(chunk)
        ):
            return
        for _ in self.records(chunk):
            pass

    @property
    def _single_characters(self) -> list[str]:
        marks = [self.field_separator, self.escape, self.quote if self.quote != self.escape else None]
        end = list(self.record_end) if self.record_end == "\r\n" else [self.record_end]
        return [c for c in marks if c is not None] + end

    @property
    def _escape(self) -> bytes | None:
        """The escape; None if there is none or if it equals the quote."""
        return None if self.escape is None or self.escape == self.quote else self.escape.encode()

    @property
    def _escaped(self) -> list[bytes]:
        """The pairs of the escape and a character that it can escape; the escape itself comes first."""
        if self._escape is None:
            return []
        others = [self.field_separator.encode(), *([self.quote.encode()] if self.quote else [])]
        return [self._escape + other for other in (self._escape, *others)]

    def _length_of_records(self, chunk: bytes) -> int:
        """Return the number of bytes at the beginning of the chunk that form whole records."""
        end = self.record_end.encode()
        last = chunk.rfind(end)
        if self.quote is not None:
            visible = chunk
            for escaped in self._escaped:
                visible = visible.replace(escaped, b"__")
            while last >= 0 and visible.count(self.quote.encode(), 0, last) % 2:
                last = chunk.rfind(end, 0, last)
        return last + len(end) if last >= 0 else 0

    def _fast_columns(self, chunk: bytes, count: int) -> list[pa.Array] | None:
        """Return the columns if Arrow is certain to read this chunk as :meth:`records` does; else None."""
        if chunk.startswith(_BYTE_ORDER_MARK) or not chunk.endswith(self.record_end.encode()):
            return None
        free = (chr(c) for c in _STAND_INS if chr(c).encode() not in chunk)
        stand_ins: dict[str, str] = {}
        for found in self._hidden_in(chunk):
            if found in chunk:
                stand_in = next(free, None)
                if stand_in is None:
                    return None
                chunk = chunk.replace(found, stand_in.encode())
                stand_ins[stand_in] = found.decode()
        chunk, stand_ins = self._with_newlines(chunk, stand_ins)
        if self.quote is not None and not self._is_well_quoted(chunk):
            return None
        columns = self._read(chunk, count)
        if columns is None or not self._is_plain(chunk, columns):
            return None
        for stand_in, found_text in stand_ins.items():
            original = found_text[-1]
            columns = [pc.replace_substring(column, stand_in, original) for column in columns]
        return columns

    def _hidden_in(self, chunk: bytes) -> list[bytes]:
        """Return the byte sequences that Arrow would read differently, in the order of their replacement.

        Most escapes belong to the representation of NULL. Reading the byte after each escape takes a quarter
        of the time of a search for the other pairs.
        """
        end = [] if self.record_end == "\n" else [self.record_end.encode(), b"\n"]
        return [*self._escaped_in(chunk), *end, b"\r"]

    def _escaped_in(self, chunk: bytes) -> list[bytes]:
        if self._escape is None:
            return []
        content = np.frombuffer(chunk, np.uint8)
        # The last byte ends a record.
        following = content[np.flatnonzero(content == ord(self._escape)) + 1]
        return [escaped for escaped in self._escaped if (following == escaped[1]).any()]

    def _with_newlines(self, chunk: bytes, stand_ins: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        """Return the chunk with newlines as record ends, and the remaining stand-ins."""
        if self.record_end == "\n":
            return chunk, stand_ins
        ends = {stand_in for stand_in, found in stand_ins.items() if found == self.record_end}
        for stand_in in ends:
            chunk = chunk.replace(stand_in.encode(), b"\n")
        return chunk, {stand_in: found for stand_in, found in stand_ins.items() if stand_in not in ends}

    def _is_well_quoted(self, chunk: bytes) -> bool:
        """Return True if quotes enclose only whole values; Arrow does not check that."""
        found = pc.match_substring_regex(pa.array([chunk], pa.binary()), self._quoted_pattern)
        return bool(found[0].as_py())

    @property
    def _quoted_pattern(self) -> str:
        quote, separator = (re.escape(c or "") for c in (self.quote, self.field_separator))
        doubled = f"|{quote}{quote}" if self.escape == self.quote else ""
        field = f"(?:{quote}(?:[^{quote}]{doubled})*{quote}|[^{quote}{separator}\\n]*)"
        return rf"\A(?:{field}(?:{separator}{field})*\n)*\z"

    def _read(self, chunk: bytes, count: int) -> list[pa.Array] | None:
        names = [str(i) for i in range(count)]
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(chunk),
                # No threads: Spark runs the tasks in parallel. One block: a record may exceed any block size.
                pyarrow.csv.ReadOptions(use_threads=False, block_size=len(chunk) + 1, column_names=names),
                pyarrow.csv.ParseOptions(
                    delimiter=self.field_separator,
                    quote_char=self.quote or False,
                    double_quote=self.escape is not None and self.escape == self.quote,
                    newlines_in_values=self.quote is not None,
                    ignore_empty_lines=False,
                ),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[self.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [column.combine_chunks() for column in table.columns]

    def _is_plain(self, chunk: bytes, columns: Sequence[pa.Array]) -> bool:
        """Return True if each escape belongs to a NULL, and no line is empty."""
        if pc.any(pc.equal(columns[0], "")).as_py():
            return False
        if self._escape is None:
            return True
        nulls = sum(column.null_count for column in columns)
        expected: int = nulls * self.null.encode().count(self._escape)
        return chunk.count(self._escape) == expected

    def _record(self, chunk: bytes, offset: int) -> tuple[list[str | None], int]:
        """Return the fields of the record at ``offset``, and the byte at which the next record begins."""
        fields: list[str | None] = []
        at = offset
        while True:
            value, at = self._field(chunk, offset, at, len(fields))
            fields.append(value)
            if chunk.startswith(self.record_end.encode(), at):
                return fields, at + len(self.record_end)
            if at == len(chunk):
                raise self._without_end(offset, chunk[offset:])
            if not chunk.startswith(self.field_separator.encode(), at):
                found = chunk[at : at + _SHOWN_BYTES]
                reason = f"continues with {found!r}, expected a separator or the record's end"
                raise DamagedRecordError(offset, len(fields) - 1, reason)
            at += 1

    def _field(self, chunk: bytes, record: int, at: int, number: int) -> tuple[str | None, int]:
        """Return the value of the field at ``at``, and the byte after it."""
        quoted, bare, escape = _patterns(self)
        is_quoted = self.quote is not None and chunk.startswith(self.quote.encode(), at)
        found = (quoted if is_quoted else bare).match(chunk, at)
        if found is None:
            raise DamagedRecordError(record, number, "begins with a quote that is never closed")
        null = self.null.encode()
        after_null = at + len(null)
        if not is_quoted and chunk.startswith(null, at) and self._ends_field(chunk, after_null):
            return None, after_null
        raw = escape.sub(rb"\1", found["value"])
        try:
            return raw.decode(), found.end()
        except UnicodeDecodeError as error:
            shown = raw[max(0, error.start - _SHOWN_BYTES // 2) : error.start + _SHOWN_BYTES // 2]
            raise DamagedRecordError(record, number, f"is not UTF-8: {shown!r}") from None

    def _ends_field(self, chunk: bytes, at: int) -> bool:
        return chunk.startswith((self.field_separator.encode(), self.record_end.encode()), at)

    @staticmethod
    def _without_end(offset: int, record: bytes) -> DamagedRecordError:
        shown = record if len(record) <= _SHOWN_BYTES else b"..." + record[-_SHOWN_BYTES:]
        return DamagedRecordError(offset, None, f"has no end; the file ends with {shown!r}")


def _is_utf8(chunk: bytes) -> bool:
    try:
        chunk.decode()
    except UnicodeDecodeError:
        return False
    return True


@functools.cache
def _patterns(text: DelimitedText) -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    """Compile patterns of a quoted value, an unquoted value, and an escape with the character after it."""
    quote = re.escape((text.quote or "").encode())
    separator, end = re.escape(text.field_separator.encode()), re.escape(text.record_end.encode())
    escape = re.escape((text.escape or "").encode())
    escaped = b"|".join(map(re.escape, text._escaped)) or b"(?!)"
    in_quotes = escaped if text.escape != text.quote else quote + quote
    own = escape if text.escape != text.quote else b""
    quoted = re.compile(
        rb"%b(?P<value>(?:[^%b%b]|%b)*+)%b" % (quote, quote, own, in_quotes, quote) if quote else b"(?!)"
    )
    bare = re.compile(rb"(?P<value>(?:(?!%b)[^%b%b%b]|%b)*+)" % (end, separator, quote, own, escaped))
    return quoted, bare, re.compile(escape + rb"(.)" if escape else rb"(?!)(.)", re.DOTALL)
