"""Rows that lie in a bucket other than their hash says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.errors import DirectoryStateError
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver, Placement, tells_bucket

TABLE = AcidTable(
    database="d",
    name="t",
    location=Location.parse("/t"),
    columns=(AcidColumn("id", "bigint"), AcidColumn("s", "string"), AcidColumn("x", "double")),
    partition_keys=(),
    num_buckets=4,
    bucket_columns=("id", "s"),
    version=AcidVersion.V2_HIVE4,
    bucketing_version=2,
)


def rows_of(bucket_id: int, count: int = 200) -> dict[str, pa.Array]:
    ids = pa.array(range(count), pa.int64())
    rows = pa.table({"id": ids, "s": pa.array([f"s{n}" for n in range(count)]), "x": ids.cast(pa.float64())})
    found = np.asarray(BucketIdResolver(TABLE).resolve(rows)) == bucket_id
    return {name: rows[name].combine_chunks().filter(pa.array(found)) for name in rows.column_names}


def test_rows_in_their_place_pass() -> None:
    """Also events without a row, which are all NULL, and an empty file."""
    for bucket_id in range(4):
        rows = rows_of(bucket_id)
        assert len(rows["id"]) > 10
        Placement(TABLE, "", bucket_id).check(rows, "f")
        padded = {name: pa.concat_arrays([array, pa.nulls(3, array.type)]) for name, array in rows.items()}
        Placement(TABLE, "", bucket_id).check(padded, "f")
    Placement(TABLE, "", 0).check({name: array.slice(0, 0) for name, array in rows_of(0).items()}, "f")


def test_a_misplaced_row_is_named() -> None:
    """One row among many, and a row with one NULL among its bucket columns."""
    (stray,) = ({name: array.slice(5, 1) for name, array in rows_of(2).items()},)
    rows = {name: pa.concat_arrays([array, stray[name]]) for name, array in rows_of(1).items()}
    with pytest.raises(DirectoryStateError) as caught:
        Placement(TABLE, "ds=a", 1).check(rows, "/t/base_3/bucket_00001")
    number = stray["id"][0].as_py()
    assert str(caught.value) == (
        f"table d.t, partition ds=a: 1 of {len(rows['id'])} rows in /t/base_3/bucket_00001 lie in bucket 1 "
        f"but hash to others; for example, id={number}, s='s{number}' hashes to bucket 2 of 4. Files were "
        "added by hand, or a program other than Hive altered the table. Hive itself misses such rows when it "
        "reads a single bucket. Read all buckets (prune_buckets=False, or --all-buckets) to see or delete "
        "these rows. To update them, rewrite the table first (INSERT OVERWRITE … SELECT)"
    )
    half = pa.table({"id": pa.array([None], pa.int64()), "s": ["q"]})
    home = BucketIdResolver(TABLE).resolve(half)[0].as_py()
    columns = {name: half[name].combine_chunks() for name in half.column_names}
    Placement(TABLE, "", home).check(columns, "f")
    with pytest.raises(DirectoryStateError, match="id=None, s='q'"):
        Placement(TABLE, "", (home + 1) % 4).check(columns, "f")


def test_keys_that_tell_the_bucket() -> None:
    """All bucket columns are needed, with types whose equal values hash alike, if Hive misplaces no rows."""
    assert tells_bucket(TABLE, {"id", "s"}) and tells_bucket(TABLE, {"id", "s", "x"})
    assert not tells_bucket(TABLE, {"id"})
    for change in (
        {"bucket_columns": ("x",)},
        {"bucket_columns": (), "num_buckets": 0},
        {"version": AcidVersion.V2_HIVE3},
    ):
        assert not tells_bucket(dataclasses.replace(TABLE, **change), {"id", "s", "x"})
