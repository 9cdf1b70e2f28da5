"""Planning a partition: without rows there are no splits. Refusals: test_snapshot_reader."""

from __future__ import annotations

from pathlib import Path

from metastore_client.valid_ids import ValidTxnList
from mutation_api.format.layout import AcidVersion
from mutation_api.read.partition_plan import plan_splits
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from tests.support.acid_files import write_events


def planned(path: Path) -> int:
    """How many splits a partition at this path has."""
    location = Location.given(path)
    table = AcidTable(
        database="d",
        name="t",
        location=location,
        columns=(AcidColumn("id", "bigint"), AcidColumn("msg", "string")),
        partition_keys=(),
        num_buckets=1,
        bucket_columns=("id",),
        version=AcidVersion.V1_SPLIT,
    )
    return len(plan_splits(table, "", location, ValidTxnList.everything()))


def test_a_split_delete_only_bucket_has_no_split(tmp_path: Path) -> None:
    """It has nothing to read."""
    write_events(tmp_path / "delete_delta_0000002_0000002/bucket_00000", [(2, 1, 0, 1, 2, None)])
    assert planned(tmp_path) == 0
    write_events(tmp_path / "delta_0000001_0000001/bucket_00000", [(0, 1, 0, 1, 1, {"id": 1, "msg": "a"})])
    assert planned(tmp_path) == 1


def test_a_missing_directory_has_no_rows(tmp_path: Path) -> None:
    """A partition may be registered before anything is written to it."""
    assert planned(tmp_path / "no") == 0
