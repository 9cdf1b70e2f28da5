"""The search for keys in one file, whether a reader would look at it or not.

No rule of a snapshot applies: each row of each stripe counts, even if it was deleted, aborted or never
published. The ranges that ORC records for a file, its stripes and its groups of rows are compared with the
keys as well, since their ends are values.

A file counts as searched only if all of its bytes have a known meaning. Everything else is a file that could
not be searched, with the reason.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mutation_api.errors import CorruptFileError, MutationError
from mutation_api.format.event import EVENT_FIELDS, ROW
from mutation_api.format.hive_type import HiveType, TypeFamily, parse_hive_type
from mutation_api.format.layout import ACID_VERSION_FILE, FLUSH_LENGTH_SUFFIX
from mutation_api.orc.format.checked_file import FAULTS
from mutation_api.orc.format.protobuf import MAGIC
from mutation_api.orc.format.stored_values import column_id, comparable_range
from mutation_api.orc.format.stripe_sections import parse_stripe_footer
from mutation_api.orc.format.tail import OrcTail, tail_of
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.orc.read.file_columns import FileColumns, Wanted, names_in_file
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.connect import storage_at
from mutation_api.storage.protocol import FileEntry
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.upkeep.verify.recorded_statistics import parse_recorded, row_group_statistics

_CHUNK_BYTES = 8 * 1024 * 1024
_NAMELESS = re.compile(r"_col[0-9]+")
_MARKS = {
    ACID_VERSION_FILE: re.compile(rb"[0-9]\n?|\0\0\0[\0-\x09]"),  # a digit, or an int of Hive 2
    "_metadata_acid": re.compile(rb'\{("(thisFileVersion|dataFormat)":"[a-z0-9]{0,16}",?)*\}\n?'),
    "_SUCCESS": re.compile(rb""),
}
"""Small files of Hive by name, and all that they may contain."""
_CHECKSUMS_MAGIC = b"crc\x00"
"""The beginning of the file of checksums that Hadoop keeps beside a file on a local disk."""


@dataclass(frozen=True)
class SoughtKeys:
    """The keys that are sought in one column of a table.

    ``keys`` has one column, of the type in which the table's rows are read. ``is_in_path`` is True if the
    column is a partition column, so that no file has it.
    """

    table: AcidTable
    column: AcidColumn
    keys: KeyFilter

    @property
    def is_in_path(self) -> bool:
        """True if the values are in names of directories, not in files."""
        return self.column.name in self.table.partition_key_names

    def count(self, values: pa.Array) -> int:
        """Return how many values are one of the keys."""
        return len(self.keys.find([values]))

    def has(self, value: Any) -> bool:
        """Return True if a value, in the form of ``KeyFilter.meets``, is one of the keys."""
        return self.keys.meets(self.column.name, value, value)

    def has_python(self, value: object) -> bool:
        """Return True if a value of Python is one of the keys."""
        kind = self.keys.keys.schema.types[0]
        try:
            return bool(self.count(pa.array([value], kind)))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return False  # no value of the column


@dataclass(frozen=True)
class SearchedFile:
    """One file. ``checksum`` is the SHA-256 of its bytes.

    ``found_rows`` is the number of its rows with a key. ``found_in_statistics`` is the number of recorded
    ends of ranges that are a key. ``reason`` says why the file could not be searched; '' if it was.
    """

    entry: FileEntry
    checksum: str
    row_count: int = 0
    found_rows: int = 0
    found_in_statistics: int = 0
    reason: str = ""

    @property
    def is_free(self) -> bool:
        """True if the file was searched and holds none of the keys."""
        return not (self.found_rows or self.found_in_statistics or self.reason)


def search_file(
    sought: SoughtKeys, entry: FileEntry, *, is_sought_partition: bool | None = None
) -> SearchedFile:
    """Search a file.

    Args:
        sought: the keys.
        entry: the file.
        is_sought_partition: for keys of a partition column, True if the file belongs to a partition of one of
            them. If None, its partition is not known.

    Raises:
        FileNotFoundError: If the file was removed meanwhile.
    """
    try:
        checksum, start = _read_through(entry)
    except FileNotFoundError:
        raise
    except OSError as error:
        return SearchedFile(entry, "", reason=f"it cannot be read: {error}")
    if not start or _is_without_rows(entry, start):
        return SearchedFile(entry, checksum)
    if not start.startswith(MAGIC):
        return SearchedFile(entry, checksum, reason="it is not an ORC file, so its rows cannot be decoded")
    try:
        found = _OrcSearch(sought, entry).run(is_sought_partition)
    except FileNotFoundError:
        raise
    except (MutationError, *FAULTS) as error:
        return SearchedFile(entry, checksum, reason=f"it cannot be decoded: {error}")
    rows, hits, in_statistics, reason = found
    return SearchedFile(entry, checksum, rows, hits, in_statistics, reason)


def _read_through(entry: FileEntry) -> tuple[str, bytes]:
    """Return the SHA-256 of all bytes, and the first chunk."""
    digest, start = hashlib.sha256(), b""
    with storage_at(entry.location).open_input(entry.location) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            start = start or chunk
    return digest.hexdigest(), start


def _is_without_rows(entry: FileEntry, content: bytes) -> bool:
    """Return True if the file is one of those that belong to ACID directories and cannot hold a value."""
    pattern = _MARKS.get(entry.name)
    if pattern is not None:
        return pattern.fullmatch(content) is not None
    if entry.name.endswith(FLUSH_LENGTH_SUFFIX):
        return entry.size % 8 == 0  # lengths, 8 bytes each
    is_checksums = entry.name.startswith(".") and entry.name.endswith(".crc")
    return is_checksums and content.startswith(_CHECKSUMS_MAGIC) and entry.size % 4 == 0


@dataclass(frozen=True)
class _OrcSearch:
    sought: SoughtKeys
    entry: FileEntry

    def run(self, is_sought_partition: bool | None) -> tuple[int, int, int, str]:
        """Return the numbers of rows, of rows found, of statistics found, and the reason if it failed."""
        location = self.entry.location
        with storage_at(location).open_input(location) as stream:
            tail = tail_of(stream)
            reason = _unknown_bytes(stream, tail)
        table, options = self.sought.table, self._options
        source = OrcInput(storage_at(location), location, None, options)
        rows = sum(source.stripe_rows(index) for index in range(source.stripe_count))
        if reason or not rows:
            return rows, 0, 0, reason
        is_event = [name.lower() for name in source.schema.names] == [name.lower() for name in EVENT_FIELDS]
        struct = source.schema.names[-1] if is_event else None
        if self.sought.is_in_path:
            return self._by_partition(rows, is_sought_partition, is_event=is_event)
        fields = source.schema if struct is None else source.schema.field(struct).type
        if struct is not None and not pa.types.is_struct(fields):
            return rows, 0, 0, f"its column {ROW} is {fields}, not a row of the table"
        names = [field.name for field in fields]
        wanted = Wanted.of(table, (self.sought.column,), options, row_ids=False)
        in_file = names_in_file(names, wanted)
        if not _is_of_table(names, table):
            return rows, 0, 0, f"its columns ({', '.join(names)[:200]}) are not those of the table"
        if self.sought.column.name not in in_file:
            return rows, 0, 0, ""  # added to the table later
        file = EventFile(location, EventFileKind.ORIGINAL, -1, 0, 0, byte_count=self.entry.size)
        columns = FileColumns(source, file, wanted, in_file, struct)
        found = sum(self._count(columns, index) for index in range(source.stripe_count))
        return rows, found, self._in_statistics(source, tail, columns.early_names[0]), ""

    @property
    def _options(self) -> ReadOptions:
        version = self.sought.table.version
        return ReadOptions(
            TimestampForm.MICROSECONDS,
            is_proleptic=version.counts_days_proleptic,
            release=version.hive_release,
        )

    def _by_partition(
        self, rows: int, is_sought: bool | None, *, is_event: bool
    ) -> tuple[int, int, int, str]:
        if is_sought is None:
            return rows, 0, 0, "the partition of its rows is not known"
        return rows, rows if is_sought and not self._holds_only_deletes(is_event=is_event) else 0, 0, ""

    def _holds_only_deletes(self, *, is_event: bool) -> bool:
        """Return True for a file of deletes, which has ROW__IDs and no values."""
        return is_event and self.entry.location.parent.name.startswith("delete_delta_")

    def _count(self, columns: FileColumns, index: int) -> int:
        batch = columns.source.read_stripe(index, columns.early_names)
        values = columns.read((self.sought.column,), batch)[self.sought.column.name]
        return self.sought.count(values)

    def _in_statistics(self, source: OrcInput, tail: OrcTail, name: str) -> int:
        """Return how many ends of recorded ranges of a column are keys."""
        number = column_id(source.schema, name)
        outer, _, inner = name.partition(".")
        file_type = source.schema.field(outer).type
        file_type = file_type.field(inner).type if inner else file_type
        kind = _kind_in_statistics(self.sought.column)
        ends = [comparable_range(statistics, file_type, kind) for statistics in self._recorded(tail, number)]
        return sum(self._is_key(end) for ends_of_one in ends if ends_of_one for end in ends_of_one)

    def _is_key(self, end: Any) -> bool:
        if isinstance(end, bytes) and self.sought.column.type.startswith("char"):
            end = end.rstrip(b" ")
        return self.sought.has(end)

    def _recorded(self, tail: OrcTail, number: int) -> Iterator[bytes]:
        """Yield the statistics of a column for the file, its stripes, and their groups of rows."""
        location, behind = self.entry.location, tail.footer_length + tail.postscript_length + 1
        with storage_at(location).open_input(location) as stream:
            length = tail.statistics_length + behind
            recorded = parse_recorded(stream.read_at(length, stream.size() - length), tail, [number])
            yield from recorded.file.values()
            for stripe_statistics in recorded.stripes:
                yield from stripe_statistics.values()
            for stripe in tail.stripes:
                footer_at = stripe.end - stripe.footer_length
                footer = parse_stripe_footer(stream.read_at(stripe.footer_length, footer_at), tail, stripe)
                index = stream.read_at(stripe.index_length, stripe.offset)
                groups = row_group_statistics(index, footer, tail, stripe, [number])
                yield from groups.get(number, ())


def _kind_in_statistics(column: AcidColumn) -> HiveType:
    """Return the type in which the ends of a column's ranges are compared."""
    kind = parse_hive_type(column.type)
    return parse_hive_type("string") if kind.family is TypeFamily.TEXT else kind


def _is_of_table(names: list[str], table: AcidTable) -> bool:
    """Return True if the columns of a file are those of the table, or were when it was written."""
    if all(_NAMELESS.fullmatch(name) for name in names):
        return len(names) <= len(table.columns)
    if table.matches_columns_by_position:
        return len(names) <= len(table.columns)
    known = {column.name for column in table.columns}
    return all(name.lower() in known for name in names)


def _unknown_bytes(stream: Any, tail: OrcTail) -> str:
    """Return where a file has bytes other than zero that belong to none of its parts; '' if nowhere."""
    size = stream.size()
    data_end = size - tail.footer_length - tail.postscript_length - 1 - tail.statistics_length
    starts = [*(stripe.offset for stripe in tail.stripes), data_end]
    ends = [len(MAGIC), *(stripe.end for stripe in tail.stripes)]
    for end, start in zip(ends, starts, strict=True):
        if start > end and any(stream.read_at(start - end, end)):
            return f"its bytes {end} to {start} belong to no stripe, so they cannot be decoded"
    if ends[-1] > data_end:
        raise CorruptFileError(f"its stripes end at byte {ends[-1]}, but its tail begins at {data_end}")
    return ""
