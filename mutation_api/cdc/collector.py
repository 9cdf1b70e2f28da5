"""The binlog collector's raw files, as a change source.

A raw file has a line for each operation on one table, in the order of the binlog::

    INSERT,2383c7d07bce3c82e6da7741782de416,"20001","name1",11

A line consists of operation, uid, and the row's columns. The collector's description leaves some rules open.
This module uses the following ones:

* **uid** is the md5 of the key as a string, in lower-case hexadecimal digits. For one key column, the string
  is the value without quotes. For several, each value is in quotes, quotes in it are written twice, and
  commas join the values (``"a","7"``).
* Strings are in quotes, and quotes in them are written twice; they can contain commas and newlines. Numbers
  need no quotes. NULL is the word ``NULL`` without quotes.
* An update that changes the key is a DELETE of the old row and an INSERT of the new one.
* Only the last operation of each key takes effect. This equals the collector's walk from the end to the
  beginning, and it also drops the duplicates of a log that was read twice. The collector's reverse, upsert
  and delete files are not needed.

A raw file has no positions. The position of a record is its file's number and the byte at which it begins.
The number is the last run of digits in the file's name, or 0. A run continues in the same file where the last
run ended, and then reads files with greater numbers. New records must therefore be appended to the last file,
or written to one with a greater number. A watermark also has a fingerprint of the bytes before it, so that a
replaced file is refused instead of being read from its middle. Older files are not read again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pyarrow as pa

from mutation_api.cdc.delimited_text import DelimitedText
from mutation_api.cdc.record_files import (
    Chunk,
    FileColumns,
    RecordFile,
    operation_names,
    operations_batch,
    refuse_nulls,
    refuse_others,
)
from mutation_api.cdc.source import LocalBatch, LocalOperations, OperationParts, Position, SourceTable
from mutation_api.cdc.source_url import LocationsLike, all_located, children, entry_at, fingerprint, readable
from mutation_api.errors import ConfigurationError, InputFormatError, SourcePositionError
from mutation_api.format.text_values import BinaryEncoding
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry

TEXT = DelimitedText(",", null="NULL", escape='"', quote='"')

POSITION_PARTS = ("file", "byte", "row")
"""The numbers of a position: that of the file, the offset of the chunk, and the row in that chunk."""

_OPERATIONS = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_HEADER = ("operation", "uid")


def uid_of(key: Sequence[str]) -> str:
    """Return the uid of a row; ``key`` has the values of the key columns as strings, in their order."""
    text = key[0] if len(key) == 1 else ",".join(_quoted(value) for value in key)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


@dataclass(frozen=True)
class CollectorSource:
    """The raw files of one table.

    Args:
        files: one or several raw files, or directories of raw files of the table, on any storage. A directory
            may also have hidden files, and files that Hadoop is still copying; they are ignored.
        name: name of the source in the watermarks, after ``collector:``.
        columns: names of the columns in the files' order. If None, the target's, with partition columns last.
        binary: format of binary values in the files; required for tables with binary columns.
    """

    files: LocationsLike
    name: str
    _: KW_ONLY
    columns: Sequence[str] | None = None
    binary: BinaryEncoding | None = None

    @property
    def source_id(self) -> str:
        """The name of this source in the watermarks: ``collector:`` and ``name``."""
        return f"collector:{self.name}"

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """Read the operations after the watermark. See :class:`~mutation_api.cdc.source.LocalChangeSource`.

        Errors within the files are raised when the operations are evaluated.

        Raises:
            ConfigurationError: If there are no files, several tables, or no key.
            InputFormatError: If two files have the same number in their names, or if a file does not end with
                a whole record.
            SourcePositionError: If the file that was read up to the watermark is gone or was replaced.
            RecordLayoutError: If the files' columns and the target's differ.
            InputError: If the files cannot be read.
        """
        if len(tables) != 1:
            raise ConfigurationError(
                f"{self.source_id}: raw files have the operations of one table: got {len(tables)} tables"
            )
        (table,) = tables
        with readable(self.source_id):
            parts = self._parts(table, after.get(table.name))
            if not parts.ranges:
                return LocalBatch((), None)
            position = _position(parts.ranges[-1])
        return LocalBatch((LocalOperations(table, parts),), position)

    def _parts(self, table: SourceTable, after: Position | None) -> _Parts:
        layout = _Layout.of(self, table)
        files = _outstanding(_numbered(all_located(self.files)), after)
        return _Parts(layout, tuple(each for each in files if each.start < each.end))


@dataclass(frozen=True)
class _Range:
    """The bytes of a file that a run reads."""

    number: int
    location: Location
    start: int
    end: int


@dataclass(frozen=True)
class _Layout:
    """The columns of a table's records; ``target_names`` are the target's columns in its order."""

    target_names: tuple[str, ...]
    key: tuple[str, ...]
    columns: FileColumns

    @classmethod
    def of(cls, source: CollectorSource, table: SourceTable) -> _Layout:
        columns = FileColumns.of(table.target, source.columns, binary=source.binary)
        key = tuple(name.lower() for name in table.key)
        if not key or not set(key) <= set(columns.names):
            raise ConfigurationError(
                f"{source.source_id}: {list(table.key)} cannot be the key of table {table.target.full_name}: "
                f"name the columns whose md5 is the uid, from {', '.join(columns.names)}"
            )
        return cls(tuple(c.name for c in table.target.all_columns), key, columns)

    @property
    def field_names(self) -> tuple[str, ...]:
        return (*_HEADER, *self.columns.names)

    def operations(self, chunk: Chunk, file_number: int) -> pa.RecordBatch:
        """Return the operations of a chunk's records. Raises FieldError."""
        codes, uids = chunk.texts[: len(_HEADER)]
        operations = operation_names(codes, _OPERATIONS)
        texts = dict(zip(self.columns.names, chunk.texts[len(_HEADER) :], strict=True))
        self._check_uids(uids, [texts[name] for name in self.key])
        rows = np.arange(len(chunk), dtype=np.int64)
        parts = (np.full_like(rows, file_number), np.full_like(rows, chunk.offset), rows)
        position = dict(zip(POSITION_PARTS, map(pa.array, parts), strict=True))
        values = self.columns.typed(list(texts.values()))
        return operations_batch(self.target_names, operations, position, values)

    def _check_uids(self, uids: pa.Array, key: Sequence[pa.Array]) -> None:
        """Compare row by row, 1 µs each, since Arrow cannot compute an md5."""
        for name, values in zip(self.key, key, strict=True):
            refuse_nulls(values, f"column {name!r}", "is NULL, but it is part of the key")
        wanted = pa.array([uid_of(each) for each in zip(*(k.to_pylist() for k in key), strict=True)])
        reason = f"is {{}}, which is not the md5 of the key ({', '.join(self.key)})"
        refuse_others(uids, wanted, "field uid", reason)


@dataclass(frozen=True)
class _Parts(OperationParts):
    """The outstanding ranges of files.

    Each is one part, because records are found only by a scan from the start.
    """

    layout: _Layout
    ranges: tuple[_Range, ...]

    @property
    def part_count(self) -> int:
        return len(self.ranges)

    @property
    def byte_count(self) -> int:
        return sum(each.end - each.start for each in self.ranges)

    @property
    def locations(self) -> Sequence[Location]:
        return [each.location for each in self.ranges]

    @property
    def position(self) -> Sequence[str]:
        return POSITION_PARTS

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        found = self.ranges[number]
        file = RecordFile(found.location, found.start, found.end, TEXT, self.layout.field_names)
        for chunk in file.chunks():
            with chunk.located():
                operations = self.layout.operations(chunk, found.number)
            yield operations


def _raw_files(given: Location) -> list[FileEntry]:
    """Return the file, or the files in the directory. Raises OSError."""
    entry = entry_at(given)
    if entry is None:
        raise ConfigurationError(f"raw file {given.shown} does not exist")
    found = children(given) if entry.is_directory else [entry]
    for each in found:
        if each.is_directory:
            raise InputFormatError(f"{each.location.shown}: found a directory, expected only raw files")
    return found


def _numbered(given: Sequence[Location]) -> list[_Range]:
    """Return the ranges of whole files, sorted by number."""
    found: dict[int, _Range] = {}
    for entry in dict.fromkeys(entry for location in given for entry in _raw_files(location)):
        digits = re.findall(r"\d+", entry.name)
        number = int(digits[-1]) if digits else 0
        if number in found:
            raise InputFormatError(
                f"{entry.location.shown}: the number at the end of its name is {number}, as for "
                f"{found[number].location.shown}, so it is not known which file is later"
            )
        found[number] = _Range(number, entry.location, 0, entry.size)
    return [found[number] for number in sorted(found)]


def _outstanding(files: Sequence[_Range], after: Position | None) -> list[_Range]:
    """Return the ranges of files after the watermark. Raises SourcePositionError: See ``read``."""
    if after is None:
        return list(files)
    number, end = after.order
    later = [file for file in files if file.number > number]
    same = [file for file in files if file.number == number]
    if same:
        _check_fingerprint(same[0], end, after)
        return [dataclasses.replace(same[0], start=end), *later]
    if files and not later:
        raise SourcePositionError(
            f"found raw files up to number {files[-1].number}, but {after.text} has already been applied; "
            "new files must have a greater number in their names"
        )
    return later


def _check_fingerprint(file: _Range, end: int, after: Position) -> None:
    known = json.loads(after.text)["md5"]
    if file.end < end or fingerprint(file.location, end) != known:
        raise SourcePositionError(
            f"{file.location.shown} is not the file that was read up to {after.text}: it is shorter, or "
            "its bytes before that position differ. Give the file of a new collection a greater number, "
            "or restore the old file"
        )


def _position(last: _Range) -> Position:
    md5 = fingerprint(last.location, last.end)
    text = {"file": last.location.name, "number": last.number, "byte": last.end, "md5": md5}
    return Position((last.number, last.end), json.dumps(text))
