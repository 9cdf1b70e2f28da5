"""Cutting planned batches at the borders of their groups, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyorc
import pytest

from mutation_api.acid.version import AcidVersion
from mutation_api.commit.manifest import DeltaManifest
from mutation_api.spark.job import write_batch
from mutation_api.spark.plan import ADDRESS_COLUMNS
from mutation_api.spark.summary import ApplySummary
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.worker.coordinator import MutatorCoordinator


def table(location: Path, version: AcidVersion = AcidVersion.V1_LEGACY) -> AcidTable:
    return AcidTable(
        database="default",
        name="t",
        location=str(location),
        columns=(AcidColumn("id", "bigint"), AcidColumn("msg", "string")),
        partition_keys=(AcidColumn("ds", "string"),),
        num_buckets=4,
        bucket_columns=("id",),
        version=version,
        txn_id=9,
    )


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """A planned batch of (partition, bucket, operation, txn, row id, id, msg)."""
    types = [pa.string(), pa.int32(), pa.int8(), pa.int64(), pa.int64(), pa.int64(), pa.string()]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    return pa.record_batch(columns, names=[*ADDRESS_COLUMNS, "id", "msg"])


ROWS = [
    ("ds=a", 0, 2, 3, 1, None, None),
    ("ds=a", 0, 0, 9, 0, 4, "four"),
    ("ds=a", 1, 1, 3, 0, 5, "five"),
    ("ds=b", 1, 2, 2, 0, None, None),
    ("ds=b", 1, 1, 2, 7, 9, "nine"),
    ("ds=b", 1, 0, 9, 0, 13, None),
]


def write(coordinator: MutatorCoordinator, sizes: list[int]) -> dict[tuple[str, int], list[Any]]:
    """Events of each group's file after writing ROWS in batches of these sizes."""
    start = 0
    for size in sizes:
        write_batch(coordinator, batch(ROWS[start : start + size]))
        start += size
    assert start == len(ROWS)
    return {(m.partition_name, m.bucket_id): _events(m) for m in coordinator.close()}


def _events(manifest: DeltaManifest) -> list[Any]:
    with Path(manifest.staged_path).open("rb") as file:
        return list(pyorc.Reader(file))


@pytest.mark.parametrize("sizes", [[6], [1] * 6, [0, 2, 4], [3, 3], [5, 1]])
def test_groups_are_cut_whatever_the_batches(tmp_path: Path, sizes: list[int]) -> None:
    """The files do not depend on where batches end; a slice of a batch is written as itself."""
    with MutatorCoordinator(table(tmp_path), writer_id="w") as coordinator:
        found = write(coordinator, sizes)
    assert found == {
        ("ds=a", 0): [(2, 3, 0, 1, 9, None), (0, 9, 0, 0, 9, (4, "four"))],
        ("ds=a", 1): [(1, 3, 1, 0, 9, (5, "five"))],
        ("ds=b", 1): [(2, 2, 1, 0, 9, None), (1, 2, 1, 7, 9, (9, "nine")), (0, 9, 1, 0, 9, (13, None))],
    }


@pytest.mark.parametrize("version", list(AcidVersion))
def test_summary_counts_changes_not_events(tmp_path: Path, version: AcidVersion) -> None:
    """An update counts once, though a split table keeps it as a delete and an insert."""
    with MutatorCoordinator(table(tmp_path, version), writer_id="w") as coordinator:
        write_batch(coordinator, batch(ROWS))
        manifests = coordinator.close()
    summary = ApplySummary.from_manifests("default.t", 9, manifests, verify_seconds=0.0, write_seconds=1.0)
    assert (summary.insert_count, summary.update_count, summary.delete_count) == (2, 2, 2)
    assert summary.row_count == 6
    assert (summary.partitions, summary.group_count) == (("ds=a", "ds=b"), 3)
    assert summary.byte_count == sum(Path(m.staged_path).stat().st_size for m in manifests)
