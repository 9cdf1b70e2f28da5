"""Nothing is found in sound tables: ours of every layout, and all that real Hives wrote for tests/golden."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation_api.format.layout import AcidVersion
from mutation_api.upkeep.verify.verify import verify_view
from tests.support.golden_tables import GOLDEN_TABLES, GoldenTable
from tests.unit.upkeep.verify.sound_tables import LAYOUTS, SoundTable, view_of


@pytest.mark.parametrize("version", LAYOUTS)
def test_sound_tables_are_found_sound(tmp_path: Path, version: AcidVersion) -> None:
    """The only remark is of the directory that an aborted transaction left, and rows are counted right."""
    table = SoundTable(tmp_path, version)
    report = verify_view(view_of(tmp_path, version))
    assert [(f.rule_name, f.location.name) for f in report.findings] == [("aborted-id", table.delta(4).name)]
    assert report.is_sound
    assert report.row_count == table.row_count
    assert report.file_count == (6 if version is AcidVersion.V1_LEGACY else 8)


@pytest.mark.thorough(1)
@pytest.mark.parametrize("name", GOLDEN_TABLES)
def test_tables_of_real_hives_are_found_sound(name: str) -> None:
    """Not even a notice; and as many rows as Hive read."""
    golden = GoldenTable(name)
    report = verify_view(golden.view(), threads=2)
    assert report.findings == ()
    assert report.row_count == golden.row_count
