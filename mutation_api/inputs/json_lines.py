"""Lines of the files of a JSON log: which files, in which order, and every line with the byte it begins at.

Spark's own text reader tells no line's place, splits at carriage returns too, and lets bytes through that are
no UTF-8. So Python reads blocks and cuts them with numpy; a line is never touched one by one. A file is read
up to the size that it had when it was listed, so that a log that goes on growing gives the same lines each
time it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mutation_api.errors import ConfigurationError, InputFormatError

__all__ = ["LINES_SCHEMA", "LogFile", "line_number", "log_files", "place_of", "read_lines"]

RANGE_BYTES = 32 * 1024 * 1024
"""Bytes of a file that one task reads."""

BLOCK_BYTES = 4 * 1024 * 1024

LONGEST_LINE = 256 * 1024 * 1024
"""A line that goes on for longer is no message; a file that is no log at all must not fill the memory."""

LINES_SCHEMA = "file int, offset bigint, text string"
"""``file`` counts within the list of files; ``text`` is null if the line is no UTF-8."""

_ARROW_SCHEMA = pa.schema([("file", pa.int32()), ("offset", pa.int64()), ("text", pa.string())])
_RANGES_SCHEMA = "file int, path string, start bigint, stop bigint, size bigint"
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class LogFile:
    """A file of the log: ``number`` is the last number in its name, 0 if there is none."""

    path: Path
    number: int
    size: int


def log_files(paths: Sequence[Path]) -> tuple[LogFile, ...]:
    """The files, and those of the folders, with what is below them; the numbers in their names order them.

    Names that begin with a dot or an underscore are none of the log's, as for Hive and Spark.

    Raises:
        ConfigurationError: there is no such file or folder.
    """
    found: list[Path] = []
    for path in (each.absolute() for each in paths):
        if path.is_dir():
            found += [file for file in path.rglob("*") if file.is_file() and not _is_hidden(file, path)]
        elif path.is_file():
            found.append(path)
        else:
            raise ConfigurationError(f"there is no file or folder {path}")
    return tuple(LogFile(path, _number(path), path.stat().st_size) for path in sorted(set(found), key=_order))


def read_lines(spark: SparkSession, files: Sequence[LogFile]) -> DataFrame:
    """All lines of the files, of LINES_SCHEMA, blank ones too.

    Raises:
        In the job: InputFormatError (a file is gone, or shorter than it was; a line has no end).
    """
    ranges = [
        (index, str(file.path), start, min(start + RANGE_BYTES, file.size), file.size)
        for index, file in enumerate(files)
        for start in range(0, file.size, RANGE_BYTES)
    ]
    frame = spark.createDataFrame(ranges, _RANGES_SCHEMA)
    if len(ranges) > 1:
        frame = frame.repartition(len(ranges), "file", "start")
    return frame.mapInArrow(_lines_of_ranges, LINES_SCHEMA)


def line_number(path: Path, offset: int) -> int:
    """Number, from 1, of the line that begins at this byte."""
    count, left = 1, offset
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(BLOCK_BYTES, left))):
            count += block.count(b"\n")
            left -= len(block)
    return count


def place_of(path: Path, offset: int, name: str | None = None) -> str:
    """For messages: the file, the line that begins at this byte, and a field of the message on it."""
    return f"{path}, line {line_number(path, offset)}" + (f", field {name}" if name else "")


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def _number(path: Path) -> int:
    numbers = _NUMBERS.findall(
        path.name.removesuffix(path.suffix) if path.suffix[1:].isalpha() else path.name
    )
    return int(numbers[-1][-18:]) if numbers else 0


def _order(path: Path) -> tuple[int, list[tuple[str, int]], str]:
    parts = re.findall(r"(\D*)(\d*)", str(path))
    return _number(path), [(text, int(number or -1)) for text, number in parts], str(path)


def _lines_of_ranges(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for each in batch.to_pylist():
            try:
                with Path(each["path"]).open("rb") as file:
                    for offset, block in _blocks(file, each["start"], each["stop"], each["size"]):
                        yield _lines(each["file"], offset, block)
            except (OSError, EOFError) as error:
                raise InputFormatError(
                    f"{each['path']} changed while it was read: {error}; files of a log are only added or "
                    "appended to"
                ) from error


def _blocks(file: BinaryIO, start: int, stop: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines that begin within [start, stop), in blocks, each with the byte it begins at."""
    at = _first_line(file, start, size)
    rest = b""
    while at + len(rest) < stop:
        read = file.read(min(BLOCK_BYTES, stop - at - len(rest)))
        if not read:
            raise EOFError(f"it has {at + len(rest)} bytes, and had {size} when it was listed")
        rest += read
        length = rest.rfind(b"\n") + 1
        if length:
            yield at, rest[:length]
            at, rest = at + length, rest[length:]
    if rest:
        yield at, rest + _end_of_line(file, size - at - len(rest))


def _first_line(file: BinaryIO, start: int, size: int) -> int:
    """Go to the first line that begins at ``start`` or later."""
    if not start:
        return 0
    file.seek(start - 1)
    return start - 1 + len(_end_of_line(file, size - start + 1))


def _end_of_line(file: BinaryIO, longest: int) -> bytes:
    found = file.readline(min(longest, LONGEST_LINE))
    if len(found) == LONGEST_LINE and longest > LONGEST_LINE:
        raise EOFError(f"a line goes on for more than {LONGEST_LINE} bytes; is this a log of JSON messages?")
    return found


def _lines(file: int, offset: int, block: bytes) -> pa.RecordBatch:
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    if not ends.size or ends[-1] < len(block):
        ends = np.append(ends, len(block))
    bounds = np.concatenate([[0], ends])
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(block)]
    texts = _texts(pa.Array.from_buffers(pa.binary(), len(ends), buffers))
    files = pa.array(np.full(len(ends), file, np.int32))
    return pa.record_batch([files, pa.array(bounds[:-1] + offset), texts], _ARROW_SCHEMA)


def _texts(lines: pa.Array) -> pa.Array:
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(line) for line in lines.to_pylist()], pa.string())


def _text(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
