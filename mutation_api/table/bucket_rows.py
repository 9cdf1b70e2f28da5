"""Bucket hashes of values that are written as JSON: one array of bucket column values per line.

``hive-mutate bucket`` reads such lines. :mod:`mutation_api.format.json_values` describes the values.
Timestamps may have up to nine digits of a second, which Hive hashes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError, MutationError, RecordValueError
from mutation_api.format.bucket_hash import bucket_ids, check_hashable, hash_columns
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import HiveType
from mutation_api.format.json_values import JsonMisfitError, decode_json, from_json
from mutation_api.format.text_values import BinaryEncoding, values_of_texts

_FRACTION = r"(?P<time>:\d\d:\d\d)\.(?P<digits>\d{1,9})$"


def column_from_json(values: Sequence[object], hive_type: HiveType) -> pa.Array:
    """Convert JSON values to a column in the form that the hash functions require.

    Args:
        values: n values of :func:`~mutation_api.format.json_values.decode_json`. None is null.
        hive_type: the column's type.

    Returns:
        n values in the form that :func:`~mutation_api.format.bucket_hash.hash_columns` accepts: char and
        varchar are cut. Timestamps are structs of seconds and nanoseconds, which hold every timestamp.

    Raises:
        RecordValueError: If a value is not valid for this type.
    """
    try:
        return from_json(values, hive_type, _hashable)
    except JsonMisfitError as misfit:
        shown = json.dumps(values[misfit.row], ensure_ascii=False, default=str)
        reason = misfit.reason or f"{shown} is not JSON of this type"
        raise RecordValueError(f"not a {hive_type.text}: {reason}") from misfit


def _hashable(texts: pa.Array, hive_type: HiveType) -> pa.Array:
    if hive_type.kind == "timestamp":
        return _moments(texts, hive_type)
    values = values_of_texts(texts, hive_type, binary=BinaryEncoding.BASE64)
    return convert_to_column(values, hive_type, column=hive_type.text)


def _moments(texts: pa.Array, hive_type: HiveType) -> pa.StructArray:
    whole = values_of_texts(pc.replace_substring_regex(texts, _FRACTION, r"\1"), hive_type)
    seconds = whole.cast(pa.timestamp("s")).view(pa.int64())
    digits = pc.struct_field(pc.extract_regex(texts, _FRACTION), "digits")
    nanos = pc.utf8_rpad(pc.fill_null(digits, "0"), 9, "0").cast(pa.int64())
    return pa.StructArray.from_arrays([seconds, nanos], names=["seconds", "nanos"], mask=texts.is_null())


BATCH_LINES = 50_000
"""The number of lines that are hashed at once."""


@dataclass(frozen=True)
class BucketHash:
    """The settings of a table's hash: bucket count, version, and column types in CLUSTERED BY order.

    ``time_zone`` is the time zone of Hive's own processes; version 1 hashes timestamps with it.

    Raises:
        TableNotMutableError, ConfigurationError: See :func:`~mutation_api.format.bucket_hash.check_hashable`.
    """

    types: tuple[HiveType, ...]
    num_buckets: int
    version: int
    time_zone: str

    def __post_init__(self) -> None:
        check_hashable(self.types, self.version, self.time_zone)


def hash_json_lines(lines: Iterable[str], how: BucketHash) -> Iterator[tuple[int, int]]:
    """Yield the hash and the bucket of each line.

    Args:
        lines: JSON arrays with one value per bucket column, as :mod:`mutation_api.format.json_values`
            describes them.
        how: the settings of the table's hash.

    Yields:
        (hash, bucket) of each line, as ints. If a batch contains an invalid line, none of its lines is
        yielded.

    Raises:
        RecordValueError: If a line is not a JSON array of such values. The message contains the line number,
            counted from 1.
        TableNotMutableError: If the bucket count is out of range.
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
        row = decode_json(line)
    except (ValueError, RecursionError) as error:
        raise RecordValueError(f"line {number}: not JSON: {error}") from error
    if not isinstance(row, list) or len(row) != len(how.types):
        found = line.strip()[:200]
        raise RecordValueError(f"line {number}: expected an array of {len(how.types)} value(s), got {found}")
    return row


def _hashes(rows: Sequence[Sequence[object]], how: BucketHash) -> NDArray[np.int32]:
    columns = [column_from_json([row[at] for row in rows], kind) for at, kind in enumerate(how.types)]
    return hash_columns(columns, how.types, how.version, how.time_zone)


def _refuse_bad_line(rows: Sequence[Sequence[object]], first: int, how: BucketHash) -> None:
    """Raise an error for the first invalid line of a batch that failed as a whole."""
    for number, row in enumerate(rows, first):
        try:
            _hashes([row], how)
        except ConfigurationError:
            raise
        except MutationError as error:
            raise RecordValueError(f"line {number}: {error}") from error
