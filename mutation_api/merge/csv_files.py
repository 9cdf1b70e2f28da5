"""CSV files with a header, read as Arrow batches of a table's types, with exact checks that pyarrow lacks.

pyarrow is fast and lenient: it continues a field after its closing quote, and ends rows at a CR. Spark's
reader and other programs do not. Input that they might read differently is refused before it is passed to
pyarrow, so that all of them read the rest in the same way.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError, RecordLayoutError, RecordValueError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.hive_type import HiveType, MisfitError, arrow_type
from mutation_api.format.json_values import from_cells
from mutation_api.format.plain_array import repeated
from mutation_api.merge.file_rules import SAMPLE_ROWS, RowColumns, is_row_id, opened_text, row_id_part
from mutation_api.storage.location import Location

_MARK = b"\xef\xbb\xbf"
"""The UTF-8 byte order mark."""
_QUOTE, _CR, _LF, _COMMA = b'"\r\n,'
_FIELD_BORDERS = np.frombuffer(b",\r\n", np.uint8)


class StrictCsv(io.RawIOBase):
    """A stream that returns the bytes of another stream, without a byte order mark.

    Args:
        source: the other stream.
        shown: name of the file, for messages.
    """

    def __init__(self, source: io.BufferedIOBase, shown: str) -> None:
        super().__init__()
        self._source = source
        self._shown = shown
        head = source.read(len(_MARK))
        self._offset = len(head) if head == _MARK else 0
        self._head = b"" if head == _MARK else head
        self._previous = _LF
        self._is_quoted = False
        self._is_at_end = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer with the next bytes and return their number.

        Raises:
            ConfigurationError: If a quote or line ending is ambiguous, or if a byte is not text.
        """
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """Return up to ``size`` bytes, or none at the end.

        Raises:
            ConfigurationError: See :meth:`readinto`.
        """
        if size is None or size < 0:
            data, self._head = self._head + self._source.read(), b""
        else:
            head, self._head = self._head[:size], self._head[size:]
            data = head + self._source.read(size - len(head))
        start = self._offset
        self._offset += len(data)
        if data:
            self._check(data, start)
        elif size and not self._is_at_end:
            self._is_at_end = True
            if self._is_quoted:
                raise self._refused(self._offset, "a quoted field has no closing quote")
            if self._previous == _CR:
                raise self._refused(self._offset, "a carriage return that is not followed by a line feed")
        return data

    def _check(self, data: bytes, start: int) -> None:
        if b"\0" in data or b"\1" in data:
            at = min(at for at in (data.find(b"\0"), data.find(b"\1")) if at >= 0)
            raise self._refused(start + at, "a byte 0 or 1, which is not text")
        found = np.frombuffer(data, np.uint8)
        before = np.concatenate([np.array([self._previous], np.uint8), found[:-1]])
        quotes = np.flatnonzero(found == _QUOTE)
        self._check_quotes(found, before, quotes, start)
        if b"\r" in data or self._previous == _CR:
            self._check_line_ends(found, before, quotes, start)
        self._is_quoted ^= bool(len(quotes) % 2)
        self._previous = int(found[-1])

    def _check_quotes(
        self,
        found: NDArray[np.uint8],
        before: NDArray[np.uint8],
        quotes: NDArray[np.int64],
        start: int,
    ) -> None:
        """Check that quotes open a field at its start or close it at its end, or are written twice."""
        opens = np.arange(len(quotes)) % 2 == int(self._is_quoted)
        opening = quotes[opens]
        follows = np.isin(before[opening], _FIELD_BORDERS) | (before[opening] == _QUOTE)
        if not follows.all():
            at = int(opening[~follows][0])
            raise self._refused(start + at, "a quote in a field that does not begin with a quote")
        after_closing = quotes[~opens] + 1
        after_closing = after_closing[after_closing < len(found)]
        if self._previous == _QUOTE and not self._is_quoted:
            after_closing = np.concatenate([np.zeros(1, np.int64), after_closing])
        ends = np.isin(found[after_closing], _FIELD_BORDERS) | (found[after_closing] == _QUOTE)
        if not ends.all():
            at = int(after_closing[~ends][0])
            raise self._refused(start + at, "characters after the closing quote of a field")

    def _check_line_ends(
        self,
        found: NDArray[np.uint8],
        before: NDArray[np.uint8],
        quotes: NDArray[np.int64],
        start: int,
    ) -> None:
        """Check that an LF follows every CR that is not quoted."""
        after = np.flatnonzero((before == _CR) & (found != _LF))
        is_quoted = (np.searchsorted(quotes, after) + int(self._is_quoted)) % 2 == 1
        if not is_quoted.all():
            at = int(after[~is_quoted][0])
            raise self._refused(start + at, "a carriage return that is not followed by a line feed")

    def _refused(self, at: int, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._shown} cannot be read as csv: byte {at + 1:,}: {what}. Quote fields that contain "
            "commas, quotes or line endings, and write each quote within them twice"
        )


_TEXT = "string"
_COUNTED_ROWS = 1_000_000
"""The maximum number of rows to read again, in about a second, to find the line of an invalid value."""
_BLOCK_BYTES = 4 * 1024 * 1024
"""The number of bytes that are parsed at once; a row must not be longer."""


class CsvFile:
    """A CSV file. The constructor reads its header.

    Args:
        columns: the columns that the file may have.
        file: the file.

    Raises:
        RecordLayoutError: If columns are unknown, or if two have the same name.
        ConfigurationError: If the file cannot be read as CSV.
    """

    def __init__(self, columns: RowColumns, file: Location) -> None:
        self._columns = columns
        self.file = file
        self.names = self._header()
        self._known = columns.flat_types()
        self._types = columns.hive_types()
        columns.check(file, self.names, self._known)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns and their types. The columns of ROW__ID, if the file has them, are one struct."""
        row_id = [name for name in self.names if is_row_id(name)]
        fields = [pa.field(name, self._arrow(name)) for name in self.names if not is_row_id(name)]
        if not row_id:
            return pa.schema(fields)
        parts = [pa.field(row_id_part(name), self._arrow(name)) for name in row_id]
        return pa.schema([pa.field(ROW_ID_COLUMN, pa.struct(parts)), *fields])

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows. The columns get these names, which may differ in case from those of the file.

        Raises:
            RecordValueError: If values are not valid for their column's type.
            ConfigurationError: If the file cannot be read as CSV.
        """
        before = 0
        with opened_text(self.file) as text:
            for texts in self._texts(StrictCsv(text, self.file.shown)):
                yield self._typed(texts.rename_columns(list(names)), before)
                before += texts.num_rows

    def _header(self) -> list[str]:
        with self._records() as records:
            found = next((row for _, row in records), [])
        doubled = repeated(found, any_case=True)
        if doubled or "" in found:
            what = f"duplicate columns (ignoring case): {', '.join(doubled)}" if doubled else "an empty name"
            raise RecordLayoutError(f"{self.file.shown}: its header has {what}; found {', '.join(found)}")
        return found

    @contextlib.contextmanager
    def _records(self) -> Iterator[Iterator[tuple[int, list[str]]]]:
        """Yield the start line and the fields of each record. The first record is the header."""
        with opened_text(self.file) as text:
            lines = io.TextIOWrapper(
                io.BufferedReader(StrictCsv(text, self.file.shown)), encoding="utf-8", newline=""
            )
            try:
                yield _numbered(lines)
            except (csv.Error, UnicodeDecodeError) as error:
                raise self._unreadable(error) from error
            lines.detach()

    def _texts(self, source: StrictCsv) -> Iterator[pa.RecordBatch]:
        if not self.names:
            return
        try:
            reader = pyarrow.csv.open_csv(
                source,
                read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            yield from reader
        except pa.ArrowInvalid as error:
            raise self._unreadable(error) from error

    def _typed(self, texts: pa.RecordBatch, before: int) -> pa.RecordBatch:
        values: dict[str, pa.Array] = {}
        misfits: list[tuple[int, str, str]] = []
        for name, column in zip(texts.schema.names, texts.columns, strict=True):
            try:
                values[name] = from_cells(column, self._type(name))
            except MisfitError as misfit:
                misfits.append((misfit.row, name, misfit.reason))
        if misfits:
            raise self._wrong(texts, sorted(misfits)[:SAMPLE_ROWS], before)
        return pa.RecordBatch.from_arrays(
            [
                self._row_ids(texts, values) if field.name == ROW_ID_COLUMN else values[field.name]
                for field in self._spelled(texts.schema.names)
            ],
            schema=self._spelled(texts.schema.names),
        )

    def _spelled(self, names: Sequence[str]) -> pa.Schema:
        spelling = {name.lower(): name for name in names if not is_row_id(name)}
        return pa.schema([f.with_name(spelling.get(f.name.lower(), f.name)) for f in self.schema])

    def _row_ids(self, texts: pa.RecordBatch, values: Mapping[str, pa.Array]) -> pa.StructArray:
        """Return ROW__ID, which is null if all its fields are."""
        names = [name for name in texts.schema.names if is_row_id(name)]
        absent = values[names[0]].is_null()
        for name in names[1:]:
            absent = pc.and_(absent, values[name].is_null())
        fields = list(self.schema.field(ROW_ID_COLUMN).type)
        return pa.StructArray.from_arrays([values[name] for name in names], fields=fields, mask=absent)

    def _type(self, name: str) -> HiveType:
        return self._types.get(name.lower(), HiveType(_TEXT))

    def _arrow(self, name: str) -> pa.DataType:
        return arrow_type(self._type(name), timestamp_unit="us")

    def _wrong(
        self, texts: pa.RecordBatch, misfits: Sequence[tuple[int, str, str]], before: int
    ) -> RecordValueError:
        rows = {row: tuple(column[row].as_py() for column in texts.columns) for row, _, _ in misfits}
        lines = self._lines({before + row: shown for row, shown in rows.items()})
        samples = []
        for row, name, reason in misfits:
            value = texts.column(texts.schema.get_field_index(name))[row].as_py()
            line = lines.get(before + row)
            samples.append(
                f"column {name} ({self._known.get(name.lower(), _TEXT)}) has {value!r} in row "
                f"{rows[row]!r}{'' if line is None else f', line {line:,}'}: it {reason}"
            )
        return RecordValueError(
            f"{self.file.shown}, table {self._columns.table.full_name}: invalid values: {'; '.join(samples)}"
        )

    def _lines(self, wanted: Mapping[int, tuple[str | None, ...]]) -> dict[int, int]:
        """Return the line numbers of rows; empty if this would take too long or if the file has changed."""
        if max(wanted) >= _COUNTED_ROWS:
            return {}
        found = {}
        with contextlib.suppress(ConfigurationError), self._records() as records:
            for number, (line, fields) in enumerate(itertools.islice(records, 1, max(wanted) + 2)):
                if number in wanted and fields == [text or "" for text in wanted[number]]:
                    found[number] = line
        return found

    def _unreadable(self, error: Exception) -> ConfigurationError:
        return ConfigurationError(f"{self.file.shown} cannot be read as csv: {error}")


def _numbered(lines: io.TextIOWrapper) -> Iterator[tuple[int, list[str]]]:
    """Yield records and their lines. Empty lines are skipped, as Arrow does."""
    reader, before = csv.reader(lines, strict=True), 0
    for record in reader:
        if record:
            yield before + 1, record
        before = reader.line_num
