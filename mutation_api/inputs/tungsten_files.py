"""The files that Tungsten stages for a table: which there are, what of them is new, and where they end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import BinaryIO

from mutation_api.errors import InputFormatError
from mutation_api.inputs.separated_text import DamagedRecordError, SeparatedText

__all__ = [
    "StagingFile",
    "by_folder",
    "folders",
    "last_record",
    "outstanding_files",
    "splits",
    "staging_files",
]

BEING_COPIED = "._COPYING_"
"""Ends the name of a file that "hadoop fs -put" is still writing."""

HIDDEN = (".", "_")
"""What names begin with that nobody's data has, as Hadoop sees it."""

SPLIT_BYTES = 32 * 1024 * 1024
"""Larger files are read by several tasks."""

_TAIL_BYTES = 64 * 1024
"""Read at once to find the last record."""


@dataclass(frozen=True)
class StagingFile:
    """A file as it was when it was listed; ``number`` is its name's: the first sequence number in it."""

    folder: str
    number: int
    path: str
    size: int


def folders(parent: Path) -> list[Path]:
    """Folders in a folder, hidden ones left out, by name."""
    found = [e for e in _entries(parent) if e.is_dir() and not e.name.startswith(HIDDEN)]
    return sorted(Path(entry.path) for entry in found)


def staging_files(folder: Path, table: str) -> list[StagingFile]:
    """Files of a table, those of one folder by their numbers.

    Raises:
        InputFormatError: a file with a name that none of the table's has.
    """
    return sorted(_files(folder, re.compile(rf"{re.escape(table)}-(\d+)\.csv")), key=_place)


def outstanding_files(files: Sequence[StagingFile], after: tuple[int, int] | None) -> list[StagingFile]:
    """Those that may have records after this (sequence number, row id).

    A file ends at the latest with the sequence number that the next one in its folder begins with.
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
    """The last record of a file that is not empty, and the byte at which it begins.

    With quotes the file is read from its beginning.

    Raises:
        DamagedRecordError: the file does not end with a record, or that is not what the format says.
    """
    path = Path(file.path)
    start = 0 if text.quote is not None else _start_of_last(path, file.size, text.record_end.encode())
    last: tuple[int, list[str | None]] | None = None
    for offset, chunk in text.chunks(path, start, file.size):
        try:
            for at, fields in text.records(chunk):
                last = offset + at, fields
        except DamagedRecordError as damaged:
            raise damaged.moved(offset) from damaged
    assert last is not None
    return last


def splits(file: StagingFile, text: SeparatedText, split_bytes: int = SPLIT_BYTES) -> list[tuple[int, int]]:
    """Ranges of bytes of whole records.

    With quotes a file is one: which of its newlines end a record is known from its beginning only.
    """
    if text.quote is not None or file.size <= split_bytes:
        return [(0, file.size)]
    starts = [0]
    with Path(file.path).open("rb") as opened:
        for wanted in range(split_bytes, file.size, split_bytes):
            opened.seek(wanted)
            after = _after_end(opened, text.record_end.encode())
            if starts[-1] < after < file.size:
                starts.append(after)
    return list(pairwise([*starts, file.size]))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _place(file: StagingFile) -> tuple[str, int]:
    return file.folder, file.number


def _files(folder: Path, pattern: re.Pattern[str]) -> Iterator[StagingFile]:
    for entry in _entries(folder):
        if entry.name.startswith(HIDDEN) or entry.name.endswith(BEING_COPIED):
            continue
        if entry.is_dir():
            yield from _files(Path(entry.path), pattern)
            continue
        number = pattern.fullmatch(entry.name)
        if number is None:
            raise InputFormatError(
                f"{entry.path}: the name of a staging file here is like "
                f"{pattern.pattern.partition('-')[0]}-1318.csv; move the file away if it is none"
            )
        yield StagingFile(str(folder), int(number[1]), entry.path, entry.stat().st_size)


def _start_of_last(path: Path, size: int, end: bytes) -> int:
    """Where the last record of the file begins: after the end of the one before."""
    with path.open("rb") as file:
        at, tail = size, b""
        while at:
            length = min(_TAIL_BYTES, at)
            at -= length
            file.seek(at)
            tail = file.read(length) + tail
            before = tail.rfind(end, 0, len(tail) - len(end))
            if before >= 0:
                return at + before + len(end)
    return 0


def _after_end(file: BinaryIO, end: bytes) -> int:
    """The byte after the first record end from the file's position on; the file's size without one."""
    start, read = file.tell(), b""
    while end not in read:
        more = file.read(_TAIL_BYTES)
        if not more:
            return start + len(read)
        read += more
    return start + read.index(end) + len(end)
