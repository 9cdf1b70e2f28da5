"""Rules of the bucket hash that the golden values pin, and its refusals."""

from __future__ import annotations

import collections
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.errors import ConfigurationError, RecordLayoutError, RecordValueError, TableNotMutableError
from mutation_api.format.bucket_hash import bucket_ids, check_hashable, hash_columns
from mutation_api.format.hive_type import parse_hive_type
from tests.support.golden_hashes import golden_column

GOLDEN = Path(__file__).parents[2] / "golden" / "bucket_hash"


def golden_groups(version: int) -> dict[tuple[str, ...], list[dict[str, object]]]:
    groups = collections.defaultdict(list)
    for line in (GOLDEN / f"bucket_hash_v{version}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line, parse_float=Decimal)
        groups[tuple(row["types"])].append(row)
    return groups


def single_hash(
    value: object, hive_type: str, version: int = 1, time_zone: str | None = "UTC", **settings: bool
) -> int:
    parsed = parse_hive_type(hive_type)
    column = golden_column([value], parsed)
    return int(hash_columns([column], [parsed], version, time_zone, **settings)[0])


@pytest.mark.parametrize(("version", "expected_count"), [(1, 213), (2, 207)])
def test_every_golden_value_has_its_hash_and_buckets(version: int, expected_count: int) -> None:
    """Hashes and buckets equal those of Hive's own classes, for all types, nested ones and column lists."""
    count = 0
    for types, rows in golden_groups(version).items():
        if version == 2 and types == ("binary",):
            continue
        parsed = [parse_hive_type(text) for text in types]
        columns = [golden_column([row["values"][i] for row in rows], t) for i, t in enumerate(parsed)]
        hashes = hash_columns(columns, parsed, version, "UTC")
        assert hashes.tolist() == [row[f"v{version}_hash"] for row in rows], types
        for buckets in ("2", "5", "10", "32", "256"):
            expected = [row[f"v{version}_bucket"][buckets] for row in rows]
            assert bucket_ids(hashes, int(buckets)).tolist() == expected
        count += len(rows)
    assert count == expected_count


def test_the_type_that_is_hashed_is_the_columns() -> None:
    """The same number hashes differently as int and as bigint, so the column's type must be hashed."""
    assert single_hash(-1, "int") == -1
    assert single_hash(-1, "bigint") == 0


def test_a_null_column_still_counts_as_a_step() -> None:
    """Null hashes to 0, and what came before it is multiplied by 31."""
    types = [parse_hive_type("int")] * 2
    columns = [pa.array([7, None], pa.int32()), pa.array([None, 7], pa.int32())]
    assert hash_columns(columns, types, 1).tolist() == [217, 7]


def test_the_sign_bit_is_masked() -> None:
    """Bucket of a negative hash: Java's mask, neither abs nor Python's modulo."""
    assert bucket_ids(np.array([-1, -(2**31)], np.int32), 10).tolist() == [(2**31 - 1) % 10, 0]


@pytest.mark.parametrize("num_buckets", [-1, 0, 4097])
def test_bucket_counts_out_of_range_are_refused(num_buckets: int) -> None:
    """1 to 4096 buckets, no others."""
    with pytest.raises(TableNotMutableError, match=f"got {num_buckets}"):
        bucket_ids(np.zeros(1, np.int32), num_buckets)


@pytest.mark.parametrize(
    "text", ["binary", "array<binary>", "map<binary,int>", "struct<a:uniontype<int,binary>>"]
)
def test_binary_is_refused_in_version_2(text: str) -> None:
    """Hive hashes stale bytes after a binary value in version 2; no writer can agree with that."""
    with pytest.raises(TableNotMutableError, match="binary"):
        check_hashable([parse_hive_type(text)], 2, None)
    check_hashable([parse_hive_type(text)], 1, None)


def test_binary_as_a_map_value_keeps_version_1() -> None:
    """The values of a map are hashed by version 1 even in version 2, where binary is well defined."""
    check_hashable([parse_hive_type("map<string,binary>")], 2, None)


def test_a_version_1_timestamp_needs_a_zone() -> None:
    """The bucket depends on the zone of Hive's processes; there is no safe default."""
    for text, version in (("timestamp", 1), ("array<timestamp>", 1), ("map<int,timestamp>", 2)):
        with pytest.raises(ConfigurationError, match="time zone"):
            check_hashable([parse_hive_type(text)], version, None)
    check_hashable([parse_hive_type("timestamp")], 2, None)


def test_an_unknown_version_is_refused() -> None:
    """Only versions 1 and 2 exist."""
    with pytest.raises(ConfigurationError, match="got 3"):
        check_hashable([parse_hive_type("int")], 3, None)


def test_an_unknown_zone_is_refused() -> None:
    """A misspelled zone must not become UTC."""
    with pytest.raises(ConfigurationError, match="Mars/Phobos"):
        single_hash("2020-01-01 00:00:00", "timestamp", time_zone="Mars/Phobos")


def test_values_of_another_type_are_refused() -> None:
    """Hashing reads raw buffers, so a wrong Arrow type must not reach them."""
    with pytest.raises(RecordLayoutError, match="int32"):
        hash_columns([pa.array([1], pa.int32())], [parse_hive_type("bigint")], 1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("wall_clock", "instant"),
    [
        ("2024-03-10 01:59:59", "2024-03-10 09:59:59"),
        ("2024-03-10 02:30:00", "2024-03-10 10:30:00"),
        ("2024-03-10 03:00:00", "2024-03-10 10:00:00"),
        ("2024-11-03 01:30:00", "2024-11-03 09:30:00"),
        ("2024-11-03 00:59:59", "2024-11-03 07:59:59"),
        ("2060-07-01 12:00:00", "2060-07-01 19:00:00"),
    ],
)
def test_wall_clocks_become_instants_as_in_java(wall_clock: str, instant: str) -> None:
    """In a gap the earlier offset holds, in an overlap the later instant; rules go on after 2037."""
    assert single_hash(wall_clock, "timestamp", time_zone="America/Los_Angeles") == single_hash(
        instant, "timestamp"
    )


def test_timestamps_before_1901_are_refused_in_a_changing_zone() -> None:
    """Java's legacy zones know no local mean time; where it does not matter (UTC) nothing is refused."""
    with pytest.raises(RecordValueError, match=r"1800.*America/Los_Angeles"):
        single_hash("1800-01-01 00:00:00", "timestamp", time_zone="America/Los_Angeles")
    assert single_hash(None, "timestamp", time_zone="America/Los_Angeles") == 0
    single_hash("1800-01-01 00:00:00", "timestamp", time_zone="UTC")


def test_version_2_timestamps_need_no_zone() -> None:
    """Version 2 hashes the wall clock itself."""
    assert single_hash("1970-01-01 00:00:01", "timestamp", 2, None) == 1321152925


def test_version_1_of_days_before_1582_follows_the_line() -> None:
    """Hive 2.3 counts such days with the hybrid calendar; Hive 3.1 and 4.1 do not."""
    assert single_hash("1582-10-04", "date") == -141428
    assert single_hash("1500-02-28", "date") == -171597
    proleptic = {"hybrid_dates": False}
    assert single_hash("1582-10-04", "date", **proleptic) == -141438
    assert single_hash("1500-02-28", "date", **proleptic) == -171606
    assert single_hash("0001-01-01", "date", **proleptic) == -719162
    assert single_hash("1582-10-15", "date", **proleptic) == single_hash("1582-10-15", "date") == -141427


def test_early_timestamps_hash_alike_on_every_line() -> None:
    """All releases go through java.sql.Timestamp; values hashed by Hive 3.1.3 and 4.1.0."""
    for hybrid_dates in (True, False):
        settings = {"hybrid_dates": hybrid_dates}
        assert single_hash("0001-01-01 00:00:00", "timestamp", **settings) == 1645926784
        assert single_hash("1500-02-28 01:02:03.5", "timestamp", **settings) == -19003454
        assert single_hash("0001-01-01 00:00:00", "timestamp", 2, **settings) == 1971120217


def test_days_in_a_map_of_version_2_are_proleptic() -> None:
    """They are hashed by version 1 within version 2, which Hive 2.3 does not have."""
    found = single_hash([[1, "1500-02-28"]], "map<int,date>", 2)
    assert found == single_hash([[1, "1500-02-28"]], "map<int,date>", 2, hybrid_dates=False)
    assert found == -1321054153


def test_a_char_is_hashed_without_its_blanks() -> None:
    """Only 0x20 is stripped, and only from a char."""
    assert single_hash("ab  ", "char(5)") == single_hash("ab", "char(5)") == 4066
    assert single_hash("ab\t", "char(5)") != 4066
    assert single_hash("ab ", "varchar(5)") == 126078


@pytest.mark.parametrize("version", [1, 2])
def test_no_rows_have_no_hashes(version: int) -> None:
    """An empty batch is fine for every type."""
    for text in (
        "int",
        "string",
        "char(3)",
        "decimal(38,18)",
        *(["timestamp"] if version == 2 else []),  # in version 1 it needs a zone
        "array<string>",
        "map<int,int>",
        "uniontype<int,string>",
    ):
        parsed = parse_hive_type(text)
        assert hash_columns([golden_column([], parsed)], [parsed], version).tolist() == []
