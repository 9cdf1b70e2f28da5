"""The files that Tungsten Replicator stages for a table: which are new, and the records in them.

Source: Tungsten Replicator's manual ("Hadoop Replication Operation", "Supported CSV Formats"), its CsvWriter
for escapes, and the README of continuent-tools-hadoop for records without a key field.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.cdc.delimited_text import DamagedRecordError, DelimitedText
from mutation_api.cdc.record_files import (
    Chunk,
    FieldError,
    FileColumns,
    RecordFile,
    operation_names,
    operations_batch,
    refuse_nulls,
    refuse_others,
)
from mutation_api.cdc.source import CHANGED_AT, POSITION
from mutation_api.cdc.source_url import children, opened
from mutation_api.errors import InputFormatError
from mutation_api.format.hive_type import HiveType, MisfitError
from mutation_api.format.text_values import values_of_texts
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn

SPLIT_BYTES = 32 * 1024 * 1024
"""The size in bytes above which a file is read by several tasks."""

_TAIL_BYTES = 64 * 1024
"""The number of bytes of one read in the search for the last record."""


@dataclass(frozen=True)
class StagingFile:
    """A file as it was listed; ``number``, from its name, is the first sequence number in it."""

    location: Location
    number: int
    size: int

    @property
    def folder(self) -> Location:
        """The directory of the file."""
        return self.location.parent


def folders(parent: Location) -> list[Location]:
    """List the directories in a directory by name, without hidden ones."""
    return [entry.location for entry in children(parent) if entry.is_directory]


def staging_files(folder: Location, table: str) -> list[StagingFile]:
    """List the files of a table, sorted by directory and number.

    Raises:
        InputFormatError: If the name of a file is not that of a staging file of the table.
    """
    return sorted(_files(folder, re.compile(rf"{re.escape(table)}-(\d+)\.csv")), key=_folder_and_number)


def outstanding_files(files: Sequence[StagingFile], after: tuple[int, int] | None) -> list[StagingFile]:
    """Return the files that may have records after this (sequence number, row id).

    The last sequence number of a file is at most the first one of the next file in its directory.
    """
    if after is None:
        return list(files)
    seqno = after[0]
    found = []
    for together in by_folder(files):
        found += [file for file, following in pairwise(together) if following.number >= seqno]
        found.append(together[-1])
    return found


def by_folder(files: Sequence[StagingFile]) -> list[list[StagingFile]]:
    """Group sorted files by directory."""
    return [list(group) for _, group in groupby(files, key=lambda file: file.folder)]


def last_record(file: StagingFile, text: DelimitedText) -> tuple[int, list[str | None]]:
    """Return the byte at which the last record of a file begins, and its fields; the file is not empty.

    If the format has quotes, the file is read from its beginning.

    Raises:
        DamagedRecordError: If the file does not end with a whole record, or if that record does not follow
            the format.
    """
    end = text.record_end.encode()
    start = 0 if text.quote is not None else _start_of_last(file, end)
    last: tuple[int, list[str | None]] | None = None
    for offset, chunk in text.chunks(file.location, start, file.size):
        try:
            for at, fields in text.records(chunk):
                last = offset + at, fields
        except DamagedRecordError as damaged:
            raise damaged.moved(offset) from damaged
    assert last is not None
    return last


def splits(file: StagingFile, text: DelimitedText, split_bytes: int = SPLIT_BYTES) -> list[tuple[int, int]]:
    """Split a file into ranges of bytes of whole records.

    If the format has quotes, a file is one range: only a scan from its beginning finds the newlines that end
    a record.
    """
    if text.quote is not None or file.size <= split_bytes:
        return [(0, file.size)]
    starts = [0]
    with opened(file.location, read_bytes=_TAIL_BYTES) as stream:
        for wanted in range(split_bytes, file.size, split_bytes):
            stream.seek(wanted)
            after = _after_end(stream, text.record_end.encode())
            if starts[-1] < after < file.size:
                starts.append(after)
    return list(pairwise([*starts, file.size]))


def _folder_and_number(file: StagingFile) -> tuple[Location, int]:
    return file.folder, file.number


def _files(folder: Location, pattern: re.Pattern[str]) -> Iterator[StagingFile]:
    for entry in children(folder):
        if entry.is_directory:
            yield from _files(entry.location, pattern)
            continue
        number = pattern.fullmatch(entry.name)
        if number is None:
            raise InputFormatError(
                f"{entry.location.shown}: the name of a staging file in this directory must be like "
                f"{pattern.pattern.partition('-')[0]}-1318.csv; if it is not a staging file, move it away"
            )
        yield StagingFile(entry.location, int(number[1]), entry.size)


def _start_of_last(file: StagingFile, end: bytes) -> int:
    """Return the byte at which the last record of the file begins: after the end of the one before."""
    with opened(file.location, read_bytes=_TAIL_BYTES) as stream:
        at, tail = file.size, b""
        while at:
            length = min(_TAIL_BYTES, at)
            at -= length
            stream.seek(at)
            tail = stream.read(length) + tail
            before = tail.rfind(end, 0, len(tail) - len(end))
            if before >= 0:
                return at + before + len(end)
    return 0


def _after_end(file: BinaryIO, end: bytes) -> int:
    """Return the byte after the next record end, or the file's size if there is none."""
    start, read = file.tell(), b""
    while end not in read:
        more = file.read(_TAIL_BYTES)
        if not more:
            return start + len(read)
        read += more
    return start + read.index(end) + len(end)


TEXT_DEFAULT = DelimitedText("\x01")
r"""Tungsten's CSV type "hive": 0x01 between fields, ``\N`` for NULL, a backslash before 0x01 and itself."""


class HeaderField(enum.Enum):
    """The meaning of a field before the table's columns."""

    OPERATION = "operation"
    """The operation: ``I`` or ``D``; ``UI`` and ``UD`` if a replicator marks the two halves of an update."""
    SEQNO = "seqno"
    """The number of the source's event."""
    ROW_ID = "row_id"
    """The number of the row, which increases within a file."""
    COMMIT_TIMESTAMP = "commit_timestamp"
    """The time at which the source's transaction was committed."""
    KEY = "key"
    """The primary key, with one field for each of its columns."""
    SERVICE = "service"
    """The replication service, which must be that of the directory."""


HEADER_WITHOUT_KEY = (
    HeaderField.OPERATION,
    HeaderField.SEQNO,
    HeaderField.ROW_ID,
    HeaderField.COMMIT_TIMESTAMP,
)
"""The header of records without a field for the key."""

HEADER_DEFAULT = (*HEADER_WITHOUT_KEY, HeaderField.KEY)
"""The header of records by default: operation, sequence number, row id, commit time and key."""

POSITION_PARTS = ("seqno", "row_id", "step")
"""The numbers of a position; ``step`` is 0 for deletes and 1 for inserts, which may have the same row id."""

_OPERATIONS = {"I": "insert", "D": "delete", "UI": "insert", "UD": "delete"}
_BIGINT, _TIMESTAMP = HiveType("bigint"), HiveType("timestamp")
_TIME_FORMATS = {"date": "%Y-%m-%d", "timestamp": "%Y-%m-%d %H:%M:%S"}


@dataclass(frozen=True)
class CommitColumn:
    """A column of the target that is computed from the commit timestamp.

    ``time_format``: ``strftime`` format of its value. If None, the usual form of a timestamp or date.
    """

    column: AcidColumn
    time_format: str | None = None

    def texts(self, timestamps: pa.Array) -> pa.Array:
        """Format the timestamps as strings."""
        # Arrow prints %S with six fractional digits.
        chosen = self.time_format or _TIME_FORMATS.get(self.column.type, _TIME_FORMATS["date"])
        return pc.strftime(timestamps, chosen)


@dataclass(frozen=True)
class RecordLayout:
    """The fields of a table's records in their order, and the columns of the target that they fill.

    ``target_names``: the target's columns in its order. ``key``: the columns that identify a row.
    ``columns``: the columns in the file. ``commit_columns``: the columns computed from the commit timestamp.
    ``has_times``: True if operations have the commit timestamp as the time of the change.
    """

    target_names: tuple[str, ...]
    header: tuple[HeaderField, ...]
    key: tuple[str, ...]
    columns: FileColumns
    commit_columns: tuple[CommitColumn, ...]
    service: str
    has_times: bool = False

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of a record's fields, for messages."""
        return tuple(name for names in self._header_names for name in names) + self.columns.names

    def field_index(self, wanted: HeaderField) -> int:
        """Return the index of a header field, or the index of its first column if it has several."""
        before = self._header_names[: self.header.index(wanted)]
        return sum(len(names) for names in before)

    def batches(
        self, file: RecordFile, first_seqno: int, after: tuple[int, int] | None
    ) -> Iterator[pa.RecordBatch]:
        """Read the operations of a file, many at a time, as :func:`operations_batch` returns them.

        Args:
            file: the file, or a part of it.
            first_seqno: the number in its name.
            after: sequence number and row id. Records up to this position are left out.

        Raises:
            InputFormatError: If a record is damaged or out of order, or if a field has an invalid value.
            RecordValueError: If a value does not fit its column.
        """
        before = (first_seqno, -1, 0)
        for chunk in file.chunks():
            with chunk.located():
                batch, before = self._operations(chunk, before)
            yield batch if after is None else _later(batch, after)

    @property
    def _header_names(self) -> list[list[str]]:
        return [
            [f"key {name}" for name in self.key] if each == HeaderField.KEY else [each.value]
            for each in self.header
        ]

    def _operations(
        self, chunk: Chunk, before: tuple[int, int, int]
    ) -> tuple[pa.RecordBatch, tuple[int, int, int]]:
        """Return the chunk's operations and the position of the last; ``before`` is that before the first."""
        header_length = len(self.field_names) - len(self.columns.columns)
        texts = dict(zip(self.columns.names, chunk.texts[header_length:], strict=True))
        operations = operation_names(self._texts(chunk, HeaderField.OPERATION), _OPERATIONS)
        self._check_service(chunk)
        self._check_key(chunk, texts)
        position = self._positions(chunk, operations, before)
        values = self.columns.typed(list(texts.values())) | self._commit_values(chunk)
        arrays = {part: pa.array(position[:, i]) for i, part in enumerate(POSITION_PARTS)}
        last: tuple[int, int, int] = tuple(position[-1].tolist())
        batch = operations_batch(self.target_names, operations, arrays, values)
        if self.has_times:
            times = self._header_values(chunk, HeaderField.COMMIT_TIMESTAMP, _TIMESTAMP)
            batch = batch.add_column(2, CHANGED_AT, times.cast(pa.timestamp("us")))
        return batch, last

    def _texts(self, chunk: Chunk, wanted: HeaderField) -> pa.Array:
        return chunk.texts[self.field_index(wanted)]

    def _check_service(self, chunk: Chunk) -> None:
        if HeaderField.SERVICE in self.header:
            found = self._texts(chunk, HeaderField.SERVICE)
            wanted = pa.repeat(self.service, len(found))
            refuse_others(found, wanted, "field service", f"is {{}}, expected {self.service!r}")

    def _check_key(self, chunk: Chunk, texts: dict[str, pa.Array]) -> None:
        for number, name in enumerate(self.key):
            refuse_nulls(texts[name], f"column {name!r}", "is NULL, but it is part of the key")
            if HeaderField.KEY in self.header:
                found = chunk.texts[self.field_index(HeaderField.KEY) + number]
                reason = f"is {{}}, which differs from column {name!r}"
                refuse_others(found, texts[name], f"field key {name}", reason)

    def _positions(
        self, chunk: Chunk, operations: pa.Array, before: tuple[int, int, int]
    ) -> NDArray[np.int64]:
        """Return the position of each record; each must be later than the one before."""
        seqnos, row_ids = (
            self._header_values(chunk, f, _BIGINT).to_numpy(zero_copy_only=False)
            for f in (HeaderField.SEQNO, HeaderField.ROW_ID)
        )
        steps = pc.equal(operations, "insert").cast(pa.int64()).to_numpy(zero_copy_only=False)
        positions = np.column_stack([seqnos, row_ids, steps])
        earlier = np.vstack([np.array([before]), positions[:-1]])
        is_later = _is_later(positions, earlier)
        if not is_later.all():
            row = int(np.argmin(is_later))
            found, previous = positions[row, :2].tolist(), earlier[row, :2].tolist()
            reason = (
                f"is {found[0]} with row id {found[1]} after {previous[0]} with {previous[1]}: in a file, "
                "sequence numbers and row ids must increase, from the number in its name on; only a delete "
                "and the insert after it may have the same numbers"
            )
            raise FieldError(row, "field seqno", reason)
        return positions

    def _commit_values(self, chunk: Chunk) -> dict[str, pa.Array]:
        if HeaderField.COMMIT_TIMESTAMP not in self.header:
            return {}
        timestamps = self._header_values(chunk, HeaderField.COMMIT_TIMESTAMP, _TIMESTAMP)
        return {
            each.column.name: self.columns.values(each.texts(timestamps), each.column)
            for each in self.commit_columns
        }

    def _header_values(self, chunk: Chunk, wanted: HeaderField, hive_type: HiveType) -> pa.Array:
        field = f"field {wanted.value}"
        texts = self._texts(chunk, wanted)
        refuse_nulls(texts, field, "is NULL")
        try:
            return values_of_texts(texts, hive_type)
        except MisfitError as misfit:
            raise FieldError(misfit.row, field, f"has {misfit.value}, which {misfit.reason}") from misfit


def _is_later(positions: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return True for each position that is later than the other position in its row."""
    later = np.zeros(len(positions), dtype=bool)
    for part in reversed(range(positions.shape[1])):
        one, other = positions[:, part], others[:, part]
        later = (one > other) | ((one == other) & later)
    return later


def _later(batch: pa.RecordBatch, after: tuple[int, int]) -> pa.RecordBatch:
    """Return the operations after a sequence number and row id."""
    seqnos, row_ids = (batch.column(POSITION).field(part) for part in POSITION_PARTS[:2])
    is_same = pc.and_(pc.equal(seqnos, after[0]), pc.greater(row_ids, after[1]))
    return batch.filter(pc.or_(pc.greater(seqnos, after[0]), is_same))
