"""``hive-mutate bucket``: Hive's bucket hash of values, one JSON array of bucket column values a line."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TextIO

import numpy as np

from mutation_api.bucketing.bucket_hash import bucket_ids, check_hashable, hash_columns
from mutation_api.errors import ConfigurationError, MutationError, RecordValueError
from mutation_api.table.json_column import column_from_json
from mutation_api.types.hive_type import HiveType, parse_hive_type

__all__ = ["add_arguments", "run", "split_types"]

BATCH_LINES = 50_000


@dataclass(frozen=True)
class _Hashing:
    types: tuple[HiveType, ...]
    num_buckets: int
    version: int
    time_zone: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the subcommand."""
    parser.add_argument("--types", required=True, help="Hive types, in CLUSTERED BY order: int,decimal(10,2)")
    parser.add_argument("--buckets", required=True, type=int, metavar="N", help="bucket count of the table")
    parser.add_argument(
        "--bucketing-version",
        type=int,
        choices=(1, 2),
        default=1,
        help="1: Hive 2 and tables without the property (default); 2: tables with bucketing_version=2",
    )
    parser.add_argument("--time-zone", default="UTC", help="zone of Hive's processes (timestamps, version 1)")
    parser.add_argument("file", nargs="?", default="-", help="JSON arrays of values, one a line; '-': stdin")


def run(arguments: argparse.Namespace) -> int:
    """Print ``{"hash": …, "bucket": …}`` for each line.

    Raises:
        MutationError: options that make no sense; or a line that is no JSON array of such values, by its
        number.
    """
    types = tuple(parse_hive_type(text) for text in split_types(arguments.types))
    hashing = _Hashing(types, arguments.buckets, arguments.bucketing_version, arguments.time_zone)
    check_hashable(types, hashing.version, hashing.time_zone)
    with _opened(arguments.file) as source:
        for first, lines in _batches(source):
            sys.stdout.write(_answers(lines, first, hashing))
    return 0


def split_types(text: str) -> list[str]:
    """Split at the commas that are not inside ``<>`` or ``()``."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def _opened(name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        return contextlib.nullcontext(sys.stdin)
    try:
        return Path(name).open(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot read {name}: {error}") from error


def _batches(source: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line, counted from 1, and up to BATCH_LINES lines."""
    first = 1
    while lines := list(itertools.islice(source, BATCH_LINES)):
        yield first, lines
        first += len(lines)


def _answers(lines: Sequence[str], first: int, hashing: _Hashing) -> str:
    rows = [_row(line, first + place, hashing) for place, line in enumerate(lines)]
    try:
        hashes = _hashes(rows, hashing)
    except MutationError:
        _refuse_bad_line(rows, first, hashing)
        raise
    buckets = bucket_ids(hashes, hashing.num_buckets)
    pairs = zip(hashes.tolist(), buckets.tolist(), strict=True)
    return "".join(f'{{"hash": {each}, "bucket": {bucket}}}\n' for each, bucket in pairs)


def _row(line: str, number: int, hashing: _Hashing) -> list[object]:
    try:
        row = json.loads(line, parse_float=Decimal)
    except ValueError as error:
        raise RecordValueError(f"line {number}: not JSON: {error}") from error
    if not isinstance(row, list) or len(row) != len(hashing.types):
        found = line.strip()[:200]
        raise RecordValueError(f"line {number}: expected an array of {len(hashing.types)} value(s): {found}")
    return row


def _hashes(rows: Sequence[Sequence[object]], hashing: _Hashing) -> np.ndarray:
    types = enumerate(hashing.types)
    columns = [column_from_json([row[place] for row in rows], kind) for place, kind in types]
    return hash_columns(columns, hashing.types, hashing.version, hashing.time_zone)


def _refuse_bad_line(rows: Sequence[Sequence[object]], first: int, hashing: _Hashing) -> None:
    """A whole batch failed; find the line."""
    for place, row in enumerate(rows):
        try:
            _hashes([row], hashing)
        except ConfigurationError:
            raise
        except MutationError as error:
            raise RecordValueError(f"line {first + place}: {error}") from error
