"""Bucket hashes of values that are written as JSON, one array of bucket column values a line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from mutation_api.bucketing.bucket_hash import bucket_ids, check_hashable, hash_columns
from mutation_api.errors import ConfigurationError, MutationError, RecordValueError
from mutation_api.table.json_column import column_from_json
from mutation_api.types.hive_type import HiveType

__all__ = ["BATCH_LINES", "BucketHash", "hash_json_lines"]

BATCH_LINES = 50_000
"""Lines that are hashed at once."""


@dataclass(frozen=True)
class BucketHash:
    """How a table hashes: its bucket columns' types in CLUSTERED BY order, bucket count, bucketing version.

    ``time_zone`` is that of Hive's own processes; version 1 hashes timestamps by it.

    Raises:
        TableNotMutableError, ConfigurationError: see :func:`~.bucket_hash.check_hashable`.
    """

    types: tuple[HiveType, ...]
    num_buckets: int
    version: int
    time_zone: str

    def __post_init__(self) -> None:
        check_hashable(self.types, self.version, self.time_zone)


def hash_json_lines(lines: Iterable[str], how: BucketHash) -> Iterator[tuple[int, int]]:
    """Hash and bucket of each line.

    Args:
        lines: JSON arrays, with a value for each bucket column as :mod:`mutation_api.table.json_column` reads
            it; decimals keep all their digits.
        how: the table's.

    Yields:
        (hash, bucket) of the lines, as ints; those of a batch with a mistake not at all.

    Raises:
        RecordValueError: a line that is no JSON array of such values; has its number, counted from 1.
        TableNotMutableError: the bucket count is out of range.
    """
    rest = iter(lines)
    first = 1
    while batch := list(itertools.islice(rest, BATCH_LINES)):
        hashes = _batch_hashes(batch, first, how)
        buckets = bucket_ids(hashes, how.num_buckets)
        yield from zip(hashes.tolist(), buckets.tolist(), strict=True)
        first += len(batch)


def _batch_hashes(lines: Sequence[str], first: int, how: BucketHash) -> NDArray[np.int32]:
    rows = [_row(line, number, how) for number, line in enumerate(lines, first)]
    try:
        return _hashes(rows, how)
    except MutationError:
        _refuse_bad_line(rows, first, how)
        raise


def _row(line: str, number: int, how: BucketHash) -> list[object]:
    try:
        row = json.loads(line, parse_float=Decimal)
    except ValueError as error:
        raise RecordValueError(f"line {number}: not JSON: {error}") from error
    if not isinstance(row, list) or len(row) != len(how.types):
        found = line.strip()[:200]
        raise RecordValueError(f"line {number}: expected an array of {len(how.types)} value(s): {found}")
    return row


def _hashes(rows: Sequence[Sequence[object]], how: BucketHash) -> NDArray[np.int32]:
    columns = [column_from_json([row[at] for row in rows], kind) for at, kind in enumerate(how.types)]
    return hash_columns(columns, how.types, how.version, how.time_zone)


def _refuse_bad_line(rows: Sequence[Sequence[object]], first: int, how: BucketHash) -> None:
    """A whole batch failed; find the line."""
    for number, row in enumerate(rows, first):
        try:
            _hashes([row], how)
        except ConfigurationError:
            raise
        except MutationError as error:
            raise RecordValueError(f"line {number}: {error}") from error
