"""The benchmark of the bucket hash: its rows lie where they belong, so no update is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.bucket_hash import TYPES, Updates, case_of, made_up_table, versions_of
from benchmarks.measuring.measure import Result, Usage
from mutation_api.format.event import bucket_ids
from mutation_api.format.layout import AcidVersion
from mutation_api.table.bucket_resolver import BucketIdResolver


@pytest.mark.parametrize(
    ("hive_type", "version"),
    [(hive_type, version) for hive_type in TYPES for version in versions_of(hive_type)],
)
def test_row_ids_name_the_computed_bucket(tmp_path: Path, hive_type: str, version: int) -> None:
    """Of every type and hash; and the keys in the file are those that are hashed alone."""
    updates = Updates.made(tmp_path / "updates", hive_type, version, 50)
    rows = pq.read_table(updates.path)
    table = made_up_table(tmp_path, hive_type, version, AcidVersion.V2_HIVE4)
    properties = rows["ROW__ID"].combine_chunks().field("bucketid").to_numpy()
    assert bucket_ids(properties).tolist() == BucketIdResolver(table).resolve(rows).to_pylist()
    assert rows["k"].to_pylist() == updates.keys["k"].to_pylist()
    assert updates.hash() > 0


def test_share_is_of_the_job_with_the_hash() -> None:
    """Round by round: seconds of the hash alone by those of all processes of the job."""
    job = Usage(9.0, {"java": 1.0, "python": 1.0}, {"java": 1, "python": 1}, 0)
    results = [
        Result("hash", [Usage(0.1, {"driver": 0.0}, {"driver": 1}, 0)]),
        Result("with", [job]),
        Result("without", [job]),
    ]
    case = case_of("int, version 1", results, [0.01], 1_000_000)
    assert case["share"] == {"median": 0.005, "low": 0.005, "high": 0.005}
    assert case["rows_per_second"] == 100_000_000
    assert "0.50% (0.50% to 0.50%), aim 3%" in case["text"]


def test_a_job_that_failed_has_no_share() -> None:
    """It is told, and nothing is divided."""
    hashed = Result("hash", [Usage(0.1, {"driver": 0.0}, {"driver": 1}, 0)])
    case = case_of("int, version 1", [hashed, Result("with", failure="x"), Result("without")], [0.01], 10)
    assert case["share"] is None
    assert case["ratios"] == {}
    assert "a job failed" in case["text"]
