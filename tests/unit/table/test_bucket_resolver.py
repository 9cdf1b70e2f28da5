"""BucketIdResolver: which columns it takes, in which order and as which type."""

from __future__ import annotations

import dataclasses
import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.errors import ConfigurationError, RecordLayoutError, RecordValueError, TableNotMutableError
from mutation_api.format.bucket_hash import bucket_ids, hash_columns
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver


def table(*bucket_columns: str, **changes: object) -> AcidTable:
    columns = ("id int", "name string", "code char(3)", "price decimal(5,1)", "at timestamp", "raw binary")
    plain = AcidTable(
        database="db",
        name="t",
        location=Location.parse("/warehouse/t"),
        columns=tuple(AcidColumn(*column.split()) for column in columns),
        partition_keys=(),
        num_buckets=32,
        bucket_columns=bucket_columns,
        version=AcidVersion.V1_LEGACY,
    )
    return dataclasses.replace(plain, **changes)


def resolve(of: AcidTable, **columns: object) -> list[int]:
    return BucketIdResolver(of).resolve(pa.RecordBatch.from_pydict(columns)).to_pylist()


@pytest.mark.parametrize("version", list(AcidVersion))
def test_early_dates_follow_the_version(version: AcidVersion) -> None:
    """1582-10-04 is day -141428 for Hive 2.3 and -141438 for later releases, version 1 of the hash."""
    days = AcidColumn("day", "date")
    of = table("day", columns=(days,), version=version)
    expected = -141438 if version.uses_write_ids else -141428
    found = resolve(of, day=[datetime.date(1582, 10, 4)])
    assert found == bucket_ids(np.array([expected], np.int32), 32).tolist()


def test_order_is_that_of_clustered_by() -> None:
    """CLUSTERED BY (name, id) hashes name first, though the table and the records have id first."""
    types = [parse_hive_type("string"), parse_hive_type("int")]
    expected = bucket_ids(hash_columns([pa.array(["abc"]), pa.array([7], pa.int32())], types, 1), 32)
    assert resolve(table("name", "id"), id=[7], name=["abc"]) == expected.tolist()
    assert resolve(table("id", "name"), id=[7], name=["abc"]) != expected.tolist()


def test_names_match_whatever_the_case() -> None:
    """The metastore knows lower case only, records may spell names as they like."""
    assert resolve(table("ID"), Id=[7], other=["x"]) == [7]


def test_values_are_hashed_as_the_columns_type() -> None:
    """Bigint -1 would hash to 0; the column is an int, so it is -1. Cutting and rounding come first too."""
    assert resolve(table("id"), id=pa.array([-1], pa.int64())) == [(-1 & 0x7FFFFFFF) % 32]
    assert resolve(table("code"), code=["abcdef"]) == resolve(table("code"), code=["abc"])
    assert resolve(table("price"), price=[Decimal("1.25")]) == resolve(table("price"), price=[Decimal("1.3")])


def test_null_is_hash_0() -> None:
    """A null bucket column counts as 0; no bucket id is null."""
    assert resolve(table("id"), id=pa.array([None, 3], pa.int32())) == [0, 3]
    assert resolve(table("id", "name"), id=pa.array([1], pa.int8()), name=pa.nulls(1)) == [31]


def test_a_table_of_several_chunks() -> None:
    """Tables are resolved like batches."""
    chunks = pa.Table.from_batches([pa.RecordBatch.from_pydict({"id": [n]}) for n in (1, 2, 35)])
    assert BucketIdResolver(table("id")).resolve(chunks).to_pylist() == [1, 2, 3]


def test_timestamps_far_away_can_be_placed() -> None:
    """The year 9999 does not fit nanoseconds; its bucket is well defined all the same."""
    far = [datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1)]
    assert len(resolve(table("at", time_zone="UTC"), at=far)) == 2


def test_missing_and_doubled_columns_are_refused() -> None:
    """Without its bucket column a record has no bucket."""
    with pytest.raises(RecordLayoutError, match=r"db\.t.*'id' is missing.*\['name'\]"):
        resolve(table("id"), name=["x"])
    with pytest.raises(RecordLayoutError, match="2 times"):
        resolve(table("id"), id=[1], ID=[1])


def test_a_value_that_does_not_fit_is_refused_by_table_and_column() -> None:
    """A bucket of a value that would become NULL on reading must not be computed."""
    with pytest.raises(RecordValueError, match=r"db\.t\.id.*row 1.*4294967296"):
        resolve(table("id"), id=[1, 2**32])


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (table("id", num_buckets=0), TableNotMutableError, "0 buckets"),
        (table("id", num_buckets=4097), TableNotMutableError, "4097 buckets"),
        (table(), TableNotMutableError, "no bucket columns"),
        (table("missing"), TableNotMutableError, "'missing' is not one of its columns"),
        (table("raw", bucketing_version=2), TableNotMutableError, "binary"),
        (table("at"), ConfigurationError, "time zone"),
        (table("id", bucketing_version=3), ConfigurationError, "got 3"),
    ],
)
def test_tables_whose_buckets_cannot_be_computed(
    broken: AcidTable, error: type[Exception], message: str
) -> None:
    """The refusal comes when the resolver is made, before any record, and names the table."""
    with pytest.raises(error, match=rf"db\.t.*{message}"):
        BucketIdResolver(broken)
