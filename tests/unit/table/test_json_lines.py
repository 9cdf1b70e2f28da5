"""Hashes of JSON lines; that they are Hive's is shown in tests/unit/cli/test_bucket.py."""

from __future__ import annotations

import pytest

from mutation_api.errors import ConfigurationError, RecordValueError, TableNotMutableError
from mutation_api.table.bucket_rows import BATCH_LINES, BucketHash, hash_json_lines
from mutation_api.table.row_type import parse_types


def hashing(types: str, num_buckets: int = 10, version: int = 1, time_zone: str = "UTC") -> BucketHash:
    return BucketHash(parse_types(types), num_buckets, version, time_zone)


def test_each_line_has_a_hash_and_a_bucket() -> None:
    """In the order of the lines; null hashes to 0."""
    assert list(hash_json_lines(["[7, null]\n", "[null, null]"], hashing("int,string"))) == [(217, 7), (0, 0)]


def test_lines_are_counted_across_batches() -> None:
    """Whole batches are given before a mistake in a later one is met."""
    found = []
    with pytest.raises(RecordValueError, match=f"line {BATCH_LINES + 2}: expected an array of 1 value"):
        for each in hash_json_lines([*["[1]"] * BATCH_LINES, "[2]", "[2, 3]"], hashing("int")):
            found.append(each)
    assert found == [(1, 1)] * BATCH_LINES


def test_what_cannot_be_hashed_is_refused() -> None:
    """Types before any line; a zone or a bucket count when the first is hashed."""
    with pytest.raises(TableNotMutableError, match="binary"):
        hashing("binary", version=2)
    with pytest.raises(ConfigurationError, match="unknown time zone 'Mars'"):
        list(hash_json_lines(['["2020-01-01 00:00:00"]'], hashing("timestamp", time_zone="Mars")))
    with pytest.raises(TableNotMutableError, match="got 0"):
        list(hash_json_lines(["[1]"], hashing("int", num_buckets=0)))
