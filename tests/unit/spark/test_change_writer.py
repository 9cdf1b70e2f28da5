"""Cutting planned batches at the borders of their groups, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyorc
import pytest

from mutation_api.format.event import bucket_property
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.transaction.manifest import DeltaManifest, FileKind
from mutation_api.write.address import ADDRESS_COLUMNS
from mutation_api.write.coordinator import MutatorCoordinator
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.writing_order import WritingOrder, write_batch


def table(location: Path, version: AcidVersion = AcidVersion.V1_LEGACY) -> AcidTable:
    return AcidTable(
        database="default",
        name="t",
        location=Location.given(location),
        columns=(AcidColumn("id", "bigint"), AcidColumn("msg", "string")),
        partition_keys=(AcidColumn("ds", "string"),),
        num_buckets=4,
        bucket_columns=("id",),
        version=version,
        txn_id=9,
        write_id=9 if version.uses_write_ids else None,
    )


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """A planned batch of (partition, bucket, operation, txn, bucket property, row id, id, msg)."""
    types = [pa.string(), pa.int32(), pa.int8(), pa.int64(), pa.int32(), pa.int64(), pa.int64(), pa.string()]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    return pa.record_batch(columns, names=[*ADDRESS_COLUMNS, "id", "msg"])


ROWS = [
    ("ds=a", 0, 2, 3, 0, 1, None, None),
    ("ds=a", 0, 0, 9, 0, 0, 4, "four"),
    ("ds=a", 1, 1, 3, 1, 0, 5, "five"),
    ("ds=b", 1, 2, 2, 1, 0, None, None),
    ("ds=b", 1, 1, 2, 1, 7, 9, "nine"),
    ("ds=b", 1, 0, 9, 0, 0, 13, None),
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
    with Path(manifest.staged.location.path).open("rb") as file:
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


def test_writing_order_is_by_group_and_then_by_row_id() -> None:
    """Partitions in the order in which they come first, whatever batch; a property by its statement."""
    order = WritingOrder()
    rows = [
        ("ds=b", 0, 1, 3, bucket_property(0, 4), 7, 1, "m"),
        ("ds=b", 0, 2, 3, 0, 9, None, None),
        ("ds=a", 2, 0, 9, 0, 0, 2, "m"),
    ]
    assert [part.tolist() for part in order(batch(rows))] == [
        [0, 0, 1],
        [0, 0, 2],
        [3, 3, 9],
        [5, 0, 0],
        [7, 9, 0],
    ]
    assert [part.tolist() for part in order(batch(rows[2:]))] == [[1], [2], [9], [0], [0]]


def with_properties(rows: list[tuple[Any, ...]], version: AcidVersion) -> list[tuple[Any, ...]]:
    """The rows as the version has them: with properties for bucket ids, or inserts alone."""
    if not version.has_row_ids:
        return [row for row in rows if row[2] == 0]
    if not version.encodes_buckets:
        return rows
    return [(*row[:4], bucket_property(row[1]) if row[2] else 0, *row[5:]) for row in rows]


@pytest.mark.parametrize("version", [v for v in AcidVersion if v.encodes_buckets])
def test_row_ids_are_written_as_they_were_read(tmp_path: Path, version: AcidVersion) -> None:
    """Deletes carry the property verbatim, its statement too; new rows get one of their file's bucket."""
    statement_5, statement_2 = bucket_property(1, 5), bucket_property(1, 2)
    rows = [
        ("ds=a", 1, 2, 3, statement_2, 9, None, None),
        ("ds=a", 1, 1, 3, statement_5, 0, 5, "five"),
        ("ds=a", 1, 0, 9, 0, 0, 6, "six"),
    ]
    with MutatorCoordinator(table(tmp_path, version), writer_id="w") as coordinator:
        write_batch(coordinator, batch(rows))
        found = {m.kind: _events(m) for m in coordinator.close()}
    new = bucket_property(1)
    assert found == {
        FileKind.DELETE_DELTA: [(2, 3, statement_2, 9, 9, None), (2, 3, statement_5, 0, 9, None)],
        FileKind.DELTA: [(0, 9, new, 0, 9, (5, "five")), (0, 9, new, 1, 9, (6, "six"))],
    }


@pytest.mark.parametrize("version", list(AcidVersion))
def test_summary_counts_changes_not_events(tmp_path: Path, version: AcidVersion) -> None:
    """An update counts once, though a split table keeps it as a delete and an insert."""
    with MutatorCoordinator(table(tmp_path, version), writer_id="w") as coordinator:
        write_batch(coordinator, batch(with_properties(ROWS, version)))
        manifests = coordinator.close()
    changed = 2 if version.has_row_ids else 0
    summary = ApplySummary.from_manifests("default.t", 9, manifests, verify_seconds=0.0, write_seconds=1.0)
    assert (summary.inserted, summary.updated, summary.deleted) == (2, changed, changed)
    assert summary.row_count == 2 + 2 * changed
    assert (summary.partitions, summary.bucket_count) == (("ds=a", "ds=b"), 3 if version.has_row_ids else 2)
    assert summary.byte_count == sum(Path(m.staged.location.path).stat().st_size for m in manifests)
