"""What lies in deltas, against what real Hive read of tables that it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation_api.upkeep.delta_sizes import DeltaSizes, FileSizes, delta_sizes
from tests.support.golden_tables import GoldenTable


@pytest.mark.parametrize(
    "name", ["acid/split_update", "acid_v4/partitioned", "acid_v4/bucketed_minor", "acid_v4/original_files"]
)
def test_inserts_less_deletes_are_the_rows_that_hive_reads(name: str) -> None:
    """Where updates are split, each row is inserted once, and each delete hits one."""
    golden = GoldenTable(name)
    sizes = delta_sizes(golden.view())
    inserted = sum((s.base.row_count or 0) + (s.inserts.row_count or 0) for s in sizes)
    assert inserted - sum(s.deletes.row_count or 0 for s in sizes) == golden.row_count
    assert all(s.deltas == s.inserts + s.deletes for s in sizes)


def test_base_and_deltas_are_told_apart() -> None:
    """One base of four rows, two deltas with three events and one."""
    view = GoldenTable("acid/base_and_deltas").view()
    data = Path(view.table.location.path)
    by_directory = {d.name: (d / "bucket_00000").stat().st_size for d in data.glob("*_*") if d.is_dir()}
    (found,) = delta_sizes(view)
    base = by_directory.pop("base_0000005")
    assert found == DeltaSizes(
        "", FileSizes(1, base, 4), FileSizes(2, sum(by_directory.values()), 4), FileSizes(), 2
    )


def test_rows_need_not_be_counted(tmp_path: Path) -> None:
    """Then no file is opened: damaged ones do not matter."""
    directory = tmp_path / "delta_0000001_0000001"
    directory.mkdir()
    (directory / "bucket_00000").write_bytes(b"not ORC")
    view = GoldenTable("acid/base_and_deltas").view(tmp_path)
    (found,) = delta_sizes(view, counts_rows=False)
    assert found.deltas == FileSizes(1, 7, None)
    assert found.base == FileSizes(0, 0, None)
