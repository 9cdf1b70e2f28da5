"""The files that Tungsten stages for a table: their list, the new ones among them, and their last records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import BinaryIO

from mutation_api.errors import InputFormatError
from mutation_api.inputs.separated_text import DamagedRecordError, SeparatedText
from mutation_api.inputs.source_files import children, opened
from mutation_api.storage.location import Location

__all__ = [
    "StagingFile",
    "by_folder",
    "folders",
    "last_record",
    "outstanding_files",
    "splits",
    "staging_files",
]

SPLIT_BYTES = 32 * 1024 * 1024
"""Larger files are read by several tasks."""

_TAIL_BYTES = 64 * 1024
"""Bytes of one read in the search for the last record."""


@dataclass(frozen=True)
class StagingFile:
    """A file as it was listed; ``number``, from its name, is the first sequence number in it."""

    location: Location
    number: int
    size: int

    @property
    def folder(self) -> Location:
        """The folder of the file."""
        return self.location.parent


def folders(parent: Location) -> list[Location]:
    """Folders in a folder, without hidden ones, by name."""
    return [entry.location for entry in children(parent) if entry.is_directory]


def staging_files(folder: Location, table: str) -> list[StagingFile]:
    """Files of a table, sorted by folder and number.

    Raises:
        InputFormatError: the name of a file is not that of a staging file of the table.
    """
    return sorted(_files(folder, re.compile(rf"{re.escape(table)}-(\d+)\.csv")), key=_folder_and_number)


def outstanding_files(files: Sequence[StagingFile], after: tuple[int, int] | None) -> list[StagingFile]:
    """Files that may have records after this (sequence number, row id).

    The last sequence number of a file is at most the first one of the next file in its folder.
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
    """Sorted files, folder by folder."""
    return [list(group) for _, group in groupby(files, key=lambda file: file.folder)]


def last_record(file: StagingFile, text: SeparatedText) -> tuple[int, list[str | None]]:
    """The byte at which the last record of a file begins, and its fields; the file is not empty.

    With quotes the file is read from its beginning.

    Raises:
        DamagedRecordError: the file does not end with a whole record, or that does not follow the format.
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


def splits(file: StagingFile, text: SeparatedText, split_bytes: int = SPLIT_BYTES) -> list[tuple[int, int]]:
    """Ranges of bytes of whole records.

    With quotes a file is one range: only a scan from its beginning finds the newlines that end a record.
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
                f"{entry.location.shown}: the name of a staging file in this folder must be like "
                f"{pattern.pattern.partition('-')[0]}-1318.csv; if it is not a staging file, move it away"
            )
        yield StagingFile(entry.location, int(number[1]), entry.size)


def _start_of_last(file: StagingFile, end: bytes) -> int:
    """The byte at which the last record of the file begins: after the end of the one before."""
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
    """The byte after the next record end from the file's position on; the file's size if there is none."""
    start, read = file.tell(), b""
    while end not in read:
        more = file.read(_TAIL_BYTES)
        if not more:
            return start + len(read)
        read += more
    return start + read.index(end) + len(end)
